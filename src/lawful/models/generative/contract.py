"""What a generative model promises: samples, and likelihoods or bounds on them, in the units of the data."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

from lawful.functions.estimate import Estimate


@runtime_checkable
class Generates(Protocol):
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
class Scores(Protocol):
    """Knows how probable an example is."""

    def log_prob(
        self, x: Float[Tensor, "n *shape"], *, labels: Int[Tensor, " n"] | None = None, seed: int = 0
    ) -> Estimate:
        """Returns the log-density of each example, in nats."""
        ...


@runtime_checkable
class Bounds(Protocol):
    """Knows how probable an example is at least."""

    def elbo(self, x: Float[Tensor, "n *shape"], *, labels: Int[Tensor, " n"] | None = None, seed: int = 0) -> Estimate:
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
