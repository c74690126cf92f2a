"""How many threads to compute with: the number that is fastest here and now."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from statistics import median

import torch

ENOUGH = 2.0
"""Seconds that measuring takes at most, but for the steps that are begun."""


def candidates() -> list[int]:
    """1, 2, 4 and so on up to what the machine has, or the environment allows."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    allowed = os.environ.get("OMP_NUM_THREADS", "")
    most = min(cores, int(allowed)) if allowed.isdigit() and int(allowed) else cores
    return sorted({min(2**k, most) for k in range(most.bit_length() + 1)})


def fastest(step: Callable[[], object], *, among: list[int], steps: int = 5) -> tuple[int, dict[int, float]]:
    """Returns the number of threads with which a step is fastest, and the seconds of a step with each.

    More threads are taken only if they save a tenth.

    Args:
        step: What is timed; it leaves no trace.
        among: The numbers to try.
        steps: How often each is timed, after one that is not.
    """
    took: dict[int, float] = {}
    begun = time.perf_counter()
    for threads in among:
        torch.set_num_threads(threads)
        times = []
        for _ in range(1 + steps):
            start = time.perf_counter()
            step()
            times.append(time.perf_counter() - start)
            if time.perf_counter() - begun > ENOUGH and len(times) > 1:
                break
        took[threads] = median(times[1:])
    best = among[0]
    for threads in among:
        if took[threads] < 0.9 * took[best]:
            best = threads
    torch.set_num_threads(best)
    return best, took
