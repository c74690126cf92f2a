"""Autoregressive flows: each entry is mapped by parameters that the entries before it give."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.blocks.dense import Activation
from lawful.blocks.flows.encodings import Encoding, Waves
from lawful.blocks.flows.entrywise import Affine, Entrywise
from lawful.blocks.flows.masked import MaskedNetwork
from lawful.blocks.flows.rational_quadratic import RationalQuadratic
from lawful.laws import Claim, causality, invertibility, log_determinant, shape


class Autoregressive(nn.Module):
    r"""Maps each entry by an increasing function that depends on the entries before it.

    $$y_i = g\bigl(x_i; \; u_i(x_1, \dots, x_{i - 1}, c)\bigr), \qquad
    \log \Bigl|\det \frac{\partial y}{\partial x}\Bigr| = \sum_i \log g'(x_i; u_i)$$

    A masked network gives all $u_i$ in one pass, so densities are cheap; the way back takes a pass for each entry. At
    first every $u$ is 0, and $g$ its plainest form.

    Reference:
        Papamakarios, Pavlakou and Murray, *Masked Autoregressive Flow for Density Estimation*, 2017.

    Args:
        d: The number of entries.
        transform: $g$, such as `Affine()` or `RationalQuadratic()`.
        order: The place of each entry in the order; as they come unless given.
        hidden: The widths of the hidden layers of the network.
        condition: The size of a condition $c$; 0 without one.
        encoding: What the network is shown of each entry; the entry alone unless given.
        activation: What comes after each hidden layer.
        dropout: The share of units that is dropped in training.

    Examples:
        >>> block = Autoregressive(3, transform=Affine())
        >>> y, log_det = block(torch.ones(2, 3))
        >>> y.shape, log_det
        (torch.Size([2, 3]), tensor([0., 0.], grad_fn=<SumBackward1>))
    """

    def __init__(
        self,
        d: int,
        *,
        transform: Entrywise,
        order: Sequence[int] | None = None,
        hidden: Sequence[int] = (64, 64),
        condition: int = 0,
        encoding: Encoding | None = None,
        activation: Activation = torch.relu,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.transform = transform
        self.order = tuple(range(d)) if order is None else tuple(order)
        if len(self.order) != d:
            raise ValueError(f"an order of {d} entries was wanted: got {len(self.order)}")
        self.network = MaskedNetwork(
            self.order,
            size=transform.size,
            hidden=hidden,
            condition=condition,
            encoding=encoding,
            activation=activation,
            dropout=dropout,
        )

    def forward(
        self, x: Float[Tensor, "n d"], condition: Float[Tensor, "n c"] | None = None
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Maps vectors, and returns the log-determinants."""
        y, log_slope = self.transform.forward(x, self.network(x, condition))
        return y, log_slope.sum(-1)

    def inverse(
        self, y: Float[Tensor, "n d"], condition: Float[Tensor, "n c"] | None = None
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Undoes it, entry by entry; the log-determinants are those of the way back."""
        found, log_det = list(torch.zeros_like(y).unbind(-1)), y.new_zeros(len(y))
        for i in sorted(range(y.shape[-1]), key=self.order.__getitem__):
            parameters = self.network(torch.stack(found, -1), condition)[:, i]
            found[i], log_slope = self.transform.inverse(y[:, i], parameters)
            log_det = log_det + log_slope
        return torch.stack(found, -1), log_det

    def extra_repr(self) -> str:
        return f"{len(self.order)}, transform={self.transform}"


def claims() -> Iterator[Claim]:
    """The laws that autoregressive flows obey."""
    affine = Autoregressive(3, transform=Affine(bound=1.0), hidden=[5])
    spline = Autoregressive(
        3,
        transform=RationalQuadratic(bins=2, box=2.0),
        order=[2, 0, 1],
        hidden=[5],
        encoding=Waves(count=1),
        activation=torch.tanh,
    )
    for block in (affine, spline):
        for law in (log_determinant(), invertibility()):
            yield Claim(
                replace(law, cases=20), block, shape("n 3"), name=f"Autoregressive({type(block.transform).__name__})"
            )
    yield Claim(causality(time=1), affine, shape("n 3"))

    def there(y: Tensor) -> tuple[Tensor, Tensor]:
        return spline.inverse(y)

    yield Claim(replace(log_determinant(), cases=20), there, shape("n 3"), name="Autoregressive.inverse")
