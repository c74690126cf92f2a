"""How a recipe learns: the options that every supervised recipe has.

How a transformer learns: the options that every recipe of text has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Literal, TypedDict

import torch
from torch import Tensor, nn

from lawful import optim
from lawful.data import Batch
from lawful.losses.regularization import elastic_net, l1, l2, penalty
from lawful.optim.schedules import Schedule
from lawful.optim.transforms import AdamMoments
from lawful.training import Objective, OptimizerStep, Range, validate


class Suited(TypedDict):
    """What suits a model."""

    epochs: int
    learning_rate: float


Fraction = Annotated[float, Range(0, 1)]
Dropped = Annotated[float, Range(0, 0.99)]
NotNegative = Annotated[float, Range(0, 1e30)]
Count = Annotated[int, Range(1, 10**9)]


@dataclass(frozen=True, kw_only=True)
class Learning:
    """How the weights are found."""

    epochs: Annotated[int, Range(1, 10**7)] | None = None
    """How often every example is seen; by default what suits the model."""
    batch: Count = 64
    """Examples in a step."""
    optimizer: Literal["adamw", "adam", "sgd", "momentum", "nesterov", "muon", "lion"] = "adamw"
    """What makes a step of a gradient."""
    learning_rate: NotNegative | None = None
    """The length of a step, at its longest; by default what suits the model."""
    schedule: Literal["one-cycle", "cosine", "linear", "constant", "warmup-stable-decay"] = "one-cycle"
    """How the learning rate changes from the first step to the last."""
    warmup: Fraction = 0.1
    """cosine, linear: the share of the steps in which the rate rises; warmup-stable-decay: and in which it falls."""
    weight_decay: NotNegative = 1e-2
    """How strongly weights are pulled to 0 apart from the loss (decoupled, or coupled in adam, sgd and their kin)."""
    penalty: Literal["none", "l1", "l2", "elastic"] = "none"
    """What the loss adds for large weights."""
    penalty_weight: NotNegative = 1e-4
    """The factor of the penalty."""
    penalty_mix: Fraction = 0.5
    """elastic: the share of the absolute values; the rest is of the squares."""
    penalty_on: str = "*weight"
    """Which parameters it is for, as a pattern of their names: `*layers.0.weight` for a layer."""
    max_norm: NotNegative = 0.0
    """The largest norm of the weights into a unit; 0 for no bound."""
    max_norm_on: str = "*weight"
    """Which weights it is for, as a pattern of their names."""
    clip: NotNegative = 0.0
    """The largest norm of the gradient; 0 for no bound."""
    accumulate: Annotated[int, Range(1, 10**6)] = 1
    """In how many parts a batch is taken, to need less memory."""
    average: Annotated[float, Range(0, 0.9999999)] = 0.0
    """The decay of a moving average of the weights, which is then what is kept; 0 for none."""
    patience: Annotated[int, Range(0, 10**6)] = 0
    """How many evaluations without a better one end the training, with the best weights put back; 0 for all epochs."""
    members: Annotated[int, Range(1, 100)] = 1
    """How many models to train, with a seed each, and average."""
    bagging: bool = False
    """Whether each member has examples drawn anew, with replacement."""
    combine: Literal["probabilities", "log-probabilities"] = "probabilities"
    """What of the members is averaged."""

    def __post_init__(self) -> None:
        validate(self)

    def suited(self, *, epochs: int, learning_rate: float) -> Learning:
        """Fills in what was left to the model."""
        rate = learning_rate if self.learning_rate is None else self.learning_rate
        return replace(self, epochs=self.epochs or epochs, learning_rate=rate)

    def turn(self, model: nn.Module, objective: Objective, *, steps: int) -> OptimizerStep:
        """Puts the objective, with its penalty, and the optimizer of a model together."""
        if self.penalty != "none":
            penalty(model, l2, on=self.penalty_on)  # refuses a pattern of no name before the first step
        return OptimizerStep(
            objective=self.penalised(objective),
            optimizer=self.optimizer_of(model),
            schedule=self.schedule_of(steps),
            clip=self.clip or None,
        )

    def optimizer_of(self, model: nn.Module) -> torch.optim.Optimizer:
        """The optimizer; biases and other vectors are not pulled to 0."""
        rate, decay = self.learning_rate or 0.0, self.weight_decay
        if self.optimizer == "muon":
            return optim.muon_with_adamw(model, lr=rate, adam_lr=rate, decay=decay)
        learnt = [p for p in model.parameters() if p.requires_grad]
        groups = [
            {"params": [p for p in learnt if p.dim() > 1]},
            {"params": [p for p in learnt if p.dim() <= 1], "decay": 0.0},
        ]
        groups = [group for group in groups if group["params"]]
        match self.optimizer:
            case "adamw":
                return optim.adamw(groups, lr=rate, decay=decay)
            case "adam":
                return optim.adam(groups, lr=rate, decay=decay)
            case "sgd":
                return optim.gradient_descent(groups, lr=rate, decay=decay)
            case "momentum":
                return optim.momentum(groups, lr=rate, decay=decay)
            case "nesterov":
                return optim.nesterov(groups, lr=rate, decay=decay)
            case "lion":
                return optim.lion(groups, lr=rate, decay=decay)

    def schedule_of(self, steps: int) -> Schedule:
        """The schedule over all steps."""
        warmup = min(int(self.warmup * steps), steps - 1)
        match self.schedule:
            case "constant":
                return optim.constant
            case "cosine":
                return optim.cosine_schedule(steps=steps, warmup=warmup)
            case "linear":
                return optim.linear(steps=steps, warmup=warmup)
            case "one-cycle":
                return optim.one_cycle(steps=max(2, steps))
            case "warmup-stable-decay":
                cooldown = min(max(1, warmup), steps - warmup)
                return optim.warmup_stable_decay(steps=steps, warmup=warmup, cooldown=cooldown)

    def penalised(self, objective: Objective) -> Objective:
        """The objective with the penalty added to its loss."""
        if self.penalty == "none":
            return objective
        rho: Callable[[Tensor], Tensor] = {
            "l1": l1,
            "l2": l2,
            "elastic": partial(elastic_net, alpha=float(self.penalty_mix)),
        }[self.penalty]

        def whole(model: nn.Module, batch: Batch) -> dict[str, Tensor]:
            found = objective(model, batch)
            figures = {"loss": found} if isinstance(found, Tensor) else dict(found)
            added = penalty(model, rho, on=self.penalty_on)
            return {**figures, "loss": figures["loss"] + self.penalty_weight * added, "penalty": added}

        return whole

    def constraint(self) -> Callable[[nn.Module], None] | None:
        """What bounds the weights after a step."""
        return partial(optim.max_norm, at_most=self.max_norm, on=self.max_norm_on) if self.max_norm else None


Decaying = Annotated[float, Range(0, 0.9999999)]


@dataclass(frozen=True, kw_only=True)
class Descent:
    """How the weights are found."""

    steps: Annotated[int, Range(1, 10**9)] = 400
    """The number of steps, unless epochs are given."""
    epochs: Annotated[int, Range(1, 10**7)] | None = None
    """How often everything is seen, in place of a number of steps."""
    batch: Count = 32
    """Examples in a step."""
    optimizer: Literal["muon", "adamw"] = "muon"
    """What makes a step of a gradient: Muon for matrices inside and AdamW for the rest, or AdamW for all."""
    learning_rate: NotNegative = 0.02
    """muon: the length of a step of a matrix."""
    adam_rate: NotNegative = 0.01
    """The length of a step of the embedding and of vectors; adamw: of matrices too."""
    table_rate: NotNegative | None = None
    """That of the tables of runs of tokens; by default the one above."""
    head_rate: NotNegative | None = None
    """That of the head; by default the one above."""
    momentum: Decaying = 0.95
    """muon: how slowly the average gradient changes."""
    momentum_warmup: Fraction = 0.0
    """muon: the share of the steps in which it rises to that, from 0.1 less."""
    beta1: Decaying = 0.8
    """adamw: how slowly the average gradient changes."""
    beta2: Decaying = 0.95
    """adamw: how slowly the average square of the gradient changes."""
    weight_decay: NotNegative = 0.0
    """How strongly matrices and tables are pulled to 0."""
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    """How the learning rate falls from the first step to the last."""
    floor: Fraction = 0.0
    """Where it ends, as a share of what it was."""
    warmup: Fraction = 0.0
    """The share of the steps in which it rises."""
    clip: NotNegative = 0.0
    """The largest norm of the gradient; 0 for no bound."""
    average: Decaying = 0.0
    """The decay of a moving average of the weights, which is then what is kept; 0 for none."""
    accumulate: Annotated[int, Range(1, 10**6)] = 1
    """In how many parts a batch is taken, to need less memory."""
    evaluations: Annotated[int, Range(1, 10**6)] = 5
    """How often the model is measured on what it is not trained on."""

    def __post_init__(self) -> None:
        validate(self)

    def length(self, epoch: int) -> int:
        """The number of steps, where an epoch has so many."""
        return self.steps if self.epochs is None else self.epochs * epoch

    def every(self, steps: int) -> int:
        """The steps from one evaluation to the next."""
        return max(1, -(-steps // self.evaluations))

    def turn(self, model: nn.Module, objective: Objective, *, steps: int) -> OptimizerStep:
        """Puts the objective and the optimizer of a model together."""
        return OptimizerStep(
            objective=objective,
            optimizer=self.optimizer_of(model, steps=steps),
            schedule=self.schedule_of(steps),
            clip=self.clip or None,
        )

    def optimizer_of(self, model: nn.Module, *, steps: int) -> torch.optim.Optimizer:
        """The optimizer; tables and the head are AdamW's."""
        moments = AdamMoments(beta1=self.beta1, beta2=self.beta2, eps=1e-10)
        own = {"*ngrams.*": self.table_rate, "*head.*": self.head_rate, "*": self.adam_rate}
        rise = int(self.momentum_warmup * steps)
        rising = optim.WarmupMomentum(self.momentum, first=max(0.0, self.momentum - 0.1), rise=rise)
        return optim.muon_with_adamw(
            model,
            lr=self.learning_rate,
            adam_lr={name: rate for name, rate in own.items() if rate is not None},
            beta=rising if rise else self.momentum,
            decay=self.weight_decay,
            moments=moments,
            on="*layers.*" if self.optimizer == "muon" else "",
        )

    def schedule_of(self, steps: int) -> Schedule:
        """The schedule over all steps."""
        warmup = min(int(self.warmup * steps), steps - 1)
        match self.schedule:
            case "linear":
                return optim.linear(steps=steps, warmup=warmup, floor=self.floor)
            case "cosine":
                return optim.cosine_schedule(steps=steps, warmup=warmup, floor=self.floor)
            case "constant":
                return optim.with_warmup(optim.constant, steps=warmup)
