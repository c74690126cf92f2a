"""Prints the table of `docs/pytorch-laws.md`: which laws PyTorch's layers satisfy.

python docs/pytorch_laws.py > docs/pytorch-laws.md
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import lawful
from lawful.laws import (
    Law,
    batch_independence,
    boundedness,
    causality,
    convexity,
    determinism,
    finiteness,
    gradient,
    homogeneity,
    idempotence,
    linearity,
    lipschitz,
    monotonicity,
    no_mutation,
    oddness,
    permutation_equivariance,
    second_order_gradient,
    shift_invariance,
    train_eval_round_trip,
    translation_equivariance,
)

CASES = 60
HELD, REFUTED, NOT_APPLICABLE = "✓", "✗", "–"


class SelfAttention(nn.Module):
    """`nn.MultiheadAttention` with one input for queries, keys and values."""

    def __init__(self, *, causal: bool = False) -> None:
        super().__init__()
        self.attention, self.causal = nn.MultiheadAttention(4, 2, batch_first=True), causal

    def forward(self, x: Tensor) -> Tensor:
        future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1) if self.causal else None
        return self.attention(x, x, x, attn_mask=future, need_weights=False)[0]


@dataclass(frozen=True)
class Row:
    """A layer or function, and its inputs.

    Args:
        name: Name in the table.
        build: Returns the module or function.
        inputs: Description of the input.
        time: Axis of the positions.
        features: Axis of the features.
    """

    name: str
    build: Callable[[], Callable[..., Any]]
    inputs: Any
    time: int = 1
    features: int = 2

    def target(self) -> Callable[..., Any]:
        """Builds the module, with normally distributed parameters."""
        torch.manual_seed(0)
        module = self.build()
        if isinstance(module, nn.Module):
            for parameter in module.parameters():
                nn.init.normal_(parameter)
        return module


def _sequences(*rows: tuple[str, Callable[[], Callable[..., Any]]]) -> Iterator[Row]:
    for name, build in rows:
        yield Row(name, build, lawful.shape("b t 4"))


def _channels(*rows: tuple[str, Callable[[], Callable[..., Any]]], inputs: str = "b 4 t") -> Iterator[Row]:
    for name, build in rows:
        yield Row(name, build, lawful.shape(inputs), time=2, features=1)


def _function(f: Callable[..., Tensor], **options: Any) -> Callable[[], Callable[..., Tensor]]:
    return lambda: lambda x: f(x, **options)


def _attend(x: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(x, x, x)


ROWS: Sequence[Row] = (
    *_sequences(
        ("nn.Linear", lambda: nn.Linear(4, 4)),
        ("nn.Linear(bias=False)", lambda: nn.Linear(4, 4, bias=False)),
    ),
    Row("nn.Embedding", lambda: nn.Embedding(5, 4), lawful.tokens("b t", vocab_size=5)),
    *_channels(
        ("nn.Conv1d(padding=1)", lambda: nn.Conv1d(4, 4, 3, padding=1)),
        ("nn.Conv1d(circular)", lambda: nn.Conv1d(4, 4, 3, padding=1, padding_mode="circular")),
        ("nn.Conv1d(left-padded)", lambda: nn.Sequential(nn.ConstantPad1d((2, 0), 0.0), nn.Conv1d(4, 4, 3))),
        ("nn.ConvTranspose1d(padding=1)", lambda: nn.ConvTranspose1d(4, 4, 3, padding=1)),
        ("nn.MaxPool1d(3, 1, 1)", lambda: nn.MaxPool1d(3, 1, 1)),
        ("nn.AvgPool1d(3, 1, 1)", lambda: nn.AvgPool1d(3, 1, 1)),
        ("nn.AdaptiveAvgPool1d(1)", lambda: nn.AdaptiveAvgPool1d(1)),
    ),
    *_sequences(
        ("nn.RNN", lambda: nn.RNN(4, 4, batch_first=True)),
        ("nn.GRU", lambda: nn.GRU(4, 4, batch_first=True)),
        ("nn.GRU(bidirectional)", lambda: nn.GRU(4, 2, batch_first=True, bidirectional=True)),
        ("nn.LSTM", lambda: nn.LSTM(4, 4, batch_first=True)),
        ("F.scaled_dot_product_attention", lambda: _attend),
        ("nn.MultiheadAttention", SelfAttention),
        ("nn.MultiheadAttention(causal mask)", partial(SelfAttention, causal=True)),
        ("nn.TransformerEncoderLayer", lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)),
        ("nn.LayerNorm", lambda: nn.LayerNorm(4)),
        ("nn.RMSNorm", lambda: nn.RMSNorm(4)),
    ),
    *_channels(("nn.BatchNorm1d, training mode", lambda: nn.BatchNorm1d(4)), inputs="b:2..4 4 t"),
    *_channels(
        ("nn.BatchNorm1d, eval mode", lambda: nn.BatchNorm1d(4).eval()),
        ("nn.GroupNorm", lambda: nn.GroupNorm(2, 4)),
    ),
    *_channels(("nn.InstanceNorm1d", lambda: nn.InstanceNorm1d(4)), inputs="b 4 t:2..8"),
    *_channels(("nn.LocalResponseNorm", lambda: nn.LocalResponseNorm(3, alpha=1.0))),
    *_channels(("nn.CrossMapLRN2d", lambda: nn.CrossMapLRN2d(3, alpha=1.0)), inputs="b 4 t 1"),
    *_channels(("nn.PReLU", lambda: nn.PReLU(4))),
    *_sequences(
        ("F.normalize", _function(F.normalize, dim=-1)),
        ("nn.Dropout", lambda: nn.Dropout(0.5)),
        ("nn.ReLU", nn.ReLU),
        ("nn.ReLU(inplace=True)", lambda: nn.ReLU(inplace=True)),
        ("nn.LeakyReLU", nn.LeakyReLU),
        ("nn.RReLU", nn.RReLU),
        ("nn.ELU", nn.ELU),
        ("nn.GELU", nn.GELU),
        ("nn.SiLU", nn.SiLU),
        ("nn.Softplus(threshold=50)", lambda: nn.Softplus(threshold=50)),
        ("nn.Sigmoid", nn.Sigmoid),
        ("nn.Hardsigmoid", nn.Hardsigmoid),
        ("nn.Tanh", nn.Tanh),
        ("nn.Hardtanh", nn.Hardtanh),
        ("nn.Softmax", lambda: nn.Softmax(-1)),
        ("nn.LogSoftmax", lambda: nn.LogSoftmax(-1)),
        ("nn.GLU", nn.GLU),
        ("torch.cumsum", _function(torch.cumsum, dim=1)),
        ("torch.sort", lambda: lambda x: x.sort(1).values),
    ),
)

COLUMNS: dict[str, Callable[[Row], Law]] = {
    "batch": lambda row: batch_independence(),
    "permute": lambda row: permutation_equivariance(axis=row.time),
    "causal": lambda row: causality(time=row.time),
    "translate": lambda row: translation_equivariance(axis=row.time),
    "linear": lambda row: linearity(),
    "homog.": lambda row: homogeneity(),
    "odd": lambda row: oddness(),
    "shift": lambda row: shift_invariance(axis=row.features),
    "monot.": lambda row: monotonicity(),
    "convex": lambda row: convexity(),
    "1-Lip.": lambda row: lipschitz(),
    "[-1, 1]": lambda row: boundedness(low=-1.0, high=1.0),
    "idemp.": lambda row: idempotence(),
    "gradient": lambda row: gradient(),
    "2nd order": lambda row: second_order_gradient(),
    "finite": lambda row: finiteness(),
    "determ.": lambda row: determinism(),
    "modes": lambda row: train_eval_round_trip(),
    "no mut.": lambda row: no_mutation(),
}


@dataclass(frozen=True)
class Cell:
    """One entry of the table: its symbol and, where the law is refuted, the counterexample in one line."""

    symbol: str
    note: str = ""


def judge(row: Row, column: str) -> Cell:
    """Checks one law of one layer."""
    law, target = COLUMNS[column](row), row.target()
    (verdict,) = lawful.check(target, law, inputs=row.inputs, cases=CASES).verdicts
    if verdict.status == "error":
        raise RuntimeError(f"{row.name}, {law}: {verdict.reason}")
    if verdict.status == "refuted":
        return Cell(REFUTED, _note(verdict.counterexample))
    return Cell(HELD if verdict.status == "held" else NOT_APPLICABLE)


def _note(found: Any) -> str:
    parts = [_tensor(value) for value in (*found.inputs, *found.drawn)]
    parts += [f"{name} = {_number(value)}" for name, value in found.choices.items()]
    index = str(list(found.index)) if found.index else ""
    if found.kind == "not finite":
        sides = "the output or its gradient is not finite"
    elif found.left is None:
        sides = found.kind
    elif _number(found.left) != _number(found.right):
        relation = {"exceeds": ">", "changed": "→"}.get(found.kind, "≠")
        sides = f"{_number(found.left)} {relation} {_number(found.right)}" + (f" at {index}" if index else "")
    else:
        sides = f"both sides are about {_number(found.left)} and differ by about {abs(found.left - found.right):.0e}"
    return "; ".join([*parts, sides])


def _number(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    if not math.isfinite(value):
        return str(value)
    return f"{value + 0.0:.2g}" if abs(value) > 1e-12 else "0"


def _tensor(value: Any) -> str:
    """Writes a tensor of the counterexample: its shape, and the entries that are not 0 or that changed."""
    shape = "×".join(map(str, value.shape)) or "scalar"
    if value.values is None:
        return f"{value.name} of shape {shape}"
    entries = list(_entries(value.values))
    changed = value.name.endswith("'")
    unequal = [(i, x) for i, x in entries if not _is_nan(x)] if changed else [(i, x) for i, x in entries if x != 0]
    listing = ", ".join(f"{list(i) if i else ''} {_number(x)}".strip() for i, x in unequal[:4])
    listing += ", …" if len(unequal) > 4 else ""
    if changed:
        return f"{value.name} = {value.name[:-1]}" + (f" except {listing}" if unequal else "")
    return f"{value.name} ({shape}) = 0" + (f" except {listing}" if unequal else "")


def _is_nan(x: Any) -> bool:
    return x == "nan" or (isinstance(x, float) and math.isnan(x))


def _entries(values: Any, index: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Any]]:
    if isinstance(values, list):
        for n, part in enumerate(values):
            yield from _entries(part, (*index, n))
    else:
        yield index, values


HEAD = """# The laws of PyTorch's layers

