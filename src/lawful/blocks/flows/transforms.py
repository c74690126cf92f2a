"""Maps of one number, with parameters that something else gives: what couplings and autoregressive flows apply.

A learnt scale for each entry, and one that begins by standardising the data.
Invertible linear maps: a matrix kept as the product of two triangles, whose determinant is a product.
Invertible blocks one after another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.blocks.standardize import Standardize
from lawful.functions import standardize
from lawful.laws import Claim, agreement, boundedness, invertibility, linearity, log_determinant, shape


@runtime_checkable
class UnivariateTransform(Protocol):
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
class ShiftTransform:
    """Adds a number to each entry; the logarithm of the slope is exactly 0.

    $$y = x + t$$

    Reference:
        Dinh, Krueger and Bengio, *NICE: Non-linear Independent Components Estimation*, 2015.

    Examples:
        >>> ShiftTransform().forward(torch.tensor([1.0]), torch.tensor([[2.0]]))
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
class AffineTransform:
    r"""Scales each entry by a bounded positive factor, and adds a number.

    $$y = e^{s} x + t, \qquad s = b \tanh(a / b)$$

    The parameters are $a$ and $t$. An unbounded exponent is what makes such flows end in infinities: a step that is a
    little too long is exponentiated, layer after layer. Here no slope leaves $[e^{-b}, e^{b}]$.

    Reference:
        Dinh, Sohl-Dickstein and Bengio, *Density estimation using Real NVP*, 2017.

    Args:
        bound: $b$.

    Examples:
        >>> y, log_slope = AffineTransform().forward(torch.tensor([1.0]), torch.tensor([[1e9, 0.5]]))
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


def _entrywise_claims() -> Iterator[Claim]:
    """The laws that shifting and scaling obey."""
    given = torch.tensor([[0.5, -1.0], [-3.0, 2.0], [40.0, 0.0]])
    shift, affine = ShiftTransform(), AffineTransform(bound=1.5)

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


def _scale_claims() -> Iterator[Claim]:
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


class PermutationTransform(nn.Module):
    r"""Puts the entries in another order; the log-determinant is 0.

    $$y_i = x_{\pi(i)}$$

    Args:
        order: $\pi$, the entry that comes to each place.

    Examples:
        >>> PermutationTransform([2, 0, 1])(torch.tensor([[5.0, 6.0, 7.0]]))[0]
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


def _linear_claims() -> Iterator[Claim]:
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
    turn = PermutationTransform([2, 0, 1])
    for law in (log_determinant(), invertibility()):
        yield Claim(law, turn, shape("n 3"))
    yield Claim(linearity(), lambda x: turn(x)[0], shape("n 3"), name="Permutation")
    yield Claim(
        agreement(other=lambda x: torch.stack([x[:, 2], x[:, 0], x[:, 1]], -1)),
        lambda x: turn(x)[0],
        shape("n 3"),
        name="Permutation",
    )


class ComposedTransform(nn.ModuleList):
    r"""Applies invertible blocks in turn; their log-determinants add up.

    $$f = f_K \circ \dots \circ f_1, \qquad
    \log |\det Df(x)| = \sum_k \log |\det Df_k(x_{k - 1})|, \quad x_k = f_k(x_{k - 1})$$

    Args:
        blocks: $f_1$ to $f_K$: modules whose call and whose `inverse` take vectors and a condition, and return vectors
            and log-determinants.

    Examples:
        >>> both = ComposedTransform([PermutationTransform([1, 0]), CouplingTransform(2, transform=AffineTransform())])
        >>> both(torch.tensor([[1.0, 2.0]]))[0]
        tensor([[2., 1.]], grad_fn=<IndexCopyBackward0>)
    """

    def __init__(self, blocks: Iterable[nn.Module]) -> None:
        super().__init__(blocks)

    def forward(
        self, x: Float[Tensor, "n d"], condition: Float[Tensor, "n c"] | None = None
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Maps vectors from the first block to the last, and returns the log-determinants."""
        log_det = x.new_zeros(len(x))
        for block in self:
            x, more = block(x, condition)
            log_det = log_det + more
        return x, log_det

    def inverse(
        self, y: Float[Tensor, "n d"], condition: Float[Tensor, "n c"] | None = None
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Undoes it, from the last block to the first."""
        log_det = y.new_zeros(len(y))
        for block in reversed(list(self)):
            y, more = block.inverse(y, condition)  # pyrefly: ignore [not-callable]
            log_det = log_det + more
        return y, log_det

    @torch.no_grad()
    def fit(self, x: Float[Tensor, "n d"], condition: Float[Tensor, "n c"] | None = None) -> ComposedTransform:
        """Lets the blocks that can be fitted read data, each what the blocks before it make of them."""
        for block in self:
            if isinstance(block, ActNorm | ComposedTransform):
                block.fit(x)
            x, _ = block(x, condition)
        return self


def _composition_claims() -> Iterator[Claim]:
    """The laws that compositions obey."""
    from lawful.blocks.flows.coupling import CouplingTransform

    both = ComposedTransform(
        [
            ActNorm(3),
            CouplingTransform(3, transform=AffineTransform(bound=1.0), hidden=[4]),
            PermutationTransform([2, 0, 1]),
            ActNorm(3),
        ]
    )
    for law in (log_determinant(), invertibility()):
        yield Claim(law, both, shape("n 3"))

    def there(y: Tensor) -> tuple[Tensor, Tensor]:
        return both.inverse(y)

    yield Claim(log_determinant(), there, shape("n 3"), name="Composition.inverse")


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _entrywise_claims()
    yield from _scale_claims()
    yield from _linear_claims()
    yield from _composition_claims()
