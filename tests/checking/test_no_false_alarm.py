"""What is true is not refuted: the layers of PyTorch, and maps that are correct but awkward."""

import functools
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

import lawful
from lawful import mask, shape, tokens
from lawful.laws import (
    Draw,
    Map,
    Same,
    agreement,
    batch_independence,
    causality,
    determinism,
    equivariance,
    gradient,
    homogeneity,
    invariance,
    law,
    linearity,
    locality,
    masked_positions_have_no_influence,
    no_mutation,
    non_negativity,
    padding_invariance,
    permutation_equivariance,
    permutation_invariance,
    purity,
    scale_invariance,
    shift_invariance,
    sums_to_one,
    translation_equivariance,
)

how_many = pytest.mark.parametrize("cases", [20, pytest.param(200, marks=pytest.mark.long)])


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def assert_held(target, laws, inputs, cases, grade="held"):
    report = lawful.check(target, *laws, inputs=inputs, cases=cases)
    wrong = [v for v in report if v.grade != grade]
    assert not wrong, "\n\n".join(f"{v}\n{v.trace}" for v in wrong)


# ---------------------------------------------------------------- layers

CALM = (determinism(), purity(), no_mutation())
ROWS = (*CALM, batch_independence(), gradient())
TOKENS = (permutation_equivariance(axis=1), causality(time=1))
LINEAR = (linearity(), homogeneity())

BTD, BCT, BC, BCHW = shape("b t 8"), shape("b 4 t"), shape("b 8"), shape("b 4 h w")
LONG = shape("b 4 t:2..20")
BOTH, EVAL, TRAIN, RARE = (False, True), (False,), (True,), ()


def as_given(module):
    return module


def first(module):
    return lambda *xs: module(*xs)[0]


def to_itself(module):
    return lambda x: module(x, x, x)[0]


def keys_masked(module):
    return lambda x, m: module(x, x, x, key_padding_mask=~m)[0]


def src_masked(module):
    return lambda x, m: module(x, src_key_padding_mask=~m)


def future(x):
    return torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)


def layer(name, make, inputs, *laws, modes=BOTH, call=as_given):
    """The layer in its modes; a rare one by the long tests only. What speaks of evaluation is judged in evaluation."""
    rows = []
    for training in modes or EVAL:
        judged = [x for x in laws if not (training and modes == BOTH and x.name in ("determinism", "purity"))]
        word, marks = "train" if training else "eval", () if modes else pytest.mark.long
        rows.append(pytest.param(make, call, training, inputs, judged, id=f"{name}-{word}", marks=marks))
    return rows


ATTENTION = functools.partial(nn.MultiheadAttention, 8, 2, batch_first=True)
ENCODER = functools.partial(nn.TransformerEncoderLayer, 8, 2, 16, batch_first=True)
DECODER = functools.partial(nn.TransformerDecoderLayer, 8, 2, 16, batch_first=True)
PAIR = (shape("b t 8"), shape("b s 8"))
CROSS = {"query": shape("b t 8"), "key": shape("b s 8"), "value": shape("b s 8")}

