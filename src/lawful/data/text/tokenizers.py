"""Tokens as bytes: what every tokenizer makes text of.

The tokenizer whose tokens are characters.
The tokenizer whose tokens are bytes.
Byte-pair encoding: tokens are frequent runs of bytes, found in the user's own text.
What a tokenizer is, and reading one back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from lawful._json import entry, fields, whole
from lawful.laws import Claim, agreement, tokens

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library


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


CODES = 0x110000
"""The number of code points of Unicode."""


@dataclass(frozen=True)
class CharTokenizer:
    r"""Numbers the characters of an alphabet; the last number stands for every other one.

    A character that is not in the alphabet becomes the token `other`, and that is U+FFFD when it is decoded. So texts
    of known characters come back as they were, and others with U+FFFD in place of what is not known.

    Args:
        alphabet: The characters in the order of their tokens, none twice.

    Examples:
        >>> letters = CharTokenizer.of(["hello"])
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
    def of(cls, texts: Iterable[str]) -> CharTokenizer:
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
    def from_json(cls, value: object) -> CharTokenizer:
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
    letters = CharTokenizer("\naz\xe9\u20ac\U0001f600")

    def back(x: Tensor) -> Tensor:
        return torch.tensor(letters.encode(letters.decode(x.tolist()))).double()

    def read(x: Tensor) -> Tensor:
        return torch.tensor(letters.encode("".join(chr(code) for code in x.tolist()))).double()

    def looked_up(x: Tensor) -> Tensor:
        known = {"\n": 0, "a": 1, "z": 2, "\xe9": 3}
        return torch.tensor([known.get(chr(code), 6) for code in x.tolist()]).double()

    yield Claim(agreement(other=lambda x: x.double()), back, tokens("n", vocab_size=7), name="encode after decode")
    yield Claim(agreement(other=looked_up), read, tokens("n:9..30", vocab_size=300), name="encode, unknown ones too")


_ONE_BY_ONE = tuple(bytes([i]) for i in range(256))


@dataclass(frozen=True)
class ByteTokenizer:
    """Takes the bytes of UTF-8 as tokens: 256 of them write every text.

    Nothing is unknown but half a surrogate pair, which is no text; it becomes U+FFFD. ByteTokenizer that are not UTF-8, such as
    a model may write, are decoded as U+FFFD.

    Examples:
        >>> ByteTokenizer().encode("é!"), ByteTokenizer().decode([195, 169, 33])
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
    def from_json(cls, value: object) -> ByteTokenizer:
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


MERGES, LONGEST, RUN = 1_000_000, 10_000, 256
"""The most merges, the most bytes of a token, and the most characters without a blank, or blanks, that are one word."""
_PLAIN = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
_LETTERS = {byte: chr(byte) for byte in _PLAIN} | {
    byte: chr(256 + i) for i, byte in enumerate(byte for byte in range(256) if byte not in _PLAIN)
}
"""The letter that the library writes for each byte."""
_BYTES = {letter: byte for byte, letter in _LETTERS.items()}


@dataclass(frozen=True)
class BPETokenizer:
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
        >>> pairs = BPETokenizer.trained(["low lower lowest"] * 9, vocab=259)
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
    def trained(cls, texts: str | Iterable[str], *, vocab: int = 1024) -> BPETokenizer:
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
    def from_json(cls, value: object) -> BPETokenizer:
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
    "characters": CharTokenizer.from_json,
    "bytes": ByteTokenizer.from_json,
    "bpe": BPETokenizer.from_json,
}


def tokenizer_from_json(value: object) -> Tokenizer:
    """Reads a tokenizer of any kind, from a file that nobody vouches for: what is none is refused.

    Args:
        value: What JSON gave.

    Examples:
        >>> tokenizer_from_json({"kind": "characters", "alphabet": "ab"})
        CharTokenizer(alphabet='ab')
    """
    kind = value.get("kind") if isinstance(value, dict) else None
    return KINDS[entry(kind, tuple(KINDS), where="tokenizer.kind")](value)
