"""Generative models against peers: samplers, likelihoods, densities, digits, attacks.

Run `python benchmarks/generative.py`, or some of its parts: `python benchmarks/generative.py samplers vae`. One thread.
Each part is a file in `generative_parts`, and prints a table with the peer, its version and the seeds.
"""

from __future__ import annotations

import sys
from importlib import import_module

import torch

PARTS = ("samplers", "likelihood", "scales", "densities", "digits", "frechet", "vae", "whitening", "attacks")


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    for unknown in set(names) - set(PARTS):
        sys.exit(f"unknown part {unknown!r}, expected one of {', '.join(PARTS)}")
    for name in names or PARTS:
        import_module(f"generative_parts.{name}").run()


if __name__ == "__main__":
    main(sys.argv[1:])
