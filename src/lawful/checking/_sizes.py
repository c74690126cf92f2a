"""Sizes of the inputs: small ones, the sizes at which blocks and strides end, and the constants of the target.

Many faults appear at one size only: a block that is one too long, or two axes of the same size that broadcast. So the
checker collects the integer constants of a target, and tries them, their neighbors and their multiples.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import CodeType
from typing import Any, Protocol

from torch import nn

from lawful.laws._tree import leaves
from lawful.laws.inputs import AxisSize, ExampleDomain, Input

USUAL_SIZE = 80
"""The largest size of an axis, except in plans."""

_MAX_SIZE, _MAX_ENTRIES = 300, 2**17
"""The largest size of an axis in a plan, and the largest number of entries of an input with otherwise small sizes."""

_MAX_PAIR = 24
"""The largest size that a plan gives to two axes at once."""

_MAX_CONSTANTS, MAX_PLANS = 10, 25
"""The largest number of constants, and of plans."""

_REPEATS = 3
"""Number of repetitions of the most likely plans."""

_TYPICAL_SIZE = 96
"""A size that is tried for any target."""

_SPECIAL_SIZES = (1, 2, 3, 4, 5, 8, 9, 16, 17, 24, 32, 33, 48, 64, 65, 80)
"""Sizes at which blocks, windows and strides begin or end."""

SizePlan = dict[str, int]
"""The sizes of some letters; the others are small."""


class _Choices(Protocol):
    def integer(self, low: int, high: int) -> int: ...

    def choice(self, options: Any) -> Any: ...


def constants_of(target: Any, modules: Iterable[nn.Module], inputs: Any) -> list[int]:
    """Returns the integer constants of a target that may be sizes, the most likely ones first.

    These are the fixed sizes of the inputs, integer attributes of the modules, integers in the code of functions and
    `forward` methods, and sizes of parameters and buffers.
    """
    modules = list(modules)
    found = itertools.chain(
        _described_sizes(inputs),
        (n for module in modules for value in vars(module).values() for n in _integers(value)),
        _integers_in_code(target, modules),
        (n for module in modules for p in (*module.parameters(False), *module.buffers(False)) for n in p.shape),
    )
    sizes = dict.fromkeys(n for n in found if 4 < n <= _MAX_SIZE)
    return list(sizes)[:_MAX_CONSTANTS]


def _integers(value: Any) -> Iterator[int]:
    if isinstance(value, tuple | list):
        yield from (n for n in value if type(n) is int)
    elif type(value) is int:
        yield value


def _described_sizes(inputs: Any) -> Iterator[int]:
    for described in leaves(inputs, Input).values():
        yield from (axis.number for axis in described.axes if not axis.letter)
        if isinstance(described.domain, ExampleDomain):
            yield from described.domain.example.shape


def _integers_in_code(target: Any, modules: Sequence[nn.Module]) -> Iterator[int]:
    """Yields constants, defaults, closed-over integers and globals of functions, except those of PyTorch."""
    forwards = {type(module): (type(module).forward, type(module)) for module in modules}
    pending: list[tuple[Any, type | None]] = [(target, None), *forwards.values()]
    seen: set[int] = set()
    while pending:
        function, owner = pending.pop(0)
        function = inspect.unwrap(getattr(function, "__func__", function)) if callable(function) else function
        code = getattr(function, "__code__", None)
        if code is None or id(code) in seen or (function.__module__ or "").partition(".")[0] == "torch":
            continue
        seen.add(id(code))
        constants, names = _constants_and_names(code)
        cells = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
        used = [function.__globals__.get(name, getattr(owner, name, None)) for name in names]
        for value in (*constants, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            yield from _integers(value)
        for value in (*cells, *used):
            yield from _integers(value)
            if inspect.isfunction(value) and value.__module__ == function.__module__:
                pending.append((value, owner))


def _constants_and_names(code: CodeType) -> tuple[list[Any], list[str]]:
    """Returns the constants and the names in a function and in the functions inside it."""
    constants, names = list(code.co_consts), list(code.co_names)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            more = _constants_and_names(inner)
            constants, names = constants + more[0], names + more[1]
    return constants, names


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def free_letters(inputs: Any) -> dict[str, tuple[int, ...]]:
    """Returns the letters of the inputs with their options; empty options mean any size."""
    letters: dict[str, tuple[int, ...]] = {}
    for described in leaves(inputs, Input).values():
        for axis in described.axes:
            if axis.letter:
                options = letters.get(axis.letter, ())
                letters[axis.letter] = tuple(n for n in axis.options if not options or n in options) or options
    return letters


def size_plans(inputs: Any, constants: Sequence[int], law_letters: Sequence[str]) -> list[SizePlan]:
    """Returns sizes to try, in ascending order: constants of the target, neighbors and multiples, alone and in pairs.

    The most likely plans are repeated, if there are few.

    Args:
        inputs: Descriptions of the inputs.
        constants: Integer constants of the target, the most likely ones first.
        law_letters: Letters of the axes that the law names. They get most of the sizes.
    """
    free = [letter for letter, options in free_letters(inputs).items() if not options]
    if not free:
        return []
    main = [letter for letter in free if letter in law_letters] or free[1:] or free
    others = [letter for letter in free if letter not in main]
    pairs = list(itertools.combinations(free, 2)) or [(letter, letter) for letter in free]
    small, large = [n for n in constants if n <= _MAX_PAIR], [n for n in constants if n > _MAX_PAIR]
    repeated: list[SizePlan] = [
        *({a: n, b: n} for n in small for a, b in pairs),
        *({letter: n} for n in large for letter in main),
        *({letter: 2 * n} for n in large for letter in main),
        *({letter: n + 1} for n in large for letter in main),
        *({letter: n} for n in large for letter in others),
    ]
    single: list[SizePlan] = [
        *({letter: _TYPICAL_SIZE} for letter in free),
        *({letter: m} for n in small for m in (2 * n, n + 1) for letter in main),
        *({letter: 2 * n + 1} for n in large for letter in main),
        *({letter: 2 * n} for n in large for letter in others),
        *({letter: 3 * n} for n in large for letter in main),
        *({letter: n} for n in small for letter in free),
        *({letter: n - 1} for n in constants for letter in main),
    ]
    repeated = [plan for plan in repeated if _is_small_enough(inputs, plan)]
    single = [plan for plan in single if _is_small_enough(inputs, plan)]
    unique = {tuple(plan.items()): plan for plan in (*repeated, *single)}
    found = [*unique.values(), *(_REPEATS * repeated)][:MAX_PLANS]
    return sorted(found, key=lambda plan: sum(plan.values()))


def _is_small_enough(inputs: Any, plan: SizePlan) -> bool:
    """Returns whether all sizes are at most 300, and no input has many entries if the other letters have size 1."""

    def size(axis: AxisSize) -> int:
        return plan.get(axis.letter, min(axis.options, default=1)) if axis.letter else axis.number

    entries = (math.prod(map(size, described.axes)) for described in leaves(inputs, Input).values())
    return max(plan.values()) <= _MAX_SIZE and max(entries) <= _MAX_ENTRIES


def draw_sizes(inputs: Any, draw: _Choices, max_sizes: Mapping[str, int], plan: Mapping[str, int]) -> SizePlan:
    """Draws the sizes of all letters, up to `max_sizes`. Those of the plan are given; or one may be large.

    The others are small.
    """
    letters = free_letters(inputs)
    free = [letter for letter, options in letters.items() if not options]
    longest = special = limit = 0
    if free and not plan:
        longest = draw.integer(0, len(free) - 1) if len(free) > 1 else 0
        limit = (4, 17, USUAL_SIZE)[draw.integer(0, 2)]
        special = draw.integer(0, 1)
    sizes = {}
    for letter, options in letters.items():
        if options:
            options = tuple(n for n in sorted(options) if n <= max_sizes.get(letter, n))
            sizes[letter] = options[draw.integer(0, len(options) - 1)]
            continue
        high = limit if not plan and letter == free[longest] else 4
        high = min(high, max_sizes.get(letter, high))
        if letter in plan:
            sizes[letter] = min(plan[letter], max_sizes.get(letter, plan[letter]))
        elif special:
            sizes[letter] = draw.choice([n for n in _SPECIAL_SIZES if n <= high])
        else:
            sizes[letter] = draw.integer(1, high)
    return sizes
