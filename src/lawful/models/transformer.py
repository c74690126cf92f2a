"""The stream of a transformer: tokens become vectors, to which sublayers add.

Parts of transformers: ready-made attention and feed-forward, and how weights begin.
The sizes and the parts that all transformers have.
The decoder: a transformer that says which token comes next.
The encoder: a transformer in which every token sees all others.
The encoder-decoder: from one sequence to another.
An encoder-decoder with its sources given: a decoder of their targets, which can be decoded as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lawful.blocks.attention import MultiHeadAttention
from lawful.blocks.embedding import NGramEmbedding
from lawful.blocks.feed_forward import FeedForward
from lawful.blocks.layer_pattern import MACARON, expand_layer_pattern
from lawful.blocks.linear import Dense, tie_weights
from lawful.blocks.normalization import RMSNorm
from lawful.blocks.positions import LearnedPositions, RotaryEmbedding, SinusoidalPositions
from lawful.blocks.residual import LayerScale, Residual, WeightedSum, post_norm, pre_norm
from lawful.functions.activations import softcap, squared_relu
from lawful.functions.attention import CAUSAL, NO_MASK, Kernel, LinearAttention, Mask, fused_attention
from lawful.laws import (
    Claim,
    agreement,
    batch_independence,
    cached_decoding,
    causality,
    every_parameter_receives_a_gradient,
    locality,
    masked_positions_have_no_influence,
    padding_invariance,
    permutation_equivariance,
    permutation_invariance,
    ragged_batches,
    tokens,
    weight_sharing,
)
from lawful.laws import mask as masks
from lawful.models.decoder_cache import Cache

Make = Callable[[int], nn.Module]
Table = Callable[[int, int], nn.Module]


@dataclass(frozen=True, kw_only=True)
class TransformerExtras:
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


class TransformerBackbone(nn.Module):
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
        self.order = expand_layer_pattern(config.order, config.depth)
        self.embedding = nn.Embedding(config.vocab, d)
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
                block.value_residual = extras.value_residual()
        self.norm = (extras.last or config.norm)(d)

    def _sublayer(self, letter: str) -> nn.Module:
        """The residual form of an attention or a feed-forward block."""
        config, d = self.config, self.config.d
        if letter == "c":
            block = config.attention(d, context_dim=d)
        else:
            block = config.attention(d) if letter == "s" else config.feed_forward(d)
        gate = None if config.extras.gate is None else config.extras.gate(d)
        return config.residual(block, config.norm(d), gate=gate, scale=0.5 if letter == "h" else 1.0)

    def embed(
        self, tokens: Int[Tensor, "*batch t"], *, cache: Cache | None = None, padding: Bool[Tensor, "..."] | None = None
    ) -> Float[Tensor, "*batch t d"]:
        """Returns the vectors that enter the first sublayer."""
        x, t = self.embedding(tokens), tokens.shape[-1]
        seen = 0 if cache is None else cache.length
        if self.positions is not None:
            after = torch.arange(seen, seen + t, device=tokens.device)
            x = x + self.positions(after if padding is None else position_ids(padding, seen, t))
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
        memory_mask: Mask = NO_MASK,
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
                mask = NO_MASK  # that there is, which costs less to say
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
                if hasattr(layer.block, "value_residual"):
                    given["first_values"] = first
                if mask.padding is not None and getattr(layer.block, "uses_absolute_positions", False):
                    if places is None:
                        places = position_ids(mask.padding, 0 if cache is None else cache.length, tokens.shape[-1])
                    given["position_ids"] = places
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
        return len(self.positions.weight) if isinstance(self.positions, LearnedPositions) else self.config.context


def position_ids(padding: Bool[Tensor, "*#batch s"], seen: int, t: int) -> Int[Tensor, "*#batch t"]:
    """Returns where tokens stand in their own rows: t of them, after some that were seen.

    Examples:
        >>> position_ids(torch.tensor([[False, False, True, True]]), 1, 3)
        tensor([[0, 0, 1]])
    """
    return (padding.cumsum(-1)[..., seen : seen + t] - 1).clamp_min(0)


def _check_values(attentions: list[Any], order: str) -> None:
    if not attentions:
        raise ValueError(f"values of attention are wanted, of a letter s: got the order {order!r}")
    for block in attentions:
        if not hasattr(block, "value_residual"):
            came = type(block).__name__
            raise TypeError(f"attention that mixes values, such as MultiHeadAttention, is wanted: got {came}")


def rotary_attention(
    dim: int,
    *,
    num_heads: int = 4,
    num_kv_heads: int | None = None,
    context_dim: int | None = None,
    kernel: Kernel = fused_attention,
) -> MultiHeadAttention:
    """Makes attention with rotary positions and normalised queries and keys, without biases.

    Args:
        dim: Width of the input and output.
        num_heads: Number of query heads.
        num_kv_heads: Number of key/value heads. Defaults to `num_heads`.
        context_dim: Width of the context in cross-attention, which has no positions.
        kernel: Attention function.

    Examples:
        >>> import torch
        >>> rotary_attention(16)(torch.zeros(2, 3, 16)).shape
        torch.Size([2, 3, 16])
    """
    return MultiHeadAttention(
        dim,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        context_dim=context_dim,
        qk_norm=True,
        rotary=RotaryEmbedding(dim // num_heads) if context_dim is None else None,
        kernel=kernel,
        bias=False,
    )


def squared_relu_feed_forward(dim: int, *, hidden_dim: int | None = None) -> FeedForward:
    """Makes a feed-forward block with a squared ReLU, without biases.

    Args:
        dim: Width of the input and output.
        hidden_dim: Number of hidden units. Defaults to `4 * dim`.

    Examples:
        >>> import torch
        >>> squared_relu_feed_forward(4)(torch.zeros(2, 4)).shape
        torch.Size([2, 4])
    """
    return FeedForward(dim, hidden_dim=hidden_dim, activation=squared_relu, bias=False)


OUTPUTS = "out.weight", "down.weight"


def zero_init_outputs(model: nn.Module) -> None:
    """Sets the matrices that write into the stream, and an untied head, to 0.

    Every sublayer is then the identity and all tokens are equally probable, until training says otherwise.

    Args:
        model: The transformer.
    """
    for name, weight in model.named_parameters():
        if name.endswith((*OUTPUTS, "head.weight")):
            nn.init.zeros_(weight)


ZERO_OUTPUTS = TransformerExtras(initialise=zero_init_outputs)


def gpt2_init(model: nn.Module, *, deviation: float = 0.02) -> None:
    r"""Draws all matrices as GPT-2 does, and sets biases to 0.

    $$W_{ij} \sim \mathcal{N}(0, \sigma^2), \qquad
    W_{ij} \sim \mathcal{N}\bigl(0, \tfrac{\sigma^2}{n}\bigr) \text{ where one of } n \text{ sublayers writes}$$

    Reference:
        Radford et al., *Language Models are Unsupervised Multitask Learners*, 2019.

    Args:
        model: The transformer.
        deviation: $\sigma$.
    """
    writers = [p for name, p in model.named_parameters() if name.endswith(OUTPUTS)]
    narrow = {id(p) for p in writers}
    for name, weight in model.named_parameters():
        if weight.dim() > 1:
            nn.init.normal_(weight, std=deviation / (len(writers) ** 0.5 if id(weight) in narrow else 1))
        elif name.endswith("bias"):
            nn.init.zeros_(weight)


@dataclass(frozen=True, kw_only=True)
class StreamConfig:
    """The sizes and the parts of a transformer; the defaults make a small one of today."""

    vocab: int
    """The number of tokens."""
    d: int = 128
    """The width of the stream."""
    depth: int = 4
    """How often a star of the order repeats what it follows."""
    order: str = "(sf)*"
    """The order of the sublayers: s attends, f feeds forward, h does so by half a step, c attends to a memory."""
    attention: Callable[..., nn.Module] = rotary_attention
    """Makes an attention block of the width, or with `context=` one that reads a memory of that width."""
    feed_forward: Make = squared_relu_feed_forward
    """Makes a feed-forward block of the width."""
    norm: Make = RMSNorm
    """Makes a norm of the width."""
    residual: Callable[..., Residual] = pre_norm
    """How a block and a norm are put on the stream: `pre_norm`, `post_norm`, `sandwich_norm`."""
    positions: Make | None = None
    """Makes what is added to the tokens for their positions: nothing where attention knows them."""
    mask: Mask = NO_MASK
    """Which tokens each token sees."""
    extras: TransformerExtras = ZERO_OUTPUTS
    """What else there is."""
    context: int | None = None
    """How many tokens it is trained to see, if that is said: decoding then shows it no more."""


@dataclass(frozen=True, kw_only=True)
class DecoderConfig(StreamConfig):
    """The sizes and the parts of a decoder."""

    mask: Mask = CAUSAL
    """Which tokens each token sees."""
    tied: bool = False
    """Whether the head has the weight of the embedding."""


class Decoder(TransformerBackbone):
    r"""Reads tokens from left to right, and gives the logits of the next one at each.

    $$p(x_{t+1} \mid x_{\le t}) = \operatorname{softmax}(W \operatorname{norm}(x_L))$$

    With a cache it reads on where it has stopped, and gives what one pass over all tokens gives.

    Reference:
        Radford, Narasimhan, Salimans and Sutskever, *Improving Language Understanding by Generative Pre-Training*,
        2018.

    Args:
        config: The sizes and the parts.

    Examples:
        >>> model = Decoder(DecoderConfig(vocab=65, d=16, depth=2))
        >>> model(torch.tensor([[1, 2, 3]])).shape
        torch.Size([1, 3, 65])
        >>> cache = model.cache()
        >>> for token in (1, 2, 3):
        ...     logits = model(torch.tensor([[token]]), cache=cache)
        >>> logits.shape, cache.length
        (torch.Size([1, 1, 65]), 3)
    """

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__(config)
        self.head = Dense(config.d, config.vocab, bias=False)
        if config.tied:
            tie_weights(self.embedding, "weight", self.head, "weight")
        if config.extras.initialise is not None:
            config.extras.initialise(self)

    def forward(
        self,
        tokens: Int[Tensor, "*batch t"],
        *,
        cache: Cache | None = None,
        mask: Mask | None = None,
        memory: Float[Tensor, "*batch s d"] | None = None,
        memory_mask: Mask = NO_MASK,
    ) -> Float[Tensor, "*batch t vocab"]:
        """Returns the logits of the token after each.

        Args:
            tokens: The tokens, those after the ones that the cache has seen.
            cache: What is kept of earlier tokens, and takes in these.
            mask: What is hidden besides what the model's own mask hides, such as padding.
            memory: What the sublayers c attend to; with a cache, only the first time.
            memory_mask: What of the memory is hidden.
        """
        seen = self.config.mask if mask is None else self.config.mask & mask
        return self.logits(self.run(tokens, mask=seen, cache=cache, memory=memory, memory_mask=memory_mask))

    def logits(self, x: Float[Tensor, "*batch t d"]) -> Float[Tensor, "*batch t vocab"]:
        """Returns the logits for what `run` has given, or for some of its positions."""
        y, cap = self.head(x), self.config.extras.softcap
        return y if cap is None else softcap(y, cap=cap)

    def cache(self, padding: Bool[Tensor, "b t"] | None = None) -> Cache:
        """Returns an empty cache.

        Args:
            padding: True where there is a token, for prompts of unequal lengths that are padded on the left.
        """
        return self.new_cache(padding)

    def step(
        self, tokens: Int[Tensor, "*batch t"], cache: Cache | None = None
    ) -> tuple[Float[Tensor, "*batch t vocab"], Cache]:
        """Reads on: returns the logits and the cache, a new one to begin with."""
        cache = self.cache() if cache is None else cache
        return self(tokens, cache=cache), cache


def _decoder_claims() -> Iterator[Claim]:
    """The laws that a decoder obeys."""
    sizes = DecoderConfig(
        vocab=5, d=4, depth=2, attention=partial(rotary_attention, num_heads=2), extras=TransformerExtras()
    )
    near = Decoder(replace(sizes, depth=1, mask=Mask(causal=True, window=2)))
    summed = Decoder(replace(sizes, attention=partial(rotary_attention, num_heads=2, kernel=LinearAttention())))
    mixing = partial(WeightedSum, init_value=(0.7, 0.4))
    gated = TransformerExtras(shortcut=mixing, gate=partial(LayerScale, init_value=0.5), softcap=2.0)
    single = Decoder(replace(sizes, order="sf", extras=gated))
    extras = replace(
        gated, ngrams=(NGramEmbedding, partial(NGramEmbedding, n=3, num_rows=7)), entry=RMSNorm, value_residual=mixing
    )
    rich = Decoder(replace(sizes, order=MACARON, extras=extras))

    def padded(x: Tensor, there: Tensor) -> Tensor:
        return rich(x, mask=Mask(padding=there))

    def padded_on_the_left(x: Tensor) -> Tensor:
        wide = torch.cat([x[:, :1], x[:, :1], x], dim=1)
        cache = summed.cache(torch.arange(wide.shape[1]).expand_as(wide) >= 2)
        return torch.cat([summed(piece, cache=cache) for piece in wide.split(3, dim=1)], dim=1)[:, 2:]

    def equation(x: Tensor) -> Tensor:
        w, part = dict(single.named_parameters()), dict(single.named_modules())
        y = start = w["embedding.weight"][x]
        y = y + w["layers.0.gate.weight"] * part["layers.0.block"](part["layers.0.norm"](y), mask=CAUSAL)
        y = y + w["layers.1.gate.weight"] * part["layers.1.block"](part["layers.1.norm"](y))
        y = w["shortcuts.0.weight"][0] * y + w["shortcuts.0.weight"][1] * start
        return 2 * torch.tanh(single.norm(y) @ single.head.weight.T / 2)

    ids, there = tokens("b t", vocab_size=5), masks("b t")
    for law, model, inputs, name in (
        (causality(time=1), rich, ids, "Decoder with extras"),
        (batch_independence(), rich, ids, "Decoder with extras"),
        (cached_decoding(), rich, ids, "Decoder with extras"),
        (cached_decoding(), near, ids, "Decoder with a window"),
        (locality(radius=1, axis=1), near, ids, "Decoder of one layer, a window of 2"),
        (every_parameter_receives_a_gradient(), rich, tokens("2 4", vocab_size=5), "Decoder with extras"),
        (masked_positions_have_no_influence(), padded, (ids, there), "Decoder, padded"),
        (ragged_batches(), padded, (ids, there), "Decoder, padded"),
        (agreement(other=summed), padded_on_the_left, ids, "Decoder of rotary linear attention, padded on the left"),
        (agreement(other=equation), single, ids, "Decoder of one layer"),
    ):
        yield Claim(replace(law, cases=15), model, inputs, name=name)


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(StreamConfig):
    """The sizes and the parts of an encoder."""


class Encoder(TransformerBackbone):
    r"""Reads all tokens at once, and gives a vector for each that knows of the others.

    $$y = \operatorname{norm}(x_L), \qquad x_{l+1} = x_l + f_l(\operatorname{norm}(x_l))$$

    Reference:
        Vaswani et al., *Attention Is All You Need*, 2017.

    Args:
        config: The sizes and the parts.

    Examples:
        >>> Encoder(EncoderConfig(vocab=65, d=16, depth=2))(torch.tensor([[1, 2, 3]])).shape
        torch.Size([1, 3, 16])
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        if config.extras.initialise is not None:
            config.extras.initialise(self)

    def forward(self, tokens: Int[Tensor, "*batch t"], *, mask: Mask | None = None) -> Float[Tensor, "*batch t d"]:
        """Returns a vector for each token.

        Args:
            tokens: The tokens.
            mask: What is hidden besides what the model's own mask hides, such as padding.
        """
        return self.run(tokens, mask=self.config.mask if mask is None else self.config.mask & mask)


