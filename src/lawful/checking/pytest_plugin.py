"""The pytest plugin: claims, and targets that are named on the command line, become tests.

Importing it loads no PyTorch: that waits until there is something to check.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lawful.checking.formatting import sarif
from lawful.checking.verdict import LawRefuted, Verdict

if TYPE_CHECKING:
    from lawful.laws.law import Claim


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options."""
    group = parser.getgroup("lawful", "laws that modules keep")
    group.addoption(
        "--lawful",
        action="append",
        default=[],
        metavar="TARGET",
        help="a package, whose claims are checked, or package.module:Name, a map; no test file is needed",
    )
    group.addoption(
        "--lawful-input",
        action="append",
        default=[],
        metavar="INPUT",
        help='what the map takes, such as "b t 16" or "mask=mask(b t)"; give it again for another',
    )
    group.addoption(
        "--lawful-law",
        action="append",
        default=[],
        metavar="LAW",
        help="a law of the map, such as causality:time=1; what any layer should keep, unless given",
    )
    group.addoption("--lawful-cases", type=int, default=100, metavar="N", help="cases for each law (default 100)")
    group.addoption("--lawful-seed", type=int, default=0, metavar="N", help="the same seed, the same counterexample")
    group.addoption("--lawful-sarif", metavar="FILE", help="write what failed as SARIF, for code hosts")
    parser.addini("lawful", "packages whose claims are tests", type="args", default=[])


def pytest_configure(config: pytest.Config) -> None:
    """Declares the marker; with a target and no paths, nothing but the target is collected."""
    config.addinivalue_line("markers", "lawful(*laws, inputs=...): the module that the test returns keeps these laws")
    if config.getoption("--lawful") and config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args = []
    if config.getoption("--lawful-sarif") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(SarifLog(Path(config.getoption("--lawful-sarif"))))


class SarifLog:
    """Gathers what failed, wherever it ran, and writes it in the end."""

    def __init__(self, path: Path) -> None:
        self.path, self.failed = path, list[Verdict]()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keeps the verdicts that a test carries."""
        if report.when == "call":
            self.failed += [
                Verdict.from_json(json.loads(str(v))) for key, v in report.user_properties if key == "lawful"
            ]

    def pytest_sessionfinish(self) -> None:
        """Writes the log."""
        text = json.dumps(sarif(self.failed), indent=2, ensure_ascii=False)
        self.path.write_text(text + "\n", encoding="utf-8")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Adds a test for each law of each target; those of the configuration where no paths are given."""
    everything = config.args_source is not pytest.Config.ArgsSource.ARGS
    targets = [*(config.getini("lawful") if everything else ()), *config.getoption("--lawful")]
    for home in (str(config.rootpath), str(config.invocation_params.dir)) if targets else ():
        if home not in sys.path:
            sys.path.insert(0, home)
    for target in targets:
        parent = Target.from_parent(session, name=target, nodeid=target)
        items += parent.collect()


