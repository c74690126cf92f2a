"""Tokenizers: characters, bytes and byte-pair encoding."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from lawful._json import require_choice, require_fields, require_int
from lawful.laws import Claim, agreement, tokens

if TYPE_CHECKING:
    from tokenizers import Tokenizer as HFTokenizer


_REPLACEMENT = "\ufffd"
_CODE_POINTS = 0x110000
_MAX_MERGES, _MAX_TOKEN_BYTES, _MAX_WORD = 1_000_000, 10_000, 256


class Tokenizer(Protocol):
    """Converts between text and token ids."""

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        ...

    @property
    def reserved_ids(self) -> tuple[int, ...]:
        """Ids that never encode known text. Generation excludes them."""
        ...

    @property
    def token_bytes(self) -> Sequence[bytes]:
        """UTF-8 bytes of each token."""
        ...

    def encode(self, text: str) -> list[int]:
        """Returns the token ids of a text."""
        ...

    def encode_array(self, text: str) -> np.ndarray:
        """Returns the token ids as an array of the smallest unsigned dtype."""
        ...

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text of token ids. Invalid UTF-8 decodes to U+FFFD."""
        ...

    def unknown_characters(self, text: str) -> tuple[str, ...]:
        """Returns the distinct characters of a text that the tokenizer cannot encode."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON-compatible dictionary."""
        ...


@dataclass(frozen=True)
class CharTokenizer:
    r"""Character-level tokenizer.

    Token i is character i of the alphabet. The last id stands for every other character and decodes to U+FFFD.

    Args:
        alphabet: Distinct characters in the order of their ids.

    Examples:
        >>> tokenizer = CharTokenizer.train(["hello"])
        >>> tokenizer.alphabet, tokenizer.vocab_size, tokenizer.encode("hole!")
        ('ehlo', 5, [1, 3, 2, 0, 4])
        >>> tokenizer.decode([1, 3, 2, 0, 4]), tokenizer.unknown_characters("hole!")
        ('hole\ufffd', ('!',))
    """

    alphabet: str

    def __post_init__(self) -> None:
        if not self.alphabet or len(set(self.alphabet)) != len(self.alphabet):
            raise ValueError(f"alphabet must be non-empty without repeated characters, got {self.alphabet[:100]!r}")
        for letter in self.alphabet:
            if letter == _REPLACEMENT or "\ud800" <= letter <= "\udfff":
                raise ValueError(f"alphabet must not contain U+{ord(letter):04X}: it is not a character")

    @classmethod
    def train(cls, texts: Iterable[str]) -> CharTokenizer:
        """Builds a tokenizer whose alphabet has all characters of the texts, sorted by code point."""
        found = np.zeros(_CODE_POINTS, dtype=bool)
        for text in texts:
            found[_code_points(text)] = True
        found[ord(_REPLACEMENT)] = False
        found[0xD800:0xE000] = False
        return cls("".join(map(chr, np.flatnonzero(found).tolist())))

    @property
    def vocab_size(self) -> int:
        """Number of token ids: the alphabet and the unknown token."""
        return len(self.alphabet) + 1

    @property
    def unk_id(self) -> int:
        """Id of unknown characters."""
        return len(self.alphabet)

    @property
    def reserved_ids(self) -> tuple[int, ...]:
        """Ids that never encode known text. Generation excludes them."""
        return (self.unk_id,)

    @cached_property
    def token_bytes(self) -> tuple[bytes, ...]:
        """UTF-8 bytes of each token."""
        return tuple(letter.encode() for letter in self.alphabet + _REPLACEMENT)

    @cached_property
    def _table(self) -> np.ndarray:
        """Ids by code point. The last entry serves all larger code points."""
        codes = _code_points(self.alphabet)
        table = np.full(int(codes.max()) + 2, self.unk_id, dtype=_id_dtype(self.vocab_size))
        table[codes] = np.arange(len(codes))
        return table

    def encode_array(self, text: str) -> np.ndarray:
        """Returns the token ids as an array of the smallest unsigned dtype."""
        return self._table[np.minimum(_code_points(text), len(self._table) - 1)]

    def encode(self, text: str) -> list[int]:
        """Returns the token ids of a text."""
        return self.encode_array(text).tolist()

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text of token ids. The unknown token decodes to U+FFFD."""
        return _decode(self.token_bytes, ids)

    def unknown_characters(self, text: str) -> tuple[str, ...]:
        """Returns the distinct characters of a text that are not in the alphabet."""
        known = {*self.alphabet, _REPLACEMENT}
        return _distinct(letter for letter in text if letter not in known)

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON-compatible dictionary."""
        return {"kind": "characters", "alphabet": self.alphabet}

    @classmethod
    def from_json(cls, value: object) -> CharTokenizer:
        """Rebuilds the tokenizer from untrusted JSON. Raises ValueError if it is malformed."""
        loaded = require_fields(value, ("kind", "alphabet"), where="tokenizer")
        require_choice(loaded["kind"], ("characters",), where="tokenizer.kind")
        if not isinstance(loaded["alphabet"], str):
            raise ValueError(f"tokenizer.alphabet must be a string, got {type(loaded['alphabet']).__name__}")
        return cls(loaded["alphabet"])


