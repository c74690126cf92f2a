"""Every layer of `torch.nn` satisfies its laws.

A row is a layer, what it takes, and its laws. The layer comes in training mode, in which lawful draws the mode of
every case, so that both are judged; where a law is true in evaluation only, a second row says so. The fast tests
judge every row by one of its laws, taken in turn; the long ones by all of them.
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lawful import mask, shape, tokens
from lawful.laws import (
    Law,
    additivity,
    affinity,
    agreement,
    backend_agreement,
    batch_independence,
    boundedness,
    causality,
    checkpointed_gradient,
    chunk_consistency,
    commutativity,
    convexity,
    determinism,
    evenness,
    every_input_matters,
    every_parameter_receives_a_gradient,
    gradient,
    gradient_accumulation,
    hidden_unit_permutation,
    hidden_unit_rescaling,
    homogeneity,
    idempotence,
    invertibility,
    involution,
    layout_independence,
    linearity,
    lipschitz,
    locality,
    masked_positions_have_no_influence,
    mean_over_samples,
    metric,
    monotonicity,
    no_buffer_change,
    no_mutation,
    no_parameter_change,
    non_negativity,
    oddness,
    padding_invariance,
    permutation_equivariance,
    permutation_invariance,
    ragged_batches,
    reversal_equivariance,
    reversal_invariance,
    scale_invariance,
    second_order_gradient,
    shift_invariance,
    state_dict_round_trip,
    statelessness,
    sums_to_one,
    train_eval_round_trip,
    translation_equivariance,
)
from tests.checking.no_false_alarm.held import assert_held, select_laws

P = functools.partial


# ---------------------------------------------------------------- laws that go together

# Of any module, and of any that has parameters; judged beside the laws of every row.
MODULES = (train_eval_round_trip(), state_dict_round_trip())
PARAMETERS = (no_parameter_change(), every_parameter_receives_a_gradient())

CALM = (determinism(), statelessness(), no_mutation(), layout_independence())
SMOOTH = (*CALM, gradient(), checkpointed_gradient())
ROWS = (*SMOOTH, batch_independence(), chunk_consistency())
LINEAR = (linearity(), homogeneity(), additivity(), oddness(), affinity())
RESHAPES = (*ROWS, *LINEAR)


def positionwise_laws(axis):
    """Laws of a layer that maps each position along an axis independently."""
    return (
        permutation_equivariance(axis=axis),
        causality(time=axis),
        locality(radius=0, axis=axis),
        translation_equivariance(axis=axis),
        chunk_consistency(axis=axis),
        reversal_equivariance(axis=axis),
    )


def permutation_laws(*axes):
    return tuple(permutation_equivariance(axis=axis) for axis in axes)


def window(radius, *axes):
    """Laws of a layer whose outputs depend on a neighborhood along the axes."""
    each = ((translation_equivariance(axis=a, border=radius), locality(radius=radius, axis=a)) for a in axes)
    return tuple(law for laws in each for law in laws)


TOKENS = positionwise_laws(1)
EACH = (*ROWS, *TOKENS, *positionwise_laws(2))
POINTWISE = (*EACH, second_order_gradient())
RISING = (monotonicity(), lipschitz())
PROBABLE = (
    sums_to_one(),
    non_negativity(),
    boundedness(low=0.0, high=1.0),
    lipschitz(),
    shift_invariance(),
    permutation_equivariance(axis=2),
)


def rows_of(*inputs):
    """Laws of a map with several inputs per sample."""
    return (
        *SMOOTH,
        batch_independence(input=inputs),
        permutation_equivariance(axis=0, input=inputs),
        chunk_consistency(input=inputs),
        every_input_matters(),
    )


# ---------------------------------------------------------------- inputs

BTD, BC = shape("b t 8"), shape("b 8")
BCT, BCHW, BCTHW = shape("b 4 t"), shape("b 4 h w"), shape("b 2 t h w")
LONG, WIDE, DEEP = shape("b 4 t:2..20"), shape("b 4 h:2..9 w:2..9"), shape("b 2 t:2..5 h:2..5 w:2..5")
BATCH, BATCH_2D, BATCH_3D = shape("b:2..9 8"), shape("b:2..5 4 h w"), shape("b:2..5 2 t h w")
IDS, LABELS, BITS = tokens("b t", vocab_size=10), tokens("b", vocab_size=8), tokens("b 8", vocab_size=2)
PAIR = (shape("b t 8"), shape("b s 8"))
SEQUENCE = (BTD, mask("b t"))


# ---------------------------------------------------------------- ways to call a layer


def call_module(module):
    return module


def self_attention(module):
    return lambda x: module(x, x, x)[0]


def self_attention_with_key_mask(module):
    return lambda x, m: module(x, x, x, key_padding_mask=~m)[0]


def with_source_mask(module):
    return lambda x, m: module(x, src_key_padding_mask=~m)


def future(x):
    return torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)


def after(*befores):
    """Maps each input into the layer's domain by a function, or not at all for None, and calls the layer."""
    return lambda module: lambda *xs: module(*(f(x) if f else x for f, x in zip(befores, xs, strict=True)))


