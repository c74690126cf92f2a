"""The gated recurrent unit."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.blocks.recurrent.shapes import check_sizes, check_state, check_step, check_steps
from lawful.laws import Claim, agreement, causality, recurrence, shape


class GRU(nn.GRU):
    r"""Updates a hidden state with each input, and lets gates say how much of it.

    $$\begin{aligned}
    r_t &= \sigma(W_r x_t + b_r + U_r h_{t-1} + b'_r) \\
    z_t &= \sigma(W_z x_t + b_z + U_z h_{t-1} + b'_z) \\
    n_t &= \tanh(W_n x_t + b_n + r_t \odot (U_n h_{t-1} + b'_n)) \\
    h_t &= (1 - z_t) \odot n_t + z_t \odot h_{t-1}, \qquad h_0 = 0
    \end{aligned}$$

    The output at each time is the state. The parameters are those of PyTorch's `GRU`: `weight_ih_l0` is $W_r$, $W_z$
    and $W_n$ one below the other, and `bias_ih_l0` $b$, `weight_hh_l0` $U$ and `bias_hh_l0` $b'$ likewise.

    Reference:
        Cho et al., *Learning Phrase Representations using RNN Encoder-Decoder for Statistical Machine Translation*,
        2014; with $r_t$ outside the product, as PyTorch has it.

    Args:
        d: The size of $x_t$.
        hidden: The size of $h_t$.

    Examples:
        >>> y, state = GRU(3, 4)(torch.zeros(2, 5, 3))
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
        h = torch.gru_cell(x, h, self.weight_ih_l0, self.weight_hh_l0, self.bias_ih_l0, self.bias_hh_l0)
        return h, h


def claims() -> Iterator[Claim]:
    """The laws that the gated recurrent unit obeys."""
    layer = GRU(3, 4)

    def equation(x: Tensor) -> Tensor:
        h, states = x.new_zeros(len(x), 4), []
        for now in x.unbind(1):
            a = (now @ layer.weight_ih_l0.T + layer.bias_ih_l0).chunk(3, dim=-1)
            b = (h @ layer.weight_hh_l0.T + layer.bias_hh_l0).chunk(3, dim=-1)
            r, z = torch.sigmoid(a[0] + b[0]), torch.sigmoid(a[1] + b[1])
            h = (1 - z) * torch.tanh(a[2] + r * b[2]) + z * h
            states.append(h)
        return torch.stack(states, dim=1)

    for law in (agreement(other=equation), recurrence(), causality()):
        yield Claim(law, layer, shape("b t:1..5 3"))

    def in_two(x: Tensor) -> Tensor:
        first, state = layer(x[:, :2])
        return torch.cat([first, layer(x[:, 2:], state)[0]], dim=1)

    yield Claim(agreement(other=equation), in_two, shape("b t:3..5 3"), name=f"{type(layer).__name__}, in two parts")
