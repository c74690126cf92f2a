"""Gradients, inverses and log-determinants."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lawful import probabilities, shape, tokens
from lawful.laws import (
    ALL,
    derivative,
    gradient,
    inverse_log_determinant,
    invertibility,
    kink_at,
    log_determinant,
    second_order_gradient,
    ties,
)
from tests.laws.drivers import test_broken, test_satisfied  # noqa: F401

torch.manual_seed(0)


class WrongSquare(torch.autograd.Function):
    """Forgets the factor 2."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.square()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x


class Product(torch.autograd.Function):
    """The gradient of the second factor is doubled."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        return grad * y, 2 * (grad * x).sum_to_size(y.shape)


class Gain(nn.Module):
    """Multiplies by a parameter whose gradient is wrong."""

    def __init__(self, learnt=True):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(4), requires_grad=learnt)

    def forward(self, x):
        return Product.apply(x, self.gain)


def doubled_unseen(x):
    y = x.sin()
    with torch.no_grad():
        y.mul_(2)
    return y


class Affine(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_scale, self.shift = nn.Parameter(torch.randn(4)), nn.Parameter(torch.randn(4))

    def forward(self, x):
        return x * self.log_scale.exp() + self.shift

    def inverse(self, y):
        return (y - self.shift) * (-self.log_scale).exp()

    def with_a_wrong_sign(self, y):
        return (y + self.shift) * (-self.log_scale).exp()

    def in_the_wrong_order(self, y):
        return y * (-self.log_scale).exp() - self.shift


class Orthogonal(nn.Linear):
    """Its weight is orthogonal to float32 precision, as `nn.init.orthogonal_` leaves it."""

    def __init__(self):
        super().__init__(4, 4)
        nn.init.orthogonal_(self.weight)

    def inverse(self, y):
        return (y - self.bias) @ self.weight


class Remembering(Affine):
    """Returns its last input as the inverse."""

    def forward(self, x):
        self.last = x
        return super().forward(x)

    def inverse(self, y):
        return self.last if hasattr(self, "last") else self.in_the_wrong_order(y)


class Coupling(nn.Module):
    """Scales and shifts one half by functions of the other; the identity at first.

    The reported log-determinant is a function of the log-scales and of their sum per sample.
    """

    def __init__(self, report=lambda log_scale, total: total):
        super().__init__()
        self.report = report
        self.net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 4))
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, x):
        kept, moved = x.chunk(2, dim=-1)
        log_scale, shift = self.net(kept).chunk(2, dim=-1)
        y = torch.cat([kept, moved * log_scale.exp() + shift], dim=-1)
        return y, self.report(log_scale, log_scale.sum(-1))

    def inverse(self, y):
        kept, moved = y.chunk(2, dim=-1)
        log_scale, shift = self.net(kept).chunk(2, dim=-1)
        return torch.cat([kept, (moved - shift) * (-log_scale).exp()], dim=-1)


class TwoWayCoupling(Coupling):
    """Its inverse returns a log-determinant, too, with a sign."""

    def __init__(self, sign=-1):
        super().__init__()
        self.sign = sign

    def inverse(self, y):
        return super().inverse(y), self.sign * self.net(y.chunk(2, dim=-1)[0])[:, :2].sum(-1)


class Cube(torch.autograd.Function):
    """Its backward pass is not differentiable."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        with torch.no_grad():
            return grad * 3 * x.detach() ** 2


class CubeOnceOnly(Cube):
    """Its backward pass is not differentiable twice; PyTorch returns zero if the cotangent needs no gradient."""

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3 * x**2


class SmoothCube(Cube):
    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3 * x**2


def draw_with_zero_row(draw):
    """Two rows; the first is zero."""
    return draw.normal(2, 4) * torch.tensor([[0.0], [1.0]])


def angle(x):
    """Angle of a rotation vector."""
    return x.square().sum(-1).sqrt()


def hard_top(x):
    """Keeps the two largest entries."""
    return torch.where(x >= x.topk(2, dim=-1).values[..., -1:], x, 0.0)


class WrongAtZero(torch.autograd.Function):
    """The positive part, with a gradient of 1 everywhere."""

    @staticmethod
    def forward(ctx, x):
        return x.relu()

    @staticmethod
    def backward(ctx, grad):
        return grad


X, FLAT, HEADS = shape("b:1..3 t:1..3 4"), shape("b:1..3 4"), shape("b:1..3 2 t:1..3 4")
orthogonal = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64)).Q
wrong_sign = Coupling(lambda log_scale, total: -total)

