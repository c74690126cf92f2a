"""Sampling: from scores to the probabilities that the next token is drawn from, and the draw.

One step of a decoder, unrolled: the same operators without the modules around them.
What decoding asks of a model, and what a model has read so far.
The smallest model that decoding takes: the next token depends on the last one alone.
Generating tokens: a model goes on where prompts end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lawful.blocks.attention import MultiHeadAttention
from lawful.blocks.feed_forward import FeedForward
from lawful.blocks.modes import eval_mode
from lawful.blocks.residual import Residual
from lawful.data.batches import make_generator
from lawful.functions.attention import (
    NO_MASK,
    ChunkedAttention,
    LinearAttention,
    Mask,
    SlidingWindowAttention,
    fused_attention,
    reference_attention,
)
from lawful.laws import Claim, agreement, permutation_equivariance, shape, shift_invariance, sums_to_one, tokens
from lawful.models.decoder_cache import Cache
from lawful.models.gpt2_weights import gpt2_config
from lawful.models.transformer import Decoder, DecoderConfig, position_ids

BLOCK = 256
"""How many random numbers of a row are drawn at once."""


@dataclass(frozen=True, kw_only=True)
class SamplingConfig:
    r"""Says how the next token is drawn from scores $x$: flatter or sharper, and which tokens may come at all.

    $$p = \mathrm{softmax}(x / T)$$

    with everything that is cut off at probability 0, and the rest adding up to 1 again. The cuts are made one after
    the other, in the order below. The most probable token is always left.

    Reference:
        Holtzman et al., *The Curious Case of Neural Text Degeneration*, 2020 (top-p); Nguyen et al., *Turning Up the
        Heat: Min-p SamplingConfig*, 2024; Keskar et al., *CTRL*, 2019 (repetition penalty).

    Examples:
        >>> SamplingConfig(top_k=2).probabilities(torch.tensor([0.0, 0.0, -1.0]))
        tensor([0.5000, 0.5000, 0.0000])
    """

    never: tuple[int, ...] = ()
    """Tokens that are never drawn."""
    repetition_penalty: float = 1.0
    """What the positive scores of tokens that a row has already are divided by, and the negative ones multiplied."""
    temperature: float = 1.0
    """$T$; at 0 the most probable token is taken, the first of several."""
    top_k: int | None = None
    """How many tokens may come, the most probable ones and those that tie with the last; above the vocabulary, all."""
    top_p: float = 1.0
    """The probability that the most probable tokens need to have together, when no more are let in."""
    min_p: float = 0.0
    """The least probability of a token, as a share of the largest."""

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise ValueError(f"temperature is at least 0, which is greedy: got {self.temperature}")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k is at least 1: got {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is above 0 and at most 1: got {self.top_p}")
        if not 0 <= self.min_p <= 1:
            raise ValueError(f"min_p is from 0 to 1: got {self.min_p}")
        if not 0 < self.repetition_penalty < math.inf:
            raise ValueError(f"repetition_penalty is above 0: got {self.repetition_penalty}")

    def scores(
        self, x: Float[Tensor, "*batch vocab"], *, seen: Bool[Tensor, "*batch vocab"] | None = None
    ) -> Float[Tensor, "*batch vocab"]:
        """The scores after the rules that know no probabilities; `seen` says which tokens a row has already."""
        if self.repetition_penalty != 1 and seen is not None:
            x = torch.where(seen, torch.where(x > 0, x / self.repetition_penalty, x * self.repetition_penalty), x)
        if self.never:
            x = x.index_fill(-1, torch.tensor(self.never, device=x.device), -math.inf)
        return x

    def probabilities(
        self, x: Float[Tensor, "*batch vocab"], *, seen: Bool[Tensor, "*batch vocab"] | None = None
    ) -> Float[Tensor, "*batch vocab"]:
        """The probabilities of the next token; at temperature 0 all of it is the most probable one's."""
        x = self.scores(x, seen=seen)
        if self.temperature == 0:
            return torch.zeros_like(x).scatter(-1, x.argmax(-1, keepdim=True), 1.0)
        if self.temperature != 1:
            x = (x - x.amax(-1, keepdim=True)) / self.temperature
        if self.top_k is not None and self.top_k < x.shape[-1]:
            x = x.masked_fill(x < x.topk(self.top_k).values[..., -1:], -math.inf)
        if self.top_p < 1:
            p, order = x.softmax(-1).sort(dim=-1, descending=True, stable=True)
            cut = torch.empty_like(order, dtype=torch.bool).scatter(-1, order, p.cumsum(-1) - p >= self.top_p)
            x = x.masked_fill(cut, -math.inf)
        if self.min_p > 0:
            x = x.masked_fill(x < x.amax(-1, keepdim=True) + math.log(self.min_p), -math.inf)
        return x.softmax(-1)


