"""Distances, inner products and frames."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lawful.laws._helpers import is_positive, require_real
from lawful.laws.algebra import commutativity
from lawful.laws.interfaces import Draw, Map
from lawful.laws.law import Inapplicable, all_of, law
from lawful.laws.probability import non_negativity
from lawful.laws.statements import AtMost, Equal, Statement, at


@law("d(x, z) ≤ d(x, y) + d(y, z)", eval_if_random=True)
def triangle_inequality(f: Map, x: Tensor, y: Tensor, *, draw: Draw) -> Statement:
    """The distance via a third point is never shorter.

    Satisfied by: norms of differences; the angle between vectors.
    Broken by: a squared distance; one minus the cosine similarity.
    """
    z = draw.like(y)
    return AtMost(f(x, z), f(x, y) + f(y, z))


@law("d(x, x) = 0, and d(x, y) > 0 for x ≠ y", eval_if_random=True)
def identity_of_indiscernibles(f: Map, x: Tensor, y: Tensor, *, draw: Draw) -> Statement:
    """The distance is zero between equal inputs, and only between them.

    The map returns one number, or one for each pair of rows. The unequal pairs are x and y, and x and a copy with
    one entry of each row changed. Pairs that are very close are excluded.

    Satisfied by: norms of differences; divergences between distributions.
    Broken by: a distance of some coordinates only; one with an eps under the root.
    """
    same = f(x, x)
    i = draw.integer(0, x.shape[-1] - 1, "entry") if x.dim() else 0
    near = draw.replace(x, at(i, axis=-1)) if x.dim() else y
    left, right = [same], [torch.zeros_like(same)]
    for other in (y, near):
        positive = is_positive(f(x, other), x, other)
        left.append(positive)
        right.append(torch.ones_like(positive))
    return Equal(left, right, exercised=True, names=("d(x, x)", "d(x, y) > 0", "d(x, x') > 0"))


@law("k(x, y)² ≤ k(x, x) k(y, y)", eval_if_random=True)
def cauchy_schwarz(f: Map, x: Tensor, y: Tensor) -> Statement:
    """The square of an inner product, or a kernel, is at most the product of the squared norms.

    Satisfied by: inner products; kernels.
    Broken by: a product with a negative weight; a similarity that is not a kernel.
    """
    return AtMost(f(x, y) ** 2, f(x, x) * f(y, y))


metric = all_of(
    non_negativity,
    commutativity,
    identity_of_indiscernibles,
    triangle_inequality,
    name="metric",
    doc="""The map of two inputs is a metric: non-negative, symmetric, zero only for equal inputs, triangle inequality.

    Satisfied by: norms of differences.
    Broken by: a squared distance; a divergence.
    """,
)


@law("‖f(x) - f(y)‖ = ‖x - y‖", any_weights=False)
def isometry(f: Map, x: Tensor, *, draw: Draw) -> Statement:
    """Distances between vectors, along the last axis, are preserved.

    Satisfied by: rotations, reflections, permutations, translations, an orthonormal change of basis.
    Broken by: a scaling; sorting; a rotation matrix with unconstrained learned entries.
    """
    y = draw.like(require_real(x))
    if not x.dim() or f(x).dim() != x.dim():
        raise Inapplicable(f"expected one output vector per input vector, got {tuple(f(x).shape)} for {tuple(x.shape)}")
    return Equal((f(x) - f(y)).norm(dim=-1), (x - y).norm(dim=-1), exercised=x.shape[-1] > 1)


@law("d(g, g) = 0, and d(g, h) > 0 for g ≠ h", eval_if_random=True)
def separation(f: Map, g: Tensor, h: Tensor) -> Statement:
    """The distance is zero between equal elements, and only between them.

    Pairs that are closer than 1e-3 are excluded. Unlike `identity_of_indiscernibles`, it changes no single entry, so
    that elements of a group stay elements.

    Satisfied by: the angle between rotations; the number of transpositions between permutations.
    Broken by: a distance that ignores reflections.
    """
    same, apart = f(g, g), f(g, h)
    gap = (g - h).abs() > 1e-3
    far = gap.flatten(apart.dim()).any(-1) if gap.dim() > apart.dim() else gap
    return Equal((same, (apart > 0) | ~far), (torch.zeros_like(same), torch.ones_like(far)), exercised=True)


@law("d(gh, gk) = d(h, k)", eval_if_random=True, discover_with=None)
def left_invariance(
    f: Map, h: Tensor, k: Tensor, *, compose: Callable[[Tensor, Tensor], Tensor], draw: Draw
) -> Statement:
    """The distance does not change if both elements are composed with a third one from the left.

    Satisfied by: the angle between rotations; a word length of h⁻¹k.
    Broken by: the difference of Euler angles; a word length of hk⁻¹, which is right-invariant.
    """
    g = draw.like(h)
    return Equal(f(compose(g, h), compose(g, k)), f(h, k))


@law("‖g·x - g·y‖ = ‖x - y‖", discover_with=None)
def isometric_action(f: Map, g: Tensor, x: Tensor, *, draw: Draw) -> Statement:
    """Every group element preserves the distances between vectors, along the last axis.

    Satisfied by: rotations, reflections, translations, permutations.
    Broken by: a scaling; a shear.
    """
    y = draw.like(x)
    moved, plain = f(g, x) - f(g, y), x - y
    return Equal(torch.linalg.vector_norm(moved, dim=-1), torch.linalg.vector_norm(plain, dim=-1), exercised=True)


def _require_matrix(y: Tensor) -> Tensor:
    if y.dim() < 2:
        raise Inapplicable(f"expected a matrix or a batch of matrices, got shape {tuple(y.shape)}")
    return y


@law("f(x)_ij = f(x)_ji")
def symmetry(f: Map, *xs: Tensor) -> Statement:
    """The output is a symmetric matrix, or a batch of them, in its last two axes.

    Satisfied by: Gram matrices, covariances, pairwise distances.
    Broken by: attention weights; a product of two symmetric matrices.
    """
    y = _require_matrix(f(*xs))
    if y.shape[-1] != y.shape[-2]:
        raise Inapplicable(f"expected a square matrix, got shape {tuple(y.shape)}")
    return Equal(y, y.mT, exercised=y.shape[-1] > 1)


@law("f(x)ᵀ f(x) = 1")
def orthonormality(f: Map, *xs: Tensor) -> Statement:
    """The columns of the output, a matrix or a batch of them, are orthonormal.

    Satisfied by: the Q of a QR decomposition, rotations, whitening.
    Broken by: normalizing columns only; a rotation matrix with unconstrained learned entries.
    """
    y = _require_matrix(f(*xs))
    if y.shape[-1] > y.shape[-2]:
        raise Inapplicable(f"expected at most as many columns as rows, got shape {tuple(y.shape)}")
    gram = y.mT @ y
    return Equal(gram, torch.eye(gram.shape[-1]).to(gram).expand_as(gram), exercised=True)


@law("vᵀ f(x) v ≥ 0", discover_with=None)
def positive_semidefiniteness(f: Map, *xs: Tensor, draw: Draw) -> Statement:
    """The output is a positive semidefinite matrix, or a batch of them.

    Satisfied by: Gram matrices, covariances, kernel matrices.
    Broken by: a distance matrix; queries times other keys.
    """
    y = _require_matrix(f(*xs))
    v = draw.normal(*y.shape[:-1], 1)
    form = v.mT @ y @ v
    return AtMost(torch.zeros_like(form), form)