SATISFIED = {
    "derivative: a square": (derivative(formula=lambda x: 2 * x), FLAT, torch.square),
    "derivative: a distance": (
        derivative(formula=lambda x, y: (x - y) / (x - y).norm(dim=-1, keepdim=True)),
        (FLAT, FLAT),
        lambda x, y: (x - y).norm(dim=-1),
    ),
    "gradient: a network": (gradient(), FLAT, nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))),
    "gradient: attention": (gradient(), X, lambda x: (x @ x.mT).softmax(-1) @ x),
    "gradient: parameters alone": (gradient(), tokens("b t", vocab_size=5), nn.Embedding(5, 4)),
    "gradient: several inputs": (gradient(input=ALL), (FLAT, FLAT), lambda x, y: (x * y).tanh()),
    "gradient: a frozen parameter": (gradient(), FLAT, Gain(learnt=False)),
    "gradient: ReLU": (gradient(), X, torch.relu),
    "gradient: a network of ReLU": (
        gradient(),
        FLAT,
        nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)),
    ),
    "gradient: absolute value": (gradient(), X, torch.abs),
    "gradient: maximum": (gradient(), X, lambda x: x.amax(1)),
    "gradient: length": (gradient(), X, lambda x: x.norm(dim=-1)),
    "gradient: RMS norm": (gradient(), X, nn.RMSNorm(4)),
    "gradient: a constant": (gradient(), X, torch.ones_like),
    "gradient: away from kinks": (gradient().excluding(kink_at(0.0)), X, torch.relu),
    "gradient: away from ties": (gradient().excluding(ties), X, hard_top),
    "twice: a network": (second_order_gradient(), FLAT, nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))),
    "twice: attention": (second_order_gradient(), X, lambda x: (x @ x.mT).softmax(-1) @ x),
    "twice: a backward pass that can be differentiated": (second_order_gradient(), X, SmoothCube.apply),
    "twice: linear": (second_order_gradient(), X, nn.Linear(4, 4)),
    "twice: ReLU": (second_order_gradient(), X, torch.relu),
    "inverse: coupling": (invertibility(), FLAT, Coupling()),
    "inverse: affine": (invertibility(), X, Affine()),
    "inverse: an orthogonal matrix": (
        invertibility(inverse=lambda y: y @ orthogonal.to(y)),
        X,
        lambda x: x @ orthogonal.to(x).mT,
    ),
    "inverse: a matrix orthogonal in float32": (invertibility(), X, Orthogonal()),
    "log-determinant: coupling": (log_determinant(), FLAT, Coupling()),
    "log-determinant: several axes": (
        log_determinant(log_det="volume"),
        X,
        lambda x: {"y": 3 * x, "volume": x[..., 0].new_full((x.shape[0],), math.log(3)) * x[0].numel()},
    ),
    "log-determinant: one for each sample, as a column": (
        log_determinant(),
        FLAT,
        Coupling(lambda log_scale, total: total[:, None]),
    ),
    "log-determinant of the inverse: coupling": (inverse_log_determinant(), FLAT, TwoWayCoupling()),
    "log-determinant of the inverse: a function": (
        inverse_log_determinant(
            inverse=lambda y: {"x": y / 3, "volume": -math.log(3) * y.abs().gt(-1).sum(-1)}, log_det="volume"
        ),
        FLAT,
        lambda x: {"y": 3 * x, "volume": math.log(3) * x.abs().gt(-1).sum(-1)},
    ),
}
BROKEN = {
    "derivative: half of it": (derivative(formula=lambda x: x), FLAT, torch.square),
    "derivative: the target forgotten": (
        derivative(formula=lambda x, y: x.softmax(-1)),
        (FLAT, probabilities("b 4")),
        lambda x, y: -(y * x.log_softmax(-1)).sum(-1),
    ),
    "gradient: a backward pass by hand": (gradient(), X, WrongSquare.apply),
    "gradient: of a parameter": (gradient(), FLAT, Gain()),
    "gradient: of the second input": (gradient(), (FLAT, FLAT), Product.apply),
    "gradient: of the second input, named": (gradient(input=1), (FLAT, FLAT), Product.apply),
    "gradient: a detached branch": (gradient(), X, lambda x: x * x.detach()),
    "gradient: no gradient at all": (gradient(), X, lambda x: x.detach().sin()),
    "gradient: in place under no_grad": (gradient(), X, doubled_unseen),
    "gradient: wrong on one side, away from kinks": (gradient().excluding(kink_at(0.0)), X, WrongAtZero.apply),
    "twice: a norm at 0": (second_order_gradient(), draw_with_zero_row, lambda x: x.norm(dim=-1)),
    "twice: an angle at 0": (second_order_gradient(), draw_with_zero_row, angle),
    "twice: a backward pass for one time": (second_order_gradient(), X, CubeOnceOnly.apply),
    "twice: a hidden backward pass": (second_order_gradient(), X, Cube.apply),
    "inverse: a wrong sign": (invertibility(inverse="with_a_wrong_sign"), X, Affine()),
    "inverse: a wrong order": (invertibility(inverse="in_the_wrong_order"), X, Affine()),
    "inverse: a cache": (invertibility(), X, Remembering()),
    "log-determinant: a wrong sign": (log_determinant(), FLAT, wrong_sign),
    "log-determinant: a sum over the batch": (
        log_determinant(),
        FLAT,
        Coupling(lambda log_scale, total: log_scale.sum()),
    ),
    "log-determinant: a sum over the batch for each sample": (
        log_determinant(),
        FLAT,
        Coupling(lambda log_scale, total: log_scale.sum().expand(total.shape)),
    ),
    "log-determinant: a forgotten factor": (
        log_determinant(),
        FLAT,
        Coupling(lambda log_scale, total: log_scale.mean(-1)),
    ),
    "log-determinant of the inverse: of the forward map": (inverse_log_determinant(), FLAT, TwoWayCoupling(sign=1)),
}
INAPPLICABLE = {
    "gradient: nothing to differentiate by": (
        gradient(),
        tokens("b t", vocab_size=5),
        lambda x: x.double(),
        "no floating-point input and no parameter to differentiate with respect to",
    ),
    "gradient: integers": (
        gradient(),
        X,
        lambda x: x.argmax(-1),
        "expected a floating-point output, got torch.int64",
    ),
    "twice: integers": (
        second_order_gradient(),
        X,
        lambda x: x.argmax(-1),
        "expected a floating-point output, got torch.int64",
    ),
    "twice: nothing to differentiate by": (
        second_order_gradient(),
        tokens("b t", vocab_size=5),
        nn.Embedding(5, 4),
        "no floating-point input to differentiate with respect to",
    ),
    "twice: a fused kernel": (
        second_order_gradient(),
        (HEADS, HEADS, HEADS),
        F.scaled_dot_product_attention,
        "the map cannot be differentiated",
    ),
    "inverse: none": (invertibility(), X, nn.Linear(4, 4), "Linear has no method 'inverse'"),
    "log-determinant of the inverse: no inverse": (
        inverse_log_determinant(),
        FLAT,
        nn.Linear(4, 4),
        "Linear has no method 'inverse'",
    ),
    "log-determinant: not square": (
        log_determinant(),
        FLAT,
        lambda x: (x[:, :3], x[:, 3]),
        "expected a square Jacobian, got 4 inputs and 3 outputs",
    ),
    "log-determinant: of integers": (
        log_determinant(),
        tokens("b t", vocab_size=5),
        lambda x: (x, x),
        "floating-point input",
    ),
    "log-determinant: without gradients": (
        log_determinant(),
        FLAT,
        torch.no_grad()(Coupling()),
        "gradient",
    ),
}


