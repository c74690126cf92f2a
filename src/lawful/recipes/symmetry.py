"""Symmetry: the generators of a transformation of data, of a distribution of points, or of a trained model."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from lawful._json import MaxLength, Range, Requires, is_default, require_int
from lawful.data import ShuffledBatches, fingerprint, make_generator, read_arrays, read_table, resolve_path
from lawful.laws import Claim, affinity, agreement, shape
from lawful.models import ParticleModel
from lawful.probe import (
    discover_point_symmetry,
    discover_symmetry,
    figures,
    fit_generator,
    generator_parts,
    image_generators,
    name_generator,
)
from lawful.recipes.classify import ClassifyRecipe
from lawful.recipes.nbody import NBodyRecipe
from lawful.recipes.regress import RegressRecipe
from lawful.training import Recipe, Run, TrainingSetup
from lawful.training.registry import load, recipe_of

_IMAGES = ("rotated-images", "translated-images", "scaled-images")
"""Built-in pairs of random images and transformed images."""
_AMOUNTS = {"rotated-images": 18.0, "translated-images": 0.5, "scaled-images": 1.1}
_MAX_DIM, _MAX_POINTS, _NUM_STATES = 12, 20_000, 60
"""Largest dimension of points, number of points, and number of inputs of a model."""
_BLUR = 1.5
"""Standard deviation of the blur of built-in images, in pixels."""
_IMAGE_ORDER = (5, 4, 1), (3, 2, 0)
"""Positions of the coefficients of `image_generators` in [A b], for the coordinates (x, y)."""


class OneParameterGroups(nn.Module):
    r"""Moves points along each of some generators: $x \mapsto e^{A} x$ with $A$ in homogeneous coordinates.

    Args:
        num_generators: Number of generators.
        dim: Dimension of the points.
    """

    generators: Tensor

    def __init__(self, num_generators: int, dim: int) -> None:
        super().__init__()
        self.register_buffer("generators", torch.zeros(num_generators, dim, dim + 1))

    def forward(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch k d"]:
        """Returns the points, moved along each generator for the time 1."""
        return self.move(x, 1.0)

    def move(self, x: Float[Tensor, "*batch d"], time: float) -> Float[Tensor, "*batch k d"]:
        """Moves points along each generator.

        Args:
            x: Points.
            time: Time $t$ of $e^{t A}$.
        """
        motion = torch.linalg.matrix_exp(time * F.pad(self.generators, (0, 0, 0, 1)))[:, :-1]
        return torch.einsum("kab,...b->...ka", motion[..., :-1], x) + motion[..., -1]


@dataclass(frozen=True)
class SymmetryData:
    """Generators, and what is needed to describe them."""

    source: Literal["pairs", "images", "points", "model"]
    generators: Float[Tensor, "k d e"]
    center: Float[Tensor, " d"]
    """Center of the data, about which rotations are named."""
    length: float
    """Typical distance from the center: the unit of translations in comparisons with linear parts."""
    subject: str
    """Subject of the summary, such as "The 200 pairs of pairs.npz"."""
    points: Float[Tensor, "n d"]
    """Some points for the figures."""
    values: Float[Tensor, " m"] | None = None
    """Singular values of the equations."""
    errors: Mapping[str, float] | None = None
    """Errors of pairs."""
    known: Float[Tensor, "d e"] | None = None
    """True generator of built-in images."""
    matrix: Float[Tensor, "p p"] | None = None
    """Generator of images as a matrix of pixels."""
    true_matrix: Float[Tensor, "p p"] | None = None
    more: str = ""
    """Rest of the summary."""


@dataclass(frozen=True, kw_only=True)
class SymmetryRecipe(Recipe[SymmetryData]):
    """Find the generators of symmetries: of pairs of images or points, of a distribution of points, or of a run."""

    name: ClassVar[str] = "symmetry"

    data: Annotated[str, MaxLength(4096)] | None = None
    """rotated-images (the default), translated-images or scaled-images: built-in pairs. An NPZ file with arrays x and
    y: pairs of points (n, d) or images (n, height, width), where y is x after a transformation. A CSV file with columns
    x1, x2, ... and y1, y2, ...: pairs of points. Another CSV file, or an NPZ file with x alone: points whose
    distribution may have symmetries. Not with `run`."""
    run: Annotated[str, MaxLength(4096)] = ""
    """Folder of a run of nbody, regress or classify: find the symmetries of its model."""
    amount: Annotated[float, Range(-360, 360), Requires(data=(*_IMAGES, None))] | None = None
    """Angle in degrees, shift to the right in pixels, or factor of the built-in images. Defaults to 18, 0.5 and 1.1."""
    num_pairs: Annotated[int, Range(100, 10**6), Requires(data=(*_IMAGES, None))] = 2000
    """Number of built-in pairs."""
    image_size: Annotated[int, Range(5, 32), Requires(data=(*_IMAGES, None))] = 9
    """Height and width of the built-in images."""
    tolerance: Annotated[float, Range(1e-12, 1), Requires(run=True)] = 1e-3
    """Maximum violation of a symmetry of a run, as a singular value relative to the largest one. A trained model that
    is not equivariant by construction has approximate symmetries: try 0.05."""
    threshold: Annotated[float, Range(0.1, 1)] = 0.9
    """Cosine above which a generator gets the name of a rotation, scaling, stretch or translation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        ignored = [name for name in ("data", "amount", "num_pairs", "image_size") if not is_default(self, name)]
        if self.run and ignored:
            raise ValueError(f"{', '.join(ignored)} would be ignored: run {self.run} has its own data")
        if self.data == "scaled-images" and self.amount is not None and self.amount <= 0:
            raise ValueError(f"amount of scaled-images must be a positive factor, got {self.amount:g}")

    def setup(self) -> TrainingSetup[SymmetryData]:
        """Reads the data or the run, and solves for the generators; there are no training steps."""
        data, note = self._find()
        count, dim = data.generators.shape[:2]
        model = OneParameterGroups(count, dim)
        model.generators.copy_(data.generators)
        return TrainingSetup(
            model=model,
            optimizer_steps=[],
            batches=ShuffledBatches(data.points, batch_size=len(data.points), seed=self.seed),
            steps=0,
            claims=partial(_claims, dim=dim),
            model_config={"num_generators": count, "dim": dim},
            data_fingerprint=fingerprint(data.points),
            notes=[note],
            data=data,
        )

    def finish(self, run: Run, setup: TrainingSetup[SymmetryData]) -> Mapping[str, Any]:
        """Names the generators and draws them."""
        data = setup.data
        shown = [_in_units(g, data) for g in data.generators]
        names = [_describe(g, data, threshold=self.threshold) for g in data.generators]
        lead = self._draw(run, data, names)
        results: dict[str, Any] = {"summary": self._summarize(data, names), "lead_figures": lead}
        for i, (name, g) in enumerate(zip(names, shown, strict=True)):
            numbered = f"generator {i + 1}" if len(names) > 1 else "generator"
            shares = {f"share of {part}": share for part, share in generator_parts(g).items() if share > 1e-3}
            results[numbered] = {"name": name, **shares}
        if data.known is not None and data.matrix is not None and data.true_matrix is not None:
            results["test"] = {"correlation with the true generator": _correlation(data.matrix, data.true_matrix)}
            results["true generator"] = _describe(data.known, data, threshold=self.threshold)
        if data.source in ("pairs", "images"):
            (matrix,) = (_in_units(g, data) for g in data.generators)
            named = _named_generators(matrix.shape[0])
            results["correlation with named generators"] = {k: abs(_cosine(matrix, g)) for k, g in named.items()}
            results["error of the pairs"] = dict(data.errors or {})
        else:
            results["number of generators"] = len(names)
        if data.values is not None:
            values = [float(v) for v in data.values[:20]]
            results["violations, smallest first"] = {str(i + 1): v for i, v in enumerate(values)}
        return results

    def build_model(self, model_config: Mapping[str, Any]) -> nn.Module:
        """Rebuilds the model of a run, without its generators."""
        dim = require_int(model_config.get("dim"), 1, 1000, where="model.dim")
        count = require_int(model_config.get("num_generators"), 0, dim * (dim + 1), where="model.num_generators")
        return OneParameterGroups(count, dim)

    def _find(self) -> tuple[SymmetryData, str]:
        """Solves for the generators. Returns them with a description of the data."""
        if self.run:
            return self._find_of_run()
        if self.data is None or self.data in _IMAGES:
            return self._find_of_built_in(self.data or _IMAGES[0])
        try:
            path = resolve_path(self.data)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{error}; built-in pairs: {', '.join(_IMAGES)}") from None
        arrays = _read(path)
        if "y" not in arrays:
            return _of_points(arrays["x"], path.name, seed=self.seed)
        x, y = arrays["x"], arrays["y"]
        if x.shape != y.shape or x.ndim not in (2, 3):
            raise ValueError(
                f"x and y of {path.name} must be pairs of points (n, d) or of images (n, height, width), got {x.shape} "
                f"and {y.shape}"
            )
        if x.ndim == 3:
            return _of_images(x, y, path.name)
        return _of_pairs(x, y, path.name)

    def _find_of_built_in(self, name: str) -> tuple[SymmetryData, str]:
        n, amount = self.image_size, _AMOUNTS[name] if self.amount is None else self.amount
        x = _draw_smooth_images(self.num_pairs, n, seed=self.seed)
        angle = math.radians(amount)
        c, s = math.cos(angle), math.sin(angle)
        shift = 2 * amount / (n - 1)
        known = {
            "rotated-images": ([[c, s, 0.0], [-s, c, 0.0]], [[0, -angle, 0], [angle, 0, 0]]),
            "translated-images": ([[1.0, 0.0, -shift], [0.0, 1.0, 0.0]], [[0, 0, amount], [0, 0, 0]]),
            "scaled-images": (
                [[1 / amount, 0.0, 0.0], [0.0, 1 / amount, 0.0]],
                [[math.log(abs(amount) or 1), 0, 0], [0, math.log(abs(amount) or 1), 0]],
            ),
        }
        source, generator = known[name]  # where a pixel comes from, and where it moves
        grid = F.affine_grid(torch.tensor([source]), [1, 1, n, n], align_corners=True)
        y = F.grid_sample(x[None], grid, align_corners=True)[0]
        data, note = _of_images(x.numpy(), y.numpy(), name)
        true = torch.tensor(generator, dtype=torch.float32)
        return replace(data, known=true, true_matrix=_to_matrix(true, n, n)), note

    def _find_of_run(self) -> tuple[SymmetryData, str]:
        run = Run(self.run)
        recipe, model = recipe_of(run), load(run)
        if isinstance(recipe, NBodyRecipe) and isinstance(model, ParticleModel):
            f, x, length = _particle_map(recipe, model, seed=self.seed)
            output, verb = "equivariant", "commutes with"
        elif isinstance(recipe, ClassifyRecipe | RegressRecipe):
            f, x = _table_map(recipe, model, classify=isinstance(recipe, ClassifyRecipe))
            output, verb, length = "invariant", "is invariant under", 1.0
        else:
            raise ValueError(f"run must be of nbody, regress or classify, got {self.run} of {recipe.name}")
        found = discover_symmetry(f, x, output=output, tolerance=self.tolerance)  # type: ignore[arg-type]
        points = x.flatten(0, -2).float()
        names, count = found.names(), len(found.generators)
        named = [name for name in names if not name.endswith(" more")]
        others = [f"{_count(int(name.split()[0]))} without a name" for name in names if name not in named]
        what = " and ".join([*named, *others]) or "no affine motion"
        data = SymmetryData(
            "model",
            found.generators.float(),
            torch.zeros(x.shape[-1]),
            length,
            f"The model of {run.path.name}",
            points[:_MAX_POINTS],
            values=found.singular_values,
            more=f"{verb} {what}" + (f" ({_count(count)})" if named else ""),
        )
        return data, f"{run.path.name}: {len(x)} inputs of shape {tuple(x.shape[1:])}, {output} under affine motions"

    def _draw(self, run: Run, data: SymmetryData, names: list[str]) -> list[str]:
        """Draws the generators as vector fields of the plane and as matrices."""
        if not names:
            return []
        shown, written = [_in_units(g, data) for g in data.generators[:9]], []
        labels = [re.split(" by | about | along ", name)[0] for name in names[:9]]
        if data.generators.shape[1] == 2:
            fields, points = data.generators[:9], data.points
            if data.source == "images":  # rows of images point down
                fields = fields * torch.tensor([[1.0, -1.0, 1.0], [-1.0, 1.0, -1.0]])
                points = points * torch.tensor([1.0, -1.0])
            written.append("vector fields.png")
            figures.save(
                figures.vector_fields(fields, names=labels, points=points), run.figures / written[-1], root=run.root
            )
        if data.matrix is not None:
            matrices = {"found": data.matrix}
            if data.true_matrix is not None:
                matrices["true"] = data.true_matrix
            figure = figures.generator_matrices(torch.stack([*matrices.values()]), names=[*matrices])
            written.append("matrices of pixels.png")
            figures.save(figure, run.figures / written[-1], root=run.root)
        written.append("generators.png")
        figures.save(
            figures.generator_matrices(torch.stack(shown), names=labels), run.figures / written[-1], root=run.root
        )
        return written[:2]

    def _summarize(self, data: SymmetryData, names: list[str]) -> str:
        """Returns the summary."""
        if data.source == "model":
            return f"{data.subject} {data.more}, at tolerance {self.tolerance:g}."
        if data.source == "points":
            found = "no affine symmetry" if not names else f"{_count(len(names))} of symmetries: {'; '.join(names)}"
            return f"{data.subject} have {found}. {data.more}"
        sentence = f"{data.subject} are related by a {names[0]}."
        if data.known is not None and data.matrix is not None and data.true_matrix is not None:
            true = _describe(data.known, data, threshold=self.threshold)
            share = _correlation(data.matrix, data.true_matrix)
            sentence += f" The truth is a {true}; the correlation of the generators is {share:.3f}."
        errors = data.errors or {}
        explained = max(0.0, 1 - errors.get("relative squared error", 0.0))
        best = max(0.0, 1 - errors.get("relative squared error of any linear map", 0.0))
        kind = "linear" if data.source == "images" else "affine"
        sentence += f" It explains {100 * explained:.3g} % of the change, any {kind} map at most {100 * best:.3g} %."
        return sentence + (" The pairs are not related by such a motion." if explained < 0.5 else "")


