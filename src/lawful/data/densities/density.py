"""What a density known by a formula can say."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor


@runtime_checkable
class Density(Protocol):
    r"""Knows its samples, its log-density and score, its entropy, and all of these under Gaussian noise."""

    @property
    def d(self) -> int:
        """The dimension."""
        ...

    @property
    def entropy(self) -> float:
        r"""$-\int p \log p$ in nats: by a formula, or by quadrature where there is none."""
        ...

    def sample(self, n: int, seed: int = 0, *, first: int = 0) -> Float[Tensor, "n d"]:
        """Draws the samples `first` to `first + n - 1` of a seed."""
        ...

    def log_prob(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch"]:
        r"""$\log p(x)$."""
        ...

    def score(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        r"""$\nabla \log p(x)$."""
        ...

    def noised(self, alpha: float, sigma: float) -> Density:
        r"""Returns the density of $\alpha x + \sigma \varepsilon$, $\varepsilon \sim N(0, 1)$."""
        ...

    def denoised(self, y: Float[Tensor, "*batch d"], alpha: float, sigma: float) -> Float[Tensor, "*batch d"]:
        r"""$\mathbb{E}[x \mid \alpha x + \sigma \varepsilon = y]$, at $\alpha = 0$ and at $\sigma = 0$ too."""
        ...


def check_noise(alpha: float, sigma: float) -> None:
    """Refuses what is no scale of a signal and of noise."""
    if not (0 <= alpha < float("inf") and 0 <= sigma < float("inf")) or alpha == sigma == 0:
        raise ValueError(f"alpha and sigma are not negative, finite, and not both 0: got {alpha} and {sigma}")
