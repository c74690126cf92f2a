"""Algebraic laws."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lawful import shape, tokens, transformed
from lawful.laws import (
    action,
    associativity,
    commutativity,
    distributivity,
    homomorphism,
    idempotence,
    identity_element,
    inverse_element,
    involution,
)
from tests.laws.drivers import test_broken, test_satisfied  # noqa: F401

torch.manual_seed(0)


def projection(x):
    """Projects onto the vectors with sum zero."""
    return x - x.mean(-1, keepdim=True)


def unit(x):
    return x / x.norm(dim=-1, keepdim=True).clamp_min(1e-12)


def reflection(x):
    v = torch.tensor([1.0, 2.0, 2.0, 0.0]).to(x) / 3
    return x - 2 * (x @ v)[..., None] * v


def turn(x):
    """Turns pairs of coordinates by a third of a turn."""
    angle = torch.tensor(2 * torch.pi / 3, dtype=x.dtype)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], dim=-1)


def half_turn(x):
    return -x


def inner(x, y):
    return (x * y).sum(-1)


def distance(x, y):
    return (x - y).norm(dim=-1)


def relative_entropy(x, y):
    p, q = x.log_softmax(-1), y.log_softmax(-1)
    return (p.exp() * (p - q)).sum(-1)


def scan_step(x, y):
    """The composition of two steps h -> a h + b, each a pair (a, b) along the last axis."""
    (a, b), (c, d) = x.unbind(-1), y.unbind(-1)
    return torch.stack([c * a, c * b + d], dim=-1)


def scan_step_reordered(x, y):
    """Returns b + c d instead of c b + d."""
    (a, b), (c, d) = x.unbind(-1), y.unbind(-1)
    return torch.stack([c * a, b + c * d], dim=-1)


def average(x, y):
    return (x + y) / 2


def attend(x, y):
    """Attention with queries x, keys y and values y."""
    return (x @ y.mT).softmax(-1) @ y


class Biased(nn.Module):
    """A sum with a bias."""

    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.ones(4))

    def forward(self, x, y):
        return x + y + self.bias


class Quaternions(nn.Module):
    """The quaternion product, with the real part first."""

    def forward(self, x, y):
        (a, u), (b, v) = x.split([1, 3], dim=-1), y.split([1, 3], dim=-1)
        real = a * b - (u * v).sum(-1, keepdim=True)
        return torch.cat([real, a * v + b * u + torch.linalg.cross(u, v)], dim=-1)

    def one(self, x):
        return F.one_hot(torch.tensor(0), 4).to(x).expand_as(x)

    def one_at_the_wrong_end(self, x):
        return F.one_hot(torch.tensor(3), 4).to(x).expand_as(x)

    def inverse(self, x):
        return torch.cat([x[..., :1], -x[..., 1:]], dim=-1) / x.square().sum(-1, keepdim=True)

    def conjugate(self, x):
        return torch.cat([x[..., :1], -x[..., 1:]], dim=-1)


def rotations(draw):
    """Two batches of rotations."""
    return torch.linalg.qr(draw.normal(2, 3, 3)).Q, torch.linalg.qr(draw.normal(2, 3, 3)).Q


def shear(x):
    """Matrices with determinant 1, by rows of two numbers."""
    (a, b), one = x.unbind(-1), torch.ones_like(x[..., 0])
    return torch.stack([torch.stack([one, a], -1), torch.stack([b, 1 + a * b], -1)], -2)


def permutation(x):
    return x.argsort(-1)


def on_columns(g, x):
    return (g @ x[..., None])[..., 0]


def on_rows(g, x):
    return (x[..., None, :] @ g)[..., 0, :]


def trace(x):
    return x.diagonal(dim1=-2, dim2=-1).sum(-1)


def eye(x):
    return torch.eye(x.shape[-1]).to(x).expand_as(x)


def transpose(x):
    return x.mT


def away_from_zero(draw):
    return draw.normal(2, 4) + 3, draw.normal(2, 4) + 3


X, SQUARE, STEP, PAIR = shape("b t 4"), shape("b n n"), shape("b t 2"), (shape("b t 4"), shape("b t 4"))
MATRICES = (shape("b 3 3"), shape("b 3 3"))

SATISFIED = {
    "homomorphism: the determinant": (homomorphism(), shape("b 3 3"), torch.linalg.det),
    "homomorphism: exp, from sums": (homomorphism(operation=torch.add), transformed(torch.tanh, "b 4"), torch.exp),
    "action: matrices on columns": (action(), (transformed(shear, "b 2"), shape("b 2")), on_columns),
    "action: permutations": (
        action(compose=lambda g, h: h.gather(-1, g)),
        (transformed(permutation, "b 5"), shape("b 5")),
        lambda g, x: x.gather(-1, g),
    ),
    "idempotence: a projection": (idempotence(), X, projection),
    "idempotence: ReLU": (idempotence(), X, torch.relu),
    "idempotence: sorting": (idempotence(), X, lambda x: x.sort(-1).values),
    "idempotence: length 1": (idempotence(), X, unit),
    "idempotence: rounding integers": (idempotence(), tokens("b t", vocab_size=9), lambda x: x // 3 * 3),
    "involution: a reflection": (involution(), X, reflection),
    "involution: a reversal": (involution(), X, lambda x: x.flip(1)),
    "involution: the negative": (involution(), X, torch.neg),
    "involution: half a turn": (involution(), X, half_turn),
    "involution: the transpose": (involution(), SQUARE, transpose),
    "commutativity: a sum": (commutativity(), PAIR, torch.add),
    "commutativity: an inner product": (commutativity(), PAIR, inner),
    "commutativity: a distance": (commutativity(), PAIR, distance),
    "associativity: a sum": (associativity(), PAIR, torch.add),
    "associativity: a product": (associativity(), PAIR, torch.mul),
    "associativity: matrices": (associativity(), MATRICES, torch.matmul),
    "associativity: a scan": (associativity(), (STEP, STEP), scan_step),
    "associativity: quaternions": (associativity(), PAIR, Quaternions()),
    "distributes: a product": (distributivity(), PAIR, torch.mul),
    "distributes: a sum over a maximum": (distributivity(over=torch.maximum), PAIR, torch.add),
    "identity element: 0 for a sum": (identity_element(), PAIR, torch.add),
    "identity element: 1 for a product": (identity_element(identity=1.0), PAIR, torch.mul),
    "identity element: the identity matrix": (identity_element(identity=eye), rotations, torch.matmul),
    "identity element: the quaternion 1": (identity_element(identity="one"), PAIR, Quaternions()),
    "inverse element: the negative": (inverse_element(), PAIR, torch.add),
    "inverse element: the transpose": (inverse_element(inverse=transpose, identity=eye), rotations, torch.matmul),
    "inverse element: quaternions": (inverse_element(inverse="inverse", identity="one"), away_from_zero, Quaternions()),
}
BROKEN = {
    "homomorphism: the trace": (homomorphism(), shape("b 3 3"), trace),
    "action: matrices on rows": (action(), (transformed(shear, "b 2"), shape("b 2")), on_rows),
    "action: permutations undone": (
        action(compose=lambda g, h: g.gather(-1, h)),
        (transformed(permutation, "b 5"), shape("b 5")),
        lambda g, x: x.gather(-1, g),
    ),
    "idempotence: tanh": (idempotence(), X, torch.tanh),
    "idempotence: a layer norm with a gain": (idempotence(), X, nn.LayerNorm(4)),
    "involution: a third of a turn": (involution(), X, turn),
    "commutativity: matrices": (commutativity(), MATRICES, torch.matmul),
    "commutativity: a divergence": (commutativity(), PAIR, relative_entropy),
    "associativity: a difference": (associativity(), PAIR, torch.sub),
    "associativity: an average": (associativity(), PAIR, average),
    "associativity: a scan that forgets": (associativity(), (STEP, STEP), scan_step_reordered),
    "distributes: a sum": (distributivity(), PAIR, torch.add),
    "distributes: attention": (distributivity(), PAIR, attend),
    "identity element: a bias": (identity_element(), PAIR, Biased()),
    "identity element: a quaternion at the wrong end": (
        identity_element(identity="one_at_the_wrong_end"),
        PAIR,
        Quaternions(),
    ),
    "inverse element: the transpose of any matrix": (
        inverse_element(inverse=transpose, identity=eye),
        MATRICES,
        torch.matmul,
    ),
    "inverse element: a conjugate that is not scaled": (
        inverse_element(inverse="conjugate", identity="one"),
        PAIR,
        Quaternions(),
    ),
}
INAPPLICABLE = {
    "idempotence: another shape": (
        idempotence(),
        X,
        inner_width := nn.Linear(4, 3),
        "expected an output with the shape and dtype of the input",
    ),
    "involution: another shape": (
        involution(),
        X,
        inner_width,
        "expected an output with the shape and dtype of the input",
    ),
    "involution: another type": (
        involution(),
        X,
        lambda x: x.argsort(-1),
        "expected an output with the shape and dtype of the input",
    ),
    "associativity: a number": (
        associativity(),
        PAIR,
        inner,
        "expected an output with the shape and dtype of the input",
    ),
    "identity element: a number": (
        identity_element(),
        PAIR,
        inner,
        "expected an output with the shape and dtype of the input",
    ),
    "inverse element: a number": (
        inverse_element(),
        PAIR,
        inner,
        "expected an output with the shape and dtype of the input",
    ),
    "commutativity: two shapes": (commutativity(), (X, STEP), inner, "expected inputs of the same shape and dtype"),
    "identity element: no such method": (
        identity_element(identity="zero"),
        PAIR,
        Biased(),
        "Biased has no method 'zero'",
    ),
}
SCRIPTS = [
    "involution: a third of a turn",
    "associativity: a scan that forgets",
    "identity element: a bias",
    "commutativity: a divergence",
]


@pytest.mark.parametrize(("law", "inputs", "f", "reason"), INAPPLICABLE.values(), ids=INAPPLICABLE)
def test_inapplicable(law, inputs, f, reason, judge):
    verdict = judge(f, law, inputs, cases=5)
    assert verdict.status == "inapplicable"
    assert reason in verdict.reason


def test_two_inputs_are_needed(judge):
    verdict = judge(torch.relu, commutativity(), X)
    assert (verdict.status, verdict.usage_error) == ("error", True)
    assert verdict.reason == "commutativity needs 2 inputs, got 1"


def test_the_identity_is_vacuous(judge):
    assert judge(nn.Identity(), idempotence(), X, cases=5).status == "vacuous"
