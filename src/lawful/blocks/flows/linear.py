"""Invertible linear maps: a matrix kept as the product of two triangles, whose determinant is a product."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.laws import Claim, agreement, invertibility, linearity, log_determinant, shape


class InvertibleLinear(nn.Module):
    r"""Multiplies by a matrix that is kept as a permutation, a lower and an upper triangle.

    $$y = W x, \qquad W = P L \, (U + \operatorname{diag}(\sigma e^{s})), \qquad \log |\det W| = \sum_i s_i$$

    $L$ has ones on its diagonal and $U$ zeros; the signs $\sigma$ and the permutation $P$ are those of a random
    rotation, which $W$ is at first, and stay. However the parameters move, $W$ stays invertible; two triangular systems
    undo it.

    Reference:
        Kingma and Dhariwal, *Glow: Generative Flow with Invertible 1x1 Convolutions*, 2018.

    Args:
        d: The number of entries.

    Examples:
        >>> block = InvertibleLinear(3)
        >>> y, log_det = block(torch.ones(2, 3))
        >>> torch.allclose(block.inverse(y)[0], torch.ones(2, 3), atol=1e-5), bool(log_det.abs().max() < 1e-5)
        (True, True)
    """

    permutation: Tensor
    sign: Tensor

    def __init__(self, d: int) -> None:
        if d < 1:
            raise ValueError(f"d is at least 1: got {d}")
        super().__init__()
        rotation, _ = torch.linalg.qr(torch.randn(d, d, dtype=torch.float64))
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
        """$W$."""
        lower, upper = self._triangles()
        return self.permutation @ lower @ upper

    def forward(
        self, x: Float[Tensor, "n d"], condition: Float[Tensor, "n c"] | None = None
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Multiplies vectors, and returns the log-determinant of each, which is that of the matrix."""
        return x @ self.weight.T, self.log_scale.sum().expand(len(x))

    def inverse(
        self, y: Float[Tensor, "n d"], condition: Float[Tensor, "n c"] | None = None
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Undoes it."""
        lower, upper = self._triangles()
        z = torch.linalg.solve_triangular(lower, self.permutation.T @ y.T, upper=False, unitriangular=True)
        return torch.linalg.solve_triangular(upper, z, upper=True).T, -self.log_scale.sum().expand(len(y))


class Permutation(nn.Module):
    r"""Puts the entries in another order; the log-determinant is 0.

    $$y_i = x_{\pi(i)}$$

    Args:
        order: $\pi$, the entry that comes to each place.

    Examples:
        >>> Permutation([2, 0, 1])(torch.tensor([[5.0, 6.0, 7.0]]))[0]
        tensor([[7., 5., 6.]])
    """

    order: Tensor

    def __init__(self, order: Sequence[int]) -> None:
        if sorted(order) != list(range(len(order))) or not order:
            raise ValueError(f"the entries 0 to d - 1 in some order were wanted: got {list(order)}")
        super().__init__()
        self.register_buffer("order", torch.tensor(order))

    def forward(
        self, x: Float[Tensor, "n d"], condition: Float[Tensor, "n c"] | None = None
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Permutes entries."""
        return x[:, self.order], x.new_zeros(len(x))

    def inverse(
        self, y: Float[Tensor, "n d"], condition: Float[Tensor, "n c"] | None = None
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Undoes it."""
        return y[:, self.order.argsort()], y.new_zeros(len(y))


def claims() -> Iterator[Claim]:
    """The laws that invertible linear maps obey."""
    block = InvertibleLinear(3)
    with torch.no_grad():
        block.log_scale.add_(torch.tensor([0.3, -0.5, 0.9]))

    def product(x: Tensor) -> Tensor:
        """Row by row, back through the triangles."""
        lower = torch.tril(block.lower, -1) + torch.eye(3).to(x)
        upper = torch.triu(block.upper, 1) + torch.diag(block.sign * torch.exp(block.log_scale))
        return torch.einsum("ij,jk,kl,nl->ni", block.permutation, lower, upper, x)

    yield Claim(agreement(other=product), lambda x: block(x)[0], shape("n 3"), name="InvertibleLinear")
    for law in (log_determinant(), invertibility()):
        yield Claim(law, block, shape("n 3"))
    turn = Permutation([2, 0, 1])
    for law in (log_determinant(), invertibility()):
        yield Claim(law, turn, shape("n 3"))
    yield Claim(linearity(), lambda x: turn(x)[0], shape("n 3"), name="Permutation")
    yield Claim(
        agreement(other=lambda x: torch.stack([x[:, 2], x[:, 0], x[:, 1]], -1)),
        lambda x: turn(x)[0],
        shape("n 3"),
        name="Permutation",
    )
