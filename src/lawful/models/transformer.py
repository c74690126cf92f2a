r"""Transformers: decoder, encoder and encoder-decoder, and the factories that build the usual ones.

A transformer embeds tokens and adds the output of each sublayer to the residual stream,

$$x_0 = E_\text{token} + P_\text{position}, \qquad x_{l+1} = x_l + f_l(\operatorname{norm}(x_l))$$

where $f_l$ is self-attention, cross-attention or a feed-forward block. The classes take modules; `gpt`, `decoder`,
`encoder` and `encoder_decoder` build these modules from sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks.attention import MultiHeadAttention
from lawful.blocks.embedding import NGramEmbedding
from lawful.blocks.feed_forward import FeedForward
from lawful.blocks.positions import LearnedPositions, RotaryEmbedding
from lawful.blocks.residual import Residual, expand_layer_pattern, pre_norm
from lawful.blocks.state_space import StateSpace
from lawful.functions.activations import softcap, squared_relu
from lawful.functions.attention import CAUSAL, NO_MASK, Kernel, Mask, fused_attention
from lawful.laws import (
    Claim,
    batch_independence,
    cached_decoding,
    causality,
    every_parameter_receives_a_gradient,
    masked_positions_have_no_influence,
    padding_invariance,
    permutation_equivariance,
    permutation_invariance,
    tokens,
)
from lawful.laws import mask as mask_domain
from lawful.models._decoding import token_steps
from lawful.models.generation import DecoderCache, GenerationMixin

_Norm = Callable[[int], nn.Module]
"""Builds a module from the width."""


class TransformerBackbone(nn.Module):
    """The part that encoders and decoders share: token embeddings, residual sublayers and a final norm.

    Each letter of the layer pattern names the sublayer of the same index: s is self-attention, m a state-space layer, c
    cross-attention, f feed-forward, h feed-forward with half a step. Self-attention and state-space layers are modules
    that are called with `x` and `mask`. With a method `cache(window=...)` they can decode, and take the result as
    `cache`. Self-attention with an attribute `value_residual` takes `first_values`; with `uses_absolute_positions` it
    takes `position_ids` when rows are padded. Cross-attention takes `context`. A window of the mask limits attention,
    not the state-space layers.

    Args:
        embedding: Token embedding.
        layers: Sublayers, each a residual block around attention or a feed-forward network.
        norm: Final norm.
        head: Output projection to the logits; None for an encoder.
        layer_pattern: Kinds of the sublayers, such as "sfsf".
        positions: Position embedding, added to the token embedding. None if attention encodes positions.
        ngrams: N-gram embeddings, added to the token embedding.
        embedding_norm: Norm or dropout of the embedding.
        embedding_skips: Modules that mix the embedding into the residual stream: before each self-attention or
            state-space layer but the first, and before the final norm.
        value_embedding: Embedding that replaces the values of the first layer in value residuals.
        softcap: Bound of the logits.
        mask: Attention mask.
        context_length: Maximum number of tokens. With `LearnedPositions` it is the number of positions.
    """

    def __init__(
        self,
        embedding: nn.Embedding,
        layers: Sequence[nn.Module],
        norm: nn.Module,
        head: nn.Module | None = None,
        *,
        layer_pattern: str,
        positions: nn.Module | None = None,
        ngrams: Sequence[NGramEmbedding] = (),
        embedding_norm: nn.Module | None = None,
        embedding_skips: Sequence[nn.Module] = (),
        value_embedding: nn.Module | None = None,
        softcap: float | None = None,
        mask: Mask = NO_MASK,
        context_length: int | None = None,
    ) -> None:
        super().__init__()
        if len(layers) != len(layer_pattern):
            raise ValueError(f"expected one layer per letter of {layer_pattern!r}, got {len(layers)} layers")
        self.layer_pattern, self.mask = layer_pattern, mask
        self.embedding = embedding
        self.ngrams = nn.ModuleList(ngrams) if ngrams else None
        self.positions, self.embedding_norm = positions, embedding_norm
        self.layers = nn.ModuleList(layers)
        self.embedding_skips = nn.ModuleList(embedding_skips) if embedding_skips else None
        self.value_embedding, self.norm, self.head, self.softcap = value_embedding, norm, head, softcap
        self.context_length = len(positions.weight) if isinstance(positions, LearnedPositions) else context_length
        self._ngram_context = max((table.n for table in ngrams), default=1) - 1
        residuals = [getattr(block, "value_residual", None) for block in self.blocks("s")]
        self._mixes_values = any(module is not None for module in residuals)

    @property
    def vocab_size(self) -> int:
        """Number of tokens."""
        return self.embedding.weight.shape[0]

    @property
    def dim(self) -> int:
        """Width of the residual stream."""
        return self.embedding.weight.shape[1]

    def extra_repr(self) -> str:
        parts = [f"vocab_size={self.vocab_size}", f"dim={self.dim}", f"layer_pattern={self.layer_pattern!r}"]
        return ", ".join(parts + ([f"context_length={self.context_length}"] if self.context_length else []))

    def blocks(self, kind: str) -> list[Any]:
        """Returns the blocks of the sublayers of one or several kinds: "s", "c", "m", "f", "h", "sm", ..."""
        return [layer.block for layer, letter in zip(self.layers, self.layer_pattern, strict=True) if letter in kind]

    def embed(
        self,
        tokens: Int[Tensor, "*batch t"],
        *,
        cache: DecoderCache | None = None,
        padding: Bool[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "*batch t d"]:
        """Returns the input of the first sublayer: token, position and n-gram embeddings."""
        try:
            x = self.embedding(tokens)
        except IndexError:
            found = f"{int(tokens.min())} to {int(tokens.max())}"
            raise IndexError(f"tokens must be in [0, {self.vocab_size}), got {found}") from None
        start, t = 0 if cache is None else cache.length, tokens.shape[-1]
        if self.positions is not None:
            ids = torch.arange(start, start + t, device=tokens.device)
            x = x + self.positions(ids if padding is None else _position_ids(padding, start, t))
        if self.ngrams is not None:
            context = self._with_context(tokens, cache, padding)
            before = context.shape[-1] - t
            for table in self.ngrams:
                x = x + table(context[..., before:], context[..., :before])
        return x if self.embedding_norm is None else self.embedding_norm(x)

    def _with_context(self, tokens: Tensor, cache: DecoderCache | None, padding: Tensor | None) -> Tensor:
        """Prepends the earlier tokens that n-grams need; padding is -1."""
        before = None if cache is None else cache.last_tokens(self._ngram_context)
        context = tokens if before is None else torch.cat([before, tokens], dim=-1)
        if padding is None:
            return context
        end = tokens.shape[-1] + (0 if cache is None else cache.length)
        return context.masked_fill(~padding[..., end - context.shape[-1] : end], -1)

    def encode_tokens(
        self,
        tokens: Int[Tensor, "*batch t"],
        *,
        mask: Mask,
        cache: DecoderCache | None = None,
        memory: Float[Tensor, "*batch s d"] | None = None,
        memory_mask: Mask = NO_MASK,
    ) -> Float[Tensor, "*batch t d"]:
        """Returns the output of the final norm: a vector for each token.

        Args:
            tokens: Tokens; with a cache, those after the cached ones.
            mask: Attention mask of self-attention.
            cache: Cache of earlier tokens; these are appended.
            memory: Context of cross-attention; with a cache it is read once, then may be omitted.
            memory_mask: Attention mask of cross-attention.
        """
        if cache is not None:
            mask = _mask_with_cache(mask, cache, tokens.shape[-1])
        if memory is None and "c" in self.layer_pattern and not (cache is not None and cache.memory[0].length):
            raise ValueError(f"layer_pattern {self.layer_pattern!r} has cross-attention: pass memory")
        x = x0 = self.embed(tokens, cache=cache, padding=mask.padding)
        attend: dict[str, Any] = {"mask": mask}
        if self._mixes_values:
            attend["first_values"] = [] if self.value_embedding is None else [self.value_embedding(tokens)]
        caches = None if cache is None else iter(cache.layers)
        memory_caches = None if cache is None else iter(cache.memory)
        skips = None if self.embedding_skips is None else iter(self.embedding_skips)
        position_ids, first = None, True
        layers: Iterable[Any] = self.layers
        steps = None
        if cache is not None and cache.length and tokens.dim() == 2 and tokens.shape[1] == 1:
            steps = token_steps(self.layers, self.norm, cache)
        functions = repeat(None) if steps is None else steps.functions
        for kind, layer, step in zip(self.layer_pattern, layers, functions, strict=False):
            if kind in "sm":
                if skips is not None and not first:
                    x = next(skips)(x, x0)
                first = False
                if caches is not None:
                    attend["cache"] = next(caches)
            if kind == "s":
                attend.pop("position_ids", None)
                if mask.padding is not None and getattr(layer.block, "uses_absolute_positions", False):
                    if position_ids is None:
                        position_ids = _position_ids(mask.padding, cache.length if cache else 0, tokens.shape[-1])
                    attend["position_ids"] = position_ids
                x = layer(x, partial(layer.block, **attend)) if step is None else step(x, **attend)
            elif kind == "m":
                arguments = {name: attend[name] for name in ("mask", "cache") if name in attend}
                arguments["mask"] = replace(mask, window=None)
                x = layer(x, partial(layer.block, **arguments)) if step is None else step(x, **arguments)
            elif kind == "c":
                cached = {} if memory_caches is None else {"cache": next(memory_caches)}
                x = layer(x, partial(layer.block, context=memory, mask=memory_mask, **cached))
            else:
                x = layer(x) if step is None else step(x)
        if cache is not None:
            cache.advance(tokens)
        norm = self.norm if steps is None else steps.norm
        return norm(x if skips is None else next(skips)(x, x0))


def _position_ids(padding: Bool[Tensor, "*#batch s"], start: int, t: int) -> Int[Tensor, "*#batch t"]:
    """Positions of t tokens within their own rows, after `start` tokens, not counting padding.

    Examples:
        >>> _position_ids(torch.tensor([[False, False, True, True]]), 1, 3)
        tensor([[0, 0, 1]])
    """
    return (padding.cumsum(-1)[..., start : start + t] - 1).clamp_min(0)


def _mask_with_cache(mask: Mask, cache: DecoderCache, t: int) -> Mask:
    """The mask of t new tokens over those in the cache: none is needed for one token that sees all cached keys."""
    if cache.length and not mask.causal:
        raise ValueError("decoding with a cache needs a causal mask: cached tokens have not seen the new ones")
    valid = cache.valid(t)
    if valid is not None:
        if mask.causal and mask.prefix and not valid.all():
            raise ValueError(f"a prefix mask (prefix={mask.prefix}) needs rows of equal length, got padded rows")
        return mask & Mask(padding=valid)
    return NO_MASK if t == 1 and mask.is_lower_triangular else mask


class Decoder(TransformerBackbone, GenerationMixin):
    r"""Causal transformer: predicts the next token at each position.

    $$p(x_{t+1} \mid x_{\le t}) = \operatorname{softmax}(W \operatorname{norm}(x_L))$$

    With a cache it decodes token by token, with the same result as one pass over all tokens. `gpt` and `decoder`
    build one from sizes. See `TransformerBackbone` for the arguments.

    Reference:
        Radford, Narasimhan, Salimans and Sutskever, *Improving Language Understanding by Generative Pre-Training*,
        2018.

    Examples:
        >>> model = decoder(vocab_size=65, dim=16, num_layers=2)
        >>> model(torch.tensor([[1, 2, 3]])).shape
        torch.Size([1, 3, 65])
        >>> cache = model.cache()
        >>> for token in (1, 2, 3):
        ...     logits = model(torch.tensor([[token]]), cache=cache)
        >>> logits.shape, cache.length
        (torch.Size([1, 1, 65]), 3)
    """

    def forward(
        self,
        tokens: Int[Tensor, "*batch t"],
        *,
        mask: Mask | None = None,
        cache: DecoderCache | None = None,
        memory: Float[Tensor, "*batch s d"] | None = None,
        memory_mask: Mask = NO_MASK,
        logits_to_keep: int | None = None,
    ) -> Float[Tensor, "*batch _ vocab"]:
        """Returns the logits of the next token at each position.

        Args:
            tokens: Tokens; with a cache, those after the cached ones.
            mask: Mask to combine with the model's own, such as padding.
            cache: Cache of earlier tokens; these are appended.
            memory: Context of cross-attention; with a cache it is read once, then may be omitted.
            memory_mask: Attention mask of cross-attention.
            logits_to_keep: Number of last positions to compute logits for. Defaults to all.
        """
        mask = self.mask if mask is None else self.mask & mask
        x = self.encode_tokens(tokens, mask=mask, cache=cache, memory=memory, memory_mask=memory_mask)
        return self.logits(x if logits_to_keep is None else x[..., -logits_to_keep:, :])

    def logits(self, x: Float[Tensor, "*batch t d"]) -> Float[Tensor, "*batch t vocab"]:
        """Applies the output head to the output of `encode_tokens`."""
        if self.head is None:
            raise TypeError("a decoder needs a head: pass nn.Linear(dim, vocab_size)")
        y = self.head(x)
        return y if self.softcap is None else softcap(y, cap=self.softcap)

    def cache(self, padding: Bool[Tensor, "b t"] | None = None) -> DecoderCache:
        """Returns an empty cache.

        Args:
            padding: True at valid tokens, for left-padded prompts of different lengths.
        """
        mixers, cross_attention = self.blocks("sm"), self.blocks("c")
        for block in (*mixers, *cross_attention):
            if not hasattr(block, "cache"):
                raise TypeError(f"decoding needs attention with a method cache(), got {type(block).__name__}")
        layers = [block.cache(window=self.mask.window) for block in mixers]
        return DecoderCache(layers, memory=[block.cache() for block in cross_attention], padding=padding)

    def step(
        self, tokens: Int[Tensor, "*batch t"], cache: DecoderCache | None = None
    ) -> tuple[Float[Tensor, "*batch t vocab"], DecoderCache]:
        """Continues with more tokens: returns the logits and the cache. Without a cache, a new one is created."""
        cache = self.cache() if cache is None else cache
        return self(tokens, cache=cache), cache


class Encoder(TransformerBackbone):
    r"""Bidirectional transformer: returns a vector for each token.

    $$y = \operatorname{norm}(x_L), \qquad x_{l+1} = x_l + f_l(\operatorname{norm}(x_l))$$

    `encoder` builds one from sizes. See `TransformerBackbone` for the arguments.

    Reference:
        Vaswani et al., *Attention Is All You Need*, 2017.

    Examples:
        >>> encoder(vocab_size=65, dim=16, num_layers=2)(torch.tensor([[1, 2, 3]])).shape
        torch.Size([1, 3, 16])
    """

    def forward(self, tokens: Int[Tensor, "*batch t"], *, mask: Mask | None = None) -> Float[Tensor, "*batch t d"]:
        """Returns a vector for each token.

        Args:
            tokens: Tokens.
            mask: Mask to combine with the model's own, such as padding.
        """
        return self.encode_tokens(tokens, mask=self.mask if mask is None else self.mask & mask)


class EncoderDecoder(nn.Module):
    r"""Sequence-to-sequence transformer: predicts the next target token from a source and the target so far.

    $$p(y_{t+1} \mid y_{\le t}, x) = \operatorname{decoder}(y_{\le t}, \operatorname{encoder}(x))$$

    With a cache the keys and values of the source are computed once.

    Reference:
        Vaswani et al., *Attention Is All You Need*, 2017.

    Args:
        encoder: Encoder of the source.
        decoder: Decoder of the target, with cross-attention (c in its layer pattern).
        share_embeddings: Whether the decoder uses the encoder's token embedding.

    Examples:
        >>> model = encoder_decoder(vocab_size=10, dim=16)
        >>> model(torch.tensor([[1, 2, 3]]), torch.tensor([[1, 2]])).shape
        torch.Size([1, 2, 10])
    """

    def __init__(self, encoder: Encoder, decoder: Decoder, *, share_embeddings: bool = False) -> None:
        if encoder.dim != decoder.dim:
            raise ValueError(f"encoder and decoder must have the same dim, got {encoder.dim} and {decoder.dim}")
        if "c" not in decoder.layer_pattern:
            raise ValueError(f"the decoder needs cross-attention (c in layer_pattern), got {decoder.layer_pattern!r}")
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        if share_embeddings:
            if encoder.vocab_size != decoder.vocab_size:
                sizes = f"{encoder.vocab_size} and {decoder.vocab_size}"
                raise ValueError(f"share_embeddings needs one vocab_size, got {sizes}")
            encoder.embedding.weight = decoder.embedding.weight

    def forward(
        self, source: Int[Tensor, "*batch s"], target: Int[Tensor, "*batch t"], *, source_mask: Mask = NO_MASK
    ) -> Float[Tensor, "*batch t vocab"]:
        """Returns the logits of the next target token at each position.

        Args:
            source: Source tokens.
            target: Target tokens so far.
            source_mask: Mask of the source, such as padding.
        """
        return self.decode(target, self.encode(source, source_mask=source_mask), source_mask=source_mask)

    def encode(self, source: Int[Tensor, "*batch s"], *, source_mask: Mask = NO_MASK) -> Float[Tensor, "*batch s d"]:
        """Returns the memory: a vector for each source token."""
        return self.encoder(source, mask=source_mask)

    def decode(
        self,
        target: Int[Tensor, "*batch t"],
        memory: Float[Tensor, "*batch s d"],
        *,
        source_mask: Mask = NO_MASK,
        cache: DecoderCache | None = None,
    ) -> Float[Tensor, "*batch t vocab"]:
        """Returns the logits of the next target token at each position.

        Args:
            target: Target tokens; with a cache, those after the cached ones.
            memory: Output of `encode`; a cache reads it once.
            source_mask: Mask of the source.
            cache: Cache of earlier target tokens and of the memory.
        """
        return self.decoder(target, cache=cache, memory=memory, memory_mask=source_mask)

    def cache(self) -> DecoderCache:
        """Returns an empty cache."""
        return self.decoder.cache()


def rotary_attention(
    dim: int,
    *,
    num_heads: int = 4,
    num_kv_heads: int | None = None,
    context_dim: int | None = None,
    kernel: Kernel = fused_attention,
) -> MultiHeadAttention:
    """Builds attention with rotary position embedding and QK norm, without biases.

    Args:
        dim: Width of the input and output.
        num_heads: Number of query heads.
        num_kv_heads: Number of key/value heads. Defaults to `num_heads`.
        context_dim: Width of the context in cross-attention, which has no position embedding.
        kernel: Attention function.

    Examples:
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
    """Builds a feed-forward block with a squared ReLU, without biases.

    Args:
        dim: Width of the input and output.
        hidden_dim: Width of the hidden layer. Defaults to `4 * dim`.

    Examples:
        >>> squared_relu_feed_forward(4)(torch.zeros(2, 4)).shape
        torch.Size([2, 4])
    """
    return FeedForward(dim, hidden_dim=hidden_dim, activation=squared_relu, bias=False)


