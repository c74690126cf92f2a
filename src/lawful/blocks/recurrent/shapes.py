"""What recurrent layers ask of their sizes and inputs."""

from __future__ import annotations

from torch import Tensor


def check_sizes(d: int, hidden: int) -> None:
    """Refuses sizes below 1."""
    if min(d, hidden) < 1:
        raise ValueError(f"d and hidden are at least 1: got d={d}, hidden={hidden}")


def check_step(x: Tensor, state: Tensor | None, d: int, hidden: int) -> None:
    """Refuses what is no batch of vectors of size d, or no state of them."""
    if x.dim() != 2 or x.shape[1] != d:
        raise ValueError(f"vectors of shape (b, {d}) were wanted: got shape {tuple(x.shape)}")
    check_state(state, len(x), hidden)


def check_state(state: Tensor | None, b: int, hidden: int) -> None:
    """Refuses what is neither None nor a state of a batch of b."""
    if state is not None and state.shape != (b, hidden):
        raise ValueError(f"a state of shape {(b, hidden)} was wanted: got shape {tuple(state.shape)}")


def check_steps(x: Tensor, d: int) -> None:
    """Refuses what is no batch of sequences of vectors of size d, or has no time in it."""
    if x.dim() != 3 or x.shape[-1] != d or x.shape[1] == 0:
        raise ValueError(f"sequences of shape (b, t, {d}) with t at least 1 were wanted: got shape {tuple(x.shape)}")
