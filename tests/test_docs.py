"""Every example of the documentation runs and prints the documented output, up to numbers."""

import io
import re
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from lawful.cli import main
from tests.test_cli import in_process  # noqa: F401

ROOT = Path(__file__).parent.parent
FENCE = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.S | re.M)
PROGRAMS = {"lawful": main, "pytest": pytest.main}


def without_numbers(text: str) -> str:
    """Replaces numbers, which may differ in the last digit between machines."""
    return re.sub(r"-?\d+(\.\d+)?(e[+-]?\d+)?", "#", text.strip())


def run_console(block: str) -> str:
    """Runs the commands of a console block in this process, and returns it with the actual output."""
    lines = []
    for line in block.splitlines():
        if line.startswith("$ "):
            program, *arguments = split_arguments(line.removeprefix("$ "))
            out, errors = io.StringIO(), io.StringIO()
            with redirect_stdout(out), redirect_stderr(errors):
                PROGRAMS[program](arguments)
            lines.append(f"{line}\n{out.getvalue()}{errors.getvalue()}".strip())
    return "\n".join(lines)


def split_arguments(arguments: str) -> list[str]:
    return [a.strip('"') for a in re.findall(r'"[^"]*"|\S+', arguments)]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder in which a document runs; modules that it contains are removed afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


# Other documents run the same commands; the tests of the recipes, blocks and `lawful discover` run the same code.
LONG = ("docs/discover.md", "docs/errata.md", "docs/language.md")
DOCUMENTS = [
    pytest.param(name, marks=[pytest.mark.long] if name in LONG else [])
    for name in ("README.md", "CONTRIBUTING.md", *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/*.md")))
]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_examples_print_the_documented_output(name, folder, in_process):  # noqa: F811
    namespace: dict[str, object] = {"__name__": "document"}
    printed = ""
    for language, title, body in FENCE.findall((ROOT / name).read_text(encoding="utf-8")):
        if title:
            (folder / title).write_text(body, encoding="utf-8")
        elif language == "python":
            out = io.StringIO()
            with redirect_stdout(out):
                exec(compile(body, name, "exec"), namespace)
            printed = out.getvalue()
        elif language == "text":
            assert without_numbers(body) == without_numbers(printed)
        elif language == "console" and body.startswith(("$ lawful", "$ pytest")):
            assert without_numbers(body) == without_numbers(run_console(body))
