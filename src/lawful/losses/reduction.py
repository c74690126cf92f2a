"""Reductions of per-example losses, and the loss over a dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.functions._validation import unless_traced
from lawful.laws import Claim, agreement, mean_over_samples, shape, transformed

Reducer = Callable[[Tensor], Tensor]
"""Function from the losses of the examples to a scalar: `torch.mean`, `torch.sum`, `worst_case`, `weighted_mean(w)`."""


def _reduce(losses: Tensor, reduction: str) -> Tensor:
    """Reduces losses as `torch.nn.functional` does."""
    match reduction:
        case "mean":
            return losses.mean()
        case "sum":
            return losses.sum()
        case "none":
            return losses
    raise ValueError(f"expected reduction 'mean', 'sum' or 'none', got {reduction!r}")


def worst_case(losses: Float[Tensor, "*batch"]) -> Float[Tensor, ""]:
    r"""Returns the largest loss, $\max_i \ell_i$.

    Args:
        losses: Loss $\ell_i$ of each example.

    Examples:
        >>> worst_case(torch.tensor([1.0, 4.0, 2.0]))
        tensor(4.)
    """
    if losses.numel() == 0:
        raise ValueError("expected at least one loss, got none")
    return losses.amax()


def weighted_mean(weights: Float[Tensor, "*batch"]) -> Reducer:
    r"""Returns the reducer $\sum_i w_i \ell_i / \sum_i w_i$.

    Args:
        weights: Weights $w_i \ge 0$, not all 0.

    Examples:
        >>> weighted_mean(torch.tensor([1.0, 3.0]))(torch.tensor([4.0, 0.0]))
        tensor(1.)
    """
    _check_weights(weights)

    def mean(losses: Tensor) -> Tensor:
        if losses.shape != weights.shape:
            raise ValueError(f"expected losses of shape {tuple(weights.shape)}, got {tuple(losses.shape)}")
        return (weights * losses).sum() / weights.sum()

    return mean


def dataset_loss(
    model: Callable[[Any], Tensor],
    batches: Iterable[tuple[Any, Tensor]],
    *,
    loss: Callable[..., Tensor],
    reduce: Reducer = torch.mean,
) -> Tensor:
    r"""Returns the loss of a model over a whole dataset, such as the training or test loss.

    $$L(f) = \frac{1}{N} \sum_{i=1}^{N} \ell\big(f(x_i), y_i\big)$$

    All losses count equally, so that a smaller last batch has no larger weight. An example may have several losses,
    such as one per token, and their number may differ between batches. Gradients pass; under `torch.no_grad()`
    only the losses of each batch are kept.

    Args:
        model: Model $f$.
        batches: Pairs of inputs and targets.
        loss: Loss $\ell$ with the argument `reduction="none"`, such as `torch.nn.functional.cross_entropy`.
        reduce: Reducer of the $N$ losses. Defaults to the mean.

    Examples:
        >>> from torch.nn import functional as F
        >>> data = [(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 3.0])), (torch.tensor([5.0]), torch.tensor([5.0]))]
        >>> dataset_loss(lambda x: 2 * x, data, loss=F.mse_loss)
        tensor(9.)
    """
    losses = [loss(model(x), y, reduction="none") for x, y in batches]
    if not losses:
        raise ValueError("expected at least one batch, got none")
    if any(values.dim() == 0 for values in losses):
        raise ValueError("expected one loss per example, got a scalar: the loss must support reduction='none'")
    if len({values.shape[1:] for values in losses}) > 1:
        losses = [values.flatten() for values in losses]
    return reduce(torch.cat(losses))


@unless_traced
def _check_weights(weights: Tensor) -> None:
    if weights.numel() == 0:
        raise ValueError("expected at least one weight, got none")
    low, total = float(weights.min()), float(weights.sum())
    if not (low >= 0 and total > 0):
        raise ValueError(f"expected weights >= 0 with a sum > 0, got a minimum of {low:g} and a sum of {total:g}")


def claims() -> Iterator[Claim]:
    """The loss over a dataset does not depend on its batches; a weighted mean is one over samples."""

    def batched(x: Tensor) -> Tensor:
        pairs = zip(x.split(2), x.flip(0).split(2), strict=True)
        return dataset_loss(torch.tanh, pairs, loss=torch.nn.functional.mse_loss)

    whole = agreement(other=lambda x: ((x.tanh() - x.flip(0)) ** 2).sum() / len(x))
    yield Claim(whole, batched, shape("n"), name="dataset_loss, in batches of 2")
    weighted = mean_over_samples(weights=lambda losses, weights: weights)
    positive = transformed(lambda x: 0.1 + torch.sigmoid(x), "n")
    yield Claim(weighted, lambda losses, w: weighted_mean(w)(losses), (shape("n"), positive), name="weighted_mean")
