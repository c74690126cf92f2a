"""The Elman network: the simplest recurrence."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.blocks.recurrent.shapes import check_sizes, check_state, check_step, check_steps
from lawful.laws import Claim, agreement, boundedness, causality, recurrence, shape


class Elman(nn.RNN):
    r"""Updates a hidden state with each input, by an affine map of both and a hyperbolic tangent.

    $$h_t = \tanh(W x_t + b + U h_{t-1} + b'), \qquad h_0 = 0$$

    The output at each time is the state. The parameters `weight_ih_l0` $W$, `bias_ih_l0` $b$, `weight_hh_l0` $U$ and
    `bias_hh_l0` $b'$ are those of PyTorch's `RNN`.

    Reference:
        Elman, *Finding Structure in Time*, 1990.

    Args:
        d: The size of $x_t$.
        hidden: The size of $h_t$.

    Examples:
        >>> y, state = Elman(3, 4)(torch.zeros(2, 5, 3))
        >>> y.shape, state.shape
        (torch.Size([2, 5, 4]), torch.Size([2, 4]))
    """

    weight_ih_l0: Tensor
    weight_hh_l0: Tensor
    bias_ih_l0: Tensor
    bias_hh_l0: Tensor

    def __init__(self, d: int, hidden: int) -> None:
        check_sizes(d, hidden)
        super().__init__(d, hidden, batch_first=True)

    def forward(  # pyrefly: ignore [bad-override]
        self, x: Float[Tensor, "b t d"], state: Float[Tensor, "b hidden"] | None = None
    ) -> tuple[Float[Tensor, "b t hidden"], Float[Tensor, "b hidden"]]:
        """Runs over a sequence; returns the state at each time, and the last one."""
        check_steps(x, self.input_size)
        check_state(state, len(x), self.hidden_size)
        y, last = super().forward(x, None if state is None else state[None])
        return y, last[0]

    def step(
        self, x: Float[Tensor, "b d"], state: Float[Tensor, "b hidden"] | None = None
    ) -> tuple[Float[Tensor, "b hidden"], Float[Tensor, "b hidden"]]:
        """Takes one step; returns the output and the state, which are the same."""
        check_step(x, state, self.input_size, self.hidden_size)
        h = x.new_zeros(len(x), self.hidden_size) if state is None else state
        h = torch.rnn_tanh_cell(x, h, self.weight_ih_l0, self.weight_hh_l0, self.bias_ih_l0, self.bias_hh_l0)
        return h, h


def claims() -> Iterator[Claim]:
    """The laws that the Elman network obeys."""
    layer = Elman(3, 4)

    def equation(x: Tensor) -> Tensor:
        h, states = x.new_zeros(len(x), 4), []
        for now in x.unbind(1):
            into = now @ layer.weight_ih_l0.T + layer.bias_ih_l0
            h = torch.tanh(into + h @ layer.weight_hh_l0.T + layer.bias_hh_l0)
            states.append(h)
        return torch.stack(states, dim=1)

    for law in (agreement(other=equation), recurrence(), causality(), boundedness(low=-1.0, high=1.0)):
        yield Claim(law, layer, shape("b t:1..5 3"))

    def in_two(x: Tensor) -> Tensor:
        first, state = layer(x[:, :2])
        return torch.cat([first, layer(x[:, 2:], state)[0]], dim=1)

    yield Claim(agreement(other=equation), in_two, shape("b t:3..5 3"), name=f"{type(layer).__name__}, in two parts")
