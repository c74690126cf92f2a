"""The pytest plugin: claims, and targets from the command line, become tests.

Importing it does not import PyTorch.
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

from lawful._files import write_file
from lawful.checking.formatting import to_sarif
from lawful.checking.verdict import LawRefuted, Verdict

if TYPE_CHECKING:
    from lawful.laws.law import Claim


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the command-line options."""
    group = parser.getgroup("lawful", "laws of modules")
    group.addoption(
        "--lawful",
        action="append",
        default=[],
        metavar="TARGET",
        help="package with claims, or package.module:Name; needs no test file",
    )
    group.addoption(
        "--lawful-input",
        action="append",
        default=[],
        metavar="INPUT",
        help='input of the target, such as "b t 16" or "mask=mask(b t)"; repeat for more inputs',
    )
    group.addoption(
        "--lawful-law",
        action="append",
        default=[],
        metavar="LAW",
        help="law to check, such as causality:time=1; repeat for more laws (default: a standard set)",
    )
    group.addoption("--lawful-cases", type=int, default=100, metavar="N", help="number of cases per law (default: 100)")
    group.addoption(
        "--lawful-seed",
        type=int,
        default=0,
        metavar="N",
        help="random seed (default: 0)",
    )
    group.addoption("--lawful-sarif", metavar="FILE", help="write failures as SARIF, for code hosts")
    parser.addini("lawful", "packages with claims that become tests", type="args", default=[])


def pytest_configure(config: pytest.Config) -> None:
    """Declares the marker. With a target and no paths, only the target is collected."""
    config.addinivalue_line("markers", "lawful(*laws, inputs=...): the returned module satisfies these laws")
    if config.getoption("--lawful") and config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args = []
    if config.getoption("--lawful-sarif") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_SarifLog(Path(config.getoption("--lawful-sarif"))))


class _SarifLog:
    """Collects failures from all workers, and writes them at the end."""

    def __init__(self, path: Path) -> None:
        self.path, self.failed = path, list[Verdict]()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collects the verdicts of a failed test."""
        if report.when == "call":
            self.failed += [
                Verdict.from_json(json.loads(str(v))) for key, v in report.user_properties if key == "lawful"
            ]

    def pytest_sessionfinish(self) -> None:
        """Writes the SARIF log."""
        text = json.dumps(to_sarif(self.failed), indent=2, ensure_ascii=False)
        write_file(self.path, text + "\n")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Adds a test for each law of each target; targets of the configuration only if no paths are given."""
    everything = config.args_source is not pytest.Config.ArgsSource.ARGS
    targets = [*(config.getini("lawful") if everything else ()), *config.getoption("--lawful")]
    for home in (str(config.rootpath), str(config.invocation_params.dir)) if targets else ():
        if home not in sys.path:
            sys.path.insert(0, home)
    for target in targets:
        parent = _TargetCollector.from_parent(session, name=target, nodeid=target)
        items += parent.collect()


