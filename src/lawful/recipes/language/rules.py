"""What a forecast has to beat: the last value, the last season, and a linear map of the past."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

RIDGE = 1e-3
"""The penalty on squared weights of the linear rule."""


def naive(
    series: Float[Tensor, " n"], history: Float[Tensor, "k t"], horizon: int, season: int
) -> Float[Tensor, "k horizon"]:
    """The last value goes on."""
    return history[:, -1:].expand(-1, horizon)


def seasonal_naive(
    series: Float[Tensor, " n"], history: Float[Tensor, "k t"], horizon: int, season: int
) -> Float[Tensor, "k horizon"]:
    """The last season comes again.

    Examples:
        >>> seasonal_naive(torch.zeros(1), torch.tensor([[1.0, 2.0, 3.0]]), 3, 2)
        tensor([[2., 3., 2.]])
    """
    return history[:, -season:].repeat(1, -(-horizon // season))[:, :horizon]


def linear(
    series: Float[Tensor, " n"], history: Float[Tensor, "k t"], horizon: int, season: int
) -> Float[Tensor, "k horizon"]:
    """An affine map of the history to what follows, by least squares with a small penalty, on what is trained on.

    Each window is seen from its last value, so that a series may rise.
    """
    windows = series.unfold(0, history.shape[1] + horizon, 1)
    past, future = windows.split([history.shape[1], horizon], dim=1)
    size = past.std().clamp_min(1e-12)

    def seen(x: Tensor) -> Tensor:
        return torch.nn.functional.pad((x[:, :-1] - x[:, -1:]) / size, (0, 1), value=1.0)

    x, y = seen(past), (future - past[:, -1:]) / size
    gram = x.T @ x + RIDGE * len(x) * torch.eye(x.shape[1], dtype=x.dtype)
    weights = torch.linalg.solve(gram, x.T @ y)
    return history[:, -1:] + size * (seen(history) @ weights)


Rule = Callable[[Tensor, Tensor, int, int], Tensor]
RULES: dict[str, Rule] = {"last value": naive, "last season": seasonal_naive, "linear": linear}
"""The rules by name: from the series that is trained on, histories, the horizon and the season."""