LAYERS = [
    *layer("linear", lambda: nn.Linear(8, 6), BTD, *ROWS, *TOKENS),
    *layer("linear-no-bias", lambda: nn.Linear(8, 6, bias=False), BTD, *LINEAR),
    *layer(
        "bilinear",
        lambda: nn.Bilinear(4, 5, 3, bias=False),
        (shape("b 4"), shape("b 5")),
        *CALM,
        batch_independence(input=(0, 1)),
        gradient(input=(0, 1)),
        linearity(input=0),
        linearity(input=1),
        homogeneity(input=1),
    ),
    *layer(
        "conv1d",
        lambda: nn.Conv1d(4, 3, 3, padding=1),
        BCT,
        *ROWS,
        translation_equivariance(border=1),
        locality(radius=1, axis=-1),
    ),
    *layer(
        "conv1d-circular",
        lambda: nn.Conv1d(4, 3, 3, padding=1, padding_mode="circular", bias=False),
        BCT,
        *ROWS,
        *LINEAR,
        translation_equivariance(),
    ),
    *layer(
        "conv1d-dilated",
        lambda: nn.Conv1d(4, 4, 3, padding=4, dilation=4, groups=4),
        BCT,
        *ROWS,
        translation_equivariance(border=4),
        locality(radius=4, axis=-1),
        modes=RARE,
    ),
    *layer(
        "conv1d-causal",
        lambda: nn.Sequential(nn.ConstantPad1d((2, 0), 0.0), nn.Conv1d(4, 3, 3)),
        BCT,
        *ROWS,
        causality(time=2),
    ),
    *layer(
        "conv2d",
        lambda: nn.Conv2d(4, 3, 3, padding=1),
        BCHW,
        *ROWS,
        translation_equivariance(axis=2, border=1),
        locality(radius=1, axis=3),
    ),
    *layer(
        "conv2d-strided", lambda: nn.Conv2d(4, 3, 2, stride=2, bias=False), shape("b 4 6 6"), *ROWS, *LINEAR, modes=RARE
    ),
    *layer("conv3d", lambda: nn.Conv3d(2, 3, 3, padding=1), shape("b 2 t 3 3"), *ROWS, modes=RARE),
    *layer(
        "conv-transpose1d",
        lambda: nn.ConvTranspose1d(4, 3, 3, padding=1, bias=False),
        BCT,
        *ROWS,
        *LINEAR,
        translation_equivariance(border=1),
    ),
    *layer("layer-norm", lambda: nn.LayerNorm(8), BTD, *ROWS, *TOKENS, shift_invariance()),
    *layer(
        "layer-norm-eps-0", lambda: nn.LayerNorm(8, eps=0.0), BTD, shift_invariance(), scale_invariance(), modes=RARE
    ),
    *layer("rms-norm", lambda: nn.RMSNorm(8), BTD, *ROWS, *TOKENS),
    *layer(
        "rms-norm-eps-0", lambda: nn.RMSNorm(8, eps=0.0), BTD, scale_invariance(), homogeneity(degree=0.0), modes=RARE
    ),
    *layer("group-norm", lambda: nn.GroupNorm(2, 4), BCT, *ROWS, permutation_equivariance(axis=2)),
    *layer(
        "instance-norm",
        lambda: nn.InstanceNorm1d(4),
        LONG,
        *ROWS,
        shift_invariance(),
        permutation_equivariance(axis=2),
    ),
    *layer("batch-norm", lambda: nn.BatchNorm1d(8), BC, *ROWS, modes=EVAL),
    *layer(
        "batch-norm",
        lambda: nn.BatchNorm1d(8),
        shape("b:2..9 8"),
        *CALM,
        gradient(),
        permutation_equivariance(axis=0),
        modes=TRAIN,
    ),
    *layer("batch-norm-2d", lambda: nn.BatchNorm2d(4), BCHW, *ROWS, locality(radius=0, axis=3), modes=EVAL),
    *layer("batch-norm-2d", lambda: nn.BatchNorm2d(4), shape("b:2..5 4 h w"), *CALM, gradient(), modes=TRAIN),
    *layer(
        "local-response-norm", lambda: nn.LocalResponseNorm(2), BCT, *ROWS, permutation_equivariance(axis=2), modes=RARE
    ),
    *layer("embedding", lambda: nn.Embedding(10, 4), tokens("b t", vocab=10), *ROWS, *TOKENS),
    *layer(
        "embedding-bag",
        lambda: nn.EmbeddingBag(10, 4),
        tokens("b t", vocab=10),
        *ROWS,
        permutation_invariance(axis=1),
    ),
    *layer("dropout", lambda: nn.Dropout(0.5), BTD, *ROWS, *LINEAR, causality(time=1)),
    *layer("alpha-dropout", lambda: nn.AlphaDropout(0.5), BTD, *ROWS),
    *layer("attention", ATTENTION, BTD, *ROWS, permutation_equivariance(axis=1), call=to_itself),
    *layer(
        "attention-weights",
        ATTENTION,
        CROSS,
        *CALM,
        sums_to_one(output=1),
        non_negativity(output=1),
        permutation_invariance(axis=1, input=("key", "value")),
        batch_independence(input=("query", "key", "value")),
    ),
    *layer(
        "attention-masked",
        ATTENTION,
        (BTD, mask("b t")),
        masked_positions_have_no_influence(),
        padding_invariance(),
        call=keys_masked,
    ),
    *layer(
        "attention-causal",
        ATTENTION,
        BTD,
        *ROWS,
        causality(time=1),
        call=lambda m: lambda x: m(x, x, x, attn_mask=future(x), need_weights=False)[0],
    ),
    *layer("attention-dropout", lambda: ATTENTION(dropout=0.3), BTD, *ROWS, call=to_itself, modes=TRAIN),
    *layer("encoder-layer", ENCODER, BTD, *ROWS, permutation_equivariance(axis=1), modes=EVAL),
    *layer("encoder-layer", ENCODER, BTD, *ROWS, modes=TRAIN),
    *layer("encoder-layer-norm-first", lambda: ENCODER(norm_first=True, dropout=0.0), BTD, *ROWS),
    *layer(
        "encoder-layer-masked",
        lambda: ENCODER(dropout=0.0),
        (BTD, mask("b t")),
        masked_positions_have_no_influence(),
        padding_invariance(),
        call=src_masked,
    ),
    *layer(
        "encoder-layer-causal",
        ENCODER,
        BTD,
        causality(time=1),
        call=lambda m: lambda x: m(x, src_mask=future(x), is_causal=True),
    ),
    *layer(
        "decoder-layer",
        DECODER,
        PAIR,
        *CALM,
        batch_independence(input=(0, 1)),
        gradient(input=(0, 1)),
    ),
    *layer(
        "decoder-layer-permuted",
        DECODER,
        PAIR,
        permutation_equivariance(axis=1),
        permutation_invariance(axis=1, input=1),
        modes=EVAL,
    ),
    *layer("gru", lambda: nn.GRU(8, 4, batch_first=True), BTD, *ROWS, causality(time=1)),
    *layer("lstm", lambda: nn.LSTM(8, 4, batch_first=True), BTD, *ROWS, causality(time=1)),
    *layer("rnn", lambda: nn.RNN(8, 4, batch_first=True), BTD, *ROWS, causality(time=1, output=0)),
    *layer(
        "lstm-stacked",
        lambda: nn.LSTM(8, 4, num_layers=2, dropout=0.3, batch_first=True),
        BTD,
        *CALM,
        batch_independence(),
        causality(time=1),
    ),
    *layer("gru-both-ways", lambda: nn.GRU(8, 4, bidirectional=True, batch_first=True), BTD, *ROWS, modes=RARE),
    *layer("lstm-cell", lambda: nn.LSTMCell(8, 4), BC, *ROWS, modes=RARE),
    *layer("gelu", nn.GELU, BTD, *ROWS, *TOKENS),
    *layer("silu", nn.SiLU, BTD, *ROWS, *TOKENS),
    *layer("mish", nn.Mish, BTD, *ROWS, modes=RARE),
    *layer("relu", nn.ReLU, BTD, *ROWS, *TOKENS, homogeneity(), non_negativity()),
    *layer("relu-6", nn.ReLU6, BTD, *ROWS, non_negativity(), modes=RARE),
    *layer("leaky-relu", nn.LeakyReLU, BTD, *ROWS, homogeneity(), modes=RARE),
    *layer("prelu", nn.PReLU, BTD, *ROWS, *TOKENS, homogeneity()),
    *layer("hardtanh", nn.Hardtanh, BTD, *ROWS, *TOKENS),
    *layer("hardswish", nn.Hardswish, BTD, *ROWS, modes=RARE),
    *layer("elu", nn.ELU, BTD, *ROWS, modes=RARE),
    *layer("softplus", nn.Softplus, BTD, *ROWS, non_negativity(), modes=RARE),
    *layer("softshrink", nn.Softshrink, BTD, *ROWS, modes=RARE),
    *layer("sigmoid", nn.Sigmoid, BTD, *ROWS, non_negativity(), modes=RARE),
    *layer("tanh", nn.Tanh, BTD, *ROWS, modes=RARE),
    *layer("glu", nn.GLU, BTD, *ROWS, *TOKENS, modes=RARE),
    *layer(
        "softmax",
        lambda: nn.Softmax(-1),
        BTD,
        *ROWS,
        *TOKENS,
        sums_to_one(),
        non_negativity(),
        shift_invariance(),
        permutation_equivariance(axis=2),
    ),
    *layer("log-softmax", lambda: nn.LogSoftmax(-1), BTD, *ROWS, *TOKENS, shift_invariance()),
    *layer(
        "log-softmax-exp",
        lambda: nn.LogSoftmax(-1),
        BTD,
        sums_to_one(),
        call=lambda m: lambda x: m(x).exp(),
        modes=RARE,
    ),
    *layer("max-pool", lambda: nn.MaxPool1d(2), LONG, *ROWS, homogeneity()),
    *layer(
        "max-pool-same",
        lambda: nn.MaxPool1d(3, stride=1, padding=1),
        BCT,
        locality(radius=1, axis=-1),
        translation_equivariance(border=1),
        modes=RARE,
    ),
    *layer("avg-pool", lambda: nn.AvgPool1d(2), LONG, *ROWS, *LINEAR),
    *layer("adaptive-avg-pool", lambda: nn.AdaptiveAvgPool1d(1), BCT, *ROWS, permutation_invariance(axis=2), *LINEAR),
    *layer(
        "adaptive-max-pool", lambda: nn.AdaptiveMaxPool1d(1), BCT, *ROWS, permutation_invariance(axis=2), modes=RARE
    ),
    *layer("pixel-shuffle", lambda: nn.PixelShuffle(2), shape("b 8 h w"), *ROWS, *LINEAR),
    *layer("channel-shuffle", lambda: nn.ChannelShuffle(2), BCHW, *ROWS, *LINEAR, modes=RARE),
    *layer("upsample", lambda: nn.Upsample(scale_factor=2, mode="bilinear"), BCHW, *ROWS, *LINEAR, modes=RARE),
    *layer("reflection-pad", lambda: nn.ReflectionPad1d(1), LONG, *ROWS, *LINEAR, modes=RARE),
    *layer("fold", lambda: nn.Fold((4, 4), (2, 2)), shape("b 8 9"), *ROWS, *LINEAR, modes=RARE),
    *layer("unfold", lambda: nn.Unfold((2, 2)), shape("b 2 4 4"), *ROWS, *LINEAR, modes=RARE),
    *layer("flatten", nn.Flatten, BTD, *ROWS, *LINEAR),
    *layer("unflatten", lambda: nn.Unflatten(-1, (2, 4)), BTD, *ROWS, *LINEAR, modes=RARE),
    *layer("identity", nn.Identity, BTD, *ROWS, *TOKENS, *LINEAR, translation_equivariance(axis=1)),
    *layer(
        "cosine-similarity",
        lambda: nn.CosineSimilarity(dim=-1),
        (BTD, BTD),
        *CALM,
        batch_independence(input=(0, 1)),
        permutation_equivariance(axis=1, input=(0, 1)),
        agreement(other=lambda x, y: F.cosine_similarity(y, x, dim=-1)),
    ),
    *layer(
        "pairwise-distance",
        nn.PairwiseDistance,
        (BC, BC),
        *CALM,
        batch_independence(input=(0, 1)),
        non_negativity(input=(0, 1)),
        modes=RARE,
    ),
    *layer("mse-loss", nn.MSELoss, (BC, BC), *CALM, non_negativity(input=(0, 1)), gradient(input=(0, 1)), modes=RARE),
    *layer(
        "cross-entropy",
        nn.CrossEntropyLoss,
        (BC, tokens("b", vocab=8)),
        *CALM,
        gradient(),
        shift_invariance(),
        modes=RARE,
    ),
]


