"""Judging a statement: residuals against the noise of rounding, once for all laws.

Rounding, made visible: every result of every operation is moved in its last bit.

A map is run again with its inputs, its parameters and each intermediate result multiplied by 1 ± eps, the eps of
the type that the operation itself returned. How far the outcome moves is the noise that rounding may cause. A
module that casts to float32 inside shows float32 noise, a tie or a branch that rounding can flip shows a jump,
and neither has to be known beforehand.
Judging statements about samples: chance is allowed for, at a stated rate of false alarms.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from lawful.laws._tree import leaves, transform
from lawful.laws.statements import AtMost, BitwiseEqual, Equal, Finite, FollowsCDF, HasMean, Statement

Deterministic = Equal | AtMost | Finite | BitwiseEqual
"""The statements that are judged entry by entry."""

FEW = 8
"""The noise of an output is never taken below this many eps of its largest entry."""

MARGIN = 100
"""A residual refutes from this many times the noise on."""


@dataclass(frozen=True)
class Finding:
    """What was found in one statement, at its worst entry."""

    kind: str = "held"
    output: int = 0
    index: tuple[int, ...] = ()
    left: float = math.nan
    right: float = math.nan
    residual: float = 0.0
    scale: float = 0.0
    largest: float = 0.0
    """The scale of the largest output beside it."""
    noise: float = 0.0
    dtype: torch.dtype = torch.float64
    compared: int = 0
    reason: str = ""
    name: str = ""
    """What the law calls the output."""

    @property
    def times(self) -> float:
        """The residual as a multiple of the noise."""
        return self.residual / self.noise if self.noise else (math.inf if self.residual else 0.0)

    @property
    def failed(self) -> bool:
        return self.kind != "held"


@dataclass
class Sides:
    """A statement as pairs of tensors in float64, with the entries that it speaks of: None for all of them."""

    left: list[Tensor] = field(default_factory=list)
    right: list[Tensor] = field(default_factory=list)
    where: list[Tensor | None] = field(default_factory=list)
    shapes: str = ""


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _several(values: Tensor | Sequence[Tensor]) -> list[Tensor]:
    return [values] if isinstance(values, Tensor) else list(values)


def real(x: Tensor) -> Tensor:
    """Real numbers in float64; a complex number as two."""
    x = x.detach()
    return (torch.view_as_real(x) if x.is_complex() else x).to("cpu", torch.float64)


def sides(statement: Equal | AtMost) -> Sides:
    """Lays the two sides of a comparison side by side, or says how their shapes disagree."""
    left, right = _several(statement.left), _several(statement.right)
    if len(left) != len(right):
        return Sides(shapes=f"{len(left)} tensors on the left, {len(right)} on the right")
    found = Sides()
    for a, b in zip(left, right, strict=True):
        if a.shape != b.shape:
            return Sides(shapes=f"the left side has shape {tuple(a.shape)}, the right side {tuple(b.shape)}")
        if a.is_complex() or b.is_complex():
            a, b = a.to(torch.complex128), b.to(torch.complex128)
        where = statement.where(a) if callable(statement.where) else statement.where
        if where is not None:
            where = where.cpu().expand(a.shape)
            where = where[..., None].expand(*a.shape, 2) if a.is_complex() else where
        found.where.append(where)
        found.left.append(real(a))
        found.right.append(real(b))
    return found


def judge(
    statement: Deterministic, dtype: torch.dtype, rtol: float = 0.0, noises: Sequence[float] | None = None
) -> Finding:
    """Finds the worst entry of a statement and says whether it is more than rounding.

    Args:
        dtype: The precision that the map effectively works in.
        rtol: An error, relative to the scale of the output, that the law allows for.
        noises: The measured noise of each output; without it only the floor of a few eps is known.
    """

    def base(n: int) -> Finding:
        names = [] if isinstance(statement, Finite) else statement.names
        return Finding(dtype=dtype, output=n, name=names[n] if names else "")

    if isinstance(statement, Finite):
        return _worst([_finite(x, base(n)) for n, x in enumerate(_several(statement.value))])
    if isinstance(statement, BitwiseEqual):
        pairs = zip(_several(statement.before), _several(statement.after), strict=True)
        return _worst([_unchanged(a, b, base(n)) for n, (a, b) in enumerate(pairs)])
    laid = sides(statement)
    if laid.shapes:
        return Finding("shapes differ", reason=laid.shapes)
    return _worst(
        [
            _compare(statement, pair, base(n), rtol, noises[n] if noises else 0.0)
            for n, pair in enumerate(zip(laid.left, laid.right, laid.where, strict=True))
        ]
    )


def _worst(found: list[Finding]) -> Finding:
    if not found:
        return Finding()
    worst = max(found, key=lambda f: (f.failed, f.times))
    return replace(worst, compared=sum(f.compared for f in found), largest=max(f.scale for f in found))


def _compare(
    statement: Equal | AtMost,
    pair: tuple[Tensor, Tensor, Tensor | None],
    base: Finding,
    rtol: float,
    measured: float,
) -> Finding:
    a, b, where = pair
    compared = a.numel() if where is None else int(where.sum())
    if not compared:
        return base
    if where is not None:
        a, b = torch.where(where, a, 0.0), torch.where(where, b, 0.0)
    scale = float(torch.maximum(a.abs().max(), b.abs().max()))
    if not math.isfinite(scale):
        base = replace(base, compared=compared)
        return _at(base, "not finite", (~(a.isfinite() & b.isfinite())).double(), a, b)
    difference = (a - b).clamp_min(0) if isinstance(statement, AtMost) else (a - b).abs()
    if isinstance(statement, Equal) and (isinstance(statement.atol, Tensor) or statement.atol):
        difference = (difference - real(torch.as_tensor(statement.atol))).clamp_min(0)
    bare = isinstance(statement, AtMost) and statement.ignore_noise
    noise = 0.0 if bare else max(measured, FEW * torch.finfo(base.dtype).eps * scale)
    residual = float(difference.max())
    allowed = residual <= rtol * scale
    base = replace(base, compared=compared, scale=scale, noise=noise, residual=0.0 if allowed else residual)
    if allowed or residual <= MARGIN * noise:
        return base
    return _at(base, "exceeds" if isinstance(statement, AtMost) else "differs", difference, a, b)


def _at(base: Finding, kind: str, size: Tensor, a: Tensor, b: Tensor) -> Finding:
    """Points at the entry where `size` is largest."""
    flat = size.reshape(-1).argmax()
    index = tuple(int(i) for i in torch.unravel_index(flat, size.shape))
    left, right = float(a.reshape(-1)[flat]), float(b.reshape(-1)[flat])
    return replace(base, kind=kind, index=index, left=left, right=right)


def _finite(x: Tensor, base: Finding) -> Finding:
    x = real(x)
    bad = ~x.isfinite()
    base = replace(base, compared=x.numel())
    return _at(base, "not finite", bad.double(), x, x) if bad.any() else base


def _unchanged(before: Tensor, after: Tensor, base: Finding) -> Finding:
    if before.shape != after.shape or before.dtype != after.dtype:
        became = f"{before.dtype} {tuple(before.shape)} became {after.dtype} {tuple(after.shape)}"
        return replace(base, kind="changed", reason=became)
    a, b = real(before), real(after)
    changed = ~((a == b) | (a.isnan() & b.isnan()))
    base = replace(base, compared=a.numel())
    if not changed.any():
        return base
    size = torch.where(changed, (a - b).abs().nan_to_num(math.inf), -1.0)
    return _at(replace(base, residual=float(size.max())), "changed", size, a, b)


def noise_between(exact: Statement, moved: Statement) -> list[float]:
    """Measures, for each output, how far the residual moves when last bits do.

    A fault stays where it is; what rounding has made changes with every bit. Where both sides come from the same
    arithmetic, the residual has to be there after the move too: one that is gone was no rounding, but a fault that
    shows at that very point.
    """
    if not isinstance(exact, Equal | AtMost) or not isinstance(moved, Equal | AtMost):
        return []
    first, second = sides(exact), sides(moved)
    if first.shapes or second.shapes or [a.shape for a in first.left] != [a.shape for a in second.left]:
        return []
    found = []
    for n, where in enumerate(first.where):
        after = second.left[n] - second.right[n]
        apart = (after - (first.left[n] - first.right[n])).abs()
        if isinstance(exact, Equal) and exact.exact:
            apart = torch.minimum(apart, after.abs())
        chosen = apart.isfinite() if where is None else where & apart.isfinite()
        apart = torch.where(chosen, apart, 0.0)
        found.append(float(apart.max()) if apart.numel() else 0.0)
    return found


LOW = (torch.float32, torch.bfloat16, torch.float16)


aten = torch.ops.aten
COPIES = (
    *(aten.clone, aten.where, aten.cat, aten.stack, aten.index_select, aten.flip, aten.roll),
    aten._efficientzerotensor,  # the zeros of forward-mode derivatives, which have no storage
)
"""Operations that only put numbers elsewhere, or have none."""


class RoundingNoise(TorchDispatchMode):
    """Moves the result of every operation in its last bit, and notes the lowest precision that it sees."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)
        self.lowest = torch.float64
        self.busy = False

    def move(self, x: Tensor, size: Tensor | None = None, dtype: torch.dtype | None = None) -> Tensor:
        """Returns `x (1 ± eps)`, the sign drawn for each entry; `x ± eps size` if there is a size.

        The eps is that of `x`, or of the type that it was stored in.
        """
        sign = torch.randint(0, 2, x.shape, generator=self.generator).to(x.device, x.dtype) * 2 - 1
        step = sign * torch.finfo(dtype or x.dtype).eps
        return x * (1 + step) if size is None else x + size * step

    def move_input(self, x: Tensor) -> Tensor:
        """Moves an input, its zeros too (as far as the largest entry), so that a tie of zeros is a tie."""
        if not x.is_floating_point() or not x.numel():
            return x
        with paused(self):
            largest = x.abs().amax()
            return self.move(x, torch.where(x == 0, largest if largest > 0 else torch.ones_like(largest), x))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if self.busy:
            return out
        for value in leaves(out).values():
            self._see(value)
        schema = func._schema
        if func.overloadpacket in COPIES or any(a.alias_info for a in (*schema.arguments, *schema.returns)):
            return out  # a copy, a view, or an update in place: nothing was rounded, or its storage is shared
        with paused(self):
            return transform(out, lambda _, x: self.move(x) if x.is_floating_point() else x)

    def _see(self, x: Tensor) -> None:
        if x.dtype in LOW and torch.finfo(x.dtype).eps > torch.finfo(self.lowest).eps:
            self.lowest = x.dtype