_OUTPUTS = "out.weight", "down.weight"


def zero_init_outputs(model: nn.Module) -> None:
    """Initializes output projections of sublayers, and an untied head, to zero.

    Every sublayer starts as the identity, and all tokens as equally probable.

    Args:
        model: Transformer.
    """
    for name, weight in model.named_parameters():
        if name.endswith((*_OUTPUTS, "head.weight")):
            nn.init.zeros_(weight)


def gpt2_init(model: nn.Module, *, std: float = 0.02) -> None:
    r"""Initializes matrices as GPT-2 does, and biases to zero.

    $$W_{ij} \sim \mathcal{N}(0, \sigma^2), \qquad
    W_{ij} \sim \mathcal{N}\bigl(0, \tfrac{\sigma^2}{n}\bigr) \text{ for output projections of } n \text{ sublayers}$$

    Reference:
        Radford et al., *Language Models are Unsupervised Multitask Learners*, 2019.

    Args:
        model: Transformer.
        std: $\sigma$.
    """
    outputs = [name for name, _ in model.named_parameters() if name.endswith(_OUTPUTS)]
    for name, weight in model.named_parameters():
        if weight.dim() > 1:
            nn.init.normal_(weight, std=std / len(outputs) ** 0.5 if name in outputs else std)
        elif name.endswith("bias"):
            nn.init.zeros_(weight)


