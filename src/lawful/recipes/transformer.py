"""Options of a transformer, and the models that they build."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Literal, TypeVar

import torch
from torch import nn
from torch.nn import functional as F

from lawful._json import Config, MaxLength, Range, Requires, is_default
from lawful.blocks.attention import MultiHeadAttention
from lawful.blocks.embedding import NGramEmbedding
from lawful.blocks.feed_forward import FeedForward, GatedFeedForward
from lawful.blocks.positions import PAIRS, ALiBi, LearnedPositions, RotaryEmbedding, SinusoidalPositions, T5RelativeBias
from lawful.blocks.residual import WeightedSum, post_norm, pre_norm, sandwich_norm
from lawful.blocks.state_space import S4, S4D, SelectiveStateSpace, StateSpace
from lawful.functions.activations import squared_relu
from lawful.functions.attention import CAUSAL, Mask
from lawful.models.transformer import (
    Decoder,
    Encoder,
    EncoderDecoder,
    TransformerExtras,
    decoder,
    encoder,
    gpt2_init,
    zero_init_outputs,
)
from lawful.recipes.optimization import _NonNegative, _Probability
from lawful.training.registry import _check_parameter_count

_M = TypeVar("_M", bound=nn.Module)
_Factory = Callable[[int], nn.Module]
_NORMS: dict[str, _Factory] = {
    "rms": partial(nn.RMSNorm, eps=1e-6),
    "layer": nn.LayerNorm,
    "layer-no-affine": partial(nn.LayerNorm, elementwise_affine=False),
}
_RESIDUALS = {"pre": pre_norm, "post": post_norm, "sandwich": sandwich_norm}
_ACTIVATIONS = {"squared-relu": squared_relu, "relu": torch.relu, "gelu": F.gelu}


_ATTENTION, _FEED_FORWARD = Requires(layer_pattern="s"), Requires(layer_pattern="fh")
_STATE_SPACE = Requires(layer_pattern="m")
_STATE_SPACES = {"s4d": S4D, "s4": S4}
_NumHeads = Annotated[int, Range(1, 1000), _ATTENTION]
_HeadDim = Annotated[int, Range(0, 10**5), _ATTENTION]
_NgramRows = Annotated[int, Range(1, 10**8), Requires(ngrams=True)]
_NgramDim = Annotated[int, Range(0, 10**5), Requires(ngrams=True)]
_NgramDropout = Annotated[float, Range(0, 0.99), Requires(ngrams=True)]


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(Config):
    """Architecture of the transformer."""

    dim: Annotated[int, Range(1, 10**5)] = 64
    """Width of the residual stream."""
    num_layers: Annotated[int, Range(1, 1000)] = 1
    """Number of layers (repeats of the `*` group of the layer pattern)."""
    layer_pattern: Annotated[str, MaxLength(1000)] = "(sf)*"
    """Sublayers: s is self-attention, m is a state-space layer, f is feed-forward, h is feed-forward scaled by 1/2."""
    num_heads: _NumHeads = 4
    """Number of attention heads."""
    head_dim: _HeadDim = 0
    """Size of a head; 0 means dim / num_heads."""
    hidden_dim: Annotated[int, Range(0, 10**6), _FEED_FORWARD] = 0
    """Hidden size of the feed-forward blocks; 0 means 4 * dim."""
    activation: Annotated[Literal["squared-relu", "relu", "gelu", "swiglu"], _FEED_FORWARD] = "squared-relu"
    """Activation of the feed-forward blocks."""
    state_space: Annotated[Literal["s4d", "s4", "selective"], _STATE_SPACE] = "s4d"
    """State-space layers: diagonal (s4d), HiPPO (s4) or selective as in Mamba."""
    state_dim: Annotated[int, Range(2, 1024), _STATE_SPACE] = 16
    """Number of states per channel of the state-space layers."""
    positions: Literal["rotary", "learned", "sinusoidal", "alibi", "t5", "none"] = "rotary"
    """Position embedding or position bias. rotary, alibi and t5 are part of self-attention."""
    attention_window: Annotated[int, Range(0, 10**9), _ATTENTION] = 0
    """Sliding attention window, in tokens; 0 means no window."""
    qk_norm: Annotated[bool, _ATTENTION] = True
    """Normalize queries and keys."""
    norm: Literal["layer-no-affine", "layer", "rms"] = "layer-no-affine"
    """Norm of the residual stream, queries and keys."""
    norm_position: Literal["pre", "post", "sandwich"] = "pre"
    """Position of the norm of a sublayer."""
    ngrams: Annotated[tuple[Annotated[int, Range(2, 16)], ...], MaxLength(8)] = (2, 3, 4)
    """Lengths of n-grams whose embeddings are added to the token embeddings."""
    ngram_rows: _NgramRows = 8192
    """Rows of each n-gram embedding table (hashed when there are more n-grams)."""
    ngram_dim: _NgramDim = 0
    """Width of the n-gram embeddings, at most dim; 0 means dim."""
    ngram_dropout: _NgramDropout = 0.0
    """Dropout probability of bigram embeddings; twice as much for trigrams, and so on up to 0.9."""
    embedding_norm: bool = True
    """Normalize the embeddings."""
    embedding_skip: bool = True
    """Mix the embeddings into the residual stream before later layers and the head."""
    value_residual: Annotated[bool, _ATTENTION] = False
    """Mix the values of the first attention layer into the values of later layers."""
    zero_init_outputs: bool = True
    """Initialize output projections and the head to zero."""
    dropout: _Probability = 0.0
    """Dropout probability of each sublayer's output."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.head_dim and self.dim % self.num_heads:
            raise ValueError(f"num_heads must divide dim: got dim={self.dim}, num_heads={self.num_heads}")
        if self.positions == "rotary" and self._head_dim % 2:
            raise ValueError(f"rotary positions need an even head_dim, got {self._head_dim}")
        if "s" not in self.layer_pattern and self.positions in ("alibi", "t5"):
            raise ValueError(f"positions={self.positions} needs s in layer_pattern, got {self.layer_pattern}")
        if not set("sm") & set(self.layer_pattern) and self.positions == "none":
            raise ValueError(f"positions=none needs s or m in layer_pattern, got {self.layer_pattern}")
        if self.ngrams and self.ngram_dim > self.dim and not is_default(self, "ngram_dim"):
            raise ValueError(f"ngram_dim must be at most dim: got ngram_dim={self.ngram_dim}, dim={self.dim}")

    def build_encoder(
        self, vocab_size: int, *, context_length: int, final_norm: type[nn.Module] | None = None
    ) -> Encoder:
        """Builds an encoder; `final_norm` replaces the norm of its output."""
        return _build_checked(lambda: self._encoder(vocab_size, context_length, final_norm))

    @property
    def _head_dim(self) -> int:
        return self.head_dim or self.dim // self.num_heads

    def _encoder(self, vocab_size: int, context_length: int, final_norm: type[nn.Module] | None) -> Encoder:
        return encoder(
            vocab_size=vocab_size,
            dim=self.dim,
            num_layers=self.num_layers,
            layer_pattern=self.layer_pattern,
            context_length=context_length,
            dropout=float(self.dropout),
            attention=self._attention,
            feed_forward=self._feed_forward,
            state_space=partial(self._state_space, context_length=context_length),
            norm=_NORMS[self.norm],
            residual=_RESIDUALS[self.norm_position],
            positions=self._position_embedding(context_length),
            mask=Mask(window=self.attention_window or None),
            extras=replace(self._extras(), final_norm=final_norm),
            init=zero_init_outputs if self.zero_init_outputs else gpt2_init,
        )

    def _attention(self, dim: int, *, context_dim: int | None = None, causal: bool = False) -> MultiHeadAttention:
        """An attention layer; cross-attention has no positions."""
        positions = self.positions if context_dim is None else "none"
        bias = None
        if positions == "alibi":
            bias = ALiBi(self.num_heads)
        elif positions == "t5":
            bias = T5RelativeBias(self.num_heads, bidirectional=not causal)
        return MultiHeadAttention(
            dim,
            num_heads=self.num_heads,
            head_dim=self._head_dim,
            context_dim=context_dim,
            qk_norm=_NORMS[self.norm] if self.qk_norm else False,
            rotary=RotaryEmbedding(self._head_dim, layout=PAIRS) if positions == "rotary" else None,
            position_bias=bias,
            bias=False,
        )

    def _feed_forward(self, dim: int) -> nn.Module:
        hidden_dim = self.hidden_dim or None
        if self.activation == "swiglu":
            return GatedFeedForward(dim, hidden_dim=hidden_dim)
        return FeedForward(dim, hidden_dim=hidden_dim, activation=_ACTIVATIONS[self.activation], bias=False)

    def _state_space(self, dim: int, *, context_length: int) -> nn.Module:
        """A state-space layer whose initial time scales reach from neighboring tokens to the context."""
        if self.state_space == "selective":
            return SelectiveStateSpace(dim, state_dim=self.state_dim)
        dt_min = min(0.5, 2 / context_length)
        ssm = partial(_STATE_SPACES[self.state_space], state_dim=self.state_dim, dt_min=dt_min, dt_max=1.0)
        return StateSpace(dim, ssm=ssm)

    def _position_embedding(self, context_length: int) -> _Factory | None:
        match self.positions:
            case "learned":
                return partial(LearnedPositions, context_length)
            case "sinusoidal":
                return SinusoidalPositions
        return None

    def _ngram_embedding(self, n: int) -> Callable[[int, int], NGramEmbedding]:
        dropout = min(0.9, self.ngram_dropout * (n - 1))
        dim = min(self.ngram_dim, self.dim) or None
        return partial(NGramEmbedding, n=n, num_rows=self.ngram_rows, table_dim=dim, dropout=dropout)

    def _extras(self) -> TransformerExtras:
        return TransformerExtras(
            ngrams=tuple(map(self._ngram_embedding, self.ngrams)),
            embedding_norm=_NORMS[self.norm] if self.embedding_norm else None,
            embedding_skip=WeightedSum if self.embedding_skip else None,
            value_residual=WeightedSum if self.value_residual else None,
        )


