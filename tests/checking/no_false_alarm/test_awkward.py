"""Correct maps with awkward numerics are not refuted: scaled, cast, routed, cached, rounded, tied."""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from lawful import shape, tokens
from lawful.laws import (
    Draw,
    Equal,
    Law,
    Map,
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
    no_mutation,
    non_negativity,
    permutation_equivariance,
    permutation_invariance,
    scale_invariance,
    shift_invariance,
    statelessness,
    translation_equivariance,
)
from tests.checking.no_false_alarm.held import assert_held, select_laws

CALM = (determinism(), statelessness(), no_mutation())
ROWS = (*CALM, batch_independence(), gradient())
TOKENS = (permutation_equivariance(axis=1), causality(time=1))
LINEAR = (linearity(), homogeneity())
BTD = shape("b t 8")


class Row(NamedTuple):
    name: str
    make: Callable[[], Any]
    inputs: Any
    laws: tuple[Law, ...]
    status: str


def awkward(name, make, inputs, *laws, status="held"):
    return Row(name, make, inputs, laws, status)


class Scaled(nn.Module):
    """A linear layer without bias, times a factor: in its weights, or after it."""

    def __init__(self, factor, inside):
        super().__init__()
        self.linear, self.factor = nn.Linear(8, 8, bias=False), 1.0 if inside else factor
        if inside:
            self.linear.weight.data *= factor

    def forward(self, x):
        return self.linear(x) * self.factor


def run_in_float32(inner):
    """Computes in float32 for inputs of any dtype."""
    return lambda *xs: inner(*(x.float() for x in xs)).to(xs[0].dtype)


def fused_attention(q, k, v):
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
    """Like `Experts`, but gathers the tokens of each expert: matrix sizes depend on the routing of all tokens."""

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
    return Equal(f(q, k), f.with_function(functools.partial(f.target, offset=draw.choice((1, 1000, 10**6))))(q, k))


class Rotary(nn.Module):
    """Rotary scores from tables that grow with the longest sequence."""

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
    centered = x - x.mean(-1, keepdim=True)
    return centered * torch.rsqrt((x * x).mean(-1, keepdim=True) - x.mean(-1, keepdim=True) ** 2 + 1e-5)


def rotation(draw):
    q, r = torch.linalg.qr(draw.normal(3, 3))
    return q * r.diagonal().sign()


def rotate_rows(g, x):
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


ROTATED = equivariance(sample=rotation, act=rotate_rows)
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
    """Not a module, but holds one."""

    def __init__(self, model):
        self.model = model

    def predict(self, x):
        return self.model(x)


def closing_over(holder):
    return lambda x: holder.predict(x)


def with_default_argument(module):
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


def first(module):
    return lambda *xs: module(*xs)[0]


def encoder():
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)


def low(module):
    return module.to(torch.bfloat16)


SCALED = (*LINEAR, batch_independence(), gradient(), permutation_equivariance(axis=1), causality(time=1))
ROUTED = (*CALM, batch_independence(), permutation_equivariance(axis=1), causality(time=1))
FEW = (statelessness(), batch_independence(), gradient())
SETS = (batch_independence(), permutation_equivariance(axis=1))

