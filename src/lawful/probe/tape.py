"""The tape: what a recorder has kept, by name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor


def near(name: str, known: Iterable[str]) -> str:
    """Ends a sentence about a name that is not there with the known names most like it.

    Args:
        name: What was asked for.
        known: What there is.

    Examples:
        >>> near("layers.0.patern", ["layers.0.pattern", "norm", "head"])
        '; near names: layers.0.pattern'
    """
    known = list(dict.fromkeys(known))
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    last = name.rpartition(".")[2]
    close += [k for k in known if k.rpartition(".")[2] == last and k not in close][: 3 - len(close)]
    return f"; near names: {', '.join(close)}" if close else ""


class Pattern:
    """A name in which `*` stands for any characters and `?` for any one.

    Args:
        text: The name.

    Examples:
        >>> Pattern("layers.*.pattern").fits("layers.0.block.pattern"), Pattern("z").fits("layers.0.z")
        (True, False)
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.plain = not set(text) & {"*", "?"}
        parts = ({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in text)
        self._fits = re.compile("".join(parts), re.S).fullmatch

    def fits(self, name: str) -> bool:
        """Says whether a name is one of those meant."""
        return self._fits(name) is not None


class Tape(Mapping[str, Any]):
    """Holds the values that were asked for, in the order in which they first came up.

    `tape["layers.0.block.pattern"]` is a value; `tape.names` are the names of all that could have been asked for.
    Values are kept as they are, with their gradients and without a copy; one that was changed in place since is an
    error.

    Examples:
        >>> tape = Tape()
        >>> tape.keep("a", torch.tensor([1.0]))
        >>> list(tape), tape["a"]
        (['a'], tensor([1.]))
    """

    def __init__(self) -> None:
        self._kept: dict[str, list[tuple[Any, int | None]]] = {}
        self._names: dict[str, None] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of everything that came up while recording, kept or not."""
        return tuple(self._names)

    def note(self, name: str) -> None:
        """Remembers that a name came up."""
        self._names[name] = None

    def keep(self, name: str, value: Any) -> None:
        """Keeps a value, after those that the name had before."""
        self.note(name)
        self._kept.setdefault(name, []).append((value, _version(value)))

    def calls(self, name: str) -> list[Any]:
        """Returns the values of a name, one for each time that it came up.

        Args:
            name: What the value is called.
        """
        if name not in self._kept:
            raise KeyError(f"{name} was not recorded{near(name, self._names)}")
        for value, version in self._kept[name]:
            if _version(value) != version:
                raise RuntimeError(f"{name} was changed in place after it was recorded: record a copy, or edit it")
        return [value for value, _ in self._kept[name]]

    def __getitem__(self, name: str) -> Any:
        values = self.calls(name)
        if len(values) > 1:
            raise LookupError(f"{name} came up {len(values)} times: take one of tape.calls({name!r})")
        return values[0]

    def __contains__(self, name: object) -> bool:
        return name in self._kept

    def __iter__(self) -> Iterator[str]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def tensor(self, name: str) -> Tensor:
        """Returns a value that is a tensor, or the first entry of one that is a tuple.

        Args:
            name: What the value is called.
        """
        value = self[name]
        return value[0] if isinstance(value, tuple) else value

    def stack(self, pattern: str) -> Tensor:
        """Returns the values of all names of a pattern, which are of one shape, along a new first axis.

        Args:
            pattern: The names, with `*` and `?`.
        """
        found = [self[name] for name in self if Pattern(pattern).fits(name)]
        if not found:
            raise KeyError(f"{pattern} was not recorded{near(pattern, self._names)}")
        return torch.stack(found)

    def __repr__(self) -> str:
        shown = (f"{name}: {_shown(values[-1][0])}" for name, values in self._kept.items())
        return f"Tape({', '.join(shown)})"


def _version(value: Any) -> int | None:
    """How often a tensor has been changed in place, where that is counted."""
    return value._version if isinstance(value, Tensor) and not value.is_inference() else None


def _shown(value: Any) -> str:
    return str(tuple(value.shape)) if isinstance(value, Tensor) else type(value).__name__
