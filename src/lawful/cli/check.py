"""`lawful check`, `lawful discover` and `lawful laws`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Table
from rich.text import Text

from lawful._files import write_file
from lawful._names import printable, quote
from lawful.checking.formatting import STATUS_COLORS, report_summary, to_sarif, verdict_details, verdict_line
from lawful.checking.isolation import CheckRequest, CheckResult, run_request
from lawful.checking.verdict import Verdict
from lawful.cli.console import INTERNAL, OPTIONAL_FILE, USAGE, check_output, say

_Repeated = tyro.conf.UseAppendAction[tuple[str, ...]]
_File = Annotated[str | None, OPTIONAL_FILE]

_MAX_CASES, _MAX_SECONDS, _MAX_JOBS = 10**6, 10**6, 256
"""Maximum number of cases per law, seconds per law, and processes."""


@dataclass(frozen=True, kw_only=True)
class SearchFlags:
    """Limits of the search for a counterexample."""

    cases: int = 100
    """Number of cases per law."""
    seed: int = 0
    """Random seed; the same seed gives the same counterexample."""
    timeout: float = 60.0
    """Seconds per law."""

    @property
    def error(self) -> str:
        """The message for an invalid value; empty if all are valid."""
        if not 1 <= self.cases <= _MAX_CASES:
            return f"--cases must be from 1 to {_MAX_CASES:,}, got {self.cases}"
        if not 0 <= self.seed < 2**32:
            return f"--seed must be from 0 to 2^32 - 1, got {self.seed}"
        if not 0 < self.timeout <= _MAX_SECONDS:
            return f"--timeout must be positive and at most {_MAX_SECONDS:,} seconds, got {self.timeout:g}"
        return ""


@dataclass(frozen=True, kw_only=True)
class OutputFlags:
    """Files to write."""

    json: _File = None
    """Write the report as JSON (`-` for standard output)."""
    sarif: _File = None
    """Write failures as SARIF, which GitHub and others show next to the code."""
    script: _File = None
    """Write a standalone script that reproduces the counterexample."""


_CHECK_SEARCH, _DISCOVER_SEARCH, _NO_OUTPUT = SearchFlags(), SearchFlags(cases=30), OutputFlags()


def check(
    target: Annotated[
        str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[TARGET]", help_behavior_hint="(optional)")
    ] = None,
    law: Annotated[_Repeated, tyro.conf.arg(metavar="NAME:key=value")] = (),
    input: Annotated[_Repeated, tyro.conf.arg(metavar='"b t 16"')] = (),
    search: tyro.conf.OmitArgPrefixes[SearchFlags] = _CHECK_SEARCH,
    output: tyro.conf.OmitArgPrefixes[OutputFlags] = _NO_OUTPUT,
    jobs: int = 0,
    debug: tyro.conf.FlagCreatePairsOff[bool] = False,
) -> int:
    """Check whether a module or function satisfies laws, and find the smallest counterexample if not.

    Args:
        target: `package.module:Name` or `file.py:Name`; without `:Name`, all claims of the module. Defaults to lawful.
        law: Law to check, such as `causality:time=1`; `lawful laws` lists them. Defaults to a standard set.
        input: Input: `"b t 16"`, `"tokens(b t, vocab_size=65)"`, `"mask(b t)"`; `"x=b t 16"` for a named input.
        search: Limits of the search.
        output: Files to write.
        jobs: Number of processes for the claims of a module; 0 uses all cores.
        debug: Show tracebacks.
    """
    if error := search.error or _output_error(output.json, output.sarif, output.script):
        say(f"error: {error}")
        return USAGE
    if not 0 <= jobs <= _MAX_JOBS:
        say(f"error: --jobs must be from 0 to {_MAX_JOBS}, got {jobs}")
        return USAGE
    console = Console(stderr=output.json == "-", highlight=False, soft_wrap=True)
    one_process = output.script is not None or (target is not None and ":" in target)
    request = CheckRequest(
        target,
        list(law),
        list(input),
        search.cases,
        search.seed,
        search.timeout,
        output.script,
        num_workers=1 if one_process else jobs or min(8, _num_cores()),
    )
    result = _run_with_progress(request, console, lambda verdict: _print_verdict(verdict, console))
    if output.json:
        _write_json({**result.report.to_json(), "exit_code": result.exit_code, "errors": result.errors}, output.json)
    if output.sarif:
        _write_json(to_sarif(verdict for verdict in result.report if verdict.failed), output.sarif)
    _print_errors(result, console, debug)
    if result.report.verdicts:
        console.print(Text(report_summary(result.report)))
    elif not result.errors:
        say("nothing was checked: the module has no claims")
    return result.exit_code


def discover(
    target: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TARGET")],
    input: Annotated[_Repeated, tyro.conf.arg(metavar='"b t 16"')] = (),
    as_claims: tyro.conf.FlagCreatePairsOff[bool] = False,
    all: tyro.conf.FlagCreatePairsOff[bool] = False,
    search: tyro.conf.OmitArgPrefixes[SearchFlags] = _DISCOVER_SEARCH,
    json: _File = None,
    debug: tyro.conf.FlagCreatePairsOff[bool] = False,
) -> int:
    """Try every law with every axis on a module or function, and report which hold.

    Args:
        target: `package.module:Name` or `file.py:Name`: a class, factory, instance or function.
        input: Input, as in `lawful check`.
        as_claims: Print the laws that hold as Python code for a test file, instead of a table.
        all: Show the counterexample of every refuted law, and why the other laws do not apply.
        search: Limits of the search.
        json: Write the result as JSON (`-` for standard output).
        debug: Show tracebacks.
    """
    if error := search.error or _output_error(json):
        say(f"error: {error}")
        return USAGE
    console = Console(stderr=as_claims or json == "-", highlight=False, soft_wrap=True)
    request = CheckRequest(target, [], list(input), search.cases, search.seed, search.timeout, discover=True)
    result = _run_with_progress(request, console)
    found = result.discovery
    if json and found is not None:
        _write_json({**found.to_json(), "errors": result.errors}, json)
    _print_errors(result, console, debug)
    if found is None or not found.held:
        error = next((v for v in result.report if v.status == "error"), None)
        if error is not None:
            _print_verdict(error, console)
        return result.exit_code or INTERNAL
    if as_claims:
        print(found.claims, end="")
    elif console.is_terminal:
        table = Table.grid(padding=(0, 2))
        for status, law, details in found.rows(all=all):
            style = f"bold {STATUS_COLORS.get(status, 'yellow')}"
            table.add_row(Text(status, style=style), Text(printable(law)), Text(printable(details)))
        console.print(Text(found.heading))
        console.print(table)
    else:
        console.print(Text("\n".join(found.table(all=all).split("\n")[:-1])))
    hint = "" if all or as_claims else " (--all shows the counterexamples)"
    console.print(Text(found.summary + hint))
    return 0


def _output_error(*files: str | None) -> str:
    """Returns why a file cannot be written; empty if all can."""
    try:
        check_output(*files)
    except (ValueError, OSError) as error:
        return str(error)
    return ""


def _num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _run_with_progress(
    request: CheckRequest, console: Console, on_verdict: Callable[[Verdict], None] = lambda verdict: None
) -> CheckResult:
    """Runs a request with a progress bar on a terminal."""
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task("loading", total=None)

        def listen(kind: str, value: Any) -> None:
            if kind == "started":
                bar.update(task, description=escape(quote(value)), completed=0, total=request.cases)
            elif kind == "progress":
                bar.update(task, completed=value)
            elif kind == "verdict":
                on_verdict(value)

        return run_request(request, listen)


def _print_verdict(verdict: Verdict, console: Console) -> None:
    status = Text(f"{verdict.status:<12}", style=f"bold {STATUS_COLORS[verdict.status]}")
    console.print(status + Text(f" {verdict_line(verdict)}"))
    for line in verdict_details(verdict):
        console.print(Text(f"    {line}"))


def _print_errors(result: CheckResult, console: Console, debug: bool) -> None:
    if debug:
        for trace in result.tracebacks:
            console.print(Text(printable(trace)))
    for path in result.scripts:
        console.print(Text(f"wrote {quote(path)}"))
    if message := result.usage_error or result.target_error:
        say(f"error: {message}")
    elif result.internal_error:
        say(f"internal error: {result.internal_error}" + ("" if debug else " (use --debug for the traceback)"))


def _write_json(data: dict[str, Any], path: str) -> None:
    text = json.dumps(data, indent=2, ensure_ascii=False)
    if path == "-":  # JSON escapes only some of the characters that a terminal acts on
        print("".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text))
    else:
        write_file(path, text + "\n")


def laws(
    name: Annotated[
        str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[NAME]", help_behavior_hint="(optional)")
    ] = None,
) -> int:
    """List all laws, or show one: formula, examples and parameters.

    Args:
        name: Law to show. By default, all laws are listed.
    """
    from lawful.checking.targets import UsageError, laws_by_kind, laws_by_name, parse_law

    console = Console(highlight=False, soft_wrap=True)
    if name is None:
        for kind, members in laws_by_kind().items():
            console.print(Text(f"\n{kind}", style="bold"))
            for law_name, known in members.items():
                console.print(Text(f"  {law_name:<35} {known.formula}\n      {known.summary}"))
        return 0
    try:
        known = laws_by_name().get(name) or parse_law(name)
    except UsageError as error:
        say(f"error: {error}")
        return USAGE
    console.print(Text(known.name, style="bold") + Text(f"   {known.formula}"))
    console.print(Text(known.summary))
    for heading in ("Satisfied by", "Broken by"):
        console.print(Text(f"{heading}: {known.doc_section(heading)}"))
    console.print(Text("Parameters:"))
    for key, parameter in known.signature.items():
        default = "required" if parameter.default is parameter.empty else f"default {parameter.default!r}"
        console.print(Text(f"  {key}: {_type_name(parameter.annotation)} ({default})"))
    console.print(Text("  input, output: the input and output that the law is about (default: the first)"))
    console.print(Text(f"  rtol: tolerance relative to the largest entry of the output (default {known.rtol})"))
    return 0


def _type_name(annotation: Any) -> str:
    """Returns an annotation as text, with private aliases spelled out."""
    aliases = {"_Action": "Callable", "_Sample": "Callable", "_Element": "float | str | Callable", "Axis": "axis"}
    aliases["_Names"] = "str | tuple[str, ...]"
    return re.sub(r"\b(?:_\w+|Axis)\b", lambda name: aliases.get(name[0], name[0]), str(annotation))
