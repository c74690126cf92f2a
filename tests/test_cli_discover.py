"""`lawful discover`, and checks that several processes share."""

import json

import pytest

from tests.test_cli import TARGETS, lawful

CLAIMS = """
from torch import nn
from lawful.laws import Claim, causality, shape


class Flips(nn.Module):
    def forward(self, x):
        return x.flip(1)


class Sums(nn.Module):
    def forward(self, x):
        return x.cumsum(1)


def claims():
    for n in range(3):
        yield Claim(causality(time=1), Sums(), shape("b t 4"), name=f"sums {n}")
        yield Claim(causality(time=1), Flips(), shape("b t 4"), name=f"flips {n}")
"""


def discover(capfd, name, *extra, input="b t 4"):
    given = ("--input", input) if input else ()
    return lawful(capfd, "discover", f"{TARGETS}:{name}", *given, "--cases", 10, *extra)


def test_the_table(capfd):
    code, shown = discover(capfd, "Good")
    assert code == 0
    held = [line.split()[1] for line in shown.splitlines() if line.startswith("held")]
    assert "causality(time=1)" in held
    assert any(line.startswith("refuted  reversal_equivariance(axis=1)") for line in shown.splitlines())
    assert "has no method 'inverse'" in shown
    assert "had nothing to say in" in shown.splitlines()[-1]


def test_claims_go_to_standard_output_alone(capfd, tmp_path):
    from lawful.cli import main

    assert main(["discover", f"{TARGETS}:Good", "--input", "b t 4", "--cases", "5", "--as-claims"]) == 0
    shown = capfd.readouterr()
    assert "had nothing to say" in shown.err
    namespace = {}
    exec(compile(shown.out.replace("from targets import", "from tests.targets import"), "claims", "exec"), namespace)
    laws = {str(claim.law) for claim in namespace["claims"]()}
    assert {"linearity()", "causality(time=1)"} <= laws


def test_json(capfd, tmp_path):
    path = tmp_path / "found.json"
    discover(capfd, "Good", "--json", path)
    found = json.loads(path.read_text())
    assert found["target"] == "Good"
    assert {"held", "refuted", "not_applicable", "claims", "seconds", "errors"} <= found.keys()
    assert "linearity()" in [row["verdict"]["law"] for row in found["held"]]


@pytest.mark.parametrize(
    ("name", "input", "code", "sentence"),
    [
        ("Good", "", 4, "discover wants an input"),
        ("Nothing", "b 4", 4, "has no attribute Nothing"),
        ("WantsArguments", "b 4", 1, "name a factory that takes no arguments"),
        ("ReturnsNone", "b t 4", 1, "got None"),
        ("Dies", "b t 4", 1, "the process died (SIGABRT)"),
    ],
)
def test_what_cannot_be_discovered(capfd, name, input, code, sentence):
    found, shown = discover(capfd, name, input=input)
    assert sentence in shown
    assert found == code


@pytest.mark.parametrize("jobs", [1, 3])
def test_claims_are_shared_and_reported_in_order(capfd, tmp_path, jobs):
    path, log = tmp_path / "mine.py", tmp_path / "log.sarif"
    path.write_text(CLAIMS)
    report = tmp_path / "report.json"
    arguments = ("--jobs", jobs, "--cases", 10, "--json", report, "--sarif", log)
    code, shown = lawful(capfd, "check", path, *arguments)
    assert code == 1
    assert "3 held, 3 refuted" in shown
    names = [verdict["target"] for verdict in json.loads(report.read_text())["verdicts"]]
    assert names == [f"{kind} {n}" for n in range(3) for kind in ("sums", "flips")]
    results = json.loads(log.read_text())["runs"][0]["results"]
    assert [r["locations"][0]["logicalLocations"][0]["fullyQualifiedName"] for r in results] == [
        f"flips {n}" for n in range(3)
    ]
    region = results[0]["locations"][0]["physicalLocation"]["region"]
    assert CLAIMS.splitlines()[region["startLine"] - 1] == "class Flips(nn.Module):"


def test_laws_by_kind(capfd):
    code, shown = lawful(capfd, "laws")
    assert code == 0
    assert "transformations: Transformations that the map respects" in shown
    assert "  permutation_equivariance " in shown


def test_inputs_may_come_from_a_function(capfd, tmp_path):
    path = tmp_path / "graphs.py"
    path.write_text("def graph(draw):\n    n = draw.integer(2, 4)\n    return draw.normal(n, 3), draw.normal(n, n)\n")
    named = ("--law", "linearity", "--input", f"{path}:graph", "--cases", 5)
    code, shown = lawful(capfd, "check", f"{TARGETS}:convolve", *named)
    assert "held         convolve  linearity()" in shown
    assert code == 0
