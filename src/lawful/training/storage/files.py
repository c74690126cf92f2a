"""Writing so that a crash leaves the old or the new, never half of either."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

UNFINISHED = ".unfinished"
"""The ending of what is being written; after a crash it is swept away."""
DOOMED = ".removed" + UNFINISHED
"""The ending of what is being removed."""


def sibling_of(path: Path) -> Path:
    """Returns where a file or folder is written, before it gets its name."""
    return path.with_name(path.name + UNFINISHED)


def write(path: Path, data: bytes | str) -> None:
    """Puts a file in place whole: written to a sibling, flushed to disk, renamed."""
    sibling = sibling_of(path)
    try:
        with sibling.open("wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        sibling.replace(path)
    except BaseException:
        with suppress(OSError):
            sibling.unlink()
        raise
    flush_folder(path.parent)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Puts a folder in place whole: what the body writes into the sibling that it is given appears at once or never."""
    sibling = sibling_of(path)
    shutil.rmtree(sibling, ignore_errors=True)
    sibling.mkdir()
    try:
        yield sibling
        publish(sibling, path)
    except BaseException:
        shutil.rmtree(sibling, ignore_errors=True)
        raise


def publish(sibling: Path, path: Path) -> None:
    """Flushes every file of a folder to disk and gives the folder its name."""
    for file in sibling.iterdir():
        flush_file(file)
    flush_folder(sibling)
    if path.exists():
        remove(path)
    sibling.rename(path)
    flush_folder(path.parent)


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Keeps other processes from what a file stands for, where the system can (Windows cannot lock so).

    Raises:
        ValueError: where another process has it.
    """
    if os.name == "nt":
        yield
        return
    import fcntl

    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"{path.parent} is being trained by another process") from None
        yield


def remove(path: Path) -> None:
    """Removes a folder; one that is half removed does not keep its name."""
    doomed = path.with_name(path.name + DOOMED)
    shutil.rmtree(doomed, ignore_errors=True)
    path.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def sweep(folder: Path) -> None:
    """Removes what a crash left unfinished."""
    for path in folder.glob(f"*{UNFINISHED}"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def flush_file(path: Path) -> None:
    """Makes what was written to a file last."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def flush_folder(path: Path) -> None:
    """Makes a rename in a folder last, where the system can (Windows cannot open folders)."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