def compose_with(function):
    return lambda module: lambda *xs: function(module(*xs))


def real(bits):
    return bits.to(torch.get_default_dtype())


def signs(bits):
    return 2 * real(bits) - 1


def probability(x):
    return (x / 10).sigmoid()


def probabilities(x):
    return x.softmax(-1)


def log_probabilities(x):
    return x.log_softmax(-1)


# ---------------------------------------------------------------- the table


@dataclass(frozen=True)
class Row:
    make: Callable[[], nn.Module]
    inputs: Any
    laws: tuple[Law, ...]
    call: Callable[[nn.Module], Callable[..., Any]] = call_module
    training: bool = True

    @property
    def kind(self) -> type:
        return self.make.func if isinstance(self.make, functools.partial) else self.make

    @property
    def name(self) -> str:
        given = ()
        if isinstance(self.make, functools.partial):
            named = (f"{key}={_brief(value)}" for key, value in self.make.keywords.items())
            given = (*map(_brief, self.make.args), *named)
        return f"{self.kind.__name__}({', '.join(given)})" + ("" if self.training else " in evaluation")


def _brief(value):
    return str(value) if not callable(value) else getattr(value, "__name__", type(value).__name__)


def keeps(make, inputs, *laws, call=call_module):
    return Row(make, inputs, laws, call)


def eval_row(make, inputs, *laws, call=call_module):
    return Row(make, inputs, laws, call, training=False)


LINEAR_MAPS = [
    keeps(nn.Identity, BTD, *POINTWISE, *LINEAR, *RISING, involution(), invertibility(inverse=lambda y: y)),
    keeps(P(nn.Linear, 8, 6), BTD, *ROWS, *TOKENS, affinity()),
    keeps(P(nn.Linear, 8, 6, bias=False), BTD, *ROWS, *TOKENS, *LINEAR),
    keeps(
        P(nn.Bilinear, 4, 5, 3, bias=False),
        (shape("b 4"), shape("b 5")),
        *rows_of(0, 1),
        linearity(input=0),
        linearity(input=1),
        homogeneity(input=1),
    ),
    keeps(P(nn.DataParallel, nn.Identity()), BTD, *POINTWISE),
    keeps(P(nn.Embedding, 10, 4), IDS, *ROWS, *TOKENS),
    # The row of padding_idx takes no gradient, which is its purpose.
    keeps(P(nn.Embedding, 10, 4, padding_idx=0), IDS, *CALM, batch_independence(), *TOKENS),
    *[
        keeps(P(nn.EmbeddingBag, 10, 4, mode=mode), IDS, *ROWS, permutation_invariance(axis=1))
        for mode in ("mean", "sum", "max")
    ],
]

CONVOLUTIONS = [
    keeps(P(nn.Conv1d, 4, 3, 3, padding=1), BCT, *ROWS, *window(1, -1)),
    keeps(
        P(nn.Conv1d, 4, 3, 3, padding=1, padding_mode="circular", bias=False),
        BCT,
        *ROWS,
        *LINEAR,
        translation_equivariance(),
    ),
    keeps(P(nn.Conv1d, 4, 4, 3, padding=4, dilation=4, groups=4), BCT, *ROWS, *window(4, -1)),
    keeps(P(nn.Conv1d, 4, 3, 3), BCT, *ROWS, causality(time=2), call=after(P(F.pad, pad=(2, 0)))),
    keeps(P(nn.Conv2d, 4, 3, 3, padding=1), BCHW, *ROWS, *window(1, 2, 3)),
    keeps(P(nn.Conv2d, 4, 3, 3, padding="same", padding_mode="reflect"), WIDE, *ROWS, *window(1, 2, 3)),
    keeps(P(nn.Conv2d, 4, 3, 2, stride=2, bias=False), shape("b 4 6 6"), *ROWS, *LINEAR),
    keeps(P(nn.Conv3d, 2, 3, 3, padding=1), BCTHW, *ROWS, *window(1, 2, 3, 4)),
    keeps(P(nn.ConvTranspose1d, 4, 3, 3, padding=1, bias=False), BCT, *ROWS, *LINEAR, *window(1, -1)),
    keeps(P(nn.ConvTranspose2d, 4, 3, 3, padding=1, bias=False), BCHW, *ROWS, *LINEAR, *window(1, 2, 3)),
    keeps(P(nn.ConvTranspose2d, 4, 3, 2, stride=2, output_padding=1), BCHW, *ROWS),
    keeps(P(nn.ConvTranspose3d, 2, 3, 3, padding=1, bias=False), BCTHW, *ROWS, *LINEAR, *window(1, 2, 3, 4)),
]

