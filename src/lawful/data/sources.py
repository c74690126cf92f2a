"""What a path leads to: what is there, and the table of a file."""

from __future__ import annotations

from pathlib import Path

from lawful.data.builtin.catalogue import BUILTIN
from lawful.data.tables import Table, read_arrays, read_delimited, read_parquet, table_of
from lawful.laws.language.law import nearest

TEXT, ARRAYS = (".csv", ".tsv", ".txt", ".data"), (".npy", ".npz")


def existing(source: str | Path) -> Path:
    """Returns the path, if something is there; otherwise says what is nearest."""
    path = Path(source)
    try:
        if path.exists():
            return path
    except (OSError, ValueError):
        pass
    if path.suffix or len(path.parts) > 1:
        beside = [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else []
        raise FileNotFoundError(f"there is no file or folder {source}{nearest(path.name, beside)}")
    raise FileNotFoundError(
        f"there are no data {str(source)!r}{nearest(str(source), BUILTIN)} Built-in are {', '.join(BUILTIN)}; "
        "otherwise give a .csv, .tsv, .parquet, .npy or .npz file, or a folder with a folder of images for each class"
    )


def table_at(path: Path, *, header: bool | None = None) -> Table:
    """Reads the table of a file as its ending says."""
    ending = path.suffix.lower()
    if ending in TEXT:
        return read_delimited(path, header=header)
    if ending == ".parquet":
        return read_parquet(path)
    if ending in ARRAYS:
        return table_of(read_arrays(path), name=path.name)
    raise ValueError(f"{path.name} ends in {ending!r}: one of {', '.join((*TEXT, '.parquet', *ARRAYS))} was wanted")
