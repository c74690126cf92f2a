"""Numerics of the checker: residuals against the noise of rounding, and statistical tests of samples."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from lawful.laws._tree import leaves, transform
from lawful.laws.statements import AtMost, BitwiseEqual, Equal, Finite, FollowsCDF, HasMean, Statement

Deterministic = Equal | AtMost | Finite | BitwiseEqual
"""Statements that are compared entry by entry."""

Statistical = FollowsCDF | HasMean
"""Statements about samples."""

_MIN_NOISE_EPS = 8
"""The noise is at least this many eps of the largest entry."""

_UNDERFLOW = math.sqrt(torch.finfo(torch.float64).tiny)
"""Products of smaller numbers underflow, so that the noise is at least this."""

REFUTE_RATIO = 100
"""A residual refutes a law if it is more than this many times the noise."""


@dataclass(frozen=True)
class Finding:
    """The worst entry of a statement."""

    kind: str = "held"
    output: int = 0
    index: tuple[int, ...] = ()
    left: float = math.nan
    right: float = math.nan
    residual: float = 0.0
    scale: float = 0.0
    """Largest absolute entry of this output."""
    largest: float = 0.0
    """Largest scale of all outputs."""
    noise: float = 0.0
    dtype: torch.dtype = torch.float64
    compared: int = 0
    """Number of entries compared."""
    reason: str = ""
    name: str = ""
    cause: str = ""

    @property
    def noise_ratio(self) -> float:
        """The residual divided by the noise."""
        return self.residual / self.noise if self.noise else (math.inf if self.residual else 0.0)

    @property
    def failed(self) -> bool:
        return self.kind != "held"


@dataclass
class _Sides:
    """The two sides of a comparison in float64, and masks of the entries to compare (None for all)."""

    left: list[Tensor] = field(default_factory=list)
    right: list[Tensor] = field(default_factory=list)
    where: list[Tensor | None] = field(default_factory=list)
    mismatch: str = ""
    """Message about different shapes; empty if they agree."""


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _as_list(values: Tensor | Sequence[Tensor]) -> list[Tensor]:
    return [values] if isinstance(values, Tensor) else list(values)


def _to_float64(x: Tensor) -> Tensor:
    """Converts to float64 on the CPU; a complex number becomes two real ones."""
    x = x.detach()
    return (torch.view_as_real(x) if x.is_complex() else x).to("cpu", torch.float64)


def _sides(statement: Equal | AtMost) -> _Sides:
    left, right = _as_list(statement.left), _as_list(statement.right)
    if len(left) != len(right):
        return _Sides(mismatch=f"{len(left)} tensors on the left, {len(right)} on the right")
    found = _Sides()
    for a, b in zip(left, right, strict=True):
        if a.shape != b.shape:
            return _Sides(mismatch=f"the left side has shape {tuple(a.shape)}, the right side {tuple(b.shape)}")
        if a.is_complex() or b.is_complex():
            a, b = a.to(torch.complex128), b.to(torch.complex128)
        where = statement.where(a) if callable(statement.where) else statement.where
        if where is not None:
            where = where.cpu().expand(a.shape)
            where = where[..., None].expand(*a.shape, 2) if a.is_complex() else where
        found.where.append(where)
        found.left.append(_to_float64(a))
        found.right.append(_to_float64(b))
    return found


def judge(
    statement: Deterministic, dtype: torch.dtype, rtol: float = 0.0, noises: Sequence[float] | None = None
) -> Finding:
    """Finds the worst entry of a statement, and whether its residual is more than rounding.

    Args:
        dtype: Effective precision of the map.
        rtol: Tolerance of the law relative to the largest entry.
        noises: Measured noise of each output. Without it only a floor of a few eps is known.
    """

    def base(n: int) -> Finding:
        names = [] if isinstance(statement, Finite) else statement.names
        causes = statement.causes if isinstance(statement, Equal) else ()
        return Finding(dtype=dtype, output=n, name=names[n] if names else "", cause=causes[n] if causes else "")

    if isinstance(statement, Finite):
        return _worst([_judge_finite(x, base(n)) for n, x in enumerate(_as_list(statement.value))])
    if isinstance(statement, BitwiseEqual):
        pairs = zip(_as_list(statement.before), _as_list(statement.after), strict=True)
        return _worst([_judge_bits(a, b, base(n)) for n, (a, b) in enumerate(pairs)])
    sides = _sides(statement)
    if sides.mismatch:
        return Finding("shapes differ", reason=sides.mismatch)
    return _worst(
        [
            _judge_sides(statement, pair, base(n), rtol, noises[n] if noises else 0.0)
            for n, pair in enumerate(zip(sides.left, sides.right, sides.where, strict=True))
        ]
    )


def _worst(found: list[Finding]) -> Finding:
    if not found:
        return Finding()
    if len(found) == 1:
        return found[0]
    worst = max(found, key=lambda f: (f.failed, f.noise_ratio))
    return replace(worst, compared=sum(f.compared for f in found), largest=max(f.scale for f in found))


def _judge_sides(
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
        return _at_largest(base, "not finite", (~(a.isfinite() & b.isfinite())).double(), a, b)
    difference = (a - b).clamp_min(0) if isinstance(statement, AtMost) else (a - b).abs()
    if isinstance(statement, Equal) and (isinstance(statement.atol, Tensor) or statement.atol):
        difference = (difference - _to_float64(torch.as_tensor(statement.atol))).clamp_min(0)
    ignore_noise = isinstance(statement, AtMost) and statement.ignore_noise
    floor = max(_MIN_NOISE_EPS * torch.finfo(base.dtype).eps * scale, _UNDERFLOW)
    noise = 0.0 if ignore_noise else max(measured, floor)
    residual = float(difference.max())
    allowed = residual <= rtol * scale
    base = Finding(
        output=base.output,
        residual=0.0 if allowed else residual,
        scale=scale,
        largest=scale,
        noise=noise,
        dtype=base.dtype,
        compared=compared,
        name=base.name,
        cause=base.cause,
    )
    if allowed or residual <= REFUTE_RATIO * noise:
        return base
    return _at_largest(base, "exceeds" if isinstance(statement, AtMost) else "differs", difference, a, b)


def _at_largest(base: Finding, kind: str, size: Tensor, a: Tensor, b: Tensor) -> Finding:
    """Returns the finding at the entry where `size` is largest."""
    flat = int(size.reshape(-1).argmax())
    index = tuple(int(i) for i in numpy.unravel_index(flat, size.shape))  # torch.unravel_index imports SymPy
    left, right = float(a.reshape(-1)[flat]), float(b.reshape(-1)[flat])
    return replace(base, kind=kind, index=index, left=left, right=right)


def _judge_finite(x: Tensor, base: Finding) -> Finding:
    x = _to_float64(x)
    bad = ~x.isfinite()
    base = replace(base, compared=x.numel())
    return _at_largest(base, "not finite", bad.double(), x, x) if bad.any() else base


def _judge_bits(before: Tensor, after: Tensor, base: Finding) -> Finding:
    if before.shape != after.shape or before.dtype != after.dtype:
        reason = f"{before.dtype} {tuple(before.shape)} became {after.dtype} {tuple(after.shape)}"
        return replace(base, kind="changed", reason=reason)
    a, b = _to_float64(before), _to_float64(after)
    changed = ~((a == b) | (a.isnan() & b.isnan()))
    base = replace(base, compared=a.numel())
    if not changed.any():
        return base
    size = torch.where(changed, (a - b).abs().nan_to_num(math.inf), -1.0)
    return _at_largest(replace(base, residual=float(size.max())), "changed", size, a, b)


def measure_noise(exact: Statement, perturbed: Statement) -> list[float]:
    """Measures, for each output, how far the residual moves when last bits change.

    The residual of a fault stays, a residual from rounding changes with every bit. If both sides run the same
    arithmetic (`Equal.exact`), the noise is at most the residual after the perturbation: a residual that vanishes is a
    fault at that very point, not rounding.
    """
    if not isinstance(exact, Equal | AtMost) or not isinstance(perturbed, Equal | AtMost):
        return []
    first, second = _sides(exact), _sides(perturbed)
    if first.mismatch or second.mismatch or [a.shape for a in first.left] != [a.shape for a in second.left]:
        return []
    found = []
    for n, where in enumerate(first.where):
        after = second.left[n] - second.right[n]
        change = (after - (first.left[n] - first.right[n])).abs()
        if isinstance(exact, Equal) and exact.exact:
            change = torch.minimum(change, after.abs())
        chosen = change.isfinite() if where is None else where & change.isfinite()
        change = torch.where(chosen, change, 0.0)
        found.append(float(change.max()) if change.numel() else 0.0)
    return found


_LOW_PRECISION = (torch.float32, torch.bfloat16, torch.float16)

aten = torch.ops.aten
_COPIES = (
    *(aten.clone, aten.where, aten.cat, aten.stack, aten.index_select, aten.flip, aten.roll),
    aten._efficientzerotensor,  # the zeros of forward-mode derivatives have no storage
)
"""Operations that copy numbers without rounding."""


@functools.cache
def _rounds(func: Any) -> bool:
    """Returns whether an operation rounds: not a copy, nor a view or an in-place update, whose storage is shared."""
    aliases = any(a.alias_info for a in (*func._schema.arguments, *func._schema.returns))
    return func.overloadpacket not in _COPIES and not aliases


class Pausable:
    """A mode that can be paused."""

    paused = False

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Disables the mode in the context."""
        before, self.paused = self.paused, True
        try:
            yield
        finally:
            self.paused = before


