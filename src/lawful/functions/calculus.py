"""Derivative identities: functions of vectors and matrices, each with its derivative by the first argument."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, linalg, relu, sigmoid, tanh
from torch.nn import functional as F

from lawful.functions.divergences import entropy, kl_divergence
from lawful.functions.linalg import distance, norm
from lawful.laws import Claim, derivative, kink_at, probabilities, shape, transformed


@dataclass(frozen=True)
class DerivativeIdentity:
    r"""The derivative of a function by its first argument.

    $$\nabla_x f(x, \dots) = g(x, \dots)$$

    A function with several outputs is differentiated as their sum; the gradient has the shape of $x$.

    Args:
        formula: The identity in one line.
        function: Function $f$.
        gradient: Gradient $g$.
        inputs: Descriptions of the arguments.

    Examples:
        >>> DerivativeIdentity("∇ x² = 2x", torch.square, lambda x: 2 * x, (shape("b"),)).gradient(torch.tensor(3.0))
        tensor(6.)
    """

    formula: str
    function: Callable[..., Tensor]
    gradient: Callable[..., Tensor]
    inputs: tuple[Any, ...]


_softmax = partial(torch.softmax, dim=-1)


def _matvec(a: Tensor, x: Tensor) -> Tensor:
    return (a @ x.unsqueeze(-1)).squeeze(-1)


def _outer(x: Tensor, y: Tensor) -> Tensor:
    return x.unsqueeze(-1) * y.unsqueeze(-2)


def _trace(a: Tensor) -> Tensor:
    return a.diagonal(0, -2, -1).sum(-1)


def _direction(a: Tensor, b: Tensor) -> Tensor:
    """Returns (a - b) / ‖a - b‖, and 0 at a = b."""
    return ((a - b) / (a - b).square().sum(-1, keepdim=True).sqrt()).nan_to_num(0.0)


def _invertible(x: Tensor) -> Tensor:
    """Maps any square matrix to one far from singular."""
    return x / (1 + linalg.matrix_norm(x, keepdim=True)) + 2 * torch.eye(x.shape[-1]).to(x)


def _cross_entropy(x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(x, y, reduction="none")


_scalar, _vector, _matrix, _simplex = shape("b"), shape("b 3"), shape("b 3 3"), probabilities("b 3")
_regular, _positive = transformed(_invertible, "b 3 3"), transformed(lambda x: 0.1 + x.abs(), "b 3")

_ROWS: tuple[tuple[str, Callable[..., Tensor], Callable[..., Tensor], tuple[Any, ...]], ...] = (
    ("∂‖a - b‖/∂a = (a - b)/‖a - b‖", distance, _direction, (_vector, _vector)),
    ("∂‖a - b‖²/∂a = 2(a - b)", lambda a, b: distance(a, b).square(), lambda a, b: 2 * (a - b), (_vector, _vector)),
    ("∂(a·x)/∂x = a", linalg.vecdot, lambda x, a: a, (_vector, _vector)),
    (
        "∂(xᵀAx)/∂x = (A + Aᵀ)x",
        lambda x, a: linalg.vecdot(x, _matvec(a, x)),
        lambda x, a: _matvec(a + a.mT, x),
        (_vector, _matrix),
    ),
    (
        "∂‖Ax - b‖²/∂x = 2Aᵀ(Ax - b)",
        lambda x, a, b: norm(_matvec(a, x) - b).square(),
        lambda x, a, b: 2 * _matvec(a.mT, _matvec(a, x) - b),
        (_vector, _matrix, _vector),
    ),
    (
        "∂(aᵀXb)/∂X = abᵀ",
        lambda x, a, b: linalg.vecdot(a, _matvec(x, b)),
        lambda x, a, b: _outer(a, b),
        (_matrix, _vector, _vector),
    ),
    ("∂‖X‖²/∂X = 2X", lambda x: linalg.matrix_norm(x).square(), lambda x: 2 * x, (_matrix,)),
    ("∂tr(AX)/∂X = Aᵀ", lambda x, a: _trace(a @ x), lambda x, a: a.mT, (_matrix, _matrix)),
    ("∂tr(XᵀAX)/∂X = (A + Aᵀ)X", lambda x, a: _trace(x.mT @ a @ x), lambda x, a: (a + a.mT) @ x, (_matrix, _matrix)),
    ("∂det X/∂X = det X · X⁻ᵀ", linalg.det, lambda x: x.det()[:, None, None] * x.inverse().mT, (_regular,)),
    ("∂log|det X|/∂X = X⁻ᵀ", lambda x: linalg.slogdet(x).logabsdet, lambda x: x.inverse().mT, (_regular,)),
    (
        "∂tr(X⁻¹A)/∂X = -(X⁻¹AX⁻¹)ᵀ",
        lambda x, a: _trace(x.inverse() @ a),
        lambda x, a: -(x.inverse() @ a @ x.inverse()).mT,
        (_regular, _matrix),
    ),
    ("relu'(x) = 1 for x > 0, 0 for x < 0", relu, lambda x: (x > 0).to(x), (_scalar,)),
    ("σ'(x) = σ(x)(1 - σ(x))", sigmoid, lambda x: sigmoid(x) * (1 - sigmoid(x)), (_scalar,)),
    ("tanh'(x) = 1 - tanh²(x)", tanh, lambda x: 1 - tanh(x).square(), (_scalar,)),
    ("softplus'(x) = σ(x)", partial(F.softplus, threshold=50), sigmoid, (_scalar,)),
    ("∂log Σexp(x)/∂x = softmax(x)", lambda x: x.logsumexp(-1), _softmax, (_vector,)),
    (
        "∂(c·softmax(x))/∂x = (diag p - ppᵀ)c, p = softmax(x)",
        lambda x, c: linalg.vecdot(_softmax(x), c),
        lambda x, c: _matvec(torch.diag_embed(_softmax(x)) - _outer(_softmax(x), _softmax(x)), c),
        (_vector, _vector),
    ),
    ("(x log x)' = log x + 1", lambda x: torch.xlogy(x, x), lambda x: x.log() + 1, (_positive,)),
    ("(x log x)'' = 1/x", lambda x: x.log() + 1, torch.reciprocal, (_positive,)),
    ("∂H(p)/∂p = -log p - 1", entropy, lambda p: -p.log() - 1, (_simplex,)),
    ("∂KL(p, q)/∂q = -p/q", lambda q, p: kl_divergence(p, q), lambda q, p: -p / q, (_simplex, _simplex)),
    ("∂CE(y, softmax(x))/∂x = softmax(x) - y", _cross_entropy, lambda x, y: _softmax(x) - y, (_vector, _simplex)),
)

DERIVATIVE_IDENTITIES: tuple[DerivativeIdentity, ...] = tuple(DerivativeIdentity(*row) for row in _ROWS)
"""Derivatives of vectors, matrices, activations and divergences."""


def claims() -> Iterator[Claim]:
    """One claim for each identity."""
    for identity in DERIVATIVE_IDENTITIES:
        law = derivative(formula=identity.gradient)
        if identity.function is relu:
            law = law.excluding(kink_at(0.0))
        yield Claim(law, identity.function, identity.inputs, identity.formula)
