"""Prediction in batches, and Monte Carlo dropout."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from lawful.blocks.dropout import RANDOM_MODULES
from lawful.blocks.modes import eval_mode
from lawful.laws import Claim, batch_independence, shape, sums_to_one

Link = Callable[[Tensor], Tensor]
"""Maps the outputs of a model to predictions."""
probabilities: Link = partial(torch.softmax, dim=-1)
"""Softmax over the last axis: the link of a classifier."""


@torch.no_grad()
def predict(
    model: nn.Module, x: Shaped[Tensor, "n ..."], *, batch_size: int = 1024, link: Link = probabilities
) -> Float[Tensor, "n ..."]:
    r"""Predicts in eval mode and without gradients.

    $$p = \mathrm{softmax}(f(x))$$

    Args:
        model: $f$, which returns logits or the values of a regression.
        x: Examples, along the first axis.
        batch_size: Examples per batch.
        link: Maps outputs to predictions: `probabilities`, or `identity` for a regression.

    Examples:
        >>> predict(nn.Linear(3, 2), torch.zeros(5, 3), batch_size=2).shape
        torch.Size([5, 2])
    """
    device = device_of(model, x)
    with eval_mode(model):
        return torch.cat([link(model(batch.to(device))).to(x.device) for batch in batches_of(x, batch_size)])


@torch.no_grad()
def mc_dropout_predict(
    model: nn.Module,
    x: Shaped[Tensor, "n ..."],
    *,
    num_samples: int = 32,
    seed: int = 0,
    batch_size: int = 1024,
    link: Link = probabilities,
    random_classes: tuple[type[nn.Module], ...] = RANDOM_MODULES,
) -> Float[Tensor, "samples n ..."]:
    """Predicts several times with dropout on (Monte Carlo dropout), everything else in eval mode.

    `class_uncertainty` and `value_uncertainty` summarize the samples. Modes and the random state are restored.

    Reference:
        Gal and Ghahramani, *Dropout as a Bayesian Approximation: Representing Model Uncertainty in Deep
        Learning*, 2016.

    Args:
        model: Model with dropout.
        x: Examples, along the first axis.
        num_samples: Number of predictions of each example.
        seed: Random seed.
        batch_size: Examples per batch.
        link: Maps outputs to predictions.
        random_classes: Classes of the modules that stay in training mode.

    Examples:
        >>> model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(), nn.Linear(8, 2))
        >>> mc_dropout_predict(model, torch.ones(5, 3), num_samples=4).shape
        torch.Size([4, 5, 2])
    """
    if num_samples < 1:
        raise ValueError(f"num_samples must be at least 1, got {num_samples}")
    device = device_of(model, x)
    with torch.random.fork_rng([x.device] if x.is_cuda else []), eval_mode(model, random_classes):
        torch.default_generator.manual_seed(seed)
        if x.is_cuda:
            torch.cuda.manual_seed(seed)
        samples = []
        for batch in batches_of(x, batch_size):
            batch = batch.to(device)
            samples.append(torch.stack([link(model(batch)) for _ in range(num_samples)]).to(x.device))
    return torch.cat(samples, dim=1)


def device_of(model: object, x: Tensor) -> torch.device:
    """Returns the device of a model, or the device of `x` if the model has no weights.

    Examples:
        >>> device_of(nn.Linear(2, 2), torch.zeros(2))
        device(type='cpu')
    """
    if not isinstance(model, nn.Module):
        return x.device
    return next((t.device for t in (*model.parameters(), *model.buffers())), x.device)


def batches_of(x: Tensor, batch_size: int) -> tuple[Tensor, ...]:
    """Splits examples into batches.

    Examples:
        >>> [len(batch) for batch in batches_of(torch.zeros(5, 3), 2)]
        [2, 2, 1]
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    if x.dim() == 0 or len(x) == 0:
        raise ValueError(f"expected at least one example, got shape {tuple(x.shape)}")
    return x.split(batch_size)


def claims() -> Iterator[Claim]:
    """Yields the claims of predictions."""
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 2))

    def probs(x: Tensor) -> Tensor:
        return predict(model, x, batch_size=2)

    def dropout_probs(x: Tensor) -> Tensor:
        return mc_dropout_predict(model, x, num_samples=2, batch_size=2)

    yield Claim(sums_to_one(), probs, shape("n 3"), name="predict")
    yield Claim(batch_independence(), probs, shape("n 3"), name="predict")
    yield Claim(sums_to_one(), dropout_probs, shape("n 3"), name="mc_dropout_predict")
