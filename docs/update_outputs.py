"""Runs the examples of the documentation, and writes the outputs and pictures that changed.

python docs/update_outputs.py [docs/train.md ...]

A picture `docs/images/NAME.png` that a document shows is what its examples save as `NAME.png`.

Decimal numbers, such as times and residuals, differ between runs and machines: an output that differs only there is
left as it is. `tests/test_docs.py` runs the same code and compares.
"""

from __future__ import annotations

import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from types import ModuleType

import pytest

from lawful.cli import main as lawful

ROOT = Path(__file__).resolve().parents[1]
IMAGE = re.compile(r"!\[[^]]+\]\(images/([\w-]+\.png)\)")
FENCE = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.S | re.M)
PROGRAMS = {"lawful": lawful, "pytest": pytest.main}


def documents() -> list[str]:
    """Returns the paths of all documents, relative to the repository."""
    return ["README.md", "CONTRIBUTING.md", *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/*.md"))]


@contextmanager
def working_directory(folder: Path) -> Iterator[Path]:
    """Runs in a folder with the examples; modules that it contains are removed afterwards."""
    before, paths = Path.cwd(), list(sys.path)
    (folder / "examples").symlink_to(ROOT / "examples")
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    try:
        yield folder
    finally:
        os.chdir(before)
        sys.path[:] = paths
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None)).startswith(str(folder)):
                del sys.modules[name]


def run_document(name: str, folder: Path) -> Iterator[tuple[str, str, tuple[int, int]]]:
    """Yields every documented output, the actual one, and the place in the document."""
    module = sys.modules["document"] = ModuleType("document")  # dataclasses look up the module of their class
    printed = ""
    for block in FENCE.finditer((ROOT / name).read_text(encoding="utf-8")):
        language, title, body = block.groups()
        if title:
            (folder / title).write_text(body, encoding="utf-8")
        elif language == "python":
            out = io.StringIO()
            with redirect_stdout(out):
                exec(compile(body, name, "exec"), vars(module))
            printed = out.getvalue()
        elif language == "text":
            yield body, printed, block.span(3)
        elif language == "console" and body.startswith(tuple(f"$ {program}" for program in PROGRAMS)):
            yield body, _run_console(body), block.span(3)


def _run_console(block: str) -> str:
    """Runs the commands of a console block in this process, and returns them with the actual output."""
    lines = []
    for line in block.splitlines():
        if line.startswith("$ "):
            program, *arguments = (part.strip('"') for part in re.findall(r'"[^"]*"|\S+', line.removeprefix("$ ")))
            out, errors = io.StringIO(), io.StringIO()
            with redirect_stdout(out), redirect_stderr(errors):
                PROGRAMS[program](arguments)
            lines.append(f"{line}\n{out.getvalue()}{errors.getvalue()}".strip())
    return "\n".join(lines)


def _without_decimals(text: str) -> str:
    return re.sub(r"-?\d+(\.\d+(e[+-]?\d+)?|e[+-]?\d+)", "#", text.strip())


def updated(name: str, folder: Path) -> str:
    """Returns a document with its actual outputs."""
    text, end, parts = (ROOT / name).read_text(encoding="utf-8"), 0, []
    for documented, actual, (start, stop) in run_document(name, folder):
        same = _without_decimals(documented) == _without_decimals(actual)
        parts += [text[end:start], documented if same else actual.strip("\n") + "\n"]
        end = stop
    return "".join([*parts, text[end:]])


def images(name: str) -> list[str]:
    """Returns the names of the pictures that a document shows."""
    return IMAGE.findall((ROOT / name).read_text(encoding="utf-8"))


def update_images(name: str, folder: Path) -> bool:
    """Copies the pictures that the examples have saved in the folder; returns whether one differs."""
    changed = False
    for image in images(name):
        old, new = ROOT / "docs/images" / image, (folder / image).read_bytes()
        if not old.exists() or old.read_bytes() != new:
            old.parent.mkdir(exist_ok=True)
            old.write_bytes(new)
            changed = True
    return changed


def main(names: list[str]) -> None:
    """Updates documents; all of them by default."""
    for name in names or documents():
        path = (ROOT / name) if (ROOT / name).exists() else Path(name).resolve()
        with tempfile.TemporaryDirectory() as folder, working_directory(Path(folder).resolve()):
            document = str(path.relative_to(ROOT))
            new = updated(document, Path.cwd())
            changed = update_images(document, Path.cwd())
        if new != path.read_text(encoding="utf-8"):
            path.write_text(new, encoding="utf-8")
            changed = True
        sys.stdout.write(f"{'updated' if changed else 'unchanged'} {name}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