NEARLY_FLAT = {
    "kinks on every side": (lambda draw: 1e-7 * draw.normal(3, 4), torch.relu),
    "kinks at tied maxima": (lambda draw: 1e-7 * draw.normal(3, 4), lambda x: x.amax(0)),
    "saturated": (lambda draw: draw.normal(3, 4) + 16, torch.tanh),
    "steep and saturated": (lambda draw: draw.normal(3, 4), lambda x: (1e5 * x).sigmoid()),
}


@pytest.mark.parametrize(("inputs", "f"), NEARLY_FLAT.values(), ids=NEARLY_FLAT)
def test_inconclusive_differences_are_not_refuted(inputs, f, judge):
    assert judge(f, gradient(), inputs, cases=20).status != "refuted"


@pytest.mark.parametrize(("law", "inputs", "f", "reason"), INAPPLICABLE.values(), ids=INAPPLICABLE)
def test_inapplicable(law, inputs, f, reason, judge):
    verdict = judge(f, law, inputs, cases=5)
    assert verdict.status == "inapplicable"
    assert reason in verdict.reason


@pytest.mark.parametrize(("key", "nearest"), [("log_dt", "did you mean log_det?"), (2, "log_det")])
def test_unknown_output(key, nearest, judge):
    verdict = judge(lambda x: {"y": x, "log_det": x.sum(-1)}, log_determinant(log_det=key), FLAT)
    assert (verdict.status, verdict.usage_error) == ("error", True)
    assert f"the map has no output {key!r}" in verdict.reason
    assert nearest in verdict.reason


def test_rerandomized_weights_reveal_a_sign(judge):
    assert judge(wrong_sign, log_determinant(), FLAT, rerandomize_weights=False).status == "held"
    found = judge(wrong_sign, log_determinant(), FLAT).counterexample
    assert "re-randomized weights: net.2.weight (zero), net.2.bias (zero)" in found.settings


def test_rerandomized_weights_are_noted(judge):
    verdict = judge(Coupling(), log_determinant(), FLAT)
    assert any(": net.2.weight (zero), net.2.bias (zero)" in note and "re-randomized" in note for note in verdict.notes)
    assert not any(p.any() for p in Coupling().net[-1].parameters())


def test_excluded_cases_are_noted(judge):
    verdict = judge(torch.relu, gradient().excluding(kink_at(0.0)), X)
    assert verdict.status == "held"
    assert any("cases excluded: close to kink_at(0)" in note for note in verdict.notes)


class Gained(nn.Module):
    """Multiplies by a gain that is detached."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(4))

    def forward(self, x):
        return x * self.gain.detach()


@pytest.mark.parametrize("f", [doubled_unseen, Gained()], ids=["a function", "a module"])
def test_script(f, judge, script_differs):
    assert script_differs(judge(f, gradient(), FLAT))
