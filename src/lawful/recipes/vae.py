"""VAE: codes that are drawn, a lower bound on the likelihood of the data, and samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from lawful.data import Batch, Dequantizer, ShuffledBatches
from lawful.functions import LogProbEstimate
from lawful.inference.metrics.intervals import bootstrap
from lawful.laws import Claim, batch_independence, shape
from lawful.losses.variational import gumbel_softmax, straight_through_gumbel
from lawful.models.generative import (
    VAE,
    BernoulliLikelihood,
    CategoricalLatent,
    CNNVAEConfig,
    DecoderLikelihood,
    DiscretizedLogisticLikelihood,
    GaussianLatent,
    GaussianLikelihood,
    HeteroscedasticGaussianLikelihood,
    MLPVAEConfig,
    cnn_vae,
    mlp_vae,
)
from lawful.optim import adamw, cosine_schedule
from lawful.probe import figures
from lawful.recipes.data import DataSpec, GenerativeData, GenerativeSplits
from lawful.recipes.flow import spread
from lawful.recipes.generative_eval import BOUND, codes_figure, density_baselines, draw_labels, draw_samples, figures_of
from lawful.recipes.model_size import check_parameter_count
from lawful.recipes.pca import SHOWN, Observing
from lawful.training import MaxLength, OptimizerStep, Range, Run, TrainerConfig, TrainingSetup, validate

Width = Annotated[int, Range(1, 10**5)]
MOST, ROWS = 2000, 256
"""How many observations are evaluated during the training, and how many go through the model at once."""


@dataclass(frozen=True, kw_only=True)
class VAERecipe:
    """Train a variational autoencoder: codes, samples, and lower bounds on log-likelihoods."""

    name: ClassVar[str] = "vae"

    model: Literal["mlp", "cnn"] = "mlp"
    """Dense layers, for any data; or convolutions, for images and series."""
    decoder: Literal["suited", "gaussian", "varying", "levels", "bernoulli"] = "suited"
    """suited: levels where the data have some, else gaussian; varying: noise that varies with the code; or bits."""
    codes: Literal["gaussian", "categorical"] = "gaussian"
    """Numbers; or choices, trained by Gumbel-softmax."""
    latent: Annotated[int, Range(1, 10**5)] = 16
    """The numbers, or the choices, of a code."""
    choices: Annotated[int, Range(2, 10**5)] = 8
    """categorical: among how many each choice is."""
    temperature: Annotated[float, Range(1e-3, 1e3)] = 0.67
    """categorical: that of the relaxation in training."""
    relaxed: Literal["softmax", "straight-through"] = "softmax"
    """categorical: whether the decoder sees a mixture in training, or a choice with the gradient of the mixture."""
    conditional: bool = False
    """Whether the model is told the labels of the data."""
    hidden: Annotated[tuple[Width, ...], MaxLength(20)] = ()
    """mlp: the width of each hidden layer of the encoder; the decoder has them in reverse. By default what suits."""
    dropout: Annotated[float, Range(0, 0.99)] | None = None
    """mlp: the share of hidden units that is dropped in training; by default 0.2 for images and series, else none."""
    width: Width = 32
    """cnn: the channels after the first convolution; each halving doubles them."""
    halvings: Annotated[int, Range(1, 20)] = 2
    """cnn: how often an image is halved."""
    beta: Annotated[float, Range(0, 1e6)] = 1.0
    """The weight of what codes say in training; bounds are always those of 1."""
    free: Annotated[float, Range(0, 1e6)] = 0.0
    """Nats that each unit of a code may say at no cost in training: free bits."""
    importance: Annotated[int, Range(1, 10**5)] = 64
    """By how many codes the tighter bound of the test is taken."""
    steps: Annotated[int, Range(1, 10**8)] = 1500
    """How often the weights move."""
    batch: Annotated[int, Range(1, 10**6)] = 64
    """Observations in a step."""
    learning_rate: Annotated[float, Range(0, 1)] = 2e-3
    """The length of a step, at its longest; it falls along half a cosine to 0."""
    weight_decay: Annotated[float, Range(0, 1e6)] = 1e-2
    """How strongly weights are pulled to 0."""
    patience: Annotated[int, Range(0, 10**6)] = 0
    """How many evaluations, of which there are 20, without a better one end the training; 0 for all steps."""
    given: GenerativeData = field(default_factory=GenerativeData)
    engine: TrainerConfig = field(default_factory=TrainerConfig)

    def __post_init__(self) -> None:
        validate(self)
        if self.patience and not self.given.validation:
            raise ValueError("patience wants observations to choose by: give validation a share above 0")

    def training(self) -> Observing:
        """Reads the observations and builds the model."""
        seen = self.given.parts()
        if self.conditional and seen.train_labels is None:
            raise ValueError("a conditional model wants labels: the data have none")
        ends, notes = Dequantizer(levels=2), seen.notes
        if self.decoder == "bernoulli":
            ends = seen.dequantizer or ends
            middle = (ends.low + ends.high) / 2
            notes = (*notes, f"bits: values above {middle:g} are 1, others 0; all nats are those of bits")
            seen = replace(seen, form=replace(seen.form, dequantizer=None), notes=notes)
        described = {**seen.described, "ends": [ends.low, ends.high]}
        model = self.built(seen.form, ends.low, ends.high)
        levels, labels = seen.dequantizer, seen.train_labels if self.conditional else None
        model.fit_normalizer(seen.train if levels is None else levels.dequantized(seen.train), labels=labels)
        tensors = (seen.train,) if labels is None else (seen.train, labels)
        optimizer = adamw(model.parameters(), lr=self.learning_rate, betas=(0.9, 0.99), weight_decay=self.weight_decay)
        schedule = cosine_schedule(steps=self.steps, warmup_steps=self.steps // 50)
        objective = partial(loss, beta=self.beta, free=self.free)
        return Observing(
            model=model,
            turns=[OptimizerStep(objective=objective, optimizer=optimizer, schedule=schedule)],
            batches=ShuffledBatches(*tensors, size=min(self.batch, len(seen.train)), seed=self.engine.seed),
            steps=self.steps,
            evaluate=partial(self.evaluated, seen=seen),
            every=max(1, self.steps // 20),
            patience=self.patience or None,
            augment=None if levels is None else partial(spread, levels=levels),
            claims=partial(model_claims, of=seen.shape),
            described=described,
            fingerprint=seen.fingerprint,
            notes=notes,
            seen=seen,
        )

    def restored(self, facts: Mapping[str, Any]) -> nn.Module:
        """Builds the model of a run, before its weights are put in."""
        ends = facts.get("ends")
        if not (isinstance(ends, list) and len(ends) == 2 and all(type(v) in (int, float) for v in ends)):
            raise ValueError(f"ends are two numbers: got {str(ends)[:60]}")
        return self.built(DataSpec.described(facts), float(ends[0]), float(ends[1]))

    def finish(self, run: Run, training: TrainingSetup) -> Mapping[str, Any]:
        """Measures the bounds of the test and what the codes say, beside simple densities, and draws them."""
        if not isinstance(training, Observing) or not isinstance(model := training.model, VAE):
            return {}
        seen, model = training.seen, model.eval()
        labels, levels = seen.test_labels if self.conditional else None, seen.dequantizer
        test = seen.test if levels is None else levels.dequantized(seen.test)
        plain = by_rows(model.elbo, test, labels)
        tight = by_rows(partial(model.iwae, k=self.importance), test, labels)
        found = figures_of(plain, dims=math.prod(seen.shape), dequantizer=levels, bound=True)
        found[BOUND] = with_error(plain.value)
        found[f"{BOUND}, IWAE-{self.importance}"] = with_error(tight.value)
        activity = model.active_units(test, labels=labels)
        draw_samples(run, model, seen, seed=self.engine.seed)
        if self.conditional and len(seen.shape) > 1:
            draw_labels(run, model, seen, seed=self.engine.seed)
        self.draw(run, model, test, labels, seen)
        return {
            "test": found,
            "baselines": of_coins(model, seen) if self.decoder == "bernoulli" else density_baselines(seen),
            "active units": {
                "active": int(activity.active.sum()),
                "of": len(activity.active),
                "nats of each": [round(v, 4) for v in activity.nats.tolist()],
            },
            "examples": seen.counts,
            "parameters": sum(p.numel() for p in model.parameters()),
            "warnings": list(training.notes),
        }

    # ------------------------------------------------------------ the model

    def built(self, form: DataSpec, low: float, high: float) -> VAE:
        """The model of data of a form, whose bits, if they are bits, are told apart in the middle of the ends."""
        check_parameter_count([partial(self.sized, form, low, high)])
        return self.sized(form, low, high)

    def sized(self, form: DataSpec, low: float, high: float) -> VAE:
        classes, images = len(form.classes) if self.conditional else 0, len(form.shape) > 1
        codes = GaussianLatent(self.latent)
        if self.codes == "categorical":
            relaxed = straight_through_gumbel if self.relaxed == "straight-through" else gumbel_softmax
            codes = CategoricalLatent(self.latent, classes=self.choices, temperature=self.temperature, relaxed=relaxed)
        facts = {"shape": form.shape, "latent": self.latent, "classes": classes}
        likelihood = self.likelihood(form, low, high)
        if self.model == "cnn":
            if len(form.shape) not in (2, 3):
                raise ValueError(f"a cnn takes images or series: these have shape {form.shape}; model mlp takes them")
            sizes = CNNVAEConfig(**facts, width=self.width, halvings=self.halvings)
            return cnn_vae(sizes, codes=codes, likelihood=likelihood)
        dropout = 0.2 * images if self.dropout is None else self.dropout
        hidden = self.hidden or ((512,) if images else (128, 128))
        return mlp_vae(MLPVAEConfig(**facts, hidden=hidden, dropout=dropout), codes=codes, likelihood=likelihood)

    def likelihood(self, form: DataSpec, low: float, high: float) -> DecoderLikelihood:
        """What entries are taken as."""
        levels, decoder = form.dequantizer, self.decoder
        if decoder == "suited":
            decoder = "gaussian" if levels is None else "levels"
        match decoder:
            case "bernoulli":
                return BernoulliLikelihood(form.shape, low=low, high=high)
            case "levels":
                if levels is None:
                    raise ValueError("the data have no levels: say how many there are, or choose the decoder gaussian")
                return DiscretizedLogisticLikelihood(form.shape, levels)
            case "varying":
                return HeteroscedasticGaussianLikelihood(form.shape)
            case _:
                return GaussianLikelihood(form.shape)

    def evaluated(self, model: nn.Module, seen: GenerativeSplits) -> dict[str, float]:
        """The negative bound of observations that are not trained on, in nats."""
        x, levels = seen.held_out[:MOST], seen.dequantizer
        labels = seen.train_labels if seen.validation is None else seen.validation_labels
        given = labels[:MOST] if self.conditional and labels is not None else None
        y = x if levels is None else levels.dequantized(x)
        return {"loss": -float(by_rows(partial(_vae(model).elbo, draws=2), y, given).value.mean())}

    @torch.no_grad()
    def draw(self, run: Run, model: VAE, test: Tensor, labels: Tensor | None, seen: GenerativeSplits) -> None:
        """Draws what is rebuilt of the test, and the two coordinates of its codes that vary most."""
        if len(seen.shape) > 1:
            few = None if labels is None else labels[:SHOWN]
            rows = (seen.test[:SHOWN], model.reconstruct(test[:SHOWN], labels=few))
            figures.save(figures.reconstructions(*rows, names=("data", "rebuilt")), run.figures / "rebuilt.png")
        if self.latent > 1:
            z = model.encode(test, labels=labels)
            two = z.var(0).topk(2).indices
            names = (f"coordinate {int(two[0]) + 1} of the code", f"coordinate {int(two[1]) + 1}")
            figures.save(codes_figure(z[:, two], seen, names=names), run.figures / "codes.png")


def loss(model: nn.Module, batch: Batch, *, beta: float, free: float) -> Tensor:
    """The negative bound of a batch, in nats."""
    return _vae(model).loss(batch[0], labels=batch[1] if len(batch) > 1 else None, beta=beta, free=free)


def by_rows(bound: Callable[..., LogProbEstimate], x: Tensor, labels: Tensor | None) -> LogProbEstimate:
    """The bound of observations, a part of them at a time."""
    parts = [
        bound(x[i : i + ROWS], labels=None if labels is None else labels[i : i + ROWS], seed=i)
        for i in range(0, len(x), ROWS)
    ]
    value, error = (torch.cat([part.double() for part in found]) for found in list(zip(*parts, strict=True))[:2])
    return LogProbEstimate(value, error, parts[0].evaluations)


def with_error(nats: Tensor) -> dict[str, float]:
    """The mean with its interval and its standard error over observations."""
    return {**bootstrap(torch.mean, nats).json(), "standard error": float(nats.std() / len(nats) ** 0.5)}


def of_coins(model: VAE, seen: GenerativeSplits) -> dict[str, float]:
    """The mean log-likelihood of the bits of the test where each is a coin of its own, 1 added to each side."""
    train, test = (model.likelihood.inputs(x).flatten(1).double() for x in (seen.train, seen.test))
    p = (train.sum(0) + 1) / (len(train) + 2)
    return {"a coin for each feature": float((test * p.log() + (1 - test) * (1 - p).log()).sum(1).mean())}


def model_claims(model: nn.Module, *, of: tuple[int, ...]) -> Iterator[Claim]:
    """What the model is to keep: observations do not mix on the way out of their codes."""
    vae = _vae(model)
    if not vae.classes:
        yield Claim(batch_independence(), vae.decode, shape(f"b {vae.codes.size}"), name="decoded")
        if isinstance(vae.likelihood, GaussianLikelihood):
            yield Claim(batch_independence(), vae, shape(" ".join(map(str, ("b", *of)))), name="rebuilt")


def _vae(model: nn.Module) -> VAE:
    if not isinstance(model, VAE):
        raise TypeError(f"a VAE was wanted: got {type(model).__name__}")
    return model
