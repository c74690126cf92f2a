"""What recurrent layers ask of their sizes and inputs.

The Elman network: the simplest recurrence.
The gated recurrent unit.
The long short-term memory.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.laws import Claim, agreement, boundedness, causality, recurrence, shape


def check_sizes(d: int, hidden: int) -> None:
    """Refuses sizes below 1."""
    if min(d, hidden) < 1:
        raise ValueError(f"d and hidden are at least 1: got d={d}, hidden={hidden}")


def check_step(x: Tensor, state: Tensor | None, d: int, hidden: int) -> None:
    """Refuses what is no batch of vectors of size d, or no state of them."""
    if x.dim() != 2 or x.shape[1] != d:
        raise ValueError(f"vectors of shape (b, {d}) were wanted: got shape {tuple(x.shape)}")
    check_state(state, len(x), hidden)


def check_state(state: Tensor | None, b: int, hidden: int) -> None:
    """Refuses what is neither None nor a state of a batch of b."""
    if state is not None and state.shape != (b, hidden):
        raise ValueError(f"a state of shape {(b, hidden)} was wanted: got shape {tuple(state.shape)}")


def check_steps(x: Tensor, d: int) -> None:
    """Refuses what is no batch of sequences of vectors of size d, or has no time in it."""
    if x.dim() != 3 or x.shape[-1] != d or x.shape[1] == 0:
        raise ValueError(f"sequences of shape (b, t, {d}) with t at least 1 were wanted: got shape {tuple(x.shape)}")


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


def _elman_claims() -> Iterator[Claim]:
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


def _gru_claims() -> Iterator[Claim]:
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


def _lstm_claims() -> Iterator[Claim]:
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


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _elman_claims()
    yield from _gru_claims()
    yield from _lstm_claims()
