"""The stream of a transformer: tokens become vectors, to which sublayers add."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lawful.blocks.embedding import Embedding
from lawful.blocks.positions import Learned
from lawful.blocks.transformer import NGramEmbedding, order
from lawful.functions.attention import EVERYTHING, Mask
from lawful.models.transformer.cache import Cache

Make = Callable[[int], nn.Module]
Table = Callable[[int, int], nn.Module]


@dataclass(frozen=True, kw_only=True)
class Extras:
    """What a transformer may have besides: each is absent unless given."""

    ngrams: tuple[Callable[[int, int], NGramEmbedding], ...] = ()
    """Tables, of the vocabulary and the width, that are asked with each token and those before it: `NGramEmbedding`."""
    entry: Make | None = None
    """What the embedded tokens pass before the first sublayer: a norm, dropout."""
    shortcut: Callable[[], nn.Module] | None = None
    """What mixes the embedded tokens into the stream, before each attention but the first and at the end: `Mix`."""
    gate: Make | None = None
    """What is done to all that is added to the stream: `LayerScale`, a gate, dropout."""
    value_residual: Callable[[], nn.Module] | None = None
    """What mixes the values of the first attention into those of each later one, such as `Mix`."""
    value_embedding: Table | None = None
    """A table of values, asked with the tokens, that is mixed in at each attention in the place of the first values."""
    last: Make | None = None
    """What stands before the head in the place of one more norm."""
    softcap: float | None = None
    """The bound of the logits."""
    initialise: Callable[[nn.Module], object] | None = None
    """What is done to the model once it is put together: `zero_outputs`, `small_normal`, any function of it."""


class Stream(nn.Module):
    r"""Embeds tokens, and lets each sublayer add to them what it makes of them: what all transformers share.

    $$x_0 = E_{\text{token}} + P_{\text{position}}, \qquad x_{l+1} = x_l + f_l(\operatorname{norm}(x_l))$$

    Attention is any module that is called with $x$ and `mask=`. One that is to read on, piece by piece, has a method
    `cache(window=...)` and takes what that gave as `cache=`; one that attends to a memory takes it as `context=`; one
    with a `mix` takes a list with the values of the first as `first=`; and one that says that it is `absolute` takes
    `positions=` where there is padding.

    Args:
        config: The sizes and the parts, as a model has them.
    """

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config, extras, d = config, config.extras, config.d
        self.order = order(config.order, config.depth)
        self.embedding = Embedding(config.vocab, d)
        tables = [table(config.vocab, d) for table in extras.ngrams]
        self.ngrams = nn.ModuleList(tables) if tables else None
        self.longest = max((table.n for table in tables), default=1)
        self.positions = None if config.positions is None else config.positions(d)
        self.entry = None if extras.entry is None else extras.entry(d)
        self.layers = nn.ModuleList(self._sublayer(letter) for letter in self.order)
        attentions = self._blocks("s")
        mixes = max(1, len(attentions))
        self.shortcuts = None if extras.shortcut is None else nn.ModuleList(extras.shortcut() for _ in range(mixes))
        self.values = None
        if extras.value_embedding is not None or extras.value_residual is not None:
            _check_values(attentions, self.order)
        if extras.value_embedding is not None:
            self.values = extras.value_embedding(config.vocab, attentions[0].value.weight.shape[0])
        if extras.value_residual is not None:
            for block in attentions if self.values is not None else attentions[1:]:
                block.mix = extras.value_residual()
        self.norm = (extras.last or config.norm)(d)

    def _sublayer(self, letter: str) -> nn.Module:
        """The residual form of an attention or a feed-forward block."""
        config, d = self.config, self.config.d
        if letter == "c":
            block = config.attention(d, context=d)
        else:
            block = config.attention(d) if letter == "s" else config.feed_forward(d)
        gate = None if config.extras.gate is None else config.extras.gate(d)
        return config.residual(block, config.norm(d), gate=gate, step=0.5 if letter == "h" else 1.0)

    def embed(
        self, tokens: Int[Tensor, "*batch t"], *, cache: Cache | None = None, padding: Bool[Tensor, "..."] | None = None
    ) -> Float[Tensor, "*batch t d"]:
        """Returns the vectors that enter the first sublayer."""
        x, t = self.embedding(tokens), tokens.shape[-1]
        seen = 0 if cache is None else cache.length
        if self.positions is not None:
            after = torch.arange(seen, seen + t, device=tokens.device)
            x = x + self.positions(after if padding is None else places_of(padding, seen, t))
        if self.ngrams is not None:
            run = self._run_up(tokens, cache, padding)
            before = run.shape[-1] - t
            for table in self.ngrams:
                x = x + table(run[..., before:], run[..., :before])
        return x if self.entry is None else self.entry(x)

    def _run_up(self, tokens: Tensor, cache: Cache | None, padding: Tensor | None) -> Tensor:
        """The tokens after as many as the longest run asks for, -1 where there is none."""
        before = None if cache is None else cache.last(self.longest - 1)
        run = tokens if before is None else torch.cat([before, tokens], dim=-1)
        if padding is None:
            return run
        end = tokens.shape[-1] + (0 if cache is None else cache.length)
        return run.masked_fill(~padding[..., end - run.shape[-1] : end], -1)

    def run(
        self,
        tokens: Int[Tensor, "*batch t"],
        *,
        mask: Mask,
        cache: Cache | None = None,
        memory: Float[Tensor, "*batch s d"] | None = None,
        memory_mask: Mask = EVERYTHING,
    ) -> Float[Tensor, "*batch t d"]:
        """Returns what the last norm gives."""
        if cache is not None:
            t, there = tokens.shape[-1], cache.there(tokens.shape[-1])
            if cache.length and not mask.causal:
                raise ValueError("a causal mask is wanted to read on: tokens in the cache have not seen these")
            if there is not None:
                if mask.causal and mask.prefix and not there.all():
                    raise ValueError(f"a prefix wants rows of one length: got one of {mask.prefix}, and padded rows")
                mask = mask & Mask(padding=there)
            elif t == 1 and mask.is_triangle:
                mask = EVERYTHING  # that there is, which costs less to say
        if memory is None and "c" in self.order and not (cache is not None and cache.memory[0].length):
            raise ValueError(f"a memory is wanted by the sublayers c of the order {self.order!r}")
        x = start = self.embed(tokens, cache=cache, padding=mask.padding)
        first = [] if self.values is None else [self.values(tokens)]
        layers, memories = (iter(()), iter(())) if cache is None else (iter(cache.layers), iter(cache.memory))
        places = None
        sublayers: Iterable[Any] = self.layers
        shortcuts, attended = iter(self.shortcuts or ()), False
        for letter, layer in zip(self.order, sublayers, strict=True):
            if letter == "s":
                if self.shortcuts is not None and attended:
                    x = next(shortcuts)(x, start)
                attended = True
                given: dict[str, Any] = {"mask": mask}
                if cache is not None:
                    given["cache"] = next(layers)
                if hasattr(layer.block, "mix"):
                    given["first"] = first
                if mask.padding is not None and getattr(layer.block, "absolute", False):
                    if places is None:
                        places = places_of(mask.padding, 0 if cache is None else cache.length, tokens.shape[-1])
                    given["positions"] = places
                x = layer(x, partial(layer.block, **given))
            elif letter == "c":
                kept = {} if cache is None else {"cache": next(memories)}
                x = layer(x, partial(layer.block, context=memory, mask=memory_mask, **kept))
            else:
                x = layer(x)
        if cache is not None:
            cache.advance(tokens)
        return self.norm(x if self.shortcuts is None else next(shortcuts)(x, start))

    def _blocks(self, letter: str) -> list[Any]:
        """The blocks of all sublayers of a kind."""
        return [layer.block for layer, kind in zip(self.layers, self.order, strict=True) if kind == letter]

    def new_cache(self, padding: Bool[Tensor, "b t"] | None = None) -> Cache:
        """Returns an empty cache for each attention layer, with the window of the model's mask."""
        for block in (*self._blocks("s"), *self._blocks("c")):
            if not hasattr(block, "cache"):
                raise TypeError(f"attention with a method cache is wanted to read on: {type(block).__name__} has none")
        layers = [block.cache(window=self.config.mask.window) for block in self._blocks("s")]
        return Cache(layers, memory=[block.cache() for block in self._blocks("c")], padding=padding)

    @property
    def context(self) -> int | None:
        """How many tokens there are positions for, or else that it is trained to see; None for any number."""
        return len(self.positions.weight) if isinstance(self.positions, Learned) else self.config.context


def places_of(padding: Bool[Tensor, "*#batch s"], seen: int, t: int) -> Int[Tensor, "*#batch t"]:
    """Returns where tokens stand in their own rows: t of them, after some that were seen.

    Examples:
        >>> places_of(torch.tensor([[False, False, True, True]]), 1, 3)
        tensor([[0, 0, 1]])
    """
    return (padding.cumsum(-1)[..., seen : seen + t] - 1).clamp_min(0)


def _check_values(attentions: list[Any], order: str) -> None:
    if not attentions:
        raise ValueError(f"values of attention are wanted, of a letter s: got the order {order!r}")
    for block in attentions:
        if not hasattr(block, "mix"):
            came = type(block).__name__
            raise TypeError(f"attention that mixes values, such as MultiHeadAttention, is wanted: got {came}")
