"""Invertible transforms with log-determinants: elementwise, diagonal, linear, permutations and compositions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.blocks.standardize import Standardize
from lawful.functions import standardize
from lawful.laws import (
    Claim,
    agreement,
    boundedness,
    inverse_log_determinant,
    invertibility,
    log_determinant,
    shape,
)


@runtime_checkable
class UnivariateTransform(Protocol):
    """Increasing map of each entry with its own parameters, such as `AffineTransform()`."""

    @property
    def num_parameters(self) -> int:
        """Number of parameters per entry."""
        ...

    def forward(
        self, x: Float[Tensor, "*n"], parameters: Float[Tensor, "*n p"]
    ) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
        """Maps entries, and returns the log-derivatives."""
        ...

    def inverse(
        self, y: Float[Tensor, "*n"], parameters: Float[Tensor, "*n p"]
    ) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
        """Maps entries back, and returns the log-derivatives of the inverse."""
        ...


@dataclass(frozen=True)
class ShiftTransform:
    r"""Adds a parameter to each entry (NICE); the log-derivative is exactly 0.

    $$y = x + t$$

    Reference:
        Dinh, Krueger and Bengio, *NICE: Non-linear Independent Components Estimation*, 2015.

    Examples:
        >>> ShiftTransform().forward(torch.tensor([1.0]), torch.tensor([[2.0]]))
        (tensor([3.]), tensor([0.]))
    """

    num_parameters = 1

    def forward(
        self, x: Float[Tensor, "*n"], parameters: Float[Tensor, "*n 1"]
    ) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
        """Maps entries, and returns the log-derivatives."""
        return x + parameters[..., 0], torch.zeros_like(x)

    def inverse(
        self, y: Float[Tensor, "*n"], parameters: Float[Tensor, "*n 1"]
    ) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
        """Maps entries back, and returns the log-derivatives of the inverse."""
        return y - parameters[..., 0], torch.zeros_like(y)


@dataclass(frozen=True)
class AffineTransform:
    r"""Scales each entry by a bounded positive factor, and shifts it (Real NVP).

    $$y = e^{s} x + t, \qquad s = b \tanh(a / b)$$

    The parameters are $a$ and $t$. The derivative stays in $[e^{-b}, e^{b}]$, which prevents overflow in deep flows.

    Reference:
        Dinh, Sohl-Dickstein and Bengio, *Density estimation using Real NVP*, 2017.

    Args:
        bound: $b$.

    Examples:
        >>> y, log_derivative = AffineTransform().forward(torch.tensor([1.0]), torch.tensor([[1e9, 0.5]]))
        >>> log_derivative
        tensor([2.])
    """

    bound: float = 2.0
    num_parameters = 2

    def __post_init__(self) -> None:
        if not self.bound > 0:
            raise ValueError(f"bound must be positive, got {self.bound}")

    def forward(
        self, x: Float[Tensor, "*n"], parameters: Float[Tensor, "*n 2"]
    ) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
        """Maps entries, and returns the log-derivatives."""
        s, t = self._log_scale_and_shift(parameters)
        return s.exp() * x + t, s

    def inverse(
        self, y: Float[Tensor, "*n"], parameters: Float[Tensor, "*n 2"]
    ) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
        """Maps entries back, and returns the log-derivatives of the inverse."""
        s, t = self._log_scale_and_shift(parameters)
        return (-s).exp() * (y - t), -s

    def _log_scale_and_shift(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        a, t = parameters.unbind(-1)
        return self.bound * torch.tanh(a / self.bound), t


class DiagonalScale(nn.Module):
    r"""Multiplies each entry by a learned positive factor.

    $$y_i = e^{s_i} x_i, \qquad \log |\det| = \sum_i s_i$$

    The last layer of NICE, whose other layers preserve volume.

    Reference:
        Dinh, Krueger and Bengio, *NICE: Non-linear Independent Components Estimation*, 2015.

    Args:
        dim: Number of entries.

    Examples:
        >>> DiagonalScale(2)(torch.ones(1, 2))[0].detach()
        tensor([[1., 1.]])
    """

    def __init__(self, dim: int) -> None:
        if dim < 1:
            raise ValueError(f"dim must be at least 1, got {dim}")
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros(dim))

    def forward(
        self, x: Float[Tensor, "n d"], condition: Float[Tensor, "n c"] | None = None
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Maps vectors, and returns the log-determinants."""
        return x * self.log_scale.exp(), self.log_scale.sum().expand(x.shape[0])

    def inverse(
        self, y: Float[Tensor, "n d"], condition: Float[Tensor, "n c"] | None = None
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Maps vectors back, and returns the log-determinants of the inverse."""
        return y * (-self.log_scale).exp(), -self.log_scale.sum().expand(y.shape[0])


class ActNorm(DiagonalScale):
    r"""Scales and shifts each entry; `fit` initializes both so that the outputs are standardized (Glow).

    $$y_i = e^{s_i} x_i + t_i$$

    Unlike in Glow, the first call does not fit anything: outputs never depend on the first batch.

    Reference:
        Kingma and Dhariwal, *Glow: Generative Flow with Invertible 1x1 Convolutions*, 2018.

    Args:
        dim: Number of entries.

    Examples:
        >>> ActNorm(1).fit(torch.tensor([[1.0], [3.0]]))(torch.tensor([[3.0]]))[0]
        tensor([[1.]], grad_fn=<AddBackward0>)
    """

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.shift = nn.Parameter(torch.zeros(dim))

    @torch.no_grad()
    def fit(self, x: Float[Tensor, "n d"]) -> ActNorm:
        """Initializes scale and shift from data; a constant entry is only shifted."""
        moments = Standardize(len(self.shift)).to(x).fit(x)
        self.log_scale.copy_(-moments.std.log())
        self.shift.copy_(-moments.mean / moments.std)
        return self

    def forward(
        self, x: Float[Tensor, "n d"], condition: Float[Tensor, "n c"] | None = None
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Maps vectors, and returns the log-determinants."""
        y, log_det = super().forward(x)
        return y + self.shift, log_det

    def inverse(
        self, y: Float[Tensor, "n d"], condition: Float[Tensor, "n c"] | None = None
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Maps vectors back, and returns the log-determinants of the inverse."""
        return super().inverse(y - self.shift)


class InvertibleLinear(nn.Module):
    r"""Multiplies by an invertible matrix in LU form (Glow).

    $$y = W x, \qquad W = P L \, (U + \operatorname{diag}(\sigma e^{s})), \qquad \log |\det W| = \sum_i s_i$$

    $L$ is unit lower triangular, $U$ strictly upper triangular. The signs $\sigma$ and the permutation $P$ are fixed;
    $W$ is initialized to a random rotation and stays invertible. The inverse solves two triangular systems.

    Reference:
        Kingma and Dhariwal, *Glow: Generative Flow with Invertible 1x1 Convolutions*, 2018.

    Args:
        dim: Number of entries.

    Examples:
        >>> block = InvertibleLinear(3)
        >>> y, log_det = block(torch.ones(2, 3))
        >>> torch.allclose(block.inverse(y)[0], torch.ones(2, 3), atol=1e-5), bool(log_det.abs().max() < 1e-5)
        (True, True)
    """

    permutation: Tensor
    sign: Tensor

    def __init__(self, dim: int) -> None:
        if dim < 1:
            raise ValueError(f"dim must be at least 1, got {dim}")
        super().__init__()
        rotation, _ = torch.linalg.qr(torch.randn(dim, dim, dtype=torch.float64))
        p, lower, upper = (a.to(torch.get_default_dtype()) for a in torch.linalg.lu(rotation))
        self.lower, self.upper = nn.Parameter(lower.tril(-1)), nn.Parameter(upper.triu(1))
        self.log_scale = nn.Parameter(upper.diagonal().abs().log())
        self.register_buffer("sign", upper.diagonal().sign())
        self.register_buffer("permutation", p)

    def _triangles(self) -> tuple[Tensor, Tensor]:
        one = torch.eye(len(self.sign), dtype=self.lower.dtype, device=self.lower.device)
        return self.lower.tril(-1) + one, self.upper.triu(1) + torch.diag(self.sign * self.log_scale.exp())

    @property
    def weight(self) -> Float[Tensor, "d d"]:
        """The matrix $W$."""
        lower, upper = self._triangles()
        return self.permutation @ lower @ upper

    def forward(
        self, x: Float[Tensor, "n d"], condition: Float[Tensor, "n c"] | None = None
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Maps vectors, and returns the log-determinants."""
        return x @ self.weight.T, self.log_scale.sum().expand(x.shape[0])

    def inverse(
        self, y: Float[Tensor, "n d"], condition: Float[Tensor, "n c"] | None = None
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Maps vectors back, and returns the log-determinants of the inverse."""
        lower, upper = self._triangles()
        z = torch.linalg.solve_triangular(lower, self.permutation.T @ y.T, upper=False, unitriangular=True)
        return torch.linalg.solve_triangular(upper, z, upper=True).T, -self.log_scale.sum().expand(y.shape[0])


class PermutationTransform(nn.Module):
    r"""Permutes the entries; the log-determinant is 0.

    $$y_i = x_{\pi(i)}$$

    Args:
        order: $\pi$, the source of each output entry.

    Examples:
        >>> PermutationTransform([2, 0, 1])(torch.tensor([[5.0, 6.0, 7.0]]))[0]
        tensor([[7., 5., 6.]])
    """

    order: Tensor

    def __init__(self, order: Sequence[int]) -> None:
        if sorted(order) != list(range(len(order))) or not order:
            raise ValueError(f"order must be a permutation of 0 to dim - 1, got {list(order)}")
        super().__init__()
        self.register_buffer("order", torch.tensor(order))

    def forward(
        self, x: Float[Tensor, "n d"], condition: Float[Tensor, "n c"] | None = None
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Maps vectors, and returns the log-determinants."""
        return x[:, self.order], x.new_zeros(x.shape[0])

    def inverse(
        self, y: Float[Tensor, "n d"], condition: Float[Tensor, "n c"] | None = None
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Maps vectors back, and returns the log-determinants of the inverse."""
        return y[:, self.order.argsort()], y.new_zeros(y.shape[0])


class ComposedTransform(nn.ModuleList):
    r"""Composition of invertible transforms; the log-determinants add up.

    $$f = f_K \circ \dots \circ f_1, \qquad
    \log |\det Df(x)| = \sum_k \log |\det Df_k(x_{k - 1})|, \quad x_k = f_k(x_{k - 1})$$

    Args:
        transforms: $f_1$ to $f_K$. Their `forward` and `inverse` take vectors and a condition, and return vectors and
            log-determinants.

    Examples:
        >>> both = ComposedTransform([PermutationTransform([1, 0]), ActNorm(2)])
        >>> both(torch.tensor([[1.0, 2.0]]))[0].detach()
        tensor([[2., 1.]])
    """

    def __init__(self, transforms: Iterable[nn.Module]) -> None:
        super().__init__(transforms)

    def forward(
        self, x: Float[Tensor, "n d"], condition: Float[Tensor, "n c"] | None = None
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Maps vectors, and returns the log-determinants."""
        log_det = x.new_zeros(x.shape[0])
        for transform in self:
            x, term = transform(x, condition)
            log_det = log_det + term
        return x, log_det

    def inverse(
        self, y: Float[Tensor, "n d"], condition: Float[Tensor, "n c"] | None = None
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Maps vectors back, and returns the log-determinants of the inverse."""
        log_det = y.new_zeros(y.shape[0])
        for transform in reversed(list(self)):
            y, term = transform.inverse(y, condition)  # pyrefly: ignore [not-callable]
            log_det = log_det + term
        return y, log_det

    @torch.no_grad()
    def fit(self, x: Float[Tensor, "n d"], condition: Float[Tensor, "n c"] | None = None) -> ComposedTransform:
        """Initializes every `ActNorm` from data, mapped by the transforms before it."""
        for transform in self:
            if isinstance(transform, ActNorm | ComposedTransform):
                transform.fit(x)
            x, _ = transform(x, condition)
        return self


def claims() -> Iterator[Claim]:
    """Laws of invertible transforms."""
    linear, permutation = InvertibleLinear(3), PermutationTransform([2, 0, 1])
    with torch.no_grad():
        linear.log_scale.add_(torch.tensor([0.3, -0.5, 0.9]))
    composed = ComposedTransform([ActNorm(3), permutation, linear, DiagonalScale(3)])
    for transform in (DiagonalScale(3), ActNorm(3), linear, permutation, composed):
        for law in (log_determinant(), invertibility(), inverse_log_determinant()):
            yield Claim(law, transform, shape("n 3"), name=type(transform).__name__)
    bounded = boundedness(low=-1.5, high=1.5)
    log_derivative = lambda x: AffineTransform(bound=1.5).forward(x[..., 0], x)[1]  # noqa: E731
    yield Claim(bounded, log_derivative, shape("b 3 2"), name="AffineTransform, log-derivative")
    yield Claim(
        agreement(other=standardize), lambda x: ActNorm(3).to(x).fit(x)(x)[0], shape("n:2..6 3"), name="ActNorm.fit"
    )
