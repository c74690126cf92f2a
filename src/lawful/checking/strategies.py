"""One case: every choice that was made in it, so that it can be run again in another precision or made smaller.

The values that inputs are filled with: the styles that hide bugs, and how tensors lie in memory.
Examples as inputs: what of them varies.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch
from torch import Generator, Tensor

from lawful.checking.compare import RoundingNoise, paused
from lawful.checking.trace import OperationTrace
from lawful.laws._tree import leaves, transform
from lawful.laws.inputs import (
    AxisSize,
    BoolDomain,
    Domain,
    ExampleDomain,
    Input,
    Reals,
    Simplex,
    TokenDomain,
    TransformedDomain,
)
from lawful.laws.interfaces import Draw, RejectCase
from lawful.laws.law import Law

Pick = Callable[[int, int], int]
"""Picks an integer between two bounds, both included."""

SAMPLES = 2000
SPECIAL = (1, 2, 3, 4, 5, 8, 9, 16, 17, 24, 32, 33, 48, 64, 65, 80)
"""Sizes at which blocks, windows and strides begin or end."""
SEEDS = 0x5EED0000
"""Added to the seeds of drawn tensors, which are then independent of what a map draws from the global state."""


@dataclass
class DrawnTensor:
    """A tensor that was drawn, in float64; NaN stands for the entry of the input that it replaces."""

    value: Tensor
    domain: Domain
    replaces: bool = False
    label: str = ""
    shown: Tensor | None = None
    """What it came to: for a replacement the entries that differ from what they replace, NaN elsewhere."""
    dtype: torch.dtype = torch.float64


@dataclass
class CaseRecord:
    """The choices of a case, in order."""

    integers: list[int] = field(default_factory=list)
    tensors: list[DrawnTensor] = field(default_factory=list)
    bindings: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    extreme: bool = False
    observed: dict[str, float] = field(default_factory=dict)


def replay(record: CaseRecord) -> Pick:
    """Picks what was picked before; a choice that no longer fits discards the case."""
    left = iter(record.integers)

    def pick(low: int, high: int) -> int:
        value = next(left, None)
        if value is None or not low <= value <= high:
            raise RejectCase
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
        given: list[DrawnTensor] | None = None,
        noise: RoundingNoise | None = None,
        samples: int = SAMPLES,
        trace: OperationTrace | None = None,
    ) -> None:
        self.pick, self.dtype, self.device, self.given, self.noise = pick, dtype, device, given, noise
        self.samples, self.trace = samples, trace
        self.record = CaseRecord()
        self.domains: list[tuple[Tensor, Domain, Tensor]] = []  # what was given, and the numbers it was made of
        self.build: Callable[[Draw], Any] = lambda draw: ()
        self.labels: dict[int, str] = {}
        self.drawn = 0

    def integer(self, low: int, high: int, name: str = "") -> int:
        if low > high:
            raise RejectCase
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

    def like(self, x: Tensor, where: Tensor | None = None) -> Tensor:
        domain, source = self._origin(x)
        return self._give(domain, tuple(source.shape), keep=x, where=where)

    def _origin(self, x: Tensor) -> tuple[Domain, Tensor]:
        """The domain that a tensor is of, and the real numbers that it was made of, or itself."""
        for known, domain, source in self.domains:
            if known is x:
                return domain, source
        return Reals() if x.is_floating_point() else ExampleDomain(x.detach().cpu()), x.detach()

    def inputs(self) -> tuple[Tensor, ...]:
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
            raise RejectCase
        if self.boolean():
            order = torch.randperm(n, generator=self._generator())
            if torch.equal(order, torch.arange(n)):
                raise RejectCase
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
        chosen = self.integer(0, styles(domain) - 1) if style is None else style
        generator = self._generator()
        if self.given is None:
            value, extreme = fill(domain, shape, chosen, generator)
            self.record.extreme |= extreme
        else:
            value = self._given(shape)
        drawn = DrawnTensor(value, domain, keep is not None)
        self.record.tensors.append(drawn)
        x = value.to(self.device, self.dtype if value.is_floating_point() else value.dtype)
        if self.noise is not None and not isinstance(domain, TransformedDomain):
            x = self.noise.move_input(x)
        if keep is not None and x.is_floating_point():
            x = torch.where(x.isnan(), self._origin(keep)[1], x)
        source = x
        if isinstance(domain, TransformedDomain):
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
            raise RejectCase
        return given[position].value


def draw_sizes(inputs: Any, draw: CaseDraw, most: Mapping[str, int]) -> dict[str, int]:
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
    special = bool(free) and draw.boolean()
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
    sizes = draw_sizes(inputs, draw, most)
    draw.record.sizes = sizes
    return transform(
        inputs,
        lambda _, i: draw.of(i.domain, tuple(sizes[a.letter] if a.letter else a.number for a in i.axes)),
        Input,
    )


Shape = tuple[int, ...]


def _normal(shape: Shape, g: Generator) -> Tensor:
    return torch.randn(shape, generator=g, dtype=torch.float64)


def _positive(shape: Shape, g: Generator) -> Tensor:
    return torch.rand(shape, generator=g, dtype=torch.float64)


def _repeated(shape: Shape, g: Generator) -> Tensor:
    """One slice of the last axis, the same everywhere."""
    return _normal(shape[-1:], g).expand(shape).clone()


def _one_hot(shape: Shape, g: Generator) -> Tensor:
    if not shape:
        return torch.ones((), dtype=torch.float64)
    hot = torch.randint(shape[-1], shape[:-1], generator=g)
    return torch.nn.functional.one_hot(hot, shape[-1]).double()


def _peaky(shape: Shape, g: Generator) -> Tensor:
    """One entry thirty times the others."""
    x = _normal(shape, g)
    x.reshape(-1)[int(torch.randint(max(x.numel(), 1), (1,), generator=g))] *= 30
    return x


def _whole(shape: Shape, g: Generator) -> Tensor:
    """Small whole numbers, with many ties."""
    return torch.randint(-3, 4, shape, generator=g).double()


def _far(shape: Shape, g: Generator) -> Tensor:
    """Far from the origin."""
    return _normal(shape, g) + 50


def _zero_slices(shape: Shape, g: Generator) -> Tensor:
    """Some slices of the last axis zero."""
    x = _normal(shape, g)
    return x * torch.randint(0, 2, (*shape[:-1], 1) if shape else (), generator=g)


def _zero(shape: Shape, g: Generator) -> Tensor:
    return torch.zeros(shape, dtype=torch.float64)


def _level(shape: Shape, g: Generator) -> Tensor:
    """Constant along the last axis."""
    return _normal((*shape[:-1], 1) if shape else (), g).expand(shape).clone()


def _tiny(shape: Shape, g: Generator) -> Tensor:
    return _normal(shape, g) * 1e-6


def _huge(shape: Shape, g: Generator) -> Tensor:
    return _normal(shape, g) * 1e6


ORDINARY = (_normal, _normal, _normal, _positive, _repeated, _one_hot, _peaky, _whole, _far)
EXTREME = (_zero_slices, _zero, _level, _tiny, _huge)
STYLES = ORDINARY + EXTREME


def reals(shape: Shape, style: int, g: Generator) -> tuple[Tensor, bool]:
    """Draws real numbers in a style, and says whether the style is extreme; each fits float32 exactly."""
    return STYLES[style](shape, g).float().double(), style >= len(ORDINARY)


SIMPLEX_STYLES = 5


def simplex(shape: Shape, style: int, g: Generator) -> tuple[Tensor, bool]:
    """Draws probabilities: even, uneven, all but certain, the same everywhere, or (extreme) with zeros."""
    x = _normal(shape, g) * (1.0, 3.0, 10.0, 0.0, 1.0)[style]
    if style == 4:
        x = x.masked_fill((x < 0) & (x < x.amax(-1, keepdim=True)), -torch.inf)
    return x.softmax(-1), style == 4


MASK_STYLES = 4


def bits(shape: Shape, style: int, g: Generator) -> tuple[Tensor, bool]:
    """Draws a mask: all there, a prefix there, any, or (extreme) any with an empty row."""
    x = torch.rand(shape, generator=g)
    if not shape or style == 0:
        return torch.ones(shape, dtype=torch.bool), False
    if style == 1:
        count = torch.randint(1, shape[-1] + 1, (*shape[:-1], 1), generator=g)
        return (torch.arange(shape[-1]) < count).expand(shape).clone(), False
    there = x > 0.4
    if style == 2:
        return there | (x == x.amax(-1, keepdim=True)), False
    rows = there.reshape(-1, shape[-1])
    rows[int(torch.randint(rows.shape[0], (1,), generator=g))] = False
    return rows.reshape(shape), True


def like_example(example: Tensor, shape: Shape, style: int, g: Generator) -> tuple[Tensor, bool]:
    """Draws values as an example has them: itself, cut or repeated to the shape; its entries at random; real
    numbers of its size where it has both signs.
    """
    if example.numel() == 0:
        return example.new_zeros(shape), False
    if example.dtype is torch.bool:
        return bits(shape, style % MASK_STYLES, g)
    flat = example.reshape(-1)
    if style == 0:
        x = example
        for axis, n in enumerate(shape):
            x = x.index_select(axis, torch.arange(n) % x.shape[axis])
        return x.clone(), False
    if not example.is_floating_point() and not example.is_complex():
        low, high = int(flat.min()), int(flat.max())
        return torch.randint(low, high + 1, shape, generator=g).to(example.dtype), False
    if example.is_floating_point() and (flat < 0).any() and (flat > 0).any():
        x, extreme = reals(shape, style, g)
        return x * float(flat.double().std().nan_to_num(1.0) or 1.0), extreme
    return flat[torch.randint(flat.numel(), shape, generator=g)], False


def styles(domain: Domain) -> int:
    """How many styles a domain has."""
    if isinstance(domain, TokenDomain):
        return 1
    if isinstance(domain, Simplex):
        return SIMPLEX_STYLES
    return MASK_STYLES if isinstance(domain, BoolDomain) else len(STYLES)


def fill(domain: Domain, shape: Shape, style: int, g: Generator) -> tuple[Tensor, bool]:
    """Draws the entries of an input, and says whether they are extreme."""
    if isinstance(domain, TokenDomain):
        return torch.randint(domain.vocab_size, shape, generator=g), False
    if isinstance(domain, BoolDomain):
        return bits(shape, style, g)
    if isinstance(domain, Simplex):
        return simplex(shape, style, g)
    if isinstance(domain, ExampleDomain):
        return like_example(domain.example, shape, style, g)
    return reals(shape, style, g)


LAYOUTS = ("contiguous", "transposed", "strided")


def lay(x: Tensor, layout: str) -> Tensor:
    """Returns a copy of `x` that lies otherwise in memory; differentiable."""
    if layout == "transposed" and x.dim() >= 2:
        return x.transpose(-1, -2).clone(memory_format=torch.contiguous_format).transpose(-1, -2)
    if layout == "strided" and x.dim() >= 1:
        return torch.stack([x, x], dim=-1)[..., 0]
    return x.clone()


def describe_inputs(inputs: Any, law: Law) -> tuple[Any, bool]:
    """Makes descriptions of examples: their batch axis and the axes that the law names vary.

    Returns the descriptions and whether any size of an example varies.
    """
    if inputs is None:
        return (), False
    if callable(inputs) and not isinstance(inputs, Input):
        return inputs, False
    if isinstance(inputs, str):
        raise TypeError(f'inputs is a description, an example or a function: write lawful.shape("{inputs}")')
    found = transform(inputs, lambda _, x: Input.from_value(x), (Input, Tensor))
    examples = leaves(inputs, Tensor)
    if not leaves(found, Input) and inputs not in ((), {}):
        raise TypeError(f"inputs is a description, an example or a function of the draw: got {type(inputs).__name__}")
    if not examples:
        return found, False
    first = next(iter(examples.values()))
    varying = (
        {0, *(a % first.dim() for a in law.axes.values() if -first.dim() <= a < first.dim())} if first.dim() else set()
    )

    def vary(path: str, described: Input) -> Input:
        if path not in examples:
            return described
        axes = tuple(
            AxisSize(letter=f"axis{n}") if n in varying and size.number == first.shape[n] else size
            for n, size in enumerate(described.axes)
        )
        return dataclasses.replace(described, axes=axes)

    return transform(found, vary, Input), bool(varying)


def fixed(inputs: Any) -> Any:
    """The same descriptions, with examples in their own sizes."""

    def fix(_: str, described: Input) -> Input:
        if not isinstance(described.domain, ExampleDomain):
            return described
        return dataclasses.replace(described, axes=tuple(AxisSize(number=n) for n in described.domain.example.shape))

    return transform(inputs, fix, Input)
