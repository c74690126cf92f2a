"""An attack: from a classifier, inputs and classes to inputs that are close by and classified otherwise."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

from lawful.inference.attacks.looking import Classifier


@runtime_checkable
class Attack(Protocol):
    """What every attack is: a frozen dataclass with its options, called with a model and examples.

    An example that is not fooled comes back too: as the closest call, or as it was. What is random of an example
    depends on the seed and on its number, not on the others of the batch.
    """

    def __call__(
        self,
        model: Classifier,
        x: Float[Tensor, "n ..."],
        y: Int[Tensor, " n"],
        *,
        numbers: Int[Tensor, " n"] | None = None,
    ) -> Float[Tensor, "n ..."]:
        """Returns inputs that are to fool the model.

        Args:
            model: From inputs to scores (logits).
            x: The inputs, an example along the first axis each, of any shape.
            y: The right classes; of an attack with the goal `TOWARD`, those wanted.
            numbers: The number of each example, which its random numbers belong to; 0, 1, ... unless given.
        """
        ...