@dataclass(frozen=True, kw_only=True)
class TransformerExtras:
    """Optional parts of a transformer, as factories."""

    ngrams: tuple[Callable[[int, int], NGramEmbedding], ...] = ()
    """N-gram embeddings, built from the vocabulary size and the width: `partial(NGramEmbedding, n=3)`."""
    embedding_norm: _Norm | None = None
    """Norm or dropout of the embedding."""
    embedding_skip: Callable[[], nn.Module] | None = None
    """Mixes the embedding into the residual stream before each self-attention or state-space layer but the first, and
    before the final norm: `WeightedSum`."""
    gate: _Norm | None = None
    """Gate of each sublayer's output: `LayerScale`."""
    value_residual: Callable[[], nn.Module] | None = None
    """Mixes the values of the first attention layer into the values of later layers: `WeightedSum`."""
    value_embedding: Callable[[int, int], nn.Module] | None = None
    """Token embedding that replaces the values of the first layer in value residuals: `nn.Embedding`."""
    final_norm: _Norm | None = None
    """Norm before the output head; defaults to `norm`."""
    softcap: float | None = None
    """Bound of the logits."""


_NO_EXTRAS = TransformerExtras()
_SUBLAYER_NAMES = {
    "s": "attention",
    "m": "state_space",
    "c": "cross_attention",
    "f": "feed_forward",
    "h": "feed_forward",
}
"""Names of the submodules of the layers, by the letters of the layer pattern."""
_RMS_NORM = partial(nn.RMSNorm, eps=1e-6)


