r"""Exact convergence rates of gradient descent with momentum, and of Adam, on quadratic functions.

On $f(x) = \tfrac 1 2 x^\top A x - b^\top x$, every method here is linear. In the eigenbasis of $A$, each eigenvalue
$\lambda$ has its own recursion of two numbers, and its characteristic polynomial $z^2 - p z + q$ is

| method | $p$ | $q$ | stable for $\lambda$ below |
|---|---|---|---|
| heavy ball, $\beta = 0$: gradient descent | $1 + \beta - \eta \lambda$ | $\beta$ | $2 (1 + \beta) / \eta$ |
| Nesterov | $(1 + \beta)(1 - \eta \lambda)$ | $\beta (1 - \eta \lambda)$ | $2 (1 + \beta) / (\eta (1 + 2 \beta))$ |

The largest absolute value of a root is the factor by which the error shrinks per step in the long run.

Adam with second moments $\nu$ that do not change, and after bias correction, is the heavy ball with learning rate
$\eta (1 - \beta_1)$ and momentum $\beta_1$ on the preconditioned matrix
$P^{-1/2} A P^{-1/2}$, $P = \operatorname{diag}(\sqrt \nu + \epsilon)$. It is stable if the largest eigenvalue of that
matrix is below $2 (1 + \beta_1) / ((1 - \beta_1) \eta)$: $38 / \eta$ for $\beta_1 = 0.9$.

Reference: Polyak, Some Methods of Speeding up the Convergence of Iteration Methods, 1964; Lessard, Recht and Packard,
    Analysis and Design of Optimization Algorithms via Integral Quadratic Constraints, 2016; Cohen and others, Adaptive
    Gradient Methods at the Edge of Stability, 2022.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Complex, Float
from torch import Tensor

_MomentumMethod = Literal["heavy_ball", "nesterov"]


class OptimalMomentum(NamedTuple):
    """Parameters with the smallest spectral radius."""

    learning_rate: float
    """Learning rate."""
    momentum: float
    """Momentum."""
    rate: float
    """Spectral radius: the factor by which the error shrinks per step."""


@dataclass(frozen=True)
class QuadraticSpectrum:
    """Spectrum of an optimizer on a quadratic function."""

    curvatures: Float[Tensor, " n"]
    """Eigenvalues of the (preconditioned) matrix, ascending."""
    roots: Complex[Tensor, "n 2"]
    """Eigenvalues of the iteration: two for each curvature."""
    threshold: float
    """Curvature from which on the iteration diverges."""

    @property
    def radii(self) -> Float[Tensor, " n"]:
        """Largest absolute value of the roots of each curvature."""
        return self.roots.abs().amax(-1)

    @property
    def rate(self) -> float:
        """Spectral radius: the factor by which the error shrinks per step in the long run."""
        return self.radii.max().item()

    @property
    def stable(self) -> bool:
        """Whether the error shrinks for every start."""
        return self.rate < 1


def quadratic_spectrum(
    curvature: Float[Tensor, "n n"] | Float[Tensor, " n"],
    *,
    learning_rate: float,
    momentum: float = 0.0,
    method: _MomentumMethod = "heavy_ball",
) -> QuadraticSpectrum:
    """Returns the spectrum of gradient descent with momentum on a quadratic function.

    The update is that of `torch.optim.SGD`, with `nesterov=True` for `"nesterov"`.

    Args:
        curvature: Symmetric matrix of the quadratic function, or its eigenvalues.
        learning_rate: Learning rate.
        momentum: Momentum, in [0, 1).
        method: `"heavy_ball"` or `"nesterov"`.

    Examples:
        >>> quadratic_spectrum(torch.tensor([1.0, 10.0]), learning_rate=0.1).radii.tolist()
        [0.9, 0.0]
        >>> quadratic_spectrum(torch.tensor([1.0, 10.0]), learning_rate=0.1, momentum=0.5).threshold
        30.0
    """
    eigenvalues = _eigenvalues(curvature)
    threshold = stability_threshold(learning_rate, momentum=momentum, method=method)
    scaled = learning_rate * eigenvalues
    if method == "heavy_ball":
        p, q = 1 + momentum - scaled, torch.full_like(scaled, momentum)
    else:
        p, q = (1 + momentum) * (1 - scaled), momentum * (1 - scaled)
    root = torch.complex(p * p - 4 * q, torch.zeros_like(p)).sqrt()
    # The root without cancellation, and the other from the product.
    large = (p + torch.where(p >= 0, root, -root)) / 2
    small = torch.where(large == 0, 0, q / torch.where(large == 0, 1, large))
    return QuadraticSpectrum(eigenvalues, torch.stack([large, small], dim=-1), threshold)


def adam_spectrum(
    curvature: Float[Tensor, "n n"],
    second_moment: Float[Tensor, " n"],
    *,
    learning_rate: float,
    beta1: float = 0.9,
    eps: float = 1e-8,
) -> QuadraticSpectrum:
    """Returns the spectrum of Adam on a quadratic function for fixed second moments.

    Args:
        curvature: Symmetric matrix of the quadratic function.
        second_moment: Average of the squared gradients, one per coordinate.
        learning_rate: Learning rate.
        beta1: Decay of the first moment.
        eps: Constant that is added to the root of the second moment.

    Examples:
        >>> spectrum = adam_spectrum(torch.diag(torch.tensor([1.0, 4.0])), torch.tensor([1.0, 16.0]), learning_rate=0.1)
        >>> [round(v, 4) for v in spectrum.curvatures.tolist()], round(spectrum.threshold, 6)
        ([1.0, 1.0], 380.0)
    """
    if curvature.ndim != 2 or second_moment.shape != curvature.shape[:1]:
        shapes = f"{tuple(second_moment.shape)} and {tuple(curvature.shape)}"
        raise ValueError(f"second_moment must have one entry per row of the matrix curvature: got {shapes}")
    if not bool((second_moment >= 0).all()) or not eps >= 0:
        raise ValueError("second_moment and eps must not be negative")
    scale = (second_moment.double().sqrt() + eps).rsqrt()
    if not bool(scale.isfinite().all()):
        raise ValueError("second_moment must be positive and finite where eps is 0")
    preconditioned = scale[:, None] * curvature.double() * scale
    return quadratic_spectrum(preconditioned, learning_rate=learning_rate * (1 - beta1), momentum=beta1)


def stability_threshold(
    learning_rate: float, *, momentum: float = 0.0, method: _MomentumMethod | Literal["adam"] = "heavy_ball"
) -> float:
    r"""Returns the curvature from which on an optimizer diverges on a quadratic function.

    For `"adam"`, it is a curvature of the preconditioned matrix, and momentum is $\beta_1$.

    Args:
        learning_rate: Learning rate.
        momentum: Momentum, in [0, 1).
        method: `"heavy_ball"`, `"nesterov"` or `"adam"`.

    Examples:
        >>> stability_threshold(0.1), round(stability_threshold(1.0, momentum=0.9, method="adam"), 6)
        (20.0, 38.0)
    """
    if not 0 < learning_rate < math.inf:
        raise ValueError(f"learning_rate must be positive and finite: got {learning_rate}")
    if not 0 <= momentum < 1:
        raise ValueError(f"momentum must be in [0, 1): got {momentum}")
    if method == "heavy_ball":
        return 2 * (1 + momentum) / learning_rate
    if method == "nesterov":
        return 2 * (1 + momentum) / (1 + 2 * momentum) / learning_rate
    if method == "adam":
        return 2 * (1 + momentum) / (1 - momentum) / learning_rate
    raise ValueError(f"method must be 'heavy_ball', 'nesterov' or 'adam': got {method!r}")


def optimal_momentum(
    smallest: float, largest: float, *, method: _MomentumMethod | Literal["gradient"] = "heavy_ball"
) -> OptimalMomentum:
    r"""Returns the learning rate and momentum with the best rate for curvatures between two numbers.

    With the condition number $\kappa$, the rates are $(\kappa - 1) / (\kappa + 1)$ for gradient descent,
    $(\sqrt \kappa - 1) / (\sqrt \kappa + 1)$ for the heavy ball and $1 - 2 / \sqrt{3 \kappa + 1}$ for Nesterov.

    Args:
        smallest: Smallest curvature, positive.
        largest: Largest curvature.
        method: `"gradient"` (no momentum), `"heavy_ball"` or `"nesterov"`.

    Examples:
        >>> optimal_momentum(1.0, 9.0).rate, optimal_momentum(1.0, 9.0, method="gradient").rate
        (0.5, 0.8)
    """
    if not 0 < smallest <= largest < math.inf:
        raise ValueError(f"expected 0 < smallest <= largest < inf: got {smallest} and {largest}")
    kappa = largest / smallest
    if method == "gradient":
        return OptimalMomentum(2 / (smallest + largest), 0.0, (kappa - 1) / (kappa + 1))
    if method == "heavy_ball":
        rate = (math.sqrt(kappa) - 1) / (math.sqrt(kappa) + 1)
        return OptimalMomentum(4 / (math.sqrt(smallest) + math.sqrt(largest)) ** 2, rate**2, rate)
    if method == "nesterov":
        root = math.sqrt(3 * kappa + 1)
        return OptimalMomentum(4 / (3 * largest + smallest), (root - 2) / (root + 2), 1 - 2 / root)
    raise ValueError(f"method must be 'gradient', 'heavy_ball' or 'nesterov': got {method!r}")


def _eigenvalues(curvature: Tensor) -> Tensor:
    matrix = curvature.detach().double()
    if matrix.ndim not in (1, 2) or not matrix.numel() or not bool(matrix.isfinite().all()):
        raise ValueError(f"curvature must be a finite matrix or its eigenvalues: got shape {tuple(curvature.shape)}")
    if matrix.ndim == 1:
        return matrix.sort().values
    if matrix.shape[0] != matrix.shape[1] or not torch.allclose(
        matrix, matrix.T, atol=1e-6 * float(matrix.abs().max())
    ):
        raise ValueError("curvature must be symmetric: got a matrix that is not")
    return torch.linalg.eigvalsh((matrix + matrix.T) / 2)
