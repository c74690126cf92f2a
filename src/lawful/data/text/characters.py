"""The tokenizer whose tokens are characters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lawful.data.text.pieces import REPLACEMENT, decoded, distinct, dtype_of
from lawful.data.untrusted import entry, fields
from lawful.laws import Claim, agreement, tokens

CODES = 0x110000
"""The number of code points of Unicode."""


@dataclass(frozen=True)
class Characters:
    r"""Numbers the characters of an alphabet; the last number stands for every other one.

    A character that is not in the alphabet becomes the token `other`, and that is U+FFFD when it is decoded. So texts
    of known characters come back as they were, and others with U+FFFD in place of what is not known.

    Args:
        alphabet: The characters in the order of their tokens, none twice.

    Examples:
        >>> letters = Characters.of(["hello"])
        >>> letters.alphabet, letters.vocab, letters.encode("hole!")
        ('ehlo', 5, [1, 3, 2, 0, 4])
        >>> letters.decode([1, 3, 2, 0, 4]), letters.unknown("hole!")
        ('hole\ufffd', ('!',))
    """

    alphabet: str

    def __post_init__(self) -> None:
        if not self.alphabet or len(set(self.alphabet)) != len(self.alphabet):
            raise ValueError(f"an alphabet has at least one character, and none twice: got {self.alphabet[:100]!r}")
        for letter in self.alphabet:
            if letter == REPLACEMENT or "\ud800" <= letter <= "\udfff":
                raise ValueError(f"U+{ord(letter):04X} cannot be in an alphabet: it is not a character of its own")

    @classmethod
    def of(cls, texts: Iterable[str]) -> Characters:
        """The alphabet of texts: all their characters, by code point."""
        seen = np.zeros(CODES, dtype=bool)
        for text in texts:
            seen[_codes(text)] = True
        seen[ord(REPLACEMENT)] = False
        seen[0xD800:0xE000] = False
        return cls("".join(map(chr, np.flatnonzero(seen).tolist())))

    @property
    def vocab(self) -> int:
        """The number of tokens: one for each character, and one for all others."""
        return len(self.alphabet) + 1

    @property
    def other(self) -> int:
        """The token of an unknown character."""
        return len(self.alphabet)

    @property
    def reserved(self) -> tuple[int, ...]:
        """Tokens that no text of the alphabet has, and that a model is not to write."""
        return (self.other,)

    @cached_property
    def pieces(self) -> tuple[bytes, ...]:
        """The bytes of each token."""
        return tuple(letter.encode() for letter in self.alphabet + REPLACEMENT)

    @cached_property
    def _table(self) -> np.ndarray:
        """From code points to tokens; the last entry is for all code points beyond."""
        codes = _codes(self.alphabet)
        table = np.full(int(codes.max()) + 2, self.other, dtype=dtype_of(self.vocab))
        table[codes] = np.arange(len(codes))
        return table

    def array(self, text: str) -> np.ndarray:
        """The tokens of a text, as the smallest whole numbers that hold them."""
        return self._table[np.minimum(_codes(text), len(self._table) - 1)]

    def encode(self, text: str) -> list[int]:
        """The tokens of a text."""
        return self.array(text).tolist()

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens."""
        return decoded(self.pieces, tokens)

    def unknown(self, text: str) -> tuple[str, ...]:
        """The characters of a text that are not in the alphabet, each once."""
        known = {*self.alphabet, REPLACEMENT}
        return distinct(letter for letter in text if letter not in known)

    def to_json(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"kind": "characters", "alphabet": self.alphabet}

    @classmethod
    def from_json(cls, value: object) -> Characters:
        """Reads what `to_json` gave, from a file that nobody vouches for: anything else is refused."""
        held = fields(value, ("kind", "alphabet"), where="tokenizer")
        entry(held["kind"], ("characters",), where="tokenizer.kind")
        if not isinstance(held["alphabet"], str):
            raise ValueError(f"tokenizer.alphabet is to be a text: got {type(held['alphabet']).__name__}")
        return cls(held["alphabet"])


def _codes(text: str) -> np.ndarray:
    """The code points of a text."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


def claims() -> Iterator[Claim]:
    """The laws that the tokenizer of characters obeys."""
    letters = Characters("\naz\xe9\u20ac\U0001f600")

    def back(x: Tensor) -> Tensor:
        return torch.tensor(letters.encode(letters.decode(x.tolist()))).double()

    def read(x: Tensor) -> Tensor:
        return torch.tensor(letters.encode("".join(chr(code) for code in x.tolist()))).double()

    def looked_up(x: Tensor) -> Tensor:
        known = {"\n": 0, "a": 1, "z": 2, "\xe9": 3}
        return torch.tensor([known.get(chr(code), 6) for code in x.tolist()]).double()

    yield Claim(agreement(other=lambda x: x.double()), back, tokens("n", vocab=7), name="encode after decode")
    yield Claim(agreement(other=looked_up), read, tokens("n:9..30", vocab=300), name="encode, unknown ones too")