def _build_modules(
    *,
    vocab_size: int,
    dim: int,
    num_layers: int,
    layer_pattern: str,
    dropout: float,
    attention: Callable[..., nn.Module],
    feed_forward: _Norm,
    state_space: _Norm,
    norm: _Norm,
    residual: Callable[..., Residual],
    positions: _Norm | None,
    extras: TransformerExtras,
) -> dict[str, Any]:
    """Builds the arguments of `TransformerBackbone`. The order determines the random initialization."""
    if dropout and extras.gate is not None:
        raise ValueError("dropout and extras.gate both act on the output of sublayers: pass one")
    gate = partial(_dropout, dropout) if dropout else extras.gate
    pattern = expand_layer_pattern(layer_pattern, num_layers)

    def sublayer(kind: str) -> nn.Module:
        if kind == "c":
            block = attention(dim, context_dim=dim)
        else:
            block = {"s": attention, "m": state_space}.get(kind, feed_forward)(dim)
        scale = 0.5 if kind == "h" else 1.0
        gating = None if gate is None else gate(dim)
        return residual(block, norm(dim), gate=gating, scale=scale, name=_SUBLAYER_NAMES[kind])

    modules: dict[str, Any] = {"layer_pattern": pattern}
    modules["embedding"] = nn.Embedding(vocab_size, dim)
    modules["ngrams"] = [table(vocab_size, dim) for table in extras.ngrams]
    modules["positions"] = None if positions is None else positions(dim)
    modules["embedding_norm"] = None if extras.embedding_norm is None else extras.embedding_norm(dim)
    modules["layers"] = layers = [sublayer(kind) for kind in pattern]
    blocks: list[Any] = [layer.block for layer, kind in zip(layers, pattern, strict=True) if kind == "s"]
    if extras.embedding_skip is not None:
        mixers = sum(kind in "sm" for kind in pattern)
        modules["embedding_skips"] = [extras.embedding_skip() for _ in range(max(1, mixers))]
    if extras.value_embedding is not None or extras.value_residual is not None:
        if not blocks:
            raise ValueError(f"value_residual needs at least one 's' in layer_pattern, got {pattern!r}")
        for block in blocks:
            if not hasattr(block, "value_residual"):
                name = type(block).__name__
                raise TypeError(f"value_residual needs attention that has it, such as MultiHeadAttention, got {name}")
    if extras.value_embedding is not None:
        modules["value_embedding"] = extras.value_embedding(vocab_size, blocks[0].value.weight.shape[0])
    if extras.value_residual is not None:
        for block in blocks if extras.value_embedding is not None else blocks[1:]:
            block.value_residual = extras.value_residual()
    modules["norm"] = (extras.final_norm or norm)(dim)
    return modules


