"""`lawful check`, `lawful discover` and `lawful laws`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Table
from rich.text import Text

from lawful.checking.formatting import COLOURS, details, one_line, summary
from lawful.checking.formatting import sarif as as_sarif
from lawful.checking.isolation import Job, Result, run
from lawful.checking.verdict import Verdict
from lawful.cli.console import INTERNAL, USAGE, say

Repeated = tyro.conf.UseAppendAction[tuple[str, ...]]


File = Annotated[str | None, tyro.conf.arg(metavar="FILE")]


@dataclass(frozen=True, kw_only=True)
class Search:
    """How long to look for a counterexample, and from where."""

    cases: int = 100
    """How many cases to try for each law."""
    seed: int = 0
    """The same seed gives the same counterexample."""
    timeout: float = 60.0
    """Seconds after which a law is given up."""

    @property
    def wrong(self) -> str:
        """What cannot be, or nothing."""
        if self.cases < 1:
            return f"--cases is at least 1: got {self.cases}"
        return f"--timeout is above 0: got {self.timeout:g}" if self.timeout <= 0 else ""


@dataclass(frozen=True, kw_only=True)
class Written:
    """What to write to files."""

    json: File = None
    """Write the report as JSON to this file (`-` for standard output)."""
    sarif: File = None
    """Write what failed as SARIF, which code hosts show beside the code, to this file."""
    script: File = None
    """Write a standalone script that shows the counterexample to this file."""


USUAL, SHORT, NOTHING = Search(), Search(cases=30), Written()


def check(
    target: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="TARGET")] = None,
    law: Annotated[Repeated, tyro.conf.arg(metavar="NAME:key=value")] = (),
    input: Annotated[Repeated, tyro.conf.arg(metavar='"b t 16"')] = (),
    search: tyro.conf.OmitArgPrefixes[Search] = USUAL,
    written: tyro.conf.OmitArgPrefixes[Written] = NOTHING,
    jobs: int = 0,
    debug: tyro.conf.FlagCreatePairsOff[bool] = False,
) -> int:
    """Find out whether a module or function keeps the laws that it promises.

    Args:
        target: `package.module:Name` or `path/file.py:Name`: a class, factory, instance or function. Without
            `:Name`, every claim of that module; without a target, every claim of lawful.
        law: A law, such as `causality:time=1`; give it again for another. `lawful laws` lists them.
        input: What the target takes: `"b t 16"`, `"tokens(b t, vocab_size=65)"`, `"mask(b t)"`, each with `name=`
            before it or not; give it again for another.
        search: How long to look, and from where.
        written: What to write to files.
        jobs: How many processes share the claims of a module; as many as there are cores unless given.
        debug: Show tracebacks.
    """
    if search.wrong:
        say(f"error: {search.wrong}")
        return USAGE
    console = Console(stderr=written.json == "-", highlight=False, soft_wrap=True)
    one = written.script is not None or (target is not None and ":" in target)
    workers = 1 if one else jobs or min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2)
    limits = search.cases, search.seed, search.timeout
    job = Job(target, list(law), list(input), *limits, written.script, workers=workers)
    result = _watched(job, console, lambda verdict: print_verdict(verdict, console))
    if written.json:
        _write_json({**result.report.to_json(), "exit_code": result.exit_code}, result, written.json)
    if written.sarif:
        _write(as_sarif(verdict for verdict in result.report if verdict.failed), written.sarif)
    _print_end(result, console, debug)
    if result.report.verdicts:
        console.print(Text(summary(result.report)))
    elif not (result.usage or result.failed or result.internal):
        say("nothing was checked: there are no claims")
    return result.exit_code


def discover(
    target: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TARGET")],
    input: Annotated[Repeated, tyro.conf.arg(metavar='"b t 16"')] = (),
    as_claims: tyro.conf.FlagCreatePairsOff[bool] = False,
    search: tyro.conf.OmitArgPrefixes[Search] = SHORT,
    json: File = None,
    debug: tyro.conf.FlagCreatePairsOff[bool] = False,
) -> int:
    """Find out which laws a module or function obeys: every law is tried over every axis it could speak of.

    Args:
        target: `package.module:Name` or `path/file.py:Name`: a class, factory, instance or function.
        input: What the target takes, as for `lawful check`; give it again for another.
        as_claims: Print Python that declares what held, ready for a test file, rather than the table.
        search: How long to look, and from where.
        json: Write what was found as JSON to this file (`-` for standard output).
        debug: Show tracebacks.
    """
    if search.wrong:
        say(f"error: {search.wrong}")
        return USAGE
    console = Console(stderr=as_claims or json == "-", highlight=False, soft_wrap=True)
    limits = search.cases, search.seed, search.timeout
    result = _watched(Job(target, [], list(input), *limits, discover=True), console)
    found = result.discovery
    if json and found is not None:
        _write_json(found.to_json(), result, json)
    _print_end(result, console, debug)
    if found is None or not found.held:
        broken = next((v for v in result.report if v.status == "error"), None)
        if broken is not None:
            print_verdict(broken, console)
        return result.exit_code or INTERNAL
    if as_claims:
        print(found.as_claims(), end="")
        console.print(Text(found.summary))
        return 0
    table = Table.grid(padding=(0, 2))
    for status, stated, said in found.lines():
        table.add_row(Text(status, style=f"bold {COLOURS.get(status, 'yellow')}"), Text(stated), Text(said))
    if console.is_terminal:
        console.print(table)
    else:
        console.print(Text("\n".join(str(found).splitlines()[1:-1])))
    console.print(Text(found.summary))
    return 0


def _watched(job: Job, console: Console, tell: Callable[[Verdict], None] = lambda verdict: None) -> Result:
    """Runs a job, with a progress bar on a terminal, and tells the verdicts as they come."""
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
                bar.update(task, description=escape(value), completed=0, total=job.cases)
            elif kind == "progress":
                bar.update(task, completed=value)
            elif kind == "verdict":
                tell(value)

        return run(job, listen)


def print_verdict(verdict: Verdict, console: Console) -> None:
    """Prints a verdict, its status in colour on a terminal."""
    line = Text(f"{verdict.status:<12}", style=f"bold {COLOURS[verdict.status]}")
    console.print(line + Text(f" {one_line(verdict)}"))
    for detail in details(verdict):
        console.print(Text(f"    {detail}"))


def _print_end(result: Result, console: Console, debug: bool) -> None:
    if debug:
        for trace in result.traces:
            console.print(Text(trace))
    for path in result.scripts:
        console.print(Text(f"wrote {path}"))
    if sentence := result.usage or result.failed:
        say(f"error: {sentence}")
    elif result.internal:
        say(f"internal error: {result.internal}" + ("" if debug else " (--debug shows where)"))


def _write_json(data: dict[str, Any], result: Result, path: str) -> None:
    errors = {kind: getattr(result, kind) for kind in ("usage", "failed", "internal") if getattr(result, kind)}
    _write({**data, "errors": errors}, path)


def _write(data: dict[str, Any], path: str) -> None:
    text = json.dumps(data, indent=2, ensure_ascii=False)
    if path == "-":
        print(text)
    else:
        Path(path).write_text(text + "\n", encoding="utf-8")


def laws(name: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")] = None) -> int:
    """List the laws; with a name: its formula, who keeps it, who breaks it, and its parameters.

    Args:
        name: A law of the list.
    """
    from lawful.checking.targets import UsageError, law, laws_by_kind, laws_by_name

    console = Console(highlight=False, soft_wrap=True)
    if name is None:
        for kind, members in laws_by_kind().items():
            console.print(Text(f"\n{kind}", style="bold"))
            for law_name, known in members.items():
                console.print(Text(f"  {law_name:<35} {known.formula}\n      {known.summary}"))
        return 0
    try:
        known = laws_by_name().get(name) or law(name)
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
        console.print(Text(f"  {key}: {parameter.annotation} ({default})"))
    console.print(Text("  input, output: which input and output it speaks of (default: the first)"))
    console.print(Text(f"  rtol: relative tolerance (default {known.rtol})"))
    return 0
