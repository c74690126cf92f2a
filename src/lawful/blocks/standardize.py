"""Standardising as a layer: the mean and the deviation of the data are part of the model."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.functions import standardize
from lawful.functions.whitening import RunningMoments, squares
from lawful.laws import Claim, agreement, invertibility, linearity, shape


class Standardize(nn.Module):
    r"""Takes a mean away and divides by a standard deviation, those of the data that it was fitted to.

    $$z = \frac{x - \mu}{\sigma}, \qquad x = \sigma z + \mu$$

    $\mu$ (`mean`) and $\sigma$ (`std`) are buffers, so that they are saved with a model, which then takes raw data.
    They are gathered in float64. A feature that never varied has $\sigma = 1$ and comes out as 0. Before `fit` the
    layer is the identity.

    Args:
        features: How many features there are, or their shape. Along an axis of size 1 the data share their moments,
            whatever its size in them: `Standardize((3, 1, 1))` has one mean for each channel of an image.

    Examples:
        >>> layer = Standardize(2).fit(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
        >>> layer(torch.tensor([4.0, 5.0]))
        tensor([2., 0.])
        >>> layer.inverse(torch.tensor([2.0, 0.0]))
        tensor([4., 5.])
    """

    def __init__(self, features: int | tuple[int, ...]) -> None:
        super().__init__()
        features = (features,) if isinstance(features, int) else tuple(features)
        if not features or min(features) < 1:
            raise ValueError(f"features of sizes of at least 1 were wanted: got {features}")
        self.mean: Tensor
        self.std: Tensor
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("std", torch.ones(features))

    @torch.no_grad()
    def fit(self, x: Float[Tensor, "n ..."]) -> Standardize:
        """Reads the data, which are to be finite, one example a row."""
        self._check(x, x.dim() - 1)
        shared = [axis for axis, n in enumerate(self.mean.shape, start=1) if n == 1]
        rows = x.double().movedim(shared, [*range(1, len(shared) + 1)]).reshape(-1, *self.mean.shape)
        moments = RunningMoments.of(rows, scatters=squares)
        self.mean.copy_(moments.mean)
        self.std.copy_((moments.scatter / moments.n).sqrt())
        if not (self.mean.isfinite().all() and self.std.isfinite().all()):
            raise ValueError(f"moments within the range of {self.mean.dtype} were wanted: got infinite ones")
        self.std.masked_fill_(self.std == 0, 1.0)
        return self

    def forward(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Standardises examples, with any axes in front."""
        self._check(x, self.mean.dim())
        return (x - self.mean) / self.std

    def inverse(self, z: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Undoes it."""
        self._check(z, self.mean.dim())
        return z * self.std + self.mean

    def _check(self, x: Tensor, axes: int) -> None:
        """Refuses data whose features are others."""
        wanted, got = self.mean.shape, x.shape[x.dim() - axes :]
        if axes != len(wanted) or len(got) != axes or any(n not in (1, m) for n, m in zip(wanted, got, strict=True)):
            raise ValueError(f"features of shape {tuple(wanted)} were wanted: got shape {tuple(x.shape)}")

    def extra_repr(self) -> str:
        return str(tuple(self.mean.shape))


def claims() -> Iterator[Claim]:
    """The laws that standardising by a layer obeys."""
    layer = Standardize(3).fit(torch.tensor([[1.0, -2.0, 7.0], [3.0, 4.0, 7.0]]))

    def fitted(x: Tensor) -> Tensor:
        return Standardize(3).to(x).fit(x)(x)

    def channels(x: Tensor) -> Tensor:
        return Standardize((2, 1)).to(x).fit(x)(x)

    def slope(x: Tensor) -> Tensor:
        return layer(x) - layer(torch.zeros_like(x))

    yield Claim(linearity(), slope, shape("b 3"), name="Standardize less its value at 0")
    yield Claim(invertibility(), layer, shape("b 3"))
    yield Claim(agreement(other=standardize), fitted, shape("n:2..6 3"), name="Standardize.fit")
    both = agreement(other=lambda x: standardize(x, axes=(0, 2)))
    yield Claim(both, channels, shape("n:2..4 2 t:1..3"), name="Standardize((2, 1)).fit")
