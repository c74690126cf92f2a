"""The tokenizer of a recipe whose texts are many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from lawful.data.text import BPE, Bytes, Characters, Tokenizer

Kind = Literal["characters", "bytes", "bpe"]


def tokenizer_of(kind: Kind, texts: Sequence[str], *, vocab: int) -> Tokenizer:
    """Finds the tokenizer of a kind in what is trained on.

    Args:
        kind: What a token is.
        texts: What is trained on.
        vocab: bpe: the number of tokens.

    Examples:
        >>> tokenizer_of("characters", ["abba"], vocab=0).encode("ab")
        [0, 1]
    """
    match kind:
        case "characters":
            return Characters.of(texts)
        case "bytes":
            return Bytes()
        case "bpe":
            return BPE.trained(texts, vocab=vocab)


def for_bpe(kind: Kind, *, vocab: int, default: int) -> None:
    """Refuses a number of tokens where they are not found in the texts."""
    if vocab != default and kind != "bpe":
        raise ValueError(f"vocab is for the tokenizer bpe: the tokenizer is {kind}")
