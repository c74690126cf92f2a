"""Gan: a generator and a critic play against each other until samples look like the data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from lawful.blocks import SpectralNorm
from lawful.data import Batch, Gaussian, Mixture, Shuffled
from lawful.functions import identity
from lawful.inference.metrics import frechet_distance, mmd, mode_coverage, neighbour_coverage
from lawful.inference.metrics.mmd import gaussian_kernel, median_width
from lawful.laws import Claim, batch_independence, shape
from lawful.models.generative import GAN, CNNGANConfig, MLPGANConfig, cnn_gan, mlp_gan
from lawful.models.generative.gan import unwrapped
from lawful.models.generative.labelled import drawn_labels
from lawful.objectives.generative.adversarial import (
    HINGE,
    MINIMAX,
    NON_SATURATING,
    WASSERSTEIN,
    Game,
    gradient_penalty,
    zero_centred_penalty,
)
from lawful.optim import adamw
from lawful.recipes.bounded import bounded
from lawful.recipes.generative.form import Form
from lawful.recipes.generative.given import Observations, Observed
from lawful.recipes.generative.judging import Judge, judge
from lawful.recipes.generative.pictures import draw_labels, draw_samples
from lawful.training import AtMost, Between, Engine, Run, Training, Turn, validate

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

Width = Annotated[int, Between(1, 10**4)]
NotNegative = Annotated[float, Between(0, 1e6)]


@dataclass(frozen=True, kw_only=True)
class Played(Training):
    """A training of two players, with the data that they play over."""

    parts: Observations


@dataclass(frozen=True, kw_only=True)
class Gan:
    """Train a generator and a critic against each other, and report how much of the data samples cover."""

    name: ClassVar[str] = "gan"

    model: Literal["mlp", "cnn"] = "mlp"
    """Both players as perceptrons, or, for images and series, as convolutional networks."""
    latent: Annotated[int, Between(1, 10**4)] = 16
    """The size of the noise that a sample is made of."""
    hidden: Annotated[tuple[Width, ...], AtMost(20)] = ()
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
    steps: Annotated[int, Between(1, 10**8)] | None = None
    """How often both players move."""
    batch: Annotated[int, Between(2, 10**6)] | None = None
    """Observations, and samples, in a step."""
    learning_rate: Annotated[float, Between(0, 1)] | None = None
    """The length of the generator's steps."""
    critic_rate: Annotated[float, Between(0, 1)] = 1e-3
    """The length of the critic's."""
    average: Annotated[float, Between(0, 0.9999999)] = 0.995
    """The decay of a moving average of the weights, which is what is kept: the players circle, their mean does less."""
    given: Observed = field(default_factory=partial(Observed, data="ring"))
    engine: Engine = field(default_factory=Engine)

    def __post_init__(self) -> None:
        validate(self)

    def suited(self, form: Form) -> Gan:
        """Fills in what was left to the data."""
        suits = POINTS if len(form.shape) == 1 else IMAGES
        return replace(self, **{name: value for name, value in suits.items() if getattr(self, name) in (None, ())})

    def training(self) -> Played:
        """Reads the data and builds both players."""
        parts = self.given.parts()
        return self.suited(parts.form).playing(parts)

    def playing(self, parts: Observations) -> Played:
        """Builds both players; everything is said by now."""
        if self.conditional and parts.train_labels is None:
            raise ValueError("a conditional model wants labels: the data have none")
        if (least := min(len(parts.held_out), len(parts.test))) < 2:
            raise ValueError(f"samples are compared with at least 2 observations of each part: one has {least}")
        labels, levels = parts.train_labels if self.conditional else None, parts.dequantizer
        model = self.built(parts.form).fit_units(parts.train, labels=labels)
        if levels is not None:
            model.within(levels.low, levels.high)
        tensors = (parts.train,) if labels is None else (parts.train, labels)
        batches = Shuffled(*tensors, size=min(self.batch or 1, len(parts.train)), seed=self.engine.seed)
        steps = self.steps or 1
        faster = partial(adamw, beta1=0.5, beta2=0.99, decay=0.0)
        players = (("critic", self.criticised, model.critic_net, self.critic_rate),)
        players += (("generator", self.generated, model.generator, self.learning_rate or 0.0),)
        turns = [
            Turn(objective=objective, optimizer=faster(player.parameters(), lr=rate), name=name)
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
        form = Form.described(facts)
        return self.suited(form).built(form)

    def finish(self, run: Run, training: Training) -> Mapping[str, Any]:
        """Measures samples against the test, beside the training data and a Gaussian."""
        if not isinstance(training, Played) or not isinstance(training.model, GAN):
            return {}
        parts, model = training.parts, training.model.eval()
        n = min(MOST, 4 * len(parts.test))
        labels = drawn_labels(n, model.frequencies, seed=self.engine.seed, stream=1, first=0)
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

    def built(self, form: Form) -> GAN:
        """Both players, for data of a form."""
        bounded([partial(self.sized, form)])
        return self.sized(form)

    def sized(self, form: Form) -> GAN:
        wrap = SpectralNorm if self.spectral else unwrapped
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
        real, critic = player.inputs(batch[0]), partial(player.criticise, labels=labels)
        with torch.no_grad():
            fake = player.generate(torch.randn(len(real), self.latent).to(real), labels=labels)
        both = None if labels is None else torch.cat([labels, labels])
        scores = player.criticise(torch.cat([real, fake]), labels=both)
        loss = GAMES[self.game].critic(scores[: len(real)], scores[len(real) :])
        if not self.penalty:
            return {"loss": loss}
        if self.game == "wasserstein":
            slope = gradient_penalty(critic, real, fake, torch.rand(len(real)).to(real))
        else:
            slope = zero_centred_penalty(critic, real)
        return {"loss": loss + self.penalty * slope, "slope": slope}

    def generated(self, model: nn.Module, batch: Batch) -> Tensor:
        """The generator's loss."""
        player, labels = of(model), batch[1] if len(batch) > 1 else None
        z = torch.randn(len(batch[0]), self.latent).to(batch[0])
        return GAMES[self.game].generator(player.criticise(player.generate(z, labels=labels), labels=labels))

    # ------------------------------------------------------------ what came of it

    def evaluated(self, model: nn.Module, parts: Observations) -> dict[str, float]:
        """How far samples are from data that were not trained on."""
        data = parts.held_out[:MOST]
        drawn = of(model).sample(min(MOST, len(data))).cpu()
        return {"mmd": self.distance(drawn, data)}

    def distance(self, x: Tensor, data: Tensor) -> float:
        rows = data.flatten(1)
        return mmd(x.flatten(1), rows, kernel=partial(gaussian_kernel, width=median_width(rows) / 4))

    def compared(
        self, x: Tensor, labels: Tensor | None, parts: Observations, seen_by: Judge | None
    ) -> dict[str, float]:
        """Figures of samples beside the test: small distances, and how much is covered."""
        x, data = x.reshape(-1, *parts.shape), parts.test[:MOST]
        found = {} if seen_by is None else seen_by.compared(x, data, labels=None if labels is None else labels[:MOST])
        found["mmd"] = self.distance(x.to(data), data)
        if min(len(x), len(data)) > NEIGHBOURS:
            near = neighbour_coverage(data.flatten(1), x.flatten(1), k=NEIGHBOURS)
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

    def claims(self, model: nn.Module, parts: Observations) -> Iterator[Claim]:
        """What the players are to keep: examples do not mix."""
        example = shape(" ".join(map(str, ("b", *parts.shape))))
        if not self.conditional:
            yield Claim(batch_independence(), of(model).criticise, example, name="critic")
            yield Claim(batch_independence(), of(model).generate, shape(f"b {self.latent}"), name="generator")


def of(model: nn.Module) -> GAN:
    """The model as what it is."""
    if not isinstance(model, GAN):
        raise TypeError(f"a GAN was wanted: got {type(model).__name__}")
    return model