@how_many
@pytest.mark.parametrize(("make", "call", "training", "inputs", "laws"), LAYERS)
def test_a_layer_of_pytorch_keeps_its_laws(make, call, training, inputs, laws, cases):
    assert_held(call(make().train(training)), laws, inputs, cases)


# ---------------------------------------------------------------- awkward maps


def awkward(name, make, inputs, *laws, grade="held"):
    return pytest.param(make, inputs, laws, grade, id=name)


class Scaled(nn.Module):
    """A linear layer without bias, times a factor: in its weights, or after it."""

    def __init__(self, factor, inside):
        super().__init__()
        self.linear, self.factor = nn.Linear(8, 8, bias=False), 1.0 if inside else factor
        if inside:
            self.linear.weight.data *= factor

    def forward(self, x):
        return self.linear(x) * self.factor


def cut_down(inner):
    """Computes in float32, whatever comes."""
    return lambda *xs: inner(*(x.float() for x in xs)).to(xs[0].dtype)


def fused(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


def plain(q, k, v):
    return (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) @ v


def online(q, k, v):
    """Attention block by block, with a running maximum and sum."""
    top, total, y = None, 0.0, 0.0
    for ks, vs in zip(k.split(512, 1), v.split(512, 1), strict=True):
        scores = q @ ks.mT / math.sqrt(q.shape[-1])
        new = scores.amax(-1, keepdim=True) if top is None else torch.maximum(top, scores.amax(-1, keepdim=True))
        old = 0.0 if top is None else (top - new).exp()
        weights = (scores - new).exp()
        total, y, top = total * old + weights.sum(-1, keepdim=True), y * old + weights @ vs, new
    return y / total


MANY_KEYS = (shape("1 2 8"), shape("1 4096 8"), shape("1 4096 8"))


class Experts(nn.Module):
    """Routes each token to its best two of four experts."""

    def __init__(self, d=8):
        super().__init__()
        self.gate = nn.Linear(d, 4)
        self.experts = nn.ModuleList(nn.Linear(d, d) for _ in range(4))

    def forward(self, x):
        weights, chosen = self.gate(x).softmax(-1).topk(2, dim=-1)
        y = torch.zeros_like(x)
        for n, expert in enumerate(self.experts):
            y = y + ((chosen == n) * weights).sum(-1, keepdim=True) * expert(x)
        return y


class GatheredExperts(Experts):
    """The same, gathering the tokens of each expert: the sizes of the products depend on the routing of all."""

    def forward(self, x):
        flat = x.flatten(0, 1)
        weights, chosen = self.gate(flat).softmax(-1).topk(2, dim=-1)
        y = torch.zeros_like(flat)
        for n, expert in enumerate(self.experts):
            token, slot = (chosen == n).nonzero(as_tuple=True)
            y = y.index_add(0, token, weights[token, slot, None] * self.answer(expert, flat[token]))
        return y.reshape(x.shape)

    def answer(self, expert, x):
        return expert(x)


class GatheredInFloat32(GatheredExperts):
    def answer(self, expert, x):
        return F.linear(x.float(), expert.weight.float()).to(x.dtype)


class GatheredMinusDense(GatheredExperts):
    """Zero, but for rounding."""

    def forward(self, x):
        return super().forward(x) - Experts.forward(self, x)


def rotate_half(x, position):
    """Rotary embedding of (..., t, 8) at positions (t,)."""
    rate = 10000.0 ** (-torch.arange(0, 8, 2, dtype=x.dtype) / 8)
    angle = position.to(x.dtype)[:, None] * rate
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()), -1).flatten(-2)