def _encoder_claims() -> Iterator[Claim]:
    """The laws that an encoder obeys."""
    unplaced = partial(MultiHeadAttention, num_heads=2, bias=False)
    model = Encoder(EncoderConfig(vocab=5, d=4, depth=2, attention=unplaced, extras=TransformerExtras()))
    single = Encoder(replace(model.config, order="sf", residual=post_norm, positions=SinusoidalPositions))

    def padded(x: Tensor, there: Tensor) -> Tensor:
        return model(x, mask=Mask(padding=there))

    def equation(x: Tensor) -> Tensor:
        part = dict(single.named_modules())
        y = single.embedding.weight[x] + part["positions"](torch.arange(x.shape[-1]))
        y = part["layers.0.output_norm"](y + part["layers.0.block"](y))
        return part["norm"](part["layers.1.output_norm"](y + part["layers.1.block"](y)))

    ids, there = tokens("b t", vocab_size=5), masks("b t")
    for law, f, inputs, name in (
        (permutation_equivariance(axis=1), model, ids, "Encoder without positions"),
        (batch_independence(), model, ids, "Encoder"),
        (masked_positions_have_no_influence(), padded, (ids, there), "Encoder, padded"),
        (padding_invariance(), padded, (ids, there), "Encoder, padded"),
        (agreement(other=equation), single, ids, "Encoder of one layer"),
    ):
        yield Claim(replace(law, cases=20), f, inputs, name=name)


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderConfig:
    """The two halves of an encoder-decoder."""

    encoder: EncoderConfig
    """The half that reads the source."""
    decoder: DecoderConfig
    """The half that writes the target; its order has the letter c where it attends to the source."""
    shared: bool = False
    """Whether both have one embedding."""


