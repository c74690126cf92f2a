"""How the examples of a step are varied, so that a model does not learn them by heart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from lawful.data import Augment, Examples, chained, cut_out, flipped, noisy, shifted
from lawful.recipes.learning import NotNegative
from lawful.training import Between, validate


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """How the examples of a step are varied at random."""

    shift: Annotated[int, Between(0, 10**4)] = 0
    """The most pixels or positions by which images and series are moved."""
    flip: bool = False
    """Whether images and series are mirrored, half of the time, along their last axis."""
    cutout: Annotated[int, Between(0, 10**4)] = 0
    """The width of a square that is cut out of an image, or of a stretch of a series."""
    noise: NotNegative = 0.0
    """The standard deviation of noise that is added to every input, in units of the data."""

    def __post_init__(self) -> None:
        validate(self)

    def of(self, train: Examples) -> Augment | None:
        """What is done to a batch of such examples, if anything.

        Raises:
            ValueError: where rows of a table were to be moved, mirrored or cut.
        """
        axes = train.inputs.dim() - 2
        if axes < 1 and (self.shift or self.flip or self.cutout):
            example = tuple(train.inputs.shape[1:])
            raise ValueError(f"shift, flip and cutout are for images and series: these examples have shape {example}")
        steps = [shifted(self.shift, axes=axes)] if self.shift else []
        steps += [flipped()] if self.flip else []
        steps += [cut_out(self.cutout, axes=axes)] if self.cutout else []
        steps += [noisy(self.noise)] if self.noise else []
        return chained(*steps) if steps else None
