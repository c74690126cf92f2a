"""Whether a step of an optimizer costs more than PyTorch's own: as PyTorch builds it by default, and fused.

Run `python benchmarks/optimizers.py`, or name some of the rows: `python benchmarks/optimizers.py adamw`. The small
model has 10 tensors and about 4,000 parameters, where a step is mostly Python; the larger one has 1.5 million. Ours and
the peer run in turn on copies of the same parameters and gradients, in float32, on one thread, and what counts is
processor time. The ratio is the median over the rounds, its spread the middle half of them; below 1 means faster than
PyTorch's. The peer of `muon` always computes in bfloat16, which most processors do slowly; the second row does so too.
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
    """Dense layers, with gradients."""
    model = nn.Sequential(*(nn.Linear(*size) for size in pairwise(sizes)))
    for p in model.parameters():
        p.grad = torch.randn_like(p)
    return model


SMALL, LARGE = (16, 32, 32, 32, 32, 10), (512, 1024, 896, 64)

PAIRS: dict[str, tuple[Build, Build]] = {
    "gradient_descent": (partial(optim.gradient_descent, lr=1e-3), partial(torch.optim.SGD, lr=1e-3)),
    "sgd": (partial(optim.sgd, lr=1e-3, decay=0.1), partial(torch.optim.SGD, lr=1e-3, momentum=0.9, weight_decay=0.1)),
    "heavy_ball": (partial(optim.heavy_ball, lr=1e-3), partial(torch.optim.SGD, lr=1e-3, momentum=0.9)),
    "momentum": (
        partial(optim.momentum, lr=1e-3),
        partial(torch.optim.SGD, lr=1e-3, momentum=0.9, dampening=0.9),
    ),
    "nesterov": (
        partial(optim.nesterov, lr=1e-3),
        partial(torch.optim.SGD, lr=1e-3, momentum=0.9, nesterov=True),
    ),
    "adam": (optim.adam, torch.optim.Adam),
    "adamw": (optim.adamw, torch.optim.AdamW),
}


def measured(name: str, sizes: tuple[int, ...], ours: Build, peer: Build, *, matrices: bool = False) -> None:
    """Prints a row."""
    works = []
    for build in (ours, peer):
        model = deepcopy(MODELS[sizes])
        for p, q in zip(model.parameters(), MODELS[sizes].parameters(), strict=True):
            p.grad = q.grad
        works.append(build([p for p in model.parameters() if p.ndim == 2 or not matrices]).step)
    print(row(name, compare(*works, rounds=ROUNDS)), flush=True)


MODELS = {sizes: network(*sizes) for sizes in (SMALL, LARGE)}


def main() -> None:
    torch.set_num_threads(1)
    wanted = sys.argv[1:]
    print(f"torch {torch.__version__}, one thread, {ROUNDS} rounds\n")
    print("| a step | ours, ms | PyTorch's, ms | ratio | middle half |\n|---|---|---|---|---|")
    for size, sizes in (("small", SMALL), ("1.5 M", LARGE)):
        for name, (ours, peer) in PAIRS.items():
            if not wanted or any(word in name for word in wanted):
                measured(f"{name}, {size}, default", sizes, ours, peer)
                measured(f"{name}, {size}, fused", sizes, ours, partial(peer, fused=True))
    if not wanted or "muon" in wanted:
        same = partial(optim.muon, precision=torch.bfloat16)
        measured("muon, small", SMALL, optim.muon, torch.optim.Muon, matrices=True)
        measured("muon in bfloat16, small", SMALL, same, torch.optim.Muon, matrices=True)


if __name__ == "__main__":
    main()
