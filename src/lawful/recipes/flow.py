"""Flow: an invertible map from the data to noise, which gives every observation its exact density."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from lawful.data import Batch, Dequantizer, ShuffledBatches
from lawful.laws import Claim, batch_independence, transformed
from lawful.models.generative import (
    ContinuousFlow,
    VelocityField,
    autoregressive_flow,
    coupling_flow,
    level_flow,
    nice,
    spline_flow,
)
from lawful.models.generative import Flow as Invertible
from lawful.optim import adamw, cosine_schedule
from lawful.recipes.data import DataSpec, GenerativeData, GenerativeSplits
from lawful.recipes.generative_eval import density_baselines, draw_labels, draw_samples, held_out, log_likelihood
from lawful.recipes.model_size import check_parameter_count
from lawful.training import MaxLength, OptimizerStep, Range, Run, TrainerConfig, TrainingSetup, validate

Model = Invertible | ContinuousFlow
Width = Annotated[int, Range(1, 10**5)]
SUITED: dict[str, dict[str, Any]] = {
    "levels": {"hidden": (1024,), "dropout": 0.5, "steps": 1260, "batch": 64, "learning_rate": 5e-3},
    "spline": {"hidden": (64, 64), "dropout": 0.0, "steps": 2000, "batch": 512, "learning_rate": 1e-2},
    "continuous": {"hidden": (64, 64), "dropout": 0.0, "steps": 500, "batch": 256, "learning_rate": 5e-3},
}
"""What a model has unless it is said; `benchmarks/generative.py densities digits` measures it."""
USUAL: dict[str, Any] = {"hidden": (64, 64), "dropout": 0.0, "steps": 2000, "batch": 256, "learning_rate": 2e-3}
MOST = 2000
"""How many observations are evaluated during the training."""


@dataclass(frozen=True, kw_only=True)
class Fitted(TrainingSetup):
    """A training of a flow, with its data."""

    parts: GenerativeSplits


@dataclass(frozen=True, kw_only=True)
class FlowRecipe:
    """Train a normalising flow: samples and exact log-densities of tables, series, images and points."""

    name: ClassVar[str] = "flow"

    model: Literal["suited", "spline", "levels", "autoregressive", "affine", "nice", "continuous"] = "suited"
    """suited: levels if there are any, else spline; autoregressive: MAF; affine, nice: couplings; continuous: ODE."""
    conditional: bool = False
    """Whether the flow is told the labels of the data."""
    layers: Annotated[int, Range(0, 1000)] = 0
    """spline, autoregressive, affine, nice: the number of layers; 0 for what suits the model."""
    hidden: Annotated[tuple[Width, ...], MaxLength(20)] = ()
    """The width of each hidden layer of a network; by default what suits the model."""
    bins: Annotated[int, Range(1, 500)] = 16
    """spline: its pieces."""
    dropout: Annotated[float, Range(0, 0.99)] | None = None
    """spline, levels, autoregressive: the share of units that is dropped in training."""
    steps: Annotated[int, Range(1, 10**8)] | None = None
    """How often the weights move; by default what suits the model, and no more than 100 times over the data."""
    batch: Annotated[int, Range(1, 10**6)] | None = None
    """Observations in a step."""
    learning_rate: Annotated[float, Range(0, 1)] | None = None
    """The length of a step, at its longest; it falls along half a cosine to 0."""
    weight_decay: Annotated[float, Range(0, 1e6)] = 1e-2
    """How strongly weights are pulled to 0."""
    average: Annotated[float, Range(0, 0.9999999)] = 0.98
    """The decay of a moving average of the weights, which is what is kept; 0 for none."""
    patience: Annotated[int, Range(0, 10**6)] = 20
    """How many evaluations, of which there are 20, without a better one end the training; the best is kept; 0: none."""
    given: GenerativeData = field(default_factory=GenerativeData)
    engine: TrainerConfig = field(default_factory=TrainerConfig)

    def __post_init__(self) -> None:
        validate(self)
        if self.conditional and self.model == "continuous":
            raise ValueError("a continuous flow takes no labels: choose another model, or leave conditional out")

    def suited(self, form: DataSpec) -> FlowRecipe:
        """Fills in what was left to the model and the data."""
        model = self.model if self.model != "suited" else "spline" if form.dequantizer is None else "levels"
        if model == "levels" and form.dequantizer is None:
            raise ValueError("the data have no levels: say how many there are, or choose the model spline")
        if self.conditional and not form.classes:
            raise ValueError("a conditional flow wants labels: the data have none")
        suits = SUITED.get(model, USUAL)
        return replace(self, model=model, **{k: v for k, v in suits.items() if getattr(self, k) in (None, ())})

    def training(self) -> Fitted:
        """Reads the data and builds the flow."""
        parts = self.given.parts()
        asked = self.suited(parts.form)
        model, labels = asked.built(parts.form), parts.train_labels if self.conditional else None
        if asked.model != "levels":
            train = parts.train if parts.dequantizer is None else parts.dequantizer.dequantized(parts.train)
            model.fit(train, **({} if labels is None else {"labels": labels}))
        elif isinstance(model, Invertible) and labels is not None:
            model.frequencies.copy_(torch.bincount(labels, minlength=model.classes) / len(labels))
        tensors = (parts.train,) if labels is None else (parts.train, labels)
        batches = ShuffledBatches(*tensors, size=min(asked.batch or 1, len(parts.train)), seed=self.engine.seed)
        steps = self.steps or min(asked.steps or 1, 100 * len(batches))
        optimizer = adamw(model.parameters(), lr=asked.learning_rate or 0.0, betas=(0.9, 0.99), weight_decay=self.weight_decay)
        patience = 0 if parts.validation is None else self.patience
        return Fitted(
            model=model,
            turns=[
                OptimizerStep(
                    objective=surprise, optimizer=optimizer, schedule=cosine_schedule(steps=steps, warmup_steps=steps // 50)
                )
            ],
            batches=batches,
            steps=steps,
            evaluate=partial(self.evaluated, parts=parts),
            every=max(1, steps // 20),
            patience=patience or None,
            augment=None if parts.dequantizer is None else partial(spread, levels=parts.dequantizer),
            average=self.average or None,
            claims=partial(model_claims, shape_of=parts.shape),
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
        """Measures the density of the test, beside simple densities, and draws samples."""
        if not isinstance(training, Fitted) or not isinstance(training.model, Model):
            return {}
        parts, model = training.parts, training.model
        found = held_out(model, parts, labels=parts.test_labels if self.conditional else None)
        if parts.density is not None and not self.conditional:
            truth = parts.density.log_prob(parts.test.double()).mean()
            found["KL from the density"] = float(truth - log_likelihood(model, parts.test).value.mean())
        draw_samples(run, model, parts, seed=self.engine.seed)
        if self.conditional and len(parts.shape) > 1:
            draw_labels(run, model, parts, seed=self.engine.seed)
        return {
            "test": found,
            "baselines": density_baselines(parts),
            "examples": parts.counts,
            "parameters": sum(p.numel() for p in model.parameters()),
            "warnings": list(parts.notes),
        }

    # ------------------------------------------------------------ the model

    def built(self, form: DataSpec) -> Model:
        """The flow of data of a form; everything is said by now."""
        check_parameter_count([partial(self.sized, form)])
        return self.sized(form)

    def sized(self, form: DataSpec) -> Model:
        classes = len(form.classes) if self.conditional else 0
        hidden, dropout = self.hidden, self.dropout or 0.0
        match self.model:
            case "levels":
                levels = form.dequantizer or Dequantizer(levels=2)
                low, high = levels.support
                found = level_flow(form.shape, levels=levels.levels, classes=classes, hidden=hidden, dropout=dropout)
                return found if found.units.mean.is_meta else found.within(low, high)
            case "autoregressive":
                layers = self.layers or 5
                return autoregressive_flow(form.shape, classes=classes, layers=layers, hidden=hidden, dropout=dropout)
            case "affine":
                return coupling_flow(form.shape, classes=classes, layers=self.layers or 8, hidden=hidden)
            case "nice":
                return nice(form.shape, classes=classes, layers=self.layers or 4, hidden=hidden)
            case "continuous":
                return ContinuousFlow(VelocityField(int(np.prod(form.shape)), hidden=hidden), shape=form.shape, steps=8)
            case _:
                return spline_flow(
                    form.shape,
                    classes=classes,
                    layers=self.layers or 2,
                    hidden=hidden,
                    bins=self.bins,
                    dropout=dropout,
                )

    def evaluated(self, model: nn.Module, parts: GenerativeSplits) -> dict[str, float]:
        """The mean surprise at data that are not trained on, in nats."""
        labels = parts.train_labels if parts.validation is None else parts.validation_labels
        given = labels[:MOST] if self.conditional and labels is not None else None
        found = log_likelihood(model, parts.held_out[:MOST], dequantizer=parts.dequantizer, labels=given)
        return {"loss": -float(found.value.mean())}


def surprise(model: nn.Module, batch: Batch) -> Tensor:
    """The mean surprise at a batch, in nats."""
    if isinstance(model, ContinuousFlow):
        return -model.log_density(batch[0]).mean()
    if not isinstance(model, Invertible):
        raise TypeError(f"a flow was wanted: got {type(model).__name__}")
    return -model.log_density(batch[0], labels=batch[1] if len(batch) > 1 else None).mean()


def spread(batch: Batch, levels: Dequantizer) -> Batch:
    """Puts the levels of a batch somewhere in their cells."""
    x, *labels = batch
    return (x + levels.width * (torch.rand_like(x) - 0.5), *labels)


def model_claims(model: nn.Module, shape_of: tuple[int, ...]) -> Iterator[Claim]:
    """What a flow is to keep: observations do not mix."""
    if isinstance(model, Model):
        units = model.units

        def inside(x: Tensor) -> Tensor:
            return units.inverse(x.tanh().flatten(1)).reshape(x.shape)

        example = transformed(inside, " ".join(map(str, ("b", *shape_of))))
        yield Claim(batch_independence(), model.log_density, example, name="log-density")
