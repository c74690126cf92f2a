"""The pytest plugin, run in this process; in subprocesses where xdist matters."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import lawful.checking.check
import lawful.checking.targets  # noqa: F401  (a run in this process forgets the modules that it imported)

pytest_plugins = "pytester"

MODULE = """
from collections.abc import Iterator

from torch import nn
from torch.nn import functional as F

from lawful.laws import Claim, batch_independence, causality, linearity, shape


class MyAttention(nn.Module):
    def __init__(self, causal=False):
        super().__init__()
        self.qkv, self.causal = nn.Linear(16, 48), causal

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)


def claims() -> Iterator[Claim]:
    yield Claim(causality(time=1), MyAttention(), shape("b t 16"))
    yield Claim(batch_independence(), MyAttention(), shape("b t 16"))
    yield Claim(causality(time=1), MyAttention(True), shape("b t 16"), name="Masked")
    yield Claim(causality(time=1), MyAttention(True), shape("b t 16"), name="Twice")
    yield Claim(causality(time=2), MyAttention(True), shape("b t 16"), name="Twice")
    yield Claim(linearity().waived("the softmax is not linear"), MyAttention(), shape("b t 16"))
"""


@pytest.fixture
def run(pytester, monkeypatch):
    """Runs pytest in a folder with a package."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    pytester.mkpydir("mine")
    Path("mine/attention.py").write_text(MODULE)

    def go(*options, test="", in_subprocess=False):
        if test:
            pytester.makepyfile(test_mine=test)
        start = pytester.runpytest_subprocess if in_subprocess else pytester.runpytest_inprocess
        return start("-p", "no:cacheprovider", "--lawful-cases=11", *options)

    return go


def test_claims_of_a_package(run):
    result = run("--lawful", "mine", "-v")
    result.assert_outcomes(passed=3, failed=2, skipped=1)
    result.stdout.fnmatch_lines_random(
        [
            "mine::test_claims[[]MyAttention-causality[]] FAILED*",
            "mine::test_claims[[]MyAttention-batch_independence[]] PASSED*",
            "mine::test_claims[[]Masked-causality[]] PASSED*",
            "mine::test_claims[[]Twice-causality(time=1)[]] PASSED*",
            "mine::test_claims[[]Twice-causality(time=2)[]] FAILED*",
            "mine::test_claims[[]MyAttention-linearity[]] SKIPPED*",
        ]
    )


def test_a_failure_shows_the_counterexample_without_our_frames(run):
    result = run("--lawful", "mine", "-k", "MyAttention-causality")
    result.stdout.fnmatch_lines(["refuted*MyAttention*causality(time=1)", "*x'*except*", "*× the noise floor*"])
    result.stdout.no_fnmatch_line("*lawful/checking*")


@pytest.mark.parametrize("workers", ["0", pytest.param("1", marks=pytest.mark.long)])
def test_sarif_with_and_without_xdist(run, workers):
    options = ("-n", workers, "--lawful-sarif", "log.sarif", "--junitxml=log.xml")
    result = run("--lawful", "mine", *options, in_subprocess=workers != "0")
    result.assert_outcomes(passed=3, failed=2, skipped=1)
    log = json.loads(Path("log.sarif").read_text())
    assert log["version"] == "2.1.0"
    results = log["runs"][0]["results"]
    assert [r["ruleId"] for r in results] == ["causality", "causality"]
    place = results[0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "mine/attention.py"
    source = Path("mine/attention.py").read_text().splitlines()
    assert source[place["region"]["startLine"] - 1].startswith("class MyAttention")
    assert 'failures="2"' in Path("log.xml").read_text()


def test_packages_in_the_configuration(run, pytester):
    pytester.makeini("[pytest]\nlawful = mine\n")
    run("-m", "lawful", test="def test_other(): pass").assert_outcomes(passed=3, failed=2, skipped=1, deselected=1)


def test_a_target_without_a_test_file(run):
    test = "def test_other(): raise RuntimeError"
    result = run("--lawful", "mine.attention:MyAttention", "--lawful-input", "b t 16", "-v", test=test)
    result.assert_outcomes(passed=8)
    result.stdout.fnmatch_lines(["mine.attention:MyAttention::test_claims[[]MyAttention-determinism[]] PASSED*"])


def test_laws_of_a_target(run):
    laws = ("--lawful-law", "causality:time=1", "--lawful-law", "batch_independence")
    result = run("--lawful", "mine.attention:MyAttention", "--lawful-input", "b t 16", *laws)
    result.assert_outcomes(passed=1, failed=1)


def test_invalid_targets_fail(run):
    names = ("nowhere:X", "mine.attention:Attention", "mine.attention:F", "mine.nothing", "collections")
    options = [option for name in names for option in ("--lawful", name)]
    result = run(*options, "--lawful-input", "b 4")
    result.assert_outcomes(failed=5)
    messages = [
        "no module named nowhere*",
        "*did you mean MyAttention?*",
        "*must be a module, a class*",
        "no module named mine.nothing*",
        "collections has no claims*",
    ]
    result.stdout.fnmatch_lines(messages)


def test_a_target_needs_an_input(run):
    result = run("--lawful", "mine.attention:MyAttention")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["MyAttention needs an input*"])


TEST = """
import pytest
from lawful import shape
from lawful.laws import causality
from lawful.testing import assert_lawful
from mine.attention import MyAttention, claims


@pytest.fixture
def masked():
    return MyAttention(True)


@pytest.mark.lawful(causality(time=1), inputs=shape("b t 16"))
def test_marked(masked):
    return masked


@pytest.mark.lawful(causality(time=1), inputs=shape("b t 16"))
def test_marked_and_broken():
    return MyAttention()


@pytest.mark.lawful(causality(time=1), inputs=shape("b t 16"))
def test_marked_without_a_module():
    pass


def test_assert_lawful():
    assert_lawful(MyAttention(), causality(time=1), inputs=shape("b t 16"), cases=10)


def test_inapplicable():
    assert_lawful(lambda x: x.sum(), causality(time=1), inputs=shape("b t 16"), cases=10)
"""


def test_in_a_test_file(run):
    result = run("-v", "--lawful-sarif", "log.sarif", test=TEST)
    assert len(json.loads(Path("log.sarif").read_text())["runs"][0]["results"]) == 5
    result.assert_outcomes(passed=4, failed=6, skipped=1)
    result.stdout.fnmatch_lines_random(
        [
            "test_mine.py::test_claims[[]MyAttention-causality[]] FAILED*",
            "test_mine.py::test_marked PASSED*",
            "test_mine.py::test_marked_and_broken FAILED*",
            "*a test with the marker lawful must return a module*",
            "test_mine.py::test_assert_lawful FAILED*",
            "*inapplicable*causality*",
        ]
    )
    result.stdout.no_fnmatch_line("*lawful/checking*")


def test_claims_that_raise_fail(run):
    Path("mine/broken.py").write_text("def claims():\n    raise RuntimeError('an error in claims')\n    yield\n")
    result = run("--lawful", "mine", "-k", "broken or Masked", "--lawful-sarif", "log.sarif")
    result.assert_outcomes(passed=1, failed=1, deselected=5)
    result.stdout.fnmatch_lines(["claims() of mine.broken raised RuntimeError: an error in claims"])


def test_other_functions_named_claims_are_ignored(run):
    test = "def claims(x):\n    yield x\n\n\ndef test_one():\n    assert list(claims(1)) == [1]\n"
    run(test=test).assert_outcomes(passed=1)


def test_the_plugin_does_not_import_torch():
    line = "import sys, lawful.checking.pytest_plugin; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", line]).returncode == 0
