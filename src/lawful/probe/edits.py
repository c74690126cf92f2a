"""Edits: what to put in the place of an intermediate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import EllipsisType

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.laws import Claim, agreement, shape

Edit = Callable[[Tensor], Tensor]
Index = int | slice | EllipsisType | Tensor | tuple[int | slice | EllipsisType | Tensor, ...]


def zeroed(x: Tensor) -> Tensor:
    """Puts 0 in the place of a value.

    Args:
        x: The value.

    Examples:
        >>> zeroed(torch.tensor([1.0, 2.0]))
        tensor([0., 0.])
    """
    return torch.zeros_like(x)


def averaged(*axes: int) -> Edit:
    """Puts the mean over some axes in the place of a value: over the batch unless others are given.

    What is the same for all samples stays, what tells them apart goes.

    Args:
        axes: The axes that the mean runs over.

    Examples:
        >>> averaged()(torch.tensor([[1.0], [3.0]])).flatten()
        tensor([2., 2.])
    """
    return lambda x: x.mean(axes or (0,), keepdim=True).expand_as(x)


def resampled(*, seed: int = 0) -> Edit:
    """Puts the value of another sample of the batch, drawn at random, in the place of each.

    The samples are renumbered in a random order in which none keeps its place, so that their distribution stays.

    Args:
        seed: What the order is drawn from.

    Examples:
        >>> resampled()(torch.tensor([[1.0], [3.0]])).flatten()
        tensor([3., 1.])
    """

    def edit(x: Tensor) -> Tensor:
        if len(x) < 2:
            raise ValueError(f"resampling needs a batch of at least 2: got {len(x)}")
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed)).to(x.device)
        return x[order.roll(1)[order.argsort()]]

    return edit


def steered(vector: Float[Tensor, "*shape"], *, by: float = 1.0) -> Edit:
    r"""Adds a multiple of a vector to a value.

    $$x + \lambda v$$

    Args:
        vector: $v$, of a shape that broadcasts to the value.
        by: $\lambda$.

    Examples:
        >>> steered(torch.tensor([0.0, 1.0]), by=3.0)(torch.ones(2))
        tensor([1., 4.])
    """
    return lambda x: x + by * vector


def replaced(value: Tensor) -> Edit:
    """Puts a given value in the place of one of the same shape: that of another run.

    Args:
        value: The value.

    Examples:
        >>> replaced(torch.ones(2))(torch.zeros(2))
        tensor([1., 1.])
    """

    def edit(x: Tensor) -> Tensor:
        if x.shape != value.shape:
            raise ValueError(f"a value of shape {tuple(x.shape)} was wanted: got {tuple(value.shape)}")
        return value

    return edit


def only(index: Index, edit: Edit) -> Edit:
    """Restricts an edit to part of a value: one head, some positions.

    Args:
        index: The part, as in `x[index]`: `(..., 3, slice(None), slice(None))` is head 3 of `(*batch, h, t, k)`.
        edit: What is done to that part.

    Examples:
        >>> only((..., 1), zeroed)(torch.ones(2, 2))
        tensor([[1., 0.],
                [1., 0.]])
    """

    def part(x: Tensor) -> Tensor:
        y = x.clone()
        y[index] = edit(x[index])
        return y

    return part


def claims() -> Iterator[Claim]:
    """The laws that edits obey."""
    v = torch.tensor([1.0, -2.0, 3.0])

    def steer(x: Tensor) -> Tensor:
        return steered(v.to(x), by=-2.0)(x)

    def mean(x: Tensor) -> Tensor:
        return torch.stack([x.sum(0) / len(x)] * len(x))

    def part(x: Tensor) -> Tensor:
        return only((..., slice(1, 3)), zeroed)(x)

    def masked(x: Tensor) -> Tensor:
        return x * torch.tensor([1, 0, 0]).to(x)

    def mates(x: Tensor) -> Tensor:
        """How many samples came from elsewhere, and their sum."""
        numbers = torch.arange(len(x)).to(x)
        moved = torch.stack([resampled(seed=seed)(numbers) for seed in range(5)])
        return torch.stack([(moved != numbers).sum().to(x), moved.sum()])

    yield Claim(agreement(other=lambda x: x - 2 * v.to(x)), steer, shape("b 3"), name="steered")
    yield Claim(agreement(other=mean), averaged(), shape("b 3"), name="averaged")
    yield Claim(agreement(other=lambda x: 0 * x + x.mean()), averaged(0, 1), shape("b 3"), name="averaged over all")
    yield Claim(agreement(other=masked), part, shape("b 3"), name="only")
    counted = agreement(other=lambda x: x.new_tensor([5 * len(x), 5 * len(x) * (len(x) - 1) / 2]))
    yield Claim(counted, mates, shape("b:2..9 3"), name="resampled")
