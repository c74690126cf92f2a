"""Files of a run inside a page: images, texts and the heads of tables, each bounded in size."""

from __future__ import annotations

import csv
import io
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path

IMAGES, IMAGE_BYTES, ALL_BYTES = 60, 4 << 20, 24 << 20
TEXTS, TEXT_CHARACTERS, ROWS, COLUMNS, CELL, NAMED = 30, 4000, 10, 12, 60, 30
SMALL = 96
"""The width in pixels below which an image is enlarged."""
PICTURES, WORDS = (".png", ".svg"), (".txt", ".md", ".csv", ".json", ".jsonl")
PNG = b"\x89PNG\r\n\x1a\n"


def safe(text: object) -> str:
    r"""Escapes anything for HTML; control characters, which HTML does not have, are replaced.

    Examples:
        >>> safe("<b>" + chr(0))
        '&lt;b&gt;\ufffd'
    """
    shown = "".join(c if (c >= " " and c != "\x7f") or c in "\n\t" else "\ufffd" for c in str(text))
    return escape(shown, quote=True)


def caption(path: Path) -> str:
    """Makes a caption of the name of a file.

    Examples:
        >>> caption(Path("figures/confusion_matrix.png"))
        'Confusion matrix'
    """
    words = " ".join(path.stem.replace("_", " ").replace("-", " ").split())
    return words[:1].upper() + words[1:] or path.name


def shown(folder: Path) -> str:
    """Shows the pictures of a folder, then its texts, and names what is neither or too much."""
    found = files(folder)
    left = [path for path in found if path.suffix.lower() not in PICTURES + WORDS]
    pictures = "".join(images(found, left))
    words = "".join(texts(found, left))
    named = [f"{path.name} ({path.stat().st_size / 1000:,.0f} kB)" for path in left[:NAMED]]
    named += ["…"] if len(left) > NAMED else []
    note = f"<p class=note>Not shown here: {safe(', '.join(named))}.</p>" if left else ""
    return (f"<div class=gallery>{pictures}</div>" if pictures else "") + words + note


def files(folder: Path) -> list[Path]:
    """Lists the files of a folder by name, without links, which may lead elsewhere."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.is_file() and not path.is_symlink())


def images(paths: Iterable[Path], left: list[Path]) -> Iterator[str]:
    """Shows PNG and SVG files; those that are too large, too many or no images join what is left."""
    room, count = ALL_BYTES, IMAGES
    for path in paths:
        ending = path.suffix.lower()
        if ending not in PICTURES:
            continue
        data = path.read_bytes() if count and path.stat().st_size <= min(IMAGE_BYTES, room) else b""
        if not data or (ending == ".png" and not data.startswith(PNG)):
            left.append(path)
            continue
        room, count, name = room - len(data), count - 1, safe(caption(path))
        kind = "png" if ending == ".png" else "svg+xml"
        small = " class=small" if kind == "png" and int.from_bytes(data[16:20]) < SMALL else ""
        source = f"data:image/{kind};base64,{b64encode(data).decode()}"
        yield f'<figure><img{small} src="{source}" alt="{name}"><figcaption>{name}</figcaption></figure>'


def texts(paths: Iterable[Path], left: list[Path]) -> Iterator[str]:
    """Shows the beginnings of texts, and of CSV files as tables; those that are too many join what is left."""
    words = [path for path in paths if path.suffix.lower() in WORDS]
    left += words[TEXTS:]
    for path in words[:TEXTS]:
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            text = file.read(TEXT_CHARACTERS + 1)
        cut, text = len(text) > TEXT_CHARACTERS, text[:TEXT_CHARACTERS]
        body = table_head(text, cut=cut) if path.suffix.lower() == ".csv" else None
        if body is None:
            note = f"<p class=note>The first {TEXT_CHARACTERS:,} characters.</p>" if cut else ""
            body = f"<pre>{safe(text)}</pre>{note}"
        yield f"<h3>{safe(path.name)}</h3>{body}"


def table_head(text: str, *, cut: bool) -> str | None:
    """Shows the first rows of a CSV file, or None if it cannot be read as one."""
    try:
        rows = list(csv.reader(io.StringIO(text)))
    except csv.Error:
        return None
    rows = rows[:-1] if cut and len(rows) > 1 else rows
    if not rows:
        return None
    shown = [row[:COLUMNS] for row in rows[: ROWS + 1]]
    more = cut or len(rows) > ROWS + 1 or any(len(row) > COLUMNS for row in rows)
    note = f"<p class=note>The first {ROWS} rows and {COLUMNS} columns at most.</p>" if more else ""
    return table(shown[0], shown[1:]) + note


def table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Makes a table of texts, each cut to a bounded length."""
    top = "".join(f"<th scope=col>{safe(short(cell))}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{safe(short(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<div class=wide><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"


def short(cell: object, *, most: int = CELL) -> str:
    """Cuts a text that is too long for a cell."""
    text = str(cell)
    return text if len(text) <= most else text[: most - 1] + "…"
