"""Time of an optimizer step against `torch.optim`: with its default options, and fused.

Run `python benchmarks/optimizers.py`, or name some rows: `python benchmarks/optimizers.py adamw`. The small model has
10 tensors and about 4,000 parameters, so that a step is mostly Python; the larger one has 1.5 million parameters. Ours
and the peer alternate on copies of the same parameters and gradients, in float32, on one thread, measured in CPU time.
The ratio is the median over the rounds, with the interquartile range; below 1, ours is faster. `torch.optim.Muon`
computes in bfloat16, which CPUs without bfloat16 instructions emulate slowly: the row for matrices of size 384 needs
the argument `muon-384`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from itertools import pairwise

import torch
from measure import compare, row
from torch import nn

from lawful import optim

ROUNDS = 21
Build = Callable[..., torch.optim.Optimizer]


def network(*sizes: int) -> nn.Sequential:
    """Returns linear layers with random gradients."""
    model = nn.Sequential(*(nn.Linear(*size) for size in pairwise(sizes)))
    for p in model.parameters():
        p.grad = torch.randn_like(p)
    return model


SMALL, LARGE = (16, 32, 32, 32, 32, 10), (512, 1024, 896, 64)

PAIRS: dict[str, tuple[Build, Build]] = {
    "sgd": (partial(optim.sgd, lr=1e-3), partial(torch.optim.SGD, lr=1e-3)),
    "sgd with momentum": (
        partial(optim.sgd, lr=1e-3, momentum=0.9, weight_decay=0.1),
        partial(torch.optim.SGD, lr=1e-3, momentum=0.9, weight_decay=0.1),
    ),
    "sgd with Nesterov momentum": (
        partial(optim.sgd, lr=1e-3, momentum=0.9, nesterov=True),
        partial(torch.optim.SGD, lr=1e-3, momentum=0.9, nesterov=True),
    ),
    "adam": (optim.adam, torch.optim.Adam),
    "adamw": (optim.adamw, torch.optim.AdamW),
}


def print_row(name: str, sizes: tuple[int, ...], ours: Build, peer: Build, *, matrices: bool = False) -> None:
    """Measures ours and the peer, and prints a row."""
    steps = []
    for build in (ours, peer):
        model = deepcopy(MODELS[sizes])
        for p, q in zip(model.parameters(), MODELS[sizes].parameters(), strict=True):
            p.grad = q.grad
        steps.append(build([p for p in model.parameters() if p.ndim == 2 or not matrices]).step)
    print(row(name, compare(*steps, rounds=ROUNDS)), flush=True)


TRANSFORMER = (384, 1536, 384, 384, 384)
MODELS = {sizes: network(*sizes) for sizes in (SMALL, LARGE, TRANSFORMER)}


def main() -> None:
    torch.set_num_threads(1)
    rows = sys.argv[1:]
    print(f"torch {torch.__version__}, one thread, {ROUNDS} rounds\n")
    print("| a step | ours, ms | PyTorch's, ms | ratio | interquartile range |\n|---|---|---|---|---|")
    for size, sizes in (("small", SMALL), ("1.5 M", LARGE)):
        for name, (ours, peer) in PAIRS.items():
            if not rows or any(word in name for word in rows):
                print_row(f"{name}, {size}, default", sizes, ours, peer)
                print_row(f"{name}, {size}, fused", sizes, ours, partial(peer, fused=True))
    if not rows or "muon" in rows:
        print_row("Muon, small", SMALL, optim.Muon, torch.optim.Muon, matrices=True)
        bfloat16 = partial(optim.Muon, dtype=torch.bfloat16)
        print_row("Muon in bfloat16, small", SMALL, bfloat16, torch.optim.Muon, matrices=True)
    if "muon-384" in rows:
        print_row("Muon, 384", TRANSFORMER, optim.Muon, torch.optim.Muon, matrices=True)


if __name__ == "__main__":
    main()
