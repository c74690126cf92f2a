"""Gan: a generator and a critic play against each other until samples look like the data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from lawful.blocks import SpectralNorm
from lawful.data import Batch, Gaussian, Mixture, Shuffled
from lawful.inference.metrics import frechet_distance, mmd, mode_coverage, neighbour_coverage
from lawful.inference.metrics.mmd import gaussian_kernel, median_width
from lawful.laws import Claim, batch_independence, shape
from lawful.models.generative import GAN, CNNGANConfig, MLPGANConfig, cnn_gan, mlp_gan
from lawful.models.generative.gan import unwrapped
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
from lawful.recipes.generative.pictures import draw_samples
from lawful.training import AtMost, Between, Engine, Run, Training, Turn, validate

GAMES: dict[str, Game] = {
    "minimax": MINIMAX,
    "non-saturating": NON_SATURATING,
    "wasserstein": WASSERSTEIN,
    "hinge": HINGE,
}
MOST = 2000
"""How many samples figures are measured on."""

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
    hidden: Annotated[tuple[Width, ...], AtMost(20)] = (128, 128, 128)
    """mlp: the width of each hidden layer, of both players."""
    width: Width = 32
    """cnn: the channels after the critic's first convolution; each halving doubles them."""
    game: Literal["non-saturating", "minimax", "wasserstein", "hinge"] = "non-saturating"
    """What the players lower."""
    penalty: NotNegative = 0.1
    """How strongly the critic is kept smooth: at the data, or, in the game wasserstein, at slope 1 between both."""
    spectral: bool = False
    """Whether each layer of the critic is divided by its largest singular value."""
    steps: Annotated[int, Between(1, 10**8)] = 6000
    """How often both players move."""
    batch: Annotated[int, Between(2, 10**6)] = 256
    """Observations, and samples, in a step."""
    learning_rate: Annotated[float, Between(0, 1)] = 1e-3
    """The length of the generator's steps."""
    critic_rate: Annotated[float, Between(0, 1)] = 1e-3
    """The length of the critic's."""
    average: Annotated[float, Between(0, 0.9999999)] = 0.995
    """The decay of a moving average of the weights, which is what is kept: the players circle, their mean does less."""
    observed: Observed = field(default_factory=partial(Observed, data="ring"))
    engine: Engine = field(default_factory=Engine)

    def __post_init__(self) -> None:
        validate(self)

    def training(self) -> Played:
        """Reads the data and builds both players."""
        parts = self.observed.parts()
        model = self.built(parts.shape).fit_units(parts.train)
        batches = Shuffled(parts.train, size=min(self.batch, len(parts.train)), seed=self.engine.seed)
        faster = partial(adamw, beta1=0.5, beta2=0.99, decay=0.0)
        players = (("critic", self.criticised, model.critic_net, self.critic_rate),)
        players += (("generator", self.generated, model.generator, self.learning_rate),)
        turns = [
            Turn(objective=objective, optimizer=faster(player.parameters(), lr=rate), name=name)
            for name, objective, player, rate in players
        ]
        return Played(
            model=model,
            turns=turns,
            batches=batches,
            steps=self.steps,
            evaluate=partial(self.evaluated, parts=parts),
            every=max(1, self.steps // 20),
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
        return self.built(Form.described(facts).shape)

    def finish(self, run: Run, training: Training) -> Mapping[str, Any]:
        """Measures samples against the test, beside the training data and a Gaussian."""
        if not isinstance(training, Played) or not isinstance(training.model, GAN):
            return {}
        parts, model = training.parts, training.model
        drawn = model.sample(min(MOST, 4 * len(parts.test)), seed=self.engine.seed).cpu()
        flat = parts.train.flatten(1).double()
        normal = Gaussian(flat.mean(0), flat.T.cov() + 1e-9 * torch.eye(flat.shape[1], dtype=torch.float64))
        kinds = {"samples": drawn, "training data": parts.train[:MOST], "a Gaussian": normal.sample(len(drawn))}
        found = {name: self.compared(x, parts) for name, x in kinds.items()}
        draw_samples(run, model, parts, seed=self.engine.seed)
        return {
            "test": found["samples"],
            "baselines": {f"{name}, mmd": found[name]["mmd"] for name in ("training data", "a Gaussian")},
            "floor (training data)": found["training data"],
            "baseline (a Gaussian)": found["a Gaussian"],
            "examples": parts.counts,
            "warnings": list(parts.notes),
        }

    # ------------------------------------------------------------ the players

    def built(self, shape: tuple[int, ...]) -> GAN:
        """Both players, for examples of a shape."""
        bounded([partial(self.sized, shape)])
        return self.sized(shape)

    def sized(self, shape: tuple[int, ...]) -> GAN:
        wrap = SpectralNorm if self.spectral else unwrapped
        if self.model == "cnn":
            if len(shape) < 2:
                raise ValueError(f"a cnn takes images or series: these have shape {shape}; model mlp takes them")
            return cnn_gan(CNNGANConfig(shape=shape, latent=self.latent, width=self.width), wrap=wrap)
        return mlp_gan(MLPGANConfig(shape=shape, latent=self.latent, hidden=self.hidden), wrap=wrap)

    def criticised(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """The critic's loss, with the penalty on its slope."""
        player, real = of(model), of(model).inputs(batch[0])
        with torch.no_grad():
            fake = player.generate(torch.randn(len(real), self.latent).to(real))
        scores = player.criticise(torch.cat([real, fake]))
        loss = GAMES[self.game].critic(scores[: len(real)], scores[len(real) :])
        if not self.penalty:
            return {"loss": loss}
        if self.game == "wasserstein":
            slope = gradient_penalty(player.criticise, real, fake, torch.rand(len(real)).to(real))
        else:
            slope = zero_centred_penalty(player.criticise, real)
        return {"loss": loss + self.penalty * slope, "slope": slope}

    def generated(self, model: nn.Module, batch: Batch) -> Tensor:
        """The generator's loss."""
        player = of(model)
        z = torch.randn(len(batch[0]), self.latent).to(batch[0])
        return GAMES[self.game].generator(player.criticise(player.generate(z)))

    # ------------------------------------------------------------ what came of it

    def evaluated(self, model: nn.Module, parts: Observations) -> dict[str, float]:
        """How far samples are from data that were not trained on."""
        data = parts.held_out[:MOST]
        drawn = of(model).sample(min(MOST, len(data))).cpu()
        return {"mmd": self.distance(drawn, data)}

    def distance(self, x: Tensor, data: Tensor) -> float:
        rows = data.flatten(1)
        return mmd(x.flatten(1), rows, kernel=partial(gaussian_kernel, width=median_width(rows) / 4))

    def compared(self, x: Tensor, parts: Observations) -> dict[str, float]:
        """Figures of samples beside the test: small distances, and how much is covered."""
        x, data = x.reshape(-1, *parts.shape), parts.test[:MOST]
        near = neighbour_coverage(data.flatten(1), x.flatten(1))
        found = {"mmd": self.distance(x.to(data), data), "precision": near.precision, "coverage": near.coverage}
        if min(len(x), len(data)) > data[0].numel():
            found["Fréchet distance"] = frechet_distance(x.flatten(1), data.flatten(1))
        if isinstance(parts.density, Mixture) and len(parts.density.weights) <= 64:
            scale = float(parts.density.covariances[0].diagonal().max().sqrt())
            modes = mode_coverage(x.flatten(1), parts.density.means, scale=scale)
            found |= {
                "modes covered": modes.covered,
                "samples in a mode": modes.good,
                "KL over modes": modes.divergence(),
            }
        return found

    def claims(self, model: nn.Module, parts: Observations) -> Iterator[Claim]:
        """What the players are to keep: examples do not mix."""
        example = shape(" ".join(map(str, ("b", *parts.shape))))
        yield Claim(batch_independence(), of(model).criticise, example, name="critic")
        yield Claim(batch_independence(), of(model).generate, shape(f"b {self.latent}"), name="generator")


def of(model: nn.Module) -> GAN:
    """The model as what it is."""
    if not isinstance(model, GAN):
        raise TypeError(f"a GAN was wanted: got {type(model).__name__}")
    return model
