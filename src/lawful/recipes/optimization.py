"""Options of optimization, evaluation and regularization that recipes share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lawful import optim
from lawful._json import Config, Excludes, Range, Requires, is_default
from lawful.data.batches import Batch
from lawful.losses.regularization import elastic_net_penalty, l1_penalty, l2_penalty, parameter_penalty
from lawful.optim.schedules import Schedule
from lawful.training.setup import LossFunction, OptimizerStep

_C = TypeVar("_C", bound="_ScheduleConfig")

_Fraction = Annotated[float, Range(0, 1)]
"""A number from 0 to 1."""
_Probability = Annotated[float, Range(0, 0.99)]
"""A dropout probability."""
_NonNegative = Annotated[float, Range(0, 1e30)]
"""A number that is not negative."""
_PositiveInt = Annotated[int, Range(1, 10**9)]
"""A positive integer."""
_Decay = Annotated[float, Range(0, 0.9999999)]
"""Decay of a moving average."""
_Steps = Annotated[_PositiveInt | None, Excludes("epochs")]
"""A number of training steps."""
_Betas = Annotated[tuple[_Decay, _Decay] | None, Requires(optimizer=("adamw", "adam", "lion", "muon"))]
"""Betas of an optimizer."""
_Momentum = Annotated[_Decay | None, Requires(optimizer=("sgd", "muon"))]
"""Momentum of an optimizer."""
_WARMUP = Requires(schedule=("cosine", "linear", "constant", "warmup-stable-decay"))
_WarmupRatio = Annotated[_Fraction | None, _WARMUP, Excludes("warmup_steps")]
"""A fraction of the steps."""
_Patience = Annotated[int, Range(0, 10**6), Requires(validation_fraction=True)]
"""A number of evaluations."""
_NumEvals = Annotated[Annotated[int, Range(1, 10**6)] | None, Requires(validation_fraction=True)]
"""A number of evaluations that need validation data."""


@dataclass(frozen=True, kw_only=True)
class _ScheduleConfig(Config):
    """Steps, learning rate schedule and batch size: the options that all optimizers share."""

    steps: _Steps = None
    """Number of training steps. The default depends on the model."""
    epochs: Annotated[int, Range(1, 10**7)] | None = None
    """Number of passes over the training data, instead of `steps`."""
    batch_size: _PositiveInt | None = None
    """Examples per step. The default depends on the model."""
    learning_rate: _NonNegative | None = None
    """Peak learning rate. The default depends on the model."""
    schedule: Literal["one-cycle", "cosine", "linear", "constant", "warmup-stable-decay"] = "cosine"
    """Learning rate schedule. one-cycle has its own warmup and final learning rate."""
    warmup_steps: Annotated[Annotated[int, Range(0, 10**9)] | None, _WARMUP] = None
    """Warmup steps of the learning rate. Defaults to `warmup_ratio` of all steps."""
    warmup_ratio: _WarmupRatio = None
    """Fraction of the steps used for warmup, and for the decay of warmup-stable-decay. Defaults to 0, or to
    0.1 for warmup-stable-decay."""
    min_lr_ratio: Annotated[_Fraction, Requires(schedule=("cosine", "linear", "warmup-stable-decay"))] = 0.0
    """Final learning rate, as a fraction of the peak."""
    grad_clip_norm: _NonNegative = 0.0
    """Maximum gradient norm; 0 disables clipping."""
    grad_accumulation_steps: Annotated[int, Range(1, 10**6)] = 1
    """Number of micro-batches that each batch is split into. Their gradients are accumulated."""
    ema_decay: _Decay = 0.0
    """EMA decay; the averaged weights are evaluated and saved. At step t, the decay is at most t / (t + 4). 0
    disables."""

    def with_defaults(self: _C, **defaults: Any) -> _C:
        """Returns a copy with the given values for options that are None."""
        return replace(self, **{name: value for name, value in defaults.items() if getattr(self, name) is None})

    def num_steps(self, steps_per_epoch: int) -> int:
        """Returns the number of training steps. Of `steps` and `epochs`, one that is set precedes a default."""
        if self.epochs and (self.steps is None or is_default(self, "steps")):
            return self.epochs * steps_per_epoch
        return self.steps or 1

    def optimizer_step(
        self, model: nn.Module, loss_fn: LossFunction, *, steps: int, params: Iterable[Any] | None = None
    ) -> OptimizerStep:
        """Builds the optimizer and the schedule for a loss.

        Args:
            model: Model to train.
            loss_fn: Loss to minimize.
            steps: Number of training steps.
            params: Parameters or parameter groups. Defaults to all parameters, without weight decay for vectors.
        """
        return OptimizerStep(
            loss_fn=loss_fn,
            optimizer=self.build_optimizer(model, steps=steps, params=params),
            schedule=self.build_schedule(steps),
            grad_clip_norm=self.grad_clip_norm or None,
        )

    def build_optimizer(
        self, model: nn.Module, *, steps: int, params: Iterable[Any] | None = None
    ) -> torch.optim.Optimizer:
        """Builds the optimizer of a model."""
        raise NotImplementedError(f"{type(self).__name__} must implement build_optimizer()")

    def build_schedule(self, steps: int) -> Schedule:
        """Builds the schedule of the learning rate."""
        default = 0.1 if self.schedule == "warmup-stable-decay" else 0.0
        ratio = default if self.warmup_ratio is None else self.warmup_ratio
        warmup = int(ratio * steps) if self.warmup_steps is None else self.warmup_steps
        warmup, floor = min(warmup, steps - 1), self.min_lr_ratio
        match self.schedule:
            case "constant":
                return optim.with_warmup(optim.constant_schedule(), warmup_steps=warmup)
            case "cosine":
                return optim.cosine_schedule(steps=steps, warmup_steps=warmup, min_lr_ratio=floor)
            case "linear":
                return optim.linear_schedule(steps=steps, warmup_steps=warmup, min_lr_ratio=floor)
            case "one-cycle":
                return optim.one_cycle_schedule(steps=max(2, steps))
            case "warmup-stable-decay":
                decay_steps = min(max(2, warmup), steps - warmup)  # the first step of a decay has the peak rate
                return optim.warmup_stable_decay_schedule(
                    steps=steps, warmup_steps=warmup, decay_steps=decay_steps, min_lr_ratio=floor
                )


@dataclass(frozen=True, kw_only=True)
class OptimizationConfig(_ScheduleConfig):
    """Optimizer, learning rate schedule and batch size."""

    optimizer: Literal["adamw", "adam", "sgd", "muon", "lion"] = "adamw"
    """Optimizer. Muon updates matrices and leaves the other parameters to AdamW."""
    weight_decay: _NonNegative = 1e-2
    """Weight decay: decoupled for adamw, lion and muon, else added to the gradient."""
    betas: _Betas = None
    """Betas of Adam, AdamW (also within muon) and Lion. Defaults to the usual values of the optimizer."""
    momentum: _Momentum = None
    """Momentum of sgd and muon. Defaults to 0 for sgd and 0.95 for muon."""
    nesterov: Annotated[bool, Requires(optimizer=("sgd",), momentum=True)] = False
    """Nesterov momentum for sgd."""

    def build_optimizer(
        self, model: nn.Module, *, steps: int, params: Iterable[Any] | None = None
    ) -> torch.optim.Optimizer:
        """Builds the optimizer of a model."""
        lr, weight_decay = self.learning_rate or 0.0, self.weight_decay
        betas: dict[str, Any] = {} if self.betas is None else {"betas": self.betas}
        if self.optimizer == "muon":
            momentum = 0.95 if self.momentum is None else self.momentum
            return optim.muon_with_adamw(
                model, lr=lr, adam_lr=lr, momentum=momentum, weight_decay=weight_decay, **betas
            )
        groups = list(_decay_groups(model) if params is None else params)
        match self.optimizer:
            case "adamw":
                return optim.adamw(groups, lr=lr, weight_decay=weight_decay, **betas)
            case "adam":
                return optim.adam(groups, lr=lr, weight_decay=weight_decay, **betas)
            case "sgd":
                momentum = self.momentum or 0.0
                return optim.sgd(groups, lr=lr, momentum=momentum, nesterov=self.nesterov, weight_decay=weight_decay)
            case "lion":
                return optim.Lion(groups, lr=lr, weight_decay=weight_decay, **betas)


def _decay_groups(model: nn.Module) -> list[dict[str, Any]]:
    """Parameter groups without weight decay for biases and other vectors."""
    trainable = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trainable if p.dim() > 1]},
        {"params": [p for p in trainable if p.dim() <= 1], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig(Config):
    """Evaluation and early stopping."""

    num_evals: Annotated[int, Range(1, 10**6)] | None = None
    """Number of evaluations during training. Defaults to one per epoch."""
    patience: Annotated[int, Range(0, 10**6)] = 0
    """Number of evaluations without improvement after which training stops (early stopping); 0 disables."""

    def eval_every(self, steps: int, *, steps_per_epoch: int) -> int:
        """Returns the number of steps between evaluations."""
        return steps_per_epoch if self.num_evals is None else max(1, -(-steps // self.num_evals))


_PENALTY = Requires(penalty=("l1", "l2", "elastic-net"))


@dataclass(frozen=True, kw_only=True)
class RegularizationConfig(Config):
    """Penalties and constraints on the weights."""

    penalty: Literal["none", "l1", "l2", "elastic-net"] = "none"
    """Penalty on the weights, added to the loss."""
    penalty_weight: Annotated[_NonNegative, _PENALTY] = 1e-4
    """Weight of the penalty."""
    l1_ratio: Annotated[_Fraction, Requires(penalty=("elastic-net",))] = 0.5
    """Fraction of the L1 penalty in the elastic net."""
    penalty_params: Annotated[str, _PENALTY] = "*weight"
    """Names of the penalized parameters, as a glob pattern."""
    max_norm: _NonNegative = 0.0
    """Maximum norm of the incoming weights of a unit; 0 disables."""
    max_norm_params: Annotated[str, Requires(max_norm=True)] = "*weight"
    """Names of the parameters with a maximum norm, as a glob pattern."""

    def add_penalty(self, model: nn.Module, loss_fn: LossFunction) -> LossFunction:
        """Adds the penalty to a loss.

        Raises:
            ValueError: If no parameter of the model matches `penalty_params`.
        """
        if self.penalty == "none":
            return loss_fn
        parameter_penalty(model, l2_penalty, pattern=self.penalty_params)
        rho: Callable[[Tensor], Tensor] = {
            "l1": l1_penalty,
            "l2": l2_penalty,
            "elastic-net": partial(elastic_net_penalty, alpha=float(self.l1_ratio)),
        }[self.penalty]

        def penalized_loss(model: nn.Module, batch: Batch) -> dict[str, Tensor]:
            output = loss_fn(model, batch)
            metrics = {"loss": output} if isinstance(output, Tensor) else dict(output)
            added = parameter_penalty(model, rho, pattern=self.penalty_params)
            objective = metrics["objective" if "objective" in metrics else "loss"] + self.penalty_weight * added
            return {**metrics, "objective": objective, "penalty": added}

        return penalized_loss

    def constraint(self) -> Callable[[nn.Module], None] | None:
        """Returns the function that clips weight norms after a step."""
        return partial(optim.max_norm, limit=self.max_norm, params=self.max_norm_params) if self.max_norm else None


def _classification_loss(logits: Tensor, y: Tensor, *, label_smoothing: float) -> dict[str, Tensor]:
    """Returns the cross-entropy and the accuracy, and with label smoothing the objective to minimize."""
    metrics = {"accuracy": (logits.detach().argmax(-1) == y).float().mean()}
    if not label_smoothing:
        return {"loss": F.cross_entropy(logits, y), **metrics}
    objective = F.cross_entropy(logits, y, label_smoothing=label_smoothing)
    return {"loss": F.cross_entropy(logits.detach(), y), "objective": objective, **metrics}


class LearningRates(NamedTuple):
    """Default learning rates of a transformer recipe."""

    muon: float = 0.02
    """Matrices, with Muon."""
    adam: float = 0.01
    """Embeddings and vectors; all parameters without Muon."""
    ngram: float | None = None
    """N-gram embeddings; None for `adam`."""
    head: float | None = None
    """Output head; None for `adam`."""


_MUON = Requires(optimizer=("muon",))


@dataclass(frozen=True, kw_only=True)
class TransformerOptimizationConfig(_ScheduleConfig):
    """Optimizer, learning rate schedule and batch size of a transformer."""

    default_learning_rates: ClassVar[LearningRates] = LearningRates()

    steps: _Steps = 400
    """Number of training steps."""
    batch_size: _PositiveInt | None = 32
    """Examples per step."""
    optimizer: Literal["muon", "adamw"] = "muon"
    """Optimizer. Muon updates matrices and leaves the other parameters to AdamW."""
    learning_rate: _NonNegative | None = None
    """Peak learning rate: of the matrices with muon, else of all parameters. The default depends on the recipe."""
    adam_learning_rate: Annotated[_NonNegative | None, _MUON] = None
    """Learning rate of embeddings and vectors, with muon. The default depends on the recipe."""
    ngram_learning_rate: Annotated[_NonNegative | None, Requires(ngrams=True)] = None
    """Learning rate of the n-gram embeddings. The default depends on the recipe."""
    head_learning_rate: Annotated[_NonNegative | None, Requires(tie_embeddings=(False,))] = None
    """Learning rate of the output head. The default depends on the recipe."""
    momentum: Annotated[_Decay | None, _MUON] = None
    """Momentum of muon. Defaults to 0.95."""
    momentum_warmup_ratio: Annotated[_Fraction, _MUON] = 0.0
    """Fraction of the steps for the warmup of Muon's momentum, from `momentum` - 0.1 to `momentum`."""
    betas: tuple[_Decay, _Decay] | None = (0.8, 0.95)
    """Betas of AdamW, also within muon."""
    weight_decay: _NonNegative = 0.0
    """Weight decay of matrices and embeddings."""
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    """Learning rate schedule."""
    warmup_ratio: _WarmupRatio = None
    """Fraction of the steps used for warmup. Defaults to 0."""

    def build_optimizer(
        self, model: nn.Module, *, steps: int, params: Iterable[Any] | None = None
    ) -> torch.optim.Optimizer:
        """Builds Muon with AdamW for embeddings, vectors and the head; or AdamW for all parameters."""
        adamw, default = self.optimizer == "adamw", self.default_learning_rates
        if adamw and self.learning_rate is not None:
            lr = adam_lr = self.learning_rate
            default = LearningRates()
        else:
            lr = default.muon if self.learning_rate is None else self.learning_rate
            adam_lr = default.adam if adamw or self.adam_learning_rate is None else self.adam_learning_rate
        rates = {
            "*ngrams.*": default.ngram if self.ngram_learning_rate is None else self.ngram_learning_rate,
            "*head.*": default.head if self.head_learning_rate is None else self.head_learning_rate,
            "*": adam_lr,
        }
        momentum, warmup = 0.95 if self.momentum is None else self.momentum, int(self.momentum_warmup_ratio * steps)
        rising = optim.WarmupMomentum(momentum, initial_momentum=max(0.0, momentum - 0.1), warmup_steps=warmup)
        return optim.muon_with_adamw(
            model,
            lr=lr,
            adam_lr={pattern: rate for pattern, rate in rates.items() if rate is not None},
            momentum=rising if warmup else momentum,
            betas=self.betas or (0.8, 0.95),
            eps=1e-10,
            weight_decay=self.weight_decay,
            muon_params="" if adamw else "*layers.*",
        )