def pytest_pycollect_makeitem(collector: pytest.Module | pytest.Class, name: str, obj: object) -> Any:
    """Turns a function `claims()` in a test file into tests."""
    if name != "claims" or not isinstance(collector, pytest.Module) or not inspect.isfunction(obj):
        return None
    signature = inspect.signature(obj)
    yields = inspect.isgeneratorfunction(obj) or "Claim" in str(signature.return_annotation)
    return list(_items_of_claims(collector, obj)) if yields and not signature.parameters else None


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Checks the module that a test with the marker returns."""
    marker = pyfuncitem.get_closest_marker("lawful")
    if marker is None:
        return None
    from lawful.checking.check import check

    names = inspect.signature(pyfuncitem.obj).parameters
    module = pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
    if module is None:
        pytest.fail("a test with the marker lawful must return a module, got None", pytrace=False)
    failures = check(module, *marker.args, **marker.kwargs).failures
    _attach(pyfuncitem, failures)
    if failures:
        pytest.fail("\n\n".join(map(str, failures)), pytrace=False)
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> None:
    """Attaches the verdicts of a failed test to its report, for the SARIF log."""
    if call.excinfo is not None and isinstance(call.excinfo.value, LawRefuted):
        _attach(item, call.excinfo.value.verdicts)


def _attach(item: pytest.Item, failed: Iterable[Verdict]) -> None:
    if item.config.option.lawful_sarif:
        item.user_properties += [("lawful", json.dumps(verdict.to_json())) for verdict in failed]


class _TargetCollector(pytest.Collector):
    """A package with claims, or a map with laws, from the command line or the configuration."""

    def collect(self) -> list[pytest.Item]:
        """Returns a test for each law. A target that cannot be loaded becomes a failing test."""
        from lawful.checking import targets

        try:
            if ":" in self.name:
                return list(self._items_of_map())
            module = targets.import_target(self.name)
            found = list(targets.find_claims(module))
            if not found:
                raise targets.UsageError(f"{self.name} has no claims: no module in it defines claims()")
            return [item for name, function in found for item in self._items_of_module(name, function)]
        except (targets.UsageError, targets.TargetError) as error:
            return [self._failing_item(self.name, str(error))]

    def _items_of_module(self, name: str, function: Callable[[], Iterable[Claim]]) -> list[pytest.Item]:
        try:
            return list(_items_of_claims(self, function))
        except Exception as error:
            return [self._failing_item(name, f"claims() of {name} raised {type(error).__name__}: {error}")]

    def _failing_item(self, name: str, message: str) -> pytest.Item:
        return _LawItem.from_parent(self, name=f"test_claims[{name}]", error=message)

    def _items_of_map(self) -> Iterator[pytest.Item]:
        from lawful.checking import targets
        from lawful.laws.law import Claim

        options = self.config.option
        label = self.name.rpartition(":")[2]
        laws = [targets.parse_law(text) for text in options.lawful_law]
        inputs = targets.parse_inputs(options.lawful_input)
        if inputs is None:
            raise targets.UsageError(f"{label} needs an input, such as --lawful-input 'b t 16'")
        module, _ = targets.build_target(targets.load_target(self.name), label, options.lawful_seed)
        claims = [Claim(law, module, inputs, label) for law in laws or targets.STANDARD_LAWS]
        yield from _items(self, claims, skip_inapplicable=not laws)


def _items_of_claims(parent: pytest.Collector, function: Callable[[], Iterable[Claim]]) -> Iterator[pytest.Item]:
    """Yields a test for each claim of a `claims()` function."""
    from lawful.checking._module_state import preserve_global_state
    from lawful.checking.check import seeded_claims

    with preserve_global_state():
        claims = list(seeded_claims(function(), parent.config.option.lawful_seed))
    yield from _items(parent, claims)


def _items(parent: pytest.Collector, claims: list[Claim], skip_inapplicable: bool = False) -> Iterator[pytest.Item]:
    """Yields a test for each claim, named after its target and law (with parameters if that is ambiguous)."""
    counts = Counter((claim.label, claim.law.name) for claim in claims)
    taken: Counter[str] = Counter()
    for claim in claims:
        law = claim.law.name if counts[claim.label, claim.law.name] == 1 else str(claim.law)
        name = f"{claim.label}-{law}"
        taken[name] += 1
        number = f"-{taken[name]}" if taken[name] > 1 else ""
        name = f"test_claims[{name}{number}]"
        yield _LawItem.from_parent(parent, name=name, claim=claim, skip_inapplicable=skip_inapplicable)


class _LawItem(pytest.Item):
    """A test of one claim.

    Args:
        claim: The claim.
        skip_inapplicable: Whether a law that does not apply is skipped. Otherwise it fails.
        error: Error message, if there is no claim.
    """

    def __init__(
        self, *, claim: Claim | None = None, skip_inapplicable: bool = False, error: str = "", **options: Any
    ) -> None:
        super().__init__(**options)
        self.claim, self.skip_inapplicable, self.error = claim, skip_inapplicable, error
        self.add_marker("lawful")

    def runtest(self) -> None:
        """Checks the claim."""
        from lawful.checking.check import SearchBudget, judge_law

        if self.claim is None:
            pytest.fail(self.error, pytrace=False)
        options, claim = self.config.option, self.claim
        budget = SearchBudget(options.lawful_cases, options.lawful_seed)
        verdict = judge_law(claim.law, claim.target, claim.inputs, claim.label, budget)
        if verdict.status == "waived" or (self.skip_inapplicable and verdict.status in ("inapplicable", "vacuous")):
            pytest.skip(f"{verdict.status}: {verdict.reason}")
        if verdict.status != "held":
            raise LawRefuted(verdict)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Shows the verdict; other exceptions with their traceback."""
        if isinstance(excinfo.value, LawRefuted):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path | str, int | None, str]:
        """Returns where the target is defined."""
        from lawful.checking.check import source_location

        file, line = source_location(self.claim.target) if self.claim is not None else ("", 0)
        return file or self.path, line or None, self.name
