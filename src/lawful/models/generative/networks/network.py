"""What a network of a score model is."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor


@runtime_checkable
class Conditioned(Protocol):
    """Maps examples in view of a noise level, and of labels where it knows any."""

    def __call__(
        self, x: Float[Tensor, "n *shape"], c: Float[Tensor, " n"], labels: Int[Tensor, " n"] | None = None
    ) -> Float[Tensor, "n *out"]:
        """Maps a batch; without labels a network that knows some takes the null label."""
        ...
