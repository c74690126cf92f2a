"""Masked networks: the outputs for an entry see the entries before it, and no others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks.dense import Activation, Dense, name_of
from lawful.blocks.dropout import Dropout
from lawful.blocks.flows.encodings import Encoding, Plain
from lawful.laws import Claim, agreement, batch_independence, causality, shape


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
        encoding: Encoding | None = None,
        activation: Activation = torch.relu,
        dropout: float = 0.0,
    ) -> None:
        if sorted(order) != list(range(len(order))) or not order:
            raise ValueError(f"an order of the places 0 to d - 1 was wanted: got {list(order)}")
        super().__init__()
        self.encoding: Encoding = Plain() if encoding is None else encoding
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


def claims() -> Iterator[Claim]:
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
