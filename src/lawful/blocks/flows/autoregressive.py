"""Autoregressive transforms: entries are mapped with parameters that a masked network computes from earlier ones."""

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

from lawful.blocks.flows.transforms import AffineTransform, UnivariateTransform
from lawful.blocks.linear import Activation
from lawful.laws import (
    Claim,
    batch_independence,
    causality,
    inverse_log_determinant,
    invertibility,
    log_determinant,
    shape,
)


@runtime_checkable
class FeatureEncoding(Protocol):
    """Encodes each entry as features, the input of the network of a coupling or autoregressive transform."""

    @property
    def num_features(self) -> int:
        """Number of features per entry."""
        ...

    def __call__(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n e"]:
        """Encodes entries; the features of an entry are consecutive."""
        ...


@dataclass(frozen=True)
class IdentityEncoding:
    """Uses each entry itself as its only feature.

    Examples:
        >>> IdentityEncoding()(torch.ones(1, 2))
        tensor([[1., 1.]])
    """

    num_features = 1

    def __call__(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Returns the entries."""
        return x


@dataclass(frozen=True, kw_only=True)
class FourierEncoding:
    r"""Adds sines and cosines of each entry as features.

    $$x \mapsto \bigl(x, \; \sin \tfrac{\pi k x}{2 b}, \; \cos \tfrac{\pi k x}{2 b}\bigr), \qquad k = 1, \dots, K$$

    Reference:
        Tancik and others, *Fourier Features Let Networks Learn High Frequency Functions in Low Dimensional Domains*,
        2020.

    Args:
        num_frequencies: $K$.
        bound: $b$; distinct values in $[-b, b]$ have distinct features.

    Examples:
        >>> FourierEncoding(num_frequencies=2)(torch.zeros(1, 3)).shape
        torch.Size([1, 15])
    """

    num_frequencies: int = 8
    bound: float = 3.0

    def __post_init__(self) -> None:
        if self.num_frequencies < 1 or not 0 < self.bound < math.inf:
            got = f"num_frequencies={self.num_frequencies}, bound={self.bound}"
            raise ValueError(f"num_frequencies must be at least 1 and bound positive: got {got}")

    @property
    def num_features(self) -> int:
        """Number of features per entry."""
        return 2 * self.num_frequencies + 1

    def __call__(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n e"]:
        """Encodes entries."""
        each = x.unsqueeze(-1)
        frequencies = torch.arange(1, self.num_frequencies + 1, dtype=x.dtype, device=x.device)
        angles = each * frequencies.mul_(math.pi / (2 * self.bound))
        return torch.cat([each, angles.sin(), angles.cos()], -1).flatten(-2)


@dataclass(frozen=True)
class LevelEncoding:
    r"""Encodes the quantization level of each entry, without the noise that dequantization added.

    $$x \mapsto (c, \; [c \text{ is the first}], \; [c \text{ is the last}]), \qquad
    c = \text{the center of the cell of } x \text{ among } K \text{ equal cells of } [-1, 1]$$

    Args:
        num_levels: $K$.

    Examples:
        >>> LevelEncoding(2)(torch.tensor([[-0.9, 0.1]]))
        tensor([[-0.5000,  1.0000,  0.0000,  0.5000,  0.0000,  1.0000]])
    """

    num_levels: int
    num_features = 3

    def __post_init__(self) -> None:
        if self.num_levels < 2:
            raise ValueError(f"num_levels must be at least 2, got {self.num_levels}")

    def __call__(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n e"]:
        """Encodes entries."""
        k = self.num_levels
        level = ((x + 1) * (k / 2)).floor().clamp(0, k - 1)
        parts = (level * (2 / k) + (1 / k - 1), (level == 0).to(x.dtype), (level == k - 1).to(x.dtype))
        return torch.stack(parts, -1).flatten(-2)


class MaskedLinear(nn.Linear):
    r"""Linear layer with some weights fixed to 0.

    $$y = (M \odot W) x + b, \qquad M_{ij} \in \{0, 1\}$$

    The initial variance of a weight is 1 / (number of visible inputs of its output).

    Args:
        mask: $M$, True where an output sees an input.

    Examples:
        >>> layer = MaskedLinear(torch.tensor([[True, False]]))
        >>> x = torch.tensor([[1.0, 2.0], [1.0, 3.0]])
        >>> bool(layer(x)[0] == layer(x)[1])
        True
    """

    mask: Tensor

    def __init__(self, mask: Bool[Tensor, "o i"]) -> None:
        super().__init__(mask.shape[1], mask.shape[0])
        self.register_buffer("mask", mask, persistent=False)
        with torch.no_grad():
            visible = mask.sum(1, keepdim=True).clamp_min(1)
            self.weight.normal_().mul_(mask / visible.sqrt())
            self.bias.zero_()

    # pyrefly: ignore [bad-override-param-name]
    def forward(self, x: Float[Tensor, "*batch i"]) -> Float[Tensor, "*batch o"]:
        """Maps the last axis."""
        return F.linear(x, self.weight * self.mask, self.bias)


class MaskedNetwork(nn.Module):
    r"""Masked network (MADE): computes outputs for each entry from the entries before it in an order.

    $$u_i = f_i\bigl(x_{j} : \text{order}_j < \text{order}_i; \; c\bigr)$$

    Each hidden unit has a rank in the order; it sees entries up to that rank, and later outputs see it. One pass
    computes all outputs. All outputs see the condition $c$, and skip connections lead from the encoded entries to
    the outputs. Outputs are initialized to 0.

    Reference:
        Germain, Gregor, Murray and Larochelle, *MADE: Masked Autoencoder for Distribution Estimation*, 2015.

    Args:
        order: Rank of each entry, from 0.
        num_outputs: Number of outputs per entry.
        hidden_dims: Widths of the hidden layers.
        condition_dim: Size of $c$; 0 for no condition.
        encoding: Encoding of the entries. Defaults to `IdentityEncoding()`.
        activation: Activation of the hidden layers.
        dropout: Dropout probability of hidden units and of the inputs of the skip connection.

    Examples:
        >>> network = MaskedNetwork([0, 1, 2], num_outputs=5, hidden_dims=[16])
        >>> network(torch.zeros(4, 3)).shape
        torch.Size([4, 3, 5])
    """

    def __init__(
        self,
        order: Sequence[int],
        *,
        num_outputs: int,
        hidden_dims: Sequence[int] = (64, 64),
        condition_dim: int = 0,
        encoding: FeatureEncoding | None = None,
        activation: Activation = torch.relu,
        dropout: float = 0.0,
    ) -> None:
        if sorted(order) != list(range(len(order))) or not order:
            raise ValueError(f"order must be a permutation of 0 to dim - 1, got {list(order)}")
        super().__init__()
        self.encoding: FeatureEncoding = IdentityEncoding() if encoding is None else encoding
        self.num_outputs, self.condition_dim, self.activation = num_outputs, condition_dim, activation
        ranks, first, dim = torch.tensor(order), -1 if condition_dim else 0, len(order)
        inputs = torch.cat([ranks.repeat_interleave(self.encoding.num_features), torch.full((condition_dim,), -1)])
        units = [first + torch.arange(n) * max(1, dim - 1 - first) // n for n in hidden_dims]
        outputs = ranks.repeat_interleave(num_outputs)[:, None]
        masks = [after[:, None] >= before for before, after in zip([inputs, *units], units, strict=False)]
        self.hidden = nn.ModuleList(map(MaskedLinear, masks))
        self.out = MaskedLinear(outputs > (units[-1] if units else inputs))
        self.skip = MaskedLinear(outputs > inputs) if units else None
        self.dropout = nn.Dropout(dropout)
        for parameter in chain(self.out.parameters(), self.skip.parameters() if self.skip else ()):
            nn.init.zeros_(parameter)

    def forward(self, x: Float[Tensor, "n d"], condition: Float[Tensor, "n c"] | None = None) -> Float[Tensor, "n d p"]:
        """Computes the outputs of all entries."""
        inputs = append_condition(self.encoding(x), condition, self.condition_dim)
        h = inputs
        for layer in self.hidden:
            h = self.dropout(self.activation(layer(h)))
        u = self.out(h)
        if self.skip is not None:
            u = u + self.skip(self.dropout(inputs))
        return u.unflatten(-1, (-1, self.num_outputs))

    def extra_repr(self) -> str:
        return f"num_outputs={self.num_outputs}, condition_dim={self.condition_dim}"


def append_condition(
    x: Float[Tensor, "n d"], condition: Float[Tensor, "n c"] | None, condition_dim: int
) -> Float[Tensor, "n e"]:
    """Concatenates a condition of the given size to the input of a network."""
    size = 0 if condition is None else condition.shape[-1]
    if size != condition_dim:
        raise ValueError(f"expected a condition of size {condition_dim}, got {size}")
    return x if condition is None else torch.cat([x, condition], -1)


class AutoregressiveTransform(nn.Module):
    r"""Autoregressive transform: maps each entry by an increasing function that depends on the entries before it.

    $$y_i = g\bigl(x_i; \; u_i(x_1, \dots, x_{i - 1}, c)\bigr), \qquad
    \log \Bigl|\det \frac{\partial y}{\partial x}\Bigr| = \sum_i \log g'(x_i; u_i)$$

    A masked network computes all $u_i$ in one pass; the inverse takes one pass per entry. $u$ is initialized to 0.

    Reference:
        Papamakarios, Pavlakou and Murray, *Masked Autoregressive Flow for Density Estimation*, 2017.

    Args:
        dim: Number of entries.
        transform: $g$, such as `AffineTransform()` or `RationalQuadraticSpline()`.
        order: Rank of each entry. Defaults to their order.
        hidden_dims: Widths of the hidden layers of the network.
        condition_dim: Size of the condition $c$; 0 for none.
        encoding: Encoding of the entries. Defaults to `IdentityEncoding()`.
        activation: Activation of the hidden layers.
        dropout: Dropout probability of the hidden units.

    Examples:
        >>> block = AutoregressiveTransform(3, transform=AffineTransform())
        >>> y, log_det = block(torch.ones(2, 3))
        >>> y.shape, log_det
        (torch.Size([2, 3]), tensor([0., 0.], grad_fn=<SumBackward1>))
    """

    def __init__(
        self,
        dim: int,
        *,
        transform: UnivariateTransform,
        order: Sequence[int] | None = None,
        hidden_dims: Sequence[int] = (64, 64),
        condition_dim: int = 0,
        encoding: FeatureEncoding | None = None,
        activation: Activation = torch.relu,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.transform = transform
        self.order = tuple(range(dim)) if order is None else tuple(order)
        if len(self.order) != dim:
            raise ValueError(f"order must have {dim} entries, got {len(self.order)}")
        self.network = MaskedNetwork(
            self.order,
            num_outputs=transform.num_parameters,
            hidden_dims=hidden_dims,
            condition_dim=condition_dim,
            encoding=encoding,
            activation=activation,
            dropout=dropout,
        )

    def forward(
        self, x: Float[Tensor, "n d"], condition: Float[Tensor, "n c"] | None = None
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Maps vectors, and returns the log-determinants."""
        y, log_derivative = self.transform.forward(x, self.network(x, condition))
        return y, log_derivative.sum(-1)

    def inverse(
        self, y: Float[Tensor, "n d"], condition: Float[Tensor, "n c"] | None = None
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Maps vectors back entry by entry, and returns the log-determinants of the inverse."""
        entries, log_det = list(torch.zeros_like(y).unbind(-1)), y.new_zeros(y.shape[0])
        for i in sorted(range(y.shape[-1]), key=self.order.__getitem__):
            parameters = self.network(torch.stack(entries, -1), condition)[:, i]
            entries[i], log_derivative = self.transform.inverse(y[:, i], parameters)
            log_det = log_det + log_derivative
        return torch.stack(entries, -1), log_det

    def extra_repr(self) -> str:
        return f"{len(self.order)}, transform={self.transform}"


def claims() -> Iterator[Claim]:
    """Laws of masked networks and autoregressive transforms."""
    network = MaskedNetwork([0, 1, 2, 3], num_outputs=2, hidden_dims=[7, 9])

    def next_outputs(x: Tensor) -> Tensor:
        """Shifts the outputs by one entry: the output of the next entry may depend on this one."""
        return network(x).roll(-1, 1)

    yield Claim(causality(time=1), network, shape("n 4"))
    yield Claim(causality(time=1), next_outputs, shape("n 4"), name="MaskedNetwork, strictly causal")
    yield Claim(batch_independence(), network, shape("n 4"))
    transform = AutoregressiveTransform(3, transform=AffineTransform(bound=1.0), hidden_dims=[5], order=[2, 0, 1])
    for law in (log_determinant(), invertibility(), inverse_log_determinant()):
        yield Claim(replace(law, cases=20), transform, shape("n 3"))
