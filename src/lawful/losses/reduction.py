"""The loss over a data set: the losses of its examples, made one number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.functions._validation import unless_traced
from lawful.laws import AtMost, Claim, Map, Statement, agreement, law, shape

Reducer = Callable[[Tensor], Tensor]
"""From the losses of the examples to one number: `torch.mean`, `torch.sum`, `worst_case`, `weighted(w)`; or `each`."""


def each(losses: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """Keeps the loss of each example as it is.

    Examples:
        >>> each(torch.tensor([1.0, 2.0]))
        tensor([1., 2.])
    """
    return losses


def worst_case(losses: Float[Tensor, "*batch"]) -> Float[Tensor, ""]:
    r"""Takes the largest loss, $\max_i \ell_i$.

    Args:
        losses: The loss $\ell_i$ of each example.

    Examples:
        >>> worst_case(torch.tensor([1.0, 4.0, 2.0]))
        tensor(4.)
    """
    if losses.numel() == 0:
        raise ValueError("at least one example was wanted: got none")
    return losses.amax()


def weighted_mean(weights: Float[Tensor, "*batch"]) -> Reducer:
    r"""Makes the mean in which some examples count more, $\sum_i w_i \ell_i / \sum_i w_i$.

    Args:
        weights: $w_i$, not negative, and not all 0.

    Examples:
        >>> weighted_mean(torch.tensor([1.0, 3.0]))(torch.tensor([4.0, 0.0]))
        tensor(1.)
    """
    _check_weights(weights)

    def mean(losses: Tensor) -> Tensor:
        if losses.shape != weights.shape:
            raise ValueError(f"losses of shape {tuple(weights.shape)} were wanted: got {tuple(losses.shape)}")
        return (weights * losses).sum() / weights.sum()

    return mean


def dataset_loss(
    model: Callable[[Any], Tensor],
    batches: Iterable[tuple[Any, Tensor]],
    *,
    loss: Callable[..., Tensor],
    reduce: Reducer = torch.mean,
) -> Tensor:
    r"""Computes the loss of a model over a whole data set, such as the training loss or the test loss.

    $$L(f) = \frac{1}{N} \sum_{i=1}^{N} \ell\big(f(x_i), y_i\big)$$

    Examples count alike however they are dealt out: a smaller last batch does not weigh more. Where an example has
    several losses, as a sequence has, each counts, and sequences may differ in length from batch to batch. Gradients
    pass; under `torch.no_grad()` no more than the losses is kept of each batch.

    Args:
        model: $f$.
        batches: Pairs of inputs and targets.
        loss: $\ell$, a loss of this folder or another that takes `reduce`.
        reduce: What to make of the $N$ losses; their mean by default.

    Examples:
        >>> from lawful.losses import squared_error
        >>> data = [(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 3.0])), (torch.tensor([5.0]), torch.tensor([5.0]))]
        >>> dataset_loss(lambda x: 2 * x, data, loss=squared_error)
        tensor(9.)
    """
    losses = [loss(model(x), y, reduce=each) for x, y in batches]
    if not losses:
        raise ValueError("at least one batch was wanted: got none")
    if any(found.dim() == 0 for found in losses):
        raise ValueError("a loss for each example of a batch was wanted: got one number, without a batch axis")
    if len({found.shape[1:] for found in losses}) > 1:
        losses = [found.flatten() for found in losses]
    return reduce(torch.cat(losses))


@unless_traced
def _check_weights(weights: Tensor) -> None:
    if weights.numel() == 0:
        raise ValueError("at least one weight was wanted: got none")
    least, total = float(weights.min()), float(weights.sum())
    if not (least >= 0 and total > 0):
        raise ValueError(f"weights are not negative, and their sum is above 0: got {least:g} and a sum of {total:g}")


@law("min x ≤ f(x) ≤ max x", discover_with=None)
def means_lie_between(f: Map, x: Tensor) -> Statement:
    """The output lies between the least and the largest entry of the input.

    Satisfied by: any mean, any quantile.
    Broken by: a sum; a mean that divides by another count.
    """
    y = f(x)
    return AtMost([x.amin(), y], [y, x.amax()])


@law("Σ x / n ≤ f(x)", discover_with=None)
def at_least_the_mean(f: Map, x: Tensor) -> Statement:
    """The output is no less than the mean.

    Satisfied by: a maximum, a root mean square.
    Broken by: a minimum.
    """
    return AtMost(x.mean(), f(x))


def claims() -> Iterator[Claim]:
    """The laws that the loss over a data set obeys."""
    yield Claim(at_least_the_mean, worst_case, shape("n"))
    yield Claim(agreement(other=lambda x: x.sort().values[-1]), worst_case, shape("n"))

    def uneven(x: Tensor) -> Tensor:
        return weighted_mean(torch.arange(1, 4).to(x))(x)

    yield Claim(means_lie_between, uneven, shape("3"), name="weighted([1, 2, 3])")
    yield Claim(
        agreement(other=lambda x: (x[0] + 2 * x[1] + 3 * x[2]) / 6), uneven, shape("3"), name="weighted([1, 2, 3])"
    )

    def in_batches(x: Tensor) -> Tensor:
        pairs = zip(x.split(2), x.flip(0).split(2), strict=True)
        return dataset_loss(torch.tanh, pairs, loss=lambda a, b, reduce: reduce((a - b) ** 2))

    whole = agreement(other=lambda x: ((x.tanh() - x.flip(0)) ** 2).sum() / len(x))
    yield Claim(whole, in_batches, shape("n"), name="loss_over, in batches of 2")

    def absolute(a: Tensor, b: Tensor, reduce: Callable[[Tensor], Tensor]) -> Tensor:
        return reduce((a - b).abs())

    def of_lengths(x: Tensor) -> Tensor:
        pairs = [(part, 0 * part) for part in x.split((1, 3), -1)]
        return dataset_loss(torch.neg, pairs, loss=absolute)

    def of_columns(x: Tensor) -> Tensor:
        return dataset_loss(torch.neg, [(x, 0 * x), (x, x)], loss=absolute, reduce=lambda found: found.sum(0))

    yield Claim(
        agreement(other=lambda x: x.abs().mean()), of_lengths, shape("b 4"), name="loss_over, of unequal shapes"
    )
    summed = agreement(other=lambda x: 3 * x.abs().sum(0))
    yield Claim(summed, of_columns, shape("b 4"), name="loss_over, column by column")
