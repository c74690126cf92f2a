import json
import math
import os
import random
import re
import shlex
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lawful._files import write_file
from lawful.checking.verdict import Counterexample, TensorValue, Verdict
from lawful.training.report import (
    _chart_html,
    _charts,
    _Curve,
    _envelope,
    _outcome,
    _smooth,
    _train_command,
    compare_with_baselines,
    write_report,
)

VOID = {"meta", "img", "input", "link", "br", "hr"}
NASTY = "<script>alert('x')</script>"


class Folder:
    """The part of a run that the report uses."""

    def __init__(self, path, config):
        self.path, self.root, self.config, self.results = path, path, config, {}
        self.figures, self.samples, self.report = path / "figures", path / "samples", path / "report.html"
        self.lines = []

    @property
    def metrics(self):
        return self.lines

    def write(self, name, data):
        write_file(self.report.parent / name, data, root=self.root)
        return self.report


class Page(HTMLParser):
    """Parses a page and records nesting errors."""

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
    options = {"data": f"{NASTY}.csv", "hidden": [64, 32], "rate": 0.003, "seed": 3, "compile": False}
    defaults = {"data": "digits", "hidden": [64, 32], "rate": 0.001, "seed": 0, "compile": False}
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
    inputs = (TensorValue("x", "float64", (1, 2, 1), [[[0.0], [1.0]]]),)
    found = Counterexample(
        "differs", inputs, index=(0, 0, 0), left=0.5, right=0.0, noise=1e-16, noise_ratio=5e15, case=3
    )
    formula = "f(x)_{<=t} does not depend on x_{>t}"
    past = Verdict("refuted", "causality", formula, "Mean", cases=20, counterexample=found)
    return [past, Verdict("held", "batch_independence", "f(x)_i = f(x_i)", NASTY, cases=30, worst=0.5)]


@pytest.fixture
def run(tmp_path):
    return realistic(tmp_path)


def test_sections_of_the_report(run):
    page = read(run, verdicts())
    headings = {"Results", "Learning curves", "Figures", "Samples", "Laws", "Configuration", "Environment"}
    assert headings <= set(page.texts)
    text = page.text
    assert "Finished after 5,000 steps in 0:10: test accuracy 0.9755 (0.963 to 0.984)." in text
    assert "12 rows of the test data are in the training data too" in text
    assert "Confusion matrix" in text
    assert "Not shown here: broken.png" in text
    assert "1 held, 1 refuted" in text
    assert "lawful train --resume" in text
    assert all(image["alt"] for image in page.all("img"))
    assert all(drawing["aria-label"] for drawing in page.all("svg"))
    assert {box["id"] for box in page.all("input")} == {label["for"] for label in page.all("label")}


def test_changed_options_come_first(run):
    text = read(run).text
    assert text.index("seed") < text.index("Options with default values") < text.index("hidden")
    again = re.search(r"lawful train classify .*? --seed 3(?= )", text)[0]
    assert shlex.split(again)[3:] == ["--data", f"{NASTY}.csv", "--rate", "0.003", "--seed", "3"]


def test_all_content_is_escaped(run):
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


def test_content_security_policy(run):
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


def test_a_run_that_has_not_started(tmp_path):
    page = read(Folder(tmp_path, {}))
    assert "Not started." in page.text
    assert "No metrics yet." in page.text
    assert not page.all("img")


def test_a_run_that_has_not_finished(run):
    run.results = {}
    assert "Stopped after 5,000 steps in 0:10: loss" in read(run).text


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, "nan", 0.0, -3.5, 1e308, 5e-324, 10**400, True, None, "text", []]
)
def test_any_metric(tmp_path, value):
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
def test_any_json(tmp_path_factory, config, results, lines):
    run = Folder(tmp_path_factory.mktemp("run"), config)
    run.results, run.lines = results, lines
    read(run)


def test_the_size_of_the_report_is_limited(run):
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
    assert "99,506 more rows" in page.text
    assert "Not shown: extra" in page.text