class EncoderDecoder(nn.Module):
    r"""Reads a source, and gives the logits of the next token of a target that looks at it.

    $$p(y_{t+1} \mid y_{\le t}, x) = \operatorname{decoder}(y_{\le t}, \operatorname{encoder}(x))$$

    With a cache, the keys and values of the source are computed once.

    Reference:
        Vaswani et al., *Attention Is All You Need*, 2017.

    Args:
        config: The two halves.

    Examples:
        >>> halves = EncoderConfig(vocab=10, d=16), DecoderConfig(vocab=12, d=16, order="(scf)*")
        >>> model = EncoderDecoder(EncoderDecoderConfig(encoder=halves[0], decoder=halves[1]))
        >>> model(torch.tensor([[1, 2, 3]]), torch.tensor([[1, 2]])).shape
        torch.Size([1, 2, 12])
    """

    def __init__(self, config: EncoderDecoderConfig) -> None:
        if config.encoder.d != config.decoder.d:
            raise ValueError(f"both halves are to have one width: got {config.encoder.d} and {config.decoder.d}")
        super().__init__()
        self.config = config
        self.encoder, self.decoder = Encoder(config.encoder), Decoder(config.decoder)
        if "c" not in self.decoder.order:
            raise ValueError(f"the decoder is to attend to the source, by a letter c: got {config.decoder.order!r}")
        if config.shared:
            tie_weights(self.decoder.embedding, "weight", self.encoder.embedding, "weight")

    def forward(
        self, source: Int[Tensor, "*batch s"], target: Int[Tensor, "*batch t"], *, source_mask: Mask = NO_MASK
    ) -> Float[Tensor, "*batch t vocab"]:
        """Returns the logits of the token after each of the target.

        Args:
            source: The tokens of the source.
            target: Those of the target, so far.
            source_mask: What of the source is hidden, such as padding.
        """
        return self.decode(target, self.encode(source, source_mask=source_mask), source_mask=source_mask)

    def encode(self, source: Int[Tensor, "*batch s"], *, source_mask: Mask = NO_MASK) -> Float[Tensor, "*batch s d"]:
        """Returns the memory: a vector for each token of the source."""
        return self.encoder(source, mask=source_mask)

    def decode(
        self,
        target: Int[Tensor, "*batch t"],
        memory: Float[Tensor, "*batch s d"],
        *,
        source_mask: Mask = NO_MASK,
        cache: Cache | None = None,
    ) -> Float[Tensor, "*batch t vocab"]:
        """Returns the logits of the token after each of the target, given the memory.

        Args:
            target: The tokens of the target, those after the ones that the cache has seen.
            memory: What `encode` gave. A cache reads it the first time, and no more.
            source_mask: What of the memory is hidden.
            cache: What is kept of earlier tokens, and of the memory.
        """
        return self.decoder(target, cache=cache, memory=memory, memory_mask=source_mask)

    def cache(self) -> Cache:
        """Returns an empty cache."""
        return self.decoder.cache()


