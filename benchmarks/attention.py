"""Time and memory of attention: a layer against its peers, a window against a full mask, growth with length.

Run `python benchmarks/attention.py`, or name some tables: `python benchmarks/attention.py window`. Everything runs in
float32 on one thread, forward and backward. `layer` compares `MultiHeadAttention` with `torch.nn.MultiheadAttention`
and x-transformers' `Attention` of the same sizes, without bias, in turn in one process; the outputs with the same
weights are checked to be equal. In the other tables each row differentiates the sum of the output with respect to
queries, keys and values, in processes of its own: one for the processor time (the best of some runs), one for the
memory, which is the growth of the peak resident size (`VmHWM` of Linux, reset before the pass) without the inputs;
freed tensors are returned to the system at once (`MALLOC_MMAP_THRESHOLD_`).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from measure import compare, row
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from lawful.blocks import MultiHeadAttention
from lawful.functions.attention import (
    CAUSAL,
    ChunkedAttention,
    LinearAttention,
    Mask,
    fused_attention,
    reference_attention,
    sliding_window_attention,
)

HEADS, SIZE = 4, 32
WINDOW = Mask(causal=True, window=128)


def full_mask_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """PyTorch's attention with the window as a full mask."""
    n = q.shape[-2]
    visible = torch.ones(n, n, dtype=torch.bool).tril_().triu_(1 - WINDOW.window)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=visible)


def padded_mask(q: Tensor) -> Mask:
    return CAUSAL & Mask(padding=torch.ones(q.shape[0], q.shape[-2], dtype=torch.bool))


KERNELS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "PyTorch, full mask": full_mask_attention,
    "sliding_window_attention": lambda q, k, v: sliding_window_attention(q, k, v, mask=WINDOW),
    "reference_attention": lambda q, k, v: reference_attention(q, k, v, mask=padded_mask(q)),
    "fused_attention": lambda q, k, v: fused_attention(q, k, v, mask=padded_mask(q)),
    "ChunkedAttention": lambda q, k, v: ChunkedAttention()(q, k, v, mask=padded_mask(q)),
    "LinearAttention": lambda q, k, v: LinearAttention()(q, k, v, mask=padded_mask(q)),
}


