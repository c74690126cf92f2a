"""What the commands say, and the codes that they end with."""

from __future__ import annotations

import sys

FAILED, INTERRUPTED, INTERNAL, USAGE = 1, 2, 3, 4
"""What was asked for did not come out; Ctrl-C; a fault of ours; a fault of the arguments."""


def say(sentence: str) -> None:
    """Says what went wrong."""
    print(f"lawful: {sentence}", file=sys.stderr)
