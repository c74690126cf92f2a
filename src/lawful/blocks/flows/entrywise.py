"""Maps of one number, with parameters that something else gives: what couplings and autoregressive flows apply."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.laws import Claim, agreement, boundedness, invertibility, shape


@runtime_checkable
class Entrywise(Protocol):
    """Maps each entry by its own parameters, increasing, and back; the parameters 0 are its plainest form."""

    @property
    def size(self) -> int:
        """How many parameters an entry has."""
        ...

    def forward(
        self, x: Float[Tensor, "*n"], parameters: Float[Tensor, "*n p"]
    ) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
        """Returns the entries, and the logarithms of their slopes."""
        ...

    def inverse(
        self, y: Float[Tensor, "*n"], parameters: Float[Tensor, "*n p"]
    ) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
        """Undoes it; the slopes are those of the way back."""
        ...


@dataclass(frozen=True)
class Shift:
    """Adds a number to each entry; the logarithm of the slope is exactly 0.

    $$y = x + t$$

    Reference:
        Dinh, Krueger and Bengio, *NICE: Non-linear Independent Components Estimation*, 2015.

    Examples:
        >>> Shift().forward(torch.tensor([1.0]), torch.tensor([[2.0]]))
        (tensor([3.]), tensor([0.]))
    """

    size = 1

    def forward(
        self, x: Float[Tensor, "*n"], parameters: Float[Tensor, "*n 1"]
    ) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
        """Adds."""
        return x + parameters[..., 0], torch.zeros_like(x)

    def inverse(
        self, y: Float[Tensor, "*n"], parameters: Float[Tensor, "*n 1"]
    ) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
        """Takes away."""
        return y - parameters[..., 0], torch.zeros_like(y)


@dataclass(frozen=True)
class Affine:
    r"""Scales each entry by a bounded positive factor, and adds a number.

    $$y = e^{s} x + t, \qquad s = b \tanh(a / b)$$

    The parameters are $a$ and $t$. An unbounded exponent is what makes such flows end in infinities: a step that is a
    little too long is exponentiated, layer after layer. Here no slope leaves $[e^{-b}, e^{b}]$.

    Reference:
        Dinh, Sohl-Dickstein and Bengio, *Density estimation using Real NVP*, 2017.

    Args:
        bound: $b$.

    Examples:
        >>> y, log_slope = Affine().forward(torch.tensor([1.0]), torch.tensor([[1e9, 0.5]]))
        >>> log_slope
        tensor([2.])
    """

    bound: float = 2.0
    size = 2

    def __post_init__(self) -> None:
        if not self.bound > 0:
            raise ValueError(f"bound is above 0: got {self.bound}")

    def forward(
        self, x: Float[Tensor, "*n"], parameters: Float[Tensor, "*n 2"]
    ) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
        """Scales and adds."""
        s, t = self._of(parameters)
        return s.exp() * x + t, s

    def inverse(
        self, y: Float[Tensor, "*n"], parameters: Float[Tensor, "*n 2"]
    ) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
        """Takes away and divides."""
        s, t = self._of(parameters)
        return (-s).exp() * (y - t), -s

    def _of(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        a, t = parameters.unbind(-1)
        return self.bound * torch.tanh(a / self.bound), t


def claims() -> Iterator[Claim]:
    """The laws that shifting and scaling obey."""
    given = torch.tensor([[0.5, -1.0], [-3.0, 2.0], [40.0, 0.0]])
    shift, affine = Shift(), Affine(bound=1.5)

    def shifted(x: Tensor) -> Tensor:
        return torch.stack(shift.forward(x, given[:, :1].to(x).expand(*x.shape, 1)))

    def scaled(x: Tensor) -> Tensor:
        return affine.forward(x, given.to(x).expand(*x.shape, 2))[0]

    def equation(x: Tensor) -> Tensor:
        a, t = given.to(x).T
        return torch.exp(1.5 * torch.tanh(a / 1.5)) * x + t

    yield Claim(
        agreement(other=lambda x: torch.stack([x + given[:, 0].to(x), 0 * x])), shifted, shape("b 3"), name="Shift"
    )
    yield Claim(agreement(other=equation), scaled, shape("b 3"), name="Affine")
    yield Claim(
        invertibility(inverse=lambda y: affine.inverse(y, given.to(y).expand(*y.shape, 2))[0]),
        scaled,
        shape("b 3"),
        name="Affine",
    )
    yield Claim(
        boundedness(low=-1.5, high=1.5),
        lambda x: affine.forward(x[..., 0], x)[1],
        shape("b 3 2"),
        name="Affine, log-slope",
    )
