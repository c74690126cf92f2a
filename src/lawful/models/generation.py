"""Text generation: sampling rules, the cache of a decoder, and `model.generate`."""

from __future__ import annotations

import math
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, overload, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks.kv_cache import AttentionCache
from lawful.blocks.modes import eval_mode
from lawful.data.batches import make_generator
from lawful.functions.attention import NO_MASK, Mask
from lawful.laws import Claim, permutation_equivariance, shape, shift_invariance, sums_to_one

if TYPE_CHECKING:
    from lawful.data.text.tokenizers import Tokenizer
    from lawful.models.transformer import EncoderDecoder

_BLOCK = 256  # random numbers drawn at once for each row


@dataclass(frozen=True, kw_only=True)
class SamplingConfig:
    r"""Rules for sampling the next token from logits $x$.

    $$p = \mathrm{softmax}(x / T)$$

    The rules apply in the order of the fields. Excluded tokens have probability 0; the rest is renormalized. The
    most probable token is never excluded by `top_k`, `top_p` or `min_p`.

    Reference:
        Holtzman et al., *The Curious Case of Neural Text Degeneration*, 2020 (top-p); Nguyen et al., *Turning Up the
        Heat: Min-p Sampling*, 2024; Keskar et al., *CTRL*, 2019 (repetition penalty).

    Examples:
        >>> SamplingConfig(top_k=2).probabilities(torch.tensor([0.0, 0.0, -1.0]))
        tensor([0.5000, 0.5000, 0.0000])
    """

    suppress_tokens: tuple[int, ...] = ()
    """Tokens that are never sampled."""
    repetition_penalty: float = 1.0
    """Divisor of positive logits, and factor of negative logits, of tokens that the row already has."""
    temperature: float = 1.0
    """Softmax temperature; 0 is greedy."""
    top_k: int | None = None
    """Number of most probable tokens to sample from (more if there are ties). None keeps all."""
    top_p: float = 1.0
    """Nucleus sampling: keep the most probable tokens until their total probability reaches this."""
    min_p: float = 0.0
    """Minimum probability of a token, relative to the most probable one."""

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise ValueError(f"temperature must be at least 0, got {self.temperature}")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k must be at least 1, got {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], got {self.top_p}")
        if not 0 <= self.min_p <= 1:
            raise ValueError(f"min_p must be in [0, 1], got {self.min_p}")
        if not 0 < self.repetition_penalty < math.inf:
            raise ValueError(f"repetition_penalty must be positive, got {self.repetition_penalty}")

    def process_logits(
        self, x: Float[Tensor, "*batch vocab"], *, seen: Bool[Tensor, "*batch vocab"] | None = None
    ) -> Float[Tensor, "*batch vocab"]:
        """Applies the repetition penalty and suppresses tokens; `seen` is True at tokens that a row already has."""
        if self.repetition_penalty != 1 and seen is not None:
            x = torch.where(seen, torch.where(x > 0, x / self.repetition_penalty, x * self.repetition_penalty), x)
        if self.suppress_tokens:
            x = x.index_fill(-1, torch.tensor(self.suppress_tokens, device=x.device), -math.inf)
        return x

    def probabilities(
        self, x: Float[Tensor, "*batch vocab"], *, seen: Bool[Tensor, "*batch vocab"] | None = None
    ) -> Float[Tensor, "*batch vocab"]:
        """Returns the probabilities of the next token; one-hot at temperature 0."""
        x = self.process_logits(x, seen=seen)
        if self.temperature == 0:
            return torch.zeros_like(x).scatter(-1, x.argmax(-1, keepdim=True), 1.0)
        if self.temperature != 1:
            x = (x - x.amax(-1, keepdim=True)) / self.temperature
        if self.top_k is not None and self.top_k < x.shape[-1]:
            x = x.masked_fill(x < x.topk(self.top_k).values[..., -1:], -math.inf)
        if self.top_p < 1:
            p, order = x.softmax(-1).sort(dim=-1, descending=True, stable=True)
            excluded = torch.empty_like(order, dtype=torch.bool).scatter(-1, order, p.cumsum(-1) - p >= self.top_p)
            x = x.masked_fill(excluded, -math.inf)
        if self.min_p > 0:
            x = x.masked_fill(x < x.amax(-1, keepdim=True) + math.log(self.min_p), -math.inf)
        return x.softmax(-1)