def rotary_scores(q, k, offset=0):
    at = torch.arange(q.shape[-2]) + offset
    return rotate_half(q, at) @ rotate_half(k, at).mT


@law("⟨R_{s+n} q, R_{t+n} k⟩ = ⟨R_s q, R_t k⟩")
def relative_position_only(f: Map, q, k, *, draw: Draw):
    """Moving all positions changes no score."""
    return Same(f(q, k), f.other(functools.partial(f.target, offset=draw.choice((1, 1000, 10**6))))(q, k))


class Rotary(nn.Module):
    """Rotary scores from tables that are filled when a longer sequence comes."""

    def __init__(self, offset=0):
        super().__init__()
        self.offset, self.tables = offset, None

    def forward(self, q, k):
        n = q.shape[-2]
        if self.tables is None or self.tables[0].shape[0] < n:
            rate = 10000.0 ** (-torch.arange(0, 8, 2) / 8)
            angle = (torch.arange(n) + self.offset)[:, None] * rate
            self.tables = angle.cos(), angle.sin()
        cos, sin = (table[:n].to(q.dtype) for table in self.tables)

        def turn(x):
            a, b = x[..., ::2], x[..., 1::2]
            return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)

        return turn(q) @ turn(k).mT


def variance_of_squares(x):
    return (x * x).mean(-1) - x.mean(-1) ** 2