def test_symbolic_links_are_skipped(run, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("a secret")
    (run.samples / "link.txt").symlink_to(secret)
    assert "a secret" not in read(run).text


def test_surrogates_are_replaced(run):
    run.config["options"]["data"] = "\ud800"
    run.results["warnings"] = "\udfff one sentence"
    assert "one sentence" in read(run).text


def test_the_report_is_written_atomically(run, monkeypatch):
    write_report(run)
    before = run.report.read_bytes()

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        write_report(run)
    assert run.report.read_bytes() == before
    assert [path.name for path in run.path.glob("report*")] == ["report.html"]


def test_a_custom_setup_is_resumed_in_python(tmp_path):
    run = Folder(tmp_path, {"recipe": None, "options": {}})
    assert f"lawful.train(setup, resume='{tmp_path}')" in read(run).text


def test_train_command():
    options = {"weight_decay": None, "on": True, "model": {"name": "cnn", "no_bias": False}, "empty": []}
    expected = "lawful train r --weight-decay None --on --model cnn --no-no-bias --empty"
    assert _train_command({"recipe": "r", "options": options}) == expected


def test_the_outcome_names_a_test_metric_first():
    test = {"loss": 1.0, "accuracy": {"value": 1, "low": 0, "high": 1}}
    results = {"steps": 3, "validation": {"accuracy": 0.5}, "test": test}
    assert _outcome([{"step": 3}], results) == "Finished after 3 steps: test accuracy 1 (0 to 1)."
    assert _outcome([{"step": 3, "loss": 2.0}], {"steps": 3}) == "Finished after 3 steps: loss 2."


@pytest.mark.parametrize(
    ("value", "baselines", "higher_is_better", "expected"),
    [
        (0.9, {"mean": 0.8, "knn": 0.85}, True, "The model beats every baseline in r: 0.9 against 0.85 of knn."),
        (0.9, {"mean": 0.95}, False, "The model beats mean in r: 0.9 against 0.95; lower is better."),
        (0.9, {"mean": 0.8, "knn": 0.95}, True, "The baseline knn beats the model in r: 0.95 against 0.9."),
        (0.9, {"knn": 0.9}, True, "The model and knn tie: both have r 0.9."),
        (5.729, {"ridge": 5.728}, False, "The model and ridge nearly tie in r: 5.729 against 5.728; lower is better."),
        (0.9, {"knn": math.nan}, True, "The model has r 0.9."),
        (math.nan, {"knn": 1.0}, True, "The model has no finite r."),
        (
            {"value": 0.9, "low": 0.8, "high": 0.95},
            {"knn": {"value": 0.85, "low": 0.7, "high": 0.9}},
            True,
            "The model beats knn in r: 0.9 (0.8 to 0.95) against 0.85. "
            "The difference is within the confidence interval.",
        ),
    ],
)
def test_the_winner_in_words(value, baselines, higher_is_better, expected):
    assert compare_with_baselines("r", value, baselines, higher_is_better=higher_is_better) == expected


def test_the_summary_comes_first(run):
    run.results["summary"] = f"Logistic regression beats the model {NASTY}."
    text = read(run).text
    assert text.index("Logistic regression beats the model") < text.index("Finished after") < text.index("Results")
    assert text.count("Logistic regression beats") == 1


def test_lead_figures_come_first_at_full_width(run):
    run.results["lead_figures"] = ["confusion_matrix.png", "missing.png", "../secret.png", 3]
    read(run)
    text = run.report.read_text(encoding="utf-8")
    lead = text.index("class=lead")
    assert lead < text.index('alt="Confusion matrix"') < text.index("id=results")
    assert text.count('alt="Confusion matrix"') == 1
    assert 'alt="Calibration"' in text
    assert "missing.png" not in text
    assert "secret" not in text


def test_the_report_says_what_was_trained_and_why_curves_differ(run):
    run.config["options"] |= {"ema_decay": 0.9, "model": {"name": "mlp", "dropout": 0.3}}
    run.results["examples"] = {"train": 1080, "validation": 0, "test": 20}
    text = read(run).text
    assert ".csv, 1,080 train, 20 test examples. Model: mlp." in text
    assert "Training values have dropout; validation values are of averaged weights." in text


def test_real_run(tmp_path):
    from lawful.training import Run

    run = Run.create(tmp_path, "classify", {"recipe": "classify", "options": {"steps": 3}, "torch": torch.__version__})
    lines = [{"step": 1, "loss": 2.0, "time": 0.1}, {"step": 2, "loss": 1.0, "time": 0.2}]
    (run.path / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)) + '\n{"step": 3, "lo')
    run.save_results({"test": {"accuracy": {"value": 0.5, "low": 0.4, "high": 0.6}}})
    assert "test accuracy 0.5 (0.4 to 0.6)" in read(run).text


def noisy(n, seed=0):
    values = np.random.default_rng(seed).normal(size=n)
    return [(step, float(y)) for step, y in enumerate(values)]


def test_metrics_of_one_name_share_a_chart_and_the_loss_is_first():
    lines = [
        {"step": 1, "learning_rate": 0.1, "accuracy": 0.1, "loss": 3.0, "time": 0.1},
        {"step": 2, "validation/accuracy": 0.2, "validation/loss": 2.0, "note": "text", "on": True},
        {"step": 2, "loss": 1.0},
    ]
    found = _charts(lines)
    assert list(found) == ["loss", "accuracy", "learning_rate"]
    assert found["loss"] == [_Curve("training", [(1, 3.0), (2, 1.0)]), _Curve("validation", [(2, 2.0)])]


