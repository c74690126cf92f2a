"""Augmentation: functions from a batch to a batch that change what does not matter.

The random numbers are those of PyTorch's global generator, so that a run that is resumed repeats them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from lawful.data.batches import Batch
from lawful.laws import Claim, agreement, idempotence, involution, linearity, shape, sums_to_one

Augment = Callable[[Batch], Batch]


def compose(*steps: Augment) -> Augment:
    """Applies one augmentation after the other.

    Args:
        steps: The augmentations, from the first to the last.

    Examples:
        >>> compose(random_flip(), gaussian_noise(0.1))((torch.zeros(2, 1, 8, 8),))[0].shape
        torch.Size([2, 1, 8, 8])
    """

    def apply(batch: Batch) -> Batch:
        for step in steps:
            batch = step(batch)
        return batch

    return apply


def random_shift(most: int, *, axes: int = 1) -> Augment:
    """Shifts each input along its last axes by up to `most` places either way, with zeros moving in.

    Args:
        most: The largest shift.
        axes: How many axes are shifted: 1 for series, 2 for images.

    Examples:
        >>> random_shift(2, axes=2)((torch.ones(3, 1, 8, 8),))[0].shape
        torch.Size([3, 1, 8, 8])
    """
    if most < 0 or axes < 1:
        raise ValueError(f"most is at least 0 and axes at least 1: got {most} and {axes}")

    def shift(x: Tensor) -> Tensor:
        _check_axes(x, axes)
        for axis in range(-axes, 0):
            size = x.shape[axis]
            steps = torch.randint(-most, most + 1, (len(x),)).to(x.device)
            places = torch.arange(size, device=x.device) - steps[:, None]
            inside = (places >= 0) & (places < size)
            along = [len(x)] + [1] * (x.dim() - 1)
            along[axis] = size
            taken = x.gather(axis, places.clamp(0, size - 1).reshape(along).expand_as(x))
            x = torch.where(inside.reshape(along), taken, torch.zeros((), dtype=x.dtype, device=x.device))
        return x

    return _on_inputs(shift)


def random_flip(axis: int = -1, *, probability: float = 0.5) -> Augment:
    """Turns some inputs round along an axis.

    Args:
        axis: The axis: -1 swaps left and right.
        probability: How likely each input is to be turned.

    Examples:
        >>> random_flip(probability=1.0)((torch.arange(3)[None],))
        (tensor([[2, 1, 0]]),)
    """
    if not 0 <= probability <= 1:
        raise ValueError(f"probability is from 0 to 1: got {probability}")

    def flip(x: Tensor) -> Tensor:
        chosen = torch.rand(len(x)).to(x.device) < probability
        return torch.where(_per_example(chosen, x), x.flip(axis), x)

    return _on_inputs(flip)


def gaussian_noise(deviation: float) -> Augment:
    r"""Adds noise to each number of an input: $x + \sigma \varepsilon$ with $\varepsilon \sim N(0, 1)$.

    Args:
        deviation: $\sigma$.

    Examples:
        >>> gaussian_noise(0.1)((torch.zeros(2, 3),))[0].shape
        torch.Size([2, 3])
    """
    if deviation < 0:
        raise ValueError(f"deviation is at least 0: got {deviation}")
    return _on_inputs(lambda x: x + deviation * torch.randn_like(x))


def cutout(size: int, *, axes: int = 2) -> Augment:
    """Sets a square of each input, or a stretch of a series, to zero; it may reach over the edge.

    Reference:
        DeVries and Taylor, *Improved Regularization of Convolutional Neural Networks with Cutout*, 2017.

    Args:
        size: The side of the square.
        axes: How many of the last axes it has: 1 for series, 2 for images.

    Examples:
        >>> cutout(3)((torch.ones(2, 1, 8, 8),))[0].shape
        torch.Size([2, 1, 8, 8])
    """
    if size < 1 or axes < 1:
        raise ValueError(f"size and axes are at least 1: got {size} and {axes}")

    def cut(x: Tensor) -> Tensor:
        _check_axes(x, axes)
        inside = torch.ones((), dtype=torch.bool, device=x.device)
        for axis in range(-axes, 0):
            start = torch.randint(x.shape[axis], (len(x), 1)).to(x.device) - size // 2
            places = torch.arange(x.shape[axis], device=x.device)
            here = (places >= start) & (places < start + size)
            along = [len(x)] + [1] * (x.dim() - 1)
            along[axis] = x.shape[axis]
            inside = inside & here.reshape(along)
        return x.masked_fill(inside, 0)

    return _on_inputs(cut)


def mixup(alpha: float, *, classes: int | None = None) -> Augment:
    r"""Mixes each example with another one of the batch, targets included (mixup).

    $$\tilde x = \lambda x_i + (1 - \lambda) \, x_j, \qquad \tilde y = \lambda y_i + (1 - \lambda) \, y_j$$

    One $\lambda \sim \mathrm{Beta}(\alpha, \alpha)$ is drawn for the batch.

    Reference:
        Zhang et al., *mixup: Beyond Empirical Risk Minimization*, 2018.

    Args:
        alpha: $\alpha$: the smaller, the closer mixtures are to one of their two.
        classes: The number of classes, whose targets become probabilities; none where targets are real.

    Examples:
        >>> mixup(0.2, classes=3)((torch.zeros(4, 2), torch.tensor([0, 1, 2, 0])))[1].shape
        torch.Size([4, 3])
    """
    if alpha <= 0:
        raise ValueError(f"alpha is above 0: got {alpha}")

    def mix(batch: Batch) -> Batch:
        x, *targets = batch
        if classes is not None:
            targets = [F.one_hot(target, classes).to(x.dtype) for target in targets]
        if not all(target.is_floating_point() for target in targets):
            raise ValueError("targets that are classes are mixed as probabilities: say how many classes there are")
        weight = float(torch.distributions.Beta(alpha, alpha).sample())
        other = torch.randperm(len(x)).to(x.device)
        return tuple([weight * part + (1 - weight) * part[other] for part in (x, *targets)])

    return mix


def _on_inputs(change: Callable[[Tensor], Tensor]) -> Augment:
    """Changes the inputs of a batch and leaves the targets."""
    return lambda batch: (change(batch[0]), *batch[1:])


def _per_example(chosen: Tensor, x: Tensor) -> Tensor:
    return chosen.reshape(-1, *[1] * (x.dim() - 1))


def _check_axes(x: Tensor, axes: int) -> None:
    if x.dim() <= axes:
        raise ValueError(f"inputs with more than {axes} axes were wanted: got shape {tuple(x.shape)}")


def claims() -> Iterator[Claim]:
    """The laws that augmentations obey, the random numbers being the same in each call."""

    def inputs(augment: Augment) -> Callable[[Tensor], Tensor]:
        return lambda x: augment((x,))[0]

    series, image = shape("b 1 6"), shape("b 1 4 5")
    yield Claim(linearity(), inputs(random_shift(2)), series, name="shifted(2)")
    yield Claim(linearity(), inputs(cutout(2)), image, name="cut_out(2)")
    yield Claim(idempotence(), inputs(cutout(2)), image, name="cut_out(2)")
    yield Claim(involution(), inputs(random_flip()), image, name="flipped()")
    noise = inputs(gaussian_noise(0.5))
    yield Claim(agreement(other=lambda x: x + noise(torch.zeros_like(x))), noise, series, name="noisy(0.5)")
    doubled = compose(random_flip(probability=1.0), lambda batch: (2 * batch[0], *batch[1:]))
    together = agreement(other=lambda x, y: torch.stack([2 * x.flip(-1), y]))
    yield Claim(together, lambda x, y: torch.stack(doubled((x, y))), (series, series), name="chained")
    covered = agreement(other=torch.zeros_like)
    yield Claim(covered, inputs(cutout(12, axes=1)), series, name="cut_out of twice the size")

    def cut_off(x: Tensor) -> Tensor:
        zeros = (inputs(cutout(2, axes=1))(torch.ones(64, 1, 6).to(x)) == 0).sum((1, 2)).to(x)
        return torch.stack([zeros.amin(), zeros.amax()])

    yield Claim(agreement(other=lambda x: x.new_tensor([1, 2])), cut_off, shape("1"), name="cut_out(2), how much")

    def apart(x: Tensor) -> Tensor:
        """From each of 64 shifted copies to the nearest shift, and from each shift to the nearest copy."""
        shifts = torch.cat([x, F.pad(x[..., 1:], (0, 1)), F.pad(x[..., :-1], (1, 0))])
        far = (inputs(random_shift(1))(x.expand(64, 1, 6))[:, None] - shifts).abs().amax((-2, -1))
        return torch.cat([far.amin(0), far.amin(1)])

    yield Claim(agreement(other=lambda x: torch.zeros(67).to(x)), apart, shape("1 1 6"), name="shifted(1)")
    total = agreement(other=lambda x: x.sum(0))
    yield Claim(total, lambda x: inputs(mixup(0.5))(x).sum(0), shape("b 2"), name="mixed(0.5), the sum")
    labels = torch.tensor([0, 2, 1])
    yield Claim(sums_to_one(), lambda x: mixup(0.5, classes=3)((x, labels))[1], shape("3 2"), name="mixed(0.5)")