NORMS = [
    keeps(P(nn.LayerNorm, 8), BTD, *ROWS, *TOKENS, shift_invariance()),
    keeps(P(nn.LayerNorm, 8, eps=0.0), BTD, *CALM, shift_invariance(), scale_invariance()),
    keeps(P(nn.RMSNorm, 8), BTD, *ROWS, *TOKENS),
    keeps(P(nn.RMSNorm, 8, eps=0.0), BTD, *CALM, scale_invariance(), homogeneity(degree=0.0)),
    keeps(P(nn.GroupNorm, 2, 4), BCT, *ROWS, permutation_equivariance(axis=2)),
    keeps(P(nn.GroupNorm, 4, 4), LONG, *ROWS, permutation_equivariance(axis=2), shift_invariance()),
    keeps(P(nn.InstanceNorm1d, 4), LONG, *ROWS, shift_invariance(), *permutation_laws(1, 2)),
    keeps(P(nn.InstanceNorm1d, 4, affine=True), LONG, *ROWS, shift_invariance(), permutation_equivariance(axis=2)),
    keeps(P(nn.InstanceNorm1d, 4, track_running_stats=True), LONG, *SMOOTH, permutation_equivariance(axis=2)),
    eval_row(P(nn.InstanceNorm1d, 4, track_running_stats=True), LONG, batch_independence()),
    keeps(P(nn.InstanceNorm2d, 4), WIDE, *ROWS, *permutation_laws(1, 2, 3)),
    keeps(P(nn.InstanceNorm3d, 2), DEEP, *ROWS, *permutation_laws(1, 2, 3, 4)),
    keeps(P(nn.LocalResponseNorm, 3), BCT, *ROWS, *positionwise_laws(2), *window(1, 1)),
    # Its window over the channels and its gradient are wrong: see docs/found.md.
    keeps(P(nn.CrossMapLRN2d, 3), BCHW, *CALM, batch_independence(), *positionwise_laws(2), *positionwise_laws(3)),
    *[
        row
        for norm, batch, single in (
            (P(nn.BatchNorm1d, 8), BATCH, BC),
            (P(nn.BatchNorm2d, 4), BATCH_2D, BCHW),
            (P(nn.BatchNorm3d, 2), BATCH_3D, BCTHW),
            (P(nn.SyncBatchNorm, 4), BATCH_2D, BCHW),
        )
        for row in (
            keeps(norm, batch, *SMOOTH, permutation_equivariance(axis=0)),
            eval_row(norm, single, *ROWS, permutation_equivariance(axis=0), *LINEAR),
        )
    ],
    keeps(
        P(nn.BatchNorm1d, 8, track_running_stats=False),
        BATCH,
        *SMOOTH,
        shift_invariance(axis=0),
        permutation_equivariance(axis=0),
    ),
    eval_row(P(nn.BatchNorm2d, 4), BCHW, *positionwise_laws(2), *positionwise_laws(3)),
]

DROPOUTS = [
    keeps(P(nn.Dropout, 0.5), BTD, *ROWS, *LINEAR, causality(time=1), locality(radius=0)),
    eval_row(P(nn.Dropout, 0.5), BTD, *POINTWISE, *LINEAR),
    keeps(P(nn.Dropout1d, 0.5), BCT, *ROWS, *LINEAR, causality(time=2)),
    keeps(P(nn.Dropout2d, 0.5), BCHW, *ROWS, *LINEAR),
    keeps(P(nn.Dropout3d, 0.5), BCTHW, *ROWS, *LINEAR),
    keeps(P(nn.AlphaDropout, 0.5), BTD, *ROWS, causality(time=1)),
    keeps(P(nn.FeatureAlphaDropout, 0.5), BCT, *ROWS, causality(time=2)),
    eval_row(P(nn.FeatureAlphaDropout, 0.5), BCT, *LINEAR, *positionwise_laws(2)),
    eval_row(nn.RReLU, BTD, *POINTWISE, homogeneity()),
    # Its gradient is wrong under checkpointing: see docs/found.md.
    keeps(
        nn.RReLU, BTD, *CALM, gradient(), batch_independence(), chunk_consistency(), homogeneity(), causality(time=1)
    ),
]

