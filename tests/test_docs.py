"""Every example of the documentation runs and prints the documented output, up to numbers."""

import io
import re
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FENCE = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.S | re.M)


def without_numbers(text: str) -> str:
    """Replaces numbers, which may differ in the last digit between machines."""
    return re.sub(r"-?\d+(\.\d+)?(e[+-]?\d+)?", "#", text.strip())


def run_console(block: str, folder: Path) -> str:
    """Runs the commands of a console block and returns it with the actual output."""
    lines = []
    for line in block.splitlines():
        if line.startswith("$ "):
            program, *arguments = split_arguments(line.removeprefix("$ "))
            command = [f"{Path(sys.executable).parent}/{program}", *arguments]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
            lines.append(f"{line}\n{done.stdout}{done.stderr}".strip())
    return "\n".join(lines)


def split_arguments(arguments: str) -> list[str]:
    return [a.strip('"') for a in re.findall(r'"[^"]*"|\S+', arguments)]


DOCUMENTS = ["README.md", "CONTRIBUTING.md", *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/*.md"))]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_examples_print_the_documented_output(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for module in ("layers", "mylaws"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    namespace: dict[str, object] = {"__name__": "document"}
    printed = ""
    for language, title, body in FENCE.findall((ROOT / name).read_text(encoding="utf-8")):
        if title:
            (tmp_path / title).write_text(body, encoding="utf-8")
        elif language == "python":
            out = io.StringIO()
            with redirect_stdout(out):
                exec(compile(body, name, "exec"), namespace)
            printed = out.getvalue()
        elif language == "text":
            assert without_numbers(body) == without_numbers(printed)
        elif language == "console" and body.startswith(("$ lawful", "$ pytest")):
            assert without_numbers(body) == without_numbers(run_console(body, tmp_path))
