"""What a distance on a group promises, and an action that keeps distances: laws that the groups share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from lawful.groups.group import Group
from lawful.laws import Claim, Draw, Same, Statement, all_of, commutativity, law, triangle_inequality


@law("d(g, g) = 0, and d(g, h) > 0 for g ≠ h")
def separation(f: Callable[..., Tensor], g: Tensor, h: Tensor) -> Statement:
    """The distance is zero between equal elements, and only between them.

    Elements that are closer than 1e-3 are outside the domain.

    Kept by: the chord between rotations; the angle; the number of transpositions.
    Broken by: a distance that does not see reflections.
    """
    same, apart = f(g, g), f(g, h)
    gap = (g - h).abs() > 1e-3
    far = gap.flatten(apart.dim()).any(-1) if gap.dim() > apart.dim() else gap
    return Same((same, (apart > 0) | ~far), (torch.zeros_like(same), torch.ones_like(far)), exercised=True)


@law("d(gh, gk) = d(h, k)", tries=None)
def left_invariance(
    f: Callable[..., Tensor], h: Tensor, k: Tensor, *, compose: Callable[[Tensor, Tensor], Tensor], draw: Draw
) -> Statement:
    """Composing both elements with a third from the left leaves them as far apart.

    Kept by: the angle between rotations; a word length of $h^{-1} k$.
    Broken by: the difference of Euler angles; a word length of $h k^{-1}$, which is kept from the right.
    """
    g = draw.fresh(h)
    return Same(f(compose(g, h), compose(g, k)), f(h, k))


@law("‖g·x - g·y‖ = ‖x - y‖", tries=None)
def rigidity(f: Callable[..., Tensor], g: Tensor, x: Tensor, *, draw: Draw) -> Statement:
    """Every element moves vectors such that they are as far apart as they were.

    Kept by: rotations, reflections, translations, permutations.
    Broken by: a scaling; a shear.
    """
    y = draw.fresh(x)
    moved, plain = f(g, x) - f(g, y), x - y
    return Same(torch.linalg.vector_norm(moved, dim=-1), torch.linalg.vector_norm(plain, dim=-1), exercised=True)


def distances(group: Group, element: Any, *, name: str = "") -> Iterator[Claim]:
    """The laws of the distance on a group: a metric that composing from the left does not change.

    Args:
        element: Describes an element, as for `axioms`.
    """
    invariant_metric = all_of(
        separation(),
        commutativity(),
        triangle_inequality(),
        left_invariance(compose=group.compose),
        name="left_invariant_metric",
        says="The map is a distance between elements that composing from the left does not change.",
    )
    said = name or type(group).__name__
    yield Claim(invariant_metric(), group.distance, (element, element), name=f"{said}.distance")