def _encoder_decoder_claims() -> Iterator[Claim]:
    """The laws that an encoder-decoder obeys."""
    parts = partial(MultiHeadAttention, num_heads=2, bias=False)
    read = EncoderConfig(vocab=5, d=4, depth=1, attention=parts, extras=TransformerExtras())
    write = DecoderConfig(vocab=6, d=4, depth=1, order="(scf)*", attention=parts, extras=TransformerExtras())
    model = EncoderDecoder(EncoderDecoderConfig(encoder=read, decoder=write))
    shared = EncoderDecoder(EncoderDecoderConfig(encoder=read, decoder=replace(write, vocab=5), shared=True))

    def padded(source: Tensor, there: Tensor) -> Tensor:
        return model(source, source[:, :1] * 0, source_mask=Mask(padding=there)).expand(-1, source.shape[1], -1)

    def one_by_one(source: Tensor, target: Tensor) -> Tensor:
        memory, cache = model.encode(source), model.cache()
        pieces = [model.decode(piece, memory, cache=cache) for piece in target.split(1, dim=1)]
        return torch.cat(pieces, dim=1)

    given = {"source": tokens("b s", vocab_size=5), "target": tokens("b t", vocab_size=6)}
    names = "encoder.embedding.weight", "decoder.embedding.weight"
    both = tokens("b s", vocab_size=5), tokens("b t", vocab_size=5)
    for law, f, inputs, name in (
        (causality(time=1, input="target"), model, given, "EncoderDecoder"),
        (permutation_invariance(axis=1, input="source"), model, given, "EncoderDecoder without positions"),
        (agreement(other=one_by_one), model, given, "EncoderDecoder, one token at a time"),
        (masked_positions_have_no_influence(), padded, (both[0], masks("b s")), "EncoderDecoder, padded source"),
        (weight_sharing(names=names), shared, both, "EncoderDecoder with one embedding"),
    ):
        yield Claim(replace(law, cases=20), f, inputs, name=name)