class RoundingNoise(Pausable, TorchDispatchMode):
    """Multiplies the result of every operation by 1 ± eps, and records the lowest precision.

    The eps is the machine epsilon of the dtype that the operation returned. The change of the output is the noise that
    rounding may cause: a module that computes in float32 inside shows float32 noise, and a tie or a branch that
    rounding can flip shows a jump. Nothing about the map has to be known in advance.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)
        self.lowest = torch.float64

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Avoids the import of torch._dynamo, which takes seconds: nothing here is compiled."""
        return False

    def perturb(self, x: Tensor, size: Tensor | None = None, dtype: torch.dtype | None = None) -> Tensor:
        """Returns `x (1 ± eps)` with a random sign for each entry, or `x ± eps size`.

        The eps is the machine epsilon of `dtype`, which defaults to the dtype of `x`.
        """
        eps = torch.finfo(dtype or x.dtype).eps
        step = torch.randint(0, 2, x.shape, generator=self.generator).to(x.device, x.dtype).mul_(2 * eps)
        return x * step.add_(1 - eps) if size is None else x + size * step.sub_(eps)

    def perturb_input(self, x: Tensor) -> Tensor:
        """Perturbs an input, including its zeros (by eps of the largest entry), so that ties of zeros break."""
        if not x.is_floating_point() or not x.numel():
            return x
        with self.pause():
            largest = x.abs().amax()
            return self.perturb(x, torch.where(x == 0, largest if largest > 0 else torch.ones_like(largest), x))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if self.paused:
            return out
        for x in leaves(out).values():
            if x.dtype in _LOW_PRECISION and torch.finfo(x.dtype).eps > torch.finfo(self.lowest).eps:
                self.lowest = x.dtype
        if not _rounds(func):
            return out
        with self.pause():
            return transform(out, lambda _, x: self.perturb(x) if x.is_floating_point() else x)


