"""Tokens as bytes: what every tokenizer makes text of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

REPLACEMENT = "\ufffd"
"""What stands in a text for what is not known: U+FFFD."""


def decoded(pieces: Sequence[bytes], tokens: Iterable[int]) -> str:
    r"""Puts the bytes of tokens together and reads them as UTF-8; what is none becomes U+FFFD.

    Args:
        pieces: The bytes of each token of the vocabulary.
        tokens: The numbers of the tokens.

    Examples:
        >>> decoded([b"a", "é".encode()[:1], "é".encode()[1:]], [0, 1, 2, 2])
        'aé\ufffd'
    """
    return b"".join(piece(pieces, token) for token in tokens).decode("utf-8", "replace")


def piece(pieces: Sequence[bytes], token: int) -> bytes:
    """The bytes of a token, which is to be one of the vocabulary."""
    if not 0 <= token < len(pieces):
        raise ValueError(f"tokens are from 0 to {len(pieces) - 1}: got {token}")
    return pieces[token]


def dtype_of(vocab: int) -> np.dtype:
    """The smallest whole numbers that hold the tokens of a vocabulary.

    Examples:
        >>> dtype_of(256), dtype_of(257)
        (dtype('uint8'), dtype('uint16'))
    """
    return np.min_scalar_type(max(vocab - 1, 0))


def distinct(letters: Iterable[str]) -> tuple[str, ...]:
    """Characters in the order in which they first come, each once."""
    return tuple(dict.fromkeys(letters))
