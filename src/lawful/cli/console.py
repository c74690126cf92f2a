"""Messages and exit codes of the commands."""

from __future__ import annotations

import os
import sys

FAILED, INTERRUPTED, INTERNAL, USAGE = 1, 2, 3, 4
"""Exit codes: the task failed; Ctrl-C; a bug in lawful; invalid arguments."""


def say(message: str) -> None:
    """Prints a message to standard error."""
    print(f"lawful: {message}", file=sys.stderr)


def write_output(text: str) -> None:
    """Writes to standard output; a closed pipe is not an error."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
