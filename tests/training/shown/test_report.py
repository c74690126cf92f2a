import json
import math
import random
import re
import shlex
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lawful.checking.verdict import Counterexample, Value, Verdict
from lawful.training.report import command, outcome, write_report

VOID = {"meta", "img", "input", "link", "br", "hr"}
NASTY = "<script>alert('x')</script>"


class Folder:
    """A run as the report sees it."""

    def __init__(self, path, config):
        self.path, self.config, self.results = path, config, {}
        self.figures, self.samples, self.report = path / "figures", path / "samples", path / "report.html"
        self.lines = []

    def metrics(self):
        return self.lines


class Page(HTMLParser):
    """Reads a page, and notes whatever is not nested as it should be."""

    def __init__(self, text):
        super().__init__()
        self.open, self.wrong, self.tags, self.texts = [], [], [], []
        self.feed(text)
        self.close()
        self.wrong += [f"{tag} is not closed" for tag in self.open]

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}> closes something else")

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("script", "style"):
            self.texts.append(data)

    @property
    def text(self):
        return " ".join(self.texts)

    def all(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]


def read(run, verdicts=()):
    path = write_report(run, verdicts)
    assert path == run.report
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert page.wrong == []
    for tag, attrs in page.tags:
        assert not any(name.startswith("on") for name in attrs), (tag, attrs)
        for name in ("src", "href"):
            assert attrs.get(name, "#").startswith(("#", "data:image/")), (tag, attrs)
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert len(page.all("script")) == 1
    return page


def png(color="white"):
    from io import BytesIO

    from PIL import Image

    file = BytesIO()
    Image.new("RGB", (32, 20), color).save(file, "png")
    return file.getvalue()


def curve(steps):
    chance = random.Random(0)
    for step in range(1, steps + 1):
        loss = 2.3 * math.exp(-step / 900) + 0.05 + 0.3 * chance.random() * math.exp(-step / 2000)
        line = {"step": step, "loss": loss, "learning_rate": 1e-3 * (1 - step / steps / 1.01), "time": step * 0.0021}
        if step in (1200, 1201):
            line["loss"] = "nan" if step == 1200 else math.nan
        if step % 250 == 0:
            line |= {"validation/loss": loss * 1.1, "validation/accuracy": 1 - loss / 3, "validation/note": NASTY}
        yield line


def realistic(path):
    options = {"data": f"{NASTY}.csv", "hidden": [64, 32], "rate": 0.003, "engine": {"seed": 3, "compile": False}}
    defaults = {"data": "digits", "hidden": [64, 32], "rate": 0.001, "engine": {"seed": 0, "compile": False}}
    run = Folder(path, {"recipe": "classify", "options": options, "defaults": defaults})
    run.config |= {"model": {"classes": ["cat", NASTY]}, "lawful": "0.1.0", "torch": "2.13.0", "threads": 2}
    run.lines = list(curve(5000))
    interval = {"value": 0.9755, "low": 0.963, "high": 0.984}
    per_class = {NASTY: {"value": 0.9, "low": 0.8, "high": 0.95}, "cat & dog": {"value": math.nan}}
    warnings = ["12 rows of the test data are in the training data too", NASTY]
    test = {"accuracy": interval, "loss": 0.1234567, "per class": per_class}
    run.results = {"steps": 5000, "seconds": 10.5, "test": test, "warnings": warnings}
    run.figures.mkdir()
    run.samples.mkdir()
    (run.figures / "confusion_matrix.png").write_bytes(png())
    drawing = '<svg xmlns="http://www.w3.org/2000/svg" width="90" height="40"><text y="20">drawn</text></svg>'
    (run.figures / "calibration.svg").write_text(drawing)
    (run.figures / "broken.png").write_bytes(b"no image")
    (run.samples / "sound.wav").write_bytes(bytes(1000))
    (run.samples / "digit-3.png").write_bytes(png("black"))
    (run.samples / "text.txt").write_text(f"Once upon a time {NASTY}\0\x1b[31m {'word ' * 2000}")
    (run.samples / "predictions.csv").write_text(f"label,{NASTY}\n" + "cat,0.5\n" * 2000)
    return run