# ---------------------------------------------------------------- data


def _read(path: Path) -> dict[str, np.ndarray]:
    """Reads x, and y if there is one."""
    if path.suffix.lower() in (".npz", ".npy"):
        arrays = read_arrays(path)
        if "" in arrays:
            arrays = {"x": arrays[""]}
        if "x" not in arrays:
            raise ValueError(f"{path.name} has no array x, its arrays are {', '.join(arrays) or 'none'}")
        found = {name: arrays[name] for name in ("x", "y") if name in arrays}
    else:
        table = read_table(path)
        columns = {name: column.numbers for name, column in table.columns.items() if column.numbers is not None}
        if not columns:
            raise ValueError(f"{path.name} has no column of numbers")
        numbered = {letter: [name for name in columns if re.fullmatch(rf"{letter}_?\d+", name)] for letter in "xy"}
        if len(numbered["x"]) == len(numbered["y"]) == len(columns) / 2:
            found = {letter: np.stack([columns[name] for name in names], 1) for letter, names in numbered.items()}
        else:
            found = {"x": np.stack([*columns.values()], 1)}
    for name, array in found.items():
        if array.dtype.kind not in "fiub":
            raise ValueError(f"{name} of {path.name} must be numbers, got dtype {array.dtype}")
        if not np.isfinite(array.astype(float)).all():
            raise ValueError(f"{name} of {path.name} has NaN or infinite values: leave these rows out")
    return {name: array.astype(np.float64) for name, array in found.items()}


