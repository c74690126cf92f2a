"""Algebraic laws: the map as an operation on one or two elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lawful.laws.interfaces import Draw, Map
from lawful.laws.law import Inapplicable, law
from lawful.laws.statements import Equal, Statement


def _require_same_kind(y: Tensor, x: Tensor) -> Tensor:
    """Returns the output if it can be used as an input."""
    if y.shape != x.shape or y.is_floating_point() != x.is_floating_point():
        raise Inapplicable(
            "expected an output with the shape and dtype of the input, "
            f"got output {y.dtype} {tuple(y.shape)}, input {x.dtype} {tuple(x.shape)}"
        )
    return y


@law("f(f(x)) = f(x)", eval_if_random=True, any_weights=False)
def idempotence(f: Map, x: Tensor) -> Statement:
    """Applying the map twice is the same as applying it once.

    Satisfied by: a projection, ReLU, sorting, normalizing to length 1.
    Broken by: tanh; a layer norm with a gain.
    """
    y = _require_same_kind(f(x), x)
    return Equal(f(y), y)


@law("f(f(x)) = x", eval_if_random=True, any_weights=False)
def involution(f: Map, x: Tensor) -> Statement:
    """The map is its own inverse.

    Satisfied by: a reflection, a reversal, negation, the transpose of a square matrix.
    Broken by: a rotation by an angle other than 180 degrees.
    """
    return Equal(f(_require_same_kind(f(x), x)), x, exercised=True)


def _require_same_inputs(x: Tensor, y: Tensor) -> None:
    if x.shape != y.shape or x.dtype != y.dtype:
        raise Inapplicable(f"expected inputs of the same shape and dtype, got {tuple(x.shape)} and {tuple(y.shape)}")


@law("f(x, y) = f(y, x)", eval_if_random=True)
def commutativity(f: Map, x: Tensor, y: Tensor) -> Statement:
    """The output does not depend on the order of two inputs. For a distance this is symmetry.

    Satisfied by: a sum, an inner product, a distance.
    Broken by: a matrix product, a divergence.
    """
    _require_same_inputs(x, y)
    return Equal(f(y, x), f(x, y))


@law("f(f(x, y), z) = f(x, f(y, z))", eval_if_random=True)
def associativity(f: Map, x: Tensor, y: Tensor, *, draw: Draw) -> Statement:
    """Grouping of repeated operations does not change the result.

    Satisfied by: sums, products, the composition that a parallel scan is built on.
    Broken by: a difference; the mean of two elements.
    """
    _require_same_inputs(x, y)
    z = draw.like(x)
    return Equal(f(_require_same_kind(f(x, y), x), z), f(x, f(y, z)))


@law("f(x, y + z) = f(x, y) + f(x, z)")
def distributivity(
    f: Map, x: Tensor, y: Tensor, *, over: Callable[[Tensor, Tensor], Tensor] = torch.add, draw: Draw
) -> Statement:
    """The operation distributes over another one, by default addition, from the left.

    Satisfied by: a product over a sum; a sum over a maximum.
    Broken by: a sum over a sum; attention over keys.
    """
    z = draw.like(y)
    return Equal(f(x, over(y, z)), over(f(x, y), f(x, z)))


_Element = float | str | Callable[..., Any]
"""A number, a function of x, or the name of a method that takes x."""


def _element(f: Map, element: _Element, x: Tensor) -> Tensor:
    return torch.full_like(x, element) if isinstance(element, int | float) else f.method(element)(x)


@law("f(x, e) = x = f(e, x)", eval_if_random=True)
def identity_element(f: Map, x: Tensor, y: Tensor, *, identity: _Element = 0.0) -> Statement:
    """Composing with the identity element e changes nothing. `identity` is a number or a function of x.

    Satisfied by: 0 for a sum, 1 for a product, the identity for the composition of rotations.
    Broken by: a sum with a bias; quaternions with the real part at the wrong end.
    """
    _require_same_inputs(x, y)
    e = _element(f, identity, x)
    return Equal((_require_same_kind(f(x, e), x), f(e, x)), (x, x), exercised=True)


@law("f(x, x⁻¹) = e = f(x⁻¹, x)", eval_if_random=True)
def inverse_element(
    f: Map, x: Tensor, y: Tensor, *, inverse: _Element = torch.neg, identity: _Element = 0.0
) -> Statement:
    """Composing with `inverse(x)`, a function or the name of a method, gives the identity element.

    Satisfied by: negation for a sum; the transpose for rotations.
    Broken by: the transpose for matrices that are not orthogonal.
    """
    _require_same_inputs(x, y)
    e, back = _element(f, identity, x), _element(f, inverse, x)
    return Equal((_require_same_kind(f(x, back), x), f(back, x)), (e, e), exercised=True)


@law("f(x ∘ y) = f(x) · f(y)", any_weights=False, discover_with=None)
def homomorphism(
    f: Map,
    x: Tensor,
    *,
    operation: Callable[[Tensor, Tensor], Tensor] = torch.matmul,
    into: Callable[[Tensor, Tensor], Tensor] = torch.mul,
    draw: Draw,
) -> Statement:
    """Mapping a combination is the same as combining the mapped elements: f(x ∘ y) = f(x) · f(y).

    Satisfied by: the determinant; the logarithm, from products to sums; quaternions written as matrices.
    Broken by: the trace, from products to products; quaternions with a wrong sign.
    """
    y = draw.like(x)
    return Equal(f(operation(x, y)), into(f(x), f(y)))


@law("f(g, f(h, x)) = f(g ∘ h, x)", eval_if_random=True, discover_with=None)
def action(
    f: Map, g: Tensor, x: Tensor, *, compose: Callable[[Tensor, Tensor], Tensor] = torch.matmul, draw: Draw
) -> Statement:
    """Acting with two elements in turn is the same as acting with their composition.

    Satisfied by: matrices on columns; rotations, permutations and translations acting on points.
    Broken by: matrices applied to rows from the right; a permutation applied as its inverse.
    """
    h = draw.like(g)
    return Equal(f(g, _require_same_kind(f(h, x), x)), f(compose(g, h), x))