def _dropout(p: float, _: int) -> nn.Dropout:
    return nn.Dropout(p)


def decoder(
    *,
    vocab_size: int,
    dim: int = 128,
    num_layers: int = 4,
    num_heads: int = 4,
    context_length: int | None = None,
    dropout: float = 0.0,
    layer_pattern: str = "(sf)*",
    attention: Callable[..., nn.Module] | None = None,
    feed_forward: _Norm = squared_relu_feed_forward,
    state_space: _Norm = StateSpace,
    norm: _Norm = _RMS_NORM,
    residual: Callable[..., Residual] = pre_norm,
    positions: _Norm | None = None,
    mask: Mask = CAUSAL,
    tie_embeddings: bool = False,
    extras: TransformerExtras = _NO_EXTRAS,
    init: Callable[[nn.Module], object] | None = zero_init_outputs,
) -> Decoder:
    """Builds a decoder; by default with rotary attention, QK norm, squared ReLU and RMSNorm.

    Args:
        vocab_size: Number of tokens.
        dim: Width of the residual stream.
        num_layers: Number of layers (repeats of the `*` group of the layer pattern).
        num_heads: Number of heads of the default attention.
        context_length: Maximum number of tokens. Defaults to no limit.
        dropout: Dropout probability of each sublayer's output.
        layer_pattern: Sublayers: s self-attention, m state-space layer, f feed-forward, h feed-forward with half a
            step, c cross-attention.
        attention: Factory for attention, called with the width, and for cross-attention also with `context_dim`.
        feed_forward: Factory for the feed-forward block, called with the width.
        state_space: Factory for the state-space layers, called with the width.
        norm: Factory for the norms, called with the width.
        residual: Residual form: `pre_norm`, `post_norm` or `sandwich_norm`.
        positions: Factory for a position embedding, called with the width.
        mask: Attention mask.
        tie_embeddings: Whether the head shares the weight of the token embedding.
        extras: Optional parts: n-gram embeddings, value residuals, softcap, ...
        init: Function that initializes the weights, such as `zero_init_outputs` or `gpt2_init`. None keeps PyTorch's.

    Examples:
        >>> from lawful.blocks import WeightedSum
        >>> model = decoder(vocab_size=65, dim=16, extras=TransformerExtras(value_residual=WeightedSum, softcap=15.0))
        >>> model(torch.tensor([[1, 2, 3]])).shape
        torch.Size([1, 3, 65])
    """
    modules = _build_modules(
        vocab_size=vocab_size,
        dim=dim,
        num_layers=num_layers,
        layer_pattern=layer_pattern,
        dropout=dropout,
        attention=partial(rotary_attention, num_heads=num_heads) if attention is None else attention,
        feed_forward=feed_forward,
        state_space=state_space,
        norm=norm,
        residual=residual,
        positions=positions,
        extras=extras,
    )
    head = nn.Linear(dim, vocab_size, bias=False)
    model = Decoder(head=head, softcap=extras.softcap, mask=mask, context_length=context_length, **modules)
    if tie_embeddings:
        head.weight = model.embedding.weight
    if init is not None:
        init(model)
    return model