def verdicts():
    inputs = (Value("x", "float64", (1, 2, 1), [[[0.0], [1.0]]]),)
    found = Counterexample("differs", inputs, index=(0, 0, 0), left=0.5, right=0.0, noise=1e-16, times=5e15, case=3)
    formula = "f(x)_{<=t} does not depend on x_{>t}"
    past = Verdict("refuted", "causality", formula, "Mean", cases=20, counterexample=found)
    return [past, Verdict("held", "batch_independence", "f(x)_i = f(x_i)", NASTY, cases=30, worst=0.5)]


@pytest.fixture
def run(tmp_path):
    return realistic(tmp_path)


def test_a_page_has_everything(run):
    page = read(run, verdicts())
    headings = {"Results", "Learning curves", "Figures", "Samples", "Laws", "Configuration", "Environment"}
    assert headings <= set(page.texts)
    said = page.text
    assert "Finished after 5,000 steps in 0:10: test accuracy 0.9755 (0.963 to 0.984)." in said
    assert "12 rows of the test data are in the training data too" in said
    assert "Confusion matrix" in said
    assert "Not shown here: broken.png" in said
    assert "1 held, 1 refuted" in said
    assert "lawful train --resume" in said
    assert all(image["alt"] for image in page.all("img"))
    assert all(drawing["aria-label"] for drawing in page.all("svg"))
    assert {box["id"] for box in page.all("input")} == {label["for"] for label in page.all("label")}


def test_what_differs_from_the_defaults_comes_first(run):
    said = read(run).text
    assert said.index("engine.seed") < said.index("The other options") < said.index("hidden")
    again = re.search(r"lawful train classify .*? --seed 3(?= )", said)[0]
    assert shlex.split(again)[3:] == ["--data", f"{NASTY}.csv", "--rate", "0.003", "--seed", "3"]


def test_nothing_of_a_file_becomes_html(run):
    run.path = run.path / '"><script>alert(1)</script>'
    run.config["recipe"] = run.config["lawful"] = run.config["options"][f'"{NASTY}'] = NASTY
    run.lines.append({"step": 5001, f"{NASTY}/loss": 1.0, f'"{NASTY}': 2.0, f"validation/{NASTY}": 3.0})
    run.results[NASTY] = {"value": NASTY, "low": NASTY, "high": NASTY}
    (run.figures / '"onerror=alert(1) x=".png').write_bytes(png())
    (run.samples / "<img src=x>.txt").write_text("</pre><img src=x onerror=alert(1)>")
    page = read(run, verdicts())
    assert NASTY in page.text
    assert "\0" not in page.text
    assert "\x1b" not in page.text


def test_the_page_may_neither_reach_the_network_nor_run_what_is_not_its_own(run):
    read(run)
    text = run.report.read_text(encoding="utf-8")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert "unsafe" not in policy
    for kind in ("style", "script"):
        from base64 import b64encode
        from hashlib import sha256

        inner = re.search(f"<{kind}>(.*?)</{kind}>", text, re.DOTALL)[1]
        assert f"{kind}-src 'sha256-{b64encode(sha256(inner.encode()).digest()).decode()}'" in policy


def test_a_run_that_has_not_begun_gives_a_page(tmp_path):
    page = read(Folder(tmp_path, {}))
    assert "Not begun: there are no steps yet." in page.text
    assert "There are no metrics yet." in page.text
    assert not page.all("img")


def test_a_run_that_has_not_ended_gives_a_page(run):
    run.results = {}
    assert "Not finished, after 5,000 steps in 0:10: loss" in read(run).text


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, "nan", 0.0, -3.5, 1e308, 5e-324, 10**400, True, None, "text", []]
)
def test_any_figure_is_survived(tmp_path, value):
    run = Folder(tmp_path, {})
    run.lines = [{"step": step, "loss": value, "learning_rate": value} for step in (0, 0, 7, 10**400)]
    read(run)
    run.lines += [{"step": step, "loss": step - 5.0} for step in range(100)]
    read(run)