class GivenCache:
    """Keeps what a decoder has read of targets, and which tokens of the source of each are there.

    Args:
        kept: The cache of the decoder.
        there: True where there is a token of the source; all are there unless given.
    """

    def __init__(self, kept: Cache, there: Bool[Tensor, "b s"] | None) -> None:
        self.kept, self.there = kept, there

    def select(self, rows: Int[Tensor, " n"]) -> GivenCache:
        """Returns the cache of these targets, in this order."""
        return GivenCache(self.kept.select(rows), None if self.there is None else self.there[rows])


class ConditionalDecoder(nn.Module):
    r"""Gives the logits of the next token of targets, by an encoder-decoder whose sources are fixed.

    $$p(y_{t+1} \mid y_{\le t}) = p(y_{t+1} \mid y_{\le t}, x)$$

    It is called as a decoder is, so that whatever decodes with one decodes with it: `generate`, `beam_search`. Of one
    source there may be several targets. With a cache, the sources are read once.

    Args:
        model: The encoder-decoder.
        source: The tokens $x$ of each source.
        there: True where there is one, for sources of unequal lengths.

    Examples:
        >>> import torch
        >>> halves = EncoderConfig(vocab=10, d=16), DecoderConfig(vocab=12, d=16, order="(scf)*")
        >>> model = EncoderDecoder(EncoderDecoderConfig(encoder=halves[0], decoder=halves[1]))
        >>> given = ConditionalDecoder(model, torch.tensor([[1, 2, 3], [4, 5, 6]]))
        >>> given(torch.tensor([[0], [0]])).shape
        torch.Size([2, 1, 12])
    """

    source: Tensor
    there: Tensor | None

    def __init__(
        self, model: EncoderDecoder, source: Int[Tensor, "b s"], *, there: Bool[Tensor, "b s"] | None = None
    ) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("source", source, persistent=False)
        self.register_buffer("there", there, persistent=False)

    def forward(self, target: Int[Tensor, "n t"], *, cache: GivenCache | None = None) -> Float[Tensor, "n t vocab"]:
        """Returns the logits of the token after each of the targets.

        Args:
            target: The tokens of each target, those after the ones that the cache has seen.
            cache: What is kept of earlier tokens, and of the sources.
        """
        if cache is None:
            cache = self.cache()
        memory = None
        if not cache.kept.length:
            memory = self.model.encode(self.source, source_mask=_mask(self.there))
            if len(memory) != len(target):
                if len(memory) > 1:
                    raise ValueError(f"a target for each of {len(memory)} sources was wanted: got {len(target)}")
                memory = memory.expand(len(target), -1, -1)
                cache.there = None if cache.there is None else cache.there.expand(len(target), -1)
        return self.model.decoder(target, cache=cache.kept, memory=memory, memory_mask=_mask(cache.there))

    def cache(self, padding: Bool[Tensor, "n t"] | None = None) -> GivenCache:
        """Returns an empty cache.

        Args:
            padding: True where there is a token, for beginnings of targets that are padded on the left.
        """
        return GivenCache(self.model.decoder.cache(padding), self.there)


