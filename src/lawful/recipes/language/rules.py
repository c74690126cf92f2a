"""What a forecast has to beat: the last value, the last season, a line with seasons, and a linear map of the past."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

RIDGE = 1e-3
"""The penalty on squared weights of the linear rule."""
SHRUNK = 0.1
"""The penalty on the squared slope of a line, and on the squared deviations of a season from it."""


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


def continued(history: Float[Tensor, "k t"], horizon: int, season: int) -> Float[Tensor, "k all"]:
    r"""Fits a line and a season that may grow to each history, and goes on: what is expected of it, and after it.

    $$\hat x_t = \bar x + a \, u_t + (1 + g \, u_t) \, s_{t \bmod p}$$

    $u$ rises from -1 to 1 over the history and on after it. The line and the season are those of least squares without
    growth, with the penalty $\lambda (a^2 + \lVert s \rVert^2)$; the growth is that of least squares of what these
    leave, with $\lambda \lVert g s \rVert^2$. A history that has not two seasons has a line alone.

    Args:
        history: $x$.
        horizon: How many values come after it.
        season: $p$.

    Examples:
        >>> continued(torch.tensor([[0.0, 5.0] * 50]), 3, 2)[0, -3:].round()
        tensor([0., 5., 0.])
    """
    t, x = history.shape[1], history.double()
    place = torch.arange(t + horizon, dtype=torch.float64)
    line = (2 * place - t + 1) / max(1, t - 1)
    phases = (
        torch.eye(season, dtype=torch.float64)[place.long() % season] if 1 < season <= t // 2 else line[:, None][:, :0]
    )
    every = torch.cat([line[:, None], phases], dim=1)
    gram = every[:t].T @ every[:t] + SHRUNK * torch.eye(every.shape[1], dtype=torch.float64)
    mean = x.mean(1, keepdim=True)
    weights = torch.linalg.solve(gram, every[:t].T @ (x - mean).T)
    found, growing = mean + (every @ weights).T, (phases @ weights[1:]).T * line
    size = growing[:, :t].square().sum(1, keepdim=True) + SHRUNK * weights[1:].square().sum(0)[:, None]
    growth = ((x - found[:, :t]) * growing[:, :t]).sum(1, keepdim=True) / torch.where(size > 0, size, 1.0)
    return (found + growth * growing).to(history.dtype)


def line_and_season(
    series: Float[Tensor, " n"], history: Float[Tensor, "k t"], horizon: int, season: int
) -> Float[Tensor, "k horizon"]:
    """A line and a season that fit the history go on, the season growing as it grew."""
    return continued(history, horizon, season)[:, -horizon:]


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
RULES: dict[str, Rule] = {
    "last value": naive,
    "last season": seasonal_naive,
    "line and season": line_and_season,
    "linear": linear,
}
"""The rules by name: from the series that is trained on, histories, the horizon and the season."""
