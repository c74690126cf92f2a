"""Reading of user files: regular files only, limited by the available memory; folders without links out of them."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple, TextIO

MAX_FILES = 1_000_000
"""Maximum number of files and folders below a folder."""
MAX_DEPTH = 100
"""Maximum number of nested folders."""
_UNKNOWN_MEMORY = 2**33
"""Memory in bytes where the system does not tell."""

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe (FIFO)",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_file(path: str | Path) -> io.BufferedReader:
    """Opens a regular file for reading bytes. Never blocks.

    Args:
        path: The file.

    Raises:
        ValueError: If the path is a folder, a FIFO, a socket or a device.

    Examples:
        >>> open_file("/dev/null")
        Traceback (most recent call last):
        ...
        ValueError: /dev/null is a device, expected a file
    """
    path = Path(path)
    if "\0" in str(path):
        raise ValueError(f"a file name contains no NUL character, got {str(path)!r}")
    _check_regular(path, os.stat(path))  # before opening: opening a device can have effects
    descriptor = os.open(
        path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    )
    try:
        _check_regular(path, os.fstat(descriptor))  # it may have been replaced in between
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def check_file(path: str | Path) -> None:
    """Raises a ValueError if a path is not a regular file, for libraries that open it themselves."""
    open_file(path).close()


def _check_regular(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "a special file")
        raise ValueError(f"{path} is {kind}, expected a file")


def open_text(
    path: str | Path, *, encoding: str = "utf-8", newline: str | None = None, memory_factor: float = 0
) -> TextIO:
    """Opens a regular file for reading text.

    Args:
        path: The file.
        encoding: Text encoding.
        newline: As for `open`.
        memory_factor: Memory that the caller needs per byte of the file; a file that needs more than is available is
            refused. 0 is for callers that read in constant memory.

    Raises:
        ValueError: If the path is not a regular file, or the file is too large.
    """
    file = open_file(path)
    try:
        _check_size(Path(path), os.fstat(file.fileno()).st_size, memory_factor)
        return io.TextIOWrapper(file, encoding=encoding, newline=newline)
    except BaseException:
        file.close()
        raise


def read_bytes(path: str | Path, *, memory_factor: float = 2) -> bytes:
    """Reads a regular file.

    Args:
        path: The file.
        memory_factor: As for `open_text`.

    Raises:
        ValueError: If the path is not a regular file, or the file is too large.
    """
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        _check_size(Path(path), size, memory_factor)
        data = file.read(size + 1)
    if len(data) > size:
        raise ValueError(f"{Path(path).name} grew while it was read: try again")
    return data


def read_text(path: str | Path, *, encoding: str = "utf-8", errors: str = "strict", memory_factor: float = 8) -> str:
    """Reads a regular file as text with universal newlines.

    Args:
        path: The file.
        encoding: Text encoding.
        errors: As for `bytes.decode`.
        memory_factor: As for `open_text`.

    Raises:
        ValueError: If the path is not a regular file, the file is too large, or its bytes are not in the encoding.
    """
    data = read_bytes(path, memory_factor=memory_factor)
    try:
        text = data.decode(encoding, errors)
    except UnicodeDecodeError as error:
        byte = f"byte {error.start} is {data[error.start]:#04x}"
        raise ValueError(f"{Path(path).name} is not UTF-8 text ({byte}): save it as UTF-8") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _check_size(path: Path, size: int, memory_factor: float) -> None:
    if memory_factor:
        what = f"{path.name} has {format_bytes(size)}, and reading it"
        check_memory(int(memory_factor * size), what=what, remedy="use a smaller file, or a part of it")


# ---------------------------------------------------------------- memory


def available_memory() -> int:
    """Returns the number of bytes that this process can still allocate: of the system, its container and its limits.

    Examples:
        >>> available_memory() > 2**20
        True
    """
    limits = [_system_memory(), *_container_memory(), *_process_memory()]
    return max(0, min(limits))


def check_memory(num_bytes: int, *, what: str, remedy: str) -> None:
    """Raises a ValueError if more memory is needed than is available.

    Args:
        num_bytes: Number of bytes needed.
        what: What needs them, as the subject of a sentence.
        remedy: What the user can do.

    Examples:
        >>> check_memory(10**20, what="n=5", remedy="lower n")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        ValueError: n=5 needs 100,000,000.0 TB of memory, ... are available: lower n
    """
    if num_bytes <= 2**20:
        return
    available = available_memory()
    if num_bytes > available:
        raise ValueError(
            f"{what} needs {format_bytes(num_bytes)} of memory, {format_bytes(available)} are available: {remedy}"
        )


def format_bytes(size: int) -> str:
    """Formats a number of bytes.

    Examples:
        >>> format_bytes(63_400_000), format_bytes(12)
        ('63.4 MB', '12 bytes')
    """
    for unit, name in ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:,.1f} {name}"
    return f"{size} bytes"


def _system_memory() -> int:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return _UNKNOWN_MEMORY


def _container_memory() -> list[int]:
    """Returns the memory left in the control group, if it has a limit."""
    for limit, usage in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        try:
            with open(limit, encoding="ascii") as file, open(usage, encoding="ascii") as used:
                return [int(file.read()) - int(used.read())]
        except (OSError, ValueError):  # no such group, or the limit is "max"
            continue
    return []


def _process_memory() -> list[int]:
    """Returns the address space left to the process, if it has a limit."""
    try:
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit == resource.RLIM_INFINITY:
            return []
        with open("/proc/self/statm", encoding="ascii") as file:
            return [limit - int(file.read().split()[0]) * resource.getpagesize()]
    except (ImportError, OSError, ValueError):
        return []


# ---------------------------------------------------------------- folders


class FolderFiles(NamedTuple):
    """The files below a folder."""

    files: list[Path]
    """Regular files, sorted by path."""
    links: list[Path]
    """Links to files and folders outside, which are not among the files."""


def walk_folder(folder: str | Path, *, suffixes: Collection[str] = ()) -> FolderFiles:
    """Finds the regular files below a folder. Hidden files and folders are skipped, and links out of the folder.

    Args:
        folder: The folder.
        suffixes: File suffixes in lower case; by default all.

    Raises:
        ValueError: If the folder has more than `MAX_FILES` entries, or folders nested deeper than `MAX_DEPTH`.
    """
    folder = Path(folder)
    root = os.path.realpath(folder)
    found = FolderFiles([], [])
    pending, count = [(folder, 1)], 0
    while pending:
        parent, depth = pending.pop()
        with os.scandir(parent) as entries:
            for entry in entries:
                count += 1
                if count > MAX_FILES:
                    raise ValueError(f"{folder} has more than {MAX_FILES:,} files, the maximum: pass a smaller folder")
                if entry.name.startswith("."):
                    continue
                path, is_folder = parent / entry.name, entry.is_dir()
                if not is_folder and ((suffixes and path.suffix.lower() not in suffixes) or not entry.is_file()):
                    continue
                if entry.is_symlink() and os.path.commonpath([root, os.path.realpath(path)]) != root:
                    found.links.append(path)
                elif not is_folder:
                    found.files.append(path)
                elif not entry.is_symlink():
                    if depth >= MAX_DEPTH:
                        raise ValueError(f"{folder} has folders nested more than {MAX_DEPTH} deep, the maximum")
                    pending.append((path, depth + 1))
    found.files.sort()
    found.links.sort()
    return found


def list_files(folder: str | Path, *, suffixes: Collection[str] = ()) -> list[Path]:
    """Returns the regular files below a folder, as `walk_folder`, sorted by path.

    Args:
        folder: The folder.
        suffixes: File suffixes in lower case; by default all.

    Raises:
        ValueError: If a link leads out of the folder, or the folder is too large.
    """
    found = walk_folder(folder, suffixes=suffixes)
    if found.links:
        link = found.links[0]
        raise ValueError(f"{link} is a link out of {folder}, which is not followed: copy what it links to")
    return found.files