@dataclass(frozen=True, kw_only=True)
class DecoderConfig(TransformerConfig):
    """Architecture of a transformer that predicts tokens."""

    tie_embeddings: bool = False
    """Share the weights of the embedding and the head."""
    logit_softcap: _NonNegative = 0.0
    """Soft cap of the logits, cap * tanh(logits / cap); 0 disables."""

    def build_decoder(self, vocab_size: int, *, context_length: int) -> Decoder:
        """Builds a decoder."""
        mask = CAUSAL & Mask(window=self.attention_window or None)
        return _build_checked(lambda: self._decoder(vocab_size, context_length, self.layer_pattern, mask))

    def build_encoder_decoder(self, vocab_size: int, *, context_length: int) -> EncoderDecoder:
        """Builds an encoder-decoder with one vocabulary."""

        def build() -> EncoderDecoder:
            source = self._encoder(vocab_size, context_length, None)
            target = self._decoder(vocab_size, context_length, self.layer_pattern.replace("s", "sc"), CAUSAL)
            return EncoderDecoder(source, target)

        return _build_checked(build)

    def _decoder(self, vocab_size: int, context_length: int, layer_pattern: str, mask: Mask) -> Decoder:
        return decoder(
            vocab_size=vocab_size,
            dim=self.dim,
            num_layers=self.num_layers,
            layer_pattern=layer_pattern,
            context_length=context_length,
            dropout=float(self.dropout),
            attention=partial(self._attention, causal=True),
            feed_forward=self._feed_forward,
            state_space=partial(self._state_space, context_length=context_length),
            norm=_NORMS[self.norm],
            residual=_RESIDUALS[self.norm_position],
            positions=self._position_embedding(context_length),
            mask=mask,
            tie_embeddings=self.tie_embeddings,
            extras=replace(self._extras(), softcap=float(self.logit_softcap) or None),
            init=zero_init_outputs if self.zero_init_outputs else gpt2_init,
        )


def as_decoder(model: nn.Module) -> Decoder:
    """Returns the model, typed as a decoder.

    Raises:
        TypeError: If the model is not a decoder.
    """
    if not isinstance(model, Decoder):
        raise TypeError(f"expected a Decoder, got {type(model).__name__}")
    return model


def _build_checked(build: Callable[[], _M]) -> _M:
    _check_parameter_count([build])
    return build()