def norm_of_squares(x):
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt((x * x).mean(-1, keepdim=True) - x.mean(-1, keepdim=True) ** 2 + 1e-5)


def rotation(draw):
    q, r = torch.linalg.qr(draw.normal(3, 3))
    return q * r.diagonal().sign()


def turned(g, x):
    return x @ g.mT


class Points(nn.Module):
    """Moves points along their differences, weighted by a function of the distance: equivariant."""

    def __init__(self, cast="none"):
        super().__init__()
        self.weight, self.cast = nn.Sequential(nn.Linear(1, 8), nn.SiLU(), nn.Linear(8, 1)), cast

    def message(self, x):
        apart = x[:, :, None] - x[:, None]
        return (apart * self.weight(apart.square().sum(-1, keepdim=True))).mean(2)

    def forward(self, x):
        if self.cast == "none":
            return x + self.message(x)
        single = self.single(x)
        return single if self.cast == "all" else x + single

    def single(self, x):
        y = x.float()
        apart = y[:, :, None] - y[:, None]
        squares = apart.square().sum(-1, keepdim=True)
        return (apart / (1 + squares)).mean(2).to(x.dtype)


ROTATED = equivariance(sample=rotation, act=turned)
POINTS = shape("b n:1..12 3")


class HeldConstants(nn.Module):
    """Keeps float32 constants in a plain attribute, a list and a dict."""

    def __init__(self):
        super().__init__()
        self.scale = torch.rand(8)
        self.steps = [torch.rand(8), torch.rand(8)]
        self.table = {"shift": torch.rand(8)}

    def forward(self, x):
        return (x * self.scale + self.steps[0]) * self.steps[1] + self.table["shift"]


