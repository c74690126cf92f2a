"""Theorems that compute: exact networks, certified approximation, linear regions, certified bounds.

Run `OMP_NUM_THREADS=1 python benchmarks/theory.py`, or name some tables, such as `piecewise`. Each table is a
file in `theory_parts`, which describes it and names its peers. One thread.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import torch

PARTS = sorted(path.stem for path in (Path(__file__).parent / "theory_parts").glob("*.py"))


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    for unknown in set(names) - set(PARTS):
        sys.exit(f"unknown table {unknown!r}, expected one of {', '.join(PARTS) or 'none'}")
    for name in names or PARTS:
        print(f"\n{name}\n", flush=True)
        torch.manual_seed(0)
        import_module(f"theory_parts.{name}").run()


if __name__ == "__main__":
    main(sys.argv[1:])
