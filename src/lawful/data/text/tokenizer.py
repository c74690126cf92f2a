"""What a tokenizer is, and reading one back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np

from lawful.data.text.bpe import BPE
from lawful.data.text.bytes import Bytes
from lawful.data.text.characters import Characters
from lawful.data.untrusted import entry


class Tokenizer(Protocol):
    """Turns text into tokens, numbered from 0, and back."""

    @property
    def vocab(self) -> int:
        """The number of tokens."""
        ...

    @property
    def reserved(self) -> tuple[int, ...]:
        """Tokens that no text of known characters has, and that a model is not to write."""
        ...

    @property
    def pieces(self) -> Sequence[bytes]:
        """The bytes of each token."""
        ...

    def array(self, text: str) -> np.ndarray:
        """The tokens of a text, as the smallest whole numbers that hold them."""
        ...

    def encode(self, text: str) -> list[int]:
        """The tokens of a text."""
        ...

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens."""
        ...

    def unknown(self, text: str) -> tuple[str, ...]:
        """The characters of a text that have no token of their own, each once."""
        ...

    def to_json(self) -> dict[str, Any]:
        """As JSON has it."""
        ...


KINDS: dict[str, Callable[[object], Tokenizer]] = {
    "characters": Characters.from_json,
    "bytes": Bytes.from_json,
    "bpe": BPE.from_json,
}


def tokenizer_from_json(value: object) -> Tokenizer:
    """Reads a tokenizer of any kind, from a file that nobody vouches for: what is none is refused.

    Args:
        value: What JSON gave.

    Examples:
        >>> tokenizer_from_json({"kind": "characters", "alphabet": "ab"})
        Characters(alphabet='ab')
    """
    kind = value.get("kind") if isinstance(value, dict) else None
    return KINDS[entry(kind, tuple(KINDS), where="tokenizer.kind")](value)
