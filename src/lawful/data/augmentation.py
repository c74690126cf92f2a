"""Data augmentation: functions from batch to batch.

They use PyTorch's global generator, so that a resumed run repeats them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from lawful.data.batches import Batch
from lawful.laws import Claim, idempotence, involution, linearity, shape

Augment = Callable[[Batch], Batch]


def compose(*steps: Augment) -> Augment:
    """Composes augmentations.

    Args:
        steps: Augmentations in order.

    Examples:
        >>> compose(random_flip(), gaussian_noise(0.1))((torch.zeros(2, 1, 8, 8),))[0].shape
        torch.Size([2, 1, 8, 8])
    """

    def apply(batch: Batch) -> Batch:
        for step in steps:
            batch = step(batch)
        return batch

    return apply


def random_shift(max_shift: int, *, axes: int = 1) -> Augment:
    """Shifts each input along its last axes by at most `max_shift`, with zero padding.

    Args:
        max_shift: Maximum shift in either direction.
        axes: Number of trailing axes: 1 for series, 2 for images.

    Examples:
        >>> random_shift(2, axes=2)((torch.ones(3, 1, 8, 8),))[0].shape
        torch.Size([3, 1, 8, 8])
    """
    if max_shift < 0 or axes < 1:
        raise ValueError(f"max_shift must be at least 0 and axes at least 1, got {max_shift} and {axes}")

    def shift(x: Tensor) -> Tensor:
        _check_axes(x, axes)
        for axis in range(-axes, 0):
            size = x.shape[axis]
            steps = torch.randint(-max_shift, max_shift + 1, (len(x),)).to(x.device)
            index = torch.arange(size, device=x.device) - steps[:, None]
            valid = (index >= 0) & (index < size)
            broadcast = [len(x)] + [1] * (x.dim() - 1)
            broadcast[axis] = size
            shifted = x.gather(axis, index.clamp(0, size - 1).reshape(broadcast).expand_as(x))
            x = torch.where(valid.reshape(broadcast), shifted, torch.zeros((), dtype=x.dtype, device=x.device))
        return x

    return _on_inputs(shift)


def random_flip(axis: int = -1, *, probability: float = 0.5) -> Augment:
    """Flips each input along an axis with a given probability.

    Args:
        axis: Axis; -1 swaps left and right.
        probability: Probability of a flip.

    Examples:
        >>> random_flip(probability=1.0)((torch.arange(3)[None],))
        (tensor([[2, 1, 0]]),)
    """
    if not 0 <= probability <= 1:
        raise ValueError(f"probability must be between 0 and 1, got {probability}")

    def flip(x: Tensor) -> Tensor:
        chosen = torch.rand(len(x)).to(x.device) < probability
        return torch.where(_per_example(chosen, x), x.flip(axis), x)

    return _on_inputs(flip)


def gaussian_noise(std: float) -> Augment:
    r"""Adds Gaussian noise: $x + \sigma \varepsilon$ with $\varepsilon \sim N(0, 1)$.

    Args:
        std: Standard deviation $\sigma$.

    Examples:
        >>> gaussian_noise(0.1)((torch.zeros(2, 3),))[0].shape
        torch.Size([2, 3])
    """
    if std < 0:
        raise ValueError(f"std must be non-negative, got {std}")
    return _on_inputs(lambda x: x + std * torch.randn_like(x))


def cutout(size: int, *, axes: int = 2) -> Augment:
    """Sets a random square of each image, or interval of each series, to zero. It may cross the border.

    Reference:
        DeVries and Taylor, *Improved Regularization of Convolutional Neural Networks with Cutout*, 2017.

    Args:
        size: Side of the square.
        axes: Number of trailing axes: 1 for series, 2 for images.

    Examples:
        >>> cutout(3)((torch.ones(2, 1, 8, 8),))[0].shape
        torch.Size([2, 1, 8, 8])
    """
    if size < 1 or axes < 1:
        raise ValueError(f"size and axes must be at least 1, got {size} and {axes}")

    def cut(x: Tensor) -> Tensor:
        _check_axes(x, axes)
        mask = torch.ones((), dtype=torch.bool, device=x.device)
        for axis in range(-axes, 0):
            start = torch.randint(x.shape[axis], (len(x), 1)).to(x.device) - size // 2
            index = torch.arange(x.shape[axis], device=x.device)
            interval = (index >= start) & (index < start + size)
            broadcast = [len(x)] + [1] * (x.dim() - 1)
            broadcast[axis] = x.shape[axis]
            mask = mask & interval.reshape(broadcast)
        return x.masked_fill(mask, 0)

    return _on_inputs(cut)


def mixup(alpha: float, *, num_classes: int | None = None) -> Augment:
    r"""Mixes each example with another one of the batch, targets included.

    $$\tilde x = \lambda x_i + (1 - \lambda) \, x_j, \qquad \tilde y = \lambda y_i + (1 - \lambda) \, y_j$$

    One $\lambda \sim \mathrm{Beta}(\alpha, \alpha)$ is drawn per batch.

    Reference:
        Zhang et al., *mixup: Beyond Empirical Risk Minimization*, 2018.

    Args:
        alpha: $\alpha$; smaller values mix less.
        num_classes: Number of classes; targets become probabilities. None for regression.

    Examples:
        >>> mixup(0.2, num_classes=3)((torch.zeros(4, 2), torch.tensor([0, 1, 2, 0])))[1].shape
        torch.Size([4, 3])
    """
    if alpha <= 0:
        raise ValueError(f"alpha must be positive, got {alpha}")

    def mix(batch: Batch) -> Batch:
        x, *targets = batch
        if num_classes is not None:
            targets = [F.one_hot(target, num_classes).to(x.dtype) for target in targets]
        if not all(target.is_floating_point() for target in targets):
            raise ValueError("mixup of class targets needs num_classes")
        weight = float(torch.distributions.Beta(alpha, alpha).sample())
        other = torch.randperm(len(x)).to(x.device)
        return tuple([weight * part + (1 - weight) * part[other] for part in (x, *targets)])

    return mix


def _on_inputs(change: Callable[[Tensor], Tensor]) -> Augment:
    """Applies `change` to the inputs of a batch."""
    return lambda batch: (change(batch[0]), *batch[1:])


def _per_example(chosen: Tensor, x: Tensor) -> Tensor:
    return chosen.reshape(-1, *[1] * (x.dim() - 1))


def _check_axes(x: Tensor, axes: int) -> None:
    if x.dim() <= axes:
        raise ValueError(f"expected inputs with more than {axes} axes, got shape {tuple(x.shape)}")


def claims() -> Iterator[Claim]:
    """Laws of augmentations, with the same random numbers in each call."""

    def inputs(augment: Augment) -> Callable[[Tensor], Tensor]:
        return lambda x: augment((x,))[0]

    yield Claim(linearity(), inputs(random_shift(2)), shape("b 1 6"), name="random_shift(2)")
    yield Claim(linearity(), inputs(cutout(2)), shape("b 1 4 5"), name="cutout(2)")
    yield Claim(idempotence(), inputs(cutout(2)), shape("b 1 4 5"), name="cutout(2)")
    yield Claim(involution(), inputs(random_flip()), shape("b 1 4 5"), name="random_flip()")
