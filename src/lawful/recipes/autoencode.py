"""Autoencode: data through a narrow code and back, from clean inputs or from corrupted ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from lawful import optim
from lawful.blocks import Standardize
from lawful.data import Batch, ShuffledBatches
from lawful.functions import identity
from lawful.functions.pca import Principal
from lawful.inference.metrics.intervals import bootstrap
from lawful.laws import Claim, batch_independence, shape
from lawful.models.generative import (
    PCA,
    Autoencoder,
    AutoencoderSampler,
    CNNAutoencoderConfig,
    GaussianCorruption,
    MaskingCorruption,
    MLPAutoencoderConfig,
    cnn_autoencoder,
    mlp_autoencoder,
)
from lawful.probe import figures
from lawful.recipes.data import DataSpec, GenerativeData, GenerativeSplits
from lawful.recipes.generative_eval import by_units, codes_figure, draw_samples, mean_error
from lawful.recipes.model_size import check_parameter_count
from lawful.recipes.pca import SHOWN, Observing, pairs, powers
from lawful.training import MaxLength, OptimizerStep, Range, Run, TrainerConfig, TrainingSetup, validate
from lawful.training import checkpoint as state

Width = Annotated[int, Range(1, 10**6)]


@dataclass(frozen=True, kw_only=True)
class AutoencodeRecipe:
    """Train an autoencoder, or a denoising one, and see what the number of units of its code costs."""

    name: ClassVar[str] = "autoencode"

    model: Literal["mlp", "cnn"] = "mlp"
    """Dense layers, for any data; or convolutions, for images and series."""
    latent: Annotated[int, Range(1, 10**5)] = 8
    """The units of the code: the bottleneck."""
    hidden: Annotated[tuple[Width, ...], MaxLength(100)] = (128,)
    """mlp: the width of each hidden layer of the encoder; the decoder has them in reverse."""
    width: Width = 16
    """cnn: the channels after the first convolution; each halving doubles them."""
    halvings: Annotated[int, Range(1, 20)] = 2
    """cnn: how often an image is halved."""
    corrupt: Literal["nothing", "gaussian", "masking"] = "nothing"
    """What is done to an input in training, which is then to be undone: noise added, or entries put to the mean."""
    strength: Annotated[float, Range(0, 1e6)] = 0.5
    """gaussian: the deviation of the noise, in deviations of the data; masking: the share of entries."""
    steps: Annotated[int, Range(1, 10**9)] = 1500
    """The number of steps."""
    batch: Annotated[int, Range(1, 10**9)] = 64
    """Observations in a step."""
    learning_rate: Annotated[float, Range(0, 1e30)] = 5e-3
    """The length of a step, at its longest."""
    weight_decay: Annotated[float, Range(0, 1e30)] = 1e-4
    """How strongly weights are pulled to 0."""
    patience: Annotated[int, Range(0, 10**6)] = 0
    """How many evaluations, of which there are 20, without a better one end the training; 0 for all steps."""
    given: GenerativeData = field(default_factory=GenerativeData)
    engine: TrainerConfig = field(default_factory=TrainerConfig)

    def __post_init__(self) -> None:
        validate(self)
        if self.corrupt == "masking" and self.strength > 1:
            raise ValueError(f"strength is a share, for masking: got {self.strength}")
        if self.patience and not self.given.validation:
            raise ValueError("patience wants observations to choose by: give validation a share above 0")

    def training(self) -> Observing:
        """Reads the observations and builds the autoencoder."""
        seen = self.given.parts()
        model = self.built(seen.form)
        model.autoencoder.fit_normalizer(seen.train)
        rates = optim.adamw(model.autoencoder.parameters(), lr=self.learning_rate, decay=self.weight_decay)
        schedule = optim.one_cycle(steps=max(2, self.steps))
        batches = ShuffledBatches(seen.train, size=min(self.batch, len(seen.train)), seed=self.engine.seed)
        return Observing(
            model=model,
            turns=[OptimizerStep(objective=objective, optimizer=rates, schedule=schedule)],
            batches=batches,
            steps=self.steps,
            evaluate=partial(evaluated, x=seen.held_out),
            every=max(1, self.steps // 20),
            patience=self.patience or None,
            claims=partial(model_claims, of=seen.shape),
            described=seen.described,
            fingerprint=seen.fingerprint,
            notes=seen.notes,
            seen=seen,
        )

    def finish(self, run: Run, training: TrainingSetup) -> Mapping[str, Any]:
        """Reads the codes of the training data, and measures and draws what is rebuilt of the test."""
        if not isinstance(training, Observing) or not isinstance(model := training.model, AutoencoderSampler):
            return {}
        model.eval()
        with torch.no_grad():
            found = gaussian_of(model.autoencoder.encode(training.seen.train))
            of_codes(model).load_state_dict(found.state_dict())
            run.keep_weights(state.plain(model.state_dict()))
            return self.results(run, model, training.seen)

    def restored(self, facts: Mapping[str, Any]) -> nn.Module:
        """Builds the model of a run, before its weights are put in."""
        return self.built(DataSpec.described(facts))

    # ------------------------------------------------------------ the model

    def built(self, form: DataSpec) -> AutoencoderSampler:
        """The autoencoder with a Gaussian of codes, which is found at the end."""
        check_parameter_count([partial(self.sized, form.shape)])
        return AutoencoderSampler(PCA.standard((self.latent,), components=self.latent), self.sized(form.shape))

    def sized(self, of: tuple[int, ...]) -> Autoencoder:
        match self.model:
            case "mlp":
                sizes = MLPAutoencoderConfig(shape=of, latent=self.latent, hidden=self.hidden)
                model = mlp_autoencoder(sizes, corrupt=self.corruption())
            case "cnn":
                if len(of) not in (2, 3):
                    raise ValueError(f"a cnn takes images or series: these have shape {of}; model mlp takes them")
                facts = CNNAutoencoderConfig(shape=of, latent=self.latent, width=self.width, halvings=self.halvings)
                model = cnn_autoencoder(facts, corrupt=self.corruption())
        if len(of) == 1:  # columns have units of their own
            model.inputs = Standardize(of)
        return model

    def corruption(self) -> Callable[[Tensor], Tensor]:
        match self.corrupt:
            case "gaussian":
                return GaussianCorruption(self.strength)
            case "masking":
                return MaskingCorruption(self.strength)
            case "nothing":
                return identity

    # ------------------------------------------------------------ the results

    def results(self, run: Run, model: AutoencoderSampler, seen: GenerativeSplits) -> dict[str, Any]:
        """What is rebuilt of the test beside the mean and the best flat space, and what each unit is worth."""
        autoencoder, test = model.autoencoder, seen.test
        errors, mean = autoencoder.errors(test).double(), mean_error(seen)
        units = sorted({*powers(math.prod(seen.shape)), self.latent})
        flat, own = by_units(seen, units), by_directions(model, test, [k for k in units if k <= self.latent])
        drawn = {
            "error by units": figures.bottleneck(
                {"PCA": pairs(flat), f"autoencoder of {self.latent}, its main directions": pairs(own)},
                mean=mean,
            ),
        }
        found: dict[str, Any] = {
            "test": {
                "squared error": bootstrap(torch.mean, errors).json(),
                "explained variance": {"value": 1 - float(errors.mean()) / mean},
            },
            "baselines": {
                "the mean, squared error": mean,
                f"PCA of {self.latent} units, squared error": flat[str(self.latent)],
            },
            "squared error by units": {"PCA": flat, "main directions of the code": own},
            "examples": seen.counts,
            "parameters": sum(p.numel() for p in model.parameters()),
            "warnings": list(seen.notes),
        }
        rows = {"data": test[:SHOWN], "rebuilt": autoencoder(test[:SHOWN])}
        if self.corrupt != "nothing":
            with torch.random.fork_rng(devices=()):
                torch.manual_seed(self.engine.seed)
                spoilt = autoencoder.inputs.inverse(autoencoder.corrupt(autoencoder.inputs(test)))
            cleaned = autoencoder(spoilt)
            for name, y in (("corrupted", spoilt), ("cleaned", cleaned)):
                off = (y - test).square().flatten(1).sum(1).double()
                found["test"][f"squared error, {name}"] = bootstrap(torch.mean, off).json()
            rows = {"data": test[:SHOWN], "corrupted": spoilt[:SHOWN], "cleaned": cleaned[:SHOWN]}
        if len(seen.shape) > 1:
            drawn["rebuilt"] = figures.reconstructions(*rows.values(), names=[*rows])
        if self.latent > 1:
            codes = of_codes(model).project(autoencoder.encode(test))
            drawn["codes"] = codes_figure(codes, seen, names=("first direction of the code", "second"))
        for name, figure in drawn.items():
            figures.save(figure, run.figures / f"{name}.png")
        draw_samples(run, model, seen, seed=self.engine.seed)
        return found


def objective(model: nn.Module, batch: Batch) -> Tensor:
    """The squared error of what is rebuilt, in standard units."""
    return _decoded(model).autoencoder.loss(batch[0])


@torch.no_grad()
def evaluated(model: nn.Module, x: Tensor) -> dict[str, float]:
    """The squared error of what is rebuilt of clean observations, in standard units."""
    return {"loss": float(_decoded(model).autoencoder.loss(x))}


def gaussian_of(z: Tensor) -> PCA:
    """The Gaussian of codes along all their axes, those along which they do not vary among them."""
    z = z.double()
    mean = z.mean(0)
    values, axes = torch.linalg.eigh((z - mean).T @ (z - mean) / len(z))
    values, axes = values.flip(0), axes.flip(1)
    values = values.clamp_min(1e-6 * max(float(values.mean()), 1e-30))
    found = Principal(len(z), mean, axes, values, float(values.sum()), axes * values.rsqrt())
    return PCA(found).float()


def of_codes(model: AutoencoderSampler) -> PCA:
    """The Gaussian of codes."""
    if not isinstance(model.codes, PCA):
        raise TypeError(f"a Gaussian of codes was wanted: got {type(model.codes).__name__}")
    return model.codes


def by_directions(model: AutoencoderSampler, x: Tensor, units: list[int]) -> dict[str, float]:
    """The squared error of what is rebuilt where only the main directions of the code are kept."""
    codes = of_codes(model)
    z, found = codes.project(model.autoencoder.encode(x)), {}
    for k in units:
        kept = torch.cat([z[:, :k], torch.zeros_like(z[:, k:])], 1)
        off = model.autoencoder.decode(codes.reconstruct(kept)) - x
        found[str(k)] = float(off.square().flatten(1).sum(1).double().mean())
    return found


def model_claims(model: nn.Module, *, of: tuple[int, ...]) -> Iterator[Claim]:
    """What an autoencoder is to keep: observations do not mix, on the way in nor on the way out."""
    decoded = _decoded(model)
    example = shape(" ".join(map(str, ("b", *of))))
    yield Claim(batch_independence(), decoded.autoencoder, example, name="rebuilt")
    yield Claim(batch_independence(), decoded.autoencoder.encode, example, name="codes")


def _decoded(model: nn.Module) -> AutoencoderSampler:
    if not isinstance(model, AutoencoderSampler):
        raise TypeError(f"an autoencoder with codes was wanted: got {type(model).__name__}")
    return model