def peak_memory(*, reset: bool = False) -> float:
    """Returns the peak resident size of this process in MB, since the last reset."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 2**10


def measure_here(name: str, n: int, runs: int) -> tuple[float, float]:
    """Returns the seconds of a forward and backward pass and its memory in MB, measured in this process."""
    torch.manual_seed(0)

    def work(n: int) -> float:
        leaves = [torch.randn(1, HEADS, n, SIZE, requires_grad=True) for _ in range(3)]
        start = time.process_time()
        torch.autograd.grad(KERNELS[name](*leaves).sum(), leaves)
        return time.process_time() - start

    work(256)
    checkpoint(torch.neg, torch.ones(1, requires_grad=True), use_reentrant=False)  # imports what it needs
    before = peak_memory(reset=True)
    seconds = min(work(n) for _ in range(runs))
    inputs = 3 * HEADS * SIZE * n * 4 / 2**20
    return seconds, peak_memory() - before - inputs


def measure_in_processes(name: str, n: int, runs: int = 1) -> tuple[float, float]:
    """Measures time and memory in one process each."""

    def run(runs: int, **settings: str) -> tuple[float, float]:
        command = [sys.executable, __file__, "--one", json.dumps([name, n, runs])]
        environment = os.environ | settings
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        return tuple(json.loads(done.stdout))

    return run(runs)[0], run(1, MALLOC_MMAP_THRESHOLD_="65536")[1]


LAYERS = ((12, 64, 128, 4), (8, 256, 256, 8), (1, 1024, 256, 8), (4, 128, 768, 12))
"""Batch, length, width, heads."""


def layers(d: int, heads: int, causal: bool, n: int) -> dict[str, tuple[nn.Module, Callable[[Tensor], Tensor]]]:
    """Our layer, PyTorch's and x-transformers', with the same weights."""
    from x_transformers.x_transformers import Attention  # here: importing it would hide the memory of the other tables

    ours = MultiHeadAttention(d, num_heads=heads, bias=False)
    torchs = nn.MultiheadAttention(d, heads, bias=False, batch_first=True)
    theirs = Attention(d, dim_head=d // heads, heads=heads, causal=causal, flash=True)
    weights = [getattr(ours, name).weight.detach() for name in ("query", "key", "value", "out")]
    with torch.no_grad():
        torchs.in_proj_weight.copy_(torch.cat(weights[:3]))
        torchs.out_proj.weight.copy_(weights[3])
        for name, weight in zip(("to_q", "to_k", "to_v", "to_out"), weights, strict=True):
            theirs.get_submodule(name).weight.copy_(weight)
        hidden = nn.Transformer.generate_square_subsequent_mask(n) if causal else None
    return {
        "lawful": (ours, lambda x: ours(x, is_causal=causal)),
        "nn.MultiheadAttention": (
            torchs,
            lambda x: torchs(x, x, x, attn_mask=hidden, is_causal=causal, need_weights=False)[0],
        ),
        "x-transformers": (theirs, theirs),
    }


def layer() -> None:
    print("\nA layer of self-attention: milliseconds, ratio, interquartile range\n")
    print("| batch, n, width, heads, mask, peer | lawful | peer | ratio | interquartile range |\n|---|---|---|---|---|")
    for batch, n, d, heads in LAYERS:
        for causal in (False, True):
            torch.manual_seed(0)
            found = layers(d, heads, causal, n)
            x = torch.randn(batch, n, d, requires_grad=True)
            expected = found["lawful"][1](x)

            def work(name: str) -> None:
                module, forward = found[name]
                torch.autograd.grad(forward(x).sum(), [x, *module.parameters()])

            for name in list(found)[1:]:
                torch.testing.assert_close(found[name][1](x), expected, rtol=1e-3, atol=1e-5)
                sizes = f"{batch}, {n}, {d}, {heads}, {'causal' if causal else 'none'}, {name}"
                print(row(sizes, compare(lambda: work("lawful"), lambda: work(name), rounds=15)), flush=True)


def window() -> None:
    print(f"\nA causal window of {WINDOW.window}: seconds and MB, and the factor saved against a full mask\n")
    print("| n | full mask, s | MB | window, s | MB | speedup | memory factor |\n|---|---|---|---|---|---|---|")
    for n in (1024, 2048, 4096, 8192):
        (s0, m0), (s1, m1) = (
            measure_in_processes("PyTorch, full mask", n),
            measure_in_processes("sliding_window_attention", n, 3),
        )
        print(f"| {n} | {s0:.3f} | {m0:.1f} | {s1:.3f} | {m1:.1f} | {s0 / s1:.1f} | {m0 / m1:.1f} |", flush=True)


def curve(title: str, names: list[str], lengths: tuple[int, ...]) -> None:
    print(f"\n{title}\n")
    print("| n |" + "".join(f" {name}, s | MB |" for name in names) + "\n|---|" + "---|---|" * len(names))
    for n in lengths:
        found = [measure_in_processes(name, n) for name in names]
        print(f"| {n} |" + "".join(f" {s:.3f} | {m:.1f} |" for s, m in found), flush=True)


TABLES: dict[str, Callable[[], None]] = {
    "layer": layer,
    "window": window,
    "chunked": lambda: curve(
        "Exact attention under a causal and padded mask",
        ["reference_attention", "fused_attention", "ChunkedAttention"],
        (1024, 2048, 4096, 8192),
    ),
    "linear": lambda: curve(
        "Linear attention, causal and padded", ["LinearAttention"], (2048, 4096, 8192, 16384, 32768)
    ),
}


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    if names[:1] == ["--one"]:
        print(json.dumps(measure_here(*json.loads(names[1]))))
        return
    print(f"torch {torch.__version__}, one thread, forward and backward; kernels have {HEADS} heads of {SIZE}")
    for name, table in TABLES.items():
        if not names or name in names:
            table()


if __name__ == "__main__":
    main(sys.argv[1:])
