"""The sizes that data give a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from lawful.data import Examples
from lawful.training import AtMost, Between, from_json, validate

Axis = Annotated[int, Between(1, 10**8)]


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What a model has to know of its data."""

    shape: Annotated[tuple[Axis, ...], AtMost(4)]
    """The shape of an example."""
    outputs: Annotated[int, Between(1, 10**6)]
    """The number of classes, or of targets."""
    examples: Annotated[int, Between(1, 10**10)]
    """How many examples it is trained on."""

    def __post_init__(self) -> None:
        validate(self)

    @classmethod
    def of(cls, examples: Examples) -> Sizes:
        outputs = examples.targets.shape[1] if examples.classes is None else len(examples.classes)
        return cls(shape=tuple(examples.inputs.shape[1:]), outputs=outputs, examples=len(examples))

    @classmethod
    def described(cls, facts: Mapping[str, Any]) -> Sizes:
        """Reads the sizes of a run's configuration, which nobody vouches for."""
        return from_json(cls, facts.get("sizes"), at="model.sizes")