DEFAULT_SAMPLING = SamplingConfig()
"""Draws from the probabilities of the model as they are."""
GREEDY = SamplingConfig(temperature=0.0)
"""Takes the most probable token."""


class TokenSampler:
    """TokenSampler the next token of each row, in a way that depends on nothing but the seed and the number of the row.

    A row takes one random number $u$ a token, from a generator of its own, and the token is the first whose
    probability, added to those before it, exceeds $u$: so a row comes out the same whatever else is in the batch.

    Args:
        sampling: The rules.
        rows: The tokens that each row has already.
        vocab: The number of tokens that there are.
        seed: What the random numbers depend on.
        first: The number of the first row, where the rows are a part of more.
    """

    def __init__(
        self, sampling: SamplingConfig, rows: list[Tensor], *, vocab: int, seed: int = 0, first: int = 0
    ) -> None:
        if bad := [token for token in sampling.never if not 0 <= token < vocab]:
            raise ValueError(f"never is to have tokens from 0 to {vocab - 1}: got {bad[0]}")
        if len(set(sampling.never)) >= vocab:
            raise ValueError(f"never leaves none of the {vocab} tokens")
        self.sampling, self.seen = sampling, None
        self.plain = not sampling.never and sampling.repetition_penalty == 1
        if sampling.repetition_penalty != 1:
            self.seen = torch.zeros(len(rows), vocab, dtype=torch.bool, device=rows[0].device)
            for row, tokens in zip(self.seen, rows, strict=True):
                row[tokens] = True
        self._generators = [make_generator(seed, first + i) for i in range(len(rows))]
        self._numbers: Iterator[Tensor] = iter(())

    def __call__(self, logits: Float[Tensor, "b vocab"]) -> Int[Tensor, "b"]:
        """Draws a token for each row."""
        if self.sampling.temperature == 0:
            tokens = (logits if self.plain else self.sampling.scores(logits, seen=self.seen)).argmax(-1)
        else:
            p = self.sampling.probabilities(logits.double(), seen=self.seen).cumsum(-1)
            tokens = torch.searchsorted(p, self._uniform(logits.device) * p[:, -1:], right=True)[:, 0]
        if self.seen is not None:
            self.seen.scatter_(1, tokens[:, None], True)
        return tokens

    def _uniform(self, device: torch.device) -> Float[Tensor, "b 1"]:
        """One number for each row, from 0 to a little below 1, so that its product with a sum is below the sum."""
        number = next(self._numbers, None)
        if number is None:
            block = torch.stack([torch.rand(BLOCK, generator=g, dtype=torch.float64) for g in self._generators])
            self._numbers = iter((block * (1 - 2**-50)).to(device).split(1, dim=1))
            number = next(self._numbers)
        return number


