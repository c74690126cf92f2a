"""Text generation from text prompts, with streaming."""

from __future__ import annotations

import codecs
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TypeVar

from lawful.data.text.tokenizers import Tokenizer, _bytes_of
from lawful.models.generation import DEFAULT_SAMPLING, CausalLM, SamplingConfig, stream

_T = TypeVar("_T")
_START = "\n"  # start of an empty prompt; it is not shown


def as_tuple(values: str | Iterable[_T]) -> tuple[str | _T, ...]:
    r"""Returns the values as a tuple; a string is one value.

    Examples:
        >>> as_tuple("END"), as_tuple(["END", "\n"])
        (('END',), ('END', '\n'))
    """
    return (values,) if isinstance(values, str) else tuple(values)


class StreamingDetokenizer:
    """Decodes tokens into text as they arrive, without text that later tokens may change.

    An incomplete character waits for its other bytes; a possible beginning of a stop string waits until it is decided.
    The text ends before the first stop string.

    Args:
        tokenizer: Tokenizer of the tokens.
        stop: Stop string, or several.

    Examples:
        >>> from lawful.data.text import ByteTokenizer
        >>> detokenizer = StreamingDetokenizer(ByteTokenizer(), stop=["END"])
        >>> [detokenizer.push(token) for token in "éaEND".encode()], detokenizer.ended
        (['', 'é', 'a', '', '', ''], True)
    """

    def __init__(self, tokenizer: Tokenizer, *, stop: str | Collection[str] = ()) -> None:
        stop = as_tuple(stop)
        if "" in stop:
            raise ValueError("a stop string must not be empty")
        self.tokenizer, self.stop, self.ended = tokenizer, tuple(stop), False
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pending = ""

    def push(self, token: int) -> str:
        """Adds a token, and returns the text that is now final."""
        return self._final_text(self._decoder.decode(_bytes_of(self.tokenizer.token_bytes, token)))

    def close(self) -> str:
        """Ends the text, and returns the rest."""
        text = self._final_text(self._decoder.decode(b"", final=True))
        if not self.ended:
            text, self._pending, self.ended = text + self._pending, "", True
        return text

    def _final_text(self, text: str) -> str:
        if self.ended:
            return ""
        text, self._pending = self._pending + text, ""
        found = [index for string in self.stop if (index := text.find(string)) >= 0]
        if found:
            self.ended = True
            return text[: min(found)]
        longest = max(map(len, self.stop), default=1) - 1
        for n in range(min(longest, len(text)), 0, -1):
            if any(string.startswith(text[-n:]) for string in self.stop):
                self._pending = text[-n:]
                return text[:-n]
        return text


def stream_text(
    model: CausalLM,
    tokenizer: Tokenizer,
    prompt: str,
    *,
    max_new_tokens: int = 256,
    sampling: SamplingConfig = DEFAULT_SAMPLING,
    stop: str | Collection[str | int] = (),
    seed: int = 0,
    context_length: int | None = None,
) -> Iterator[str]:
    """Generates text after a prompt, and yields it piece by piece.

    Reserved tokens, such as the unknown token, are not generated. Characters of the prompt that the tokenizer does not
    know become the unknown token; `tokenizer.unknown_characters(prompt)` lists them. An empty prompt means a newline.

    Args:
        model: Language model.
        tokenizer: Tokenizer that the model was trained with.
        prompt: Text to continue; it is not repeated.
        max_new_tokens: Maximum number of new tokens.
        sampling: Sampling rules.
        stop: What ends the text and is not shown: a string, or several strings and tokens.
        seed: Random seed.
        context_length: Number of tokens that the model sees. Defaults to the model's own.

    Examples:
        >>> from lawful.data.text import CharTokenizer
        >>> from lawful.models import decoder
        >>> tokenizer = CharTokenizer("ab")
        >>> model = decoder(vocab_size=tokenizer.vocab_size, dim=8)
        >>> len("".join(stream_text(model, tokenizer, "ab", max_new_tokens=5)))
        5
    """
    for (text,) in _generate_text(model, tokenizer, [prompt], max_new_tokens, sampling, stop, seed, context_length):
        if text:
            yield text


def generate_text(
    model: CausalLM,
    tokenizer: Tokenizer,
    prompts: str | Sequence[str],
    *,
    max_new_tokens: int = 256,
    sampling: SamplingConfig = DEFAULT_SAMPLING,
    stop: str | Collection[str | int] = (),
    seed: int = 0,
    context_length: int | None = None,
) -> list[str]:
    """Generates text after each of several prompts, in one batch. Takes the arguments of `stream_text`.

    A prompt gives the same text as alone at the same index of the batch.

    Examples:
        >>> from lawful.data.text import CharTokenizer
        >>> from lawful.models import decoder
        >>> tokenizer = CharTokenizer("ab")
        >>> model = decoder(vocab_size=tokenizer.vocab_size, dim=8)
        >>> list(map(len, generate_text(model, tokenizer, ["ab", "b"], max_new_tokens=5)))
        [5, 5]
    """
    steps = list(
        _generate_text(model, tokenizer, as_tuple(prompts), max_new_tokens, sampling, stop, seed, context_length)
    )
    return ["".join(pieces) for pieces in zip(*steps, strict=True)]


def _generate_text(
    model: CausalLM,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    max_new_tokens: int,
    sampling: SamplingConfig,
    stop: str | Collection[str | int],
    seed: int,
    context_length: int | None,
) -> Iterator[list[str]]:
    """The text that each step adds, one piece for each prompt."""
    stop = as_tuple(stop)
    strings, stop_tokens = [s for s in stop if isinstance(s, str)], [s for s in stop if isinstance(s, int)]
    rows = [StreamingDetokenizer(tokenizer, stop=strings) for _ in prompts]
    sampling = replace(sampling, suppress_tokens=(*sampling.suppress_tokens, *tokenizer.reserved_ids))
    ids = [_encode(tokenizer, prompt) for prompt in prompts]
    if not ids:
        raise ValueError("expected at least one prompt")
    steps = stream(
        model,
        ids,
        max_new_tokens=max_new_tokens,
        sampling=sampling,
        stop_tokens=stop_tokens,
        seed=seed,
        context_length=context_length,
    )
    with closing(steps):
        for tokens in steps:
            yield [
                row.close() if token in stop_tokens else row.push(token)
                for row, token in zip(rows, tokens, strict=True)
            ]
            if all(row.ended for row in rows):
                return
    yield [row.close() for row in rows]


def _encode(tokenizer: Tokenizer, prompt: str) -> list[int]:
    if not prompt and tokenizer.unknown_characters(_START):
        raise ValueError("an empty prompt is encoded as a newline, which the tokenizer does not know: pass a prompt")
    return tokenizer.encode(prompt or _START)