def encoder(
    *,
    vocab_size: int,
    dim: int = 128,
    num_layers: int = 4,
    num_heads: int = 4,
    context_length: int | None = None,
    dropout: float = 0.0,
    layer_pattern: str = "(sf)*",
    attention: Callable[..., nn.Module] | None = None,
    feed_forward: _Norm = squared_relu_feed_forward,
    state_space: _Norm = StateSpace,
    norm: _Norm = _RMS_NORM,
    residual: Callable[..., Residual] = pre_norm,
    positions: _Norm | None = None,
    mask: Mask = NO_MASK,
    extras: TransformerExtras = _NO_EXTRAS,
    init: Callable[[nn.Module], object] | None = zero_init_outputs,
) -> Encoder:
    """Builds an encoder. See `decoder` for the arguments.

    Examples:
        >>> encoder(vocab_size=65, dim=16)(torch.tensor([[1, 2, 3]])).shape
        torch.Size([1, 3, 16])
    """
    modules = _build_modules(
        vocab_size=vocab_size,
        dim=dim,
        num_layers=num_layers,
        layer_pattern=layer_pattern,
        dropout=dropout,
        attention=partial(rotary_attention, num_heads=num_heads) if attention is None else attention,
        feed_forward=feed_forward,
        state_space=state_space,
        norm=norm,
        residual=residual,
        positions=positions,
        extras=extras,
    )
    model = Encoder(mask=mask, context_length=context_length, **modules)
    if init is not None:
        init(model)
    return model


