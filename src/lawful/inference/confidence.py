"""Confidence far from the data: what a classifier says of what it has never seen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.inference.predict import predict
from lawful.laws import Claim, agreement, boundedness, made, shape


@dataclass(frozen=True, eq=False)
class Rays:
    """How sure a classifier is along rays that leave the data."""

    distance: Float[Tensor, " r"]
    """How far out, in radii of the data: 1 is the typical distance of the data from their centre."""
    confidence: Float[Tensor, "rays r"]
    """The largest probability of a class, on each ray."""


def far_confidence(
    model: nn.Module, x: Float[Tensor, "n ..."], *, rays: int = 32, reach: float = 100.0, steps: int = 41, seed: int = 0
) -> Rays:
    r"""Follows rays from the centre of the data, and says how sure a classifier is on the way.

    $$c(t, v) = \max_k \ p_k(\mu + t \, \sigma \odot v), \qquad v \text{ drawn from the unit sphere, times } \sqrt{d}$$

    Far out a network of ReLUs is affine on each ray, so that its scores grow apart in proportion to $t$: it becomes
    certain where it knows nothing.

    Reference:
        Hein, Andriushchenko and Bitterwolf, *Why ReLU Networks Yield High-Confidence Predictions Far Away From the
        Training Data and How to Mitigate the Problem*, 2019.

    Args:
        model: The classifier, which gives scores.
        x: The data, of which $\mu$ and $\sigma$ are the mean and the deviation of each feature.
        rays: How many directions $v$ are drawn.
        reach: The largest $t$; the others lie between 0.1 and it, in equal ratios.
        steps: How many $t$ there are.
        seed: What the directions are drawn from; the random state is not touched.

    Examples:
        >>> found = far_confidence(nn.Linear(2, 3), torch.eye(2), rays=4, steps=5)
        >>> found.distance.shape, found.confidence.shape
        (torch.Size([5]), torch.Size([4, 5]))
    """
    if min(rays, steps) < 1 or not reach > 0.1:
        raise ValueError(
            f"rays and steps of at least 1, and a reach above 0.1, were wanted: got {rays=}, {steps=}, {reach=}"
        )
    if x.dim() < 2 or len(x) < 1 or not x.is_floating_point():
        raise ValueError(f"rows of real numbers were wanted: got {x.dtype} of shape {tuple(x.shape)}")
    centre, spread = x.mean(0), x.std(0, correction=0)
    v = torch.randn(rays, *centre.shape, generator=torch.Generator().manual_seed(seed)).to(x)
    v = v * (centre.numel() ** 0.5 / v.flatten(1).norm(dim=-1).reshape(-1, *[1] * centre.dim()))
    distance = torch.logspace(-1, torch.tensor(reach).log10().item(), steps).to(x)
    points = centre + distance.reshape(-1, *[1] * centre.dim()) * (spread * v)[:, None]
    sure = predict(model, points.flatten(0, 1)).amax(-1)
    return Rays(distance, sure.reshape(rays, steps))


def claims() -> Iterator[Claim]:
    """The laws that confidence obeys."""
    model = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 3))

    def sure(x: Tensor) -> Tensor:
        return far_confidence(model, x, rays=2, steps=3).confidence

    yield Claim(boundedness(low=1 / 3, high=1.0), sure, shape("n 2"), name="far_confidence")

    class Away(nn.Module):
        """Says the farther from the data, in radii, the surer that it is the first of two classes."""

        def __init__(self, x: Tensor) -> None:
            super().__init__()
            self.centre, self.radius = x.mean(0), 2**0.5 * (x - x.mean(0)).square().mean(0).sqrt()

        def forward(self, x: Tensor) -> Tensor:
            return torch.stack([((x - self.centre) / self.radius).norm(dim=-1).log(), torch.zeros(len(x)).to(x)], -1)

    def of_distance(x: Tensor) -> Tensor:
        found = far_confidence(Away(x), x)
        return torch.cat([found.distance[None], found.confidence])

    def equation(x: Tensor) -> Tensor:
        t = 10 ** torch.linspace(-1, 2, 41, dtype=torch.float64)
        return torch.stack([t] + 32 * [t.clamp_min(1) / (1 + t)]).to(x)

    def spread_out(x: Tensor) -> Tensor:
        return x.tanh() / 2 + torch.tensor([[2.0, 1.0], [-1.0, 3.0], [0.0, -2.0]]).to(x)

    yield Claim(agreement(other=equation), of_distance, made(spread_out, "3 2"), name="far_confidence, of the distance")