ACTIVATIONS = [
    *[
        keeps(make, BTD, *POINTWISE)
        for make in (
            nn.GELU,
            P(nn.GELU, approximate="tanh"),
            nn.Hardswish,
            nn.Mish,
            nn.SiLU,
            P(nn.Threshold, 0.1, 20.0),
        )
    ],
    *[keeps(make, BTD, *POINTWISE, *RISING, convexity()) for make in (nn.CELU, nn.ELU)],
    *[
        keeps(make, BTD, *POINTWISE, *RISING, convexity(), non_negativity())
        for make in (nn.Softplus, P(nn.Softplus, beta=3.0))
    ],
    keeps(nn.Hardshrink, BTD, *POINTWISE, monotonicity(), oddness(), idempotence()),
    keeps(nn.Hardsigmoid, BTD, *EACH, *RISING, boundedness(low=0.0, high=1.0)),
    keeps(nn.Hardtanh, BTD, *POINTWISE, *RISING, oddness(), idempotence(), boundedness(low=-1.0, high=1.0)),
    keeps(nn.LeakyReLU, BTD, *POINTWISE, *RISING, homogeneity(), convexity()),
    keeps(nn.LogSigmoid, BTD, *POINTWISE, *RISING, boundedness(high=0.0)),
    keeps(nn.PReLU, BTD, *POINTWISE, *RISING, homogeneity(), convexity()),
    keeps(P(nn.PReLU, 4), BCT, *ROWS, *RISING, *positionwise_laws(2), homogeneity(), convexity()),
    keeps(nn.ReLU, BTD, *POINTWISE, *RISING, non_negativity(), homogeneity(), convexity(), idempotence()),
    keeps(nn.ReLU6, BTD, *POINTWISE, *RISING, idempotence(), boundedness(low=0.0, high=6.0)),
    keeps(nn.SELU, BTD, *POINTWISE, monotonicity(), lipschitz(constant=1.76)),
    keeps(nn.Sigmoid, BTD, *POINTWISE, *RISING, boundedness(low=0.0, high=1.0)),
    keeps(nn.Softshrink, BTD, *POINTWISE, *RISING, oddness()),
    keeps(nn.Softsign, BTD, *POINTWISE, *RISING, oddness(), boundedness(low=-1.0, high=1.0)),
    keeps(nn.Tanh, BTD, *POINTWISE, *RISING, oddness(), boundedness(low=-1.0, high=1.0)),
    keeps(nn.Tanhshrink, BTD, *POINTWISE, *RISING, oddness()),
    keeps(P(nn.ReLU, inplace=True), BTD, determinism(), statelessness(), batch_independence(), *TOKENS),
    keeps(nn.GLU, BTD, *ROWS, *TOKENS),
    keeps(P(nn.Softmax, -1), BTD, *ROWS, *TOKENS, *PROBABLE),
    keeps(P(nn.Softmin, -1), BTD, *ROWS, *TOKENS, *PROBABLE),
    keeps(
        nn.Softmax2d,
        BCHW,
        *ROWS,
        sums_to_one(axis=1),
        non_negativity(),
        shift_invariance(axis=1),
        *positionwise_laws(2),
        *positionwise_laws(3),
    ),
    keeps(
        P(nn.LogSoftmax, -1),
        BTD,
        *ROWS,
        *TOKENS,
        shift_invariance(),
        permutation_equivariance(axis=2),
        boundedness(high=0.0),
    ),
    keeps(P(nn.LogSoftmax, -1), BTD, *PROBABLE, call=compose_with(torch.exp)),
]


