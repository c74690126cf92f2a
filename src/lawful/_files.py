"""Files and memory: links in prepared folders are not followed; atomic writes; locks; limits of the memory."""

from __future__ import annotations

import errno
import json
import os
import secrets
import shutil
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

from lawful._names import quote

UNFINISHED = ".unfinished"
"""Suffix of a file or folder that is being written or removed. `remove_unfinished` deletes leftovers of a crash."""
_OPENED = Path("/proc/self/fd")
"""Linux shows every open file and folder here. Such a path stays with it, whatever happens to its name."""
_HAS_OPENED, _IS_WINDOWS = _OPENED.is_dir(), os.name == "nt"
_NOFOLLOW, _NONBLOCK, _FOLDER, _BINARY = (
    getattr(os, f"O_{name}", 0) for name in ("NOFOLLOW", "NONBLOCK", "DIRECTORY", "BINARY")
)
_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
_NO_FILES = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe (FIFO)",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
MAX_FILES = 1_000_000
"""Maximum number of files and folders below a folder."""
MAX_DEPTH = 100
"""Maximum number of nested folders."""
_UNKNOWN_MEMORY = 2**33
"""Memory in bytes where the system does not tell."""


class LinkError(ValueError):
    """A link inside a folder whose links are not followed."""


# ------------------------------------------------------------ folders


@contextmanager
def pin_folder(folder: Path, *, root: Path | None = None) -> Iterator[Path]:
    """Opens a folder, and yields a path to it that stays valid if its name gets another meaning.

    Args:
        folder: The folder.
        root: Folder below which symbolic links are not followed. By default, all are followed.

    Raises:
        ValueError: If there is a link between `root` and the folder.
    """
    if _IS_WINDOWS:
        _refuse_links(folder, root)
        yield folder
        return
    descriptor = _open_folder(folder, root)
    path = _OPENED / str(descriptor) if _HAS_OPENED else folder
    try:
        yield path
    except OSError as error:  # show the name of the folder
        for attribute in ("filename", "filename2"):
            name = getattr(error, attribute)
            if isinstance(name, str) and name.startswith(str(path)):
                setattr(error, attribute, str(folder) + name.removeprefix(str(path)))
        raise
    finally:
        os.close(descriptor)


def _open_folder(folder: Path, root: Path | None) -> int:
    if root is None:
        return os.open(folder, os.O_RDONLY | _FOLDER)
    descriptor, path = os.open(root, os.O_RDONLY | _FOLDER), root
    for name in _parts(folder, root):
        path /= name
        try:
            inner = os.open(name, os.O_RDONLY | _FOLDER | _NOFOLLOW, dir_fd=descriptor)
        except OSError as error:
            if path.is_symlink():
                raise _link_error(path) from None
            error.filename = str(path)
            raise
        finally:
            os.close(descriptor)
        descriptor = inner
    return descriptor


def _parts(path: Path, root: Path) -> tuple[str, ...]:
    parts = path.relative_to(root).parts
    if ".." in parts:
        raise ValueError(f"{quote(path)} is not inside {quote(root)}")
    return parts


def _refuse_links(path: Path, root: Path | None) -> None:
    """Raises a ValueError if there is a link below `root`."""
    inner = root
    for name in _parts(path, root) if root is not None else ():
        inner = inner / name if inner is not None else None
        if inner is not None and inner.is_symlink():
            raise _link_error(inner)


def _link_error(path: Path) -> LinkError:
    return LinkError(f"{quote(path)} is a link, which is not followed inside a run: replace it by a copy of the file")


def list_folder(folder: Path, *, root: Path | None = None) -> dict[str, str]:
    """Returns the names in a folder, sorted, each with its kind: `file`, `folder`, `link` or `other`.

    Args:
        folder: The folder. One that does not exist has no names.
        root: Folder below which symbolic links are not followed.
    """
    found: dict[str, str] = {}
    try:
        with pin_folder(folder, root=root) as path, os.scandir(path) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    mode = entry.stat(follow_symlinks=False).st_mode
                    found[entry.name] = _KINDS.get(stat.S_IFMT(mode), "other")
                if len(found) > MAX_FILES:
                    raise ValueError(f"{quote(folder)} has more than {MAX_FILES:,} files")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    return dict(sorted(found.items()))