class Viewed(nn.Module):
    def forward(self, x):
        return x.view(x.shape[0], -1).view(x.shape) * 2


class Tied(nn.Module):
    """A token model whose output projection is its embedding."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 8)
        self.mix = nn.GRU(8, 8, batch_first=True)
        self.out = nn.Linear(8, 10, bias=False)
        self.out.weight = self.embedding.weight

    def forward(self, ids):
        return self.out(self.mix(self.embedding(ids))[0])


class Scores(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return {"logits": self.linear(x), "hidden": x}

    def score(self, x, scale=1.0):
        return self.linear(x) * scale


class Holder:
    """No module itself, but one that holds a model."""

    def __init__(self, model):
        self.model = model

    def predict(self, x):
        return self.model(x)


def closing_over(holder):
    return lambda x: holder.predict(x)


def by_default(module):
    return lambda x, layer=module: layer(x)


class MovingAverage(nn.Module):
    """Subtracts a moving average, which training updates through `.data`."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.rand(8))

    def forward(self, x):
        y = x - self.mean
        if self.training:
            self.mean.data.lerp_(x.detach().to(self.mean).mean((0, 1)), 0.1)
        return y


class FixedAverage(nn.Module):
    """A mean whose weights are a frozen parameter."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.full((4,), 0.25), requires_grad=False)

    def forward(self, x):
        return torch.einsum("bnd,n->bd", x, self.weight)


class ComplexWeight(nn.Module):
    """A circular convolution, by a complex parameter on its spectrum."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, dtype=torch.complex64))

    def forward(self, x):
        return torch.fft.irfft(torch.fft.rfft(x) * self.weight, n=8)