def pools(d, inputs, large):
    """The poolings of d dimensions, given inputs of any size, and inputs larger than a window of two."""

    def kind(name):
        return getattr(nn, f"{name}{d}d")

    def there_and_back(module):
        pool = kind("MaxPool")(2, return_indices=True)
        return lambda x: module(*pool(x), output_size=x.shape)

    axes = range(2, 2 + d)
    unordered = [law for a in axes for law in (permutation_invariance(axis=a), reversal_invariance(axis=a))]
    reversed_alike = [reversal_equivariance(axis=a) for a in axes]
    return [
        keeps(P(kind("AvgPool"), 2), large, *ROWS, *LINEAR, *RISING),
        keeps(
            P(kind("AvgPool"), 3, 1, 1),
            large if d == 3 else inputs,
            *ROWS,
            *LINEAR,
            monotonicity(),
            *reversed_alike,
            *window(1, *axes),
        ),
        keeps(P(kind("MaxPool"), 2), large, *ROWS, *RISING, homogeneity(), convexity()),
        keeps(
            P(kind("MaxPool"), 3, 1, 1),
            inputs,
            *ROWS,
            homogeneity(),
            monotonicity(),
            *reversed_alike,
            *window(1, *axes),
        ),
        keeps(P(kind("MaxUnpool"), 2), large, *ROWS, homogeneity(), call=there_and_back),
        keeps(
            P(kind("LPPool"), 2.0, 2),
            large,
            *ROWS,
            homogeneity(),
            non_negativity(),
            evenness(),
            convexity(),
            lipschitz(),
        ),
        keeps(P(kind("AdaptiveAvgPool"), 1), inputs, *ROWS, *LINEAR, *unordered),
        keeps(P(kind("AdaptiveAvgPool"), 3), inputs, *ROWS, *LINEAR),
        keeps(P(kind("AdaptiveMaxPool"), 1), inputs, *ROWS, homogeneity(), *unordered),
        keeps(P(kind("AdaptiveMaxPool"), 3), inputs, *ROWS, homogeneity()),
    ]


# The pooling regions are random, also in eval mode.
FRACTIONAL = (no_mutation(), gradient(), batch_independence(), homogeneity())

POOLS = [
    *pools(1, BCT, LONG),
    *pools(2, BCHW, WIDE),
    *pools(3, BCTHW, shape("b 2 t:3..5 h:3..5 w:3..5")),
    keeps(P(nn.FractionalMaxPool2d, 2, output_size=3), shape("b 4 h:5..9 w:5..9"), *FRACTIONAL),
    keeps(P(nn.FractionalMaxPool3d, 2, output_size=3), shape("b 2 t:5..7 h:5..7 w:5..7"), *FRACTIONAL),
]

SHAPES = [
    keeps(nn.Flatten, BTD, *RESHAPES),
    keeps(P(nn.Unflatten, -1, (2, 4)), BTD, *RESHAPES, *TOKENS, invertibility(inverse=lambda y: y.flatten(2))),
    keeps(P(nn.Fold, (4, 4), (2, 2)), shape("b 8 9"), *RESHAPES),
    keeps(P(nn.Unfold, (2, 2)), shape("b 2 4 4"), *RESHAPES),
    keeps(P(nn.ChannelShuffle, 2), BCHW, *RESHAPES, *positionwise_laws(2), involution()),
    keeps(P(nn.PixelShuffle, 2), shape("b 8 h w"), *RESHAPES, invertibility(inverse=nn.PixelUnshuffle(2))),
    keeps(P(nn.PixelUnshuffle, 2), shape("b 4 6 8"), *RESHAPES, invertibility(inverse=nn.PixelShuffle(2))),
    keeps(P(nn.Upsample, scale_factor=2), BCHW, *RESHAPES),
    keeps(P(nn.Upsample, scale_factor=2, mode="linear", align_corners=True), BCT, *RESHAPES),
    keeps(P(nn.Upsample, size=(7, 5), mode="bicubic"), BCHW, *RESHAPES),
    keeps(P(nn.Upsample, scale_factor=2, mode="trilinear"), BCTHW, *RESHAPES),
    keeps(P(nn.UpsamplingBilinear2d, scale_factor=2), BCHW, *RESHAPES),
    keeps(P(nn.UpsamplingNearest2d, scale_factor=2), BCHW, *RESHAPES),
    *[
        keeps(P(pad, 1, **value), inputs, *RESHAPES, invertibility(inverse=inverse))
        for pads, value in (
            ((nn.ConstantPad1d, nn.ConstantPad2d, nn.ConstantPad3d), {"value": 0.0}),
            ((nn.ZeroPad1d, nn.ZeroPad2d, nn.ZeroPad3d), {}),
            ((nn.CircularPad1d, nn.CircularPad2d, nn.CircularPad3d), {}),
            ((nn.ReplicationPad1d, nn.ReplicationPad2d, nn.ReplicationPad3d), {}),
            ((nn.ReflectionPad1d, nn.ReflectionPad2d, nn.ReflectionPad3d), {}),
        )
        for pad, inputs, inverse in zip(
            pads,
            (LONG, WIDE, DEEP),
            (lambda y: y[..., 1:-1], lambda y: y[..., 1:-1, 1:-1], lambda y: y[..., 1:-1, 1:-1, 1:-1]),
            strict=True,
        )
    ],
    keeps(P(nn.ConstantPad1d, (2, -1), value=3.5), LONG, *ROWS),
]

