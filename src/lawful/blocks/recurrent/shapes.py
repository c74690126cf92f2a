"""What recurrent layers ask of their sizes and inputs."""

from __future__ import annotations

from torch import Tensor


def check_sizes(d: int, hidden: int) -> None:
    """Refuses sizes below 1."""
    if min(d, hidden) < 1:
        raise ValueError(f"d and hidden are at least 1: got d={d}, hidden={hidden}")


def check_steps(x: Tensor, d: int) -> None:
    """Refuses what is no batch of sequences of vectors of size d, or has no time in it."""
    if x.dim() != 3 or x.shape[-1] != d or x.shape[1] == 0:
        raise ValueError(f"sequences of shape (b, t, {d}) with t at least 1 were wanted: got shape {tuple(x.shape)}")