_SINGLE_BYTES = tuple(bytes([i]) for i in range(256))


@dataclass(frozen=True)
class ByteTokenizer:
    """Byte-level tokenizer: the 256 byte values encode every UTF-8 text.

    Lone surrogates encode as U+FFFD. Invalid UTF-8 decodes to U+FFFD.

    Examples:
        >>> ByteTokenizer().encode("é!"), ByteTokenizer().decode([195, 169, 33])
        ([195, 169, 33], 'é!')
    """

    @property
    def vocab_size(self) -> int:
        """Number of token ids: 256."""
        return 256

    @property
    def reserved_ids(self) -> tuple[int, ...]:
        """No id is reserved."""
        return ()

    @property
    def token_bytes(self) -> tuple[bytes, ...]:
        """The byte of each token."""
        return _SINGLE_BYTES

    def encode_array(self, text: str) -> np.ndarray:
        """Returns the token ids as a uint8 array."""
        return np.frombuffer(_replace_surrogates(text).encode(), dtype=np.uint8)

    def encode(self, text: str) -> list[int]:
        """Returns the token ids of a text."""
        return list(_replace_surrogates(text).encode())

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text of token ids."""
        return _decode(self.token_bytes, ids)

    def unknown_characters(self, text: str) -> tuple[str, ...]:
        """Returns the distinct lone surrogates of a text."""
        return _surrogates(text)

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON-compatible dictionary."""
        return {"kind": "bytes"}

    @classmethod
    def from_json(cls, value: object) -> ByteTokenizer:
        """Rebuilds the tokenizer from untrusted JSON. Raises ValueError if it is malformed."""
        require_choice(require_fields(value, ("kind",), where="tokenizer")["kind"], ("bytes",), where="tokenizer.kind")
        return cls()


_PRINTABLE = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
_BYTE_TO_CHAR = {byte: chr(byte) for byte in _PRINTABLE} | {
    byte: chr(256 + i) for i, byte in enumerate(byte for byte in range(256) if byte not in _PRINTABLE)
}
"""The character that the `tokenizers` library writes for each byte."""
_CHAR_TO_BYTE = {letter: byte for byte, letter in _BYTE_TO_CHAR.items()}


