"""Judging a statement: residuals against the noise of rounding, once for all laws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from lawful.laws.language import AtMost, Finite, Same, Statement, Unchanged

Deterministic = Same | AtMost | Finite | Unchanged
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


def sides(statement: Same | AtMost) -> Sides:
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
    statement: Deterministic, dtype: torch.dtype, within: float = 0.0, noises: Sequence[float] | None = None
) -> Finding:
    """Finds the worst entry of a statement and says whether it is more than rounding.

    Args:
        dtype: The precision that the map effectively works in.
        within: An error, relative to the scale of the output, that the law allows for.
        noises: The measured noise of each output; without it only the floor of a few eps is known.
    """

    def base(n: int) -> Finding:
        names = [] if isinstance(statement, Finite) else statement.names
        return Finding(dtype=dtype, output=n, name=names[n] if names else "")

    if isinstance(statement, Finite):
        return _worst([_finite(x, base(n)) for n, x in enumerate(_several(statement.value))])
    if isinstance(statement, Unchanged):
        pairs = zip(_several(statement.before), _several(statement.after), strict=True)
        return _worst([_unchanged(a, b, base(n)) for n, (a, b) in enumerate(pairs)])
    laid = sides(statement)
    if laid.shapes:
        return Finding("shapes differ", reason=laid.shapes)
    return _worst(
        [
            _compare(statement, pair, base(n), within, noises[n] if noises else 0.0)
            for n, pair in enumerate(zip(laid.left, laid.right, laid.where, strict=True))
        ]
    )


def _worst(found: list[Finding]) -> Finding:
    if not found:
        return Finding()
    worst = max(found, key=lambda f: (f.failed, f.times))
    return replace(worst, compared=sum(f.compared for f in found), largest=max(f.scale for f in found))


def _compare(
    statement: Same | AtMost,
    pair: tuple[Tensor, Tensor, Tensor | None],
    base: Finding,
    within: float,
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
    if isinstance(statement, Same) and (isinstance(statement.slack, Tensor) or statement.slack):
        difference = (difference - real(torch.as_tensor(statement.slack))).clamp_min(0)
    bare = isinstance(statement, AtMost) and statement.bare
    noise = 0.0 if bare else max(measured, FEW * torch.finfo(base.dtype).eps * scale)
    residual = float(difference.max())
    allowed = residual <= within * scale
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
    if not isinstance(exact, Same | AtMost) or not isinstance(moved, Same | AtMost):
        return []
    first, second = sides(exact), sides(moved)
    if first.shapes or second.shapes or [a.shape for a in first.left] != [a.shape for a in second.left]:
        return []
    found = []
    for n, where in enumerate(first.where):
        after = second.left[n] - second.right[n]
        apart = (after - (first.left[n] - first.right[n])).abs()
        if isinstance(exact, Same) and exact.exact:
            apart = torch.minimum(apart, after.abs())
        chosen = apart.isfinite() if where is None else where & apart.isfinite()
        apart = torch.where(chosen, apart, 0.0)
        found.append(float(apart.max()) if apart.numel() else 0.0)
    return found
