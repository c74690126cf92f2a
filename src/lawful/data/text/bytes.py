"""The tokenizer whose tokens are bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lawful.data.text.pieces import REPLACEMENT, decoded, distinct
from lawful.data.untrusted import entry, fields

_ONE_BY_ONE = tuple(bytes([i]) for i in range(256))


@dataclass(frozen=True)
class Bytes:
    """Takes the bytes of UTF-8 as tokens: 256 of them write every text.

    Nothing is unknown but half a surrogate pair, which is no text; it becomes U+FFFD. Bytes that are not UTF-8, such as
    a model may write, are decoded as U+FFFD.

    Examples:
        >>> Bytes().encode("é!"), Bytes().decode([195, 169, 33])
        ([195, 169, 33], 'é!')
    """

    @property
    def vocab(self) -> int:
        """The number of tokens."""
        return 256

    @property
    def reserved(self) -> tuple[int, ...]:
        """Tokens that no text has: none."""
        return ()

    @property
    def pieces(self) -> tuple[bytes, ...]:
        """The bytes of each token: one."""
        return _ONE_BY_ONE

    def array(self, text: str) -> np.ndarray:
        """The tokens of a text, as bytes."""
        return np.frombuffer(in_utf8(text), dtype=np.uint8)

    def encode(self, text: str) -> list[int]:
        """The tokens of a text."""
        return list(in_utf8(text))

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens."""
        return decoded(self.pieces, tokens)

    def unknown(self, text: str) -> tuple[str, ...]:
        """What is no character, each once."""
        return surrogates(text)

    def to_json(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"kind": "bytes"}

    @classmethod
    def from_json(cls, value: object) -> Bytes:
        """Reads what `to_json` gave, from a file that nobody vouches for: anything else is refused."""
        entry(fields(value, ("kind",), where="tokenizer")["kind"], ("bytes",), where="tokenizer.kind")
        return cls()


def without_surrogates(text: str) -> str:
    r"""A text with U+FFFD in place of halves of surrogate pairs.

    Examples:
        >>> without_surrogates("a\ud800") == "a\ufffd"
        True
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join(REPLACEMENT if "\ud800" <= letter <= "\udfff" else letter for letter in text)
    return text


def in_utf8(text: str) -> bytes:
    """The bytes of a text."""
    return without_surrogates(text).encode()


def surrogates(text: str) -> tuple[str, ...]:
    """The halves of surrogate pairs in a text, each once."""
    return distinct(letter for letter in text if "\ud800" <= letter <= "\udfff")
