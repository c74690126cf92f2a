"""Normalising: subtract the mean, divide by the deviation; what over is a line of data."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.laws import Claim, agreement, gradient, homogeneity, made, shape, shift_invariance, ties

OVER = {
    "batch": "b s",
    "layer": "c s",
    "instance": "s",
    "group": "c s",
    "rms": "c s",
}
"""Which axes each kind runs over: the batch b, the channels c (of one group), the space axes s."""


def axes_of(kind: str, dim: int, *, batch: int = 1) -> tuple[int, ...]:
    """Returns the axes that a kind of normalisation runs over.

    Args:
        kind: A row of `OVER`.
        dim: How many axes the input has.
        batch: How many of them, the first ones, are the batch; then come the channels, then space.

    Examples:
        >>> axes_of("batch", 4), axes_of("instance", 4), axes_of("layer", 3, batch=2)
        ((0, 2, 3), (2, 3), (2,))
    """
    if kind not in OVER:
        raise ValueError(f"kind is one of {', '.join(OVER)}: got {kind!r}")
    where = {"b": range(batch), "c": range(batch, batch + 1), "s": range(batch + 1, dim)}
    return tuple(axis for letter in OVER[kind].split() for axis in where[letter])


def check_eps(eps: float) -> None:
    """Refuses an ε that is negative, or no number."""
    if not eps >= 0:
        raise ValueError(f"eps is at least 0: got {eps}")


def normalize(x: Float[Tensor, "*shape"], axes: tuple[int, ...], *, eps: float = 1e-5) -> Float[Tensor, "*shape"]:
    r"""Gives `x` the mean 0 and the variance 1 over some axes.

    $$y = \frac{x - \operatorname{mean}(x)}{\sqrt{\operatorname{var}(x) + \epsilon}}$$

    The variance divides by the number of entries. With $\epsilon > 0$ that of $y$ is a little below 1, and entries
    that are all the same give 0; with $\epsilon = 0$ those give no number.

    Args:
        x: The input $x$.
        axes: The axes that mean and variance run over.
        eps: $\epsilon$.

    Examples:
        >>> normalize(torch.tensor([1.0, 3.0]), (0,), eps=0.0)
        tensor([-1.,  1.])
    """
    if not axes:
        raise ValueError("at least one axis to normalise over was wanted: got none")
    centred = x - x.mean(axes, keepdim=True)
    return centred * (centred.square().mean(axes, keepdim=True) + eps).rsqrt()


def claims() -> Iterator[Claim]:
    """The laws that normalising obeys."""
    over, eps = axes_of("batch", 3), 1e-5

    def mean(x: Tensor) -> Tensor:
        return (1 + normalize(x, over)).mean((0, 2))

    def variance(x: Tensor) -> Tensor:
        return normalize(x, over).square().mean((0, 2))

    def expected(x: Tensor) -> Tensor:
        v = x.var((0, 2), correction=0)
        return v / (v + eps)

    ordinary = made(torch.tanh, "3 2 4")
    yield Claim(agreement(other=lambda x: torch.ones_like(x[0, :, 0])), mean, ordinary, name="1 + mean 0")
    yield Claim(agreement(other=expected), variance, ordinary, name="variance 1")
    yield Claim(gradient(), partial(normalize, axes=over, eps=0.1), shape("b 2 n"), name="normalize")
    exact = partial(normalize, axes=(-1,), eps=0.0)
    yield Claim(shift_invariance().except_near(ties), exact, shape("b 4"), name="normalize(eps=0)")
    yield Claim(homogeneity(degree=0.0).except_near(ties), exact, shape("b 4"), name="normalize(eps=0)")
    for kind, batch, kept in (("batch", 1, {1}), ("layer", 1, {0}), ("instance", 1, {0, 1}), ("group", 2, {0, 1})):

        def by_kind(x: Tensor, kind: str = kind, batch: int = batch) -> Tensor:
            return normalize(x, axes_of(kind, x.dim()) if batch == 1 else axes_of(kind, x.dim(), batch=batch))

        def in_rows(x: Tensor, kept: set[int] = kept) -> Tensor:
            others = [axis for axis in range(x.dim()) if axis not in kept]
            rows = x.permute(*kept, *others)
            y = rows.flatten(len(kept)) - rows.flatten(len(kept)).mean(-1, keepdim=True)
            y = y / (y.square().mean(-1, keepdim=True) + eps).sqrt()
            return y.reshape(rows.shape).permute([[*kept, *others].index(axis) for axis in range(x.dim())])

        yield Claim(agreement(other=in_rows), by_kind, shape("2 2 3 2"), name=f"normalize, {kind}")