def _mask(there: Tensor | None) -> Mask:
    return NO_MASK if there is None else Mask(padding=there)


def _given_claims() -> Iterator[Claim]:
    """The laws that an encoder-decoder with its sources given obeys."""
    parts = partial(MultiHeadAttention, num_heads=2, bias=False)
    read = EncoderConfig(vocab=5, d=4, depth=1, attention=parts, extras=TransformerExtras())
    write = DecoderConfig(vocab=6, d=4, depth=1, order="(scf)*", attention=parts, extras=TransformerExtras())
    model = EncoderDecoder(EncoderDecoderConfig(encoder=read, decoder=write))

    def selected(source: Tensor, there: Tensor, target: Tensor) -> Tensor:
        given = ConditionalDecoder(model, source, there=there)
        cache = given.cache()
        given(target[:, :1], cache=cache)
        rows = target.new_tensor([1, 0, 1])
        return given(target[rows, 1:], cache=cache.select(rows))

    def whole(source: Tensor, there: Tensor, target: Tensor) -> Tensor:
        logits = model(source, target, source_mask=Mask(padding=there))[:, 1:]
        return logits[[1, 0, 1]]

    def several(source: Tensor, target: Tensor) -> Tensor:
        return ConditionalDecoder(model, source[:1])(target)

    def repeated(source: Tensor, target: Tensor) -> Tensor:
        return model(source[:1].repeat(len(target), 1), target)

    source, target = tokens("2 s", vocab_size=5), tokens("2 t:2..4", vocab_size=6)
    for f, other, inputs, name in (
        (selected, whole, (source, masks("2 s"), target), "Given, targets selected"),
        (several, repeated, (source, target), "Given, several targets of a source"),
    ):
        yield Claim(replace(agreement(other=other), cases=20), f, inputs, name=name)


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _decoder_claims()
    yield from _encoder_claims()
    yield from _encoder_decoder_claims()
    yield from _given_claims()