✓ means that the law held in every case that was tried, ✗ that it was refuted (the link leads to the smallest
counterexample), – that it does not apply or that PyTorch cannot compute it. All parameters are drawn from a normal
distribution, so that ✓ is a property of the architecture and not of its initialization. `permute`, `causal` and
`translate` act on positions, `shift` on features, and `translate` is a circular shift.

`python docs/pytorch_laws.py > docs/pytorch-laws.md` writes this page; `lawful check lawful.pytorch` checks the full
list of claims.
"""


def page() -> str:
    """Returns the page."""
    example = ROWS[0]
    laws = [f"| {column} | `{law(example).name}` | {law(example).formula} |" for column, law in COLUMNS.items()]
    table, notes = [], list[str]()
    for row in ROWS:
        cells = []
        for column in COLUMNS:
            cell = judge(row, column)
            if cell.note:
                notes.append(f'<a id="c{len(notes) + 1}"></a>{len(notes) + 1}. `{row.name}`, {column}: {cell.note}.')
            cells.append(f"[{cell.symbol}](#c{len(notes)})" if cell.note else cell.symbol)
        table.append(f"| `{row.name}` | {' | '.join(cells)} |")
        sys.stderr.write(f"{table[-1]}\n")
    lines = [HEAD, "## Laws", "", "| column | law | formula |", "|---|---|---|", *laws, "", "## Table", ""]
    lines += [f"| | {' | '.join(COLUMNS)} |", "|---|" + ":-:|" * len(COLUMNS), *table, "", "## Counterexamples", ""]
    return "\n".join([*lines, *(f"{note}\n" for note in notes)])


if __name__ == "__main__":
    sys.stdout.write(page())