def encoder_decoder(
    *,
    vocab_size: int,
    dim: int = 128,
    num_layers: int = 4,
    num_heads: int = 4,
    context_length: int | None = None,
    dropout: float = 0.0,
    share_embeddings: bool = False,
) -> EncoderDecoder:
    """Builds an encoder-decoder of two halves of the same size, with the defaults of `encoder` and `decoder`.

    For other parts, pass an encoder and a decoder to `EncoderDecoder`.

    Args:
        vocab_size: Number of tokens.
        dim: Width of the residual stream.
        num_layers: Number of layers of each half.
        num_heads: Number of heads.
        context_length: Maximum number of tokens. Defaults to no limit.
        dropout: Dropout probability of each sublayer's output.
        share_embeddings: Whether both halves share the token embedding.

    Examples:
        >>> encoder_decoder(vocab_size=10, dim=16)(torch.tensor([[1, 2, 3]]), torch.tensor([[1, 2]])).shape
        torch.Size([1, 2, 10])
    """
    half = {"vocab_size": vocab_size, "dim": dim, "num_layers": num_layers, "num_heads": num_heads}
    source = encoder(**half, context_length=context_length, dropout=dropout)
    target = decoder(**half, context_length=context_length, dropout=dropout, layer_pattern="(scf)*")
    return EncoderDecoder(source, target, share_embeddings=share_embeddings)


