"""What a frozen classifier sees in samples: features to compare with those of data, and classes.

Gan: a generator and a critic play against each other until samples look like the data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from torch.nn.utils.parametrizations import spectral_norm

from lawful.blocks import Standardize
from lawful.data import Batch, Gaussian, Mixture, ShuffledBatches
from lawful.functions import identity
from lawful.inference.metrics import class_coverage, frechet_distance, mmd, mode_coverage, neighbor_coverage
from lawful.inference.metrics.samples import gaussian_kernel, median_width
from lawful.laws import Claim, batch_independence, shape
from lawful.losses.classification import cross_entropy
from lawful.losses.gan import HINGE, MINIMAX, NON_SATURATING, WASSERSTEIN, Game, gradient_penalty, r1_penalty
from lawful.models import MLP
from lawful.models.generative import GAN, CNNGANConfig, MLPGANConfig, cnn_gan, mlp_gan
from lawful.models.generative.gan import unwrapped
from lawful.models.generative.protocols import sample_labels
from lawful.optim import adamw
from lawful.recipes.data import DataSpec, GenerativeData, GenerativeSplits
from lawful.recipes.generative_eval import draw_labels, draw_samples
from lawful.recipes.model_size import check_parameter_count
from lawful.training import MaxLength, OptimizerStep, Range, Run, TrainerConfig, TrainingSetup, validate

HIDDEN, STEPS, BATCH, RATE = (128, 32), 600, 128, 3e-3


@dataclass(frozen=True)
class FeatureClassifier:
    """A small classifier of the training data, which is not trained on any sample."""

    units: Standardize
    below: nn.Module
    """From examples in standard units to 32 features."""
    last: nn.Module
    """From features to classes."""
    classes: int

    @torch.no_grad()
    def features(self, x: Tensor) -> Tensor:
        """What the last layer sees of examples."""
        return self.below(self.units(x.float()).flatten(1))

    def named(self, x: Tensor) -> Tensor:
        """The class of each example."""
        return self.last(self.features(x)).argmax(-1)

    def compared(self, x: Tensor, data: Tensor, *, labels: Tensor | None) -> dict[str, float]:
        """Figures of samples beside data, and of their labels where these were asked for."""
        seen = class_coverage(self.named(x), classes=self.classes)
        found = {"classes covered": seen.covered}
        if min(len(x), len(data)) > HIDDEN[-1]:
            found["Fréchet distance in features"] = frechet_distance(self.features(x), self.features(data))
        if labels is not None:
            found["of the label asked for"] = float((self.named(x) == labels).double().mean())
        return found


def judge(seen: GenerativeSplits, *, seed: int = 0) -> FeatureClassifier | None:
    """Trains a classifier on the training data; none where they have no labels, or where their density is known."""
    y = seen.train_labels
    if y is None or seen.density is not None or len(seen.classes) < 2:
        return None
    x = seen.train
    units = Standardize((1,) * (x.dim() - 1) if x.dim() > 2 else x.shape[1:]).fit(x)
    rows = units(x).flatten(1)
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        model = MLP(rows.shape[1], len(seen.classes), hidden_dims=HIDDEN)
        optimizer = adamw(model.parameters(), lr=RATE)
        for _ in range(STEPS):
            some = torch.randint(len(rows), (BATCH,))
            optimizer.zero_grad()
            cross_entropy(model(rows[some]), y[some]).backward()
            optimizer.step()
    layers = [*model.eval().requires_grad_(False).layers]
    return FeatureClassifier(units, nn.Sequential(*layers[:-1]), layers[-1], len(seen.classes))


GAMES: dict[str, Game] = {
    "minimax": MINIMAX,
    "non-saturating": NON_SATURATING,
    "wasserstein": WASSERSTEIN,
    "hinge": HINGE,
}
MOST, NEIGHBOURS = 2000, 5
"""How many samples figures are measured on, and how far the balls reach that tell what is covered."""
POINTS: dict[str, Any] = {
    "hidden": (128, 128, 128),
    "penalty": 0.1,
    "steps": 6000,
    "batch": 256,
    "learning_rate": 1e-3,
}
IMAGES: dict[str, Any] = {"hidden": (256, 256), "penalty": 1.0, "steps": 4000, "batch": 64, "learning_rate": 5e-4}
"""What rows of numbers, and images and series, have unless it is said; chosen on a part of the training data."""
SHOWN = ("Fréchet distance in features", "modes covered", "mmd")
"""Figures that are told of the training data and of a Gaussian too."""

Width = Annotated[int, Range(1, 10**4)]
NotNegative = Annotated[float, Range(0, 1e6)]


@dataclass(frozen=True, kw_only=True)
class Played(TrainingSetup):
    """A training of two players, with the data that they play over."""

    parts: GenerativeSplits


@dataclass(frozen=True, kw_only=True)
class GANRecipe:
    """Train a generator and a critic against each other, and report how much of the data samples cover."""

    name: ClassVar[str] = "gan"

    model: Literal["mlp", "cnn"] = "mlp"
    """Both players as perceptrons, or, for images and series, as convolutional networks."""
    latent: Annotated[int, Range(1, 10**4)] = 16
    """The size of the noise that a sample is made of."""
    hidden: Annotated[tuple[Width, ...], MaxLength(20)] = ()
    """mlp: the width of each hidden layer, of both players; by default what suits points, or images and series."""
    width: Width = 32
    """cnn: the channels after the critic's first convolution; each halving doubles them."""
    game: Literal["non-saturating", "minimax", "wasserstein", "hinge"] = "non-saturating"
    """What the players lower."""
    penalty: NotNegative | None = None
    """How strongly the critic is kept smooth: at the data, or, in the game wasserstein, at slope 1 between both."""
    conditional: bool = False
    """Whether both players are told the labels of the data."""
    spectral: bool = False
    """Whether each layer of the critic is divided by its largest singular value."""
    steps: Annotated[int, Range(1, 10**8)] | None = None
    """How often both players move."""
    batch: Annotated[int, Range(2, 10**6)] | None = None
    """Observations, and samples, in a step."""
    learning_rate: Annotated[float, Range(0, 1)] | None = None
    """The length of the generator's steps."""
    critic_rate: Annotated[float, Range(0, 1)] = 1e-3
    """The length of the critic's."""
    average: Annotated[float, Range(0, 0.9999999)] = 0.995
    """The decay of a moving average of the weights, which is what is kept: the players circle, their mean does less."""
    given: GenerativeData = field(default_factory=partial(GenerativeData, data="ring"))
    engine: TrainerConfig = field(default_factory=TrainerConfig)

    def __post_init__(self) -> None:
        validate(self)

    def suited(self, form: DataSpec) -> GANRecipe:
        """Fills in what was left to the data."""
        suits = POINTS if len(form.shape) == 1 else IMAGES
        return replace(self, **{name: value for name, value in suits.items() if getattr(self, name) in (None, ())})

    def training(self) -> Played:
        """Reads the data and builds both players."""
        parts = self.given.parts()
        return self.suited(parts.form).playing(parts)

    def playing(self, parts: GenerativeSplits) -> Played:
        """Builds both players; everything is said by now."""
        if self.conditional and parts.train_labels is None:
            raise ValueError("a conditional model wants labels: the data have none")
        if (least := min(len(parts.held_out), len(parts.test))) < 2:
            raise ValueError(f"samples are compared with at least 2 observations of each part: one has {least}")
        labels, levels = parts.train_labels if self.conditional else None, parts.dequantizer
        model = self.built(parts.form).fit_normalizer(parts.train, labels=labels)
        if levels is not None:
            model.within(levels.low, levels.high)
        tensors = (parts.train,) if labels is None else (parts.train, labels)
        batches = ShuffledBatches(*tensors, batch_size=min(self.batch or 1, len(parts.train)), seed=self.engine.seed)
        steps = self.steps or 1
        faster = partial(adamw, beta1=0.5, beta2=0.99, decay=0.0)
        players = (("critic", self.criticised, model.critic_net, self.critic_rate),)
        players += (("generator", self.generated, model.generator, self.learning_rate or 0.0),)
        turns = [
            OptimizerStep(objective=objective, optimizer=faster(player.parameters(), lr=rate), name=name)
            for name, objective, player, rate in players
        ]
        return Played(
            model=model,
            turns=turns,
            batches=batches,
            steps=steps,
            evaluate=partial(self.evaluated, parts=parts),
            every=max(1, steps // 20),
            watch="mmd",
            average=self.average or None,
            claims=partial(self.claims, parts=parts),
            described=parts.described,
            fingerprint=parts.fingerprint,
            notes=parts.notes,
            parts=parts,
        )

    def restored(self, facts: Mapping[str, Any]) -> nn.Module:
        """Builds the model of a run, before its weights are put in."""
        form = DataSpec.described(facts)
        return self.suited(form).built(form)

    def finish(self, run: Run, training: TrainingSetup) -> Mapping[str, Any]:
        """Measures samples against the test, beside the training data and a Gaussian."""
        if not isinstance(training, Played) or not isinstance(training.model, GAN):
            return {}
        parts, model = training.parts, training.model.eval()
        n = min(MOST, 4 * len(parts.test))
        labels = sample_labels(n, model.frequencies, seed=self.engine.seed, stream=1, first=0)
        drawn = model.sample(n, self.engine.seed, labels=labels).cpu()
        flat = parts.train.flatten(1).double()
        normal = Gaussian(flat.mean(0), flat.T.cov() + 1e-9 * torch.eye(flat.shape[1], dtype=torch.float64))
        kinds = {
            "samples": (drawn, labels),
            "training data": (parts.train[:MOST], parts.train_labels if self.conditional else None),
            "a Gaussian": (normal.sample(n), None),
        }
        seen_by = judge(parts)
        found = {name: self.compared(*kind, parts, seen_by) for name, kind in kinds.items()}
        draw_samples(run, model, parts, seed=self.engine.seed)
        if self.conditional and len(parts.shape) > 1:
            draw_labels(run, model, parts, seed=self.engine.seed)
        watched = [name for name in SHOWN if name in found["samples"]]
        return {
            "test": {name: {"value": value} for name, value in found["samples"].items()},
            "baselines": {f"{kind}, {name}": found[kind][name] for kind in (*kinds,)[1:] for name in watched},
            "floor (training data)": found["training data"],
            "baseline (a Gaussian)": found["a Gaussian"],
            "examples": parts.counts,
            "parameters": sum(p.numel() for p in model.parameters()),
            "warnings": list(parts.notes),
        }

    # ------------------------------------------------------------ the players

    def built(self, form: DataSpec) -> GAN:
        """Both players, for data of a form."""
        check_parameter_count([partial(self.sized, form)])
        return self.sized(form)

    def sized(self, form: DataSpec) -> GAN:
        wrap = spectral_norm if self.spectral else unwrapped
        facts = {
            "shape": form.shape,
            "latent": self.latent,
            "classes": len(form.classes) if self.conditional else 0,
            "output": identity if form.dequantizer is None else torch.tanh,
        }
        if self.model == "cnn":
            if len(form.shape) not in (2, 3):
                raise ValueError(f"a cnn takes images or series: these have shape {form.shape}; model mlp takes them")
            return cnn_gan(CNNGANConfig(**facts, width=self.width), wrap=wrap)
        return mlp_gan(MLPGANConfig(**facts, hidden=self.hidden), wrap=wrap)

    def criticised(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """The critic's loss, with the penalty on its slope."""
        player, labels = of(model), batch[1] if len(batch) > 1 else None
        real, critic = player.inputs(batch[0]), partial(player.critic_scores, labels=labels)
        with torch.no_grad():
            fake = player.generate(torch.randn(len(real), self.latent).to(real), labels=labels)
        both = None if labels is None else torch.cat([labels, labels])
        scores = player.critic_scores(torch.cat([real, fake]), labels=both)
        loss = GAMES[self.game].critic(scores[: len(real)], scores[len(real) :])
        if not self.penalty:
            return {"loss": loss}
        if self.game == "wasserstein":
            slope = gradient_penalty(critic, real, fake, torch.rand(len(real)).to(real))
        else:
            slope = r1_penalty(critic, real)
        return {"loss": loss + self.penalty * slope, "slope": slope}

    def generated(self, model: nn.Module, batch: Batch) -> Tensor:
        """The generator's loss."""
        player, labels = of(model), batch[1] if len(batch) > 1 else None
        z = torch.randn(len(batch[0]), self.latent).to(batch[0])
        return GAMES[self.game].generator(player.critic_scores(player.generate(z, labels=labels), labels=labels))

    # ------------------------------------------------------------ what came of it

    def evaluated(self, model: nn.Module, parts: GenerativeSplits) -> dict[str, float]:
        """How far samples are from data that were not trained on."""
        data = parts.held_out[:MOST]
        drawn = of(model).sample(min(MOST, len(data))).cpu()
        return {"mmd": self.distance(drawn, data)}

    def distance(self, x: Tensor, data: Tensor) -> float:
        rows = data.flatten(1)
        return mmd(x.flatten(1), rows, kernel=partial(gaussian_kernel, width=median_width(rows) / 4))

    def compared(
        self, x: Tensor, labels: Tensor | None, parts: GenerativeSplits, seen_by: FeatureClassifier | None
    ) -> dict[str, float]:
        """Figures of samples beside the test: small distances, and how much is covered."""
        x, data = x.reshape(-1, *parts.shape), parts.test[:MOST]
        found = {} if seen_by is None else seen_by.compared(x, data, labels=None if labels is None else labels[:MOST])
        found["mmd"] = self.distance(x.to(data), data)
        if min(len(x), len(data)) > NEIGHBOURS:
            near = neighbor_coverage(data.flatten(1), x.flatten(1), k=NEIGHBOURS)
            found |= {"precision": near.precision, "coverage": near.coverage}
        if min(len(x), len(data)) > data[0].numel():
            found["Fréchet distance"] = frechet_distance(x.flatten(1), data.flatten(1))
        if isinstance(parts.density, Mixture) and len(parts.density.weights) <= 64:
            scale = float(parts.density.covariances[0].diagonal().max().sqrt())
            modes = mode_coverage(x.flatten(1), parts.density.means, scale=scale)
            found |= {"modes covered": modes.covered, "samples in a mode": modes.good}
            if modes.good:
                found["KL over modes"] = modes.divergence()
        return found

    def claims(self, model: nn.Module, parts: GenerativeSplits) -> Iterator[Claim]:
        """What the players are to keep: examples do not mix."""
        example = shape(" ".join(map(str, ("b", *parts.shape))))
        if not self.conditional:
            yield Claim(batch_independence(), of(model).critic_scores, example, name="critic")
            yield Claim(batch_independence(), of(model).generate, shape(f"b {self.latent}"), name="generator")


def of(model: nn.Module) -> GAN:
    """The model as what it is."""
    if not isinstance(model, GAN):
        raise TypeError(f"a GAN was wanted: got {type(model).__name__}")
    return model
