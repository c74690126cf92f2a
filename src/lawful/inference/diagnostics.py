"""Diagnostics: dead units, and confidence far from the data."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from lawful.blocks.modes import eval_mode
from lawful.inference.prediction import batches_of, predict
from lawful.laws import Claim, boundedness, shape

_RECTIFIERS: tuple[type[nn.Module], ...] = (
    nn.ReLU,
    nn.ReLU6,
    nn.Hardswish,
    nn.Softshrink,
    nn.Hardshrink,
    nn.Threshold,
)
"""Activations that can be stuck at 0."""


@torch.no_grad()
def activation_frequency(
    model: nn.Module,
    x: Shaped[Tensor, "n ..."],
    *,
    batch_size: int = 1024,
    activations: tuple[type[nn.Module], ...] = _RECTIFIERS,
    dim: int = 1,
) -> dict[str, Float[Tensor, " units"]]:
    r"""Returns how often the output of each unit after an activation is not 0.

    $$a_u = \frac{1}{N} \left| \{ n : h_u(x_n) \ne 0 \} \right|$$

    A unit with frequency 0 is dead: it contributes nothing, and a ReLU passes no gradient. Channels are units, over
    all positions. The model runs in eval mode.

    Args:
        model: Model with activation modules.
        x: Examples, along the first axis.
        batch_size: Examples per batch.
        activations: Classes of the modules to inspect.
        dim: Dimension of the units in their outputs.

    Returns:
        Frequencies by module name; `name#2` is the second use of a module.

    Examples:
        >>> layer = nn.Linear(1, 2)
        >>> layer.weight.data, layer.bias.data = torch.tensor([[1.0], [0.0]]), torch.tensor([0.0, -1.0])
        >>> activation_frequency(nn.Sequential(layer, nn.ReLU()), torch.tensor([[-1.0], [1.0]]))
        {'1': tensor([0.5000, 0.0000])}
    """
    counts: dict[str, Tensor] = {}
    totals: dict[str, int] = defaultdict(int)
    uses: dict[str, int] = defaultdict(int)

    def hook(name: str) -> Any:
        def count(module: nn.Module, args: Any, y: Tensor) -> None:
            uses[name] += 1
            key = name if uses[name] == 1 else f"{name}#{uses[name]}"
            active = (y != 0).movedim(dim, -1).flatten(0, -2)
            counts[key] = counts.get(key, torch.zeros(active.shape[-1])) + active.sum(0).cpu()
            totals[key] += len(active)

        return count

    handles = [
        module.register_forward_hook(hook(name))
        for name, module in model.named_modules()
        if isinstance(module, activations)
    ]
    try:
        with eval_mode(model):
            for batch in batches_of(x, batch_size):
                uses.clear()
                model(batch)
    finally:
        for handle in handles:
            handle.remove()
    return {name: count / totals[name] for name, count in counts.items()}


def dead_units(frequency: dict[str, Float[Tensor, " units"]]) -> dict[str, tuple[int, int]]:
    """Returns the number of dead units and of all units of each layer.

    Args:
        frequency: Output of `activation_frequency`.

    Examples:
        >>> dead_units({"activations.0": torch.tensor([0.5, 0.0, 1.0])})
        {'activations.0': (1, 3)}
    """
    return {name: (int((rates == 0).sum()), len(rates)) for name, rates in frequency.items()}


@dataclass(frozen=True, eq=False)
class RayConfidence:
    """Confidence of a classifier along rays that leave the data."""

    distance: Float[Tensor, " r"]
    """Distance from the center of the data; 1 is the typical distance of an example."""
    confidence: Float[Tensor, "rays r"]
    """Largest class probability on each ray."""


def ood_confidence(
    model: nn.Module,
    x: Float[Tensor, "n ..."],
    *,
    num_rays: int = 32,
    max_distance: float = 100.0,
    num_points: int = 41,
    seed: int = 0,
) -> RayConfidence:
    r"""Returns the confidence of a classifier out of distribution: along rays from the center of the data.

    $$c(t, v) = \max_k \ p_k(\mu + t \, \sigma \odot v), \qquad v \text{ uniform on the sphere of radius } \sqrt{d}$$

    Far out a ReLU network is affine along each ray, so that its logits grow apart in proportion to $t$ and it becomes
    certain.

    Reference:
        Hein, Andriushchenko and Bitterwolf, *Why ReLU Networks Yield High-Confidence Predictions Far Away From the
        Training Data and How to Mitigate the Problem*, 2019.

    Args:
        model: Classifier that returns logits.
        x: Data; $\mu$ and $\sigma$ are the mean and standard deviation of each feature.
        num_rays: Number of directions $v$.
        max_distance: Largest $t$; the others are logarithmically spaced from 0.1.
        num_points: Number of $t$.
        seed: Random seed of the directions; the global random state is not changed.

    Examples:
        >>> result = ood_confidence(nn.Linear(2, 3), torch.eye(2), num_rays=4, num_points=5)
        >>> result.distance.shape, result.confidence.shape
        (torch.Size([5]), torch.Size([4, 5]))
    """
    if min(num_rays, num_points) < 1 or not max_distance > 0.1:
        sizes = f"{num_rays=}, {num_points=}, {max_distance=}"
        raise ValueError(f"num_rays and num_points must be at least 1, max_distance above 0.1: got {sizes}")
    if x.dim() < 2 or len(x) < 1 or not x.is_floating_point():
        raise ValueError(f"expected floating-point x of shape (n, ...), got {x.dtype} of shape {tuple(x.shape)}")
    center, std = x.mean(0), x.std(0, correction=0)
    ones = [1] * center.dim()
    v = torch.randn(num_rays, *center.shape, generator=torch.Generator().manual_seed(seed)).to(x)
    v = v * (center.numel() ** 0.5 / v.flatten(1).norm(dim=-1).reshape(-1, *ones))
    distance = torch.logspace(-1, torch.tensor(max_distance).log10().item(), num_points).to(x)
    points = center + distance.reshape(-1, *ones) * (std * v)[:, None]
    confidence = predict(model, points.flatten(0, 1)).amax(-1)
    return RayConfidence(distance, confidence.reshape(num_rays, num_points))


def claims() -> Iterator[Claim]:
    """Yields the claims of confidence."""
    model = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 3))

    def confidence(x: Tensor) -> Tensor:
        return ood_confidence(model, x, num_rays=2, num_points=3).confidence

    yield Claim(boundedness(low=1 / 3, high=1.0), confidence, shape("n 2"), name="ood_confidence")
