"""A learnt scale for each entry, and one that begins by standardising the data."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.blocks.standardize import Standardize
from lawful.functions import standardize
from lawful.laws import Claim, agreement, invertibility, log_determinant, shape


class DiagonalScale(nn.Module):
    r"""Multiplies each entry by a learnt positive factor.

    $$y_i = e^{s_i} x_i, \qquad \log |\det| = \sum_i s_i$$

    At the end of NICE, whose couplings keep all volumes, it says how much each direction counts.

    Reference:
        Dinh, Krueger and Bengio, *NICE: Non-linear Independent Components Estimation*, 2015.

    Args:
        d: The number of entries.

    Examples:
        >>> DiagonalScale(2)(torch.ones(1, 2))[0]
        tensor([[1., 1.]], grad_fn=<MulBackward0>)
    """

    def __init__(self, d: int) -> None:
        if d < 1:
            raise ValueError(f"d is at least 1: got {d}")
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros(d))

    def forward(
        self, x: Float[Tensor, "n d"], condition: Float[Tensor, "n c"] | None = None
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Multiplies."""
        return x * self.log_scale.exp(), self.log_scale.sum().expand(len(x))

    def inverse(
        self, y: Float[Tensor, "n d"], condition: Float[Tensor, "n c"] | None = None
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Divides."""
        return y * (-self.log_scale).exp(), -self.log_scale.sum().expand(len(y))


class ActNorm(DiagonalScale):
    r"""Scales and shifts each entry; `fit` sets both so that what it reads comes out standardised.

    $$y_i = e^{s_i} x_i + t_i$$

    Both are learnt from there on. Nothing is fitted on the first call, unasked: an output never depends on which batch
    happened to come first.

    Reference:
        Kingma and Dhariwal, *Glow: Generative Flow with Invertible 1x1 Convolutions*, 2018.

    Args:
        d: The number of entries.

    Examples:
        >>> ActNorm(1).fit(torch.tensor([[1.0], [3.0]]))(torch.tensor([[3.0]]))[0]
        tensor([[1.]], grad_fn=<AddBackward0>)
    """

    def __init__(self, d: int) -> None:
        super().__init__(d)
        self.shift = nn.Parameter(torch.zeros(d))

    @torch.no_grad()
    def fit(self, x: Float[Tensor, "n d"]) -> ActNorm:
        """Reads data; an entry that does not vary is shifted only."""
        moments = Standardize(len(self.shift)).to(x).fit(x)
        self.log_scale.copy_(-moments.std.log())
        self.shift.copy_(-moments.mean / moments.std)
        return self

    def forward(
        self, x: Float[Tensor, "n d"], condition: Float[Tensor, "n c"] | None = None
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Scales and shifts."""
        y, log_det = super().forward(x)
        return y + self.shift, log_det

    def inverse(
        self, y: Float[Tensor, "n d"], condition: Float[Tensor, "n c"] | None = None
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Undoes it."""
        return super().inverse(y - self.shift)


def claims() -> Iterator[Claim]:
    """The laws that learnt scales obey."""
    for block in (DiagonalScale(3), ActNorm(3)):
        for law in (log_determinant(), invertibility()):
            yield Claim(law, block, shape("n 3"))
    scale = DiagonalScale(3)
    yield Claim(
        agreement(other=lambda x: x * torch.exp(scale.log_scale)), lambda x: scale(x)[0], shape("n 3"), name="scale"
    )

    def fitted(x: Tensor) -> Tensor:
        return ActNorm(3).to(x).fit(x)(x)[0]

    yield Claim(agreement(other=standardize), fitted, shape("n:2..6 3"), name="ActNorm.fit")
