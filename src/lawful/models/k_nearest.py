"""k nearest neighbors, for regression and classification, with any $L^p$ distance."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lawful.laws import Claim, batch_independence, shape, sums_to_one
from lawful.models.linear import one_hot

_MAX_DISTANCES = 2**17  # distances held at a time


class KNearest(nn.Module):
    r"""Mean target of the nearest examples.

    $$y(x) = \frac{1}{k} \sum_{n \in N_k(x)} y_n, \qquad
    N_k(x) \text{ the } k \text{ examples with the smallest } \lVert x - x_n \rVert_p$$

    Nothing is learned: the examples are buffers. Examples at the same distance as the $k$-th share its weight equally,
    so that their order does not matter. Large inputs are processed in chunks.

    Args:
        num_examples: Number of examples.
        in_dim: Number of features.
        out_dim: Number of targets.
        k: Number of neighbors.
        p: Exponent of the distance, at least 1; `inf` for the maximum norm.

    Examples:
        >>> model = KNearest(3, 1, 1, k=2)
        >>> model = model.fit(torch.tensor([[0.0], [1.0], [5.0]]), torch.tensor([[1.0], [3.0], [9.0]]))
        >>> model(torch.tensor([[0.2], [4.0]]))
        tensor([[2.],
                [6.]])
    """

    inputs: Tensor
    targets: Tensor

    def __init__(self, num_examples: int, in_dim: int, out_dim: int, *, k: int = 5, p: float = 2.0) -> None:
        super().__init__()
        if min(num_examples, in_dim, out_dim) < 1:
            sizes = f"{num_examples=}, {in_dim=}, {out_dim=}"
            raise ValueError(f"num_examples, in_dim and out_dim must be at least 1: got {sizes}")
        if not 1 <= k <= num_examples:
            raise ValueError(f"k must be between 1 and num_examples: got {k=}, {num_examples=}")
        if not p >= 1:
            raise ValueError(f"p must be at least 1, got {p}")
        self.k, self.p = k, p
        self.register_buffer("inputs", torch.zeros(num_examples, in_dim))
        self.register_buffer("targets", torch.zeros(num_examples, out_dim))

    def fit(self, x: Float[Tensor, "n d"], y: Float[Tensor, "n outputs"]) -> KNearest:
        """Stores the examples."""
        if x.shape != self.inputs.shape or y.shape != self.targets.shape:
            expected = f"expected shapes {tuple(self.inputs.shape)} and {tuple(self.targets.shape)}"
            raise ValueError(f"{expected}, got {tuple(x.shape)} and {tuple(y.shape)}")
        if not x.isfinite().all():
            raise ValueError("x must be finite, got NaN or infinite entries")
        self.inputs.copy_(x)
        self.targets.copy_(y)
        return self

    @torch.no_grad()
    def forward(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch outputs"]:
        """Returns the mean of the nearest targets."""
        n, d = self.inputs.shape
        if x.shape[-1:] != (d,):
            raise ValueError(f"expected x of shape (*batch, {d}), got {tuple(x.shape)}")
        chunks = x.reshape(-1, d).split(max(1, _MAX_DISTANCES // n))
        return torch.cat([self._weights(chunk) @ self.targets for chunk in chunks]).reshape(*x.shape[:-1], -1)

    def _weights(self, x: Float[Tensor, "b d"]) -> Float[Tensor, "b n"]:
        """The weight of each example in the mean."""
        distance = torch.cdist(x, self.inputs, p=self.p, compute_mode="donot_use_mm_for_euclid_dist")
        kth = distance.kthvalue(self.k, dim=-1, keepdim=True).values
        closer, tied = distance < kth, distance == kth
        remaining = self.k - closer.sum(-1, keepdim=True)
        return (closer + tied * remaining / tied.sum(-1, keepdim=True)).to(x) / self.k


class KNearestClassifier(nn.Module):
    r"""Class frequencies among the nearest examples.

    $$p_i = \frac{k_i + s}{k + s c}, \qquad k_i \text{ of the } k \text{ nearest have class } i$$

    Without smoothing $s$, a class that no neighbor has is impossible, and a mistake costs infinite log-loss.

    Args:
        num_examples: Number of examples.
        in_dim: Number of features.
        num_classes: Number of classes $c$.
        k: Number of neighbors.
        p: Exponent of the distance.
        smoothing: Additive smoothing $s$ of the counts.

    Examples:
        >>> model = KNearestClassifier(3, 1, 2, k=2)
        >>> model = model.fit(torch.tensor([[0.0], [1.0], [5.0]]), torch.tensor([0, 1, 1]))
        >>> model(torch.tensor([[0.2], [4.0]])).softmax(-1)
        tensor([[0.5000, 0.5000],
                [0.0000, 1.0000]])
    """

    def __init__(
        self,
        num_examples: int,
        in_dim: int,
        num_classes: int,
        *,
        k: int = 5,
        p: float = 2.0,
        smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        if not smoothing >= 0:
            raise ValueError(f"smoothing must not be negative, got {smoothing}")
        self.num_classes, self.smoothing = num_classes, smoothing
        self.nearest = KNearest(num_examples, in_dim, num_classes, k=k, p=p)

    def fit(self, x: Float[Tensor, "n d"], labels: Int[Tensor, " n"]) -> KNearestClassifier:
        """Stores the examples and their classes."""
        self.nearest.fit(x, one_hot(labels, self.num_classes))
        return self

    def forward(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch outputs"]:
        """Returns the log-probabilities."""
        k, s = self.nearest.k, self.smoothing
        return ((k * self.nearest(x) + s) / (k + s * self.num_classes)).log()


def claims() -> Iterator[Claim]:
    """The laws of nearest neighbors."""
    points = torch.tensor([[0.0, 0], [0, 2], [2, 0], [1, 1], [1, 1], [-3, 1]])
    model = KNearestClassifier(6, 2, 3, k=3, smoothing=0.5).fit(points, torch.tensor([0, 1, 2, 0, 1, 2]))
    yield Claim(sums_to_one(), lambda x: model(x).exp(), shape("b 2"), name="KNearestClassifier")
    yield Claim(batch_independence(), model, shape("b 2"), name="KNearestClassifier")
