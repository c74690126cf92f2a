"""Every example of the documentation runs and prints the documented output, up to numbers."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from lawful.recipes import RECIPES
from tests.test_cli import in_process  # noqa: F401

ROOT = Path(__file__).parent.parent


def load_script():
    spec = importlib.util.spec_from_file_location("update_outputs", ROOT / "docs/update_outputs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


script = load_script()


def without_numbers(text: str) -> str:
    """Replaces numbers, which may differ in the last digit between machines."""
    return re.sub(r"-?\d+(\.\d+)?(e[+-]?\d+)?", "#", text.strip())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.delitem(RECIPES, "sort", raising=False)  # tests/examples adds it
    with script.working_directory(tmp_path):
        yield tmp_path


# Other documents run the same commands; the tests of the recipes, blocks and `lawful discover` run the same code.
LONG = ("docs/discover.md", "docs/errata.md", "docs/language.md")
DOCUMENTS = [pytest.param(name, marks=[pytest.mark.long] if name in LONG else []) for name in script.documents()]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_examples_print_the_documented_output(name, folder, in_process):  # noqa: F811
    outputs = []
    for documented, actual, _ in script.run_document(name, folder):
        assert without_numbers(documented) == without_numbers(actual), "run `make docs`"
        outputs.append(actual)
    for image in script.images(name):
        assert (folder / image).stat().st_size > 5000, "expected a picture that the examples save"
        assert (ROOT / "docs/images" / image).is_file(), "run `make docs`"
    if name == "docs/train.md":  # the first example that prints a metric is a good one
        accuracy = next(text for text in outputs if text.startswith("{'value'"))
        assert float(re.search(r"\d\.\d+", accuracy)[0]) > 0.9


def blocks(name, language):
    """The code blocks of a document in a language."""
    found = script.FENCE.findall((ROOT / name).read_text(encoding="utf-8"))
    return [body for kind, _, body in found if kind == language]


def test_the_readme_shows_the_class_that_its_command_checks():
    (shown,) = blocks("README.md", "py")
    target = re.match(r"\$ lawful check (\S+):(\w+) ", blocks("README.md", "console")[0])
    assert shown.startswith(f"class {target[2]}(")
    assert shown.rstrip() + "\n\n\n" in (ROOT / target[1]).read_text(encoding="utf-8")


PAGE = """
```python title="numbers_of_page.py"
x = {decimal}
```

```python
from numbers_of_page import x
print("x is", x, "of", 3)
```

```text
{output}
```

```console
$ lawful laws causalty
{message}
```
"""


def test_outputs_are_written_once(folder, monkeypatch):
    """A stale output is replaced; an output that differs only in decimal numbers is not."""
    monkeypatch.setattr(script, "ROOT", folder)

    def update(decimal, output, message):
        sys.modules.pop("numbers_of_page", None)
        (folder / "page.md").write_text(PAGE.format(decimal=decimal, output=output, message=message))
        return script.updated("page.md", folder)

    message = "lawful: error: no law named causalty: did you mean causality? (`lawful laws` lists them)"
    expected = PAGE.format(decimal=0.25, output="x is 0.25 of 3", message=message)
    assert update(0.25, "old", "old") == update(0.25, "x is 0.25 of 3", message) == expected
    assert update(0.25, "x is 0.5 of 3", message) == expected.replace("is 0.25", "is 0.5")
    assert update(0.25, "x is 0.5 of 4", message) == expected


def test_every_picture_is_shown():
    shown = {image for name in script.documents() for image in script.images(name)}
    assert {path.name for path in (ROOT / "docs/images").iterdir()} == shown


def test_pictures_are_copied_once(folder, monkeypatch):
    monkeypatch.setattr(script, "ROOT", folder)
    (folder / "docs").mkdir()
    (folder / "page.md").write_text("![A curve](images/curve.png)\n")
    (folder / "curve.png").write_bytes(b"1")
    assert script.update_images("page.md", folder)
    assert not script.update_images("page.md", folder)
    (folder / "curve.png").write_bytes(b"2")
    assert script.update_images("page.md", folder)
    assert (folder / "docs/images/curve.png").read_bytes() == b"2"