FIRST_RATE, SECOND_RATE = 1e-3, 1e-6
"""False-alarm rates of the two stages of a statistical test; the second stage has ten times the samples."""

STATISTICAL_FAILURES = ("wrong distribution", "wrong mean")


def judge_samples(statement: Statistical, rate: float = FIRST_RATE) -> Finding:
    """Tests samples at a false-alarm rate."""
    if not _to_float64(statement.samples).isfinite().all():
        return Finding("not finite", left=math.nan, right=math.nan, compared=statement.samples.numel())
    return _judge_cdf(statement, rate) if isinstance(statement, FollowsCDF) else _judge_mean(statement, rate)


def _judge_cdf(statement: FollowsCDF, rate: float) -> Finding:
    r"""Compares the empirical distribution function with the stated one.

    By the Dvoretzky-Kiefer-Wolfowitz inequality the largest distance exceeds $\sqrt{\ln(2/a) / 2n}$ with probability
    at most a, the false-alarm rate.
    """
    x, _ = _to_float64(statement.samples).reshape(-1).sort()
    n = x.numel()
    expected = _to_float64(statement.cdf(x))
    steps = torch.arange(n + 1, dtype=torch.float64) / n
    distance = torch.maximum((steps[1:] - expected).abs(), (expected - steps[:-1]).abs())
    worst = int(distance.argmax())
    residual, bound = float(distance[worst]), math.sqrt(math.log(2 / rate) / (2 * n))
    return Finding(
        STATISTICAL_FAILURES[0] if residual > bound else "held",
        index=(worst,),
        left=float(steps[worst + 1]),
        right=float(expected[worst]),
        residual=residual,
        scale=1.0,
        noise=bound,
        compared=n,
    )


def _judge_mean(statement: HasMean, rate: float) -> Finding:
    r"""Compares the mean of the samples with the stated one.

    The test assumes a normal distribution of the mean with standard deviation $s / \sqrt n$; the quantile is
    increased by a quarter to allow for heavy tails.
    """
    x, mean = _to_float64(statement.samples).reshape(-1), float(statement.mean)
    n = x.numel()
    quantile = 1.25 * NormalDist().inv_cdf(1 - rate / 2)
    bound = quantile * float(x.std()) / math.sqrt(n) + 1e-9 * abs(mean)
    residual = abs(float(x.mean()) - mean)
    return Finding(
        STATISTICAL_FAILURES[1] if residual > bound else "held",
        left=float(x.mean()),
        right=mean,
        residual=residual,
        scale=abs(mean),
        noise=bound,
        compared=n,
    )
