"""The feed-forward block: two dense layers that act on each position alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.blocks.linear import Activation, Dense, name_of
from lawful.functions.activations import swiglu
from lawful.laws import Claim, agreement, hidden_unit_permutation, hidden_unit_rescaling, locality, shape

Gate = Callable[[Tensor, Tensor], Tensor]


class FeedForward(nn.Module):
    r"""Compares each vector with many features, and weighs what these found.

    $$y = W_2 \, \sigma(W_1 x + b_1) + b_2$$

    The rows of $W_1$, in the dense layer `up`, are the features; $W_2$ is in `down`. Positions do not meet. The hidden
    units may be renumbered, and with a ReLU rescaled one by one, without changing the map.

    Args:
        d: The width of $x$ and $y$.
        hidden: The number of features; $4 d$ unless given.
        activation: $\sigma$.
        bias: Whether there are $b_1$ and $b_2$.

    Examples:
        >>> block = FeedForward(8)
        >>> block(torch.zeros(2, 3, 8)).shape, block.up.weight.shape
        (torch.Size([2, 3, 8]), torch.Size([32, 8]))
    """

    def __init__(
        self, d: int, *, hidden: int | None = None, activation: Activation = torch.relu, bias: bool = True
    ) -> None:
        super().__init__()
        hidden = 4 * d if hidden is None else hidden
        self.up = Dense(d, hidden, activation=activation, bias=bias)
        self.down = Dense(hidden, d, bias=bias)

    def forward(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        """Maps each vector along the last axis."""
        return self.down(self.up(x))


class GatedFeedForward(nn.Module):
    r"""Multiplies, feature by feature, a linear map of each vector by a gate that it opens itself.

    $$y = W_2 \, \bigl((W x + b) \odot \sigma(V x + c)\bigr) + b_2$$

    $W$ is in the dense layer `up`, $V$ in `gate` and $W_2$ in `down`. With three matrices instead of two, a hidden size
    of $\tfrac{8}{3} d$ has as many parameters as $4 d$ has without a gate.

    Reference:
        Shazeer, *GLU Variants Improve Transformer*, 2020.

    Args:
        d: The width of $x$ and $y$.
        hidden: The number of features; $\tfrac{8}{3} d$, rounded, unless given.
        gating: What is made of $W x + b$ and $V x + c$, such as `glu`, `geglu` or `swiglu`.
        bias: Whether there are $b$, $c$ and $b_2$.

    Examples:
        >>> GatedFeedForward(6)(torch.zeros(2, 3, 6)).shape
        torch.Size([2, 3, 6])
    """

    def __init__(self, d: int, *, hidden: int | None = None, gating: Gate = swiglu, bias: bool = False) -> None:
        super().__init__()
        hidden = round(8 * d / 3) if hidden is None else hidden
        self.up, self.gate = (Dense(d, hidden, bias=bias) for _ in range(2))
        self.down = Dense(hidden, d, bias=bias)
        self.gating = gating

    def forward(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        """Maps each vector along the last axis."""
        return self.down(self.gating(self.up(x), self.gate(x)))

    def extra_repr(self) -> str:
        return f"gating={name_of(self.gating)}"


def claims() -> Iterator[Claim]:
    """The laws that feed-forward blocks obey."""
    block, gated = FeedForward(3, hidden=5), GatedFeedForward(3, hidden=5, bias=True)

    def equation(x: Tensor) -> Tensor:
        features = (x @ block.up.weight.T + block.up.bias).clamp_min(0)
        return features @ block.down.weight.T + block.down.bias

    def gated_equation(x: Tensor) -> Tensor:
        gate = x @ gated.gate.weight.T + gated.gate.bias
        opened = (x @ gated.up.weight.T + gated.up.bias) * gate / (1 + torch.exp(-gate))
        return opened @ gated.down.weight.T + gated.down.bias

    up, gate = ("up.weight", "up.bias"), ("gate.weight", "gate.bias")
    for law in (
        agreement(other=equation),
        locality(radius=0, axis=1),
        hidden_unit_permutation(into=up, out_of="down.weight"),
        hidden_unit_rescaling(into=up, out_of="down.weight"),
    ):
        yield Claim(law, block, shape("b t 3"))
    yield Claim(agreement(other=gated_equation), gated, shape("b 3"))
    yield Claim(hidden_unit_permutation(into=(*up, *gate), out_of="down.weight"), gated, shape("b 3"))

    def counted(x: Tensor) -> Tensor:
        d = x.shape[-1]
        blocks = FeedForward(d), FeedForward(d, bias=False), GatedFeedForward(d), GatedFeedForward(d, bias=True)
        return x.new_tensor([sum(p.numel() for p in block.parameters()) for block in blocks])

    def expected(x: Tensor) -> Tensor:
        d, h = x.shape[-1], round(8 * x.shape[-1] / 3)
        return x.new_tensor([8 * d * d + 5 * d, 8 * d * d, 3 * h * d, 3 * h * d + 2 * h + d])

    yield Claim(agreement(other=expected), counted, shape("d:1..9"), name="number of parameters")
