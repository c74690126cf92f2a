"""Kills, I/O errors and power failures at every call that writes, in trainings of every recipe.

    python -m tests.faults.injecting FOLDER --kinds kill error power --cases 1000

Every training is a fork of one process, so that it costs milliseconds. Calls are counted, as in SQLite's tests; a case
fails the call with one number. The training is then resumed and compared with an uninterrupted one, bit for bit.
"""

import argparse
import errno
import io
import json
import os
import random
import shutil
import signal
import stat
import sys
import time
from collections import Counter
from contextlib import redirect_stdout, suppress
from pathlib import Path

import torch

from lawful.training import Checkpoints, Run, TrainingFailed, checkpoint, train
from tests.recipes import test_every_option as options

ERRORS = (errno.ENOSPC, errno.EIO)
FAILED = 7
"""Exit code of a session that ends with `TrainingFailed`."""
SECONDS = 120
"""Time limit of a session."""


class Injector:
    """Counts the calls of this process that write, and fails one of them.

    Args:
        folder: Folder of the runs.
        kind: `kill`; `power`, which also loses what was not flushed to disk; `error`, an I/O error at one call; `full`,
            I/O errors from one call on; `count`, which fails nothing.
        at: Number of the call.
        report: Descriptor that receives the names of the calls and the steps of saved checkpoints.
    """

    def __init__(self, folder, kind, at, report):
        self.folder, self.kind, self.at, self.report, self.count = folder, kind, at, report, 0
        self.draw = random.Random(at)
        self.journal = []
        self.backups = folder / "backups"
        self.on_disk = {path.stat().st_ino: path.stat().st_size for path in folder.rglob("*") if path.is_file()}
        names = ("open", "fsync", "rename", "replace", "mkdir", "unlink", "rmdir")
        self.true = {name: getattr(os, name) for name in names}
        for name in self.true:
            setattr(os, name, getattr(self, name, None) or self.counted(name))
        self.fdopen, os.fdopen = os.fdopen, self.open_counted
        save_file = checkpoint.save_file

        def save_counted(*args, **kwargs):
            self.event("save_file")
            save_file(*args, **kwargs)
            self.event("saved file")

        checkpoint.save_file = save_counted
        save = Checkpoints.save

        def save_reported(checkpoints, found, **kwargs):
            save(checkpoints, found, **kwargs)
            os.write(report, f"saved {found.step}\n".encode())

        Checkpoints.save = save_reported

    def event(self, name, before=lambda: None):
        """Counts a call, and fails it if it is its turn."""
        os.write(self.report, f"{name.replace(' ', '_')}\n".encode())
        number, self.count = self.count, self.count + 1
        if self.at is None or number < self.at or (number > self.at and self.kind != "full"):
            return
        if self.kind in ("error", "full"):
            code = ERRORS[self.at % len(ERRORS)]
            raise OSError(code, os.strerror(code), "a file")
        if self.kind in ("kill", "power"):
            before()
            if self.kind == "power":
                self.lose()
            os.kill(os.getpid(), signal.SIGKILL)

    def counted(self, name):
        def call(path, *args, **kwargs):
            self.event(name)
            place = self.real(path, kwargs.get("dir_fd"))
            undo = self.undo(name, place, self.real(args[0]) if name in ("rename", "replace") else None)
            result = self.true[name](path, *args, **kwargs)
            self.journal.append([{place.parent} | ({self.real(args[0]).parent} if undo[1] else set()), undo[0]])
            return result

        return call

    def undo(self, name, place, target):
        """Returns a function that undoes a call, and whether it has two paths."""
        true, backup = self.true, self.backups / str(len(self.journal))
        changed = target or place
        if name in ("rename", "replace", "unlink") and self.kind == "power" and changed.is_file():
            self.backups.exists() or true["mkdir"](self.backups)
            os.link(changed, backup)

        def restore():
            if target:
                true["rename"](target, place)
            if name == "mkdir":
                shutil.rmtree(place)
            if name == "rmdir":
                true["mkdir"](place)
            if backup.exists():
                true["rename"](backup, changed)

        return restore, target is not None

    def open(self, path, flags, *args, **kwargs):
        created = flags & os.O_CREAT and not os.path.lexists(self.real(path, kwargs.get("dir_fd")))
        if flags & os.O_CREAT:
            self.event("open")
        descriptor = self.true["open"](path, flags, *args, **kwargs)
        if created:
            place = self.real(path, kwargs.get("dir_fd"))
            self.journal.append([{place.parent}, lambda: self.true["unlink"](place)])
        return descriptor

    def fsync(self, descriptor):
        self.event("fsync")
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            folder = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            for entry in self.journal:
                entry[0].discard(folder)
        else:
            self.on_disk[status.st_ino] = status.st_size

    def open_counted(self, descriptor, mode="r", *args, **kwargs):
        if mode not in ("wb", "ab"):
            return self.fdopen(descriptor, mode, *args, **kwargs)
        injector = self

        class Counted(io.FileIO):
            def write(self, data):
                half = bytes(data)[: len(data) // 2]
                injector.event("write", before=lambda: os.write(self.fileno(), half))
                return super().write(data)

        return io.BufferedWriter(Counted(descriptor, mode))

    @staticmethod
    def real(path, dir_fd=None):
        path = Path(os.fsdecode(path))
        if dir_fd is not None:
            path = Path(os.readlink(f"/proc/self/fd/{dir_fd}")) / path
        return Path(os.path.realpath(path.parent)) / path.name

    def lose(self):
        """Undoes renames, removals and new names since the last fsync of their folders, and truncates files."""
        for path in self.folder.rglob("*"):
            if path.is_file() and self.backups not in path.parents:
                status = path.stat()
                kept = min(self.on_disk.get(status.st_ino, 0), status.st_size)
                with path.open("rb+") as file:
                    file.truncate(self.draw.choice((kept, self.draw.randint(kept, status.st_size))))
        first = self.draw.choice((0, self.draw.randint(0, len(self.journal))))
        for folders, undo in reversed(self.journal[first:]):
            if folders:
                with suppress(OSError):
                    undo()


def session(folder, base, *, kind="count", at=None):
    """Starts or resumes a training in a fork; returns its exit code, its calls and the last saved step."""
    begun = sorted(folder.glob("*/config.json"))
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.close(reader)
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            signal.alarm(SECONDS)
            Injector(folder, kind, at, writer)
            if begun:
                train(resume=Run(begun[-1].parent))
            else:
                train(base.recipe, output_dir=folder, **settings(base))
        except TrainingFailed as failed:
            os._exit(FAILED if str(failed) else 1)
        except BaseException as error:
            sys.stderr.write(f"{base.recipe} {kind} at {at}: {type(error).__name__}: {error}\n")
            os._exit(1)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as lines:
        names = lines.read().split("\n")
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    shutil.rmtree(folder / "backups", ignore_errors=True)
    saved = [int(name.split()[1]) for name in names if name.startswith("saved ")]
    return code, [name for name in names if name and not name.startswith("saved ")], max(saved, default=0)


def settings(base):
    """Options of a training with several checkpoints."""
    if base.recipe in ("pca", "symmetry"):
        return base.options
    return base.options | {"checkpoint_every": 1, "keep_checkpoints": 1}


def without_times(value):
    if isinstance(value, dict):
        return {key: without_times(entry) for key, entry in value.items() if key not in ("seconds", "time")}
    return [without_times(entry) for entry in value] if isinstance(value, list) else value


def outcome(folder):
    """Returns everything in the newest run except times."""
    run = Run(sorted(folder.glob("*/config.json"))[-1].parent)
    found = {"problems": run.problems()}
    for part in (run, *run.members):
        states = {}
        for step in part.checkpoints.steps():
            place = part.checkpoints.path(step)
            metadata = without_times(json.loads((place / "metadata.json").read_text()))
            states[step] = (metadata, {path.name: path.read_bytes() for path in place.glob("*.safetensors")})
        name = str(part.path.relative_to(run.path))
        weights = (part.path / "model.safetensors").read_bytes()
        found[name] = (states, without_times(part.metrics), without_times(part.results), weights)
    found["files"] = sorted(
        str(path.relative_to(run.path)) for path in run.path.rglob("*") if path.name not in (".lock", "log.txt")
    )
    return found


def newest_step(folder):
    """Returns the newest intact checkpoint of the newest run and its members."""
    begun = sorted(folder.glob("*/config.json"))
    if not begun:
        return 0
    run = Run(begun[-1].parent)
    found = [part.checkpoints.load_newest() for part in (run, *run.members)]
    return max((checkpoint.step for checkpoint in found if checkpoint is not None), default=0)


def run_case(folder, base, kind, at, expected):
    """Fails one call, resumes, and returns what is wrong, and the name of the call."""
    folder.mkdir(parents=True)
    code, names, saved = session(folder, base, kind=kind, at=at)
    wanted = {"kill": (-signal.SIGKILL,), "power": (-signal.SIGKILL,)}.get(kind, (0, FAILED))
    found = [] if code in wanted or (code == 0 and at >= len(names)) else [f"the session ended with {code}"]
    if saved and not list(folder.glob("*/members")) and newest_step(folder) < saved:
        found.append(f"the checkpoint of step {saved} was reported as saved, and is lost")
    code, _, _ = session(folder, base)
    if code:
        found.append(f"resuming ended with {code}")
    elif (got := outcome(folder)) != expected:
        found += [f"{name} differs" for name in expected if got.get(name) != expected[name]]
    shutil.rmtree(folder)
    return [f"{base.recipe} {kind} at {at} ({names[-1] if names else ''}): {text}" for text in found], names[-1:]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kinds", nargs="+", default=["kill", "error", "full", "power"])
    parser.add_argument("--recipes", nargs="*", help="all by default")
    parser.add_argument("--cases", type=int, default=100, help="number of cases, in turn for each recipe and call")
    parser.add_argument("--minutes", type=float, default=1e9)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    bases = {name: base for name, base in options.BASES.items() if base.only is None or name in ("attack",)}
    if arguments.recipes:
        bases = {name: bases[name] for name in arguments.recipes}

    class Folders:
        def mktemp(self, name):
            (folder / name).mkdir(exist_ok=True)
            return folder / name

    summary = {"cases": Counter(), "calls": Counter(), "recipes": sorted(bases), "failures": []}
    start = time.monotonic()
    data = (
        options.data.__wrapped__(Folders())
        if hasattr(options.data, "__wrapped__")
        else options.data.__pytest_wrapped__.obj(Folders())
    )
    next(data)
    with options.plain_figures(), redirect_stdout(io.StringIO()):
        expected, calls = {}, {}
        for name, base in bases.items():
            train(base.recipe, output_dir=folder / "warm", **settings(base))  # imports everything before forking
            place = folder / f"uninterrupted {name}"
            place.mkdir()
            code, calls[name], _ = session(place, base)
            if code:
                raise SystemExit(f"the uninterrupted run of {name} ended with {code}")
            expected[name] = outcome(place)
        draw, names = random.Random(0), list(bases)
        order = {name: draw.sample(range(len(calls[name])), len(calls[name])) for name in names}
        for number in range(arguments.cases):
            if time.monotonic() - start > 60 * arguments.minutes:
                break
            kind = arguments.kinds[number % len(arguments.kinds)]
            name = names[number // len(arguments.kinds) % len(names)]
            turn = number // len(arguments.kinds) // len(names)
            at = order[name][turn % len(calls[name])]
            found, last = run_case(folder / f"case {number}", bases[name], kind, at, expected[name])
            summary["failures"] += found
            summary["cases"][kind] += 1
            summary["calls"].update(last)
    data.close()
    summary["calls per recipe"] = {name: len(found) for name, found in calls.items()}
    summary["seconds"] = round(time.monotonic() - start)
    sys.stdout.write(json.dumps(summary) + "\n")


if __name__ == "__main__":
    main()
