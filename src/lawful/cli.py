"""The command line: `lawful check` and `lawful laws`."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Table
from rich.text import Text

from lawful.checking.process.parent import Job, Result, run
from lawful.checking.show import COLOURS, details, one_line, summary
from lawful.checking.verdict import Verdict

INTERRUPTED, INTERNAL, USAGE = 2, 3, 4

Repeated = tyro.conf.UseAppendAction[tuple[str, ...]]


def check(
    target: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="TARGET")] = None,
    law: Annotated[Repeated, tyro.conf.arg(metavar="NAME:key=value")] = (),
    input: Annotated[Repeated, tyro.conf.arg(metavar='"b t 16"')] = (),
    cases: int = 100,
    seed: int = 0,
    timeout: float = 60.0,
    json: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None,
    script: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None,
    debug: tyro.conf.FlagCreatePairsOff[bool] = False,
) -> int:
    """Find out whether a module or function keeps the laws that it promises.

    Args:
        target: `package.module:Name` or `path/file.py:Name`: a class, factory, instance or function. Without
            `:Name`, every claim of that module; without a target, every claim of lawful.
        law: A law, such as `causality:time=1`; give it again for another. `lawful laws` lists them.
        input: What the target takes: `"b t 16"`, `"tokens(b t, vocab=65)"`, `"mask(b t)"`, each with `name=`
            before it or not; give it again for another.
        cases: How many cases to try for each law.
        seed: The same seed gives the same counterexample.
        timeout: Seconds after which a law is given up.
        json: Write the report as JSON to this file (`-` for standard output).
        script: Write a standalone script that shows the counterexample to this file.
        debug: Show tracebacks.
    """
    if cases < 1 or timeout <= 0:
        wrong = f"--cases is at least 1: got {cases}" if cases < 1 else f"--timeout is above 0: got {timeout:g}"
        _say(f"error: {wrong}")
        return USAGE
    quiet = json == "-"
    console = Console(stderr=quiet, highlight=False, soft_wrap=True)
    job = Job(target, list(law), list(input), cases, seed, timeout, script)
    result = _watched(job, console)
    if json:
        _write_json(result, json)
    _print_end(result, console, debug)
    return result.exit_code


def _watched(job: Job, console: Console) -> Result:
    """Runs a job, with a progress bar on a terminal, and prints the verdicts as they come."""
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
                print_verdict(value, console)

        return run(job, listen)


def print_verdict(verdict: Verdict, console: Console) -> None:
    """Prints a verdict, its grade in colour on a terminal."""
    line = Text(f"{verdict.grade:<12}", style=f"bold {COLOURS[verdict.grade]}")
    console.print(line + Text(f" {one_line(verdict)}"))
    for detail in details(verdict):
        console.print(Text(f"    {detail}"))


def _print_end(result: Result, console: Console, debug: bool) -> None:
    if debug:
        for trace in result.traces:
            console.print(Text(trace))
    for path in result.scripts:
        console.print(Text(f"wrote {path}"))
    if result.report.verdicts:
        console.print(Text(summary(result.report)))
    if sentence := result.usage or result.failed:
        _say(f"error: {sentence}")
    elif result.internal:
        _say(f"internal error: {result.internal}" + ("" if debug else " (--debug shows where)"))
    elif not result.report.verdicts:
        _say("nothing was checked: there are no claims")


def _write_json(result: Result, path: str) -> None:
    data = result.report.to_json()
    errors = {kind: getattr(result, kind) for kind in ("usage", "failed", "internal") if getattr(result, kind)}
    text = json.dumps({**data, "exit_code": result.exit_code, "errors": errors}, indent=2, ensure_ascii=False)
    if path == "-":
        print(text)
    else:
        Path(path).write_text(text + "\n", encoding="utf-8")


def laws(name: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")] = None) -> int:
    """List the laws; with a name: its formula, who keeps it, who breaks it, and its parameters.

    Args:
        name: A law of the list.
    """
    from lawful.checking.process.targets import UsageError, law, laws_by_name

    console = Console(highlight=False, soft_wrap=True)
    if name is None:
        table = Table.grid(padding=(0, 2))
        for law_name, known in sorted(laws_by_name().items()):
            table.add_row(Text(law_name, style="bold"), Text(known.formula), Text(known.summary))
        console.print(table)
        return 0
    try:
        known = laws_by_name().get(name) or law(name)
    except UsageError as error:
        _say(f"error: {error}")
        return USAGE
    console.print(Text(known.name, style="bold") + Text(f"   {known.formula}"))
    console.print(Text(known.summary))
    for heading in ("Kept by", "Broken by"):
        console.print(Text(f"{heading}: {known.remark(heading)}"))
    console.print(Text("Parameters:"))
    for key, parameter in known.signature.items():
        default = "required" if parameter.default is parameter.empty else f"default {parameter.default!r}"
        console.print(Text(f"  {key}: {parameter.annotation} ({default})"))
    console.print(Text("  input, output: which input and output it speaks of (default: the first)"))
    console.print(Text(f"  within: a relative error to allow for (default {known.within})"))
    return 0


def _say(sentence: str) -> None:
    print(f"lawful: {sentence}", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit code, as pytest's are."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return tyro.extras.subcommand_cli_from_dict(
            {"check": check, "laws": laws},
            prog="lawful",
            description="The building blocks of modern machine learning, each with the laws it obeys.",
            args=given,
        )
    except SystemExit as ended:  # tyro has shown its help, or what is wrong with the arguments
        return 0 if not ended.code else USAGE
    except KeyboardInterrupt:
        _say("interrupted")
        return INTERRUPTED
    except Exception as error:
        _say(f"internal error: {type(error).__name__}: {error}")
        if "--debug" in given:
            traceback.print_exc()
        return INTERNAL


if __name__ == "__main__":
    sys.exit(main())
