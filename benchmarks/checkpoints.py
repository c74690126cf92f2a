"""Cost per step of checkpoints, written by a thread or in the step, and of the checksums of the metrics.

Run `OMP_NUM_THREADS=1 python benchmarks/checkpoints.py`; `--folder FOLDER` for another disk. The training is that of
`benchmarks/loop.py`, which logs every step. Each round trains in every way, in alternating order; a ratio compares the
wall time, or the processor time, of a step with that of the same round without checkpoints.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

import torch
from loop import Task, ours

from lawful.training import storage
from lawful.training.trainer import _CheckpointWriter

NEVER = 10**9
Way = Callable[[Task], tuple[float, float]]


@contextmanager
def in_the_step() -> Iterator[None]:
    """Waits for each checkpoint before the next step."""
    save = _CheckpointWriter.save

    def save_and_wait(writer: _CheckpointWriter, *args: Any, **options: Any) -> None:
        save(writer, *args, **options)
        writer.join()

    with mock.patch.object(_CheckpointWriter, "save", save_and_wait):
        yield


def line_without_checksum(line: Mapping[str, Any], crc: int) -> tuple[str, int]:
    """Returns a line of the metrics as JSON."""
    return json.dumps(line) + "\n", crc


def waiting(task: Task, every: int) -> tuple[float, float]:
    """Trains with checkpoints that are written in the step."""
    with in_the_step():
        return ours(task, checkpoint_every=every)


def without_checksums(task: Task) -> tuple[float, float]:
    """Trains without checkpoints and without checksums of the metrics."""
    with mock.patch.object(storage, "_add_checksum", line_without_checksum):
        return ours(task, checkpoint_every=NEVER)


def table(title: str, task: Task, intervals: tuple[int, ...], rounds: int) -> None:
    """Measures every way in turn, and prints its ratio to a training without checkpoints."""
    base = "no checkpoints"
    ways: dict[str, Way] = {base: partial(ours, checkpoint_every=NEVER)}
    ways["no checkpoints, no checksums"] = without_checksums
    for every in intervals:
        ways[f"every {every} steps, by a thread"] = partial(ours, checkpoint_every=every)
        ways[f"every {every} steps, in the step"] = partial(waiting, every=every)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for number in range(rounds):
        for name in list(ways) if number % 2 else reversed(ways):
            found[name].append(ways[name](task))
    print(f"\n{title}; {rounds} rounds of {task.steps} steps\n")
    print("| checkpoints | wall, ms a step | ratio | middle half | processor, ms a step | ratio | middle half |")
    print("|---|---|---|---|---|---|---|")
    for name, taken in found.items():
        cells = [name]
        for kind in (1, 0):
            ratios = [a[kind] / b[kind] for a, b in zip(taken, found[base], strict=True)]
            low, _, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else (ratios[0],) * 3
            median = 1e3 * statistics.median(times[kind] for times in taken)
            cells += [f"{median:.3f}", f"{statistics.median(ratios):.3f}", f"{low:.3f} to {high:.3f}"]
        print(f"| {' | '.join(cells)} |")


def main() -> None:
    """Measures a tiny and a larger network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", help="folder of the runs; by default a temporary one")
    options = parser.parse_args()
    tempfile.tempdir = options.folder
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, one thread")
    table("Tiny MLP with 3,500 parameters", Task(width=32, steps=1021), (100, 10), options.rounds)
    table("MLP with 1.1 million parameters", Task(width=1024, steps=221), (100, 20), options.rounds)


if __name__ == "__main__":
    main()