AWKWARD = [
    *[
        awkward(f"linear-times-{factor:g}-{place}", functools.partial(Scaled, factor, place == "inside"), BTD, *SCALED)
        for factor in (1e5, 1e-6)
        for place in ("inside", "after")
    ],
    awkward("attention-4096-fused", lambda: fused_attention, MANY_KEYS, agreement(other=plain)),
    awkward("attention-4096-online", lambda: online, MANY_KEYS, agreement(other=fused_attention)),
    awkward("attention-4096-permuted", lambda: plain, MANY_KEYS, permutation_invariance(axis=1, input=(1, 2))),
    awkward(
        "attention-4096-float32",
        lambda: run_in_float32(plain),
        MANY_KEYS,
        agreement(other=run_in_float32(fused_attention)),
    ),
    awkward("attention-4096-float32-64", lambda: run_in_float32(plain), MANY_KEYS, agreement(other=fused_attention)),
    awkward(
        "attention-4096-float32-permuted",
        lambda: run_in_float32(fused_attention),
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
        lambda: run_in_float32(functools.partial(rotary_scores, offset=10**6)),
        (BTD, BTD),
        agreement(other=run_in_float32(rotary_scores)),
        status="vacuous",  # a tenth of a radian is lost
    ),
    awkward("rotary-cached", Rotary, (BTD, BTD), *CALM, agreement(other=rotary_scores)),
    awkward("rotary-cached-10^6", lambda: Rotary(10**6), (BTD, BTD), *CALM, agreement(other=rotary_scores)),
    awkward("points", Points, POINTS, ROTATED, *SETS),
    awkward("points-float32", lambda: Points("all"), POINTS, ROTATED, *SETS),
    awkward("points-float32-beside-residual", lambda: Points("branch"), POINTS, ROTATED, *SETS),
    awkward("float32-linear", lambda: run_in_float32(lambda x: x.cumsum(-1)), BTD, linearity(), homogeneity()),
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
    awkward(
        "bfloat16-encoder",
        lambda: low(encoder().eval()),
        BTD,
        *ROWS,
        permutation_equivariance(axis=1),
    ),
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
    awkward("default-argument", lambda: with_default_argument(nn.Linear(8, 8)), BTD, *SETS, *CALM),
    awkward(
        "closure",
        lambda: first(nn.GRU(8, 4, batch_first=True)),
        BTD,
        *ROWS,
        causality(time=1),
    ),
    awkward("view", Viewed, BTD, *ROWS, linearity()),
    awkward("weight-tied", Tied, tokens("b t", vocab_size=10), *FEW, causality(time=1)),
    awkward("weight-norm", lambda: parametrizations.weight_norm(nn.Linear(8, 4)), BTD, *FEW, *TOKENS),
    awkward("orthogonal", lambda: parametrizations.orthogonal(nn.Linear(8, 8, bias=False)), BTD, *FEW, *TOKENS),
    awkward("spectral-norm", lambda: parametrizations.spectral_norm(nn.Linear(8, 4)).eval(), BTD, *FEW, *TOKENS),
    awkward("spectral-norm-training", lambda: parametrizations.spectral_norm(nn.Linear(8, 4)), BTD, *CALM, *SETS),
    awkward("relu-network", relu_network, BTD, *FEW, *TOKENS),
    awkward("maximum", lambda: lambda x: x.amax(-1), BTD, gradient(), permutation_invariance(axis=2)),
    awkward("norm", lambda: lambda x: x.norm(dim=-1), BTD, homogeneity(), non_negativity(), gradient()),
    awkward("chaos", lambda: lambda x: torch.sin(1e17 * x.tanh().sum(1)), BTD, permutation_invariance(axis=1)),
    awkward("unit", lambda: lambda x: F.normalize(x, dim=-1, eps=0.0), BTD, scale_invariance(), *SETS),
    awkward(
        "distance", lambda: torch.cdist, (POINTS, POINTS), invariance(sample=rotation, act=rotate_rows, input=(0, 1))
    ),
]


def lambda_of(module, after, before=lambda x: x):
    return lambda x: after(module(before(x)))


@pytest.mark.parametrize(("n", "row"), [pytest.param(n, row, id=row.name) for n, row in enumerate(AWKWARD)])
def test_an_awkward_map_is_not_refuted_by_some_laws(n, row):
    torch.manual_seed(0)
    assert_held(row.make(), select_laws(row.laws, n), row.inputs, 20, row.status)


@pytest.mark.long
@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in AWKWARD])
def test_an_awkward_map_is_not_refuted(row):
    torch.manual_seed(0)
    assert_held(row.make(), row.laws, row.inputs, 200, row.status)


VACUOUS = [
    pytest.param(causality(), shape("b 1 8"), id="causality-of-one-step"),
    pytest.param(batch_independence(), shape("1 t 8"), id="independence-in-a-batch-of-one"),
    pytest.param(permutation_equivariance(), shape("b 1 8"), id="permutation-of-one-token"),
    pytest.param(locality(radius=9), shape("b t:1..9 8"), id="locality-within-the-radius"),
    pytest.param(translation_equivariance(axis=1, border=3), shape("b t:1..6 8"), id="translation-within-the-border"),
]


@pytest.mark.parametrize(("law", "inputs"), VACUOUS)
def test_vacuous_laws(law, inputs):
    assert_held(nn.Identity(), (law,), inputs, 20, status="vacuous")
