"""Robustness: adversarial training, and the units in which inputs are attacked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.data import Batch, Examples
from lawful.inference.attacks import FREE, L1, L2, PGD, Box, LInf, Norm, robust_accuracy
from lawful.recipes.learning import NotNegative
from lawful.training import Between, validate

NORMS: dict[str, Norm] = {"linf": LInf(), "l2": L2(), "l1": L1()}
Measured = Literal["linf", "l2", "l1"]


@dataclass(frozen=True, eq=False)
class Units:
    """What a change of inputs is measured in: standard deviations of a table's columns, else the data's own units."""

    shift: Tensor
    scale: Tensor
    box: Box
    """Where inputs lie: images between the least and the largest value that was seen, others anywhere."""

    @classmethod
    def of(cls, inputs: Float[Tensor, "n ..."]) -> Units:
        if inputs.dim() == 2:
            scale = inputs.std(0, correction=0)
            return cls(inputs.mean(0), torch.where(scale > 0, scale, 1.0), FREE)
        least, most = float(inputs.min()), float(inputs.max())
        box = Box(least, most) if least >= 0 and most > least else FREE
        return cls(torch.zeros(()), torch.ones(()), box)

    def measured(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n ..."]:
        """Inputs in these units; what lies outside the box, in new data, is moved to its border."""
        return self.box.clamp((x - self.shift.to(x)) / self.scale.to(x))

    def raw(self, z: Float[Tensor, "n ..."]) -> Float[Tensor, "n ..."]:
        return z * self.scale.to(z) + self.shift.to(z)


class Measuring(nn.Module):
    """A classifier that takes inputs in other units than its own."""

    def __init__(self, model: nn.Module, units: Units) -> None:
        super().__init__()
        self.model, self.units = model, units

    def forward(self, z: Float[Tensor, "n ..."]) -> Float[Tensor, "n c"]:
        return self.model(self.units.raw(z))


@dataclass(frozen=True, kw_only=True)
class Robustness:
    """Whether a classifier is trained on the worst inputs close to the examples, rather than on these."""

    adversarial: NotNegative = 0.0
    """How far inputs are moved in training so that they fool, in units of the data (tables: deviations); 0 for not."""
    distance: Measured = "linf"
    """What that is measured in: the largest change of an entry, the Euclidean length, the sum of absolute changes."""
    attack_steps: Annotated[int, Between(1, 10**4)] = 7
    """How many gradients the attack of each training step takes."""

    def __post_init__(self) -> None:
        validate(self)

    def attacked(self, model: nn.Module, batch: Batch, units: Units | None) -> Batch:
        """The batch with its inputs moved to where they fool the model as it is; the model is not changed."""
        if not self.adversarial or units is None or not model.training:
            return batch
        x, y = batch
        seed = int(torch.randint(2**31, ()))
        attack = PGD(eps=self.adversarial, norm=NORMS[self.distance], steps=self.attack_steps, box=units.box, seed=seed)
        return units.raw(attack(Measuring(model, units), units.measured(x), y)), y

    def tested(self, model: nn.Module, train: Examples, test: Examples, *, most: int = 500) -> dict[str, float]:
        """The accuracy on some test examples under a longer attack of the same distance, with its interval."""
        units = Units.of(train.inputs)
        attack = PGD(eps=self.adversarial, norm=NORMS[self.distance], enough=0.0, box=units.box)
        x, y = units.measured(test.inputs[:most]), test.targets[:most]
        return robust_accuracy(Measuring(model, units), x, y, attack=attack).json()
