"""Subtle faults are refuted, and the state of the target is restored."""

import functools
import itertools
import random

import numpy
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import lawful
from lawful import mask, shape, tokens
from lawful.checking.check import SearchBudget, judge_law
from lawful.laws import (
    agreement,
    batch_independence,
    causality,
    determinism,
    equivariance,
    gradient,
    homogeneity,
    linearity,
    locality,
    masked_positions_have_no_influence,
    no_mutation,
    non_negativity,
    padding_invariance,
    permutation_equivariance,
    permutation_invariance,
    scale_invariance,
    shift_invariance,
    statelessness,
    sums_to_one,
    translation_equivariance,
)

BTD, POINTS = shape("b t 8"), shape("b n 3")


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def statuses(target, laws, inputs, *, cases=100, seed=0):
    """Returns the status of every law. Counterexamples are not shrunk: only the verdicts matter here."""
    budget = SearchBudget(cases, seed, shrinks=0)
    return {str(law): judge_law(law, target, inputs, "target", budget).status for law in laws}


# ---------------------------------------------------------------- faults


class Leak(nn.Module):
    """A running sum that leaks the mean over time under a condition."""

    def __init__(self, when=lambda self, x: True, size=1.0, over=1):
        super().__init__()
        self.when, self.size, self.over = when, size, over

    def forward(self, x):
        y = x.cumsum(1) if self.over == 1 else 2 * x
        return y + self.size * x.mean(self.over, keepdim=True) if self.when(self, x) else y


def leak(name, when=lambda self, x: True, size=1.0, training=True):
    return fault(f"leak-{name}", lambda: Leak(when, size).train(training), BTD, causality())


def mixes(name, when=lambda self, x: True, size=1.0):
    return fault(f"mixing-{name}", lambda: Leak(when, size, over=0), BTD, batch_independence())


def fault(name, make, inputs, *laws):
    return pytest.param(make, inputs, laws, id=name)


class Hidden(nn.Module):
    """Attention without its mask, hidden by an output projection that is zero or almost zero."""

    def __init__(self, out):
        super().__init__()
        self.attention, self.out = nn.MultiheadAttention(8, 2, batch_first=True), out

    def forward(self, x):
        return x + self.out(self.attention(x, x, x)[0])


class LayerScale(nn.Module):
    def __init__(self, *size, value):
        super().__init__()
        self.gamma = nn.Parameter(torch.full(size, value))

    def forward(self, x):
        return x * self.gamma


def silent(linear):
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear


class ZeroPositions(nn.Module):
    """Learned positions, initialized to zero."""

    def __init__(self):
        super().__init__()
        self.position = nn.Parameter(torch.zeros(80, 8))

    def forward(self, x):
        return torch.tanh(x + self.position[: x.shape[1]])


class Remembers(nn.Module):
    """Stores its inputs in a plain list."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, x):
        self.seen.append(x.mean())
        return x + self.seen[-2] if len(self.seen) > 1 else x


def remembers_outside():
    seen = []

    def f(x):
        seen.append(float(x.mean()))
        return x + sum(seen)

    return f


class Rewrites(nn.Module):
    """Rewrites a buffer, in evaluation too."""

    def __init__(self, through_data=False):
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))
        self.through_data = through_data

    def forward(self, x):
        y = x - self.mean
        (self.mean.data if self.through_data else self.mean).lerp_(x.detach().mean((0, 1)), 0.1)
        return y


class KeepsGenerator(nn.Module):
    def __init__(self):
        super().__init__()
        self.random = numpy.random.default_rng(0)

    def forward(self, x):
        return x + self.random.normal()


class WrongBelowZero(torch.autograd.Function):
    """The square, whose gradient is wrong for negative inputs."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * torch.where(x < 0, 2.001 * x, 2 * x)


