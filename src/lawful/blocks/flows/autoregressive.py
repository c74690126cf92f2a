"""What a network is shown of a number: the number alone, waves of it, or the level that it belongs to.

Masked networks: the outputs for an entry see the entries before it, and no others.
Autoregressive flows: each entry is mapped by parameters that the entries before it give.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks.dropout import Dropout
from lawful.blocks.flows.spline import RationalQuadraticSpline
from lawful.blocks.flows.transforms import AffineTransform, UnivariateTransform
from lawful.blocks.linear import Activation, Dense, name_of
from lawful.laws import (
    Claim,
    agreement,
    batch_independence,
    causality,
    invertibility,
    log_determinant,
    shape,
    transformed,
)


@runtime_checkable
class FeatureEncoding(Protocol):
    """Turns each entry into some numbers."""

    @property
    def size(self) -> int:
        """How many numbers an entry becomes."""
        ...

    def __call__(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n e"]:
        """Encodes entries; the numbers of an entry stand side by side."""
        ...


@dataclass(frozen=True)
class IdentityEncoding:
    """Leaves entries as they are.

    Examples:
        >>> IdentityEncoding()(torch.ones(1, 2))
        tensor([[1., 1.]])
    """

    size = 1

    def __call__(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Returns the entries."""
        return x


