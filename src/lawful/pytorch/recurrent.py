r"""Recurrent layers: Elman network, gated recurrent unit, long short-term memory.

$$\begin{aligned}
\text{RNN:} \quad h_t &= \tanh(W x_t + b + U h_{t-1} + c) \\
\text{GRU:} \quad r, z &= \sigma(W x_t + b + U h_{t-1} + c), \\
n &= \tanh(W_n x_t + b_n + r \odot (U_n h_{t-1} + c_n)), \quad h_t = (1 - z) \odot n + z \odot h_{t-1} \\
\text{LSTM:} \quad i, f, o &= \sigma(W x_t + b + U h_{t-1} + c), \\
g &= \tanh(W_g x_t + b_g + U_g h_{t-1} + c_g), \\
c_t &= f \odot c_{t-1} + i \odot g, \quad h_t = o \odot \tanh c_t
\end{aligned}$$

All three are causal, bounded by 1 when they start from the zero state, and can be run step by step from the state that
they return. A packed batch of sequences of different lengths gives the same outputs as the single sequences.

Reference:
    Elman, *Finding Structure in Time*, 1990. Cho et al., *Learning Phrase Representations using RNN Encoder-Decoder*,
    2014. Hochreiter and Schmidhuber, *Long Short-Term Memory*, 1997.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from lawful.laws import (
    Claim,
    agreement,
    batch_independence,
    boundedness,
    causality,
    gradient,
    homogeneity,
    mask,
    ragged_batches,
    recurrence,
    shape,
    state_dict_round_trip,
)
from lawful.pytorch._rows import Row, claims_from


def claims() -> Iterator[Claim]:
    """Laws of PyTorch's recurrent layers."""
    yield from claims_from([*_layers(), *_variants()])


def _elman_step(layer: nn.RNNBase, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    w, u, b, c = layer.parameters()
    h = torch.tanh(x @ w.T + b + h @ u.T + c)
    return h, h


def _gru_step(layer: nn.RNNBase, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    w, u, b, c = layer.parameters()
    from_input, from_state = (x @ w.T + b).chunk(3, dim=-1), (h @ u.T + c).chunk(3, dim=-1)
    r, z = (torch.sigmoid(from_input[k] + from_state[k]) for k in (0, 1))
    h = (1 - z) * torch.tanh(from_input[2] + r * from_state[2]) + z * h
    return h, h


def _lstm_step(layer: nn.RNNBase, x: Tensor, state: tuple[Tensor, Tensor] | Tensor) -> tuple[Tensor, Any]:
    h, cell = state if isinstance(state, tuple) else (state, state)
    w, u, b, c = layer.parameters()
    i, f, g, o = (x @ w.T + b + h @ u.T + c).chunk(4, dim=-1)
    cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
    h = torch.sigmoid(o) * torch.tanh(cell)
    return h, (h, cell)


def _layers() -> Iterator[Row]:
    for kind, step in ((nn.RNN, _elman_step), (nn.GRU, _gru_step), (nn.LSTM, _lstm_step)):
        layer, name = kind(3, 4, batch_first=True), f"nn.{kind.__name__}"

        def equation(x: Tensor, layer: nn.RNNBase = layer, step: Callable[..., Any] = step) -> Tensor:
            state, outputs = x.new_zeros(len(x), 4), list[Tensor]()
            for x_t in x.unbind(1):
                output, state = step(layer, x_t, state)
                outputs.append(output)
            return torch.stack(outputs, dim=1)

        def one_step(x: Tensor, state: Any, layer: nn.RNNBase = layer) -> tuple[Tensor, Any]:
            y, state = layer(x[:, None], state)
            return y[:, 0], state

        def in_two_parts(x: Tensor, layer: nn.RNNBase = layer) -> Tensor:
            first, state = layer(x[:, :2])
            return torch.cat([first, layer(x[:, 2:], state)[0]], dim=1)

        def run_packed(x: Tensor, valid: Tensor, layer: nn.RNNBase = layer) -> Tensor:
            sequences = pack_padded_sequence(x, valid.sum(1).clamp(min=1), batch_first=True, enforce_sorted=False)
            return pad_packed_sequence(layer(sequences)[0], batch_first=True, total_length=x.shape[1])[0]

        laws = (
            agreement(other=equation),
            recurrence(step=one_step),
            causality(),
            batch_independence(),
            boundedness(low=-1.0, high=1.0),
            gradient(),
            state_dict_round_trip(),
        )
        yield name, layer, shape("b t:1..5 3"), laws
        yield f"{name}, in two parts", in_two_parts, shape("b t:3..5 3"), (agreement(other=equation),)
        yield f"{name}, packed", run_packed, (shape("b t 3"), mask("b t")), (ragged_batches(),)


def _variants() -> Iterator[Row]:
    relu = nn.RNN(3, 4, nonlinearity="relu", bias=False, batch_first=True)
    yield "nn.RNN(nonlinearity='relu', bias=False)", relu, shape("b t:1..5 3"), (homogeneity(),)
    deep = nn.LSTM(3, 4, num_layers=2, dropout=0.3, batch_first=True)
    yield "nn.LSTM(num_layers=2, dropout=0.3)", deep, shape("b t 3"), (causality(),)
    bidirectional = nn.GRU(3, 4, bidirectional=True, batch_first=True)

    def backward_half(x: Tensor) -> Tensor:
        return bidirectional(x.flip(1))[0].flip(1)[..., 4:]

    yield (
        "nn.GRU(bidirectional=True), backward half of the reversed input",
        backward_half,
        shape("b t 3"),
        (causality(),),
    )
    for cell, states in ((nn.RNNCell(3, 4), 1), (nn.GRUCell(3, 4), 1), (nn.LSTMCell(3, 4), 2)):

        def call(x: Tensor, *state: Tensor, cell: Callable[..., Any] = cell) -> Any:
            return cell(x, state if len(state) == 2 else state[0])

        inputs, every = (shape("b 3"), *[shape("b 4")] * states), tuple(range(1 + states))
        yield f"nn.{type(cell).__name__}", call, inputs, (batch_independence(input=every), gradient())