def _of_points(x: np.ndarray, name: str, *, seed: int) -> tuple[SymmetryData, str]:
    if x.ndim != 2 or x.shape[1] > _MAX_DIM:
        raise ValueError(f"points of {name} must have shape (n, d) with d up to {_MAX_DIM}, got {x.shape}")
    points = torch.from_numpy(x)
    if len(points) > _MAX_POINTS:
        points = points[torch.randperm(len(points), generator=make_generator(seed))[:_MAX_POINTS]]
    found = discover_point_symmetry(points, seed=seed)
    center, length = points.mean(0), float((points - points.mean(0)).square().sum(1).mean().sqrt())
    noise = len(points) ** -0.5
    more = f"A relative violation below {2 * noise:.2g} would go unnoticed."
    subject = f"The {len(points):,} points of {name}"
    data = SymmetryData(
        "points",
        found.generators.float(),
        center.float(),
        length,
        subject,
        points.float(),
        values=found.singular_values,
        more=more,
    )
    return data, f"{name}: {len(x):,} points of {x.shape[1]} dimensions"


def _of_pairs(x: np.ndarray, y: np.ndarray, name: str) -> tuple[SymmetryData, str]:
    before, after = torch.from_numpy(x), torch.from_numpy(y)
    n, d = before.shape
    if n <= d + 1 or d > _MAX_DIM:
        raise ValueError(f"{name} needs more than {d + 1} pairs of up to {_MAX_DIM} dimensions, got {n} of {d}")
    center = before.mean(0)
    length = float((before - center).square().sum(1).mean().sqrt()) or 1.0
    u, v = ((part - center) / length for part in (before, after))
    lifted, target = F.pad(u, (0, 1), value=1.0), F.pad(v, (0, 1), value=1.0)
    generator = fit_generator(lifted, target)[:-1]
    best = torch.linalg.lstsq(lifted, v, driver="gelsd").solution
    errors = _relative_errors(u, v, _exponential(generator, u), lifted @ best)
    linear = generator[:, :d]
    shift = length * generator[:, d:] - linear @ center[:, None]
    found = torch.cat([linear, shift], 1)[None].float()
    data = SymmetryData(
        "pairs", found, center.float(), length, f"The {n:,} pairs of {name}", before.float(), errors=errors
    )
    return data, f"{name}: {n:,} pairs of points of {d} dimensions"


