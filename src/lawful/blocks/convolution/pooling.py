"""Pooling: one number for a patch, or for everything."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks.convolution.convolution import Convolution
from lawful.blocks.convolution.padding import CIRCULAR
from lawful.blocks.convolution.sizes import Sizes, one_to_three, per_axis
from lawful.blocks.dense import name_of
from lawful.laws import (
    Claim,
    Draw,
    agreement,
    equivariance,
    homogeneity,
    invariance,
    linearity,
    lipschitz,
    monotonicity,
    permutation_invariance,
    shape,
)

_MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_GLOBAL_MAX = {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}
_AVERAGE = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


class MaxPool(nn.Module):
    r"""Keeps the largest number of every patch.

    $$y_n = \max_{0 \le k < s} x_{\sigma n + k}$$

    One peak, be it noise, decides for its patch. What does not fill a patch at the end is dropped.

    Args:
        patch: $s$, the size of a patch along each space axis; as many numbers as there are space axes.
        stride: $\sigma$, the step from one patch to the next. By default patches lie side by side.

    Examples:
        >>> MaxPool((2,))(torch.tensor([[[1.0, 4.0, 3.0, 2.0]]]))
        tensor([[[4., 3.]]])
    """

    def __init__(self, patch: tuple[int, ...], *, stride: Sizes | None = None) -> None:
        super().__init__()
        self.patch, self.stride = _patches(patch, stride)

    def forward(self, x: Float[Tensor, "b c *space"]) -> Float[Tensor, "b c *less"]:
        """Takes the maximum over each patch."""
        return _MAX[len(self.patch)](_fits(x, self.patch), self.patch, self.stride)

    def extra_repr(self) -> str:
        return f"{self.patch}, stride={self.stride}"


class AveragePool(nn.Module):
    r"""Averages every patch.

    $$y_n = \frac{1}{s} \sum_{0 \le k < s} x_{\sigma n + k}$$

    What does not fill a patch at the end is dropped.

    Args:
        patch: $s$, the size of a patch along each space axis; as many numbers as there are space axes.
        stride: $\sigma$, the step from one patch to the next. By default patches lie side by side.

    Examples:
        >>> AveragePool((2,))(torch.tensor([[[1.0, 4.0, 3.0, 2.0]]]))
        tensor([[[2.5000, 2.5000]]])
    """

    def __init__(self, patch: tuple[int, ...], *, stride: Sizes | None = None) -> None:
        super().__init__()
        self.patch, self.stride = _patches(patch, stride)

    def forward(self, x: Float[Tensor, "b c *space"]) -> Float[Tensor, "b c *less"]:
        """Takes the mean over each patch."""
        if not x.is_floating_point():
            raise TypeError(f"floating point numbers were wanted: got {x.dtype}")
        return _AVERAGE[len(self.patch)](_fits(x, self.patch), self.patch, self.stride)

    def extra_repr(self) -> str:
        return f"{self.patch}, stride={self.stride}"


def global_average(x: Float[Tensor, "b c *space"]) -> Float[Tensor, "b c"]:
    r"""Averages every channel over all positions; there are one to three space axes.

    $$y_c = \frac{1}{N} \sum_n x_{c, n}$$

    Examples:
        >>> global_average(torch.tensor([[[1.0, 4.0], [0.0, -1.0]]]))
        tensor([[ 2.5000, -0.5000]])
    """
    return _in_space(x).mean(tuple(range(2, x.dim())))


def global_max(x: Float[Tensor, "b c *space"]) -> Float[Tensor, "b c"]:
    r"""Keeps the largest number of every channel, wherever it is; there are one to three space axes.

    $$y_c = \max_n x_{c, n}$$

    Examples:
        >>> global_max(torch.tensor([[[1.0, 4.0], [0.0, -1.0]]]))
        tensor([[4., 0.]])
    """
    return _GLOBAL_MAX[_in_space(x).dim() - 2](x, 1).flatten(1)


class GlobalPool(nn.Module):
    """Makes one number of all positions of a channel.

    After layers that shift with their input this makes a network that does not notice shifts at all.

    Args:
        reduce: What makes (b, c) of (b, c, *space): `global_average` or `global_max`.

    Examples:
        >>> GlobalPool()(torch.tensor([[[1.0, 4.0], [0.0, -1.0]]]))
        tensor([[ 2.5000, -0.5000]])
    """

    def __init__(self, reduce: Callable[[Tensor], Tensor] = global_average) -> None:
        super().__init__()
        self.reduce = reduce

    def forward(self, x: Float[Tensor, "b c *space"]) -> Float[Tensor, "b c"]:
        """Reduces the space axes."""
        return self.reduce(x)

    def extra_repr(self) -> str:
        return name_of(self.reduce)


def _in_space(x: Tensor) -> Tensor:
    if x.dim() - 2 not in _GLOBAL_MAX:
        raise ValueError(f"one to three space axes were wanted: got shape {tuple(x.shape)}")
    return x


def _patches(patch: tuple[int, ...], stride: Sizes | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    patch = one_to_three(patch, "patch")
    return patch, patch if stride is None else per_axis(stride, len(patch), "stride")


def _fits(x: Tensor, patch: tuple[int, ...]) -> Tensor:
    if x.dim() != len(patch) + 2 or any(n < s for n, s in zip(x.shape[2:], patch, strict=True)):
        raise ValueError(f"space axes of at least {patch} were wanted: got shape {tuple(x.shape)}")
    return x


def claims() -> Iterator[Claim]:
    """The laws that pooling obeys."""

    def turn(draw: Draw) -> int:
        return draw.integer(1, 3, "s")

    def turned(step: int) -> Callable[[int, Tensor], Tensor]:
        return lambda s, x: x.roll(s * step, -1)

    def largest(x: Tensor) -> Tensor:
        return x.amax(tuple(range(2, x.dim())))

    def average(x: Tensor) -> Tensor:
        return x.flatten(2).sum(2) / x[0, 0].numel()

    for pool, reduce in ((MaxPool, torch.amax), (AveragePool, torch.mean)):

        def equation(x: Tensor, reduce: Callable[..., Tensor] = reduce) -> Tensor:
            return reduce(x.unfold(2, 2, 2).unfold(3, 3, 3), dim=(-1, -2))

        yield Claim(agreement(other=equation), pool((2, 3)), shape("b 2 h:2..5 w:3..7"))
        yield Claim(equivariance(sample=turn, act=turned(2), act_out=turned(1)), pool((2,)), shape("b 2 8"))
        cube = agreement(other=lambda x, reduce=reduce: reduce(x.unflatten(2, (2, 2)), dim=(3, 4, 5))[..., None, None])
        yield Claim(cube, pool((2, 2, 3)), shape("b 2 4 2 3"))
    yield Claim(monotonicity(), MaxPool((2,)), shape("b 2 n:2..5"))
    yield Claim(homogeneity(), MaxPool((3,), stride=1), shape("b 2 n:3..6"))
    yield Claim(lipschitz(constant=1.0), MaxPool((2,)), shape("b 2 n:2..5"))
    yield Claim(linearity(), AveragePool((3,), stride=2), shape("b 2 n:3..6"))
    for reduce, equation in ((global_max, largest), (global_average, average)):
        pool = GlobalPool(reduce)
        for space in ("n", "h 2", "h 2 2"):
            yield Claim(agreement(other=equation), pool, shape(f"b 2 {space}"), name=f"{reduce.__name__}, {space}")
        yield Claim(permutation_invariance(axis=2), pool, shape("b 2 h w"), name=reduce.__name__)
        first, second = (Convolution(2, 2, kernel=(k,), padding=CIRCULAR) for k in (3, 2))
        network = nn.Sequential(first, nn.ReLU(), second, pool)
        yield Claim(invariance(sample=turn, act=turned(1)), network, shape("b 2 n:2..6"), name="CNN")
