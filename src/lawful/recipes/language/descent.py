"""How a transformer learns: the options that every recipe of text has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import nn

from lawful import optim
from lawful.optim.moments import AdamMoments
from lawful.optim.schedules import Schedule
from lawful.recipes.learning import Count, Fraction, NotNegative
from lawful.training import Between, Objective, Turn, validate

Decaying = Annotated[float, Between(0, 0.9999999)]


@dataclass(frozen=True, kw_only=True)
class Descent:
    """How the weights are found."""

    steps: Annotated[int, Between(1, 10**9)] = 400
    """The number of steps, unless epochs are given."""
    epochs: Annotated[int, Between(1, 10**7)] | None = None
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
    accumulate: Annotated[int, Between(1, 10**6)] = 1
    """In how many parts a batch is taken, to need less memory."""
    evaluations: Annotated[int, Between(1, 10**6)] = 5
    """How often the model is measured on what it is not trained on."""

    def __post_init__(self) -> None:
        validate(self)

    def length(self, epoch: int) -> int:
        """The number of steps, where an epoch has so many."""
        return self.steps if self.epochs is None else self.epochs * epoch

    def every(self, steps: int) -> int:
        """The steps from one evaluation to the next."""
        return max(1, -(-steps // self.evaluations))

    def turn(self, model: nn.Module, objective: Objective, *, steps: int) -> Turn:
        """Puts the objective and the optimizer of a model together."""
        return Turn(
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
        rising = optim.RisingAverage(self.momentum, first=max(0.0, self.momentum - 0.1), rise=rise)
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
                return optim.cosine(steps=steps, warmup=warmup, floor=self.floor)
            case "constant":
                return optim.warm_up(optim.constant, steps=warmup)
