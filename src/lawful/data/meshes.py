"""Triangle meshes as data: built-in shapes, and points on a surface."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lawful.data.batches import make_generator


@dataclass(frozen=True, eq=False)
class Mesh:
    """A surface of triangles in space.

    The vertices of a face are in counterclockwise order, seen from outside.

    Examples:
        >>> Mesh(torch.eye(3), torch.tensor([[0, 1, 2]]))
        Mesh(3 vertices, 1 face)
    """

    vertices: Float[Tensor, "n 3"]
    """Coordinates of the vertices."""
    faces: Int[Tensor, "f 3"]
    """Vertices of each triangle."""

    def __post_init__(self) -> None:
        v, f = self.vertices, self.faces
        if v.dim() != 2 or v.shape[1] != 3 or not v.is_floating_point():
            raise ValueError(f"expected vertices of floats with shape (n, 3), got {v.dtype} of shape {tuple(v.shape)}")
        if bool((wrong := ~v.isfinite()).any()):
            raise ValueError(f"vertices must be finite, got NaN or infinity at vertex {int(wrong.any(1).nonzero()[0])}")
        if f.dim() != 2 or f.shape[1] != 3 or f.is_floating_point() or f.is_complex() or f.dtype is torch.bool:
            raise ValueError(f"expected faces of integers with shape (f, 3), got {f.dtype} of shape {tuple(f.shape)}")
        if not len(f):
            raise ValueError("a mesh needs at least one face, got none")
        missing = (f < 0) | (f >= len(v))
        if bool(missing.any()):
            row = int(missing.any(1).nonzero()[0])
            raise ValueError(
                f"face {row} has vertex {int(f[row][missing[row]][0])}, but there are {len(v)} vertices, 0 to "
                f"{len(v) - 1}"
            )
        twice = (f == f.roll(1, 1)).any(1)
        if bool(twice.any()):
            row = int(twice.nonzero()[0])
            raise ValueError(f"a face needs three different vertices, got {f[row].tolist()} at face {row}")

    def __repr__(self) -> str:
        faces = f"{len(self.faces)} face{'s' * (len(self.faces) != 1)}"
        return f"Mesh({len(self.vertices)} vertices, {faces})"

    @property
    def edge_index(self) -> Int[Tensor, "2 e"]:
        """Both directions of each edge, as in `Graph`."""
        f = self.faces.long()
        pairs = torch.cat([f[:, [0, 1]], f[:, [1, 2]], f[:, [2, 0]]])
        return torch.cat([pairs, pairs.flip(1)]).unique(dim=0).T.contiguous()

    @property
    def euler_characteristic(self) -> int:
        """Number of vertices of the faces, minus the number of edges, plus the number of faces."""
        return len(self.faces.unique()) - self.edge_index.shape[1] // 2 + len(self.faces)


# ---------------------------------------------------------------- built-in shapes


def icosphere(subdivisions: int = 2, *, radius: float = 1.0) -> Mesh:
    """Returns a sphere: an icosahedron whose faces are divided into four, several times.

    Args:
        subdivisions: Number of subdivisions.
        radius: Radius.

    Examples:
        >>> icosphere(1).euler_characteristic
        2
    """
    if subdivisions < 0 or not 0 < radius < math.inf:
        raise ValueError(f"subdivisions must be at least 0 and radius positive, got {subdivisions} and {radius}")
    t = (1 + 5**0.5) / 2
    v = torch.tensor([[-1, t, 0], [1, t, 0], [-1, -t, 0], [1, -t, 0]], dtype=torch.float64)
    v = torch.cat([v, v.roll(1, 1), v.roll(2, 1)])
    distances = torch.cdist(v, v)
    near = (distances > 0) & (distances < 2.1)
    triples = torch.combinations(torch.arange(12), 3)
    a, b, c = triples.T
    f = triples[near[a, b] & near[b, c] & near[a, c]]
    inside = torch.linalg.det(v[f]) < 0
    f = torch.where(inside[:, None], f.flip(1), f)
    for _ in range(subdivisions):
        sides = torch.cat([f[:, [0, 1]], f[:, [1, 2]], f[:, [2, 0]]])
        edges, number = sides.sort(1).values.unique(dim=0, return_inverse=True)
        ab, bc, ca = (number + len(v)).chunk(3)
        v = torch.nn.functional.normalize(torch.cat([v, v[edges].mean(1)]), dim=1)
        a, b, c = f.T
        f = torch.cat([torch.stack(s, 1) for s in ((a, ab, ca), (ab, b, bc), (ca, bc, c), (ab, bc, ca))])
    return Mesh(_floats(radius * torch.nn.functional.normalize(v, dim=1)), f)


def torus(rows: int = 24, columns: int = 48, *, radius: float = 1.0, tube_radius: float = 0.4) -> Mesh:
    """Returns a torus about the z-axis.

    Args:
        rows: Number of vertices around the tube.
        columns: Number of vertices around the axis.
        radius: Distance of the center of the tube from the axis.
        tube_radius: Radius of the tube, less than `radius`.

    Examples:
        >>> torus(4, 6).euler_characteristic
        0
    """
    if rows < 3 or columns < 3 or not 0 < tube_radius < radius < math.inf:
        raise ValueError(
            "rows and columns must be at least 3, and 0 < tube_radius < radius, got "
            f"{rows}, {columns}, {tube_radius} and {radius}"
        )
    tube, turn = _angles(rows)[:, None], _angles(columns)
    ring = radius + tube_radius * tube.cos()
    v = torch.stack([ring * turn.cos(), ring * turn.sin(), (tube_radius * tube.sin()).expand_as(ring * turn)], -1)
    return Mesh(_floats(v.flatten(0, 1)), _grid_faces(rows, columns, wrap_rows=True, wrap_columns=True))


def cylinder(rows: int = 12, columns: int = 24, *, radius: float = 1.0, height: float = 2.0) -> Mesh:
    """Returns an open cylinder about the z-axis.

    Args:
        rows: Number of vertices along the axis.
        columns: Number of vertices around the axis.
        radius: Radius.
        height: Height.

    Examples:
        >>> cylinder(4, 6)
        Mesh(24 vertices, 36 faces)
    """
    if rows < 2 or columns < 3 or not (0 < radius < math.inf and 0 < height < math.inf):
        raise ValueError(
            "rows must be at least 2, columns at least 3, radius and height positive, got "
            f"{rows}, {columns}, {radius} and {height}"
        )
    turn = _angles(columns)
    circle = torch.stack([radius * turn.cos(), radius * turn.sin()], -1).expand(rows, -1, -1)
    z = torch.linspace(-height / 2, height / 2, rows, dtype=torch.float64)[:, None, None].expand(-1, columns, 1)
    v = torch.cat([circle, z], -1).flatten(0, 1)
    return Mesh(_floats(v), _grid_faces(rows, columns, wrap_columns=True))


def cube(size: float = 1.0) -> Mesh:
    """Returns a cube around the origin, of twelve triangles.

    Args:
        size: Length of an edge.

    Examples:
        >>> cube()
        Mesh(8 vertices, 12 faces)
    """
    if not 0 < size < math.inf:
        raise ValueError(f"size must be positive, got {size}")
    v = torch.cartesian_prod(*[torch.tensor([-size / 2, size / 2], dtype=torch.float64)] * 3)
    squares = torch.tensor([[0, 1, 3, 2], [4, 6, 7, 5], [0, 4, 5, 1], [2, 3, 7, 6], [0, 2, 6, 4], [1, 5, 7, 3]])
    return Mesh(_floats(v), torch.cat([squares[:, [0, 1, 2]], squares[:, [0, 2, 3]]]))


def sheet(
    rows: int = 16, columns: int = 16, *, width: float = 1.0, height: float = 1.0, bending_angle: float = 0.0
) -> Mesh:
    """Returns a rectangle, flat or bent onto a cylinder.

    Bending folds the sheet along its columns. It keeps all triangles congruent, so that it is exactly isometric: sheets
    that differ only in `bending_angle` have the same intrinsic geometry.

    Args:
        rows: Number of vertices along y.
        columns: Number of vertices along x.
        width: Width along x.
        height: Height along y.
        bending_angle: Angle between the first and the last column of triangles, in radians. The sheet would intersect
            itself above 2 pi.

    Examples:
        >>> flat, bent = sheet(3, 9), sheet(3, 9, bending_angle=3.0)
        >>> a, b = flat.edge_index
        >>> lengths = [(mesh.vertices[a] - mesh.vertices[b]).norm(dim=1) for mesh in (flat, bent)]
        >>> torch.allclose(*lengths)
        True
    """
    if rows < 2 or columns < 2 or not (0 < width < math.inf and 0 < height < math.inf):
        raise ValueError(
            "rows and columns must be at least 2, width and height positive, got "
            f"{rows}, {columns}, {width} and {height}"
        )
    if not abs(bending_angle) <= 2 * math.pi:
        raise ValueError(f"bending_angle must be from -2 pi to 2 pi, got {bending_angle}")
    slopes = torch.linspace(-0.5, 0.5, columns - 1, dtype=torch.float64) if columns > 2 else torch.zeros(1).double()
    slopes, step = bending_angle * slopes, width / (columns - 1)
    profile = torch.stack([slopes.cos(), slopes.sin()], 1).cumsum(0) * step
    profile = torch.cat([torch.zeros(1, 2, dtype=torch.float64), profile])
    profile = profile - profile.mean(0)
    y = torch.linspace(-height / 2, height / 2, rows, dtype=torch.float64)[:, None].expand(rows, columns)
    x, z = (c.expand(rows, columns) for c in profile.T)
    return Mesh(_floats(torch.stack([x, y, z], -1).flatten(0, 1)), _grid_faces(rows, columns))


def sample_surface(mesh: Mesh, n: int, *, seed: int = 0) -> Float[Tensor, "n 3"]:
    """Returns a point cloud: points distributed uniformly over the area of a mesh.

    Args:
        mesh: Mesh.
        n: Number of points.
        seed: Random seed.

    Examples:
        >>> sample_surface(cube(), 100).abs().amax(1).allclose(torch.tensor(0.5))
        True
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}")
    a, b, c = mesh.vertices[mesh.faces.long()].unbind(1)
    areas = torch.linalg.cross(b - a, c - a).norm(dim=1).double()
    if not float(areas.sum()) > 0:
        raise ValueError("the faces of the mesh have no area")
    generator = make_generator(seed)
    ends, u = areas.cumsum(0).cpu(), torch.rand(n, 3, generator=generator, dtype=torch.float64)
    face = torch.searchsorted(ends, u[:, 0] * ends[-1]).clamp_max(len(ends) - 1).to(mesh.faces.device)
    u = u.to(a)
    first, second = u[:, 1:2].sqrt(), u[:, 2:3]
    return (1 - first) * a[face] + first * (1 - second) * b[face] + first * second * c[face]


def _angles(n: int) -> Tensor:
    return 2 * math.pi * torch.arange(n, dtype=torch.float64) / n


def _floats(v: Tensor) -> Tensor:
    return v.to(torch.get_default_dtype())


def _grid_faces(rows: int, columns: int, *, wrap_rows: bool = False, wrap_columns: bool = False) -> Tensor:
    """Returns two triangles for each cell of a grid of vertices."""
    i = torch.arange(rows if wrap_rows else rows - 1)[:, None]
    j = torch.arange(columns if wrap_columns else columns - 1)[None]
    below, right = (i + 1) % rows, (j + 1) % columns
    a, b, c, d = (
        x.flatten() for x in (i * columns + j, i * columns + right, below * columns + right, below * columns + j)
    )
    return torch.cat([torch.stack([a, b, c], 1), torch.stack([a, c, d], 1)])
