"""Checkpoints: tensors and facts, each with a checksum, of which the newest sound one is used."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from lawful.training.processes.world import Alone
from lawful.training.storage import config, files, shards

SUMS = "checksums.json"
LARGEST = 1 << 26
"""The largest file of facts, in bytes."""


ALONE = Alone()


def whole(name: str, shape: Sequence[int]) -> None:
    """Has every tensor read whole."""


class Damaged(ValueError):
    """A checkpoint that is not what was written."""


@dataclass(frozen=True)
class Checkpoint:
    """The state of a training after a step."""

    step: int
    tensors: Mapping[str, Tensor]
    facts: Mapping[str, Any]

    def copied(self) -> Checkpoint:
        """Returns it with tensors of its own, on the processor, that later steps do not change."""
        tensors = {name: tensor.detach().to("cpu", copy=True) for name, tensor in self.tensors.items()}
        return Checkpoint(self.step, tensors, deepcopy(self.facts))


class Checkpoints:
    """A folder of checkpoints, `step-00000100` and so on.

    Each is written to a sibling, flushed to disk and renamed, so that a crash leaves the ones before. It holds
    `facts.json`, a file of tensors for each process that wrote, such as `tensors-1-of-1.safetensors`, and a checksum
    of each.

    Args:
        folder: Where they are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def steps(self) -> list[int]:
        """The steps at which there are checkpoints."""
        names = {path.name for path in self.folder.glob("step-*")}
        numbers = (int(match[1]) for name in names if (match := re.fullmatch(r"step-([0-9]{8,18})", name)))
        return sorted(step for step in numbers if self.at(step).name in names)

    def at(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"

    def write(self, checkpoint: Checkpoint, *, keep: int, best: int | None = None, world: Alone = ALONE) -> None:
        """Adds a checkpoint, and removes all but the last `keep` and the best; every process of a world calls it."""
        facts = config.dump(checkpoint.facts).encode()
        if len(facts) > LARGEST:
            raise ValueError(f"the facts of a checkpoint have at most {LARGEST} bytes: got {len(facts)}")
        path, first = self.at(checkpoint.step), world.rank == 0
        with files.new_folder(path) if first else nullcontext(files.sibling_of(path)) as folder:
            world.wait()
            own = folder / shards.file_name(world.rank, world.size)
            write_tensors(own, checkpoint.tensors)
            files.flush_file(own)
            world.wait()
            if first:
                (folder / "facts.json").write_bytes(facts)
                seal(folder)
        if first:
            self.prune(keep=keep, best=best)
        world.wait()

    def prune(self, *, keep: int, best: int | None) -> None:
        """Removes all but the last `keep` and the best."""
        steps = self.steps()
        for step in steps[:-keep]:
            if step != best:
                files.remove(self.at(step))

    def read(self, step: int, *, like: shards.Like = whole) -> Checkpoint:
        """Reads a checkpoint, whole, or the parts of its tensors that this process is to hold.

        Raises:
            Damaged: where it is not what was written.
        """
        folder = self.at(step)
        verify(folder)
        try:
            facts = config.load(folder / "facts.json", largest=LARGEST)
            tensors = shards.read(_files(folder), like)
        except PermissionError:
            raise
        except (ValueError, OSError, SafetensorError) as error:
            raise Damaged(f"checkpoint {folder.name} cannot be read: {error}") from None
        if not isinstance(facts, dict):
            raise Damaged(f"checkpoint {folder.name}: facts.json is an object: got {type(facts).__name__}")
        return Checkpoint(step, tensors, facts)

    def newest(self, *, damaged: list[str] | None = None, like: shards.Like = whole) -> Checkpoint | None:
        """Reads the newest checkpoint that is sound, and puts what was wrong with newer ones into `damaged`."""
        for step in reversed(self.steps()):
            try:
                return self.read(step, like=like)
            except Damaged as error:
                if damaged is not None:
                    damaged.append(str(error))
        return None

    def set_aside(self, *, after: int) -> None:
        """Renames the checkpoints after a step to `….damaged`, so that they do not stand among those to come."""
        for step in self.steps():
            if step > after:
                aside = self.at(step).with_suffix(".damaged")
                shutil.rmtree(aside, ignore_errors=True)
                self.at(step).rename(aside)


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes a file of tensors.

    Raises:
        OSError: where the system refuses; the library says so in words only.
    """
    try:
        held, metadata = shards.laid_out(tensors)
        save_file(held, path, metadata=metadata)
    except SafetensorError as error:
        told = re.search(r"os error (\d+)", str(error))
        number = int(told[1]) if told else errno.EIO
        raise OSError(number, os.strerror(number), str(path)) from error


def _files(folder: Path) -> list[Path]:
    """The files of tensors, one for each process that wrote."""
    there = {path.name for path in folder.glob("tensors-*.safetensors")}
    names = [shards.file_name(rank, len(there)) for rank in range(len(there))]
    if not names or there != set(names):
        raise ValueError(f"its files of tensors are not one for each process: got {sorted(there)}")
    return [folder / name for name in names]


def seal(folder: Path) -> None:
    """Writes the checksums of a folder's files."""
    sums = {path.name: _sum(path) for path in sorted(folder.iterdir())}
    (folder / SUMS).write_text(config.dump(sums), encoding="utf-8")


def verify(folder: Path) -> None:
    """Compares a folder's files with their checksums.

    Raises:
        Damaged: which file is missing, cut off or altered.
    """
    try:
        sums = config.load(folder / SUMS)
    except PermissionError:
        raise
    except (ValueError, OSError) as error:
        raise Damaged(f"checkpoint {folder.name} has no readable {SUMS}: {error}") from None
    if not isinstance(sums, dict) or not sums:
        raise Damaged(f"checkpoint {folder.name}: {SUMS} lists no files")
    there = {path.name for path in folder.iterdir() if path.is_file()} - {SUMS}
    if odd := sorted(there ^ sums.keys()):
        how = f"is not in {SUMS}" if odd[0] in there else f"is missing, and {SUMS} lists it"
        raise Damaged(f"checkpoint {folder.name}: {odd[0]!r} {how}")
    for name, wanted in sums.items():
        if _sum(folder / name) != wanted:
            raise Damaged(f"checkpoint {folder.name}: {name} is not what was written (its checksum differs)")


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