class Force(nn.Module):
    """The gradient of an energy."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            energy = self.weight((x[:, :, None] - x[:, None]).square().sum(-1, keepdim=True)).sum()
            return -torch.autograd.grad(energy, x)[0]


def causal_by_float32_mask(x):
    past = torch.ones(x.shape[1], x.shape[1], dtype=torch.float32).tril()
    return (x @ x.mT).masked_fill(past == 0, -torch.inf).softmax(-1) @ x


def relu_network():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))


def low(module):
    return module.to(torch.bfloat16)


SCALED = (*LINEAR, batch_independence(), gradient(), permutation_equivariance(axis=1), causality(time=1))
ROUTED = (*CALM, batch_independence(), permutation_equivariance(axis=1), causality(time=1))
FEW = (purity(), batch_independence(), gradient())
SETS = (batch_independence(), permutation_equivariance(axis=1))

AWKWARD = [
    *[
        awkward(f"linear-times-{factor:g}-{place}", functools.partial(Scaled, factor, place == "inside"), BTD, *SCALED)
        for factor in (1e5, 1e-6)
        for place in ("inside", "after")
    ],
    awkward("attention-4096-fused", lambda: fused, MANY_KEYS, agreement(other=plain)),
    awkward("attention-4096-online", lambda: online, MANY_KEYS, agreement(other=fused)),
    awkward("attention-4096-permuted", lambda: plain, MANY_KEYS, permutation_invariance(axis=1, input=(1, 2))),
    awkward("attention-4096-float32", lambda: cut_down(plain), MANY_KEYS, agreement(other=cut_down(fused))),
    awkward("attention-4096-float32-64", lambda: cut_down(plain), MANY_KEYS, agreement(other=fused)),
    awkward(
        "attention-4096-float32-permuted",
        lambda: cut_down(fused),
        MANY_KEYS,
        permutation_invariance(axis=1, input=(1, 2)),
    ),
    awkward("experts", Experts, BTD, *ROUTED),
    awkward("experts-gathered", GatheredExperts, BTD, *ROUTED),
    awkward("experts-gathered-float32", lambda: GatheredInFloat32(64), shape("b t 64"), *ROUTED),
    awkward("experts-gathered-minus-dense", GatheredMinusDense, BTD, *ROUTED),
    awkward("layer-norm-level", lambda: nn.LayerNorm(8), BTD, shift_invariance(), *SETS),
    awkward("layer-norm-level-eps-0", lambda: nn.LayerNorm(8, eps=0.0), BTD, shift_invariance(), *SETS),
    awkward("norm-of-squares", lambda: norm_of_squares, BTD, shift_invariance(), *SETS),
    awkward("variance-of-squares", lambda: variance_of_squares, BTD, shift_invariance(), *SETS),
    awkward("variance-non-negative", lambda: variance_of_squares, BTD, non_negativity()),
    awkward("rotary", lambda: rotary_scores, (BTD, BTD), relative_position_only(input=(0, 1))),
    awkward(
        "rotary-10^6",
        lambda: functools.partial(rotary_scores, offset=10**6),
        (BTD, BTD),
        agreement(other=rotary_scores),
    ),
    awkward(
        "rotary-10^6-float32",
        lambda: cut_down(functools.partial(rotary_scores, offset=10**6)),
        (BTD, BTD),
        agreement(other=cut_down(rotary_scores)),
        grade="vacuous",  # a tenth of a radian is lost
    ),
    awkward("rotary-cached", Rotary, (BTD, BTD), *CALM, agreement(other=rotary_scores)),
    awkward("rotary-cached-10^6", lambda: Rotary(10**6), (BTD, BTD), *CALM, agreement(other=rotary_scores)),
    awkward("points", Points, POINTS, ROTATED, *SETS),
    awkward("points-float32", lambda: Points("all"), POINTS, ROTATED, *SETS),
    awkward("points-float32-beside-residual", lambda: Points("branch"), POINTS, ROTATED, *SETS),
    awkward("float32-linear", lambda: cut_down(lambda x: x.cumsum(-1)), BTD, linearity(), homogeneity()),
    awkward("logsumexp", lambda: lambda x: x.logsumexp(-1), BTD, *SETS, permutation_invariance(axis=2)),
    awkward(
        "logsumexp-by-hand",
        lambda: lambda x: (x - x.amax(-1, keepdim=True)).exp().sum(-1).log() + x.amax(-1),
        BTD,
        permutation_invariance(axis=2),
        gradient(),
    ),
    awkward("sort", lambda: lambda x: x.sort(-1).values, BTD, permutation_invariance(axis=2), homogeneity(), *SETS),
    awkward("median", lambda: lambda x: x.median(-1).values, BTD, permutation_invariance(axis=2), homogeneity()),
    awkward("argmax", lambda: lambda x: x.argmax(-1), BTD, *SETS, *CALM),
    awkward("argmax-of-layer", lambda: lambda_of(nn.Linear(8, 5), lambda y: y.argmax(-1)), BTD, *SETS),
    awkward("argsort", lambda: lambda x: x.argsort(-1), BTD, batch_independence(), causality(time=1)),
    awkward("round", lambda: torch.round, BTD, *SETS, *CALM),
    awkward("round-of-layer", lambda: lambda_of(nn.Linear(8, 5), torch.round), BTD, *SETS),
    awkward("sign-of-norm", lambda: lambda_of(nn.LayerNorm(8), torch.sign), BTD, *SETS),
    awkward("quantised", lambda: lambda x: (x * 16).round().clamp(-128, 127) / 16, BTD, *SETS),
    awkward("comparison", lambda: lambda x: x > x.mean(-1, keepdim=True), BTD, *SETS),
    awkward("fft", lambda: lambda x: torch.fft.fft(x, dim=1), BTD, linearity(), batch_independence(), *CALM),
    awkward("rfft-and-back", lambda: lambda x: torch.fft.irfft(torch.fft.rfft(x), n=8), BTD, linearity()),
    awkward("complex-weight", ComplexWeight, BTD, linearity(), translation_equivariance(axis=-1), gradient()),
    awkward("counts", lambda: lambda x: (x > 0).sum(-1), BTD, *SETS, *CALM),
    awkward("bfloat16-linear", lambda: low(nn.Linear(8, 4, bias=False)), BTD, *LINEAR, *ROWS),
    awkward("bfloat16-encoder", lambda: low(ENCODER().eval()), BTD, *ROWS, permutation_equivariance(axis=1)),
    awkward(
        "bfloat16-inside",
        lambda: lambda_of(low(nn.Linear(8, 4)), torch.Tensor.float, before=torch.Tensor.bfloat16),
        BTD,
        *SETS,
    ),
    awkward("single-out", lambda: lambda x: x.float() * 2, BTD, *LINEAR, *SETS),
    awkward("float32-mask", lambda: causal_by_float32_mask, BTD, *CALM, causality(time=1), batch_independence()),
    awkward("moving-average", MovingAverage, BTD, *CALM, *SETS, gradient(), causality(time=1)),
    awkward(
        "batch-norm-buffers", lambda: nn.BatchNorm1d(8), shape("b:2..9 8"), *CALM, permutation_equivariance(axis=0)
    ),
    awkward("frozen-constant", FixedAverage, shape("b 4 8"), permutation_invariance(axis=1), batch_independence()),
    awkward("force", Force, POINTS, ROTATED, *SETS, *CALM),
    awkward("vmap", lambda: torch.vmap(lambda x: x @ x.mT), BTD, batch_independence(), permutation_invariance(axis=2)),
    awkward("held-constants", HeldConstants, BTD, *FEW, *TOKENS),
    awkward("partial", lambda: functools.partial(Scores().score, scale=2.0), BTD, *FEW, *TOKENS),
    awkward("bound-method", lambda: Scores().score, BTD, *FEW, *TOKENS),
    awkward("dict-output", Scores, BTD, *CALM, batch_independence(output="logits"), gradient(output="logits")),
    awkward("method-of-holder", lambda: Holder(relu_network()).predict, BTD, *FEW, *TOKENS),
    awkward("closure-over-holder", lambda: closing_over(Holder(relu_network())), BTD, *SETS, *CALM),
    awkward("default-argument", lambda: by_default(nn.Linear(8, 8)), BTD, *SETS, *CALM),
    awkward("closure", lambda: first(nn.GRU(8, 4, batch_first=True)), BTD, *ROWS, causality(time=1)),
    awkward("view", Viewed, BTD, *ROWS, linearity()),
    awkward("weight-tied", Tied, tokens("b t", vocab=10), *FEW, causality(time=1)),
    awkward("weight-norm", lambda: parametrizations.weight_norm(nn.Linear(8, 4)), BTD, *FEW, *TOKENS),
    awkward("orthogonal", lambda: parametrizations.orthogonal(nn.Linear(8, 8, bias=False)), BTD, *FEW, *TOKENS),
    awkward("spectral-norm", lambda: parametrizations.spectral_norm(nn.Linear(8, 4)).eval(), BTD, *FEW, *TOKENS),
    awkward("spectral-norm-training", lambda: parametrizations.spectral_norm(nn.Linear(8, 4)), BTD, *CALM, *SETS),
    awkward("relu-network", relu_network, BTD, *FEW, *TOKENS),
    awkward("maximum", lambda: lambda x: x.amax(-1), BTD, gradient(), permutation_invariance(axis=2)),
    awkward("norm", lambda: lambda x: x.norm(dim=-1), BTD, homogeneity(), non_negativity(), gradient()),
    awkward("chaos", lambda: lambda x: torch.sin(1e17 * x.tanh().sum(1)), BTD, permutation_invariance(axis=1)),
    awkward("unit", lambda: lambda x: F.normalize(x, dim=-1, eps=0.0), BTD, scale_invariance(), *SETS),
    awkward("distance", lambda: torch.cdist, (POINTS, POINTS), invariance(sample=rotation, act=turned, input=(0, 1))),
]


def lambda_of(module, after, before=lambda x: x):
    return lambda x: after(module(before(x)))


@how_many
@pytest.mark.parametrize(("make", "inputs", "laws", "grade"), AWKWARD)
def test_an_awkward_map_is_not_refuted(make, inputs, laws, grade, cases):
    assert_held(make(), laws, inputs, cases, grade)


VACUOUS = [
    pytest.param(causality(), shape("b 1 8"), id="causality-of-one-step"),
    pytest.param(batch_independence(), shape("1 t 8"), id="independence-in-a-batch-of-one"),
    pytest.param(permutation_equivariance(), shape("b 1 8"), id="permutation-of-one-token"),
    pytest.param(locality(radius=9), shape("b t:1..9 8"), id="locality-within-the-radius"),
    pytest.param(translation_equivariance(axis=1, border=3), shape("b t:1..6 8"), id="translation-within-the-border"),
]


@pytest.mark.parametrize(("law", "inputs"), VACUOUS)
def test_nothing_to_see_is_vacuous(law, inputs):
    assert_held(nn.Identity(), (law,), inputs, 20, grade="vacuous")