@dataclass(frozen=True)
class BPETokenizer:
    r"""Byte-level byte-pair encoding.

    Encoding starts from bytes and applies the merges in order. Words, numbers and punctuation are encoded separately,
    each with the space before it. Runs of more than 256 characters without (or of only) whitespace are cut, so that the
    time stays linear. Training and encoding need the `tokenizers` library of the extra `recipes`; decoding does not.

    Reference:
        Sennrich, Haddow and Birch, *Neural Machine Translation of Rare Words with Subword Units*, 2016.

    Args:
        merges: Pairs of token ids to merge, in order. Ids 0 to 255 are the bytes. Each pair whose bytes are new adds
            the next id.

    Examples:
        >>> tokenizer = BPETokenizer.train(["low lower lowest"] * 9, vocab_size=259)
        >>> tokenizer.vocab_size, tokenizer.decode(tokenizer.encode("slow down")), len(tokenizer.encode("low"))
        (259, 'slow down', 1)
    """

    merges: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        if len(self.merges) > _MAX_MERGES:
            raise ValueError(f"expected at most {_MAX_MERGES} merges, got {len(self.merges)}")
        if len(set(self.merges)) != len(self.merges):
            raise ValueError("merges must not repeat a pair")
        _ = self.token_bytes

    @classmethod
    def train(cls, texts: str | Iterable[str], *, vocab_size: int = 1024) -> BPETokenizer:
        """Learns merges from texts until the vocabulary has `vocab_size` tokens or no pair repeats."""
        texts = [texts] if isinstance(texts, str) else texts
        if not 256 <= vocab_size <= _MAX_MERGES:
            raise ValueError(f"vocab_size must be between 256 and {_MAX_MERGES}, got {vocab_size}")
        from tokenizers.trainers import BpeTrainer

        library = _hf_tokenizer({}, [])
        trainer = BpeTrainer(
            vocab_size=vocab_size,
            initial_alphabet=list(_CHAR_TO_BYTE),
            show_progress=False,
            max_token_length=_MAX_TOKEN_BYTES,
        )
        library.train_from_iterator(map(_replace_surrogates, texts), trainer)
        ids = {bytes([i]): i for i in range(256)}
        merges = []
        for pair in json.loads(library.to_str())["model"]["merges"]:
            left, right = (bytes(_CHAR_TO_BYTE[letter] for letter in part) for part in pair)
            merges.append((ids[left], ids[right]))
            ids.setdefault(left + right, len(ids))
        return cls(tuple(merges))

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        return len(self.token_bytes)

    @property
    def reserved_ids(self) -> tuple[int, ...]:
        """No id is reserved."""
        return ()

    @cached_property
    def token_bytes(self) -> tuple[bytes, ...]:
        """Bytes of each token."""
        pieces = [bytes([i]) for i in range(256)]
        known = set(pieces)
        for i, pair in enumerate(self.merges):
            for token in pair:
                require_int(token, 0, len(pieces) - 1, where=f"merges[{i}]")
            piece = pieces[pair[0]] + pieces[pair[1]]
            if len(piece) > _MAX_TOKEN_BYTES:
                raise ValueError(f"merges[{i}] makes a token of {len(piece)} bytes, at most {_MAX_TOKEN_BYTES} allowed")
            if piece not in known:
                known.add(piece)
                pieces.append(piece)
        return tuple(pieces)

    @cached_property
    def _encoder(self) -> HFTokenizer:
        names = ["".join(map(_BYTE_TO_CHAR.__getitem__, piece)) for piece in self.token_bytes]
        return _hf_tokenizer(
            {name: i for i, name in enumerate(names)}, [(names[left], names[right]) for left, right in self.merges]
        )

    def encode_array(self, text: str) -> np.ndarray:
        """Returns the token ids as an array of the smallest unsigned dtype."""
        return np.array(self.encode(text), dtype=_id_dtype(self.vocab_size))

    def encode(self, text: str) -> list[int]:
        """Returns the token ids of a text."""
        return self._encoder.encode(_replace_surrogates(text)).ids

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text of token ids."""
        return _decode(self.token_bytes, ids)

    def unknown_characters(self, text: str) -> tuple[str, ...]:
        """Returns the distinct lone surrogates of a text."""
        return _surrogates(text)

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON-compatible dictionary."""
        return {"kind": "bpe", "merges": [list(pair) for pair in self.merges]}

    @classmethod
    def from_json(cls, value: object) -> BPETokenizer:
        """Rebuilds the tokenizer from untrusted JSON. Raises ValueError if it is malformed."""
        loaded = require_fields(value, ("kind", "merges"), where="tokenizer")
        require_choice(loaded["kind"], ("bpe",), where="tokenizer.kind")
        merges = loaded["merges"]
        if not isinstance(merges, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in merges):
            raise ValueError("tokenizer.merges must be a list of pairs")
        where, most = "tokenizer.merges", 256 + _MAX_MERGES
        return cls(
            tuple((require_int(a, 0, most, where=where), require_int(b, 0, most, where=where)) for a, b in merges)
        )


