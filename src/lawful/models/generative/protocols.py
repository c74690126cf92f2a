"""Protocols of generative models, sample shapes and class labels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.functions._validation import any_true, unless_traced
from lawful.functions.estimate import LogProbEstimate
from lawful.functions.random import categorical_noise
from lawful.laws import Claim, batch_independence, shape


@runtime_checkable
class SupportsSample(Protocol):
    """A model that draws samples; with a seed, sample $i$ does not depend on the number of samples."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a sample."""
        ...

    def sample(
        self,
        n: int | Sequence[int],
        seed: int | None = None,
        *,
        first: int = 0,
        labels: Int[Tensor, "*n"] | None = None,
    ) -> Float[Tensor, "*n *shape"]:
        """Draws samples.

        Args:
            n: Number of samples, or a shape such as `(100,)`.
            seed: Random seed. None draws one from torch's generator.
            first: Index of the first sample of the seed.
            labels: Class of each sample, for conditional models.
        """
        ...


@runtime_checkable
class SupportsLogProb(Protocol):
    """A model with an exact density."""

    def log_prob(self, x: Float[Tensor, "n *shape"], *, labels: Int[Tensor, " n"] | None = None) -> Float[Tensor, " n"]:
        """Returns the log-density of each example, in nats."""
        ...


@runtime_checkable
class SupportsLogProbEstimate(Protocol):
    """A model whose density is estimated, with a standard error."""

    def log_prob_estimate(
        self, x: Float[Tensor, "n *shape"], *, labels: Int[Tensor, " n"] | None = None, seed: int = 0
    ) -> LogProbEstimate:
        """Returns an estimate of the log-density of each example, in nats."""
        ...


@runtime_checkable
class SupportsELBO(Protocol):
    """A model with a lower bound on the log-density."""

    def elbo(self, x: Float[Tensor, "n *shape"], *, labels: Int[Tensor, " n"] | None = None) -> Float[Tensor, " n"]:
        """Returns a one-sample estimate of the lower bound of each example, in nats."""
        ...

    def elbo_estimate(
        self, x: Float[Tensor, "n *shape"], *, labels: Int[Tensor, " n"] | None = None, seed: int = 0
    ) -> LogProbEstimate:
        """Returns an estimate of the lower bound of each example, in nats."""
        ...


def _sample_shape(n: int | Sequence[int]) -> tuple[int, ...]:
    """The shape of a batch of samples."""
    sample_shape = (n,) if isinstance(n, int) else tuple(n)
    if min(sample_shape, default=0) < 0:
        raise ValueError(f"expected n >= 0 or a sample shape, got {n}")
    return sample_shape


def _check_shape(x: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(x.shape[1:]) != shape:
        sizes = ", ".join(map(str, shape))
        raise ValueError(f"expected x of shape (n, {sizes}), got {tuple(x.shape)}")


@unless_traced
def _check_finite(x: Tensor) -> None:
    if not bool(x.isfinite().all()):
        raise ValueError("expected finite examples, got NaN or infinity")


def _check_sizes(shape: tuple[int, ...], num_classes: int = 0) -> None:
    if not shape or min(shape) < 1:
        raise ValueError(f"expected a shape of sizes >= 1, got {shape}")
    if num_classes < 0:
        raise ValueError(f"expected num_classes >= 0, got {num_classes}")


def _check_unlabeled(labels: Tensor | None) -> None:
    """Rejects labels for an unconditional model."""
    if labels is not None:
        raise ValueError("the model is unconditional (num_classes=0): it takes no labels")


def _check_labels(labels: Tensor, n: int, num_classes: int) -> None:
    if tuple(labels.shape) != (n,):
        raise ValueError(f"expected labels of shape ({n},), got {tuple(labels.shape)}")
    if n and any_true((labels < 0) | (labels >= num_classes)):
        low, high = int(labels.min()), int(labels.max())
        raise ValueError(f"expected labels from 0 to {num_classes - 1}, got {low} to {high}")


def _one_hot_labels(
    labels: Int[Tensor, " n"] | None, n: int, *, num_classes: int, dtype: torch.dtype | None = None
) -> Float[Tensor, "n c"] | None:
    """Returns validated one-hot labels, or None for an unconditional model.

    Args:
        labels: Class of each example.
        n: Number of examples.
        num_classes: Number of classes of the model; 0 if it is unconditional.
        dtype: Data type. Defaults to torch's default.

    Examples:
        >>> _one_hot_labels(torch.tensor([1, 0]), 2, num_classes=3)
        tensor([[0., 1., 0.],
                [1., 0., 0.]])
    """
    if not num_classes:
        return _check_unlabeled(labels)
    if labels is None:
        raise ValueError(f"labels are required: the model is conditional (num_classes={num_classes})")
    _check_labels(labels, n, num_classes)
    return F.one_hot(labels.long(), num_classes).to(torch.get_default_dtype() if dtype is None else dtype)


def _append_labels(x: Float[Tensor, "n *shape"], labels: Float[Tensor, "n c"] | None) -> Float[Tensor, "n ..."]:
    """Flattens examples and appends their one-hot labels; returns `x` without labels."""
    return x if labels is None else torch.cat([x.flatten(1), labels], 1)


def _class_frequencies(labels: Int[Tensor, " n"], num_classes: int) -> Float[Tensor, " c"]:
    """Returns the relative frequency of each class."""
    return torch.bincount(labels, minlength=num_classes) / len(labels)


def sample_labels(
    n: int, frequencies: Float[Tensor, " c"], *, seed: int, stream: int = 1, first: int = 0
) -> Int[Tensor, " n"] | None:
    """Draws labels by their class frequencies; returns None for an unconditional model."""
    if not len(frequencies):
        return None
    labels = categorical_noise(n, frequencies.double().cpu(), seed=seed, stream=stream, first=first)
    return labels.to(frequencies.device)


class LabelChannels(nn.Module):
    """Turns the output of `_append_labels` into an example with one constant channel per class.

    Args:
        shape: Shape of an example, channels first.
        num_classes: Number of classes.

    Examples:
        >>> LabelChannels((1, 2, 2), 3)(torch.tensor([[5.0, 6.0, 7.0, 8.0, 0.0, 1.0, 0.0]]))[0, :, 0]
        tensor([[5., 6.],
                [0., 0.],
                [1., 1.],
                [0., 0.]])
    """

    def __init__(self, shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__()
        self.shape, self.num_classes = shape, num_classes

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n ..."]:
        """Appends the labels to the channels."""
        d, (_, *space) = math.prod(self.shape), self.shape
        channels = x[:, d:].reshape(len(x), self.num_classes, *[1] * len(space)).expand(-1, -1, *space)
        return torch.cat([x[:, :d].reshape(len(x), *self.shape), channels], 1)


def claims() -> Iterator[Claim]:
    """Examples do not mix."""
    yield Claim(batch_independence(), LabelChannels((2, 3), 2), shape("n 8"), name="LabelChannels")