RECURRENT = [
    *[keeps(P(kind, 8, 4, batch_first=True), BTD, *ROWS, causality(time=1)) for kind in (nn.RNN, nn.LSTM, nn.GRU)],
    keeps(P(nn.RNN, 8, 4, nonlinearity="relu", bias=False, batch_first=True), BTD, *ROWS, homogeneity()),
    keeps(P(nn.LSTM, 8, 4, num_layers=2, dropout=0.3, batch_first=True), BTD, *ROWS, causality(time=1)),
    keeps(P(nn.LSTM, 8, 4, proj_size=3, batch_first=True), BTD, *ROWS, causality(time=1)),
    keeps(P(nn.GRU, 8, 4, bidirectional=True, batch_first=True), BTD, *ROWS),
    keeps(P(nn.GRU, 8, 4), shape("t b 8"), *SMOOTH, batch_independence(batch=1), causality(time=0)),
    keeps(P(nn.RNNCell, 8, 4), (BC, shape("b 4")), *rows_of(0, 1)),
    keeps(P(nn.GRUCell, 8, 4), (BC, shape("b 4")), *rows_of(0, 1)),
    keeps(
        P(nn.LSTMCell, 8, 4),
        (BC, shape("b 4"), shape("b 4")),
        *rows_of(0, 1, 2),
        call=lambda m: lambda x, h, c: m(x, (h, c)),
    ),
]

ATTENTION = P(nn.MultiheadAttention, 8, 2, batch_first=True)
ENCODER = P(nn.TransformerEncoderLayer, 8, 2, 16, batch_first=True)
DECODER = P(nn.TransformerDecoderLayer, 8, 2, 16, batch_first=True)


def encoder(**options):
    return nn.TransformerEncoder(ENCODER(dropout=0.0), 2, **options)


MASKED = (masked_positions_have_no_influence(), padding_invariance(), ragged_batches())
HIDDEN = {"into": ("linear1.weight", "linear1.bias"), "out_of": "linear2.weight"}

ATTENDING = [
    keeps(ATTENTION, BTD, *ROWS, permutation_equivariance(axis=1), call=self_attention),
    keeps(P(ATTENTION, dropout=0.3), BTD, *ROWS, call=self_attention),
    keeps(
        ATTENTION,
        {"query": shape("b t 8"), "key": shape("b s 8"), "value": shape("b s 8")},
        *rows_of("query", "key", "value"),
        sums_to_one(output=1),
        non_negativity(output=1),
        permutation_invariance(axis=1, input=("key", "value")),
        permutation_equivariance(axis=1),
    ),
    keeps(ATTENTION, SEQUENCE, *CALM, *MASKED, call=self_attention_with_key_mask),
    keeps(
        P(ATTENTION, add_bias_kv=True, add_zero_attn=True, kdim=4, vdim=5),
        (shape("b t 8"), shape("b s 4"), shape("b s 5")),
        *rows_of(0, 1, 2),
        permutation_invariance(axis=1, input=(1, 2)),
    ),
    keeps(
        ATTENTION,
        BTD,
        *ROWS,
        causality(time=1),
        backend_agreement(),
        call=lambda m: lambda x: m(x, x, x, attn_mask=future(x), need_weights=False)[0],
    ),
    keeps(ENCODER, BTD, *ROWS),
    eval_row(
        ENCODER,
        BTD,
        *ROWS,
        permutation_equivariance(axis=1),
        reversal_equivariance(axis=1),
        backend_agreement(),
        hidden_unit_permutation(**HIDDEN),
        hidden_unit_rescaling(**HIDDEN),
    ),
    keeps(P(ENCODER, norm_first=True, dropout=0.0, activation="gelu"), BTD, *ROWS, permutation_equivariance(axis=1)),
    keeps(P(ENCODER, dropout=0.0), SEQUENCE, *CALM, *MASKED, call=with_source_mask),
    keeps(ENCODER, BTD, causality(time=1), call=lambda m: lambda x: m(x, src_mask=future(x), is_causal=True)),
    keeps(P(nn.TransformerEncoder, ENCODER(), 2), BTD, *ROWS),
    eval_row(P(nn.TransformerEncoder, ENCODER(), 2), BTD, *ROWS, permutation_equivariance(axis=1)),
    keeps(P(encoder, enable_nested_tensor=False), SEQUENCE, *CALM, *MASKED, call=with_source_mask),
    keeps(DECODER, PAIR, *rows_of(0, 1)),
    eval_row(DECODER, PAIR, permutation_equivariance(axis=1), permutation_invariance(axis=1, input=1)),
    keeps(P(nn.TransformerDecoder, DECODER(), 2), PAIR, *rows_of(0, 1)),
    eval_row(
        P(nn.TransformerDecoder, DECODER(), 2), PAIR, permutation_equivariance(axis=1), permutation_invariance(input=1)
    ),
    keeps(
        P(nn.Transformer, 8, 2, 1, 1, 16, batch_first=True),
        PAIR,
        *rows_of(0, 1),
        causality(time=1, input=1),
        call=lambda m: lambda x, y: m(x, y, tgt_mask=future(y)),
    ),
    eval_row(P(nn.Transformer, 8, 2, 1, 1, 16, batch_first=True), PAIR, permutation_invariance(axis=1)),
]

