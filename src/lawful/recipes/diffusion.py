"""The options of a diffusion: its path, what its network predicts, and how noise levels are trained on.

Diffusion: a network that denoises, and what it draws, scores and completes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from lawful.blocks import Standardize
from lawful.data import Batch, ShuffledBatches
from lawful.functions.random import normal_noise
from lawful.laws import Claim, batch_independence, shape
from lawful.losses.diffusion import LogNormal, LogUniform, NoiseLevelDistribution, Steps, UniformInTime, stratified
from lawful.models.generative import (
    DiffusionModel,
    DiffusionSampling,
    NoisyClassifier,
    PatchTransformer,
    PatchTransformerConfig,
    TimeMLP,
    TimeMLPConfig,
    UNet,
    UNetConfig,
)
from lawful.optim import adamw, cosine_schedule
from lawful.probe import figures
from lawful.recipes.data import DataSpec, GenerativeData, GenerativeSplits
from lawful.recipes.flow import spread
from lawful.recipes.generative_eval import (
    PICTURES,
    POINTS,
    density_baselines,
    figures_of,
    held_out,
    log_likelihood,
    pictures_figure,
    samples_figure,
)
from lawful.recipes.model_size import check_parameter_count
from lawful.solvers.diffusion import (
    DENOISED,
    FLOW,
    NOISE,
    SCORE,
    VELOCITY,
    GaussianPath,
    Likelihood,
    Prediction,
    cosine_path,
    ddpm_path,
    edm,
    preconditioned,
    rectified,
    sub_variance_preserving,
    variance_exploding,
    variance_preserving,
)
from lawful.training import OptimizerStep, Range, Run, TrainerConfig, TrainingSetup, validate

PATHS: dict[str, Callable[[], GaussianPath]] = {
    "edm": edm,
    "ve": variance_exploding,
    "vp": variance_preserving,
    "sub-vp": sub_variance_preserving,
    "ddpm": ddpm_path,
    "cosine": cosine_path,
    "rectified": rectified,
}
PREDICTIONS = {"noise": NOISE, "denoised": DENOISED, "velocity": VELOCITY, "flow": FLOW, "score": SCORE}


@dataclass(frozen=True, kw_only=True)
class DiffusionConfig:
    """How data become noise, and what is learned of it."""

    path: Literal["edm", "ve", "vp", "sub-vp", "ddpm", "cosine", "rectified"] = "edm"
    """The path from data to noise."""
    predicts: Literal["f", "noise", "denoised", "velocity", "flow", "score"] = "f"
    """What the network predicts, and its error counts in: EDM's F, or another; flow is flow matching."""
    levels: Literal["log-normal", "log-uniform", "uniform", "steps"] = "log-normal"
    """How training is spread over noise levels: log-normal, as EDM; even in logarithm or time; DDPM's 1000 steps."""
    level_mean: Annotated[float, Range(-20, 20)] = -1.2
    """log-normal: the mean of the logarithm of the noise, in deviations of the data."""
    level_std: Annotated[float, Range(0.01, 20)] = 1.4
    """log-normal: its standard deviation."""

    def __post_init__(self) -> None:
        validate(self)
        if self.predicts in ("noise", "score") and self.path in ("cosine", "rectified"):
            raise ValueError(
                f"the {self.path} path ends in noise alone, where {self.predicts} says nothing of the data: predict f, "
                "denoised, velocity or flow"
            )

    def along(self) -> GaussianPath:
        """The path."""
        return PATHS[self.path]()

    def prediction(self, sigma_data: float) -> Prediction:
        """What the network predicts."""
        return preconditioned(sigma_data) if self.predicts == "f" else PREDICTIONS[self.predicts]

    def spread(self) -> NoiseLevelDistribution:
        """How training is spread over noise levels."""
        match self.levels:
            case "log-normal":
                return LogNormal(mean=self.level_mean, std=self.level_std)
            case "log-uniform":
                return LogUniform()
            case "uniform":
                return UniformInTime()
            case "steps":
                return Steps()


