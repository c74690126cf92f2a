"""Generative models beside their peers: samplers, likelihoods, densities, digits, attacks.

Run `python benchmarks/generative.py`, or name some of the parts: `python benchmarks/generative.py samplers vae`. One
thread. Each part is a file of `generative_parts`, and prints a table that names the peer, its version and the seeds.
"""

from __future__ import annotations

import sys
from importlib import import_module

import torch

PARTS = ("samplers", "likelihood", "densities", "digits", "frechet", "vae", "whitening", "attacks")


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    for unknown in set(names) - set(PARTS):
        sys.exit(f"there is no part {unknown!r}: the parts are {', '.join(PARTS)}")
    for name in names or PARTS:
        import_module(f"generative_parts.{name}").run()


if __name__ == "__main__":
    main(sys.argv[1:])