class WrongWeight(torch.autograd.Function):
    """A product whose gradient forgets the weight's broadcast over the batch."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g * w, (g * x).mean((0, 1))


class Weighted(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.rand(8))

    def forward(self, x):
        return WrongWeight.apply(x, self.w)


def float32_mask(x, size=1e-5):
    """A running mean, by a mask that happens to be float32 (exact), with a leak."""
    past = torch.ones(x.shape[1], x.shape[1], dtype=torch.float32).tril().to(x.dtype)
    return past @ x / past.sum(-1, keepdim=True) + size * x.mean(1, keepdim=True)


def max_over_all_keys(x, eps=1e-6):
    """Causal attention, stabilized by the largest score of all keys, and an eps in the denominator."""
    scores = x @ x.mT / 8**0.5
    weights = (scores - scores.amax(-1, keepdim=True)).exp().tril()
    return weights @ x / (weights.sum(-1, keepdim=True) + eps)


def group_norm_over_time(x):
    return F.group_norm(x.mT, 2).mT


def mask_added(x, m):
    scores = x @ x.mT + torch.where(m, 0.0, -4.0)[:, None]
    return scores.softmax(-1) @ x


def convolves_padding(x, m):
    return F.avg_pool1d(x.mT, 3, 1, 1).mT * m[..., None]


def rotation(draw):
    q, r = torch.linalg.qr(draw.normal(3, 3))
    return q * r.diagonal().sign()


ROTATED = equivariance(sample=rotation, act=lambda g, x: x @ g.mT)


def single_precision(x):
    """Equivariant in float32 up to 1 %."""
    y = x.float()
    return (y / (1 + y.square().sum(-1, keepdim=True)) * torch.tensor([1.0, 1.0, 1.01])).to(x.dtype)


def beside_residual(x):
    return x + single_precision(x)


def mutates_second(x, y):
    y[..., 0] = 0.0
    return x + y


def last_only(x):
    y = x.clone()
    y[:, -1] += x[:, 0]
    return y


def scaled(layer, factor):
    return lambda x: layer(x) * factor


FAULTS = [
    leak("always"),
    *(leak(f"of-{size:g}", size=size) for size in (1e-4, 1e-6, 1e-9)),
    leak("at-lengths-divisible-by-8", lambda self, x: x.shape[1] % 8 == 0),
    leak("at-odd-lengths", lambda self, x: x.shape[1] % 2 == 1),
    leak("above-length-32", lambda self, x: x.shape[1] > 32),
    leak("at-length-2", lambda self, x: x.shape[1] == 2),
    leak("in-eval", lambda self, x: not self.training),
    leak("in-training", lambda self, x: self.training),
    leak("with-gradient-off", lambda self, x: not torch.is_grad_enabled()),
    leak("with-gradient-on", lambda self, x: torch.is_grad_enabled()),
    leak("if-not-contiguous", lambda self, x: not x.is_contiguous()),
    leak("in-batches", lambda self, x: x.shape[0] > 1),
    leak("in-batches-of-1", lambda self, x: x.shape[0] == 1),
    leak("if-all-rows-equal", lambda self, x: bool((x == x[:, :1]).all())),
    fault("tells-if-all-zero", lambda: lambda x: x.cumsum(1) + (not x.any()), BTD, causality()),
    leak("of-huge-values", lambda self, x: bool(x.abs().max() > 1e5)),
    leak("of-tiny-values", lambda self, x: bool(x.abs().max() < 1e-4)),
    leak("of-positive-values", lambda self, x: bool((x > 0).all())),
    leak("in-eval-with-gradient-off", lambda self, x: not self.training and not torch.is_grad_enabled()),
    fault("leak-of-1e-5-beside-float32-mask", lambda: float32_mask, BTD, causality()),
    mixes("always"),
    mixes("of-1e-6", size=1e-6),
    mixes("if-all-rows-equal", lambda self, x: bool((x == x[:1]).all())),
    mixes("in-batches-above-3", lambda self, x: x.shape[0] > 3),
    fault("zero-projection", lambda: Hidden(silent(nn.Linear(8, 8))), BTD, causality()),
    fault("layer-scale-1e-6", lambda: Hidden(LayerScale(8, value=1e-6)), BTD, causality()),
    fault("layer-scale-0", lambda: Hidden(LayerScale(value=0.0)), BTD, causality()),
    fault("zero-positions", ZeroPositions, BTD, permutation_equivariance()),
    fault("all-nan", lambda: lambda x: x * float("nan"), POINTS, ROTATED, causality(), non_negativity(), gradient()),
    fault("nan-below-zero", lambda: torch.sqrt, BTD, batch_independence(), determinism(), non_negativity()),
    fault("infinite-below-zero", lambda: lambda x: 1 / x.float().relu().to(x.dtype), BTD, permutation_equivariance()),
    fault("tiny-bias", lambda: scaled(nn.Linear(8, 8), 1e-6), BTD, linearity(), homogeneity()),
    fault("tiny-leak", lambda: scaled(Leak(size=1e-4), 1e-6), BTD, causality()),
    fault("tiny-tanh", lambda: lambda x: 1e-4 * torch.tanh(x), POINTS, ROTATED),
    fault("tiny-tanh-beside-residual", lambda: lambda x: x + 1e-4 * torch.tanh(x), POINTS, ROTATED),
    fault("float32-1e-2", lambda: single_precision, POINTS, ROTATED),
    fault("float32-1e-2-beside-residual", lambda: beside_residual, POINTS, ROTATED),
    fault("batch-mixed-by-reshape", lambda: lambda x: x.transpose(0, 1).reshape(x.shape), BTD, batch_independence()),
    fault(
        "batch-mixed-by-view",
        lambda: lambda x: x.view(x.shape[1], -1, 8).mT.reshape(x.shape),
        BTD,
        batch_independence(),
    ),
    fault("batch-norm-in-training", lambda: nn.BatchNorm1d(8), shape("b:2..9 8"), batch_independence()),
    fault("group-norm-over-time", lambda: group_norm_over_time, BTD, causality()),
    fault("max-over-all-keys", lambda: max_over_all_keys, BTD, causality()),
    fault(
        "argmax-over-batch", lambda: lambda x: x.argmax(0).expand(x.shape[:1] + x.shape[1:]), BTD, batch_independence()
    ),
    fault("complex-leak", lambda: lambda x: torch.complex(x, torch.fft.fft(x, dim=1).imag), BTD, causality()),
    fault("mask-added", lambda: mask_added, (BTD, mask("b t")), masked_positions_have_no_influence()),
    fault("padding-read", lambda: convolves_padding, (BTD, mask("b t")), padding_invariance()),
    fault("mutates-second", lambda: mutates_second, (BTD, BTD), no_mutation()),
    fault("mutates-mask", lambda: lambda x, m: x * m.logical_not_()[..., None], (BTD, mask("b t")), no_mutation()),
    fault("mutates-in-training", lambda: nn.Sequential(nn.Dropout(0.5, inplace=True)), BTD, no_mutation()),
    fault("mutates-relu", lambda: nn.ReLU(inplace=True), BTD, no_mutation()),
    fault("plain-list", Remembers, BTD, statelessness()),
    fault("list-outside", remembers_outside, BTD, statelessness()),
    fault("buffer-rewritten", Rewrites, BTD, statelessness()),
    fault("buffer-rewritten-through-data", lambda: Rewrites(through_data=True), BTD, statelessness()),
    fault("noise-from-numpy", lambda: lambda x: x + 1e-6 * numpy.random.normal(), BTD, determinism()),
    fault("noise-from-random", lambda: lambda x: x * random.random(), BTD, determinism()),
    fault("noise-from-own-generator", KeepsGenerator, BTD, determinism(), statelessness()),
    fault("dropout-in-eval", lambda: lambda x: F.dropout(x, 0.1), BTD, determinism()),
    fault("gradient-below-zero", lambda: WrongBelowZero.apply, BTD, gradient()),
    fault("gradient-of-weight", Weighted, BTD, gradient()),
    fault("gradient-detached", lambda: lambda x: x * torch.sigmoid(x).detach(), BTD, gradient()),
    fault("gradient-tiny", lambda: lambda x: 1e-6 * WrongBelowZero.apply(x), BTD, gradient()),
    fault("one-tap-too-many", lambda: nn.Conv1d(4, 4, 5, padding=2), shape("b 4 t"), locality(radius=1, axis=-1)),
    fault(
        "stride",
        lambda: lambda x: x[..., ::2].repeat_interleave(2, -1)[..., : x.shape[-1]],
        BTD,
        translation_equivariance(),
    ),
    fault("last-position", lambda: last_only, BTD, permutation_equivariance()),
    fault("first-weighs-more", lambda: lambda x: x.mean(1) + 1e-6 * x[:, 0], BTD, permutation_invariance()),
    fault("norm-with-eps", lambda: lambda x: x / (x.norm(dim=-1, keepdim=True) + 1e-6), BTD, scale_invariance()),
    fault("softmax-with-eps", lambda: lambda x: x.softmax(-1) / (1 + 1e-6), BTD, sums_to_one()),
    fault("softmax-over-batch", lambda: lambda x: x.softmax(0), BTD, sums_to_one(), batch_independence()),
    fault("rms-norm-shifted", lambda: nn.RMSNorm(8), BTD, shift_invariance()),
    fault("slightly-negative", lambda: lambda x: F.relu(x) - 1e-6, BTD, non_negativity()),
    fault(
        "argument-dropped", lambda: lambda x, m: x * m[..., None], (BTD, mask("b t")), agreement(other=lambda x, m: x)
    ),
    fault("token-repeated", lambda: repeats, tokens("b t", vocab_size=10), causality()),
]


def repeats(ids):
    """Embeds tokens, and counts how often each occurs, including later positions."""
    hot = F.one_hot(ids, 10)
    return hot * hot.sum(1, keepdim=True)


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 2, 3))])
@pytest.mark.parametrize(("make", "inputs", "laws"), FAULTS)
def test_faults_are_found(make, inputs, laws, seed):
    assert set(statuses(make(), laws, inputs, seed=seed).values()) == {"refuted"}


def test_ties_are_not_held():
    (status,) = statuses(lambda x: torch.sin(1e17 * x), [linearity()], BTD).values()
    assert status in ("refuted", "vacuous")


SEEDED = [
    pytest.param(lambda: Hidden(silent(nn.Linear(8, 8))), causality(), id="module"),
    pytest.param(lambda: Leak(lambda self, x: x.shape[1] % 8 == 0), causality(), id="rare"),
    pytest.param(lambda: torch.sqrt, batch_independence(), id="not-finite"),
    pytest.param(lambda: WrongBelowZero.apply, gradient(), id="gradient"),
]


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize(("make", "law"), SEEDED)
def test_the_same_seed_gives_the_same_counterexample(make, law, seed, monkeypatch):
    monkeypatch.setattr("lawful.checking._search._SHRINK_SECONDS", 1e6)  # time limits depend on the machine
    monkeypatch.setattr("lawful.checking._search._SIMPLIFY_SECONDS", 1e6)

    def judged():
        torch.manual_seed(0)
        verdict = judge_law(law, make(), BTD, "target", SearchBudget(seed=seed, shrinks=40))
        assert verdict.status == "refuted", verdict
        return verdict.to_json() | {"seconds": 0}, verdict.script()

    assert judged() == judged()


# ---------------------------------------------------------------- restoring


class Model(nn.Module):
    """A model whose calls change all kinds of state; may raise from the n-th call on."""

    def __init__(self, raises=None, at=7):
        super().__init__()
        self.embed = nn.Linear(8, 8)
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.norm = nn.BatchNorm1d(8)
        self.dropout = nn.Dropout(0.5).eval()
        self.scale = torch.rand(8)
        self.history, self.cache, self.count = [], {}, 0
        self.raises, self.calls, self.at = raises, itertools.count(1), at
        self.generator = torch.Generator().manual_seed(3)
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        if self.raises is not None and next(self.calls) >= self.at:
            raise self.raises("now")
        self.steps += 1
        self.count += 1
        self.history.append(x.shape)
        self.cache[x.shape] = x.sum()
        self.scale.data.mul_(1.5)
        self.extra = x
        with torch.no_grad():
            self.frozen.weight.mul_(0.9)
        y = self.norm(self.frozen(self.embed(x)).flatten(0, 1)).reshape(x.shape)
        noise = torch.rand((), generator=self.generator)
        return self.dropout(y) * self.scale + x.mean(1, keepdim=True) * noise


def snapshot(model):
    """All state of a model and of the process that a check might change, as plain data."""
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers()), "scale": model.scale}
    grads = {name: p.grad for name, p in model.named_parameters()}

    def bits(x):
        return None if x is None else (id(x), x.data_ptr(), x.dtype, x.tolist(), x.requires_grad)

    return {
        "tensors": {name: bits(x) for name, x in tensors.items()},
        "grads": {name: bits(x) for name, x in grads.items()},
        "modes": [m.training for m in model.modules()],
        "hooks": [list(m._forward_hooks) + list(m._forward_pre_hooks) for m in model.modules()],
        "attributes": {k: v for k, v in vars(model).items() if k not in ("scale", "calls") and k[0] != "_"},
        "names": list(vars(model)),
        "held": (list(model.history), dict(model.cache), model.count),
        "generator": model.generator.get_state().tolist(),
        "torch": torch.get_rng_state().tolist(),
        "numpy": [str(part) for part in numpy.random.get_state()],
        "random": random.getstate(),
        "default": (torch.get_default_dtype(), torch.is_grad_enabled()),
    }


def prepared(**options):
    model = Model(**options)
    model.embed(torch.randn(3, 8)).square().sum().backward()
    model.embed.register_forward_hook(lambda *_: None)
    model.register_forward_pre_hook(lambda *_: None)
    return model


class Holder:
    """Not a module, but holds one."""

    def __init__(self, model):
        self.model = model

    def predict(self, x):
        return self.model(x)

    def __call__(self, x):
        return self.model(x)


CALLS = {
    "module": lambda m: m,
    "closure": lambda m: lambda x: m(x),
    "bound-method": lambda m: m.forward,
    "partial": lambda m: functools.partial(m),
    "partial-of-argument": lambda m: functools.partial(lambda model, x: model(x), m),
    "holder": Holder,
    "method-of-holder": lambda m: Holder(m).predict,
    "closure-over-holder": lambda m: (lambda held: lambda x: held.model(x))(Holder(m)),
    "dict": lambda m: (lambda held: lambda x: held["model"](x))({"model": m}),
    "default-argument": lambda m: lambda x, model=m: model(x),
}
SEVERAL = (causality(), gradient(), statelessness(), no_mutation())


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_state_is_restored(call):
    model = prepared()
    before = snapshot(model)
    statuses(call(model), SEVERAL, shape("b:2..4 t:1..6 8"), cases=5)
    assert snapshot(model) == before


@pytest.mark.parametrize("at", [1, 2, 30])
@pytest.mark.parametrize("raises", [RuntimeError, ValueError, KeyboardInterrupt, SystemExit])
def test_state_is_restored_after_an_error(raises, at):
    model = prepared(raises=raises, at=at)
    before = snapshot(model)
    if raises is not KeyboardInterrupt:
        (verdict,) = lawful.check(model, causality(), inputs=shape("b:2..4 t:1..6 8"), cases=40)
        assert verdict.failed, verdict
    else:
        with pytest.raises(KeyboardInterrupt, match="now"):
            lawful.check(model, causality(), inputs=shape("b:2..4 t:1..6 8"), cases=40)
    assert snapshot(model) == before


@torch.no_grad()
def test_state_is_restored_under_no_grad():
    model = Model()
    before = snapshot(model)
    statuses(model, SEVERAL, shape("b:2..4 t:1..6 8"), cases=5)
    assert snapshot(model) == before


def test_a_lazy_module_is_not_initialized():
    model = nn.LazyLinear(4)
    lawful.check(model, batch_independence(), inputs=BTD, cases=5)
    assert type(model) is nn.LazyLinear
    assert model(torch.rand(2, 8)).shape == (2, 4)


def in_place(x, y):
    return x.add_(1).mul_(y.add_(1))


@pytest.mark.parametrize("form", [tuple, lambda xs: dict(zip("xy", xs, strict=True))], ids=["tuple", "dict"])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_examples_never_change(form, requires_grad):
    examples = [torch.randn(2, 3, 8).requires_grad_(requires_grad), torch.randn(2, 3, 8)]
    before = [(x.tolist(), x._version, x.grad, x.requires_grad, x.dtype) for x in examples]

    def f(x, y):
        if not x.is_leaf or not x.requires_grad:
            in_place(x, y)
        return x * y

    lawful.check(f, causality(), no_mutation(), gradient(), statelessness(), inputs=form(examples), cases=20)
    assert [(x.tolist(), x._version, x.grad, x.requires_grad, x.dtype) for x in examples] == before
