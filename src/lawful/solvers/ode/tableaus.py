"""Runge-Kutta methods as rows of data: Butcher's tableaus."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from lawful.laws import Claim, agreement, shape

Row = tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Tableau:
    r"""Tells an explicit Runge-Kutta method by its numbers.

    $$k_i = f\Bigl(x + h \sum_{j < i} a_{ij} k_j, \; t + c_i h\Bigr), \qquad x' = x + h \sum_i b_i k_i$$

    Reference:
        Hairer, Nørsett and Wanner, *Solving Ordinary Differential Equations I*, 1993.

    Args:
        name: What errors call it.
        order: Its order $p$: the error of a solution goes down as $h^p$.
        inner: The rows $a_{i}$ after the first, which is empty.
        weights: $b$.
        lower: The weights of a method of a lower order in the same stages, whose difference estimates the error.

    Examples:
        >>> HEUN.nodes, HEUN.weights
        ((0.0, 1.0), (0.5, 0.5))
    """

    name: str
    order: int
    inner: tuple[Row, ...] = ()
    weights: Row
    lower: Row = ()

    @property
    def nodes(self) -> Row:
        r"""$c_i = \sum_j a_{ij}$, where between the ends of a step the stages are."""
        return (0.0, *(float(sum(row)) for row in self.inner))

    @property
    def last_is_first(self) -> bool:
        """Whether the last stage is at the end of the step, and so the first of the next one."""
        return bool(self.inner) and self.inner[-1] == self.weights[:-1] and self.weights[-1] == 0


EULER = Tableau(name="Euler", order=1, weights=(1.0,))
MIDPOINT = Tableau(name="midpoint", order=2, inner=((1 / 2,),), weights=(0.0, 1.0))
HEUN = Tableau(name="Heun", order=2, inner=((1.0,),), weights=(1 / 2, 1 / 2), lower=(1.0, 0.0))
RK4 = Tableau(
    name="RK4",
    order=4,
    inner=((1 / 2,), (0.0, 1 / 2), (0.0, 0.0, 1.0)),
    weights=(1 / 6, 1 / 3, 1 / 3, 1 / 6),
)
BOGACKI_SHAMPINE = Tableau(
    name="Bogacki-Shampine",
    order=3,
    inner=((1 / 2,), (0.0, 3 / 4), (2 / 9, 1 / 3, 4 / 9)),
    weights=(2 / 9, 1 / 3, 4 / 9, 0.0),
    lower=(7 / 24, 1 / 4, 1 / 3, 1 / 8),
)
DORMAND_PRINCE = Tableau(
    name="Dormand-Prince",
    order=5,
    inner=(
        (1 / 5,),
        (3 / 40, 9 / 40),
        (44 / 45, -56 / 15, 32 / 9),
        (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
        (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
        (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
    ),
    weights=(35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84, 0.0),
    lower=(5179 / 57600, 0.0, 7571 / 16695, 393 / 640, -92097 / 339200, 187 / 2100, 1 / 40),
)
TABLEAUS = (EULER, MIDPOINT, HEUN, BOGACKI_SHAMPINE, RK4, DORMAND_PRINCE)


def claims() -> Iterator[Claim]:
    """The laws that tableaus obey: a method of order p integrates polynomials up to degree p - 1 exactly."""

    def moments(x: Tensor, weights: Row, nodes: Row, order: int) -> Tensor:
        b, c = x.new_tensor(weights), x.new_tensor(nodes)
        powers = torch.stack([(b * c**k).sum() for k in range(order)])
        return (x[..., None] * powers).sum(-1)

    def integrals(x: Tensor, order: int) -> Tensor:
        return x * sum(1 / (k + 1) for k in range(order))

    for tableau in TABLEAUS:
        rows = [(tableau.weights, tableau.order)]
        rows += [(tableau.lower, tableau.order - 1)] if tableau.lower else []
        for weights, order in rows:
            yield Claim(
                agreement(other=lambda x, order=order: integrals(x, order)),
                lambda x, w=weights, t=tableau, p=order: moments(x, w, t.nodes, p),
                shape("b"),
                name=f"{tableau.name}, order {order}, polynomials",
            )
