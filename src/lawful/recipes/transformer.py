"""The options of a transformer: every ingredient can be left out, so that it can be said what each is worth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Literal, TypeVar

from torch import nn

from lawful.blocks.attention import MultiHeadAttention
from lawful.blocks.embedding import NGramEmbedding
from lawful.blocks.feed_forward import FeedForward, GatedFeedForward
from lawful.blocks.normalization import LayerNorm, RMSNorm
from lawful.blocks.positions import PAIRS, ALiBi, LearnedPositions, RotaryEmbedding, SinusoidalPositions, T5RelativeBias
from lawful.blocks.residual import WeightedSum, post_norm, pre_norm, sandwich_norm
from lawful.functions.activations import gelu, relu, squared_relu
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
from lawful.recipes.model_size import check_parameter_count
from lawful.recipes.optimization import Dropped, NotNegative
from lawful.training import MaxLength, Range, validate

M = TypeVar("M", bound=nn.Module)
Make = Callable[[int], nn.Module]
NORMS: dict[str, Make] = {"rms": RMSNorm, "layer": LayerNorm, "plain": partial(LayerNorm, affine=False)}
RESIDUALS = {"pre": pre_norm, "post": post_norm, "sandwich": sandwich_norm}
ACTIVATIONS = {"squared-relu": squared_relu, "relu": relu, "gelu": gelu}


@dataclass(frozen=True, kw_only=True)
class Transformer:
    """What a transformer is made of."""

    width: Annotated[int, Range(1, 10**5)] = 64
    """The width of the stream."""
    depth: Annotated[int, Range(1, 1000)] = 1
    """How often the star of the order repeats."""
    order: Annotated[str, MaxLength(1000)] = "(sf)*"
    """The order of the sublayers: s attends, f feeds forward, h does so by half a step; (sf)* repeats."""
    heads: Annotated[int, Range(1, 1000)] = 4
    """The heads of an attention layer."""
    head_size: Annotated[int, Range(0, 10**5)] = 0
    """The size of a head; 0 for the width by the heads."""
    hidden: Annotated[int, Range(0, 10**6)] = 0
    """The features of a feed-forward layer; 0 for four times the width."""
    feed_forward: Literal["squared-relu", "relu", "gelu", "swiglu"] = "squared-relu"
    """What a feed-forward layer does to its features."""
    positions: Literal["rotary", "learned", "sinusoidal", "alibi", "buckets", "none"] = "rotary"
    """How a token knows where it stands."""
    window: Annotated[int, Range(0, 10**9)] = 0
    """How many tokens each one sees, itself included; 0 for all."""
    query_key_norm: bool = True
    """Whether queries and keys are normalised."""
    norm: Literal["plain", "layer", "rms"] = "plain"
    """What normalises the stream, queries and keys: plain is a layer norm without weights."""
    residual: Literal["pre", "post", "sandwich"] = "pre"
    """Where the norm of a sublayer stands."""
    ngrams: Annotated[tuple[Annotated[int, Range(2, 16)], ...], MaxLength(8)] = (2, 3, 4)
    """The lengths of the runs of tokens that have a table of vectors, added to those of the tokens."""
    rows: Annotated[int, Range(1, 10**8)] = 8192
    """The most rows of such a table; where there are more runs than rows, they share them."""
    table_width: Annotated[int, Range(0, 10**5)] = 0
    """The width of such a table, which fills the first entries of a vector; 0 for all."""
    table_dropout: Annotated[float, Range(0, 0.99)] = 0.0
    """The share of vectors of pairs that is left out in training; of triples twice as many, and so on up to 0.9."""
    entry_norm: bool = True
    """Whether what is embedded is normalised before the first sublayer."""
    shortcut: bool = True
    """Whether what is embedded is mixed into the stream before later layers and the head."""
    value_residual: bool = False
    """Whether the values of the first attention layer are mixed into those of later ones."""
    zero_outputs: bool = True
    """Whether all that writes into the stream, and the head, begins at 0."""
    tied: bool = False
    """Whether the head has the weights of the embedding."""
    softcap: NotNegative = 0.0
    """The bound of the scores; 0 for none."""
    dropout: Dropped = 0.0
    """The share of what is added to the stream that is dropped in training."""

    def __post_init__(self) -> None:
        validate(self)
        if not self.head_size and self.width % self.heads:
            raise ValueError(f"heads are to divide the width: got width {self.width}, heads {self.heads}")
        if self.positions == "rotary" and self.size % 2:
            raise ValueError(f"rotary positions want heads of an even size: got {self.size}")
        if self.table_width > self.width:
            raise ValueError(f"tables are at most as wide as the stream: got {self.table_width}, width {self.width}")

    @property
    def size(self) -> int:
        """The size of a head."""
        return self.head_size or self.width // self.heads

    def decoder(self, vocab: int, *, context: int) -> Decoder:
        """Builds a decoder."""
        mask = CAUSAL & Mask(window=self.window or None)
        return built(lambda: self.new_decoder(vocab, context=context, order=self.order, mask=mask))

    def encoder(self, vocab: int, *, context: int) -> Encoder:
        """Builds an encoder."""
        return built(lambda: self.new_encoder(vocab, context=context))

    def encoder_decoder(self, vocab: int, *, context: int) -> EncoderDecoder:
        """Builds an encoder-decoder with one vocabulary."""

        def build() -> EncoderDecoder:
            source = self.new_encoder(vocab, context=context)
            target = self.new_decoder(vocab, context=context, order=self.order.replace("s", "sc"), mask=CAUSAL)
            return EncoderDecoder(source, target)

        return built(build)

    # ------------------------------------------------------------ the parts

    def new_decoder(self, vocab: int, *, context: int, order: str, mask: Mask) -> Decoder:
        return decoder(
            vocab_size=vocab,
            dim=self.width,
            num_layers=self.depth,
            layer_pattern=order,
            context_length=context,
            dropout=float(self.dropout),
            attention=partial(self.attention, causal=True),
            feed_forward=self.feeding,
            norm=NORMS[self.norm],
            residual=RESIDUALS[self.residual],
            positions=self.placing(context),
            mask=mask,
            tie_embeddings=self.tied,
            extras=self.extras(),
            init=zero_init_outputs if self.zero_outputs else gpt2_init,
        )

    def new_encoder(self, vocab: int, *, context: int, final_norm: type[nn.Module] | None = None) -> Encoder:
        return encoder(
            vocab_size=vocab,
            dim=self.width,
            num_layers=self.depth,
            layer_pattern=self.order,
            context_length=context,
            dropout=float(self.dropout),
            attention=self.attention,
            feed_forward=self.feeding,
            norm=NORMS[self.norm],
            residual=RESIDUALS[self.residual],
            positions=self.placing(context),
            mask=Mask(window=self.window or None),
            extras=replace(self.extras(), final_norm=final_norm),
            init=zero_init_outputs if self.zero_outputs else gpt2_init,
        )

    def attention(self, d: int, *, context_dim: int | None = None, causal: bool = False) -> MultiHeadAttention:
        """An attention layer; one that reads a memory knows no positions."""
        own = context is None
        biases: dict[str, Callable[[], nn.Module]] = {
            "alibi": lambda: ALiBi(self.heads),
            "buckets": lambda: T5RelativeBias(self.heads, bidirectional=not causal),
        }
        return MultiHeadAttention(
            d,
            num_heads=self.heads,
            head_dim=self.size,
            context_dim=context_dim,
            qk_norm=NORMS[self.norm] if self.query_key_norm else False,
            rotary=RotaryEmbedding(self.size, layout=PAIRS) if own and self.positions == "rotary" else None,
            position_bias=biases[self.positions]() if own and self.positions in biases else None,
            bias=False,
        )

    def feeding(self, d: int) -> nn.Module:
        """A feed-forward layer."""
        if self.feed_forward == "swiglu":
            return GatedFeedForward(d, hidden_dim=self.hidden or None)
        return FeedForward(d, hidden_dim=self.hidden or None, activation=ACTIVATIONS[self.feed_forward], bias=False)

    def placing(self, context: int) -> Make | None:
        """What is added to the tokens for their positions."""
        match self.positions:
            case "learned":
                return partial(LearnedPositions, context)
            case "sinusoidal":
                return SinusoidalPositions
        return None

    def table(self, n: int) -> Callable[[int, int], NGramEmbedding]:
        """Makes the table of the runs of n tokens."""
        dropout = min(0.9, self.table_dropout * (n - 1))
        return partial(NGramEmbedding, n=n, num_rows=self.rows, table_dim=self.table_width or None, dropout=dropout)

    def extras(self) -> TransformerExtras:
        return TransformerExtras(
            ngrams=tuple(map(self.table, self.ngrams)),
            embedding_norm=NORMS[self.norm] if self.entry_norm else None,
            embedding_skip=WeightedSum if self.shortcut else None,
            value_residual=WeightedSum if self.value_residual else None,
            softcap=float(self.softcap) or None,
        )


def decoder_of(model: nn.Module) -> Decoder:
    """The model, which is to be a decoder."""
    if not isinstance(model, Decoder):
        raise TypeError(f"a decoder was wanted: got {type(model).__name__}")
    return model


def built(build: Callable[[], M]) -> M:
    """Builds a model, after counting its weights without memory for them."""
    check_parameter_count([build])
    return build()
