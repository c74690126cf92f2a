"""Kills trainings at chosen events, resumes them, and compares them with an uninterrupted run.

    python -m tests.faults.killing FOLDER --points 20

Every training is a fork of one process without threads, so that it costs milliseconds.
"""

import argparse
import io
import json
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from contextlib import redirect_stdout
from pathlib import Path

import torch

from lawful.training import Run, train
from tests.faults import trainings
from tests.faults.trainings import GANRecipe

CALLS = ("fsync", "rename", "replace", "mkdir", "unlink", "rmdir", "truncate")
"""System calls that write."""


class Killer:
    """Counts the events of this process, and kills it at one of them.

    As in a power failure, data that was not flushed to disk may be lost. `fsync` is therefore only recorded.
    """

    def __init__(self, folder, *, at=None, power=False, record=None):
        self.folder, self.at, self.power = folder, at, power
        self.count, self.record = 0, record
        self.on_disk = {}
        for path in folder.rglob("*") if folder.is_dir() else ():
            self.on_disk[path.stat().st_ino] = path.stat().st_size
        for name in CALLS:
            self.watch(os, name)
        for name in ("generator_loss", "discriminator_loss", "add_noise", "clip_weights"):
            self.watch(trainings, name)
        self.watch(trainings.ShuffledBatches, "batch")
        self.watch(trainings.TinyGAN, "forward")
        self.watch(GANRecipe, "finish")
        self.watch(GANRecipe, "setup")

    def watch(self, owner, name):
        true = getattr(owner, name)

        def counted(*args, **kwargs):
            self.event(name)
            if name != "fsync":
                return true(*args, **kwargs)
            status = os.fstat(args[0])
            self.on_disk[status.st_ino] = status.st_size

        setattr(owner, name, counted)

    def event(self, name):
        if self.record is not None:
            os.write(self.record, f"{name}\n".encode())
        if self.count == self.at:
            self.end()
        self.count += 1

    def end(self):
        draw = random.Random(self.at)
        for path in self.folder.rglob("*") if self.power else ():
            if path.is_file():
                size = path.stat().st_size
                with path.open("rb+") as file:
                    file.truncate(draw.randint(min(self.on_disk.get(path.stat().st_ino, 0), size), size))
        os.kill(os.getpid(), signal.SIGKILL)


def child(body):
    """Runs a function in a silent fork; returns its process id."""
    if pid := os.fork():
        return pid
    try:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        body()
    except BaseException as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        os._exit(1)
    os._exit(0)


def session(folder, recipe, **options):
    """Starts or resumes the training in `folder`."""
    begun = folder / "gan-001"

    def body():
        Killer(folder, **options)
        train(recipe, output_dir=folder, resume=Run(begun) if (begun / "config.json").is_file() else None)

    if begun.is_dir() and not (begun / "config.json").is_file():
        os.rename(begun, folder / f"never-{time.monotonic_ns()}")
    return child(body)


def outcome(folder):
    """Returns everything in a run except times."""
    run = Run(folder / "gan-001")
    states = {}
    for step in run.checkpoints.steps():
        place = run.checkpoints.path(step)
        metadata = json.loads((place / "metadata.json").read_text())
        del metadata["progress"]["seconds"]
        states[step] = (metadata, {path.name: path.read_bytes() for path in place.glob("*.safetensors")})
    metrics = [{k: v for k, v in line.items() if k != "time"} for line in run.metrics]
    results = {k: v for k, v in run.results.items() if k != "seconds"}
    weights = (run.path / "model.safetensors").read_bytes()
    left = sorted(str(p.relative_to(run.path)) for p in run.path.rglob("*"))
    return {"states": states, "metrics": metrics, "results": results, "weights": weights, "files": left}


def differences(folder, expected):
    got = outcome(folder)
    log = (folder / "gan-001" / "log.txt").read_text(errors="replace")
    found = [f"{name} differ" for name in expected if got[name] != expected[name]]
    return found + [line for line in log.splitlines() if "using the checkpoint before" in line]


def wait(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def run_to_end(folder, recipe):
    """Runs a recipe to its end; returns its outcome and the names of its events."""
    record = folder / "events"
    folder.mkdir(parents=True)
    descriptor = os.open(record, os.O_WRONLY | os.O_CREAT)
    begun = time.monotonic()
    if code := wait(session(folder, recipe, record=descriptor)):
        raise SystemExit(f"the uninterrupted run failed with {code}")
    os.close(descriptor)
    return outcome(folder), record.read_text().split(), time.monotonic() - begun


def random_kills(events, seed):
    """Yields random lists of kills; after each list, a last session runs to the end."""
    draw = random.Random(seed)
    while True:
        n = draw.choice((1, 1, 2, 3))
        yield [(draw.randrange(events if i == 0 else events // 2), draw.random()) for i in range(n)]


def kills_during_a_save(events, *, all_events):
    """Returns one kill for each event, or each kind of event, of the first save that removes an older checkpoint."""
    removed = events.index("rmdir")
    first = max(i for i in range(removed) if events[i] == "clip_weights") + 1
    last = events.index("batch", removed)
    chosen = range(first, last + 1) if all_events else {events[at]: at for at in range(first, last + 1)}.values()
    return [[(at, at % 2)] for at in chosen]


def run_plans(folder, plans, recipes, expected, *, kills=None):
    """Kills and resumes trainings by plans, until there are enough kills; returns a summary."""
    summary = {"kills": 0, "failures": [], "where": Counter()}
    for number, plan in enumerate(plans):
        which = number % len(recipes)
        outcome, events, seconds = expected[which]
        place = folder / f"killed{number}"
        place.mkdir(parents=True)
        for at, kind in plan:
            at, by_clock = at % len(events), 0 < kind < 0.2
            pid = session(place, recipes[which], at=None if by_clock else at, power=kind > 0.6)
            if by_clock:
                time.sleep(seconds * at / len(events))
                os.kill(pid, signal.SIGKILL)
            code = wait(pid)
            if code not in (0, -signal.SIGKILL):
                summary["failures"].append(f"{plan}: a session failed with {code}")
            summary["kills"] += code == -signal.SIGKILL
            summary["where"]["clock" if by_clock else events[at]] += code == -signal.SIGKILL
        if code := wait(session(place, recipes[which])):
            summary["failures"].append(f"{plan}: the last session failed with {code}")
        else:
            summary["failures"] += [f"{plan}: {text}" for text in differences(place, outcome)]
            shutil.rmtree(place)
        if kills is not None and summary["kills"] >= kills:
            break
    return summary


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--points", type=int, default=20, help="number of kills at random events")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--save", choices=("kinds", "all"), help="kill at each kind of event, or each event, of one save"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.folder.mkdir(parents=True, exist_ok=True)
    with redirect_stdout(io.StringIO()):
        train(GANRecipe(steps=5), output_dir=options.folder / "warm")  # imports everything before forking
    recipes = [GANRecipe(), GANRecipe(patience=2)]
    expected = [run_to_end(options.folder / f"uninterrupted{i}", recipe) for i, recipe in enumerate(recipes)]
    events = expected[0][1]
    plans = random_kills(len(events), options.seed)
    summary = {"random": run_plans(options.folder / "random", plans, recipes, expected, kills=options.points)}
    if options.save:
        plans = kills_during_a_save(events, all_events=options.save == "all")
        summary["save"] = run_plans(options.folder / "save", plans, recipes[:1], expected)
    sys.stdout.write(json.dumps(summary) + "\n")


if __name__ == "__main__":
    main()
