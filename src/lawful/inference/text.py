"""Generating text: prompts go in as text, and text comes out piece by piece."""

from __future__ import annotations

import codecs
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TypeVar

from lawful.data.text.tokenizers import Tokenizer, piece
from lawful.models.generation import DEFAULT_SAMPLING, CausalLM, SamplingConfig, stream

T = TypeVar("T")
START = "\n"
"""What an empty prompt begins with: the end of a line, which is not shown."""


def one_or_several(given: str | Iterable[T]) -> tuple[str | T, ...]:
    r"""Takes a string as one, and not as its letters.

    Examples:
        >>> one_or_several("END"), one_or_several(["END", "\n"])
        (('END',), ('END', '\n'))
    """
    return (given,) if isinstance(given, str) else tuple(given)


class StreamingDetokenizer:
    """Makes text of tokens as they come, and never shows what later ones may take back.

    Half a character waits for the rest of its bytes, and what may be the beginning of a stop string waits until it is
    one or is not. A stop string, and what comes after it, is not shown.

    Args:
        tokenizer: What numbered the tokens.
        stop: The string that ends the text, or several.

    Examples:
        >>> from lawful.data.text import Bytes
        >>> pieces = StreamingDetokenizer(Bytes(), stop=["END"])
        >>> [pieces.push(token) for token in "éaEND".encode()], pieces.ended
        (['', 'é', 'a', '', '', ''], True)
    """

    def __init__(self, tokenizer: Tokenizer, *, stop: str | Collection[str] = ()) -> None:
        stop = one_or_several(stop)
        if "" in stop:
            raise ValueError("a stop string has at least one character: got an empty one")
        self.tokenizer, self.stop, self.ended = tokenizer, tuple(stop), False
        self._bytes = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def push(self, token: int) -> str:
        """Takes a token in, and returns the text that is now certain."""
        return self._certain(self._bytes.decode(piece(self.tokenizer.pieces, token)))

    def close(self) -> str:
        """Ends the text, and returns what was held back."""
        shown = self._certain(self._bytes.decode(b"", final=True))
        if not self.ended:
            shown, self._held, self.ended = shown + self._held, "", True
        return shown

    def _certain(self, text: str) -> str:
        if self.ended:
            return ""
        text, self._held = self._held + text, ""
        found = [place for string in self.stop if (place := text.find(string)) >= 0]
        if found:
            self.ended = True
            return text[: min(found)]
        longest = max(map(len, self.stop), default=1) - 1
        for n in range(min(longest, len(text)), 0, -1):
            if any(string.startswith(text[-n:]) for string in self.stop):
                self._held = text[-n:]
                return text[:-n]
        return text


def stream_text(
    model: CausalLM,
    tokenizer: Tokenizer,
    prompt: str,
    *,
    tokens: int = 256,
    sampling: SamplingConfig = DEFAULT_SAMPLING,
    stop: str | Collection[str | int] = (),
    seed: int = 0,
    context: int | None = None,
) -> Iterator[str]:
    """Writes on where a prompt ends, and gives the text piece by piece, as soon as it is certain.

    Tokens that no text has, such as that of unknown characters, are not written. Unknown characters of the prompt are
    read as that token: `tokenizer.unknown(prompt)` says which ones. An empty prompt stands for the end of a line.

    Args:
        model: The model.
        tokenizer: What numbered the text that it was trained on.
        prompt: The text to go on with; it is not repeated.
        tokens: How many tokens are written, at most.
        sampling: How each is drawn.
        stop: What ends the text, and is not shown: a string, or several strings and tokens.
        seed: What the draws depend on.
        context: How many tokens the model sees; by default its own limit.

    Examples:
        >>> from lawful.data.text import Characters
        >>> from lawful.models.transformer import Decoder, DecoderConfig
        >>> letters = Characters("ab")
        >>> len("".join(stream_text(Decoder(DecoderConfig(vocab=letters.vocab, d=8)), letters, "ab", tokens=5)))
        5
    """
    for (shown,) in _pieces(model, tokenizer, [prompt], tokens, sampling, stop, seed, context):
        if shown:
            yield shown


def generate_text(
    model: CausalLM,
    tokenizer: Tokenizer,
    prompts: str | Sequence[str],
    *,
    tokens: int = 256,
    sampling: SamplingConfig = DEFAULT_SAMPLING,
    stop: str | Collection[str | int] = (),
    seed: int = 0,
    context: int | None = None,
) -> list[str]:
    """Writes on where each of several prompts ends, all at once, and returns the texts.

    Args:
        model: The model.
        tokenizer: What numbered the text that it was trained on.
        prompts: The text to go on with, or several; each comes out as it does alone with the same place in the batch.
        tokens: How many tokens are written for each, at most.
        sampling: How each is drawn.
        stop: What ends a text, and is not shown: a string, or several strings and tokens.
        seed: What the draws depend on.
        context: How many tokens the model sees; by default its own limit.

    Examples:
        >>> from lawful.data.text import Characters
        >>> from lawful.models.transformer import Decoder, DecoderConfig
        >>> letters = Characters("ab")
        >>> list(map(len, generate_text(Decoder(DecoderConfig(vocab=letters.vocab, d=8)), letters, ["ab", "b"], tokens=5)))
        [5, 5]
    """
    steps = list(_pieces(model, tokenizer, one_or_several(prompts), tokens, sampling, stop, seed, context))
    return ["".join(shown) for shown in zip(*steps, strict=True)]


def _pieces(
    model: CausalLM,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    tokens: int,
    sampling: SamplingConfig,
    stop: str | Collection[str | int],
    seed: int,
    context: int | None,
) -> Iterator[list[str]]:
    """The text that each step makes certain, one for each prompt."""
    stop = one_or_several(stop)
    strings, ends = [s for s in stop if isinstance(s, str)], [s for s in stop if isinstance(s, int)]
    rows = [StreamingDetokenizer(tokenizer, stop=strings) for _ in prompts]
    sampling = replace(sampling, never=(*sampling.never, *tokenizer.reserved))
    read = [_encoded(tokenizer, prompt) for prompt in prompts]
    if not read:
        raise ValueError("at least one prompt was wanted: got none")
    with closing(stream(model, read, tokens=tokens, sampling=sampling, stop=ends, seed=seed, context=context)) as steps:
        for drawn in steps:
            yield [row.close() if token in ends else row.push(token) for row, token in zip(rows, drawn, strict=True)]
            if all(row.ended for row in rows):
                return
    yield [row.close() for row in rows]


def _encoded(tokenizer: Tokenizer, prompt: str) -> list[int]:
    if not prompt and tokenizer.unknown(START):
        raise ValueError("an empty prompt stands for the end of a line, which is not in the alphabet: give a prompt")
    return tokenizer.encode(prompt or START)
