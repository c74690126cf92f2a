"""What a trained model of text is asked to write."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import nn

from lawful.data.text import Tokenizer
from lawful.inference.decoding import Sampling
from lawful.training import Recipe

AS_IT_SAYS = Sampling()
"""Draws each token as the model says."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """How much is to be written, and how."""

    tokens: int = 256
    """The most tokens."""
    sampling: Sampling = AS_IT_SAYS
    """How each is drawn."""
    stop: tuple[str, ...] = ()
    """Texts that end it, and are not shown."""
    seed: int = 0
    """What the draws depend on."""
    beams: int = 1
    """How many continuations are searched for a probable one; 1 draws instead."""

    def __post_init__(self) -> None:
        if self.tokens < 1 or self.beams < 1:
            raise ValueError(f"tokens and beams are at least 1: got {self.tokens} and {self.beams}")
        if not -(2**63) <= self.seed < 2**63:
            raise ValueError(f"a seed has 64 bits: got {self.seed}")
        if self.beams > 1 and self.sampling != AS_IT_SAYS:
            raise ValueError(
                "beams look for the most probable text, and draw none: they go without a temperature, top-k, top-p, "
                "min-p and a repetition penalty"
            )


@runtime_checkable
class Writes(Recipe, Protocol):
    """A recipe whose models write text."""

    def write(self, model: nn.Module, tokenizer: Tokenizer, prompt: str, asked: Asked) -> Iterator[str]:
        """Gives the text to a prompt, piece by piece."""
        ...
