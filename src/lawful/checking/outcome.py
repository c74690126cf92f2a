"""What comes of a case: the statement that was made in it, and what was found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from lawful.checking.arguments import MapRaised
from lawful.checking.case import Record
from lawful.checking.numerics import Finding
from lawful.checking.subject import NotContiguous, Setting
from lawful.laws.language import Discard, Inapplicable, Statement


class LawRaised(Exception):
    """The law cannot be stated: with these parameters on these inputs (`usage`), or because it raised."""

    def __init__(self, sentence: str, usage: bool = False) -> None:
        super().__init__(sentence)
        self.usage = usage


Answer = TypeVar("Answer")


def asked(question: Callable[[], Answer]) -> Answer:
    """Tells what goes wrong in the law itself from what goes wrong in the map, or in the judge."""
    try:
        return question()
    except (Discard, Inapplicable, MapRaised, NotContiguous):
        raise
    except ValueError as error:
        raise LawRaised(str(error), usage=True) from error
    except Exception as error:
        raise LawRaised(f"the law itself raised {type(error).__name__}: {error}") from error


@dataclass
class Run:
    """A statement, with the choices and the setting that it was made in."""

    statement: Statement
    record: Record
    setting: Setting
    exercised: bool
    arguments: Any
    names: dict[str, str]
    """The name of every input, by its path."""
    inputs_drawn: int
    """How many of the drawn tensors are inputs; the law drew the others."""
    trained: bool = False
    """Whether any call was made in training mode."""
    several: bool = False
    """Whether the map was called more than once."""
    uneven: bool = False
    """Whether some calls in training mode drew more random numbers than others."""


@dataclass
class Outcome:
    """What a case showed: the finding in the leading precision and the run that it was found in."""

    finding: Finding
    run: Run