def tokenizer_from_json(value: object) -> Tokenizer:
    """Rebuilds a tokenizer of any kind from untrusted JSON. Raises ValueError if it is malformed.

    Args:
        value: What `to_json` returned.

    Examples:
        >>> tokenizer_from_json({"kind": "characters", "alphabet": "ab"})
        CharTokenizer(alphabet='ab')
    """
    readers: dict[str, Callable[[object], Tokenizer]] = {
        "characters": CharTokenizer.from_json,
        "bytes": ByteTokenizer.from_json,
        "bpe": BPETokenizer.from_json,
    }
    kind = value.get("kind") if isinstance(value, dict) else None
    return readers[require_choice(kind, tuple(readers), where="tokenizer.kind")](value)


def _hf_tokenizer(vocab: dict[str, int], merges: list[tuple[str, str]]) -> HFTokenizer:
    """Returns a BPE tokenizer of the `tokenizers` library."""
    try:
        from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    except ImportError:
        raise ImportError("BPETokenizer needs the tokenizers library: pip install 'lawful[recipes]'") from None
    library = Tokenizer(models.BPE(vocab=vocab, merges=merges) if vocab else models.BPE())
    cut = pre_tokenizers.Split(Regex(rf"\S{{{_MAX_WORD}}}|\s{{{_MAX_WORD}}}"), "isolated")
    library.pre_tokenizer = pre_tokenizers.Sequence([cut, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    return library


def _decode(token_bytes: Sequence[bytes], ids: Iterable[int]) -> str:
    return b"".join(_bytes_of(token_bytes, token) for token in ids).decode("utf-8", "replace")


def _bytes_of(token_bytes: Sequence[bytes], token: int) -> bytes:
    """Returns the bytes of a token id."""
    if not 0 <= token < len(token_bytes):
        raise ValueError(f"token ids must be between 0 and {len(token_bytes) - 1}, got {token}")
    return token_bytes[token]


def _id_dtype(vocab_size: int) -> np.dtype:
    """Returns the smallest unsigned dtype that holds all token ids."""
    return np.min_scalar_type(max(vocab_size - 1, 0))


def _distinct(letters: Iterable[str]) -> tuple[str, ...]:
    """Returns distinct characters in order of first appearance."""
    return tuple(dict.fromkeys(letters))


def _code_points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


def _replace_surrogates(text: str) -> str:
    """Replaces lone surrogates with U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join(_REPLACEMENT if "\ud800" <= letter <= "\udfff" else letter for letter in text)
    return text


def _surrogates(text: str) -> tuple[str, ...]:
    """Returns the distinct lone surrogates of a text."""
    return _distinct(letter for letter in text if "\ud800" <= letter <= "\udfff")


def claims() -> Iterator[Claim]:
    """Encoding undoes decoding."""
    tokenizer = CharTokenizer("\naz\xe9\u20ac\U0001f600")

    def round_trip(x: Tensor) -> Tensor:
        return torch.tensor(tokenizer.encode(tokenizer.decode(x.tolist()))).double()

    identity = agreement(other=lambda x: x.double())
    yield Claim(identity, round_trip, tokens("n", vocab_size=7), name="CharTokenizer, encode after decode")