def pytest_pycollect_makeitem(collector: pytest.Module | pytest.Class, name: str, obj: object) -> Any:
    """Makes tests of a function `claims()` in a test file."""
    if name != "claims" or not isinstance(collector, pytest.Module) or not inspect.isfunction(obj):
        return None
    signature = inspect.signature(obj)
    yields = inspect.isgeneratorfunction(obj) or "Claim" in str(signature.return_annotation)
    return list(_of_claims(collector, obj)) if yields and not signature.parameters else None


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Judges the module that a test with the marker returns."""
    marker = pyfuncitem.get_closest_marker("lawful")
    if marker is None:
        return None
    from lawful.checking.check import check

    names = inspect.signature(pyfuncitem.obj).parameters
    module = pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
    if module is None:
        pytest.fail("a test with the marker lawful returns the module that it is about: got None", pytrace=False)
    wrong = check(module, *marker.args, **marker.kwargs).failures
    _carry(pyfuncitem, wrong)
    if wrong:
        pytest.fail("\n\n".join(map(str, wrong)), pytrace=False)
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> None:
    """Lets a test carry the verdicts that it failed with to where the SARIF log is written."""
    if call.excinfo is not None and isinstance(call.excinfo.value, LawRefuted):
        _carry(item, call.excinfo.value.verdicts)


def _carry(item: pytest.Item, failed: Iterable[Verdict]) -> None:
    if item.config.option.lawful_sarif:
        item.user_properties += [("lawful", json.dumps(verdict.to_json())) for verdict in failed]


class Target(pytest.Collector):
    """A package with claims, or a map with laws, that was named on the command line or in the configuration."""

    def collect(self) -> list[pytest.Item]:
        """Returns a test for each law; a target that cannot be loaded is a test that fails."""
        from lawful.checking import targets

        try:
            if ":" in self.name:
                return list(self._of_map())
            home = targets.import_module(self.name)
            found = list(targets.claims_in(home))
            if not found:
                raise targets.UsageError(f"{self.name} has no claims: a file that defines a block also has claims()")
            return [item for name, function in found for item in self._of_package(name, function)]
        except (targets.UsageError, targets.TargetError) as error:
            return [self._problem(self.name, str(error))]

    def _of_package(self, name: str, function: Callable[[], Iterable[Claim]]) -> list[pytest.Item]:
        try:
            return list(_of_claims(self, function))
        except Exception as error:
            return [self._problem(name, f"claims() of {name} raised {type(error).__name__}: {error}")]

    def _problem(self, name: str, sentence: str) -> pytest.Item:
        return LawItem.from_parent(self, name=f"test_claims[{name}]", problem=sentence)

    def _of_map(self) -> Iterator[pytest.Item]:
        from lawful.checking import targets
        from lawful.laws.law import Claim

        options = self.config.option
        short = self.name.rpartition(":")[2]
        laws = [targets.law(text) for text in options.lawful_law]
        inputs = targets.inputs(options.lawful_input)
        if inputs is None:
            raise targets.UsageError(f"say what {short} takes, as in --lawful-input 'b t 16'")
        module, _ = targets.build(targets.load(self.name), short, options.lawful_seed)
        claims = [Claim(law, module, inputs, short) for law in laws or targets.USUAL]
        yield from _items(self, claims, usual=not laws)


def _of_claims(parent: pytest.Collector, function: Callable[[], Iterable[Claim]]) -> Iterator[pytest.Item]:
    """Makes the tests of a function `claims()`."""
    from lawful.checking.check import seeded
    from lawful.checking.module_state import preserve_global_state

    with preserve_global_state():
        claims = list(seeded(function(), parent.config.option.lawful_seed))
    yield from _items(parent, claims)


def _items(parent: pytest.Collector, claims: list[Claim], usual: bool = False) -> Iterator[pytest.Item]:
    """Makes a test for each claim, called by its map and its law, and by the parameters where that is not enough."""
    often = Counter((claim.label, claim.law.name) for claim in claims)
    taken: Counter[str] = Counter()
    for claim in claims:
        law = claim.law.name if often[claim.label, claim.law.name] == 1 else str(claim.law)
        name = f"{claim.label}-{law}"
        taken[name] += 1
        number = f"-{taken[name]}" if taken[name] > 1 else ""
        yield LawItem.from_parent(parent, name=f"test_claims[{name}{number}]", claim=claim, usual=usual)


class LawItem(pytest.Item):
    """A test that a map keeps a law.

    Args:
        usual: Whether the law is asked of any map, so that it may have nothing to say.
        problem: Why there is nothing to judge.
    """

    def __init__(self, *, claim: Claim | None = None, usual: bool = False, problem: str = "", **options: Any) -> None:
        super().__init__(**options)
        self.claim, self.usual, self.problem = claim, usual, problem
        self.add_marker("lawful")

    def runtest(self) -> None:
        """Judges the law."""
        from lawful.checking.check import SearchBudget, judge_law

        if self.claim is None:
            pytest.fail(self.problem, pytrace=False)
        options, claim = self.config.option, self.claim
        effort = SearchBudget(options.lawful_cases, options.lawful_seed)
        verdict = judge_law(claim.law, claim.target, claim.inputs, claim.label, effort)
        if verdict.status == "waived" or (self.usual and verdict.status in ("inapplicable", "vacuous")):
            pytest.skip(f"{verdict.status}: {verdict.reason}")
        if verdict.status != "held":
            raise LawRefuted(verdict)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The verdict says all there is to say; other exceptions show where they come from."""
        if isinstance(excinfo.value, LawRefuted):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path | str, int | None, str]:
        """Where the map is defined."""
        from lawful.checking.check import place

        file, line = place(self.claim.target) if self.claim is not None else ("", 0)
        return file or self.path, line or None, self.name