def _sampling_claims() -> Iterator[Claim]:
    """The laws that sampling obeys."""
    rules = SamplingConfig(temperature=0.7, top_k=5, top_p=0.66, min_p=0.03)

    def cut(x: Tensor) -> Tensor:
        """Token by token, with the cuts written as counts and sums over those that are more probable."""
        larger = x[..., None, :] > x[..., :, None]
        left = larger.sum(-1) < 5
        p = torch.where(left, (x - x.amax(-1, keepdim=True)).div(0.7).exp(), 0.0)
        p = p / p.sum(-1, keepdim=True)
        first = torch.ones(x.shape[-1], x.shape[-1], dtype=torch.bool).tril(-1)
        before = larger | ((x[..., None, :] == x[..., :, None]) & first)
        left = (before * p[..., None, :]).sum(-1) < 0.66
        p = torch.where(left & (p >= 0.03 * p.amax(-1, keepdim=True)), p, 0.0)
        return p / p.sum(-1, keepdim=True)

    def penalised(x: Tensor) -> Tensor:
        seen = torch.arange(x.shape[-1]) % 2 == 0
        return SamplingConfig(repetition_penalty=1.5, never=(1,)).probabilities(x, seen=seen.expand_as(x))

    def by_hand(x: Tensor) -> Tensor:
        powers = [2 / 3 if v > 0 else 1.5 for v in x[..., 0::2].flatten()]
        scores = x.clone()
        scores[..., 0::2] *= x.new_tensor(powers).view_as(x[..., 0::2])
        kept = torch.arange(x.shape[-1]) != 1
        p = (scores - scores[..., kept].amax(-1, keepdim=True)).exp() * kept
        return p / p.sum(-1, keepdim=True)

    def drawn(x: Tensor) -> Tensor:
        rows = [torch.tensor([0]) for _ in x]
        draw = TokenSampler(SamplingConfig(top_k=2), rows, vocab=x.shape[-1], seed=1)
        return torch.stack([draw(x) for _ in range(3)]).to(x)

    def inverted(x: Tensor) -> Tensor:
        numbers = torch.stack(
            [torch.rand(BLOCK, generator=make_generator(1, i), dtype=torch.float64) for i in range(len(x))]
        )
        total = SamplingConfig(top_k=2).probabilities(x.double()).cumsum(-1)
        return torch.stack([(total <= numbers[:, n, None]).sum(-1) for n in range(3)]).to(x)

    yield Claim(sums_to_one(), rules.probabilities, shape("b n"), name="Sampling")
    yield Claim(agreement(other=cut), rules.probabilities, shape("b n:1..9"), name="Sampling, cuts")
    yield Claim(shift_invariance(axis=-1), rules.probabilities, shape("b n"), name="Sampling")
    yield Claim(permutation_equivariance(axis=-1), SamplingConfig(top_k=3, min_p=0.1).probabilities, shape("b n"))
    yield Claim(agreement(other=by_hand), penalised, shape("b n:2..7"), name="Sampling, penalty and never")
    yield Claim(agreement(other=inverted), drawn, shape("b:1..3 n:2..5"), name="Draws")


Step = Callable[[Tensor, Any], Tensor]
SMALL = 2**18
"""The number of weights up to which a product costs no more than its call, so that three are made one."""


@dataclass(eq=False, slots=True)
class Moment:
    """What the sublayers share while one token is read."""

    at: int
    """How many tokens were read before."""
    place: Int[Tensor, "b 1"] | int
    """Where the token stands in its own row."""
    hidden: Float[Tensor, "b 1 s"] | None
    """What is added to the scores of the keys: minus infinity where there is no token; None if all are there."""
    kept: Iterator[Any]
    """The caches of the attention layers that are still to come."""
    first: list[Tensor]
    """The values of the first attention, or those of a table."""


Block = Callable[[Tensor, Moment], Tensor]


