"""What a generative model promises: samples, and likelihoods or bounds on them, in the units of the data.

How networks are told labels: as a 1 among 0s, beside numbers or as planes beside channels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.functions.estimate import LogProbEstimate
from lawful.functions.random import categorical_noise
from lawful.laws import Claim, agreement, shape


@runtime_checkable
class SupportsSample(Protocol):
    """Draws samples; sample $i$ of a seed has the same noise whatever the others are."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a sample."""
        ...

    def sample(
        self, n: int, seed: int = 0, *, first: int = 0, labels: Int[Tensor, " n"] | None = None
    ) -> Float[Tensor, "n *shape"]:
        """Draws the samples `first` to `first + n - 1` of a seed, each of its label where the model knows labels."""
        ...


@runtime_checkable
class SupportsLogProb(Protocol):
    """Knows how probable an example is."""

    def log_prob(
        self, x: Float[Tensor, "n *shape"], *, labels: Int[Tensor, " n"] | None = None, seed: int = 0
    ) -> LogProbEstimate:
        """Returns the log-density of each example, in nats."""
        ...


@runtime_checkable
class SupportsELBO(Protocol):
    """Knows how probable an example is at least."""

    def elbo(
        self, x: Float[Tensor, "n *shape"], *, labels: Int[Tensor, " n"] | None = None, seed: int = 0
    ) -> LogProbEstimate:
        """Returns a lower bound on the log-density of each example, in nats."""
        ...


def finite(x: Float[Tensor, "n *shape"]) -> None:
    """Refuses examples that have no likelihood."""
    if not bool(x.isfinite().all()):
        raise ValueError("finite examples were wanted: got NaN or infinite ones")


def unconditional(labels: Tensor | None) -> None:
    """Refuses labels, for a model that knows none."""
    if labels is not None:
        raise ValueError("this model knows no labels: it was fitted without")


def one_hot_labels(
    labels: Int[Tensor, " n"] | None, n: int, *, classes: int, like: Tensor
) -> Float[Tensor, "n c"] | None:
    """Returns labels as a 1 among 0s, and nothing for a model that knows none.

    Args:
        labels: The labels.
        n: How many were wanted.
        classes: How many classes the model knows; 0 for none.
        like: The precision is that of this.

    Examples:
        >>> one_hot_labels(torch.tensor([1, 0]), 2, classes=3, like=torch.zeros(1))
        tensor([[0., 1., 0.],
                [1., 0., 0.]])
    """
    if not classes:
        return unconditional(labels)
    if labels is None:
        raise ValueError(f"labels were wanted: the model is of {classes} classes")
    if len(labels) != n:
        raise ValueError(f"a label for each of {n} examples was wanted: got {len(labels)}")
    if n and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise ValueError(f"labels are from 0 to {classes - 1}: got {int(labels.min())} to {int(labels.max())}")
    return F.one_hot(labels.long(), classes).to(like.dtype)


def beside(x: Float[Tensor, "n *shape"], labels: Float[Tensor, "n c"] | None) -> Float[Tensor, "n ..."]:
    """Puts labels after the flattened entries of examples; without labels, examples stay as they are."""
    return x if labels is None else torch.cat([x.flatten(1), labels], 1)


def sample_labels(
    n: int, frequencies: Float[Tensor, " c"], *, seed: int, stream: int, first: int
) -> Int[Tensor, " n"] | None:
    """Draws labels as often as they are frequent; none for a model that knows none."""
    if not len(frequencies):
        return None
    drawn = categorical_noise(n, frequencies.double().cpu(), seed=seed, stream=stream, first=first)
    return drawn.to(frequencies.device)


class LabelPlanes(nn.Module):
    """Makes a channel of each label, the same everywhere, of what `beside` put together.

    Args:
        shape: The shape of an example, channels first.
        classes: How many classes there are.

    Examples:
        >>> LabelPlanes((1, 2, 2), 3)(torch.tensor([[5.0, 6.0, 7.0, 8.0, 0.0, 1.0, 0.0]]))[0, :, 0]
        tensor([[5., 6.],
                [0., 0.],
                [1., 1.],
                [0., 0.]])
    """

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.shape, self.classes = shape, classes

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n ..."]:
        """Sets labels beside the channels."""
        d, (_, *space) = math.prod(self.shape), self.shape
        planes = x[:, d:].reshape(len(x), self.classes, *[1] * len(space)).expand(-1, -1, *space)
        return torch.cat([x[:, :d].reshape(len(x), *self.shape), planes], 1)


def claims() -> Iterator[Claim]:
    """The laws that labels beside examples obey."""
    planes = LabelPlanes((2, 3), 2)

    def one_by_one(x: Tensor) -> Tensor:
        rows = [torch.cat([row[:6].reshape(2, 3), row[6:].repeat_interleave(3).reshape(2, 3)]) for row in x]
        return torch.stack(rows)

    yield Claim(agreement(other=one_by_one), planes, shape("n 8"), name="LabelPlanes")