DEFAULT_SAMPLING = SamplingConfig()
"""Samples from the model's own probabilities."""
GREEDY = SamplingConfig(temperature=0.0)
"""Takes the most probable token."""


class TokenSampler:
    """Samples the next token of each row, independently of the other rows in the batch.

    Each row has its own random generator, seeded with the seed and the index of the row. A token takes one uniform
    number $u$: it is the first whose cumulative probability exceeds $u$.

    Args:
        sampling: Sampling rules.
        rows: Tokens that each row already has.
        vocab_size: Number of tokens.
        seed: Random seed.
        first_index: Index of the first row.
    """

    def __init__(
        self, sampling: SamplingConfig, rows: Sequence[Tensor], *, vocab_size: int, seed: int = 0, first_index: int = 0
    ) -> None:
        if invalid := [token for token in sampling.suppress_tokens if not 0 <= token < vocab_size]:
            raise ValueError(f"suppress_tokens must be in [0, {vocab_size}), got {invalid[0]}")
        if len(set(sampling.suppress_tokens)) >= vocab_size:
            raise ValueError(f"suppress_tokens excludes all {vocab_size} tokens")
        self.sampling, self.seen = sampling, None
        if sampling.repetition_penalty != 1:
            self.seen = torch.zeros(len(rows), vocab_size, dtype=torch.bool, device=rows[0].device)
            for row, tokens in zip(self.seen, rows, strict=True):
                row[tokens] = True
        self._generators = [make_generator(seed, first_index + i) for i in range(len(rows))]
        self._numbers: Iterator[Tensor] = iter(())

    def __call__(self, logits: Float[Tensor, "b vocab"]) -> Int[Tensor, "b"]:
        """Samples a token for each row."""
        if self.sampling.temperature == 0:
            tokens = self.sampling.process_logits(logits, seen=self.seen).argmax(-1)
        else:
            p = self.sampling.probabilities(logits.double(), seen=self.seen).cumsum(-1)
            tokens = torch.searchsorted(p, self._uniform(logits.device) * p[:, -1:], right=True)[:, 0]
        if self.seen is not None:
            self.seen.scatter_(1, tokens[:, None], True)
        return tokens

    def _uniform(self, device: torch.device) -> Float[Tensor, "b 1"]:
        """One number in [0, 1) for each row, slightly below 1 so that its product with a sum stays below the sum."""
        number = next(self._numbers, None)
        if number is None:
            block = torch.stack([torch.rand(_BLOCK, generator=g, dtype=torch.float64) for g in self._generators])
            self._numbers = iter((block * (1 - 2**-50)).to(device).split(1, dim=1))
            number = next(self._numbers)
        return number


@runtime_checkable
class CausalLM(Protocol):
    """A language model that decodes with a cache. Its cache has a method `select(rows)`, as `DecoderCache` has."""

    def __call__(self, tokens: Int[Tensor, "b t"], *, cache: Any = None) -> Float[Tensor, "b t vocab"]:
        """Returns the logits of the next token after each of `tokens`, which follow those in the cache."""
        ...

    def cache(self, padding: Bool[Tensor, "b t"] | None = None) -> Any:
        """Returns an empty cache; `padding` is True at valid tokens of the left-padded prompt."""
        ...


Prompts = Shaped[Tensor, "t"] | Shaped[Tensor, "b t"] | Sequence[int] | Sequence[Sequence[int]] | Sequence[Tensor]
"""The tokens of one prompt, or of several of any lengths."""


