"""Time of `lawful discover` on a few layers, and of `lawful check` on the whole library.

Run `python benchmarks/discovering.py`. There is no peer. Discovery runs on one thread, the check on all cores.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
from torch import nn

import lawful

ROUNDS = 3


def layers() -> dict[str, tuple[nn.Module, str]]:
    """Layers and their inputs."""
    return {
        "ReLU": (nn.ReLU(), "b 4"),
        "Linear": (nn.Linear(16, 16), "b t 16"),
        "LayerNorm": (nn.LayerNorm(16), "b t 16"),
        "Conv1d": (nn.Conv1d(4, 4, 3, padding=1), "b 4 t"),
        "TransformerEncoderLayer": (nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), "b t 16"),
    }


def main() -> None:
    torch.manual_seed(0)
    print(f"torch {torch.__version__}, one thread, {ROUNDS} rounds\n")
    print("| layer | held | refuted | not applicable | s, median | s, range |\n|---|---|---|---|---|---|")
    for name, (layer, axes) in layers().items():
        found = [lawful.discover(layer, inputs=lawful.shape(axes)) for _ in range(ROUNDS)]
        taken = [each.seconds for each in found]
        groups = (found[0].held, found[0].refuted, found[0].not_applicable)
        counts = [sum(1 + len(row.implied) for row in rows) for rows in groups]
        shown = " | ".join(map(str, counts))
        print(
            f"| {name} | {shown} | {statistics.median(taken):.1f} | {min(taken):.1f} to {max(taken):.1f} |", flush=True
        )
    taken = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        done = subprocess.run([Path(sys.executable).with_name("lawful"), "check"], capture_output=True, text=True)
        taken.append(time.perf_counter() - start)
    claims = done.stdout.splitlines()[-1].partition(" in ")[0]
    print(f"\n`lawful check`: {claims} in {statistics.median(taken):.1f} s ({min(taken):.1f} to {max(taken):.1f})")


if __name__ == "__main__":
    main()
