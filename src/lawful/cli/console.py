"""Messages, exit codes and option formats of the commands."""

from __future__ import annotations

import os
import sys
import typing
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import Any

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from lawful._files import write_file
from lawful._names import printable, quote

FAILED, INTERRUPTED, INTERNAL, USAGE = 1, 2, 3, 4
"""Exit codes: the task failed; Ctrl-C or a reader that has left; a bug in lawful; invalid arguments or data."""
OPTIONAL = tyro.conf.arg(help_behavior_hint="(optional)")
OPTIONAL_FILE = tyro.conf.arg(metavar="FILE", help_behavior_hint="(optional)")
"""Show "(optional)" in the help of an option whose default is None."""


def say(message: str) -> None:
    """Prints a message to standard error."""
    print(f"lawful: {printable(message)}", file=sys.stderr)


def note(message: str) -> None:
    """Prints a result of a command to standard error, without the name of the program."""
    print(printable(message), file=sys.stderr)


def write_output(text: str, file: str = "-") -> None:
    """Writes to a file or, for `-`, to standard output; a closed pipe is not an error."""
    if file != "-":
        write_file(file, text)
        return
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()


def check_output(*files: str | None) -> None:
    """Raises a ValueError if a file cannot be written, before the work whose result it is for.

    Args:
        files: Files; `-` and None are standard output.
    """
    for file in files:
        if file is None or file == "-":
            continue
        path = Path(file)
        if path.is_dir():
            raise ValueError(f"cannot write {quote(file)}: it is a folder, expected a file")
        if not path.resolve().parent.is_dir():
            raise ValueError(f"cannot write {quote(file)}: there is no folder {quote(path.parent)}")
        if not os.access(path if path.exists() else path.resolve().parent, os.W_OK):
            raise ValueError(f"cannot write {quote(file)}: permission denied")


def discard_output() -> None:
    """Sends all further output to the null device, for a reader that has closed the pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def optional_values() -> ConstructorRegistry:
    """Shows an optional value as `INT`, not as `{None}|INT`."""
    registry = ConstructorRegistry()

    @registry.primitive_rule
    def optional(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        kinds = typing.get_args(info.type)
        inner = [kind for kind in kinds if kind is not NoneType]
        if NoneType not in kinds or len(inner) != 1:
            return None
        spec = registry.get_primitive_spec(PrimitiveTypeInfo.make(inner[0], info.markers))
        if not isinstance(spec, PrimitiveConstructorSpec):
            return None
        return replace(
            spec,
            is_instance=lambda value: value is None or spec.is_instance(value),
            str_from_instance=lambda value: ["auto"] if value is None else spec.str_from_instance(value),
        )

    return registry