def _walk(folder: Path, root: Path | None) -> Iterator[tuple[Path, str, str]]:
    """Yields the folder, the name and the kind of everything inside a folder."""
    pending = [(folder, 1)]
    while pending:
        parent, depth = pending.pop()
        if depth > MAX_DEPTH:
            raise ValueError(f"{quote(folder)} has folders nested more than {MAX_DEPTH} deep, the maximum")
        for name, kind in list_folder(parent, root=root).items():
            yield parent, name, kind
            if kind == "folder":
                pending.append((parent / name, depth + 1))


def refuse_links(folder: Path) -> None:
    """Raises a ValueError if there is a link anywhere inside a folder."""
    for parent, name, kind in _walk(folder, folder):
        if kind == "link":
            raise _link_error(parent / name)


def create_folder(folder: Path, *, root: Path | None = None) -> None:
    """Creates a folder, unless it exists."""
    if root is None:
        folder.mkdir(parents=True, exist_ok=True)
        return
    with pin_folder(folder.parent, root=root) as parent, suppress(FileExistsError):
        (parent / folder.name).mkdir()


# ------------------------------------------------------------ reading


def open_file(path: Path | str, *, root: Path | None = None) -> BufferedReader:
    """Opens a regular file for reading. Others, such as named pipes and devices, are refused without waiting.

    Args:
        path: The file.
        root: Folder below which symbolic links are not followed.

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
    if root is None:
        return os.fdopen(_open(path, path, os.O_RDONLY, follow_link=True), "rb")
    with pin_folder(path.parent, root=root) as folder:
        return os.fdopen(_open(folder / path.name, path, os.O_RDONLY), "rb")


def _open(path: Path, shown: Path, flags: int, *, follow_link: bool = False) -> int:
    """Opens a regular file. A named pipe does not block."""
    with suppress(FileNotFoundError):
        status = path.stat(follow_symlinks=follow_link)  # before opening: opening a device can have effects
        if stat.S_ISLNK(status.st_mode):
            raise _link_error(shown)
        _check_regular(shown, status)
    descriptor = os.open(path, flags | (0 if follow_link else _NOFOLLOW) | _NONBLOCK | _BINARY, 0o666)
    try:
        _check_regular(shown, os.fstat(descriptor))  # it may have been replaced in between
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_regular(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = _NO_FILES.get(stat.S_IFMT(status.st_mode), "a special file")
        raise ValueError(f"{quote(path)} is {kind}, expected a file")


@contextmanager
def open_path(path: Path | str, *, root: Path | None = None) -> Iterator[str]:
    """Opens a regular file, and yields a path to it for a library that opens files by name."""
    with open_file(path, root=root) as file:
        yield str(_OPENED / str(file.fileno())) if _HAS_OPENED else str(path)


def read_file(path: Path | str, *, limit: int, root: Path | None = None) -> bytes:
    """Reads a regular file of at most `limit` bytes."""
    with open_file(path, root=root) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise ValueError(f"{quote(Path(path).name)} is larger than {limit} bytes")
    return data


# ------------------------------------------------------------ writing


def write_file(path: Path | str, data: bytes | str, *, root: Path | None = None) -> None:
    """Writes a file atomically: to a temporary file, flushed to disk, renamed.

    A path outside of a run may be a link, a pipe or a device; the last two are written directly.

    Args:
        path: The file.
        data: Content. Text is encoded as UTF-8.
        root: Folder below which symbolic links are not followed.
    """
    data = data.encode("utf-8", "backslashreplace") if isinstance(data, str) else data
    path = Path(path)
    path = path.resolve() if root is None and path.is_symlink() else path
    if root is None and path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    if root is None and not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    with pin_folder(path.parent, root=root) as folder:
        final, temporary = folder / path.name, folder / _temporary_name()
        try:
            with create_file(temporary, mode=_mode(final)) as file:
                file.write(data)
            os.replace(temporary, final)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        fsync_folder(folder)


def _temporary_name() -> str:
    """Returns a hidden name that nobody can predict."""
    return f".{secrets.token_hex(8)}{UNFINISHED}"


def _mode(path: Path) -> int:
    """Returns the permissions of a file that exists, or those of a new one."""
    with suppress(OSError):
        status = path.lstat()
        if stat.S_ISREG(status.st_mode):
            return stat.S_IMODE(status.st_mode)
    return 0o666


@contextmanager
def create_file(path: Path, *, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Creates a file that must not exist yet, and flushes it to disk at the end."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _NOFOLLOW | _BINARY, mode)
    with os.fdopen(descriptor, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def written_files(path: Path) -> Iterator[Path]:
    """Lets a library write a file, and files beside it, atomically.

    The body writes to the yielded path in a temporary folder. All files are then flushed to disk and renamed, the one
    at the path last.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    temporary = path.with_name(_temporary_name())
    temporary.mkdir()
    try:
        yield temporary / path.name
        for name in sorted(os.listdir(temporary), key=lambda name: name == path.name):
            fsync_file(temporary / name)
            os.replace(temporary / name, path.with_name(name))
        fsync_folder(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def open_append(path: Path, *, root: Path | None = None) -> BinaryIO:
    """Opens a file to append to, and creates it if necessary. A file with other names (hard links) is copied first."""
    with pin_folder(path.parent, root=root) as folder:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        descriptor = _open(folder / path.name, path, flags)
        if os.fstat(descriptor).st_nlink > 1:
            os.close(descriptor)
            with open_file(path, root=root) as file:
                write_file(path, file.read(), root=root)
            descriptor = _open(folder / path.name, path, flags)
    return os.fdopen(descriptor, "ab")


@contextmanager
def atomic_folder(path: Path, *, root: Path | None = None) -> Iterator[Path]:
    """Creates a folder atomically: the body writes into a temporary folder, which is then flushed and renamed."""
    with pin_folder(path.parent, root=root) as parent:
        temporary = parent / _temporary_name()
        temporary.mkdir()
        try:
            yield path.parent / temporary.name
            for name in list_folder(temporary):
                fsync_file(temporary / name)
            fsync_folder(temporary)
            if (parent / path.name).exists():
                remove_folder(parent / path.name)
            os.rename(temporary, parent / path.name)
            fsync_folder(parent)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise


def remove_folder(path: Path) -> None:
    """Removes a folder. It is renamed first, so that a crash leaves no half-removed folder under its name."""
    removed = path.with_name(_temporary_name())
    os.rename(path, removed)
    shutil.rmtree(removed, ignore_errors=True)


def remove_unfinished(folder: Path, *, root: Path | None = None) -> None:
    """Removes files and folders whose writing a crash interrupted, at any depth."""
    for parent, name, kind in _walk(folder, root):
        if name.endswith(UNFINISHED):
            with pin_folder(parent, root=root) as path:
                if kind == "folder":
                    shutil.rmtree(path / name, ignore_errors=True)
                else:
                    (path / name).unlink(missing_ok=True)


def fsync_file(path: Path) -> None:
    """Flushes a file to disk."""
    descriptor = os.open(path, os.O_RDONLY | _NOFOLLOW | _BINARY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_folder(path: Path) -> None:
    """Makes renames in a folder durable (Windows cannot open folders)."""
    if _IS_WINDOWS:
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# ------------------------------------------------------------ locks


@contextmanager
def lock(path: Path, *, root: Path | None = None) -> Iterator[None]:
    """Holds an exclusive lock on a file (not on Windows). The file names the process that holds it.

    Raises:
        ValueError: If another process holds the lock.
    """
    if _IS_WINDOWS:
        yield
        return
    import fcntl

    with open_append(path, root=root) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"{_holder(path, root)} is training {quote(path.parent)}") from None
        holder = {"process": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        os.ftruncate(file.fileno(), 0)
        file.write(json.dumps(holder).encode())
        file.flush()
        yield


def _holder(path: Path, root: Path | None) -> str:
    try:
        holder = json.loads(read_file(path, limit=1000, root=root))
        return quote(f"process {holder['process']} on {holder['host']}, since {holder['since']},")
    except (ValueError, OSError, KeyError, TypeError):
        return "another process"


# ------------------------------------------------------------ memory


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
        remedy: Remedy, as an imperative.

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