def _of_images(x: np.ndarray, y: np.ndarray, name: str) -> tuple[SymmetryData, str]:
    n, height, width = x.shape
    if n < height * width or min(height, width) < 3:
        raise ValueError(
            f"{name} needs at least as many pairs as pixels, and 3 rows and columns: got {n} pairs of {height} x "
            f"{width} pixels. Make the images smaller"
        )
    before, after = (torch.from_numpy(part.astype(np.float64)).flatten(1) for part in (x, y))
    basis = image_generators(height, width).double()
    matrix = fit_generator(before, after, basis=basis)
    flat = basis.flatten(1)
    coefficients = torch.linalg.lstsq(flat.mT, matrix.flatten()[:, None], driver="gelsd").solution[:, 0]
    generator = -torch.stack([torch.stack([coefficients[i] for i in row]) for row in _IMAGE_ORDER])
    best = before @ torch.linalg.lstsq(before, after, rcond=1e-6, driver="gelsd").solution
    errors = _relative_errors(before, after, before @ torch.linalg.matrix_exp(matrix).mT, best)
    rows, columns = torch.meshgrid(
        *(torch.arange(k, dtype=torch.float32) - (k - 1) / 2 for k in (height, width)), indexing="ij"
    )
    points = torch.stack([columns.flatten(), rows.flatten()], 1)
    length = float(points.square().sum(1).mean().sqrt())
    data = SymmetryData(
        "images",
        generator[None].float(),
        torch.zeros(2),
        length,
        f"The {n:,} pairs of {name}",
        points,
        errors=errors,
        matrix=matrix.float(),
    )
    return data, f"{name}: {n:,} pairs of images of {height} x {width} pixels"