@contextmanager
def paused(mode: RoundingNoise) -> Iterator[None]:
    """Lets operations pass as they are."""
    before, mode.busy = mode.busy, True
    try:
        yield
    finally:
        mode.busy = before


Statistical = FollowsCDF | HasMean

FIRST, SECOND = 1e-3, 1e-6
"""The false-alarm rates of the two stages of a statistical judgement; the second has ten times the samples."""

KINDS = ("does not follow", "averages otherwise")
"""How samples fail."""


def judge_samples(statement: Statistical, rate: float = FIRST) -> Finding:
    """Finds out whether samples are as stated, but for what chance does at a rate."""
    if not real(statement.samples).isfinite().all():
        return Finding("not finite", left=math.nan, right=math.nan, compared=statement.samples.numel())
    return follows(statement, rate) if isinstance(statement, FollowsCDF) else averages(statement, rate)


def follows(statement: FollowsCDF, rate: float) -> Finding:
    r"""Compares the empirical distribution function with the stated one.

    By the Dvoretzky-Kiefer-Wolfowitz inequality the largest distance exceeds $\sqrt{\ln(2/a) / 2n}$ with
    probability at most a, the false-alarm rate.
    """
    x, _ = real(statement.samples).reshape(-1).sort()
    n = x.numel()
    expected = real(statement.cdf(x))
    steps = torch.arange(n + 1, dtype=torch.float64) / n
    distance = torch.maximum((steps[1:] - expected).abs(), (expected - steps[:-1]).abs())
    worst = int(distance.argmax())
    residual, bound = float(distance[worst]), math.sqrt(math.log(2 / rate) / (2 * n))
    return Finding(
        KINDS[0] if residual > bound else "held",
        index=(worst,),
        left=float(steps[worst + 1]),
        right=float(expected[worst]),
        residual=residual,
        scale=1.0,
        noise=bound,
        compared=n,
    )


def averages(statement: HasMean, rate: float) -> Finding:
    r"""Compares the mean of the samples with the stated one.

    The mean is taken for normal with the standard deviation $s / \sqrt n$; a quarter is added to the quantile for
    what the tails of the samples do to that.
    """
    x, mean = real(statement.samples).reshape(-1), float(statement.mean)
    n = x.numel()
    quantile = 1.25 * NormalDist().inv_cdf(1 - rate / 2)
    bound = quantile * float(x.std()) / math.sqrt(n) + 1e-9 * abs(mean)
    residual = abs(float(x.mean()) - mean)
    return Finding(
        KINDS[1] if residual > bound else "held",
        left=float(x.mean()),
        right=mean,
        residual=residual,
        scale=abs(mean),
        noise=bound,
        compared=n,
    )