@dataclass(frozen=True, kw_only=True)
class FourierEncoding:
    r"""Puts sines and cosines beside each entry, so that a small network can tell near values apart.

    $$x \mapsto \bigl(x, \; \sin \tfrac{\pi k x}{2 b}, \; \cos \tfrac{\pi k x}{2 b}\bigr), \qquad k = 1, \dots, K$$

    Reference:
        Tancik and others, *Fourier Features Let Networks Learn High Frequency Functions in Low Dimensional Domains*,
        2020.

    Args:
        count: $K$.
        box: $b$; from $-b$ to $b$ no two values look the same.

    Examples:
        >>> FourierEncoding(count=2)(torch.zeros(1, 3)).shape
        torch.Size([1, 15])
    """

    count: int = 8
    box: float = 3.0

    def __post_init__(self) -> None:
        if self.count < 1 or not 0 < self.box < math.inf:
            raise ValueError(f"count is at least 1 and the box above 0: got {self.count} and {self.box}")

    @property
    def size(self) -> int:
        """How many numbers an entry becomes."""
        return 2 * self.count + 1

    def __call__(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n e"]:
        """Encodes entries."""
        each = x.unsqueeze(-1)
        angles = each * torch.arange(1, self.count + 1, dtype=x.dtype, device=x.device).mul_(math.pi / (2 * self.box))
        return torch.cat([each, angles.sin(), angles.cos()], -1).flatten(-2)


@dataclass(frozen=True)
class LevelEncoding:
    r"""Shows the cell of each entry and not where in the cell it lies, which dequantizing drew at random.

    $$x \mapsto (c, \; [c \text{ is the first}], \; [c \text{ is the last}]), \qquad
    c = \text{the centre of the cell of } x \text{ out of } K \text{ equal ones from } -1 \text{ to } 1$$

    Args:
        levels: $K$.

    Examples:
        >>> LevelEncoding(2)(torch.tensor([[-0.9, 0.1]]))
        tensor([[-0.5000,  1.0000,  0.0000,  0.5000,  0.0000,  1.0000]])
    """

    levels: int
    size = 3

    def __post_init__(self) -> None:
        if self.levels < 2:
            raise ValueError(f"levels are at least 2: got {self.levels}")

    def __call__(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n e"]:
        """Encodes entries."""
        k = self.levels
        which = ((x + 1) * (k / 2)).floor().clamp(0, k - 1)
        parts = (which * (2 / k) + (1 / k - 1), (which == 0).to(x.dtype), (which == k - 1).to(x.dtype))
        return torch.stack(parts, -1).flatten(-2)


def _encodings_claims() -> Iterator[Claim]:
    """The laws that encodings obey."""

    def waves(x: Tensor) -> Tensor:
        rows = []
        for value in x.unbind(-1):
            rows += [value, *(torch.sin(math.pi * k * value / 4) for k in (1, 2))]
            rows += [torch.cos(math.pi * k * value / 4) for k in (1, 2)]
        return torch.stack(rows, -1)

    def by_centres(x: Tensor) -> Tensor:
        centres = x.new_tensor([-0.8, -0.4, 0.0, 0.4, 0.8])
        nearest = (x[..., None] - centres).abs().argmin(-1)
        return torch.stack([centres[nearest], (nearest == 0).to(x), (nearest == 4).to(x)], -1).flatten(1)

    yield Claim(agreement(other=waves), FourierEncoding(count=2, box=2.0), shape("n 2"), name="Waves")
    cells = transformed(lambda x: 1.2 * torch.tanh(x), "n 3")
    yield Claim(agreement(other=by_centres), LevelEncoding(5), cells, name="Level")


class MaskedDense(Dense):
    r"""Applies an affine map some of whose weights are held at 0.

    $$y = (M \odot W) x + b, \qquad M_{ij} \in \{0, 1\}$$

    Weights start with the variance 1 / (how many inputs the output sees), those of unseen inputs at 0.

    Args:
        mask: $M$.

    Examples:
        >>> layer = MaskedDense(torch.tensor([[True, False]]))
        >>> x = torch.tensor([[1.0, 2.0], [1.0, 3.0]])
        >>> bool(layer(x)[0] == layer(x)[1])
        True
    """

    mask: Tensor

    def __init__(self, mask: Bool[Tensor, "d_out d_in"]) -> None:
        super().__init__(mask.shape[1], mask.shape[0])
        self.register_buffer("mask", mask, persistent=False)
        with torch.no_grad():
            seen = mask.sum(1, keepdim=True).clamp_min(1)
            self.weight.normal_().mul_(mask / seen.sqrt())
            self.bias.zero_()

    def forward(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        """Maps the last axis."""
        self._check(x)
        return F.linear(x, self.weight * self.mask, self.bias)


class MaskedNetwork(nn.Module):
    r"""Computes some numbers for each entry from the entries that come before it in an order.

    $$u_i = f_i\bigl(x_{j} : \text{order}_j < \text{order}_i; \; c\bigr)$$

    Each hidden unit has a place in the order, sees the entries up to it, and is seen by outputs after it; so one pass
    gives the numbers of all entries. A condition $c$ is seen by all. Outputs also see the encoded entries directly. All
    numbers are 0 at first.

    Reference:
        Germain, Gregor, Murray and Larochelle, *MADE: Masked Autoencoder for Distribution Estimation*, 2015.

    Args:
        order: The place of each entry, from 0 on.
        size: How many numbers are computed for each.
        hidden: The widths of the hidden layers.
        condition: The size of $c$; 0 without one.
        encoding: What is shown of each entry.
        activation: What comes after each hidden layer.
        dropout: The share of hidden units, and of direct inputs, that is dropped in training.

    Examples:
        >>> network = MaskedNetwork([0, 1, 2], size=5, hidden=[16])
        >>> network(torch.zeros(4, 3)).shape
        torch.Size([4, 3, 5])
    """

    def __init__(
        self,
        order: Sequence[int],
        *,
        size: int,
        hidden: Sequence[int] = (64, 64),
        condition: int = 0,
        encoding: FeatureEncoding | None = None,
        activation: Activation = torch.relu,
        dropout: float = 0.0,
    ) -> None:
        if sorted(order) != list(range(len(order))) or not order:
            raise ValueError(f"an order of the places 0 to d - 1 was wanted: got {list(order)}")
        super().__init__()
        self.encoding: FeatureEncoding = IdentityEncoding() if encoding is None else encoding
        self.size, self.condition, self.activation = size, condition, activation
        places, least, d = torch.tensor(order), -1 if condition else 0, len(order)
        inputs = torch.cat([places.repeat_interleave(self.encoding.size), torch.full((condition,), -1)])
        units = [least + torch.arange(n) * max(1, d - 1 - least) // n for n in hidden]
        outputs = places.repeat_interleave(size)[:, None]
        masks = [after[:, None] >= before for before, after in zip([inputs, *units], units, strict=False)]
        self.hidden = nn.ModuleList(map(MaskedDense, masks))
        self.out = MaskedDense(outputs > (units[-1] if units else inputs))
        self.direct = MaskedDense(outputs > inputs) if units else None
        self.dropout = Dropout(dropout)
        for parameter in chain(self.out.parameters(), self.direct.parameters() if self.direct else ()):
            nn.init.zeros_(parameter)

    def forward(
        self, x: Float[Tensor, "n d"], condition: Float[Tensor, "n c"] | None = None
    ) -> Float[Tensor, "n d size"]:
        """Returns the numbers of every entry."""
        seen = with_condition(self.encoding(x), condition, self.condition)
        h = seen
        for layer in self.hidden:
            h = self.dropout(self.activation(layer(h)))
        u = self.out(h)
        if self.direct is not None:
            u = u + self.direct(self.dropout(seen))
        return u.unflatten(-1, (-1, self.size))

    def extra_repr(self) -> str:
        return f"size={self.size}, condition={self.condition}, activation={name_of(self.activation)}"


def with_condition(x: Float[Tensor, "n d"], condition: Float[Tensor, "n c"] | None, size: int) -> Tensor:
    """Puts a condition beside what a network sees; refuses one of another size, or none where one is wanted."""
    got = 0 if condition is None else condition.shape[-1]
    if got != size:
        raise ValueError(f"a condition of size {size} was wanted: got one of size {got}")
    return x if condition is None else torch.cat([x, condition], -1)


def _masked_claims() -> Iterator[Claim]:
    """The laws that masked networks obey."""
    mask = torch.tensor([[True, False, True], [False, True, True]])
    layer = MaskedDense(mask)

    def equation(x: Tensor) -> Tensor:
        kept = torch.where(mask, layer.weight, torch.zeros_like(layer.weight))
        return x @ kept.T + layer.bias

    yield Claim(agreement(other=equation), layer, shape("b 3"), name="MaskedDense")
    network = MaskedNetwork([0, 1, 2, 3], size=2, hidden=[7, 9])

    def shifted(x: Tensor) -> Tensor:
        """At each entry the numbers of the next one, which may see it; at the last those of the first."""
        return network(x).roll(-1, 1)

    yield Claim(causality(time=1), network, shape("n 4"))
    yield Claim(causality(time=1), shifted, shape("n 4"), name="MaskedNetwork, one later")
    yield Claim(batch_independence(), network, shape("n 4"))


class AutoregressiveTransform(nn.Module):
    r"""Maps each entry by an increasing function that depends on the entries before it.

    $$y_i = g\bigl(x_i; \; u_i(x_1, \dots, x_{i - 1}, c)\bigr), \qquad
    \log \Bigl|\det \frac{\partial y}{\partial x}\Bigr| = \sum_i \log g'(x_i; u_i)$$

    A masked network gives all $u_i$ in one pass, so densities are cheap; the way back takes a pass for each entry. At
    first every $u$ is 0, and $g$ its plainest form.

    Reference:
        Papamakarios, Pavlakou and Murray, *Masked AutoregressiveTransform Flow for Density Estimation*, 2017.

    Args:
        d: The number of entries.
        transform: $g$, such as `AffineTransform()` or `RationalQuadraticSpline()`.
        order: The place of each entry in the order; as they come unless given.
        hidden: The widths of the hidden layers of the network.
        condition: The size of a condition $c$; 0 without one.
        encoding: What the network is shown of each entry; the entry alone unless given.
        activation: What comes after each hidden layer.
        dropout: The share of units that is dropped in training.

    Examples:
        >>> block = AutoregressiveTransform(3, transform=AffineTransform())
        >>> y, log_det = block(torch.ones(2, 3))
        >>> y.shape, log_det
        (torch.Size([2, 3]), tensor([0., 0.], grad_fn=<SumBackward1>))
    """

    def __init__(
        self,
        d: int,
        *,
        transform: UnivariateTransform,
        order: Sequence[int] | None = None,
        hidden: Sequence[int] = (64, 64),
        condition: int = 0,
        encoding: FeatureEncoding | None = None,
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


def _autoregressive_claims() -> Iterator[Claim]:
    """The laws that autoregressive flows obey."""
    affine = AutoregressiveTransform(3, transform=AffineTransform(bound=1.0), hidden=[5])
    spline = AutoregressiveTransform(
        3,
        transform=RationalQuadraticSpline(bins=2, box=2.0),
        order=[2, 0, 1],
        hidden=[5],
        encoding=FourierEncoding(count=1),
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


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _encodings_claims()
    yield from _masked_claims()
    yield from _autoregressive_claims()
