"""Derivative identities: functions of vectors and matrices, each with its derivative by the first argument."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lawful.functions.activations import relu, sigmoid, softmax, softplus, tanh
from lawful.functions.divergences import cross_entropy_from_logits, entropy, kl_divergence
from lawful.functions.linalg import distance, dot, frobenius, norm
from lawful.functions.tensors import outer
from lawful.laws import Claim, derivative, kink_at, probabilities, shape, transformed


@dataclass(frozen=True)
class DerivativeIdentity:
    r"""States the derivative of a function by its first argument.

    $$\nabla_x f(x, \dots) = g(x, \dots)$$

    A function that gives several numbers is differentiated as their sum, and the gradient has the shape of $x$.

    Args:
        formula: The identity in one line of mathematics.
        function: $f$.
        gradient: $g$.
        inputs: What the arguments are.

    Examples:
        >>> DerivativeIdentity("∇ x² = 2x", torch.square, lambda x: 2 * x, (shape("b"),)).gradient(torch.tensor(3.0))
        tensor(6.)
    """

    formula: str
    function: Callable[..., Tensor]
    gradient: Callable[..., Tensor]
    inputs: tuple[Any, ...]


def _quadratic_form(x: Tensor, a: Tensor) -> Tensor:
    """Returns xᵀ A x, for vectors x along the last axis."""
    return dot(x, (a @ x.unsqueeze(-1)).squeeze(-1))


def _trace(a: Tensor) -> Tensor:
    """Returns the sum of the diagonal of square matrices."""
    return a.diagonal(0, -2, -1).sum(-1)


def _jacobian_of_softmax(p: Tensor) -> Tensor:
    """Returns diag(p) - p pᵀ, the matrix of all derivatives of the softmax where its value is p."""
    return torch.diag_embed(p) - outer(p, p)


def _column(x: Tensor) -> Tensor:
    return x.unsqueeze(-1)


def _towards(a: Tensor, b: Tensor) -> Tensor:
    """Returns the direction from b to a; 0 where they are the same, as the derivative of the distance is."""
    return ((a - b) / _column((a - b).square().sum(-1).sqrt())).nan_to_num(0.0)


def _invertible(x: Tensor) -> Tensor:
    """Matrices far from singular ones."""
    return x / (1 + frobenius(x)[..., None, None]) + 2 * torch.eye(x.shape[-1]).to(x)


def _positive(x: Tensor) -> Tensor:
    return 0.1 + x.abs()


_v, _m, _number = shape("b 3"), shape("b 3 3"), shape("b")
_inverted, _above = transformed(_invertible, "b 3 3"), transformed(_positive, "b 3")

VECTORS = (
    DerivativeIdentity("∂‖a - b‖/∂a = (a - b)/‖a - b‖", distance, _towards, (_v, _v)),
    DerivativeIdentity(
        "∂‖a - b‖²/∂a = 2(a - b)", lambda a, b: distance(a, b).square(), lambda a, b: 2 * (a - b), (_v, _v)
    ),
    DerivativeIdentity("∂(a·x)/∂x = a", dot, lambda x, a: a, (_v, _v)),
    DerivativeIdentity(
        "∂(xᵀAx)/∂x = (A + Aᵀ)x", _quadratic_form, lambda x, a: ((a + a.mT) @ _column(x)).squeeze(-1), (_v, _m)
    ),
    DerivativeIdentity(
        "∂‖Ax - b‖²/∂x = 2Aᵀ(Ax - b)",
        lambda x, a, b: norm((a @ _column(x)).squeeze(-1) - b).square(),
        lambda x, a, b: 2 * (a.mT @ (a @ _column(x) - _column(b))).squeeze(-1),
        (_v, _m, _v),
    ),
)

MATRICES = (
    DerivativeIdentity(
        "∂(aᵀXb)/∂X = abᵀ",
        lambda x, a, b: dot(a, (x @ _column(b)).squeeze(-1)),
        lambda x, a, b: outer(a, b),
        (_m, _v, _v),
    ),
    DerivativeIdentity("∂‖X‖²/∂X = 2X", lambda x: frobenius(x).square(), lambda x: 2 * x, (_m,)),
    DerivativeIdentity("∂tr(AX)/∂X = Aᵀ", lambda x, a: _trace(a @ x), lambda x, a: a.mT, (_m, _m)),
    DerivativeIdentity(
        "∂tr(XᵀAX)/∂X = (A + Aᵀ)X", lambda x, a: _trace(x.mT @ a @ x), lambda x, a: (a + a.mT) @ x, (_m, _m)
    ),
    DerivativeIdentity(
        "∂det X/∂X = det X · X⁻ᵀ", torch.linalg.det, lambda x: x.det()[:, None, None] * x.inverse().mT, (_inverted,)
    ),
    DerivativeIdentity(
        "∂log|det X|/∂X = X⁻ᵀ", lambda x: torch.linalg.slogdet(x).logabsdet, lambda x: x.inverse().mT, (_inverted,)
    ),
    DerivativeIdentity(
        "∂tr(X⁻¹A)/∂X = -(X⁻¹AX⁻¹)ᵀ",
        lambda x, a: _trace(x.inverse() @ a),
        lambda x, a: -(x.inverse() @ a @ x.inverse()).mT,
        (_inverted, _m),
    ),
)

ACTIVATIONS = (
    DerivativeIdentity("relu'(x) = 1 for x > 0, 0 for x < 0", relu, lambda x: (x > 0).to(x), (_number,)),
    DerivativeIdentity("σ'(x) = σ(x)(1 - σ(x))", sigmoid, lambda x: sigmoid(x) * (1 - sigmoid(x)), (_number,)),
    DerivativeIdentity("tanh'(x) = 1 - tanh²(x)", tanh, lambda x: 1 - tanh(x).square(), (_number,)),
    DerivativeIdentity("softplus'(x) = σ(x)", softplus, sigmoid, (_number,)),
    DerivativeIdentity("∂log Σexp(x)/∂x = softmax(x)", lambda x: x.logsumexp(-1), softmax, (_v,)),
    DerivativeIdentity(
        "∂(c·softmax(x))/∂x = (diag p - ppᵀ)c, p = softmax(x)",
        lambda x, c: dot(softmax(x), c),
        lambda x, c: (_jacobian_of_softmax(softmax(x)) @ _column(c)).squeeze(-1),
        (_v, _v),
    ),
)

DIVERGENCES = (
    DerivativeIdentity("(x log x)' = log x + 1", lambda x: torch.xlogy(x, x), lambda x: x.log() + 1, (_above,)),
    DerivativeIdentity("(x log x)'' = 1/x", lambda x: x.log() + 1, torch.reciprocal, (_above,)),
    DerivativeIdentity("∂H(p)/∂p = -log p - 1", entropy, lambda p: -p.log() - 1, (probabilities("b 3"),)),
    DerivativeIdentity(
        "∂KL(p, q)/∂q = -p/q",
        lambda q, p: kl_divergence(p, q),
        lambda q, p: -p / q,
        (probabilities("b 3"), probabilities("b 3")),
    ),
    DerivativeIdentity(
        "∂CE(y, softmax(x))/∂x = softmax(x) - y",
        lambda x, y: cross_entropy_from_logits(y, x),
        lambda x, y: softmax(x) - y,
        (_v, probabilities("b 3")),
    ),
)

DERIVATIVE_IDENTITIES = VECTORS + MATRICES + ACTIVATIONS + DIVERGENCES
"""All identities, one a row."""


def claims() -> Iterator[Claim]:
    """Every identity, as a law of its function."""
    for row in DERIVATIVE_IDENTITIES:
        law = derivative(formula=row.gradient)
        if row.function is relu:
            law = law.excluding(kink_at(0.0))
        yield Claim(law, row.function, row.inputs, row.formula)