def test_the_second_line_of_a_step_counts():
    lines = [{"step": step, "loss": float(step)} for step in (1, 2, 3)] + [{"step": 2, "loss": -2.0}]
    assert _charts(lines)["loss"][0].points == [(1, 1.0), (2, -2.0), (3, 3.0)]


@pytest.mark.parametrize("n", [10, 2000, 2001, 5000, 100003])
def test_envelope_keeps_the_extremes(n):
    points = noisy(n)
    kept = _envelope(points)
    assert len(kept) <= 2000
    assert set(kept) <= set(points)
    assert kept == sorted(kept)
    values = [y for _, y in points]
    assert (min(y for _, y in kept), max(y for _, y in kept)) == (min(values), max(values))


def test_envelope_keeps_gaps():
    points = [(step, math.nan if 4000 <= step < 6000 else 1.0) for step in range(10000)]
    assert {step // 2000 for step, y in _envelope(points) if math.isnan(y)} == {2}


def test_smoothing_matches_a_running_mean():
    points = noisy(1000)
    smoothed = np.array([y for _, y in _smooth(points)])
    expected = np.convolve([y for _, y in points], np.full(21, 1 / 21), mode="valid")
    np.testing.assert_allclose(smoothed[10:-10], expected, atol=1e-12)
    assert smoothed[0] == points[0][1]
    np.testing.assert_allclose(smoothed[-1], np.mean([y for _, y in points[-11:]]))


def test_smoothing_of_many_points():
    points = [(step, 10.0 ** (10 - 25 * step / 20000)) for step in range(20001)]
    smoothed = _smooth(points)
    assert len(smoothed) == 1000
    assert (smoothed[0], smoothed[-1][0]) == (points[0], 20000)
    for step, y in smoothed[:-20]:
        assert 0.9 < y / points[step][1] < 1.2


def test_smoothing_skips_values_that_are_not_finite():
    assert _smooth([(0, 1.0), (1, math.nan), (2, math.inf), (3, 2.0)]) == [(0, 1.0), (3, 1.5)]
    assert _smooth([]) == []


def layer(page, kind):
    return re.search(f"<g class={kind}>(.*?)</g>(?=<g class=l|<line)", page)[1]


def places(path):
    return np.array([[float(x) for x in pair.split(",")] for pair in re.findall(r"[\d.]+,[\d.]+", path)])


@pytest.mark.parametrize("kind", ["linear", "log"])
def test_positions_of_curves(kind):
    points = [(step, 10.0 ** -(step / 10)) for step in range(1, 31)]
    page = _chart_html("loss", [_Curve("training", points)], number=0)
    at = places(re.search(r'class="curve s0" d="([^"]*)"', layer(page, kind))[1])
    values = np.array([math.log10(y) if kind == "log" else y for _, y in points])
    for axis, expected in ((0, np.arange(1, 31)), (1, values)):
        slope, start = np.polyfit(expected, at[:, axis], 1)
        np.testing.assert_allclose(at[:, axis], slope * expected + start, atol=0.1)
        assert slope > 0 if axis == 0 else slope < 0
    assert (at >= 0).all()
    assert (at <= (720, 300)).all()
    assert "checked" in page


def test_ticks():
    page = _chart_html(
        "accuracy", [_Curve("validation", [(step, step / 1000) for step in range(100, 901, 100)])], number=0
    )
    found = re.findall(r'class=y [^>]*y="([\d.]+)">([^<]*)<', layer(page, "linear"))
    ticks = [(float(y), float(text)) for y, text in found]
    assert [value for _, value in ticks] == [0.2, 0.4, 0.6, 0.8]
    np.testing.assert_allclose(np.diff([y for y, _ in ticks]), np.diff([y for y, _ in ticks])[0], atol=0.11)


def test_no_log_scale_for_negative_values():
    page = _chart_html("loss", [_Curve("training", [(1, 1.0), (2, 0.0), (3, -1.0)])], number=0)
    assert "logarithmic" not in page


def test_gaps():
    page = _chart_html("loss", [_Curve("training", [(1, 3.0), (2, math.nan), (3, math.inf), (4, 2.0)])], number=0)
    assert "2 not finite, the first at step 2" in page
    assert re.search(r'class="curve s0" d="([^"]*)"', page)[1].count("M") == 2
    assert "No finite values" in _chart_html("loss", [_Curve("training", [(1, math.nan)])], number=0)


def test_extreme_values():
    for values in ((5e-324, 1e-300), (1e300, -1e300), (1e300, 1e-300), (1e16, 1e16 + 2)):
        points = [(step, values[step % 2]) for step in range(100)]
        assert "nan" not in _chart_html("loss", [_Curve("training", points)], number=0)