class PromptReader:
    r"""Feeds prompts of different lengths to a model, then one token at a time, and slides at the end of the context.

    Short prompts are padded on the left. When a row exceeds the context length $c$, all but its last
    $\lceil c / 2 \rceil$ tokens are dropped and these are read again. A row does not depend on the others in the batch.

    Args:
        model: Language model.
        prompts: Tokens of each prompt, at least one.
        context_length: $c$. Defaults to the model's `context_length`, if it has one.
    """

    def __init__(self, model: CausalLM, prompts: Prompts, *, context_length: int | None = None) -> None:
        self.context_length = getattr(model, "context_length", None) if context_length is None else context_length
        if self.context_length is not None and self.context_length < 1:
            raise ValueError(f"context_length must be at least 1, got {self.context_length}")
        if not hasattr(model, "cache"):
            expected = "a model with a method cache(), such as a Decoder or GPT2.from_pretrained(folder)"
            raise TypeError(f"expected {expected}, got {type(model).__name__}")
        self.model, self.device = model, _device(model)
        self.rows = self.prompts = _token_rows(prompts, self.device)
        self._new: list[Tensor] = []
        self.logits = self._read()

    def feed(self, tokens: Int[Tensor, "b"]) -> Float[Tensor, "b vocab"]:
        """Appends a token to each row, and returns the logits of the next."""
        self._new.append(tokens)
        if len(self._new) > self._room:
            self.logits = self._read()
        else:
            self.logits = self.model(tokens.unsqueeze(1), cache=self.cache).select(1, -1)
        return self.logits

    def select(self, rows: Int[Tensor, "k"]) -> None:
        """Continues with the given rows."""
        self.cache, self.logits = self.cache.select(rows), self.logits[rows]
        self.rows, self.prompts = ([part[row] for row in rows.tolist()] for part in (self.rows, self.prompts))
        self._new = [tokens[rows] for tokens in self._new]

    def _read(self) -> Tensor:
        """Reads all rows into an empty cache."""
        if self._new:
            new = torch.stack(self._new, dim=1)
            self.rows, self._new = [torch.cat(pair) for pair in zip(self.rows, new, strict=True)], []
        if self.context_length is not None:
            kept = -(-self.context_length // 2)
            self.rows = [row[-kept:] if len(row) > self.context_length else row for row in self.rows]
        lengths = [len(row) for row in self.rows]
        width = max(lengths)
        self._room = math.inf if self.context_length is None else self.context_length - width
        if min(lengths) == width:
            tokens, padding = torch.stack(self.rows), None
        else:
            tokens = torch.stack([nn.functional.pad(row, (width - len(row), 0)) for row in self.rows])
            starts = torch.tensor([width - n for n in lengths], device=self.device)
            padding = torch.arange(width, device=self.device) >= starts[:, None]
        self.cache = self.model.cache(padding)
        if isinstance(self.model, GenerationMixin):
            logits = self.model(tokens, cache=self.cache, logits_to_keep=1)[:, -1]  # pyrefly: ignore
        else:
            logits = self.model(tokens, cache=self.cache)[:, -1]
        if not logits.isfinite().all():
            raise ValueError("the model's logits are not all finite: training may have diverged")
        return logits


def _token_rows(prompts: Prompts, device: torch.device) -> list[Int[Tensor, "_"]]:
    """The prompts as a list of rows of tokens."""
    listed = list(prompts)
    if any(isinstance(row, str) for row in listed):
        raise TypeError("expected token ids, such as tokenizer.encode(text), got text")
    several: list[Any] = [prompts] if not listed or np.ndim(listed[0]) == 0 else listed
    rows = [torch.as_tensor(row, device=device) if len(row) else torch.empty(0, device=device) for row in several]
    for i, row in enumerate(rows):
        if row.dim() != 1 or not len(row):
            raise ValueError(f"a prompt needs at least one token: prompt {i} has shape {tuple(row.shape)}")
        if row.is_floating_point() or row.dtype == torch.bool:
            raise TypeError(f"token ids must be integers: prompt {i} has {row.dtype}")
    return [row.long() for row in rows]


def _device(model: object) -> torch.device:
    if isinstance(model, nn.Module):
        return next((t.device for t in (*model.parameters(), *model.buffers())), torch.device("cpu"))
    return torch.device("cpu")


def _evaluating(model: object) -> AbstractContextManager[None]:
    is_training = isinstance(model, nn.Module) and any(module.training for module in model.modules())
    return eval_mode(model) if is_training else nullcontext()


def generate(
    model: CausalLM,
    prompts: Prompts,
    *,
    max_new_tokens: int,
    sampling: SamplingConfig = DEFAULT_SAMPLING,
    stop_tokens: Collection[int] = (),
    num_return_sequences: int = 1,
    seed: int = 0,
    first_index: int = 0,
    context_length: int | None = None,
) -> Int[Tensor, "b n"]:
    """Generates tokens after prompts, in eval mode and with a cache.

    Prompts may have different lengths. The tokens of prompt `i` do not depend on the other
    prompts; to generate them alone, pass `first_index=i`.

    Args:
        model: Language model.
        prompts: Tokens of one prompt, or of several.
        max_new_tokens: Maximum number of new tokens.
        sampling: Sampling rules.
        stop_tokens: Tokens that end a row. A row that has ended repeats its stop token until all have ended.
        num_return_sequences: Number of rows for each prompt, which is read once. They are consecutive, and equal to
            those of the prompt repeated.
        seed: Random seed.
        first_index: Index of the first row, if these are a part of a larger batch.
        context_length: Number of tokens that the model sees; beyond it, the older half is dropped. Defaults to the
            model's own.

    Returns:
        The new tokens, without the prompts.

    Examples:
        >>> from lawful.models import decoder
        >>> generate(decoder(vocab_size=5, dim=8), [[1, 2], [4]], max_new_tokens=3).shape
        torch.Size([2, 3])
    """
    with torch.inference_mode(), _evaluating(model):
        steps = list(
            _generate(
                model,
                prompts,
                max_new_tokens,
                sampling,
                stop_tokens,
                seed,
                first_index,
                context_length,
                num_return_sequences,
            )
        )
    return torch.stack(steps, dim=1)  # not an inference tensor: it can be trained on


@torch.inference_mode()
def stream(
    model: CausalLM,
    prompts: Prompts,
    *,
    max_new_tokens: int,
    sampling: SamplingConfig = DEFAULT_SAMPLING,
    stop_tokens: Collection[int] = (),
    seed: int = 0,
    first_index: int = 0,
    context_length: int | None = None,
) -> Generator[list[int], None, None]:
    """Yields the tokens of `generate` one step at a time; the arguments are the same.

    The model is in eval mode until the stream ends or is closed.

    Yields:
        One token for each prompt.

    Examples:
        >>> from lawful.models import decoder
        >>> len(list(stream(decoder(vocab_size=5, dim=8), [[1, 2], [4]], max_new_tokens=3)))
        3
    """
    with _evaluating(model):
        for tokens in _generate(
            model, prompts, max_new_tokens, sampling, stop_tokens, seed, first_index, context_length
        ):
            yield tokens.tolist()


def _generate(
    model: CausalLM,
    prompts: Prompts,
    max_new_tokens: int,
    sampling: SamplingConfig,
    stop_tokens: Collection[int],
    seed: int,
    first_index: int,
    context_length: int | None,
    num_return_sequences: int = 1,
) -> Iterator[Tensor]:
    for name, value in (("max_new_tokens", max_new_tokens), ("num_return_sequences", num_return_sequences)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    reader = PromptReader(model, prompts, context_length=context_length)
    if num_return_sequences > 1:
        reader.select(torch.arange(len(reader.rows), device=reader.device).repeat_interleave(num_return_sequences))
    logits = reader.logits
    sample = TokenSampler(sampling, reader.prompts, vocab_size=logits.shape[-1], seed=seed, first_index=first_index)
    ended: dict[int, int] = {}
    for remaining in range(max_new_tokens, 0, -1):
        tokens = sample(logits)
        if stop_tokens:
            for row, token in ended.items():
                tokens[row] = token
            ended |= {row: token for row, token in enumerate(tokens.tolist()) if token in stop_tokens}
        yield tokens
        if remaining == 1 or len(ended) == len(tokens):
            return
        logits = reader.feed(tokens)


class GenerationMixin:
    """Adds `generate` to a language model that has a cache and takes `logits_to_keep`."""

    tokenizer: Tokenizer | None = None
    """Tokenizer of text prompts. `lawful.load` sets it to the tokenizer of the run."""

    @overload
    def generate(
        self,
        prompt: str,
        *,
        max_new_tokens: int = ...,
        temperature: float = ...,
        top_k: int | None = ...,
        top_p: float = ...,
        min_p: float = ...,
        repetition_penalty: float = ...,
        stop_tokens: Collection[int] = ...,
        seed: int = ...,
    ) -> str: ...

    @overload
    def generate(
        self,
        prompt: list[str],
        *,
        max_new_tokens: int = ...,
        temperature: float = ...,
        top_k: int | None = ...,
        top_p: float = ...,
        min_p: float = ...,
        repetition_penalty: float = ...,
        stop_tokens: Collection[int] = ...,
        seed: int = ...,
    ) -> list[str]: ...

    @overload
    def generate(
        self,
        prompt: Prompts,
        *,
        max_new_tokens: int = ...,
        temperature: float = ...,
        top_k: int | None = ...,
        top_p: float = ...,
        min_p: float = ...,
        repetition_penalty: float = ...,
        stop_tokens: Collection[int] = ...,
        seed: int = ...,
    ) -> Int[Tensor, "b n"]: ...

    def generate(
        self,
        prompt: Prompts | str | list[str],
        *,
        max_new_tokens: int = 20,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        stop_tokens: Collection[int] = (),
        seed: int = 0,
    ) -> Int[Tensor, "b n"] | str | list[str]:
        """Generates tokens after one or several prompts, or text after one or several texts.

        Args:
            prompt: Tokens of one prompt, or of several; or a text or a list of texts, if the model has a `tokenizer`.
            max_new_tokens: Maximum number of new tokens.
            temperature: Softmax temperature; 0 is greedy.
            top_k: Number of most probable tokens to sample from. None keeps all.
            top_p: Total probability of the most probable tokens to sample from.
            min_p: Minimum probability of a token, relative to the most probable one.
            repetition_penalty: Divisor of the positive logits of tokens that the row already has.
            stop_tokens: Tokens that end a row.
            seed: Random seed.

        Returns:
            The new tokens, or the new text, without the prompt.
        """
        texts = [prompt] if isinstance(prompt, str) else prompt
        is_text = isinstance(texts, list) and bool(texts) and all(isinstance(text, str) for text in texts)
        tokenizer = self.tokenizer if is_text else None
        sampling = SamplingConfig(
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
            suppress_tokens=() if tokenizer is None else tokenizer.reserved_ids,
        )
        ids: Any = prompt if tokenizer is None else [tokenizer.encode(str(text)) for text in texts]
        model: Any = self
        tokens = generate(
            model, ids, max_new_tokens=max_new_tokens, sampling=sampling, stop_tokens=stop_tokens, seed=seed
        )
        if tokenizer is None:
            return tokens
        decoded = [tokenizer.decode(row) for row in tokens.tolist()]
        return decoded[0] if isinstance(prompt, str) else decoded


class DecoderCache:
    """The caches of all attention layers of a decoder, so that a new token costs one step.

    Rows of different lengths are padded on the left: `padding` is True at the valid ones of the first tokens. All later
    tokens are valid.

    Args:
        layers: Empty cache of each self-attention layer, in order.
        memory: Empty cache of each cross-attention layer, in order.
        padding: True at valid tokens. Defaults to no padding.
        memory_padding: True at valid tokens of the memory. Defaults to no padding.

    Examples:
        >>> from lawful.blocks import KVCache
        >>> cache = DecoderCache([KVCache(), KVCache()])
        >>> cache.length, len(cache.layers)
        (0, 2)
    """

    def __init__(
        self,
        layers: Sequence[AttentionCache],
        *,
        memory: Sequence[AttentionCache] = (),
        padding: Bool[Tensor, "b t"] | None = None,
        memory_padding: Bool[Tensor, "b s"] | None = None,
    ) -> None:
        self.layers, self.memory = list(layers), list(memory)
        self.padding, self.memory_padding = padding, memory_padding
        self.length = 0
        self.steps: Any = None  # functions of the sublayers, set at the first decode step
        self._tokens: list[Tensor] = []

    def advance(self, tokens: Int[Tensor, "*batch t"]) -> None:
        """Counts tokens that the layers have appended."""
        self.length += tokens.shape[-1]
        self._tokens.append(tokens)

    def valid(self, t: int) -> Bool[Tensor, "b s"] | None:
        """Returns which of the cached tokens and the next `t` are valid; None if all are."""
        if self.padding is None:
            return None
        if (missing := self.length + t - self.padding.shape[1]) > 0:
            self.padding = F.pad(self.padding, (0, max(missing, self.length)), value=True)
        return self.padding[:, : self.length + t]

    def last_tokens(self, n: int) -> Int[Tensor, "*batch m"] | None:
        """Returns the last `n` tokens of each row, or fewer; None if the cache is empty."""
        return torch.cat(self._tokens[-n:], dim=-1)[..., -n:] if self._tokens and n else None

    def select(self, rows: Int[Tensor, " n"]) -> DecoderCache:
        """Returns the cache of the given rows of the batch, for beam search."""
        selected = DecoderCache(
            [cache.select(rows) for cache in self.layers],
            memory=[cache.select(rows) for cache in self.memory],
            padding=None if self.padding is None else self.padding[rows],
            memory_padding=None if self.memory_padding is None else self.memory_padding[rows],
        )
        selected.length, selected.steps = self.length, self.steps
        selected._tokens = [torch.cat(self._tokens, dim=-1)[rows]] if self._tokens else []
        return selected

    def trim(self, length: int) -> None:
        """Drops all tokens but the first `length`; the memory stays."""
        for layer in self.layers:
            layer.trim(length)
        self._tokens = [torch.cat(self._tokens, dim=-1)[..., :length]] if self._tokens and length else []
        self.length = length

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return sum(cache.nbytes for cache in (*self.layers, *self.memory))


class ConditionalDecoder(nn.Module, GenerationMixin):
    r"""An encoder-decoder with fixed sources, which decodes as a `Decoder` does: `generate`, `beam_search`.

    $$p(y_{t+1} \mid y_{\le t}) = p(y_{t+1} \mid y_{\le t}, x)$$

    One source may have several targets. With a cache the sources are encoded once.

    Args:
        model: The encoder-decoder.
        source: Source tokens.
        padding: True at valid source tokens, for sources of different lengths.

    Examples:
        >>> from lawful.models import encoder_decoder
        >>> model = encoder_decoder(vocab_size=10, dim=16)
        >>> given = ConditionalDecoder(model, torch.tensor([[1, 2, 3], [4, 5, 6]]))
        >>> given(torch.tensor([[0], [0]])).shape
        torch.Size([2, 1, 10])
    """

    source: Tensor
    padding: Tensor | None

    def __init__(
        self, model: EncoderDecoder, source: Int[Tensor, "b s"], *, padding: Bool[Tensor, "b s"] | None = None
    ) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("source", source, persistent=False)
        self.register_buffer("padding", padding, persistent=False)

    def forward(
        self,
        target: Int[Tensor, "n t"],
        *,
        cache: DecoderCache | None = None,
        logits_to_keep: int | None = None,
    ) -> Float[Tensor, "n _ vocab"]:
        """Returns the logits of the next target token at each position.

        Args:
            target: Target tokens; with a cache, those after the cached ones.
            cache: Cache of earlier target tokens and of the sources.
            logits_to_keep: Number of last positions to compute logits for. Defaults to all.
        """
        cache = self.cache() if cache is None else cache
        memory = None
        if not cache.length:
            mask = NO_MASK if self.padding is None else Mask(padding=self.padding)
            memory = self.model.encode(self.source, source_mask=mask)
            if len(memory) != len(target):
                if len(memory) > 1:
                    raise ValueError(f"expected one target per source ({len(memory)}), got {len(target)}")
                memory = memory.expand(len(target), -1, -1)
                if cache.memory_padding is not None:
                    cache.memory_padding = cache.memory_padding.expand(len(target), -1)
        mask = NO_MASK if cache.memory_padding is None else Mask(padding=cache.memory_padding)
        return self.model.decoder(target, cache=cache, memory=memory, memory_mask=mask, logits_to_keep=logits_to_keep)

    def cache(self, padding: Bool[Tensor, "n t"] | None = None) -> DecoderCache:
        """Returns an empty cache.

        Args:
            padding: True at valid tokens, for left-padded targets of different lengths.
        """
        cache = self.model.decoder.cache(padding)
        cache.memory_padding = self.padding
        return cache


def claims() -> Iterator[Claim]:
    """The laws of sampling."""
    rules = SamplingConfig(temperature=0.7, top_k=5, top_p=0.66, min_p=0.03)
    yield Claim(sums_to_one(), rules.probabilities, shape("b n"), name="SamplingConfig")
    yield Claim(shift_invariance(axis=-1), rules.probabilities, shape("b n"), name="SamplingConfig")
    symmetric = SamplingConfig(top_k=3, min_p=0.1)
    yield Claim(permutation_equivariance(axis=-1), symmetric.probabilities, shape("b n"), name="SamplingConfig")