def unrolled(model: object) -> Step | None:
    """Returns a function that does what `model(tokens, cache=cache)[:, -1]` does with one token, in less time.

    Small models spend most of a step in the calls of modules and in the choices that these make anew for each token;
    here they are made once. A single query needs no mask but for padding, and every kernel of the softmax is the same
    two products for it. None is returned for a model with parts other than those below; for one with hooks, so that
    whatever looks inside a model sees it run as ever; and off the processor or in half precision, where fused
    attention is better.

    Args:
        model: The model; a `Decoder` of causal self-attention, with a window or without, of heads of one size, with any
            feed-forward blocks, norms, positions and extras.
    """
    if type(model) is not Decoder or not _is_band(model.config.mask) or not set(model.order) <= set("sfh"):
        return None
    if any(module._forward_hooks or module._forward_pre_hooks for module in model.modules()):
        return None
    if any(p.device.type != "cpu" or p.dtype not in (torch.float32, torch.float64) for p in model.parameters()):
        return None
    layers: list[tuple[Block, nn.Module | None]] = []
    mixes, attended = iter(model.shortcuts or ()), False
    for letter, layer in zip(model.order, model.layers, strict=True):
        if type(layer) is not Residual:
            return None
        block = (_attending if letter == "s" else _feeding)(layer.block)
        if block is None:
            return None
        layers.append((_added(layer, block), next(mixes, None) if letter == "s" and attended else None))
        attended = attended or letter == "s"
    mix, last = next(mixes, None), _plain(model.norm)
    absolute = any(getattr(layer.block, "uses_absolute_positions", False) for layer in model.layers)

    def step(tokens: Int[Tensor, "b 1"], cache: Cache) -> Float[Tensor, "b vocab"]:
        there = cache.there(1)
        x = start = model.embed(tokens, cache=cache, padding=there)[:, 0]
        hidden = None if there is None else torch.where(there, 0.0, -torch.inf).to(x.dtype)[:, None]
        first = [] if model.values is None else [model.values(tokens)[:, 0]]
        place = cache.length if there is None or not absolute else position_ids(there, cache.length, 1)
        moment = Moment(cache.length, place, hidden, iter(cache.layers), first)
        for layer, shortcut in layers:
            x = layer(x if shortcut is None else shortcut(x, start), moment)
        cache.advance(tokens)
        return model.logits(last(x if mix is None else mix(x, start)))

    return step


def _is_band(mask: Mask) -> bool:
    """Whether that it is causal, and a window, are its only rules."""
    return mask.causal and not mask.prefix and mask.padding is mask.documents is mask.pairs is None


def _added(layer: Residual, block: Block) -> Block:
    """The step of a residual connection."""
    norm, step = _plain(layer.norm), layer.scale
    between = [_plain(part) for part in (layer.branch_norm, layer.gate) if part is not None]
    after = None if layer.output_norm is None else _plain(layer.output_norm)

    def run(x: Tensor, moment: Moment) -> Tensor:
        y = block(norm(x), moment)
        for part in between:
            y = part(y)
        y = torch.add(x, y, alpha=step)
        return y if after is None else after(y)

    return run


