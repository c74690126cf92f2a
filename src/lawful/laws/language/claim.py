"""A claim: a law tied to a map, where the map lives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lawful.laws.language.law import Law


@dataclass(frozen=True, eq=False)
class Claim:
    """Says that `subject`, a module or function, keeps `law` on `inputs`.

    A file that defines a block also defines `claims()`, a generator of these; the tests, the command line and
    the documents read it there.
    """

    law: Law
    subject: Callable[..., Any]
    inputs: Any = None
    name: str = ""

    @property
    def label(self) -> str:
        """The claim's name, or that of its subject."""
        return self.name or getattr(self.subject, "__name__", type(self.subject).__name__)
