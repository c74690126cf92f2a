"""Time of a check: 100 cases of a law on an attention layer of width 64, and shrinking of a hidden leak.

Run `python benchmarks/checking.py`. The peer is the forward passes alone: two for each case and precision, on the same
shapes, without search, comparison or reset. Both run in turn on one thread; the table shows medians, ranges and ratios.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import lawful
from lawful.laws import (
    Law,
    batch_independence,
    causality,
    determinism,
    gradient,
    no_mutation,
    permutation_equivariance,
    statelessness,
)

WIDTH, CASES, ROUNDS = 64, 100, 7


class Attention(nn.Module):
    """Causal self-attention with four heads."""

    def __init__(self, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = self.qkv(x).reshape(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, d))


class LeaksAtEight(Attention):
    """Leaks the whole sequence, but only at lengths divisible by 8."""

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        return y + x.mean(1, keepdim=True) if x.shape[1] % 8 == 0 else y


class Plain(Attention):
    """Attention without mask or positions, which is permutation-equivariant."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return self.out(F.scaled_dot_product_attention(q, k, v))


def plain_calls(layer: nn.Module) -> None:
    """Runs as many forward passes as a law with two calls, in both precisions, on similar shapes."""
    generator = torch.Generator().manual_seed(0)
    for dtype in (torch.float64, torch.float32):
        layer.to(dtype)
        for n in range(CASES):
            length = (4, 17, 80)[n % 3] * (n % 7 + 1) // 7 + 1
            x = torch.randn(n % 4 + 1, length, WIDTH, generator=generator).to(dtype)
            layer(x)
            layer(x)


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def row(name: str, layer: nn.Module, law: Law, status: str) -> str:
    """Measures a check and its peer alternately."""
    inputs = lawful.shape(f"b t {WIDTH}")
    verdicts = []
    ours, peers = [], []
    for _ in range(ROUNDS):
        ours.append(seconds(lambda: verdicts.append(lawful.check(layer, law, inputs=inputs, cases=CASES).verdicts[0])))
        peers.append(seconds(lambda: plain_calls(Attention())))
    if any(v.status != status for v in verdicts):
        raise SystemExit(f"{name}: expected {status}, got\n{verdicts[0]}")
    found = verdicts[0].counterexample
    size = f"{found.inputs[0].shape[0]} x {found.inputs[0].shape[1]}" if found else "-"
    middle, peer = statistics.median(ours), statistics.median(peers)
    return (
        f"| {name} | {status} | {size} | {middle:.2f} | {min(ours):.2f} to {max(ours):.2f} "
        f"| {peer:.3f} | {middle / peer:.1f} |"
    )


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"torch {torch.__version__}, one thread, {ROUNDS} rounds, {CASES} cases, width {WIDTH}")
    print("| law | status | batch x length | s, median | s, range | forward passes, s | ratio |")
    print("|---|---|---|---|---|---|---|")
    layer = Attention()
    for law in (causality(time=1), batch_independence(), determinism(), statelessness(), no_mutation(), gradient()):
        print(row(law.name, layer, law, "held"), flush=True)
    print(row("permutation_equivariance", Plain(), permutation_equivariance(), "held"), flush=True)
    print(row("causality, leak at lengths divisible by 8", LeaksAtEight(), causality(time=1), "refuted"), flush=True)


if __name__ == "__main__":
    main()
