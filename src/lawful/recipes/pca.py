"""PCA: a flat space near the data, and the Gaussian that they have around it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from lawful._json import whole
from lawful.data import ShuffledBatches
from lawful.functions import pca_axes, randomized_pca_axes
from lawful.inference.metrics.intervals import bootstrap
from lawful.laws import Claim, batch_independence, density_integrates_to_one, idempotence, shape
from lawful.models.generative import PCA
from lawful.probe import figures
from lawful.recipes.data import DataSpec, GenerativeData, GenerativeSplits
from lawful.recipes.generative_eval import by_units, codes_figure, density_baselines, draw_samples, held_out, mean_error
from lawful.recipes.model_size import MOST
from lawful.training import Range, Run, TrainerConfig, TrainingSetup, validate

SHOWN = 8
"""How many observations are drawn beside what is rebuilt of them."""


@dataclass(frozen=True, kw_only=True)
class Observing(TrainingSetup):
    """A training together with the observations that it was made of."""

    seen: GenerativeSplits


@dataclass(frozen=True, kw_only=True)
class PCARecipe:
    """Train PCA: the axes along which data vary most, with a density, samples and the error of what is rebuilt."""

    name: ClassVar[str] = "pca"

    components: Annotated[int, Range(0, 10**6)] = 0
    """How many axes are kept; 0 for as many as give the validation the best score, 8 where there is none."""
    how: Literal["exact", "randomised", "streaming"] = "exact"
    """All the data at once; a few random directions first, for many features; or batch by batch, for much data."""
    batch: Annotated[int, Range(1, 10**8)] = 1024
    """streaming: observations at once."""
    given: GenerativeData = field(default_factory=GenerativeData)
    engine: TrainerConfig = field(default_factory=TrainerConfig)

    def __post_init__(self) -> None:
        validate(self)
        if self.batch != type(self).batch and self.how != "streaming":
            raise ValueError(f"batch is for how streaming: how is {self.how}")

    def training(self) -> Observing:
        """Reads the observations and finds the axes, which takes no steps."""
        seen = self.given.parts()
        train = continuous(seen, seen.train, seed=1)
        model = self.fitted(train, self.chosen(seen, train))
        return Observing(
            model=model,
            turns=[],
            batches=ShuffledBatches(train, size=len(train), seed=self.engine.seed),
            steps=0,
            claims=partial(model_claims, of=seen.shape),
            described={**seen.described, "components": model.components},
            fingerprint=seen.fingerprint,
            notes=seen.notes,
            seen=seen,
        )

    def finish(self, run: Run, training: TrainingSetup) -> Mapping[str, Any]:
        """Measures the density and what is rebuilt of the test, and draws both."""
        if not isinstance(training, Observing) or not isinstance(model := training.model, PCA):
            return {}
        seen = training.seen
        errors = (model(seen.test) - seen.test).square().flatten(1).sum(1)
        units = powers(math.prod(seen.shape))
        rebuilt, mean = by_units(seen, units), mean_error(seen)
        draw_samples(run, model, seen, seed=self.engine.seed)
        drawn = {"error by units": figures.bottleneck({"PCA": pairs(rebuilt)}, mean=mean)}
        if model.components > 1:
            share = [f"{100 * float(part):.0f} % of the variance" for part in model.explained[:2]]
            names = (f"first component, {share[0]}", f"second, {share[1]}")
            drawn["codes"] = codes_figure(model.project(seen.test), seen, names=names)
        if len(seen.shape) > 1:
            some = seen.test[:SHOWN]
            drawn["rebuilt"] = figures.reconstructions(some, model(some), names=("data", "rebuilt"))
            drawn["components"] = figures.samples_grid(model.axes.T[:16].unflatten(1, seen.shape))
        for name, figure in drawn.items():
            figures.save(figure, run.figures / f"{name}.png")
        return {
            "test": {**held_out(model, seen), "squared error": bootstrap(torch.mean, errors.double()).json()},
            "baselines": {**density_baselines(seen), "the mean, squared error": mean},
            "components": model.components,
            "explained variance": float(model.explained.sum()),
            "squared error by units": rebuilt,
            "examples": seen.counts,
            "warnings": list(seen.notes),
        }

    def restored(self, facts: Mapping[str, Any]) -> nn.Module:
        """Builds the model of a run, before its state is put in."""
        form = DataSpec.described(facts)
        d = math.prod(form.shape)
        components = whole(facts.get("components"), 0, d, where="model.components")
        if d * components > MOST:
            raise ValueError(f"at most {MOST:,} weights were wanted: these sizes give {d * components:,}")
        return PCA.standard(form.shape, components=components)

    # ------------------------------------------------------------ the parts

    def fitted(self, train: Tensor, components: int) -> PCA:
        """The model with so many axes."""
        match self.how:
            case "exact":
                return PCA.fit(train, axes=partial(pca_axes, components=components))
            case "randomised":
                axes = partial(randomized_pca_axes, components=components, seed=self.engine.seed)
                return PCA.fit(train, axes=axes)
            case "streaming":
                return PCA.over(train.split(self.batch), components=components)

    def chosen(self, seen: GenerativeSplits, train: Tensor) -> int:
        """How many axes are kept: as many as were asked for, or as score best on the validation."""
        most = min(math.prod(seen.shape), len(train) - 1)
        if self.components > most:
            raise ValueError(
                f"components are at most {most}, of {len(train)} observations of shape {seen.shape}: "
                f"got {self.components}"
            )
        if self.components or seen.validation is None or self.how != "exact":
            return self.components or min(8, most)
        return best(train.flatten(1).double(), continuous(seen, seen.validation, seed=2).flatten(1).double())


def best(train: Tensor, validation: Tensor) -> int:
    """The number of axes under which other data are most probable."""
    found, d = pca_axes(train), train.shape[1]
    off = validation - found.mean
    along, total = (off @ found.axes).square().mean(0), float(off.square().sum(1).mean())
    scores = []
    for k in range(1, len(found.variances) + 1):
        kept = found.variances[:k]
        left = (found.total - float(kept.sum())) / (d - k) if k < d else 0.0
        noise = max(left, 1e-6 * found.total / d)
        across = (total - float(along[:k].sum())) / noise + (d - k) * math.log(noise)
        scores.append(-across - float((along[:k] / kept + kept.log()).sum()))
    return 1 + max(range(len(scores)), key=scores.__getitem__)


def continuous(seen: GenerativeSplits, x: Tensor, *, seed: int) -> Tensor:
    """Observations with their levels, if they have some, spread over cells."""
    return x if seen.dequantizer is None else seen.dequantizer.dequantized(x, seed=seed)


def powers(most: int) -> list[int]:
    """1, 2, 4, ... as far as a number."""
    return [2**i for i in range(most.bit_length()) if 2**i <= most]


def pairs(errors: Mapping[str, float]) -> list[tuple[int, float]]:
    """Numbers of units and errors."""
    return [(int(k), error) for k, error in errors.items()]


def model_claims(model: nn.Module, *, of: tuple[int, ...]) -> Iterator[Claim]:
    """What PCA is to keep: what is rebuilt stays, and observations do not mix."""
    if isinstance(model, PCA):
        example = shape(" ".join(map(str, ("b", *of))))

        yield Claim(idempotence(), model, example, name="rebuilt twice")
        yield Claim(batch_independence(), model.log_density, example, name="log-density")
        if of == (2,):

            def sampled(n: int) -> Tensor:
                return model.sample(n, seed=int(torch.randint(2**31, ())))

            def log_prob(x: Tensor) -> Tensor:
                return model.log_density(x)

            whole = density_integrates_to_one(sample=sampled, log_prob=log_prob)
            yield Claim(whole, log_prob, example, name="density")
