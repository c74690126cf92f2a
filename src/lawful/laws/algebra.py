"""The map as an operation: on itself, or on pairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lawful.laws.interfaces import Draw, Map
from lawful.laws.law import Inapplicable, law
from lawful.laws.statements import Equal, Statement


def _alike(y: Tensor, x: Tensor) -> Tensor:
    """Returns an output that can be put in where an input was, or says that the law does not apply."""
    if y.shape != x.shape or y.is_floating_point() != x.is_floating_point():
        what = f"output {y.dtype} {tuple(y.shape)}, input {x.dtype} {tuple(x.shape)}"
        raise Inapplicable(f"the output is not of the input's kind: {what}")
    return y


@law("f(f(x)) = f(x)", any_weights=False)
def idempotence(f: Map, x: Tensor) -> Statement:
    """Doing it twice is doing it once.

    Satisfied by: a projection, ReLU, sorting, normalising to length 1.
    Broken by: tanh; a layer norm with a gain.
    """
    y = _alike(f(x), x)
    return Equal(f(y), y)


@law("f(f(x)) = x", any_weights=False)
def involution(f: Map, x: Tensor) -> Statement:
    """Doing it twice undoes it.

    Satisfied by: a reflection, a reversal, the negative, the transpose of a square matrix.
    Broken by: a rotation by other than half a turn.
    """
    return Equal(f(_alike(f(x), x)), x, exercised=True)


def _pair(x: Tensor, y: Tensor) -> None:
    if x.shape != y.shape or x.dtype != y.dtype:
        raise Inapplicable(f"two inputs of one kind were wanted: got {tuple(x.shape)} and {tuple(y.shape)}")


@law("f(x, y) = f(y, x)")
def commutativity(f: Map, x: Tensor, y: Tensor) -> Statement:
    """The order of two inputs makes no difference; for a distance this is its symmetry.

    Satisfied by: a sum, an inner product, a distance.
    Broken by: a matrix product, a divergence.
    """
    _pair(x, y)
    return Equal(f(y, x), f(x, y))


@law("f(f(x, y), z) = f(x, f(y, z))")
def associativity(f: Map, x: Tensor, y: Tensor, *, draw: Draw) -> Statement:
    """Brackets make no difference.

    Satisfied by: sums, products, the composition that a parallel scan is built on.
    Broken by: a difference, an average of two.
    """
    _pair(x, y)
    z = draw.like(x)
    return Equal(f(_alike(f(x, y), x), z), f(x, f(y, z)))


@law("f(x, y + z) = f(x, y) + f(x, z)")
def distributivity(
    f: Map, x: Tensor, y: Tensor, *, over: Callable[[Tensor, Tensor], Tensor] = torch.add, draw: Draw
) -> Statement:
    """The operation distributes over another one, a sum unless said otherwise, from the left.

    Satisfied by: a product over a sum; a sum over a maximum.
    Broken by: a sum over a sum; attention over keys.
    """
    z = draw.like(y)
    return Equal(f(x, over(y, z)), over(f(x, y), f(x, z)))


Element = float | str | Callable[..., Any]
"""A number, or a function of x: itself or the name of a method."""


def _element(f: Map, element: Element, x: Tensor) -> Tensor:
    return torch.full_like(x, element) if isinstance(element, int | float) else f.method(element)(x)


@law("f(x, e) = x = f(e, x)")
def identity_element(f: Map, x: Tensor, y: Tensor, *, identity: Element = 0.0) -> Statement:
    """There is an element e that changes nothing: a number, or a function of x that gives it.

    Satisfied by: 0 for a sum, 1 for a product, the identity for the composition of rotations.
    Broken by: a sum with a bias; quaternions with the real part at the wrong end.
    """
    _pair(x, y)
    e = _element(f, identity, x)
    return Equal((_alike(f(x, e), x), f(e, x)), (x, x), exercised=True)


@law("f(x, x⁻¹) = e = f(x⁻¹, x)")
def inverse_element(
    f: Map, x: Tensor, y: Tensor, *, inverse: Element = torch.neg, identity: Element = 0.0
) -> Statement:
    """Each element has an inverse: `inverse(x)`, a function or the name of a method.

    Satisfied by: the negative for a sum; the transpose for rotations.
    Broken by: the transpose for matrices that are not orthogonal.
    """
    _pair(x, y)
    e, back = _element(f, identity, x), _element(f, inverse, x)
    return Equal((_alike(f(x, back), x), f(back, x)), (e, e), exercised=True)


@law("f(x ∘ y) = f(x) · f(y)", any_weights=False, discover_with=None)
def homomorphism(
    f: Map,
    x: Tensor,
    *,
    operation: Callable[[Tensor, Tensor], Tensor] = torch.matmul,
    into: Callable[[Tensor, Tensor], Tensor] = torch.mul,
    draw: Draw,
) -> Statement:
    """The map turns one operation into another: first combining, then mapping is first mapping, then combining.

    Satisfied by: the determinant; the logarithm, from products to sums; quaternions written as matrices.
    Broken by: the trace, from products to products; a unit of the quaternions with a wrong sign.
    """
    y = draw.like(x)
    return Equal(f(operation(x, y)), into(f(x), f(y)))


@law("f(g, f(h, x)) = f(g ∘ h, x)", discover_with=None)
def action(
    f: Map, g: Tensor, x: Tensor, *, compose: Callable[[Tensor, Tensor], Tensor] = torch.matmul, draw: Draw
) -> Statement:
    """Applying two elements one after the other is applying their composition.

    Satisfied by: matrices on columns; rotations, permutations and translations on what they move.
    Broken by: matrices on rows, from the right; a permutation that is applied as its inverse.
    """
    h = draw.like(g)
    return Equal(f(g, _alike(f(h, x), x)), f(compose(g, h), x))
