"""The long short-term memory."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.blocks.recurrent.shapes import check_sizes, check_state, check_step, check_steps
from lawful.laws import Claim, agreement, causality, recurrence, shape

State = tuple[Float[Tensor, "b hidden"], Float[Tensor, "b hidden"]]


class LSTM(nn.LSTM):
    r"""Keeps a cell that gates write to, forget from and read.

    $$\begin{aligned}
    (i_t, f_t, g_t, o_t) &= (\sigma, \sigma, \tanh, \sigma)(W x_t + b + U h_{t-1} + b') \\
    c_t &= f_t \odot c_{t-1} + i_t \odot g_t, \qquad c_0 = 0 \\
    h_t &= o_t \odot \tanh(c_t), \qquad h_0 = 0
    \end{aligned}$$

    The output at each time is $h_t$, and the state is $h_t$ with the cell $c_t$. The parameters are those of PyTorch's
    `LSTM`: `weight_ih_l0` is $W$ for $i$, $f$, $g$ and $o$ one below the other, and `bias_ih_l0` $b$, `weight_hh_l0`
    $U$ and `bias_hh_l0` $b'$ likewise.

    Reference:
        Hochreiter and Schmidhuber, *Long Short-Term Memory*, 1997; the gate that forgets: Gers, Schmidhuber and
        Cummins, *Learning to Forget*, 2000.

    Args:
        d: The size of $x_t$.
        hidden: The size of $h_t$ and $c_t$.

    Examples:
        >>> y, (h, c) = LSTM(3, 4)(torch.zeros(2, 5, 3))
        >>> y.shape, c.shape
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
        self, x: Float[Tensor, "b t d"], state: State | None = None
    ) -> tuple[Float[Tensor, "b t hidden"], State]:
        """Runs over a sequence; returns the output at each time, and the last state."""
        check_steps(x, self.input_size)
        for part in _parts(state):
            check_state(part, len(x), self.hidden_size)
        y, (h, c) = super().forward(x, None if state is None else (state[0][None], state[1][None]))
        return y, (h[0], c[0])

    def step(self, x: Float[Tensor, "b d"], state: State | None = None) -> tuple[Float[Tensor, "b hidden"], State]:
        """Takes one step; returns the output and the state."""
        for part in _parts(state):
            check_step(x, part, self.input_size, self.hidden_size)
        start = state or (x.new_zeros(len(x), self.hidden_size),) * 2
        h, c = torch.lstm_cell(x, start, self.weight_ih_l0, self.weight_hh_l0, self.bias_ih_l0, self.bias_hh_l0)
        return h, (h, c)


def _parts(state: State | None) -> tuple[Tensor | None, ...]:
    """The hidden state and the cell."""
    if state is None:
        return (None,)
    if not isinstance(state, (tuple, list)) or len(state) != 2:
        raise ValueError(f"a state of two, h and c, was wanted: got {type(state).__name__} of {len(state)}")
    return tuple(state)


def claims() -> Iterator[Claim]:
    """The laws that the long short-term memory obeys."""
    layer = LSTM(3, 4)

    def equation(x: Tensor) -> Tensor:
        h, c, outputs = x.new_zeros(len(x), 4), x.new_zeros(len(x), 4), []
        for now in x.unbind(1):
            gates = now @ layer.weight_ih_l0.T + layer.bias_ih_l0 + h @ layer.weight_hh_l0.T + layer.bias_hh_l0
            i, f, g, o = gates.chunk(4, dim=-1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            outputs.append(h)
        return torch.stack(outputs, dim=1)

    for law in (agreement(other=equation), recurrence(), causality()):
        yield Claim(law, layer, shape("b t:1..5 3"))

    def in_two(x: Tensor) -> Tensor:
        first, state = layer(x[:, :2])
        return torch.cat([first, layer(x[:, 2:], state)[0]], dim=1)

    yield Claim(agreement(other=equation), in_two, shape("b t:3..5 3"), name=f"{type(layer).__name__}, in two parts")
