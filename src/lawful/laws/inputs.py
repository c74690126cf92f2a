"""Descriptions of inputs: shapes with random sizes, and the domain of the entries."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Reals:
    """Real numbers."""


@dataclass(frozen=True)
class TokenDomain:
    """Integers from 0 to `vocab_size - 1`."""

    vocab_size: int


@dataclass(frozen=True)
class BoolDomain:
    """Boolean masks: True for a valid position, False for a masked one."""


@dataclass(frozen=True)
class Simplex:
    """Probabilities: non-negative, with sum 1 along the last axis."""


@dataclass(frozen=True, eq=False)
class ExampleDomain:
    """Values similar to an example tensor: its entries, and others of the same dtype, scale and sign."""

    example: Tensor


@dataclass(frozen=True, eq=False)
class TransformedDomain:
    """Values of a function of real numbers, such as rotations or positive numbers."""

    function: Callable[[Tensor], Tensor]


Domain = Reals | TokenDomain | BoolDomain | Simplex | ExampleDomain | TransformedDomain


@dataclass(frozen=True)
class AxisSize:
    """The size of an axis: a letter with a random size (from `options`, if any), or a fixed number."""

    letter: str = ""
    number: int = 0
    options: tuple[int, ...] = ()

    def __str__(self) -> str:
        return self.letter or str(self.number)


@dataclass(frozen=True)
class Input:
    """Description of one input tensor: its axes and the domain of its entries."""

    axes: tuple[AxisSize, ...]
    domain: Domain = Reals()

    def __str__(self) -> str:
        return " ".join(map(str, self.axes))

    @classmethod
    def parse(cls, text: str) -> tuple[str, Input]:
        """Parses `b t 16`, `tokens(b t, vocab_size=65)`, `mask(b t)` or `probabilities(b 8)`.

        Returns the name (from `name=...`, empty without one) and the description.

        Examples:
            >>> name, described = Input.parse("key_mask=mask(b t)")
            >>> print(name, described)
            key_mask b t
        """
        named = re.fullmatch(r"\s*(?:([A-Za-z_]\w*)\s*=)?\s*(.*?)\s*", text, re.S)
        name, body = named.groups() if named else ("", text)
        if found := re.fullmatch(r"tokens\((.*?),\s*(?:vocab_size\s*=)?\s*(\d+)\s*\)", body):
            return name or "", tokens(found.group(1), int(found.group(2)))
        if found := re.fullmatch(r"(shape|mask|probabilities)\(([^()]*)\)", body):
            kinds = {"shape": shape, "mask": mask, "probabilities": probabilities}
            return name or "", kinds[found.group(1)](found.group(2))
        if not body or "(" in body:
            raise ValueError(
                "expected an input such as 'b t 16', 'tokens(b t, vocab_size=65)', 'mask(b t)' or "
                f"'probabilities(b 8)', got {text!r}"
            )
        return name or "", shape(body)

    def to_python(self) -> str:
        """Returns the description as Python.

        Examples:
            >>> tokens("b t:8,16", vocab_size=65).to_python()
            'tokens("b t:8,16", vocab_size=65)'
        """
        axes = " ".join(f"{a}:{','.join(map(str, a.options))}" if a.options else str(a) for a in self.axes)
        domain = self.domain
        if isinstance(domain, TransformedDomain):
            return f'transformed({getattr(domain.function, "__name__", "...")}, "{axes}")'
        if isinstance(domain, TokenDomain):
            return f'tokens("{axes}", vocab_size={domain.vocab_size})'
        kind = "mask" if isinstance(domain, BoolDomain) else "probabilities" if isinstance(domain, Simplex) else "shape"
        return f'{kind}("{axes}")'

    @classmethod
    def from_value(cls, value: object) -> Input | None:
        """Describes an example tensor; returns a description unchanged, and None for anything else."""
        if isinstance(value, Tensor):
            return cls(tuple(AxisSize(number=n) for n in value.shape), ExampleDomain(value.detach().clone()))
        return value if isinstance(value, Input) else None


def _axis_size(word: str, axes: str) -> AxisSize:
    if word.isdigit():
        if int(word) == 0:
            raise ValueError(f"an axis must have size at least 1, got 0 in {axes!r}")
        return AxisSize(number=int(word))
    found = re.fullmatch(r"([A-Za-z_]\w*)(?::(?:(\d+)\.\.(\d+)|(\d+(?:,\d+)*)))?", word)
    if not found:
        raise ValueError(
            f"expected an axis as a letter, a number, or a letter with sizes (t:8..64 or t:8,16), "
            f"got {word!r} in {axes!r}"
        )
    letter, low, high, listed = found.groups()
    options = tuple(range(int(low), int(high) + 1)) if low else tuple(map(int, listed.split(","))) if listed else ()
    if (low and not options) or 0 in options:
        raise ValueError(f"expected sizes of at least 1 in ascending order, got {word!r} in {axes!r}")
    return AxisSize(letter, options=options)


def shape(axes: str) -> Input:
    """Describes an input of real numbers: `shape("b t 16")`.

    A letter has a random size, a number is a fixed size. The same letter has the same size in all inputs.
    `t:8..64` bounds the size of a letter, `t:8,16,32` lists the options.

    Examples:
        >>> print(shape("b t 16"))
        b t 16
        >>> shape("b t:8..10").axes[1].options
        (8, 9, 10)
    """
    return Input(tuple(_axis_size(word, axes) for word in axes.split()))


def tokens(axes: str, vocab_size: int) -> Input:
    """Describes an input of integers from 0 to `vocab_size - 1`: `tokens("b t", vocab_size=65)`."""
    if vocab_size < 1:
        raise ValueError(f"vocab_size must be at least 1, got {vocab_size}")
    return Input(shape(axes).axes, TokenDomain(vocab_size))


def mask(axes: str) -> Input:
    """Describes a boolean mask: `mask("b t")`. True is a valid position, False a masked one."""
    return Input(shape(axes).axes, BoolDomain())


def probabilities(axes: str) -> Input:
    """Describes probabilities with sum 1 along the last axis: `probabilities("b 8")`."""
    if not axes.split():
        raise ValueError("probabilities need at least one axis, got none")
    return Input(shape(axes).axes, Simplex())


def transformed(function: Callable[[Tensor], Tensor], axes: str) -> Input:
    """Describes values of a function of real numbers: `transformed(SO3().exp, "b 3")` draws rotations.

    `axes` is the shape of the real numbers that the function receives.
    """
    return Input(shape(axes).axes, TransformedDomain(function))