def _draw_smooth_images(count: int, size: int, *, seed: int) -> Float[Tensor, "n s s"]:
    """Draws blurred noise that falls to 0 at the border."""
    position = torch.arange(size) - (size - 1) / 2
    blur = torch.exp(-(position[:, None] - position).square() / (2 * _BLUR**2))
    radius = 2 / size * (position.square() + position[:, None].square()).sqrt()
    window = (torch.pi / 2 * radius.clamp_max(1)).cos().square()
    return window * (blur @ torch.randn(count, size, size, generator=make_generator(seed)) @ blur)


def _to_matrix(generator: Tensor, height: int, width: int) -> Tensor:
    """Returns the matrix of pixels of a generator [A b] of the plane."""
    basis, matrix = image_generators(height, width), torch.zeros(height * width, height * width)
    for row, order in zip(generator, _IMAGE_ORDER, strict=True):
        for value, i in zip(row, order, strict=True):
            matrix = matrix - value * basis[i]
    return matrix


def _exponential(generator: Tensor, x: Tensor) -> Tensor:
    motion = torch.linalg.matrix_exp(F.pad(generator, (0, 0, 0, 1)))[:-1]
    return x @ motion[:, :-1].mT + motion[:, -1]


def _relative_errors(x: Tensor, y: Tensor, found: Tensor, best: Tensor) -> dict[str, float]:
    """Squared errors relative to the change from x to y, or to the variance of y if that is smaller."""
    total = min(float((y - x).square().sum()), float((y - y.mean(0)).square().sum())) or 1.0
    return {
        "relative squared error": float((found - y).square().sum()) / total,
        "relative squared error of any linear map": float((best - y).square().sum()) / total,
    }


