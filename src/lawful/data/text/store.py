"""Tokens of a text in a file that is mapped into memory, so that a text may be larger than it."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor

from lawful.data.text.pieces import dtype_of
from lawful.data.text.reading import Text
from lawful.data.text.tokenizer import Tokenizer


@dataclass(frozen=True, eq=False)
class Tokens:
    """Holds the tokens of a text, mapped into memory: only what is looked at is read.

    Examples:
        >>> from lawful.data.text import Bytes
        >>> first, rest = tokenised(Text("0123456789"), Bytes()).split()
        >>> first.tolist(), rest.tolist()
        ([48, 49, 50, 51, 52, 53, 54, 55, 56], [57])
    """

    ids: Shaped[Tensor, "n"]
    """The tokens, as whole numbers of 8, 16 or 32 bits without sign."""
    fingerprint: str
    """What tells them apart from others: a checksum."""

    def __len__(self) -> int:
        return len(self.ids)

    def split(self, *, fraction: float = 0.9) -> tuple[Shaped[Tensor, "_"], Shaped[Tensor, "_"]]:
        """The first tokens, to train on, and the rest, to validate with."""
        if not 0 < fraction < 1:
            raise ValueError(f"a fraction is between 0 and 1: got {fraction}")
        cut = int(fraction * len(self))
        return self.ids[:cut], self.ids[cut:]


def tokenised(text: Text, tokenizer: Tokenizer, *, into: str | Path | None = None) -> Tokens:
    r"""Encodes a text chunk by chunk into a file, and maps that; the memory that it takes does not grow with the text.

    Chunks end at ends of lines, where no word and no blank is cut: so the tokens of byte pairs are those of the text as
    a whole, unless it has no single ends of lines for a long stretch.

    Args:
        text: The text.
        tokenizer: What numbers it.
        into: The file for the tokens; it is there once it is complete. By default one that the system forgets.

    Examples:
        >>> from lawful.data.text import Characters
        >>> tokenised(Text("abba"), Characters("ab")).ids
        tensor([0, 1, 1, 0], dtype=torch.uint8)
    """
    if into is None:
        with tempfile.TemporaryFile(prefix="lawful-") as file:
            return _mapped(file, *_written(text, tokenizer, file))
    path = Path(into)
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("w+b") as file:
            tokens = _mapped(file, *_written(text, tokenizer, file))
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return tokens


def _written(text: Text, tokenizer: Tokenizer, file: BinaryIO) -> tuple[np.dtype, int, str]:
    """Writes tokens; returns their type, their number and their checksum."""
    dtype, digest, count = dtype_of(tokenizer.vocab), hashlib.sha256(), 0
    for chunk in _by_lines(text.chunks()):
        tokens = tokenizer.array(chunk).astype(dtype, copy=False)
        digest.update(tokens.data)
        tokens.tofile(file)
        count += len(tokens)
    if not count:
        raise ValueError(f"{text.name} is empty: a text was wanted")
    file.flush()
    return dtype, count, digest.hexdigest()


def _mapped(file: BinaryIO, dtype: np.dtype, count: int, digest: str) -> Tokens:
    ids = np.memmap(file, dtype=dtype, mode="c", shape=(count,))
    return Tokens(torch.from_numpy(ids), f"{dtype} {digest}")


def _by_lines(chunks: Iterator[str]) -> Iterator[str]:
    """Cuts a text behind ends of lines with no blank on either side, where there are any."""
    held = ""
    for chunk in chunks:
        held += chunk
        if end := _end(held):
            yield held[:end]
            held = held[end:]
    if held:
        yield held


def _end(text: str) -> int:
    """Where a text may be cut; in the middle of a line if there is no better place."""
    end = text.rfind("\n", 0, len(text) - 1)
    while end > 0:
        if not text[end - 1].isspace() and not text[end + 1].isspace():
            return end + 1
        end = text.rfind("\n", 0, end)
    return len(text)
