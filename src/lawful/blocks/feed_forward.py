"""Feed-forward blocks: two linear layers per position, with an activation or a gate between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.blocks.linear import Activation
from lawful.functions.activations import swiglu
from lawful.laws import Claim, hidden_unit_permutation, hidden_unit_rescaling, locality, shape


class FeedForward(nn.Module):
    r"""Feed-forward block of a transformer, applied to each position.

    $$y = W_2 \, \sigma(W_1 x + b_1) + b_2$$

    $W_1$ is in the linear layer `up`, $W_2$ in `down`. Permuting the hidden units does not change the map; with ReLU,
    neither does rescaling them.

    Args:
        dim: Width of the input and output.
        hidden_dim: Number of hidden units. Defaults to `4 * dim`.
        activation: $\sigma$.
        bias: Whether the linear layers have a bias.

    Examples:
        >>> block = FeedForward(8)
        >>> block(torch.zeros(2, 3, 8)).shape, block.up.weight.shape
        (torch.Size([2, 3, 8]), torch.Size([32, 8]))
    """

    def __init__(
        self, dim: int, *, hidden_dim: int | None = None, activation: Activation = torch.relu, bias: bool = True
    ) -> None:
        super().__init__()
        hidden_dim = 4 * dim if hidden_dim is None else hidden_dim
        self.up = nn.Linear(dim, hidden_dim, bias=bias)
        self.down = nn.Linear(hidden_dim, dim, bias=bias)
        self.activation = activation

    def forward(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        """Maps the last axis."""
        return self.down(self.activation(self.up(x)))

    def extra_repr(self) -> str:
        return "" if isinstance(self.activation, nn.Module) else f"activation={_name(self.activation)}"


class GatedFeedForward(nn.Module):
    r"""Feed-forward block with a gated linear unit, such as SwiGLU.

    $$y = W_2 \, \bigl((W x + b) \odot \sigma(V x + c)\bigr) + b_2$$

    $W$ is in the linear layer `up`, $V$ in `gate` and $W_2$ in `down`. With three matrices instead of two, a hidden
    size of $\tfrac{8}{3} d$ has as many parameters as $4 d$ in `FeedForward`.

    Reference:
        Shazeer, *GLU Variants Improve Transformer*, 2020.

    Args:
        dim: Width of the input and output.
        hidden_dim: Number of hidden units. Defaults to `round(8 * dim / 3)`.
        gating: Function of $W x + b$ and $V x + c$: `glu`, `geglu`, `swiglu`, ...
        bias: Whether the linear layers have a bias.

    Examples:
        >>> GatedFeedForward(6)(torch.zeros(2, 3, 6)).shape
        torch.Size([2, 3, 6])
    """

    def __init__(
        self,
        dim: int,
        *,
        hidden_dim: int | None = None,
        gating: Callable[[Tensor, Tensor], Tensor] = swiglu,
        bias: bool = False,
    ) -> None:
        super().__init__()
        hidden_dim = round(8 * dim / 3) if hidden_dim is None else hidden_dim
        self.up = nn.Linear(dim, hidden_dim, bias=bias)
        self.gate = nn.Linear(dim, hidden_dim, bias=bias)
        self.down = nn.Linear(hidden_dim, dim, bias=bias)
        self.gating = gating

    def forward(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        """Maps the last axis."""
        return self.down(self.gating(self.up(x), self.gate(x)))

    def extra_repr(self) -> str:
        return f"gating={_name(self.gating)}"


def _name(f: object) -> str:
    return getattr(f, "__name__", type(f).__name__)


def claims() -> Iterator[Claim]:
    """Laws of feed-forward blocks."""
    block, gated = FeedForward(3, hidden_dim=5), GatedFeedForward(3, hidden_dim=5, bias=True)
    up, gate = ("up.weight", "up.bias"), ("gate.weight", "gate.bias")
    yield Claim(locality(radius=0, axis=1), block, shape("b t 3"))
    yield Claim(hidden_unit_permutation(into=up, out_of="down.weight"), block, shape("b t 3"))
    yield Claim(hidden_unit_rescaling(into=up, out_of="down.weight"), block, shape("b t 3"))
    yield Claim(hidden_unit_permutation(into=(*up, *gate), out_of="down.weight"), gated, shape("b 3"))
