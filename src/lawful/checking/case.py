"""One case: every choice that was made in it, so that it can be run again in another precision or made smaller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from lawful.checking import values
from lawful.checking.noise import LastBit, paused
from lawful.checking.scripts.trace import Trace
from lawful.laws.language import Discard, Draw, Input
from lawful.laws.language.inputs import Domain, Like, Made, Reals, Simplex
from lawful.laws.language.tree import leaves, transform

Pick = Callable[[int, int], int]
"""Picks an integer between two bounds, both included."""

SAMPLES = 2000
SPECIAL = (1, 2, 3, 4, 5, 8, 9, 16, 17, 24, 32, 33, 48, 64, 65, 80)
"""Sizes at which blocks, windows and strides begin or end."""
SEEDS = 0x5EED0000
"""Added to the seeds of drawn tensors, which are then independent of what a map draws from the global state."""


@dataclass
class Drawn:
    """A tensor that was drawn, in float64; NaN stands for the entry of the input that it replaces."""

    value: Tensor
    domain: Domain
    replaces: bool = False
    label: str = ""
    shown: Tensor | None = None
    """What it came to: for a replacement the entries that differ from what they replace, NaN elsewhere."""
    dtype: torch.dtype = torch.float64


@dataclass
class Record:
    """The choices of a case, in order."""

    integers: list[int] = field(default_factory=list)
    tensors: list[Drawn] = field(default_factory=list)
    bindings: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    extreme: bool = False
    observed: dict[str, float] = field(default_factory=dict)


def replay(record: Record) -> Pick:
    """Picks what was picked before; a choice that no longer fits discards the case."""
    left = iter(record.integers)

    def pick(low: int, high: int) -> int:
        value = next(left, None)
        if value is None or not low <= value <= high:
            raise Discard
        return value

    return pick


class CaseDraw(Draw):
    """Draws from a source of integers, and records what it gave.

    Args:
        pick: The source: Hypothesis, or an earlier record.
        dtype: The precision of the run.
        given: The tensors to give in place of those that would be drawn, from an earlier record.
        noise: Moves the last bits of what is given.
    """

    def __init__(
        self,
        pick: Pick,
        dtype: torch.dtype,
        device: torch.device,
        *,
        given: list[Drawn] | None = None,
        noise: LastBit | None = None,
        samples: int = SAMPLES,
        trace: Trace | None = None,
    ) -> None:
        self.pick, self.dtype, self.device, self.given, self.noise = pick, dtype, device, given, noise
        self.samples, self.trace = samples, trace
        self.record = Record()
        self.domains: list[tuple[Tensor, Domain, Tensor]] = []  # what was given, and the numbers it was made of
        self.build: Callable[[Draw], Any] = lambda draw: ()
        self.labels: dict[int, str] = {}
        self.drawn = 0

    def integer(self, low: int, high: int, name: str = "") -> int:
        if low > high:
            raise Discard
        value = self.pick(low, high)
        self.record.integers.append(value)
        if name:
            self.record.bindings[name] = value
        return value

    def choice(self, options: Any, name: str = "") -> Any:
        found = options[self.integer(0, len(options) - 1)]
        if name:
            self.record.bindings[name] = found
        return found

    def observe(self, name: str, value: float) -> None:
        self.record.observed[name] = max(float(value), self.record.observed.get(name, float(value)))

    def normal(self, *shape: int) -> Tensor:
        return self._give(Reals(), shape, style=0)

    def values(self, *shape: int) -> Tensor:
        return self._give(Reals(), shape)

    def of(self, domain: Domain, shape: tuple[int, ...]) -> Tensor:
        """Draws a tensor of a domain, and remembers which it is."""
        return self._give(domain, shape)

    def fresh(self, x: Tensor, where: Tensor | None = None) -> Tensor:
        domain, source = self._origin(x)
        return self._give(domain, tuple(source.shape), keep=x, where=where)

    def _origin(self, x: Tensor) -> tuple[Domain, Tensor]:
        """The domain that a tensor is of, and the real numbers that it was made of, or itself."""
        for known, domain, source in self.domains:
            if known is x:
                return domain, source
        return Reals() if x.is_floating_point() else Like(x.detach().cpu()), x.detach()

    def another(self) -> tuple[Tensor, ...]:
        sizes = dict(self.record.sizes)
        before = len(self.record.tensors)
        found = tuple(leaves(self.build(self)).values())
        self.record.sizes = sizes
        for drawn, name in zip(self.record.tensors[before:], self.labels.values(), strict=False):
            drawn.label = f"another {name}"
        return found

    def permutation(self, n: int) -> Tensor:
        """A shift of some positions, shrinking to a swap of neighbours, then shuffled or not."""
        if n < 2:
            raise Discard
        if self.flag():
            order = torch.randperm(n, generator=self._generator())
            if torch.equal(order, torch.arange(n)):
                raise Discard
        else:
            i = self.integer(0, n - 2)
            order = torch.arange(n)
            order[i], order[i + 1] = i + 1, i
        self.record.bindings["π"] = order.tolist()  # pyrefly: ignore
        return order.to(self.device)

    def _generator(self) -> torch.Generator:
        self.drawn += 1  # so that two tensors of one shape are never the same by their seeds
        return torch.Generator().manual_seed(SEEDS + (self.drawn << 20) + self.integer(0, 2**16))

    def _give(
        self,
        domain: Domain,
        shape: tuple[int, ...],
        style: int | None = None,
        keep: Tensor | None = None,
        where: Tensor | None = None,
    ) -> Tensor:
        if self.trace is None:
            with paused(self.noise) if self.noise is not None else nullcontext():
                return self._make(domain, shape, style, keep, where)
        with self.trace.pause():
            x = self._make(domain, shape, style, keep, where)
            self.trace.suggest(x, self.record.tensors[-1].label or "drawn")
            return x

    def _make(
        self,
        domain: Domain,
        shape: tuple[int, ...],
        style: int | None,
        keep: Tensor | None,
        where: Tensor | None,
    ) -> Tensor:
        chosen = self.integer(0, values.styles(domain) - 1) if style is None else style
        generator = self._generator()
        if self.given is None:
            value, extreme = values.fill(domain, shape, chosen, generator)
            self.record.extreme |= extreme
        else:
            value = self._given(shape)
        drawn = Drawn(value, domain, keep is not None)
        self.record.tensors.append(drawn)
        x = value.to(self.device, self.dtype if value.is_floating_point() else value.dtype)
        if self.noise is not None and not isinstance(domain, Made):
            x = self.noise.move_input(x)
        if keep is not None and x.is_floating_point():
            x = torch.where(x.isnan(), self._origin(keep)[1], x)
        source = x
        if isinstance(domain, Made):
            x = domain.function(x).detach()
            x = x if self.noise is None else self.noise.move_input(x)
        if keep is not None and where is not None:
            x = torch.where(where, x, keep.detach())
            x = x / x.sum(-1, keepdim=True) if isinstance(domain, Simplex) else x
        self.domains.append((x, domain, source))
        drawn.dtype = value.dtype if x.is_floating_point() else x.dtype
        if keep is not None and id(keep) in self.labels:
            drawn.label = self.labels[id(keep)] + "'"
            shown = x.detach() if x.is_complex() else x.detach().double()
            drawn.shown = torch.where(x == keep, torch.nan, shown)
        else:
            drawn.label = "" if keep is None else "drawn"
            drawn.shown = x
        return x

    def _given(self, shape: tuple[int, ...]) -> Tensor:
        position = len(self.record.tensors)
        given = self.given or []
        if position >= len(given) or tuple(given[position].value.shape) != shape:
            raise Discard
        return given[position].value


def sized(inputs: Any, draw: CaseDraw, most: Mapping[str, int]) -> dict[str, int]:
    """Draws the sizes of all letters, up to those in `most`: one of them may be long, the others are small."""
    letters: dict[str, tuple[int, ...]] = {}
    for described in leaves(inputs, Input).values():
        for axis in described.axes:
            if axis.letter:
                options = letters.get(axis.letter, ())
                letters[axis.letter] = tuple(n for n in axis.options if not options or n in options) or options
    free = [letter for letter, options in letters.items() if not options]
    longest = draw.integer(0, len(free) - 1) if len(free) > 1 else 0
    reach = (4, 17, 80)[draw.integer(0, 2)] if free else 0
    special = bool(free) and draw.flag()
    sizes = {}
    for letter, options in letters.items():
        if options:
            options = tuple(n for n in sorted(options) if n <= most.get(letter, n))
            sizes[letter] = options[draw.integer(0, len(options) - 1)]
        else:
            high = reach if letter == free[longest] else 4
            high = min(high, most.get(letter, high))
            likely = [n for n in SPECIAL if n <= high]
            sizes[letter] = draw.choice(likely) if special else draw.integer(1, high)
    return sizes


def build(inputs: Any, draw: CaseDraw, most: Mapping[str, int] = MappingProxyType({})) -> Any:
    """Draws the inputs: of a description, in sizes up to `most`, or by calling a function of the draw."""
    if callable(inputs) and not isinstance(inputs, Input):
        made = inputs(draw)
        return transform(made, lambda _, x: x.to(draw.device, draw.dtype if x.is_floating_point() else x.dtype))
    sizes = sized(inputs, draw, most)
    draw.record.sizes = sizes
    return transform(
        inputs,
        lambda _, i: draw.of(i.domain, tuple(sizes[a.letter] if a.letter else a.number for a in i.axes)),
        Input,
    )
