"""The k nearest neighbours: what the closest examples say, in any L^p distance."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lawful.laws import Claim, agreement, batch_independence, shape, sums_to_one, transformed
from lawful.models.linear import one_hot

ENTRIES = 2**22
"""How many distances are held at a time."""


@dataclass(frozen=True, kw_only=True)
class KNearestConfig:
    """The sizes of a memory of examples, and the distance in it."""

    n: int
    """The number of examples."""
    d: int
    """The size of the input."""
    outputs: int
    """The number of targets, or of classes."""
    k: int = 5
    """How many neighbours are asked."""
    order: float = 2.0
    """The exponent p of the distance, at least 1; inf for the largest difference."""
    smoothing: float = 0.0
    """What a classifier adds to the count of each class."""


class KNearest(nn.Module):
    r"""Averages the targets of the closest examples.

    $$y(x) = \frac{1}{k} \sum_{n \in N_k(x)} y_n, \qquad
    N_k(x) \text{ the } k \text{ examples with the least } \lVert x - x_n \rVert_p$$

    Nothing is learnt: the examples are buffers, which are saved as any weights are. Examples at the same distance as
    the $k$-th share the places that are left in equal parts, so that their order makes no difference. Inputs are
    treated in pieces, so that no more than `ENTRIES` distances are held.

    Args:
        config: The sizes and the distance.

    Examples:
        >>> model = KNearest(KNearestConfig(n=3, d=1, outputs=1, k=2))
        >>> model = model.fit(torch.tensor([[0.0], [1.0], [5.0]]), torch.tensor([[1.0], [3.0], [9.0]]))
        >>> model(torch.tensor([[0.2], [4.0]]))
        tensor([[2.],
                [6.]])
    """

    def __init__(self, config: KNearestConfig) -> None:
        super().__init__()
        if min(config.n, config.d, config.outputs) < 1:
            sizes = f"n={config.n}, d={config.d}, outputs={config.outputs}"
            raise ValueError(f"n, d and outputs are at least 1: got {sizes}")
        if not 1 <= config.k <= config.n:
            raise ValueError(f"k is from 1 to the number of examples: got k={config.k}, n={config.n}")
        if not config.order >= 1:
            raise ValueError(f"order is at least 1: got {config.order}")
        self.config = config
        self.inputs: Tensor
        self.targets: Tensor
        self.register_buffer("inputs", torch.zeros(config.n, config.d))
        self.register_buffer("targets", torch.zeros(config.n, config.outputs))

    def fit(self, x: Float[Tensor, "n d"], y: Float[Tensor, "n outputs"]) -> KNearest:
        """Remembers examples, which are to be finite."""
        if x.shape != self.inputs.shape or y.shape != self.targets.shape:
            wanted = f"{tuple(self.inputs.shape)} and {tuple(self.targets.shape)}"
            raise ValueError(f"examples of shapes {wanted} were wanted: got {tuple(x.shape)} and {tuple(y.shape)}")
        if not x.isfinite().all():
            raise ValueError("finite inputs were wanted: got NaN or infinite ones")
        self.inputs.copy_(x)
        self.targets.copy_(y)
        return self

    @torch.no_grad()
    def forward(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch outputs"]:
        """Returns the means of the nearest targets."""
        if x.shape[-1:] != (self.config.d,):
            raise ValueError(f"the last axis is to have size {self.config.d}: got shape {tuple(x.shape)}")
        rows = x.reshape(-1, self.config.d).split(max(1, ENTRIES // self.config.n))
        return torch.cat([self._shares(part) @ self.targets for part in rows]).reshape(*x.shape[:-1], -1)

    def _shares(self, x: Float[Tensor, "b d"]) -> Float[Tensor, "b n"]:
        """How much each example counts."""
        exact = "donot_use_mm_for_euclid_dist"
        apart = torch.cdist(x, self.inputs, p=self.config.order, compute_mode=exact)
        last = apart.kthvalue(self.config.k, dim=-1, keepdim=True).values
        closer, level = apart < last, apart == last
        left = self.config.k - closer.sum(-1, keepdim=True)
        return (closer + level * left / level.sum(-1, keepdim=True)).to(x) / self.config.k


class KNearestClassifier(nn.Module):
    r"""Gives each class the share of the closest examples that have it.

    $$p_i = \frac{k_i + s}{k + s c}, \qquad k_i \text{ of the } k \text{ nearest have class } i$$

    Without smoothing $s$, a class that no neighbour has is impossible, and a mistake is an infinite surprise. Of
    classes with the same share, the first is the prediction.

    Args:
        config: The sizes and the distance; `outputs` is the number of classes $c$.

    Examples:
        >>> model = KNearestClassifier(KNearestConfig(n=3, d=1, outputs=2, k=2))
        >>> model = model.fit(torch.tensor([[0.0], [1.0], [5.0]]), torch.tensor([0, 1, 1]))
        >>> model(torch.tensor([[0.2], [4.0]])).softmax(-1)
        tensor([[0.5000, 0.5000],
                [0.0000, 1.0000]])
    """

    def __init__(self, config: KNearestConfig) -> None:
        super().__init__()
        if not config.smoothing >= 0:
            raise ValueError(f"smoothing is not negative: got {config.smoothing}")
        self.config = config
        self.nearest = KNearest(config)

    def fit(self, x: Float[Tensor, "n d"], labels: Int[Tensor, " n"]) -> KNearestClassifier:
        """Remembers examples with their classes."""
        self.nearest.fit(x, one_hot(labels, classes=self.config.outputs))
        return self

    def forward(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch outputs"]:
        """Returns the logarithms of the probabilities."""
        k, s, c = self.config.k, self.config.smoothing, self.config.outputs
        return ((k * self.nearest(x) + s) / (k + s * c)).log()


def claims() -> Iterator[Claim]:
    """The laws that nearest neighbours obey."""
    points, labels = torch.tensor([[0.0, 0], [0, 2], [2, 0], [1, 1], [1, 1], [-3, 1]]), torch.tensor([0, 1, 2, 0, 1, 2])
    config = KNearestConfig(n=6, d=2, outputs=3, k=3, smoothing=0.5)
    order = torch.tensor([3, 0, 5, 4, 1, 2])
    model, other = (KNearestClassifier(config).fit(points[i], labels[i]) for i in (torch.arange(6), order))

    def shares(x: Tensor) -> Tensor:
        return model(x).exp()

    def everyone(x: Tensor) -> Tensor:
        of_all = replace(config, k=6, order=math.inf)
        return KNearest(of_all).fit(points, one_hot(labels, classes=3)).to(x)(x)

    yield Claim(sums_to_one(), shares, shape("b 2"), name="KNearestClassifier")
    yield Claim(agreement(other=other), model, shape("b 2"), name="KNearestClassifier, examples in another order")
    thirds = agreement(other=lambda x: torch.full_like(x[:, :1], 1 / 3).expand(-1, 3))
    yield Claim(thirds, everyone, shape("b 2"), name="KNearest, all of them")
    yield Claim(batch_independence(), model, shape("b 2"), name="KNearestClassifier")
    places, values = torch.arange(14.0).cos().reshape(7, 2), torch.arange(7.0)[:, None].square()
    for sizes in (KNearestConfig(n=7, d=2, outputs=1), KNearestConfig(n=7, d=2, outputs=1, order=1.0)):

        def asked(x: Tensor, sizes: KNearestConfig = sizes) -> Tensor:
            return KNearest(sizes).fit(places, values).to(x)(x)

        def five(x: Tensor, p: float = sizes.order) -> Tensor:
            apart = (x[:, None] - places.to(x)).abs().pow(p).sum(-1)
            return values.to(x)[apart.argsort(-1)[:, :5]].mean(1)

        name = f"KNearest, five of seven, order {sizes.order:g}"
        yield Claim(agreement(other=five), asked, transformed(torch.tanh, "b 2"), name=name)
