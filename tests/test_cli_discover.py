"""`lawful discover`, and checks with several processes."""

import json

import pytest

from lawful.cli import main
from tests.test_cli import TARGETS, in_process, lawful  # noqa: F401

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


def test_table(capfd, in_process, few_laws):  # noqa: F811
    code, shown = discover(capfd, "Good", "--all")
    assert code == 0
    assert shown.startswith("Good, tested in training and eval mode\n")
    held = [line.split()[1] for line in shown.splitlines() if line.startswith("held")]
    assert "causality(time=1)" in held
    assert any(line.startswith("refuted  reversal_equivariance(axis=1)") for line in shown.splitlines())
    assert "has no method 'inverse'" in shown
    assert "not applicable in" in shown.splitlines()[-1]


def test_claims_on_standard_output_and_json_in_a_file(capfd, in_process, few_laws, tmp_path):  # noqa: F811
    path = tmp_path / "found.json"
    target = ("discover", f"{TARGETS}:Good", "--input", "b t 4", "--cases", "5")
    assert main([*target, "--as-claims", "--json", str(path)]) == 0
    shown = capfd.readouterr()
    assert "not applicable" in shown.err
    namespace = {}
    exec(compile(shown.out.replace("from targets import", "from tests.targets import"), "claims", "exec"), namespace)
    laws = {str(claim.law) for claim in namespace["claims"]()}
    assert {"linearity()", "causality(time=1)"} <= laws
    found = json.loads(path.read_text())
    assert found["target"] == "Good"
    assert {"held", "refuted", "not_applicable", "claims", "seconds", "errors"} <= found.keys()
    assert "linearity()" in [row["verdict"]["law"] for row in found["held"]]


@pytest.mark.parametrize(
    ("name", "input", "code", "message"),
    [
        ("Good", "", 4, "discover needs an input"),
        ("Nothing", "b 4", 4, "has no attribute Nothing"),
        ("WantsArguments", "b 4", 1, "use a factory without arguments"),
        ("ReturnsNone", "b t 4", 1, "got None"),
    ],
)
def test_errors(capfd, in_process, name, input, code, message):  # noqa: F811
    found, shown = discover(capfd, name, input=input)
    assert message in shown
    assert found == code


def test_a_map_that_ends_the_process(capfd, monkeypatch):
    monkeypatch.setattr("lawful.checking.isolation._MAX_CRASHES", 2)
    code, shown = discover(capfd, "Dies")
    assert "the process ended (SIGABRT)" in shown
    assert code == 1


@pytest.mark.parametrize("jobs", [pytest.param(1, marks=pytest.mark.long), 2])
def test_verdicts_come_in_the_order_of_the_claims(capfd, tmp_path, jobs):
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


def test_laws_are_grouped_by_kind(capfd):
    code, shown = lawful(capfd, "laws")
    assert code == 0
    assert "Equivariance and invariance under permutations" in shown
    assert "  permutation_equivariance " in shown


def test_inputs_from_a_function(capfd, in_process, tmp_path):  # noqa: F811
    path = tmp_path / "graphs.py"
    path.write_text("def graph(draw):\n    n = draw.integer(2, 4)\n    return draw.normal(n, 3), draw.normal(n, n)\n")
    named = ("--law", "linearity", "--input", f"{path}:graph", "--cases", 5)
    code, shown = lawful(capfd, "check", f"{TARGETS}:convolve", *named)
    assert "held         convolve  linearity()" in shown
    assert code == 0
