"""SO(3): accuracy and speed of exp and log, against six libraries.

Run `python benchmarks/so3.py`. Libraries that are not installed are listed as such. The first table is the largest
entry of |exp(log R) - R| over 2,000 axes, for R computed in float64. The second is the largest error of derivatives in
float64: of exp at 0 and at a vector of norm 1e-9, against the matrix exponential, and of log at the identity, along the
group. The third is the CPU time for 10,000 rotations in float32, libraries interleaved, on one thread: medians, ranges
and ratios.
"""

from __future__ import annotations

import importlib
import os
import statistics
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from math import pi
from typing import NamedTuple

import torch
from torch import Tensor

from lawful.groups import SO3

BATCH, AXES, ROUNDS = 10_000, 2_000, 21
CELLS = [
    (torch.float32, "1e-4", 1e-4),
    (torch.float32, "pi-1e-2", pi - 1e-2),
    (torch.float32, "pi", pi),
    (torch.float64, "1e-6", 1e-6),
    (torch.float64, "pi-1e-2", pi - 1e-2),
    (torch.float64, "pi-1e-6", pi - 1e-6),
    (torch.float64, "pi", pi),
]


class Library(NamedTuple):
    """The maps of a library from rotation vectors to matrices, and back."""

    name: str
    exp: Callable[[Tensor], Tensor]
    log: Callable[[Tensor], Tensor]


def _lawful() -> Library:
    return Library("lawful", SO3().exp, SO3().log)


def _roma() -> Library:
    roma = importlib.import_module("roma")
    return Library("roma", roma.rotvec_to_rotmat, roma.rotmat_to_rotvec)


def _pypose() -> Library:
    pypose = importlib.import_module("pypose")
    return Library(
        "pypose",
        lambda v: pypose.so3(v).Exp().matrix(),
        lambda r: pypose.mat2SO3(r, check=False).Log().tensor(),
    )


def _kornia() -> Library:
    conversions = importlib.import_module("kornia.geometry.conversions")
    return Library("kornia", conversions.axis_angle_to_rotation_matrix, conversions.rotation_matrix_to_axis_angle)


def _torchlie() -> Library:
    group = importlib.import_module("torchlie.functional").SO3
    return Library("torchlie", group.exp, group.log)


def _e3nn() -> Library:
    o3 = importlib.import_module("e3nn.o3")

    def log(r: Tensor) -> Tensor:
        axis, angle = o3.matrix_to_axis_angle(r)
        return axis * angle[..., None]

    def exp(v: Tensor) -> Tensor:
        return o3.axis_angle_to_matrix(torch.nn.functional.normalize(v, dim=-1), v.norm(dim=-1))

    return Library("e3nn", exp, log)