KEYS = st.sampled_from(
    ["options", "defaults", "model", "recipe", "warnings", "seconds", "value", "low", "test", "ä\x00"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None, max_examples=20)
@given(
    config=st.dictionaries(KEYS, JSON),
    results=st.dictionaries(KEYS, JSON),
    lines=st.lists(st.fixed_dictionaries({"step": st.integers()}, optional={"loss": JSON, "time": JSON, "a/b": JSON})),
)
def test_whatever_the_files_hold_there_is_a_page(tmp_path_factory, config, results, lines):
    run = Folder(tmp_path_factory.mktemp("run"), config)
    run.results, run.lines = results, lines
    read(run)


def test_a_page_is_bounded(run):
    run.lines = list(curve(20000))
    for line in run.lines:
        line |= {f"figure{i}": 0.1 for i in range(3)}
    run.lines[0] |= {f"extra{i}": 1.0 for i in range(1000)} | {f"part{i}/loss": 1.0 for i in range(100)}
    run.results["many"] = {str(i): 1.0 for i in range(100000)}
    run.config["options"]["long"] = "x" * 10**6
    (run.figures / "large.png").write_bytes(png() + bytes(5 << 20))
    for i in range(100):
        (run.samples / f"{i}.txt").write_text("y" * 10**5)
    page = read(run)
    assert run.report.stat().st_size < 5e6
    assert "large.png (5,243 kB)" in page.text
    assert "Not shown here: sound.wav (1 kB), 36.txt (100 kB)" in page.text
    assert "99,506 more are not shown" in page.text
    assert "Not or not all drawn: extra" in page.text


def test_what_a_link_leads_to_is_left_out(run, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("a secret")
    (run.samples / "link.txt").symlink_to(secret)
    assert "a secret" not in read(run).text


def test_text_that_has_no_code_is_replaced(run):
    run.config["options"]["data"] = "\ud800"
    run.results["warnings"] = "\udfff one sentence"
    assert "one sentence" in read(run).text


def test_the_page_before_stays_if_the_new_one_cannot_be_written(run, monkeypatch):
    write_report(run)
    before = run.report.read_bytes()

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        write_report(run)
    assert run.report.read_bytes() == before
    assert [path.name for path in run.path.glob("report*")] == ["report.html"]


def test_a_training_of_ones_own_is_taken_up_in_python(tmp_path):
    run = Folder(tmp_path, {"recipe": None, "options": {}})
    assert f"lawful.train(training, resume=Run('{tmp_path}'))" in read(run).text


def test_commands_are_those_of_the_command_line():
    options = {"weight_decay": None, "on": True, "model": {"no_bias": False}, "empty": []}
    wanted = "lawful train r --weight-decay None --on --no-no-bias --empty"
    assert command({"recipe": "r", "options": options}) == wanted


def test_the_outcome_names_the_figure_of_the_test_first():
    test = {"loss": 1.0, "accuracy": {"value": 1, "low": 0, "high": 1}}
    results = {"steps": 3, "validation": {"accuracy": 0.5}, "test": test}
    assert outcome([{"step": 3}], results) == "Finished after 3 steps: test accuracy 1 (0 to 1)."
    assert outcome([{"step": 3, "loss": 2.0}], {"steps": 3}) == "Finished after 3 steps: loss 2."


def test_a_real_run_gives_a_page(tmp_path):
    from lawful.training.run import Run

    run = Run.create(tmp_path, "classify", {"recipe": "classify", "options": {"steps": 3}, "torch": torch.__version__})
    lines = [{"step": 1, "loss": 2.0, "time": 0.1}, {"step": 2, "loss": 1.0, "time": 0.2}]
    (run.path / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)) + '\n{"step": 3, "lo')
    run.keep_results({"test": {"accuracy": {"value": 0.5, "low": 0.4, "high": 0.6}}})
    assert "test accuracy 0.5 (0.4 to 0.6)" in read(run).text
