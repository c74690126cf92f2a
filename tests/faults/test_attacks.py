"""What the attacks look for in a report."""

import pytest

from lawful.training import Run
from lawful.training.report import write_report
from tests.faults.attacks import HOSTILE, Tags


def found_in(html):
    tags = Tags()
    tags.feed(html)
    return tags.found


@pytest.mark.parametrize(
    "html",
    [
        '<a href="javascript:alert(1)">x</a>',
        '<a href=" java\nscript:alert(1)">x</a>',
        '<a href="\x01JavaScript:alert(1)">x</a>',
        '<svg><use xlink:href="javascript:alert(1)" /></svg>',
        '<img src=x onerror="alert(1)">',
        '<p srcdoc="<script></script>">',
        "<iframe></iframe>",
        "<script>alert(1)</script>",
    ],
)
def test_text_that_a_browser_would_run_is_found(html):
    assert found_in(html)


@pytest.mark.parametrize(
    "html", ['<svg aria-label="javascript:alert(1)"></svg>', '<img alt="javascript:alert(1)" src="data:image/png,x">']
)
def test_attributes_that_are_text_are_no_fault(html):
    assert not found_in(html)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_of_metrics_stay_text(tmp_path, text):
    run = Run.create(tmp_path, "classify", {"recipe": "classify", "options": {text: text}})
    run.save_metrics([{"step": step, text: 1.0 / step} for step in (1, 2, 3)])
    run.save_results({"steps": 3, text: {text: {"value": 0.5, "low": 0.4, "high": 0.6}}, "summary": text})
    write_report(run)
    assert found_in(run.report.read_text()) == ["script"]  # the report's own
