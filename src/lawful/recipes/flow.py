"""Normalizing flows: invertible maps from data to noise, with exact densities."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn

from lawful._json import Config, Range, Tagged
from lawful.data import Batch
from lawful.laws import Claim, batch_independence, transformed
from lawful.models.generative import (
    ContinuousFlow,
    Flow,
    VelocityField,
    discretized_flow,
    maf,
    nice,
    real_nvp,
    spline_flow,
)
from lawful.recipes.data import DataSpec, GenerativeSplits
from lawful.recipes.generative import (
    _LOG_LIKELIHOOD,
    _MAX_EVAL_EXAMPLES,
    GenerativeRecipe,
    _density_baselines,
    _evaluate_likelihood,
    _lead_figures,
    _likelihood_summary,
    _log_likelihood,
    _save_label_samples,
    _save_samples_figure,
)
from lawful.recipes.optimization import _Decay, _Patience, _Probability
from lawful.recipes.supervised import _HiddenDims
from lawful.training import Run, TrainingSetup
from lawful.training.registry import _check_parameter_count

_NumLayers = Annotated[int, Range(1, 1000)]


class _FlowSpec(Config, Tagged):
    """Base class of the flow specifications."""

    steps: ClassVar[int] = 2000
    """Default number of training steps."""
    batch_size: ClassVar[int] = 256
    """Default batch size."""
    learning_rate: ClassVar[float] = 2e-3
    """Default learning rate."""


@dataclass(frozen=True, kw_only=True)
class AutoFlowSpec(_FlowSpec):
    """Discretized flow for discrete data, else spline flow."""

    name: ClassVar[str] = "auto"


@dataclass(frozen=True, kw_only=True)
class SplineFlowSpec(_FlowSpec):
    """Autoregressive rational-quadratic splines."""

    name: ClassVar[str] = "spline"
    batch_size: ClassVar[int] = 512
    learning_rate: ClassVar[float] = 1e-2

    num_layers: _NumLayers = 2
    """Number of layers."""
    hidden_dims: _HiddenDims = (64, 64)
    """Width of each hidden layer."""
    num_bins: Annotated[int, Range(1, 500)] = 16
    """Number of bins of a spline."""
    dropout: _Probability = 0.0
    """Dropout probability."""


@dataclass(frozen=True, kw_only=True)
class DiscretizedFlowSpec(_FlowSpec):
    """Autoregressive mixture of discretized logistics, for discrete data."""

    name: ClassVar[str] = "discretized"
    steps: ClassVar[int] = 1260
    batch_size: ClassVar[int] = 64
    learning_rate: ClassVar[float] = 5e-3

    hidden_dims: _HiddenDims = (1024,)
    """Width of each hidden layer."""
    dropout: _Probability = 0.5
    """Dropout probability."""


@dataclass(frozen=True, kw_only=True)
class AutoregressiveFlowSpec(_FlowSpec):
    """Masked autoregressive flow (MAF)."""

    name: ClassVar[str] = "maf"

    num_layers: _NumLayers = 5
    """Number of layers."""
    hidden_dims: _HiddenDims = (64, 64)
    """Width of each hidden layer."""
    dropout: _Probability = 0.0
    """Dropout probability."""


@dataclass(frozen=True, kw_only=True)
class RealNVPSpec(_FlowSpec):
    """Affine coupling layers (RealNVP)."""

    name: ClassVar[str] = "real-nvp"

    num_layers: _NumLayers = 8
    """Number of layers."""
    hidden_dims: _HiddenDims = (64, 64)
    """Width of each hidden layer."""


@dataclass(frozen=True, kw_only=True)
class NICESpec(_FlowSpec):
    """Additive coupling layers (NICE)."""

    name: ClassVar[str] = "nice"

    num_layers: _NumLayers = 4
    """Number of layers."""
    hidden_dims: _HiddenDims = (64, 64)
    """Width of each hidden layer."""


@dataclass(frozen=True, kw_only=True)
class ContinuousFlowSpec(_FlowSpec):
    """Continuous normalizing flow: a neural ODE."""

    name: ClassVar[str] = "continuous"
    steps: ClassVar[int] = 500
    learning_rate: ClassVar[float] = 5e-3

    hidden_dims: _HiddenDims = (64, 64)
    """Width of each hidden layer."""


_FlowModelSpec = (
    AutoFlowSpec
    | SplineFlowSpec
    | DiscretizedFlowSpec
    | AutoregressiveFlowSpec
    | RealNVPSpec
    | NICESpec
    | ContinuousFlowSpec
)
"""Models of the flow recipe."""


@dataclass(frozen=True, kw_only=True)
class FlowRecipe(GenerativeRecipe):
    """Train a normalizing flow: samples and exact log-densities of tables, series, images and points."""

    name: ClassVar[str] = "flow"

    model: _FlowModelSpec = field(default_factory=AutoFlowSpec)
    """Flow architecture."""
    conditional: bool = False
    """Condition the flow on the labels."""
    ema_decay: _Decay = 0.98
    patience: _Patience = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.conditional and isinstance(self.model, ContinuousFlowSpec):
            raise ValueError("model continuous does not support conditional=True: choose another model")

    def setup(self) -> TrainingSetup[GenerativeSplits]:
        """Loads the observations and builds the flow."""
        splits = self.load_splits()
        recipe = self._with_data_defaults(splits.spec)
        model, labels = recipe._build(splits.spec), splits.train_labels if self.conditional else None
        if not isinstance(recipe.model, DiscretizedFlowSpec):
            model.fit_normalizer(splits.dequantize(splits.train), **({} if labels is None else {"labels": labels}))
        elif isinstance(model, Flow) and labels is not None:
            model.frequencies.copy_(torch.bincount(labels, minlength=model.num_classes) / len(labels))
        return recipe.generative_setup(
            model,
            splits,
            optimizer_steps=lambda steps: [recipe.optimizer_step(model, _loss, steps=steps, params=model.parameters())],
            evaluate=partial(self._evaluate, splits=splits),
            claims=partial(_claims, observation_shape=splits.shape),
            labels=labels,
            max_epochs=100 if self.steps is None and self.epochs is None else None,
        )

    def build_model(self, model_config: Mapping[str, Any]) -> nn.Module:
        """Rebuilds the model of a run, without its weights."""
        spec = DataSpec.from_config(model_config)
        return self._with_data_defaults(spec)._build(spec)

    def finish(self, run: Run, setup: TrainingSetup[GenerativeSplits]) -> Mapping[str, Any]:
        """Compares the likelihood of the test split with simple densities, and draws samples."""
        splits, model = setup.data, _as_flow(setup.model)
        metrics = _evaluate_likelihood(model, splits)
        if self.conditional:
            conditional = _evaluate_likelihood(model, splits, labels=splits.test_labels)
            metrics["log-likelihood given the labels"] = conditional[_LOG_LIKELIHOOD]
        if splits.density is not None and not self.conditional:
            truth = splits.density.log_prob(splits.test.double()).mean()
            metrics["KL from the true density"] = float(truth - _log_likelihood(model, splits.test).value.mean())
        _save_samples_figure(run, model, splits, seed=self.seed)
        if self.conditional and len(splits.shape) > 1:
            _save_label_samples(run, model, splits, seed=self.seed)
        baselines = _density_baselines(splits)
        return {
            "summary": _likelihood_summary(metrics, baselines, model="the flow", num_scored=len(splits.test)),
            "lead_figures": _lead_figures(run),
            "test": metrics,
            "baselines": baselines,
            "examples": splits.counts,
            "parameters": sum(p.numel() for p in model.parameters()),
            "warnings": list(splits.warnings),
        }

    def _with_data_defaults(self, spec: DataSpec) -> FlowRecipe:
        """The recipe with the model and the optimization options for the data."""
        model = self.model
        if isinstance(model, AutoFlowSpec):
            model = SplineFlowSpec() if spec.dequantizer is None else DiscretizedFlowSpec()
        if isinstance(model, DiscretizedFlowSpec) and spec.dequantizer is None:
            raise ValueError("model discretized needs discrete data: set data_levels, or choose model spline")
        if isinstance(model, RealNVPSpec | NICESpec) and math.prod(spec.shape) < 2:
            raise ValueError(f"model {model.name} needs at least 2 features, got 1: choose model spline or maf")
        if self.conditional and not spec.classes:
            raise ValueError(f"conditional=True needs labels, {self.data} has none")
        recipe = replace(self, model=model).with_defaults(
            batch_size=model.batch_size, learning_rate=model.learning_rate
        )
        return recipe if recipe.epochs else recipe.with_defaults(steps=model.steps)

    def _build(self, spec: DataSpec) -> Flow | ContinuousFlow:
        _check_parameter_count([partial(self._build_flow, spec)])
        return self._build_flow(spec)

    def _build_flow(self, spec: DataSpec) -> Flow | ContinuousFlow:
        num_classes = len(spec.classes) if self.conditional else 0
        match self.model:
            case DiscretizedFlowSpec(hidden_dims=hidden, dropout=dropout) if spec.dequantizer is not None:
                levels = spec.dequantizer
                low, high = levels.support
                return discretized_flow(
                    spec.shape,
                    num_levels=levels.levels,
                    low=low,
                    high=high,
                    num_classes=num_classes,
                    hidden_dims=hidden,
                    dropout=float(dropout),
                )
            case AutoregressiveFlowSpec(num_layers=layers, hidden_dims=hidden, dropout=dropout):
                return maf(
                    spec.shape, num_classes=num_classes, num_layers=layers, hidden_dims=hidden, dropout=float(dropout)
                )
            case RealNVPSpec(num_layers=layers, hidden_dims=hidden):
                return real_nvp(spec.shape, num_classes=num_classes, num_layers=layers, hidden_dims=hidden)
            case NICESpec(num_layers=layers, hidden_dims=hidden):
                return nice(spec.shape, num_classes=num_classes, num_layers=layers, hidden_dims=hidden)
            case ContinuousFlowSpec(hidden_dims=hidden):
                return ContinuousFlow(
                    VelocityField(math.prod(spec.shape), hidden_dims=hidden), shape=spec.shape, steps=8
                )
            case SplineFlowSpec(num_layers=layers, hidden_dims=hidden, num_bins=bins, dropout=dropout):
                return spline_flow(
                    spec.shape,
                    num_classes=num_classes,
                    num_layers=layers,
                    hidden_dims=hidden,
                    num_bins=bins,
                    dropout=float(dropout),
                )
        raise ValueError(f"model {self.model.name} does not fit data of shape {spec.shape}")

    def _evaluate(self, model: nn.Module, splits: GenerativeSplits) -> dict[str, float]:
        """Negative log-likelihood of held-out observations, in nats."""
        labels = splits.evaluation_labels
        given = labels[:_MAX_EVAL_EXAMPLES] if self.conditional and labels is not None else None
        x = splits.evaluation[:_MAX_EVAL_EXAMPLES]
        nats = _log_likelihood(model, x, dequantizer=splits.dequantizer, labels=given)
        return {"loss": -float(nats.value.mean())}


def _loss(model: nn.Module, batch: Batch) -> Tensor:
    """Negative log-likelihood of a batch, in nats."""
    flow = _as_flow(model)
    return -flow.log_prob(batch[0], labels=batch[1] if len(batch) > 1 else None).mean()


def _claims(model: nn.Module, observation_shape: tuple[int, ...]) -> Iterator[Claim]:
    """A flow treats observations independently."""
    flow = _as_flow(model)
    normalizer = flow.normalizer

    def in_range(x: Tensor) -> Tensor:
        return normalizer.inverse(x.tanh().flatten(1)).reshape(x.shape)

    example = transformed(in_range, " ".join(map(str, ("b", *observation_shape))))
    yield Claim(batch_independence(), flow.log_prob, example, name="log density")


def _as_flow(model: nn.Module) -> Flow | ContinuousFlow:
    if not isinstance(model, Flow | ContinuousFlow):
        raise TypeError(f"expected a Flow or ContinuousFlow, got {type(model).__name__}")
    return model
