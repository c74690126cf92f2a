"""Standardization as a layer: the mean and standard deviation of the data are part of the model."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.functions import standardize
from lawful.functions.whitening import RunningMoments, sum_of_squares
from lawful.laws import Claim, agreement, invertibility, shape

_MAX_ROWS = 2**16
"""Number of examples that are converted to float64 at a time."""


class Standardize(nn.Module):
    r"""Subtracts the mean and divides by the standard deviation of the data it was fitted to.

    $$z = \frac{x - \mu}{\sigma}, \qquad x = \sigma z + \mu$$

    $\mu$ (`mean`) and $\sigma$ (`std`) are buffers, so that they are saved with a model, which then takes raw data.
    They are accumulated in float64. A constant feature has $\sigma = 1$. Before `fit` the layer is the identity.

    Args:
        shape: Number of features, or their shape. Along an axis of size 1 the statistics are shared:
            `Standardize((3, 1, 1))` has one mean per channel of an image.

    Examples:
        >>> layer = Standardize(2).fit(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
        >>> layer(torch.tensor([4.0, 5.0]))
        tensor([2., 0.])
        >>> layer.inverse(torch.tensor([2.0, 0.0]))
        tensor([4., 5.])
    """

    def __init__(self, shape: int | tuple[int, ...]) -> None:
        super().__init__()
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        if not shape or min(shape) < 1:
            raise ValueError(f"shape must have sizes of at least 1, got {shape}")
        self.mean: Tensor
        self.std: Tensor
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("std", torch.ones(shape))

    @torch.no_grad()
    def fit(self, x: Float[Tensor, "n ..."]) -> Standardize:
        """Computes mean and standard deviation of finite data, one example per row."""
        self._check(x, x.dim() - 1)
        shared = [axis for axis, n in enumerate(self.mean.shape, start=1) if n == 1]
        parts = (part.double().movedim(shared, [*range(1, len(shared) + 1)]) for part in x.split(_MAX_ROWS))
        rows = (part.reshape(-1, *self.mean.shape) for part in parts)
        moments = RunningMoments.from_batches(rows, sum_of_squares)
        self.mean.copy_(moments.mean)
        self.std.copy_((moments.scatter / moments.count).sqrt())
        if not (self.mean.isfinite().all() and self.std.isfinite().all()):
            raise ValueError(f"mean and std must be finite in {self.mean.dtype}: the data are too large or not finite")
        self.std.masked_fill_(self.std == 0, 1.0)
        return self

    def forward(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Standardizes examples, with any leading axes."""
        self._check(x, self.mean.dim())
        return (x - self.mean) / self.std

    def inverse(self, z: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Maps standardized examples back."""
        self._check(z, self.mean.dim())
        return z * self.std + self.mean

    def _check(self, x: Tensor, num_axes: int) -> None:
        expected, got = self.mean.shape, x.shape[x.dim() - num_axes :]
        same = num_axes == len(expected) == len(got)
        if not same or any(n not in (1, m) for n, m in zip(expected, got, strict=True)):
            raise ValueError(f"expected features of shape {tuple(expected)}, got a tensor of shape {tuple(x.shape)}")

    def extra_repr(self) -> str:
        return str(tuple(self.mean.shape))


def claims() -> Iterator[Claim]:
    """Laws of standardization."""
    layer = Standardize(3).fit(torch.tensor([[1.0, -2.0, 7.0], [3.0, 4.0, 7.0]]))

    def fit_and_apply(x: Tensor) -> Tensor:
        return Standardize(3).to(x).fit(x)(x)

    yield Claim(invertibility(), layer, shape("b 3"))
    yield Claim(agreement(other=standardize), fit_and_apply, shape("n:2..6 3"), name="Standardize.fit")
