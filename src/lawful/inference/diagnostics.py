"""Dead units: those that give 0 whatever they are shown.

Confidence far from the data: what a classifier says of what it has never seen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from lawful.blocks import Dense
from lawful.blocks.modes import eval_mode
from lawful.functions.activations import identity
from lawful.inference.predict import parts, predict
from lawful.laws import Claim, agreement, boundedness, shape, transformed

ACTIVATIONS: tuple[type[nn.Module], ...] = (nn.ReLU, nn.ReLU6, nn.Hardswish, nn.Softshrink, nn.Hardshrink, nn.Threshold)
"""The modules that can be stuck at 0."""


@torch.no_grad()
def activity(
    model: nn.Module,
    x: Shaped[Tensor, "n ..."],
    *,
    batch: int = 1024,
    activations: tuple[type[nn.Module], ...] = ACTIVATIONS,
    axis: int = 1,
) -> dict[str, Float[Tensor, " units"]]:
    r"""Measures, of each unit after an activation, on which share of the data its output is not 0.

    $$a_u = \frac{1}{N} \left| \{ n : h_u(x_n) \ne 0 \} \right|$$

    A unit whose share is 0 is dead: it does nothing, and a ReLU gets no gradient. Channels are units, at whatever
    position they are active. The model runs in evaluation mode, and is as before afterwards.

    Args:
        model: The model. Besides `activations`, dense layers with an activation of their own are looked at.
        x: The examples, along the first axis.
        batch: How many go through the model at once.
        activations: The classes of the modules whose outputs are looked at.
        axis: The axis of the units in those outputs; in a dense layer's it is the last.

    Returns:
        The shares, by the name of the module; of a module that is used several times, `name#2` is the second use.

    Examples:
        >>> layer = Dense(1, 2, activation=torch.relu)
        >>> layer.weight.data, layer.bias.data = torch.tensor([[1.0], [0.0]]), torch.tensor([0.0, -1.0])
        >>> activity(nn.Sequential(layer), torch.tensor([[-1.0], [1.0]]))
        {'0': tensor([0.5000, 0.0000])}
    """
    counts: dict[str, Tensor] = {}
    totals: dict[str, int] = defaultdict(int)
    uses: dict[str, int] = defaultdict(int)

    def hook(name: str, units: int) -> Any:
        def look(module: nn.Module, args: Any, y: Tensor) -> None:
            uses[name] += 1
            key = name if uses[name] == 1 else f"{name}#{uses[name]}"
            active = (y != 0).movedim(units, -1).flatten(0, -2)
            counts[key] = counts.get(key, torch.zeros(active.shape[-1])) + active.sum(0).cpu()
            totals[key] += len(active)

        return look

    dense = [m for m in model.modules() if isinstance(m, Dense) and not _plain(m.activation)]
    inside = {id(m.activation) for m in dense}
    handles = [
        module.register_forward_hook(hook(name, -1 if module in dense else axis))
        for name, module in model.named_modules()
        if module in dense or (isinstance(module, activations) and id(module) not in inside)
    ]
    try:
        with eval_mode(model):
            for part in parts(x, batch):
                uses.clear()
                model(part)
    finally:
        for handle in handles:
            handle.remove()
    return {name: count / totals[name] for name, count in counts.items()}


def dead_units(activity: dict[str, Float[Tensor, " units"]]) -> dict[str, tuple[int, int]]:
    """Counts the dead units of each layer, and all units.

    Args:
        activity: The shares that `activity` measured.

    Examples:
        >>> dead_units({"layers.0": torch.tensor([0.5, 0.0, 1.0])})
        {'layers.0': (1, 3)}
    """
    return {name: (int((share == 0).sum()), len(share)) for name, share in activity.items()}


def _plain(activation: object) -> bool:
    return activation is identity or isinstance(activation, nn.Identity)


def _dead_units_claims() -> Iterator[Claim]:
    """The laws that the measure of activity obeys."""
    layer = Dense(3, 4, activation=torch.relu)
    model = nn.Sequential(layer, nn.Linear(4, 2))

    def measured(x: Tensor) -> Tensor:
        return activity(model, x, batch=2)["0"].to(x)

    def counted(x: Tensor) -> Tensor:
        return (x @ layer.weight.T + layer.bias > 0).to(x).mean(0)

    yield Claim(agreement(other=counted), measured, shape("n 3"), name="activity")
    relu = nn.ReLU()
    inner, plain, taps = Dense(4, 3, activation=nn.ReLU()), Dense(3, 2), nn.Conv1d(1, 2, 2)
    several = nn.Sequential(inner, relu, plain, relu, nn.Unflatten(1, (1, 2)), taps, nn.Hardshrink(0.1))

    def of_modules(x: Tensor) -> Tensor:
        found = activity(several, x)
        dead = [number for counts in dead_units(found).values() for number in counts]
        return torch.cat([*(found[name].to(x) for name in ("0", "1", "1#2", "6")), x.new_tensor([*dead, len(found)])])

    def one_by_one(x: Tensor) -> Tensor:
        first = (x @ inner.weight.T + inner.bias).clamp_min(0)
        second = (first @ plain.weight.T + plain.bias).clamp_min(0)
        third = nn.functional.hardshrink(taps(second[:, None]), 0.1)[..., 0]
        shares = [(y != 0).to(x).mean(0) for y in (first, first, second, third)]
        dead = [number for share in shares for number in (int((share == 0).sum()), len(share))]
        return torch.cat([*shares, x.new_tensor([*dead, 4])])

    yield Claim(agreement(other=one_by_one), of_modules, shape("n 4"), name="activity, module by module")


@dataclass(frozen=True, eq=False)
class Rays:
    """How sure a classifier is along rays that leave the data."""

    distance: Float[Tensor, " r"]
    """How far out, in radii of the data: 1 is the typical distance of the data from their centre."""
    confidence: Float[Tensor, "rays r"]
    """The largest probability of a class, on each ray."""


def ood_confidence(
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
        >>> found = ood_confidence(nn.Linear(2, 3), torch.eye(2), rays=4, steps=5)
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


def _confidence_claims() -> Iterator[Claim]:
    """The laws that confidence obeys."""
    model = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 3))

    def sure(x: Tensor) -> Tensor:
        return ood_confidence(model, x, rays=2, steps=3).confidence

    yield Claim(boundedness(low=1 / 3, high=1.0), sure, shape("n 2"), name="far_confidence")

    class Away(nn.Module):
        """Says the farther from the data, in radii, the surer that it is the first of two classes."""

        def __init__(self, x: Tensor) -> None:
            super().__init__()
            self.centre, self.radius = x.mean(0), 2**0.5 * (x - x.mean(0)).square().mean(0).sqrt()

        def forward(self, x: Tensor) -> Tensor:
            return torch.stack([((x - self.centre) / self.radius).norm(dim=-1).log(), torch.zeros(len(x)).to(x)], -1)

    def of_distance(x: Tensor) -> Tensor:
        found = ood_confidence(Away(x), x)
        return torch.cat([found.distance[None], found.confidence])

    def equation(x: Tensor) -> Tensor:
        t = 10 ** torch.linspace(-1, 2, 41, dtype=torch.float64)
        return torch.stack([t] + 32 * [t.clamp_min(1) / (1 + t)]).to(x)

    def spread_out(x: Tensor) -> Tensor:
        return x.tanh() / 2 + torch.tensor([[2.0, 1.0], [-1.0, 3.0], [0.0, -2.0]]).to(x)

    yield Claim(
        agreement(other=equation), of_distance, transformed(spread_out, "3 2"), name="far_confidence, of the distance"
    )


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _dead_units_claims()
    yield from _confidence_claims()
