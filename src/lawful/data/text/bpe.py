"""Byte-pair encoding: tokens are frequent runs of bytes, found in the user's own text."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from lawful.data.text.bytes import surrogates, without_surrogates
from lawful.data.text.pieces import decoded, dtype_of
from lawful.data.untrusted import entry, fields, whole

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library

MERGES, LONGEST, RUN = 1_000_000, 10_000, 256
"""The most merges, the most bytes of a token, and the most characters without a blank, or blanks, that are one word."""
_PLAIN = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
_LETTERS = {byte: chr(byte) for byte in _PLAIN} | {
    byte: chr(256 + i) for i, byte in enumerate(byte for byte in range(256) if byte not in _PLAIN)
}
"""The letter that the library writes for each byte."""
_BYTES = {letter: byte for byte, letter in _LETTERS.items()}


@dataclass(frozen=True)
class BPE:
    r"""Starts from bytes and joins pairs of tokens, in the order in which training found them most frequent.

    Words, numbers and runs of signs are encoded one by one, each with a blank before it; longer ones are cut every 256
    characters, so that the time stays linear in the text where it has no blanks. As every byte is a token,
    nothing is unknown but half a surrogate pair, which becomes U+FFFD. Training and encoding take the library
    `tokenizers`, of the extra `recipes`; decoding does not.

    Reference:
        Sennrich, Haddow and Birch, *Neural Machine Translation of Rare Words with Subword Units*, 2016.

    Args:
        merges: The pairs of tokens that are joined, in order. Tokens 0 to 255 are the bytes; each pair whose bytes are
            not those of an earlier token makes the next one.

    Examples:
        >>> pairs = BPE.trained(["low lower lowest"] * 9, vocab=259)
        >>> pairs.vocab, pairs.decode(pairs.encode("slow down")), len(pairs.encode("low"))
        (259, 'slow down', 1)
    """

    merges: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        if len(self.merges) > MERGES:
            raise ValueError(f"there are at most {MERGES} merges: got {len(self.merges)}")
        if len(set(self.merges)) != len(self.merges):
            raise ValueError("merges are to have no pair twice")
        _ = self.pieces

    @classmethod
    def trained(cls, texts: str | Iterable[str], *, vocab: int = 1024) -> BPE:
        """Finds the merges that a text or several ask for, until there are `vocab` tokens or no more to join."""
        texts = [texts] if isinstance(texts, str) else texts
        if not 256 <= vocab <= MERGES:
            raise ValueError(f"vocab is from 256, the bytes, to {MERGES}: got {vocab}")
        from tokenizers.trainers import BpeTrainer

        library = _library({}, [])
        trainer = BpeTrainer(
            vocab_size=vocab, initial_alphabet=list(_BYTES), show_progress=False, max_token_length=LONGEST
        )
        library.train_from_iterator(map(without_surrogates, texts), trainer)
        numbers = {bytes([i]): i for i in range(256)}
        merges = []
        for pair in json.loads(library.to_str())["model"]["merges"]:
            left, right = (bytes(_BYTES[letter] for letter in part) for part in pair)
            merges.append((numbers[left], numbers[right]))
            numbers.setdefault(left + right, len(numbers))
        return cls(tuple(merges))

    @property
    def vocab(self) -> int:
        """The number of tokens."""
        return len(self.pieces)

    @property
    def reserved(self) -> tuple[int, ...]:
        """Tokens that no text has: none."""
        return ()

    @cached_property
    def pieces(self) -> tuple[bytes, ...]:
        """The bytes of each token."""
        pieces = [bytes([i]) for i in range(256)]
        known = set(pieces)
        for i, pair in enumerate(self.merges):
            for token in pair:
                whole(token, 0, len(pieces) - 1, where=f"merges[{i}]")
            joined = pieces[pair[0]] + pieces[pair[1]]
            if len(joined) > LONGEST:
                raise ValueError(f"a token has at most {LONGEST} bytes: merges[{i}] makes one of {len(joined)}")
            if joined not in known:
                known.add(joined)
                pieces.append(joined)
        return tuple(pieces)

    @cached_property
    def _encoder(self) -> Library:
        names = ["".join(map(_LETTERS.__getitem__, piece)) for piece in self.pieces]
        return _library(
            {name: i for i, name in enumerate(names)}, [(names[left], names[right]) for left, right in self.merges]
        )

    def array(self, text: str) -> np.ndarray:
        """The tokens of a text, as the smallest whole numbers that hold them."""
        return np.array(self.encode(text), dtype=dtype_of(self.vocab))

    def encode(self, text: str) -> list[int]:
        """The tokens of a text."""
        return self._encoder.encode(without_surrogates(text)).ids

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens."""
        return decoded(self.pieces, tokens)

    def unknown(self, text: str) -> tuple[str, ...]:
        """What is no character, each once."""
        return surrogates(text)

    def to_json(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"kind": "bpe", "merges": [list(pair) for pair in self.merges]}

    @classmethod
    def from_json(cls, value: object) -> BPE:
        """Reads what `to_json` gave, from a file that nobody vouches for: anything else is refused."""
        held = fields(value, ("kind", "merges"), where="tokenizer")
        entry(held["kind"], ("bpe",), where="tokenizer.kind")
        merges = held["merges"]
        if not isinstance(merges, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in merges):
            raise ValueError("tokenizer.merges is to be a list of pairs")
        where, most = "tokenizer.merges", 256 + MERGES
        return cls(tuple((whole(a, 0, most, where=where), whole(b, 0, most, where=where)) for a, b in merges))


def _library(vocab: dict[str, int], merges: list[tuple[str, str]]) -> Library:
    """The encoder of the library."""
    try:
        from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    except ImportError:
        raise ImportError("BPE wants the library tokenizers: pip install 'lawful[recipes]'") from None
    library = Tokenizer(models.BPE(vocab=vocab, merges=merges) if vocab else models.BPE())
    cut = pre_tokenizers.Split(Regex(rf"\S{{{RUN}}}|\s{{{RUN}}}"), "isolated")
    library.pre_tokenizer = pre_tokenizers.Sequence([cut, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    return library