def _particle_map(
    recipe: NBodyRecipe, model: ParticleModel, *, seed: int
) -> tuple[Callable[[Tensor], Tensor], Tensor, float]:
    """The displacement as a map of points: positions, and positions after the velocities. Both move by translations."""
    states = recipe._load()[0].train.spread(_NUM_STATES)
    model = model.double()
    center, unit = model.center, float(model.length)
    x = (states.positions.double() - center) / unit
    points = torch.cat([x, x + states.velocities.double() / float(model.speed)], 1)
    charges = () if states.charges is None or not model.edge_dim else (states.charges[:1].double(),)
    n = x.shape[1]

    def f(p: Tensor) -> Tensor:
        z, v = p[:, :n], (p[:, n:] - p[:, :n]) * float(model.speed)
        q = tuple(charge.expand(len(p), -1) for charge in charges)
        return (model(z * unit + center, v, *q) - z * unit - center) / float(model.displacement)

    return f, points, 1.0


def _table_map(
    recipe: ClassifyRecipe | RegressRecipe, model: nn.Module, *, classify: bool
) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """The model as a map of standardized columns."""
    splits = recipe.load_splits("classify" if classify else "regress")
    x = splits.train.inputs
    if x.dim() != 2 or x.shape[1] > _MAX_DIM:
        raise ValueError(f"the run must have up to {_MAX_DIM} columns, got inputs of shape {tuple(x.shape[1:])}")
    mean, std = x.double().mean(0), x.double().std(0).clamp_min(1e-12)
    model = model.double()
    z = (x.double() - mean) / std
    rows = torch.linspace(0, len(z) - 1, min(len(z), 40 * _NUM_STATES // 10)).round().long()

    def f(p: Tensor) -> Tensor:
        y = model(p * std + mean)
        return y.log_softmax(-1) if classify else y

    return f, z[rows]


# ---------------------------------------------------------------- names


def _in_units(generator: Tensor, data: SymmetryData) -> Tensor:
    """The generator about the center of the data, with translations in units of its size."""
    linear, shift = generator[:, :-1], generator[:, -1:]
    return torch.cat([linear, (shift + linear @ data.center[:, None]) / data.length], 1)


def _describe(generator: Tensor, data: SymmetryData, *, threshold: float) -> str:
    """Names a generator, with its angle, factor or vector if it belongs to pairs, and its center or axis."""
    shown = _in_units(generator, data)
    name = name_generator(shown, threshold=threshold)
    linear, shift = generator[:, :-1], generator[:, -1]
    d, measured = len(linear), data.source in ("pairs", "images")
    if name == "translation":
        vector = _format_vector(shown[:, -1] * data.length)
        return f"translation by {vector}" if measured else f"translation along {vector}"
    if name == "rotation" and d <= 3:
        angle = math.degrees(float((linear - linear.mT).norm()) / 8**0.5)
        name += f" by {angle:.3g} degrees" if measured else ""
        if d == 3:
            axis = torch.stack([linear[i, j] - linear[j, i] for i, j in ((2, 1), (0, 2), (1, 0))])
            return f"{name} about the axis {_format_vector(axis / axis.norm())}"
    if name == "scaling" and measured:
        name += f" by {math.exp(float(linear.diagonal().mean())):.3g}"
    about = name.startswith(("rotation", "scaling", "stretch"))
    if about and d == 2 and abs(float(torch.linalg.det(linear))) > 1e-6 * float(linear.norm()) ** 2:
        fixed = torch.linalg.solve(linear, -shift)
        if float(fixed.norm()) > 0.05 * data.length:
            name += f" about {_format_vector(fixed)}"
    return name


def _format_vector(v: Tensor) -> str:
    """Writes a vector with three digits, and entries far below the largest as 0."""
    kept = torch.where(v.abs() > 0.005 * v.abs().amax(), v, 0.0)
    return f"({', '.join(f'{x:.3g}' for x in kept.tolist())})"


def _named_generators(d: int) -> dict[str, Tensor]:
    """Generators with a name, in up to three dimensions; in more, of scaling only."""
    unit, found = torch.eye(d), {"scaling": F.pad(torch.eye(d), (0, 1))}
    if d > 3:
        return found
    for i in range(d):
        found[f"translation along x{i + 1}"] = F.pad(torch.zeros(d, d), (0, 1)).index_put(
            (torch.tensor(i), torch.tensor(d)), torch.tensor(1.0)
        )
        for j in range(i):
            plane = f"x{j + 1} and x{i + 1}"
            found[f"rotation of {plane}"] = F.pad(torch.outer(unit[i], unit[j]) - torch.outer(unit[j], unit[i]), (0, 1))
            found[f"shear of x{j + 1} by x{i + 1}"] = F.pad(torch.outer(unit[j], unit[i]), (0, 1))
            found[f"shear of x{i + 1} by x{j + 1}"] = F.pad(torch.outer(unit[i], unit[j]), (0, 1))
    return found


def _cosine(a: Tensor, b: Tensor) -> float:
    return float((a * b).sum() / (a.norm() * b.norm()).clamp_min(1e-30))


def _correlation(a: Tensor, b: Tensor) -> float:
    return float(torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1])


def _count(n: int) -> str:
    return "no generators" if n == 0 else "1 generator" if n == 1 else f"{n} generators"


def _claims(model: nn.Module, *, dim: int) -> Iterator[Claim]:
    """Each generator has a one-parameter group: two halves of the way are the way."""
    groups = model
    if not isinstance(groups, OneParameterGroups) or not len(groups.generators):
        return

    def halves(x: Tensor) -> Tensor:
        half = groups.move(x, 0.5)
        return torch.stack([groups.move(half[..., k, :], 0.5)[..., k, :] for k in range(half.shape[-2])], -2)

    yield Claim(affinity(), groups, shape(f"b {dim}"), name="motion")
    yield Claim(agreement(other=halves), groups, shape(f"b {dim}"), name="two halves of the motion")