DISTANCES = [
    keeps(
        P(nn.CosineSimilarity, dim=-1),
        (BTD, BTD),
        *rows_of(0, 1),
        permutation_equivariance(axis=1, input=(0, 1)),
        commutativity(),
        boundedness(low=-1.0, high=1.0, input=(0, 1)),
    ),
    keeps(P(nn.PairwiseDistance, eps=0.0), (BC, BC), *rows_of(0, 1), metric()),
    keeps(
        nn.PairwiseDistance,
        (BC, BC),
        *rows_of(0, 1),
        non_negativity(input=(0, 1)),
        permutation_invariance(axis=1, input=(0, 1)),
    ),
]


def loss(make, inputs, *laws, call=call_module):
    """A loss, which is a mean over the samples, and the losses of the samples one by one."""
    every = tuple(range(len(inputs)))
    return [
        keeps(
            make,
            inputs,
            *SMOOTH,
            permutation_invariance(axis=0, input=every),
            gradient_accumulation(),
            mean_over_samples(),
            *laws,
            call=call,
        ),
        keeps(P(make, reduction="none"), inputs, *rows_of(*every), call=call),
    ]


def above(inputs):
    return non_negativity(input=tuple(range(len(inputs))))


TWO, THREE = (BC, BC), (BC, BC, BC)
CLASSES = (BC, LABELS)