def _attending(block: nn.Module) -> Block | None:
    """The step of attention, if it has one set of heads and looks at what it reads."""
    if type(block) is not MultiHeadAttention or len(block.head_groups) != 1 or block.is_cross_attention:
        return None
    linears, kernel, (heads,) = (block.query, block.key, block.value, block.out), block.kernel, block.head_groups
    sums = type(kernel) is LinearAttention
    if not (
        sums
        or kernel in (fused_attention, reference_attention)
        or isinstance(kernel, ChunkedAttention | SlidingWindowAttention)
    ):
        return None
    if (sums and block.position_bias is not None) or any(type(one) is not nn.Linear for one in linears):
        return None
    project, out = _projecting(block.query, block.key, block.value), _affine(block.out.weight, block.out.bias)
    h, g, size, width, scale = heads.num_heads, heads.num_kv_heads, heads.key_dim, heads.value_dim, heads.key_dim**-0.5
    norm_q, norm_k, rotary = (_one(module) for module in (block.query_norm, block.key_norm, block.rotary))
    position_bias, mix, absolute = block.position_bias, block.value_residual, block.uses_absolute_positions
    unread = block.out.weight.new_empty(1, 1, 1)

    def run(y: Tensor, moment: Moment) -> Tensor:
        b, first, kept = len(y), moment.first, next(moment.kept)
        q, k, v = project(y)
        q, k = q.view(b, h, 1, size), k.view(b, g, 1, size)
        if norm_q is not None and norm_k is not None:
            q, k = norm_q(q), norm_k(k)
        if rotary is not None:
            at = moment.place if absolute else moment.at
            q, k = rotary(q, at), rotary(k, at)
        if not first:
            first.append(v)
        elif mix is not None:
            v = mix(v, first[0])
        v = v.view(b, g, 1, width)
        if sums:
            return out(kept.attend(q, k, v, mask=NO_MASK).reshape(b, h * width))
        k, v = kept.append(k, v)
        s, hidden = k.shape[-2], moment.hidden
        scores = torch.baddbmm(unread, q.reshape(b * g, h // g, size), k.flatten(0, 1).mT, beta=0, alpha=scale)
        if hidden is not None:
            scores = scores.view(b, h, s) + hidden[..., -s:]
        if position_bias is not None:
            places = torch.arange(s)
            scores = scores.view(b, h, s) + position_bias(places[-1:], places).squeeze(-2)
        weights = scores.softmax(-1).view(b * g, h // g, s)
        return out(torch.bmm(weights, v.flatten(0, 1)).view(b, h * width))

    return run


def _feeding(block: nn.Module) -> Block:
    """The step of a feed-forward block; of any but the usual one, a call."""
    if type(block) is not FeedForward or type(block.up) is not nn.Linear or type(block.down) is not nn.Linear:
        return lambda y, _: block(y[:, None])[:, 0]
    up, down = (_affine(one.weight, one.bias) for one in (block.up, block.down))
    f = block.activation
    return lambda y, _: down(f(up(y)))


def _projecting(*linears: nn.Linear) -> Callable[[Tensor], Sequence[Tensor]]:
    """Queries, keys and values: by one product if the matrices are small."""
    weights, biases = [one.weight for one in linears], [one.bias for one in linears if one.bias is not None]
    if sum(weight.numel() for weight in weights) > SMALL or 0 < len(biases) < len(linears):
        each = [_affine(one.weight, one.bias) for one in linears]
        return lambda y: [f(y) for f in each]
    joined = _affine(torch.cat(tuple(weights)), torch.cat(tuple(biases)) if biases else None)
    sizes = [len(one.weight) for one in linears]
    return lambda y: torch.split_with_sizes(joined(y), sizes, 1)


def _affine(weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
    """The map of a linear layer."""
    turned = weight.detach().mT
    if bias is None:
        return lambda x: torch.mm(x, turned)
    shift = bias.detach()
    return lambda x: torch.addmm(shift, x, turned)


def _plain(norm: nn.Module | None) -> Callable[[Tensor], Tensor]:
    """What a norm does, or any other part."""
    if norm is None:
        return lambda x: x
    if type(norm) is not nn.LayerNorm:
        return norm
    sizes, weight, bias, eps = norm.normalized_shape, norm.weight, norm.bias, norm.eps
    return lambda x: torch.layer_norm(x, sizes, weight, bias, eps)


def _one(module: nn.Module | None) -> nn.Module | None:
    """The module of the only set of heads."""
    return module[0] if isinstance(module, nn.ModuleList) else module


def _unrolled_claims() -> Iterator[Claim]:
    """The law that an unrolled step obeys: it is what the model does."""
    for name, config in {
        "GPT-2": gpt2_config(vocab=5, d=8, depth=2, heads=2, context=40),
        "rotary": DecoderConfig(vocab=5, d=8, depth=1, order="(hsf)*"),
        "a window": DecoderConfig(vocab=5, d=8, depth=2, order="(sf)*s", mask=Mask(causal=True, window=2)),
    }.items():
        model = Decoder(config).eval()
        for n, parameter in enumerate(model.parameters()):
            nn.init.normal_(parameter, std=0.5, generator=torch.Generator().manual_seed(n))

        def stepped(x: Tensor, model: Decoder = model) -> Tensor:
            cache, step = model.cache(), unrolled(model)
            if step is None:
                raise TypeError(f"the model has parts that are not known: {model}")
            model(x[:, :1], cache=cache)
            return torch.stack([step(x[:, [i]], cache) for i in range(1, x.shape[1])], dim=1)

        def whole(x: Tensor, model: Decoder = model) -> Tensor:
            return model(x)[:, 1:]

        yield Claim(agreement(other=whole), stepped, tokens("b:1..3 t:2..6", vocab_size=5), name=f"unrolled, {name}")


class Cached(Protocol):
    """What a model keeps of the tokens that it has read."""

    def select(self, rows: Int[Tensor, "k"]) -> Any:
        """What is kept of these rows of the batch, in this order; one may come twice."""
        ...


@runtime_checkable
class CausalLM(Protocol):
    """Gives the scores of the next token at every place, and remembers in a cache what it has read."""

    def __call__(self, tokens: Int[Tensor, "b t"], *, cache: Any = None) -> Float[Tensor, "b t vocab"]:
        """The scores after each of these tokens, which come after those of the cache."""
        ...

    def cache(self, padding: Bool[Tensor, "b t"] | None = None) -> Any:
        """An empty cache; `padding` is True where the first tokens to be read are there."""
        ...


Prompts = Int[Tensor, "t"] | Int[Tensor, "b t"] | Sequence[int] | Sequence[Sequence[int]] | Sequence[Tensor]
"""One row of tokens, or several, of any lengths."""


class PromptReader:
    r"""Lets a model read rows of unequal lengths, token by token, and slides where its context ends.

    Short rows are padded at the front. A model with a context of $c$ tokens sees at most that many: where a row would
    be longer, all but its last $\lceil c / 2 \rceil$ tokens are forgotten, and these are read anew. So a row is read
    in the same way whatever else is in the batch.

    Args:
        model: The model.
        prompts: The rows, none of them empty.
        context: $c$; by default the `context` of the model, if it has one, and otherwise no limit.
    """

    def __init__(self, model: CausalLM, prompts: Prompts, *, context: int | None = None) -> None:
        self.context = getattr(model, "context", None) if context is None else context
        if self.context is not None and self.context < 1:
            raise ValueError(f"context is at least 1: got {self.context}")
        if not hasattr(model, "cache"):
            wanted = "a model with a method cache(), called with cache=, was wanted (read_gpt2 makes one of a GPT-2)"
            raise TypeError(f"{wanted}: got {type(model).__name__}")
        self.model, self.device = model, device_of(model)
        self.rows = self.prompts = rows_of(prompts, self.device)
        self._new: list[Tensor] = []
        self._step = unrolled(model)
        self.logits = self._read()

    def feed(self, tokens: Int[Tensor, "b"]) -> Float[Tensor, "b vocab"]:
        """Reads one more token in each row, and returns the scores of the next."""
        self._new.append(tokens)
        if len(self._new) > self._room:
            self.logits = self._read()
        elif self._step is not None:
            self.logits = self._step(tokens[:, None], self.cache)
        else:
            self.logits = self.model(tokens[:, None], cache=self.cache)[:, -1]
        return self.logits

    def select(self, rows: Int[Tensor, "k"]) -> None:
        """Goes on with these rows."""
        self.cache = self.cache.select(rows)
        self.rows = [self.rows[row] for row in rows.tolist()]
        self._new = [tokens[rows] for tokens in self._new]

    def _read(self) -> Tensor:
        """Reads all rows from an empty cache."""
        if self._new:
            new = torch.stack(self._new, dim=1)
            self.rows, self._new = [torch.cat(pair) for pair in zip(self.rows, new, strict=True)], []
        if self.context is not None:
            kept = -(-self.context // 2)
            self.rows = [row[-kept:] if len(row) > self.context else row for row in self.rows]
        lengths = [len(row) for row in self.rows]
        width = max(lengths)
        self._room = float("inf") if self.context is None else self.context - width
        if min(lengths) == width:
            tokens, padding = torch.stack(self.rows), None
        else:
            tokens = torch.stack([torch.nn.functional.pad(row, (width - len(row), 0)) for row in self.rows])
            starts = torch.tensor([width - n for n in lengths], device=self.device)
            padding = torch.arange(width, device=self.device) >= starts[:, None]
        self.cache = self.model.cache(padding)
        logits = _last(self.model, tokens, self.cache)
        if not logits.isfinite().all():
            raise ValueError("the scores of the model are not all finite: it may have diverged in training")
        return logits


def _last(model: CausalLM, tokens: Int[Tensor, "b t"], cache: Any) -> Float[Tensor, "b vocab"]:
    """The scores after the last token; a decoder is spared the head at all others."""
    if isinstance(model, Decoder):
        return model.logits(model.run(tokens, mask=model.config.mask, cache=cache)[:, -1:])[:, -1]
    return model(tokens, cache=cache)[:, -1]


def rows_of(prompts: Prompts, device: torch.device) -> list[Int[Tensor, "_"]]:
    """Makes rows of tokens of what a user gives; an empty one is refused.

    Examples:
        >>> rows_of([1, 2], torch.device("cpu"))
        [tensor([1, 2])]
    """
    listed = list(prompts)
    if any(isinstance(row, str) for row in listed):
        raise TypeError("rows of tokens were wanted, such as tokenizer.encode(text): got text")
    given: list[Any] = [prompts] if not listed or np.ndim(listed[0]) == 0 else listed
    rows = [torch.as_tensor(row, device=device) if len(row) else torch.empty(0, device=device) for row in given]
    for i, row in enumerate(rows):
        if row.dim() != 1 or not len(row):
            raise ValueError(f"a prompt is a row of at least one token: prompt {i} has shape {tuple(row.shape)}")
        if row.is_floating_point() or row.dtype == torch.bool:
            raise TypeError(f"tokens are whole numbers: prompt {i} has {row.dtype}")
    return [row.long() for row in rows]


def scores_of(output: Any) -> Tensor:
    """The scores in what a model gave: a tensor, or the `logits` of an output of Hugging Face."""
    found = output if isinstance(output, Tensor) else getattr(output, "logits", None)
    if not isinstance(found, Tensor):
        raise TypeError(f"scores of the next token were wanted, a tensor: got {type(output).__name__}")
    return found


def device_of(model: CausalLM) -> torch.device:
    """Where a model is."""
    if isinstance(model, torch.nn.Module):
        return next((t.device for t in (*model.parameters(), *model.buffers())), torch.device("cpu"))
    return torch.device("cpu")


class Nothing:
    """The cache of a model that remembers nothing."""

    def select(self, rows: Int[Tensor, "k"]) -> Nothing:
        """Remembers as little of these rows."""
        return self


class Bigrams(nn.Module):
    """Looks the scores of the next token up, by the last one: a Markov chain, for examples and for laws.

    Args:
        scores: A row for each token: the scores of what comes after it.

    Examples:
        >>> import torch
        >>> from lawful.inference.decoding import GREEDY, generate
        >>> after = torch.eye(5).roll(1, dims=1)
        >>> generate(Bigrams(after), [[1, 2], [4]], tokens=3, sampling=GREEDY)
        tensor([[3, 4, 0],
                [0, 1, 2]])
    """

    def __init__(self, scores: Float[Tensor, "v v"]) -> None:
        super().__init__()
        self.scores = scores

    def forward(self, tokens: Int[Tensor, "b t"], *, cache: Nothing | None = None) -> Float[Tensor, "b t v"]:
        """The scores after each token."""
        return self.scores[tokens]

    def cache(self, padding: Bool[Tensor, "b t"] | None = None) -> Nothing:
        """A cache, which is empty and stays so."""
        return Nothing()


def generate(
    model: CausalLM,
    prompts: Prompts,
    *,
    tokens: int,
    sampling: SamplingConfig = DEFAULT_SAMPLING,
    stop: Collection[int] = (),
    seed: int = 0,
    first: int = 0,
    context: int | None = None,
) -> Int[Tensor, "b n"]:
    """Writes on where prompts end, token by token with a cache, in evaluation mode.

    The prompts may be of any lengths: each comes out as it does alone. With a seed, prompt `i` gives the same whatever
    the others are, and `first=i` gives it alone.

    Args:
        model: The model.
        prompts: One row of tokens, or several; none is empty.
        tokens: How many tokens are written, at most.
        sampling: How each is drawn; `GREEDY` takes the most probable.
        stop: Tokens that end a row. A row that has one repeats it, until all rows have ended.
        seed: What the draws depend on.
        first: The number of the first prompt, where these are a part of more.
        context: How many tokens the model sees; by default its own limit. Beyond it, the older half is forgotten.

    Examples:
        >>> from lawful.models.transformer import Decoder, DecoderConfig
        >>> generate(Decoder(DecoderConfig(vocab=5, d=8)), [[1, 2], [4]], tokens=3).shape
        torch.Size([2, 3])
    """
    _check(tokens)
    with torch.inference_mode(), evaluating(model):
        found = list(_drawn(model, prompts, tokens, sampling, stop, seed, first, context))
    return torch.stack(found, dim=1)


@torch.inference_mode()
def stream(
    model: CausalLM,
    prompts: Prompts,
    *,
    tokens: int,
    sampling: SamplingConfig = DEFAULT_SAMPLING,
    stop: Collection[int] = (),
    seed: int = 0,
    first: int = 0,
    context: int | None = None,
) -> Generator[list[int], None, None]:
    """Writes as `generate` does, and gives each token, one for each prompt, as soon as it is there.

    The model is in evaluation mode until the stream ends or is closed.

    Args:
        model: The model.
        prompts: One row of tokens, or several; none is empty.
        tokens: How many tokens are written, at most.
        sampling: How each is drawn.
        stop: Tokens that end a row.
        seed: What the draws depend on.
        first: The number of the first prompt.
        context: How many tokens the model sees.

    Examples:
        >>> after = torch.eye(5).roll(1, dims=1)
        >>> list(stream(Bigrams(after), [[1, 2], [4]], tokens=3, sampling=GREEDY))
        [[3, 0], [4, 1], [0, 2]]
    """
    _check(tokens)
    with evaluating(model):
        for drawn in _drawn(model, prompts, tokens, sampling, stop, seed, first, context):
            yield drawn.tolist()


def _drawn(
    model: CausalLM,
    prompts: Prompts,
    tokens: int,
    sampling: SamplingConfig,
    stop: Collection[int],
    seed: int,
    first: int,
    context: int | None,
) -> Iterator[Tensor]:
    reader = PromptReader(model, prompts, context=context)
    logits = reader.logits
    draw = TokenSampler(sampling, reader.prompts, vocab=logits.shape[-1], seed=seed, first=first)
    ended: dict[int, int] = {}
    for left in range(tokens, 0, -1):
        drawn = draw(logits)
        if stop:
            for row, token in ended.items():
                drawn[row] = token
            ended |= {row: token for row, token in enumerate(drawn.tolist()) if token in stop}
        yield drawn
        if left == 1 or len(ended) == len(drawn):
            return
        logits = reader.feed(drawn)


def _check(tokens: int) -> None:
    if tokens < 1:
        raise ValueError(f"tokens are at least 1: got {tokens}")


def evaluating(model: CausalLM) -> AbstractContextManager[None]:
    """Puts a module in evaluation mode, and back afterwards."""
    return eval_mode(model) if isinstance(model, nn.Module) else nullcontext()


def _generate_claims() -> Iterator[Claim]:
    """The laws that generation obeys."""
    prompts = [[0, 1], [2], [1, 1, 0]]

    def greedy(x: Tensor) -> Tensor:
        return generate(Bigrams(x), prompts, tokens=4, sampling=GREEDY).to(x)

    def followed(x: Tensor) -> Tensor:
        best = [int(row.argmax()) for row in x]
        rows = [[*prompt] for prompt in prompts]
        for row in rows:
            for _ in range(4):
                row.append(best[row[-1]])
        return x.new_tensor([row[-4:] for row in rows])

    def together(x: Tensor) -> Tensor:
        return generate(Bigrams(x), prompts, tokens=5, seed=3).to(x)

    def alone(x: Tensor) -> Tensor:
        rows = [generate(Bigrams(x), prompt, tokens=5, seed=3, first=i) for i, prompt in enumerate(prompts)]
        return torch.cat(rows).to(x)

    yield Claim(agreement(other=followed), greedy, shape("3 3"), name="generate, greedy")
    yield Claim(agreement(other=alone), together, shape("3 3"), name="generate, sampled: ragged prompts one by one")


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _sampling_claims()
    yield from _unrolled_claims()
    yield from _generate_claims()