def _geomstats() -> Library:
    os.environ["GEOMSTATS_BACKEND"] = "pytorch"
    backend = importlib.import_module("geomstats.backend")
    group = importlib.import_module("geomstats.geometry.special_orthogonal").SpecialOrthogonal(3, point_type="vector")

    def with_dtype_of_input(f: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        def call(x: Tensor) -> Tensor:
            backend.set_default_dtype(str(x.dtype).removeprefix("torch."))
            try:
                return f(x)
            finally:
                backend.set_default_dtype("float64")
                torch.set_default_dtype(torch.float32)

        return call

    return Library(
        "geomstats",
        with_dtype_of_input(group.matrix_from_rotation_vector),
        with_dtype_of_input(group.rotation_vector_from_matrix),
    )


PEERS = (_roma, _pypose, _kornia, _torchlie, _e3nn, _geomstats)


def skew(v: Tensor) -> Tensor:
    zero = torch.zeros_like(v[..., 0])
    x, y, z = v.unbind(-1)
    return torch.stack([zero, -z, y, z, zero, -x, -y, x, zero], -1).unflatten(-1, (3, 3))


def axes() -> Tensor:
    normal = torch.randn(AXES, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return torch.nn.functional.normalize(normal, dim=-1)


def rotations(angle: float) -> Tensor:
    """Returns rotations by an angle about random axes, in float64."""
    a, t = axes(), torch.tensor(angle, dtype=torch.float64)
    return (
        t.cos() * torch.eye(3, dtype=a.dtype)
        + t.sin() * skew(a)
        + 2 * (t / 2).sin() ** 2 * a[:, :, None] * a[:, None, :]
    )


def jacobian(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Returns the Jacobian by double-differentiable backpropagation, one row per output."""
    x = x if x.requires_grad else x.clone().requires_grad_()
    rows = [
        torch.autograd.grad(y, x, create_graph=True, allow_unused=True)[0] if y.requires_grad else None
        for y in f(x[None])[0].reshape(-1)
    ]
    return torch.stack([torch.zeros_like(x) if row is None else row for row in rows])


def hessian(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    return torch.stack([jacobian(lambda z, n=n: jacobian(f, z[0])[n][None], x) for n in range(9)]).detach()


def largest_error(error: Tensor) -> str:
    return "NaN" if error.isnan().any() else f"{error.abs().max().item():.0e}"


def cell(compute: Callable[[], str]) -> str:
    """Returns a measurement, or the name of the exception that the library raised."""
    try:
        return compute()
    except Exception as error:
        return type(error).__name__


def round_trips(library: Library) -> list[str]:
    def error(dtype: torch.dtype, angle: float) -> str:
        r = rotations(angle).to(dtype)
        return largest_error(library.exp(library.log(r)) - r)

    return [cell(lambda dtype=dtype, angle=angle: error(dtype, angle)) for dtype, _, angle in CELLS]


def derivatives(library: Library) -> list[str]:
    zero, tiny = torch.zeros(3, dtype=torch.float64), 1e-9 * axes()[0]
    truth = lambda v: torch.linalg.matrix_exp(skew(v))  # noqa: E731
    generators = skew(torch.eye(3, dtype=torch.float64)).reshape(3, 9)

    def along_group() -> str:
        slope = jacobian(library.log, torch.eye(3, dtype=torch.float64)).reshape(3, 9).detach()
        return largest_error(slope @ generators.T - torch.eye(3))

    return [
        *(
            cell(lambda v=v: largest_error((jacobian(library.exp, v) - jacobian(truth, v)).detach()))
            for v in (zero, tiny)
        ),
        *(cell(lambda v=v: largest_error(hessian(library.exp, v) - hessian(truth, v))) for v in (zero, tiny)),
        cell(along_group),
    ]


def seconds(f: Callable[[Tensor], Tensor], x: Tensor, *, backward: bool) -> float:
    x = x.clone().requires_grad_(backward)
    start = time.process_time()
    y = f(x)
    if backward:
        y.sum().backward()
    return time.process_time() - start


def speed(libraries: list[Library]) -> None:
    """Measures all libraries, interleaved."""
    v = torch.randn(BATCH, 3, generator=torch.Generator().manual_seed(1))
    r = SO3().exp(v)
    print("\n| library | exp, ms | exp and backward | log | log and backward | ratios to lawful |")
    print("|---|---|---|---|---|---|")
    jobs = [(kind, backward) for kind in ("exp", "log") for backward in (False, True)]
    timings: dict[tuple[str, str, bool], list[float]] = {}
    for _ in range(ROUNDS):
        for kind, backward in jobs:
            for library in libraries:
                f, x = (library.exp, v) if kind == "exp" else (library.log, r)
                timings.setdefault((library.name, kind, backward), []).append(1e3 * seconds(f, x, backward=backward))
    for library in libraries:
        times = [timings[library.name, *job] for job in jobs]
        ours = [timings["lawful", *job] for job in jobs]
        ratios = [statistics.median(t) / statistics.median(o) for t, o in zip(times, ours, strict=True)]
        cells = [f"{statistics.median(t):.2f} ({min(t):.2f} to {max(t):.2f})" for t in times]
        print(f"| {library.name} | {' | '.join(cells)} | {', '.join(f'{x:.2f}' for x in ratios)} |", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    libraries, missing = [_lawful()], []
    for make in PEERS:
        try:
            libraries.append(make())
        except ImportError:
            missing.append(make.__name__.removeprefix("_"))
    installed = [f"{library.name} {version(library.name)}" for library in libraries[1:]]
    print(f"torch {torch.__version__}, one thread; {', '.join(installed) or 'no peer installed'}")
    print("\n| library |", " | ".join(f"{str(dtype)[6:]} {label}" for dtype, label, _ in CELLS), "|")
    print("|---" * (len(CELLS) + 1) + "|")
    for library in libraries:
        print(f"| {library.name} | {' | '.join(round_trips(library))} |", flush=True)
    print("\n| library | D exp at 0 | D exp at 1e-9 | D² exp at 0 | D² exp at 1e-9 | D log at 1 |")
    print("|---|---|---|---|---|---|")
    for library in libraries:
        print(f"| {library.name} | {' | '.join(derivatives(library))} |", flush=True)
    for name in missing:
        print(f"| {name} | not installed |")
    speed(libraries)


if __name__ == "__main__":
    main()