LOSSES = [
    *[
        row
        for make in (nn.L1Loss, nn.MSELoss, nn.HuberLoss, nn.SmoothL1Loss)
        for row in loss(
            make, TWO, above(TWO), permutation_invariance(axis=1, input=(0, 1)), commutativity(), convexity()
        )
    ],
    *loss(nn.L1Loss, TWO, metric()),
    *loss(nn.MSELoss, TWO, agreement(other=lambda x, y: (x - y).square().mean())),
    *loss(nn.BCELoss, TWO, above(TWO), call=after(probability, probability)),
    *loss(nn.BCEWithLogitsLoss, TWO, convexity(), call=after(None, probability)),
    *loss(nn.CrossEntropyLoss, CLASSES, above(CLASSES), shift_invariance(), convexity()),
    *loss(P(nn.CrossEntropyLoss, label_smoothing=0.1), CLASSES, above(CLASSES), shift_invariance(), convexity()),
    *loss(nn.CrossEntropyLoss, TWO, shift_invariance(), call=after(None, probabilities)),
    *loss(P(nn.LinearCrossEntropyLoss, 8, 5), (BC, tokens("b", vocab_size=5)), above(TWO)),
    *loss(nn.NLLLoss, CLASSES, *LINEAR),
    *loss(P(nn.KLDivLoss, reduction="batchmean"), TWO, above(TWO), call=after(log_probabilities, probabilities)),
    *loss(
        P(nn.KLDivLoss, log_target=True, reduction="batchmean"),
        TWO,
        above(TWO),
        call=after(log_probabilities, log_probabilities),
    ),
    *loss(nn.PoissonNLLLoss, TWO, call=after(torch.tanh, torch.square)),
    # Counts of two and more: at a count of zero its gradient by the count is NaN (docs/found.md).
    *loss(
        P(nn.PoissonNLLLoss, log_input=False, full=True),
        TWO,
        call=after(lambda x: x.square() + 1, lambda x: x.square() + 2),
    ),
    *loss(nn.GaussianNLLLoss, THREE, convexity(), call=after(None, None, lambda v: v.square() + 1)),
    *loss(nn.SoftMarginLoss, (BC, BITS), above(TWO), convexity(), call=after(lambda x: x / 10, signs)),
    *loss(nn.HingeEmbeddingLoss, (BC, BITS), convexity(), call=after(None, signs)),
    *loss(nn.MultiLabelMarginLoss, (BC, tokens("b 8", vocab_size=8)), above(TWO), convexity()),
    *loss(nn.MultiLabelSoftMarginLoss, (BC, BITS), above(TWO), convexity(), call=after(None, real)),
    *loss(nn.MultiMarginLoss, CLASSES, above(CLASSES), shift_invariance(), convexity()),
    *loss(
        nn.MarginRankingLoss,
        (shape("b"), shape("b"), tokens("b", vocab_size=2)),
        above(THREE),
        call=after(None, None, signs),
    ),
    *loss(nn.CosineEmbeddingLoss, (BC, BC, tokens("b", vocab_size=2)), above(THREE), call=after(None, None, signs)),
    *loss(nn.TripletMarginLoss, THREE, above(THREE)),
    *loss(nn.TripletMarginWithDistanceLoss, THREE, above(THREE)),
    *loss(
        nn.CTCLoss,
        (shape("b t:6..12 5"), tokens("b 3", vocab_size=4)),
        above(TWO),
        call=lambda m: (
            lambda x, y: m(x.log_softmax(-1).transpose(0, 1), y + 1, [x.shape[1]] * len(x), [y.shape[1]] * len(x))
        ),
    ),
    keeps(
        P(nn.AdaptiveLogSoftmaxWithLoss, 8, 12, cutoffs=[4, 8], div_value=2.0),
        (BC, tokens("b", vocab_size=12)),
        *rows_of(0, 1),
        non_negativity(input=(0, 1), output="loss"),
        permutation_invariance(axis=0, input=(0, 1), output="loss"),
    ),
    keeps(
        P(nn.AdaptiveLogSoftmaxWithLoss, 8, 12, cutoffs=[4, 8], div_value=2.0),
        BC,
        *ROWS,
        sums_to_one(),
        non_negativity(),
        call=lambda m: lambda x: m.log_prob(x).exp(),
    ),
]

TABLE = [
    *LINEAR_MAPS,
    *CONVOLUTIONS,
    *NORMS,
    *DROPOUTS,
    *ACTIVATIONS,
    *POOLS,
    *SHAPES,
    *RECURRENT,
    *ATTENDING,
    *DISTANCES,
    *LOSSES,
]

NO_MAP = "it does not define forward"
EXCLUDED = {
    "Module": NO_MAP,
    "Container": NO_MAP,
    "ModuleDict": NO_MAP,
    "ModuleList": NO_MAP,
    "ParameterDict": NO_MAP,
    "ParameterList": NO_MAP,
    "RNNBase": "what RNN, LSTM and GRU have in common",
    "RNNCellBase": "base class of the cells",
    "Sequential": "container; the awkward maps have some",
    "NLLLoss2d": "an old name of NLLLoss, which warns",
    **{name: "its first call makes it a layer of the table" for name in dir(nn) if name.startswith("Lazy")},
}


def test_every_torch_layer_is_covered():
    public = {name for name, kind in vars(nn).items() if inspect.isclass(kind) and issubclass(kind, nn.Module)}
    judged = {row.kind.__name__ for row in TABLE}
    assert public - judged == set(EXCLUDED) & public


projections = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN:UserWarning")


def build_row(row):
    """Builds the map of a row, and its laws including the laws of any module."""
    torch.manual_seed(0)
    module = row.make().train(row.training)
    laws = row.laws
    if row.training and row.call is call_module:
        laws += MODULES
    if any(True for _ in module.parameters()):
        laws += PARAMETERS
    if any(True for _ in module.buffers()):
        laws += (no_buffer_change(),)
    return row.call(module), laws


@projections
@pytest.mark.parametrize(("n", "row"), [pytest.param(n, row, id=row.name) for n, row in enumerate(TABLE)])
def test_a_layer_satisfies_one_of_its_laws(n, row):
    f, laws = build_row(row)
    assert_held(f, select_laws(laws, n, count=1), row.inputs, 20)


@projections
@pytest.mark.long
@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in TABLE])
def test_a_layer_satisfies_its_laws(row):
    f, laws = build_row(row)
    assert_held(f, laws, row.inputs, 200)
