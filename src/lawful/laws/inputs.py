"""Descriptions of inputs: shapes with drawn sizes, and what their entries are."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import torch
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
    """True for a position that is there, False for one that is masked."""


@dataclass(frozen=True)
class Simplex:
    """Probabilities: not negative, and adding up to one along the last axis."""


@dataclass(frozen=True, eq=False)
class ExampleDomain:
    """What an example shows: its own values, and others of their kind and sign."""

    example: Tensor


@dataclass(frozen=True, eq=False)
class TransformedDomain:
    """What a function makes of real numbers: rotations, positive numbers, permutations."""

    function: Callable[[Tensor], Tensor]


Domain = Reals | TokenDomain | BoolDomain | Simplex | ExampleDomain | TransformedDomain


@dataclass(frozen=True)
class AxisSize:
    """The size of an axis: a letter that is drawn, from `options` if there are any, or a fixed number."""

    letter: str = ""
    number: int = 0
    options: tuple[int, ...] = ()

    def __str__(self) -> str:
        return self.letter or str(self.number)


@dataclass(frozen=True)
class Input:
    """One input tensor: its axes and what its entries are."""

    axes: tuple[AxisSize, ...]
    domain: Domain = Reals()

    def __str__(self) -> str:
        return " ".join(map(str, self.axes))


def _size(word: str, axes: str) -> AxisSize:
    if word.isdigit():
        if int(word) == 0:
            raise ValueError(f"a size is at least 1: got 0 in {axes!r}")
        return AxisSize(number=int(word))
    found = re.fullmatch(r"([A-Za-z_]\w*)(?::(?:(\d+)\.\.(\d+)|(\d+(?:,\d+)*)))?", word)
    if not found:
        raise ValueError(
            f"an axis is a letter, a number, or a letter with sizes (t:8..64 or t:8,16): got {word!r} in {axes!r}"
        )
    letter, low, high, listed = found.groups()
    options = tuple(range(int(low), int(high) + 1)) if low else tuple(map(int, listed.split(","))) if listed else ()
    if (low and not options) or 0 in options:
        raise ValueError(f"the sizes of an axis run upwards from at least 1: got {word!r} in {axes!r}")
    return AxisSize(letter, options=options)


def shape(axes: str) -> Input:
    """Describes an input of real numbers, e.g. `shape("b t 16")`.

    A letter is a size that is drawn, a number is fixed, and a letter that recurs, here or in another input, is
    one size. `t:8..64` bounds the sizes of a letter, `t:8,16,32` lists them.

    Examples:
        >>> print(shape("b t 16"))
        b t 16
        >>> shape("b t:8..10").axes[1].options
        (8, 9, 10)
    """
    return Input(tuple(_size(word, axes) for word in axes.split()))


def tokens(axes: str, vocab_size: int) -> Input:
    """Describes an input of integers from 0 to `vocab_size - 1`, e.g. `tokens("b t", vocab_size=65)`."""
    if vocab_size < 1:
        raise ValueError(f"a vocabulary has at least one token: got vocab_size={vocab_size}")
    return Input(shape(axes).axes, TokenDomain(vocab_size))


def mask(axes: str) -> Input:
    """Describes a boolean input, e.g. `mask("b t")`: True for a position that is there."""
    return Input(shape(axes).axes, BoolDomain())


def probabilities(axes: str) -> Input:
    """Describes an input of probabilities, which add up to one along the last axis, e.g. `probabilities("b 8")`."""
    if not axes.split():
        raise ValueError("probabilities have an axis along which they add up to one: got none")
    return Input(shape(axes).axes, Simplex())


def transformed(function: Callable[[Tensor], Tensor], axes: str) -> Input:
    """Describes what a function makes of real numbers, e.g. `transformed(so3.exp, "b 3")`: rotations, one for each row.

    The axes are those of the real numbers that the function is given.
    """
    return Input(shape(axes).axes, TransformedDomain(function))


def parse(text: str) -> tuple[str, Input]:
    """Reads an input from text: `b t 16`, `tokens(b t, vocab_size=65)`, `mask(b t)`, `probabilities(b 8)`.

    Each may have `name=` before it.

    Returns the name, empty if there is none, and the description.

    Examples:
        >>> name, described = parse("key_mask=mask(b t)")
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
            f"an input reads 'b t 16', 'tokens(b t, vocab_size=65)', 'mask(b t)' or 'probabilities(b 8)': got {text!r}"
        )
    return name or "", shape(body)


def written(described: Input) -> str:
    """Writes a description as Python.

    Examples:
        >>> written(tokens("b t:8,16", vocab_size=65))
        'tokens("b t:8,16", vocab_size=65)'
    """
    axes = " ".join(f"{a}:{','.join(map(str, a.options))}" if a.options else str(a) for a in described.axes)
    domain = described.domain
    if isinstance(domain, TransformedDomain):
        return f'transformed({getattr(domain.function, "__name__", "...")}, "{axes}")'
    if isinstance(domain, TokenDomain):
        return f'tokens("{axes}", vocab_size={domain.vocab_size})'
    kind = "mask" if isinstance(domain, BoolDomain) else "probabilities" if isinstance(domain, Simplex) else "shape"
    return f'{kind}("{axes}")'


def as_input(value: object) -> Input | None:
    """Returns the description that an input already is, or that an example tensor amounts to; else None."""
    if isinstance(value, Input):
        return value
    if isinstance(value, Tensor):
        return Input(tuple(AxisSize(number=n) for n in value.shape), ExampleDomain(torch.clone(value.detach())))
    return None