SUITED: dict[str, dict[str, Any]] = {
    "mlp": {"width": 128, "depth": 3, "steps": 2000, "batch": 512, "learning_rate": 3e-3},
    "unet": {"width": 32, "depth": 1, "steps": 1000, "batch": 64, "learning_rate": 2e-3},
    "transformer": {"width": 64, "depth": 4, "steps": 1000, "batch": 64, "learning_rate": 2e-3},
}
"""What a network has unless it is said."""
FINE = 0.25
"""Where the steps of a likelihood are, in deviations of the data: at fine noise, since the cells of levels are fine. On
digits 16 steps are off by 0.002 bits per dimension with it, and by 0.02 with 1."""
MOST = 2000
"""How many observations are evaluated during the training."""


@dataclass(frozen=True, kw_only=True)
class Diffusing(TrainingSetup):
    """A training of a score model, with its data."""

    seen: GenerativeSplits


@dataclass(frozen=True, kw_only=True)
class DiffusionRecipe:
    """Train a diffusion model: samples, likelihoods and completions of tables, series, images and points."""

    name: ClassVar[str] = "diffusion"

    network: Literal["suited", "mlp", "unet", "transformer"] = "suited"
    """suited: a U-Net for images and series, else a perceptron; or a transformer of patches."""
    width: Annotated[int, Range(1, 10**5)] | None = None
    """The width of the network; by default what suits it."""
    depth: Annotated[int, Range(1, 1000)] | None = None
    """mlp, transformer: its layers; unet: the blocks at each size."""
    patch: Annotated[int, Range(1, 10**4)] = 2
    """transformer: the side of a patch."""
    conditional: bool = False
    """Whether the model is told the labels of the data; it then draws with or without."""
    unlabelled: Annotated[float, Range(0, 1)] = 0.15
    """conditional: the share of examples whose label is hidden, which the model without labels learns from."""
    classifier: bool = False
    """Whether a classifier of noisy data is trained beside a model without labels, and guides its samples to them."""
    guidance: Annotated[float, Range(0, 1000)] = 1.0
    """conditional, classifier: how strongly labels count in samples; 1 is as they are in the data, more exaggerates."""
    noising: DiffusionConfig = field(default_factory=DiffusionConfig)
    steps: Annotated[int, Range(1, 10**8)] | None = None
    """How often the weights move; by default what suits the network."""
    batch: Annotated[int, Range(1, 10**6)] | None = None
    """Observations in a step."""
    learning_rate: Annotated[float, Range(0, 1e3)] | None = None
    """The length of a step, at its longest."""
    average: Annotated[float, Range(0, 0.9999999)] = 0.995
    """The decay of a moving average of the weights, which is what is kept; 0 for none."""
    draws: Annotated[int, Range(1, 10**5)] = 32
    """The steps from noise to a sample."""
    scored: Annotated[int, Range(1, 10**7)] = 64
    """How many observations of the test the likelihood is found of, at the end."""
    given: GenerativeData = field(default_factory=GenerativeData)
    engine: TrainerConfig = field(default_factory=TrainerConfig)

    def __post_init__(self) -> None:
        validate(self)
        if self.conditional and self.classifier:
            raise ValueError("labels are for the model, conditional, or for a classifier: say one of the two")
        if self.guidance != 1 and not self.labelled:
            raise ValueError("guidance is towards labels: say conditional, or classifier")
        if self.patch != type(self).patch and self.network != "transformer":
            raise ValueError(f"patch is for the network transformer: the network is {self.network}")

    def suited(self, form: DataSpec) -> DiffusionRecipe:
        """Fills in what was left to the network and the data."""
        flat = len(form.shape) == 1
        network = self.network if self.network != "suited" else "mlp" if flat else "unet"
        if flat and network != "mlp":
            raise ValueError(f"a {network} takes images or series: these have shape {form.shape}; network mlp does")
        if self.labelled and not form.classes:
            raise ValueError(
                f"a {'classifier' if self.classifier else 'conditional model'} wants labels: there are none"
            )
        suits = {name: value for name, value in SUITED[network].items() if getattr(self, name) is None}
        return replace(self, network=network, **suits)

    def training(self) -> Diffusing:
        """Reads the data and builds the model."""
        seen = self.given.parts()
        asked = self.suited(seen.form)
        model = asked.built(seen.form)
        model.fit(seen.train if seen.dequantizer is None else seen.dequantizer.dequantized(seen.train))
        steps, size = asked.steps or 1, min(asked.batch or 1, len(seen.train))
        optimizer = adamw(model.parameters(), lr=asked.learning_rate or 0.0, betas=(0.9, 0.99), weight_decay=0.0)
        labels = seen.train_labels if self.labelled else None
        tensors = (seen.train,) if labels is None else (seen.train, labels)
        return Diffusing(
            model=model,
            turns=[
                OptimizerStep(
                    objective=self.objective,
                    optimizer=optimizer,
                    schedule=cosine_schedule(steps=steps, warmup_steps=steps // 20),
                    clip=1.0,
                )
            ],
            batches=ShuffledBatches(*tensors, size=size, seed=self.engine.seed),
            steps=steps,
            evaluate=partial(self.evaluated, seen=seen),
            every=max(1, steps // 10),
            augment=None if seen.dequantizer is None else partial(spread, levels=seen.dequantizer),
            average=self.average or None,
            claims=partial(model_claims, of=seen.shape),
            described=seen.described,
            fingerprint=seen.fingerprint,
            notes=seen.notes,
            seen=seen,
        )

    def restored(self, facts: Mapping[str, Any]) -> nn.Module:
        """Builds the model of a run, before its weights are put in."""
        form = DataSpec.described(facts)
        return self.suited(form).built(form)

    def finish(self, run: Run, training: TrainingSetup) -> Mapping[str, Any]:
        """Measures the likelihood of some of the test, beside simple densities, and draws samples."""
        if not isinstance(training, Diffusing) or not isinstance(model := training.model, DiffusionModel):
            return {}
        whole, n = training.seen, self.scored
        labels = None if whole.test_labels is None else whole.test_labels[:n]
        seen = replace(whole, test=whole.test[:n], test_labels=labels)
        nats = log_likelihood(model, seen.test, dequantizer=seen.dequantizer)
        found = figures_of(nats, dims=math.prod(seen.shape), dequantizer=seen.dequantizer, bound=False)
        if self.conditional:
            found["log-likelihood, labels known"] = held_out(model, seen, labels=labels)["log-likelihood"]
        if model.guide is not None:
            found["accuracy of the classifier, a little noise added"] = recognised(model, whole)
        told = whole.test_labels if self.conditional else None
        self.draw(run, model, whole)
        return {
            "test": {**found, "denoising error": self.lost(model, whole.test, told, whole)},
            "baselines": density_baselines(seen),
            "scored": len(seen.test),
            "evaluations for a score": nats.evaluations,
            "standard error of a score, nats": float(nats.error.mean()),
            "examples": whole.counts,
            "parameters": sum(p.numel() for p in model.parameters()),
            "warnings": list(whole.notes),
        }

    # ------------------------------------------------------------ the model

    def built(self, form: DataSpec) -> DiffusionModel:
        """The model of data of a form; everything is said by now."""
        check_parameter_count([partial(self.network_of, form)])
        return self.sized(form)

    def guide_of(self, form: DataSpec) -> NoisyClassifier | None:
        """The classifier that guides, if one does."""
        if not self.classifier:
            return None
        network = TimeMLP(TimeMLPConfig(shape=form.shape, outputs=len(form.classes)))
        return NoisyClassifier(network, path=self.noising.along())

    def network_of(self, form: DataSpec) -> nn.Module:
        """The network of data of a form."""
        sizes = {"shape": form.shape, "classes": self.classes_of(form)}
        width, depth = self.width or 1, self.depth or 1
        match self.network:
            case "unet":
                return UNet(UNetConfig(**sizes, width=width, depth=depth, heads=1))
            case "transformer":
                heads = math.gcd(4, width)
                return PatchTransformer(
                    PatchTransformerConfig(**sizes, width=width, depth=depth, patch=self.patch, heads=heads)
                )
            case _:
                return TimeMLP(TimeMLPConfig(**sizes, width=width, depth=depth))

    def sized(self, form: DataSpec) -> DiffusionModel:
        flat = len(form.shape) == 1
        return DiffusionModel(
            self.network_of(form),
            shape=form.shape,
            path=self.noising.along(),
            predicts=self.noising.prediction,
            classes=self.classes_of(form),
            units=Standardize(form.shape if flat else (form.shape[0], *[1] * len(form.shape[1:]))),
            drawing=DiffusionSampling(steps=self.draws, guidance=self.guidance, classifier=self.guide_of(form)),
            likelihood=Likelihood(probes=4, scale=FINE),
        )

    @property
    def labelled(self) -> bool:
        """Whether labels are learnt."""
        return self.conditional or self.classifier

    def classes_of(self, form: DataSpec) -> int:
        return len(form.classes) if self.conditional else 0

    # ------------------------------------------------------------ how it learns, and what it shows

    def objective(self, model: nn.Module, batch: Batch) -> Tensor:
        """The error of what the network predicts, at noise levels that are drawn."""
        if not isinstance(model, DiffusionModel):
            raise TypeError(f"a score model was wanted: got {type(model).__name__}")
        x, labels, levels = batch[0], batch[1] if len(batch) > 1 else None, self.noising.spread()
        if model.guide is None or labels is None:
            return model.loss(x, labels, levels=levels, unlabelled=self.unlabelled)
        z, t = model.units(x), levels.times(stratified(len(x)), model.core.path)
        return model.loss(x, levels=levels) + model.guide.loss(z, labels, t, noise=torch.randn_like(z))

    def lost(self, model: nn.Module, x: Tensor, labels: Tensor | None, seen: GenerativeSplits) -> float:
        """The error on data that are not trained on, with noise that is always the same."""
        x = x[:MOST] if seen.dequantizer is None else seen.dequantizer.dequantized(x[:MOST], seed=1)
        given = (x, labels[:MOST]) if self.labelled and labels is not None else (x,)
        with torch.random.fork_rng(devices=()), torch.no_grad():
            torch.manual_seed(1)
            return float(self.objective(model, given))

    def evaluated(self, model: nn.Module, seen: GenerativeSplits) -> dict[str, float]:
        """The denoising error on the validation."""
        labels = seen.train_labels if seen.validation is None else seen.validation_labels
        return {"loss": self.lost(model, seen.held_out, labels, seen)}

    def draw(self, run: Run, model: DiffusionModel, seen: GenerativeSplits) -> None:
        """Draws samples; of each label where the model knows labels; in the plane the ways to them, and the score."""
        flat, seed = len(seen.shape) == 1, self.engine.seed
        x = model.sample(POINTS if flat else PICTURES, seed)
        np.save(run.samples / "samples.npy", x.cpu().numpy(), allow_pickle=False)
        drawn = {"samples": samples_figure(x, seen)}
        if self.labelled and not flat:
            labels = torch.arange(len(seen.classes))[:10].repeat_interleave(4)
            of_each = model.sample(len(labels), seed, labels=labels)
            drawn["samples of labels"] = pictures_figure(of_each, seen, labels=labels)
        if seen.shape == (2,):
            drawn["trajectories"] = figures.trajectories(model.trajectory(60, seed), data=seen.test)
            low, high = float(seen.test.min()), float(seen.test.max())
            drawn["score"] = figures.score_field(model.score, low=low, high=high, title="score, a little noise added")
        for name, figure in drawn.items():
            figures.save(figure, run.figures / f"{name}.png")


@torch.no_grad()
def recognised(model: DiffusionModel, seen: GenerativeSplits, *, ratio: float = 0.1) -> float:
    """The share of the test whose label the classifier that guides finds, through noise of so many deviations."""
    if model.guide is None or seen.test_labels is None:
        return math.nan
    z, t = model.units(seen.test), model.core.path.time_of(torch.tensor(ratio, dtype=torch.float64))
    noise = normal_noise(len(z), *z.shape[1:], seed=1, dtype=z.dtype)
    found = model.guide(model.core.path.noised(z, noise, t), t).argmax(-1)
    return float((found == seen.test_labels).double().mean())


def model_claims(model: nn.Module, *, of: tuple[int, ...]) -> Iterator[Claim]:
    """What a score model is to keep: observations do not mix."""
    if isinstance(model, DiffusionModel):
        example = shape(" ".join(map(str, ("b", *of))))

        def denoised(x: Tensor) -> Tensor:
            return model.denoiser()(x, torch.tensor(0.5, dtype=torch.float64))

        yield Claim(batch_independence(), denoised, example, name="denoised")
