"""Reading of the user's data: files limited by the available memory; folders without links out of them."""

from __future__ import annotations

import io
import os
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple, TextIO

from lawful._files import MAX_DEPTH, MAX_FILES, check_memory, format_bytes, open_file


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