GELU_TANH = partial(F.gelu, approximate="tanh")
"""GPT-2's activation: the tanh approximation of the GELU."""


def gpt(
    *,
    vocab_size: int = 50257,
    dim: int = 768,
    num_layers: int = 12,
    num_heads: int = 12,
    context_length: int = 1024,
    dropout: float = 0.0,
    hidden_dim: int | None = None,
    activation: Callable[[Tensor], Tensor] = GELU_TANH,
    norm_eps: float = 1e-5,
    bias: bool = True,
    tie_embeddings: bool = True,
) -> Decoder:
    """Builds GPT-2: learned positions, pre-LayerNorm, GELU, and a head tied to the embedding.

    Reference:
        Radford et al., *Language Models are Unsupervised Multitask Learners*, 2019.

    Args:
        vocab_size: Number of tokens.
        dim: Width of the residual stream.
        num_layers: Number of layers, each with attention and a feed-forward block.
        num_heads: Number of heads.
        context_length: Maximum number of tokens.
        dropout: Dropout probability of the embedding and of each sublayer's output.
        hidden_dim: Width of the feed-forward block. Defaults to `4 * dim`.
        activation: Activation of the feed-forward block.
        norm_eps: Epsilon of the layer norms.
        bias: Whether linear layers and norms have a bias.
        tie_embeddings: Whether the head shares the weight of the token embedding.

    Examples:
        >>> model = gpt(vocab_size=65, dim=128, num_layers=4, num_heads=4, context_length=64, bias=False)
        >>> sum(p.numel() for p in model.parameters())
        804096
        >>> model.generate(torch.tensor([1, 2, 3]), max_new_tokens=5, temperature=0.8, top_k=40).shape
        torch.Size([1, 5])
    """
    return decoder(
        vocab_size=vocab_size,
        dim=dim,
        num_layers=num_layers,
        dropout=dropout,
        attention=partial(MultiHeadAttention, num_heads=num_heads, bias=bias),
        feed_forward=partial(FeedForward, hidden_dim=hidden_dim, activation=activation, bias=bias),
        norm=partial(nn.LayerNorm, eps=norm_eps, bias=bias),
        positions=partial(LearnedPositions, context_length),
        tie_embeddings=tie_embeddings,
        extras=TransformerExtras(embedding_norm=partial(_dropout, dropout) if dropout else None),
        init=gpt2_init,
    )


def claims() -> Iterator[Claim]:
    """The laws of decoders, encoders and encoder-decoders."""
    sizes = {"vocab_size": 5, "dim": 4, "num_heads": 2, "init": None}
    causal = decoder(num_layers=2, **sizes)
    plain = partial(MultiHeadAttention, num_heads=2, bias=False)
    unordered = encoder(num_layers=2, attention=plain, **sizes)
    both = EncoderDecoder(unordered, decoder(num_layers=1, layer_pattern="(scf)*", attention=plain, **sizes))
    ids, valid = tokens("b t", vocab_size=5), mask_domain("b t")
    pairs = {"source": tokens("b s", vocab_size=5), "target": tokens("b t", vocab_size=5)}

    def padded(x: Tensor, padding: Tensor) -> Tensor:
        return unordered(x, mask=Mask(padding=padding))

    for law, model, inputs, name in (
        (causality(time=1), causal, ids, "Decoder"),
        (batch_independence(), causal, ids, "Decoder"),
        (cached_decoding(), causal, ids, "Decoder"),
        (every_parameter_receives_a_gradient(), causal, tokens("2 4", vocab_size=5), "Decoder"),
        (permutation_equivariance(axis=1), unordered, ids, "Encoder without positions"),
        (masked_positions_have_no_influence(), padded, (ids, valid), "Encoder, padded"),
        (padding_invariance(), padded, (ids, valid), "Encoder, padded"),
        (causality(time=1, input="target"), both, pairs, "EncoderDecoder"),
        (permutation_invariance(axis=1, input="source"), both, pairs, "EncoderDecoder without positions"),
    ):
        yield Claim(replace(law, cases=15), model, inputs, name=name)
