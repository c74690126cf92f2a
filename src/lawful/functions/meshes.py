r"""Differential geometry of triangle meshes: normals, areas, the cotangent Laplacian and curvature.

A mesh is given by `vertices` of shape (n, 3) and `faces` of shape (f, 3): the vertices of each triangle,
counterclockwise seen from outside. `lawful.data.Mesh` holds both. All functions are differentiable in the vertices.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lawful.functions._validation import any_true
from lawful.laws import Claim, agreement, transformed


def face_normals(vertices: Float[Tensor, "n 3"], faces: Int[Tensor, "f 3"]) -> Float[Tensor, "f 3"]:
    """Returns the unit normal of each face. It points outward if the face is counterclockwise, seen from outside.

    Args:
        vertices: Coordinates of the vertices.
        faces: Vertices of each triangle.

    Examples:
        >>> face_normals(torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), torch.tensor([[0, 1, 2]]))
        tensor([[0., 0., 1.]])
    """
    normals = _area_vectors(vertices, faces)
    return normals / normals.norm(dim=1, keepdim=True)


def vertex_normals(vertices: Float[Tensor, "n 3"], faces: Int[Tensor, "f 3"]) -> Float[Tensor, "n 3"]:
    """Returns the unit normal of each vertex: the mean of the normals of its faces, weighted by area.

    It is 0 at a vertex without faces.

    Args:
        vertices: Coordinates of the vertices.
        faces: Vertices of each triangle.

    Examples:
        >>> vertex_normals(torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), torch.tensor([[0, 1, 2]]))
        tensor([[0., 0., 1.],
                [0., 0., 1.],
                [0., 0., 1.]])
    """
    normals = _area_vectors(vertices, faces)
    total = torch.zeros_like(vertices).index_add(0, faces.long().T.flatten(), normals.repeat(3, 1))
    return torch.nn.functional.normalize(total, dim=1, eps=torch.finfo(total.dtype).tiny)


def vertex_areas(vertices: Float[Tensor, "n 3"], faces: Int[Tensor, "f 3"]) -> Float[Tensor, " n"]:
    r"""Returns the area at each vertex, the diagonal of the lumped mass matrix $M$: the mixed Voronoi area.

    $$\int u \, v \approx u^\top M v$$

    Every point of a face belongs to its nearest vertex. In an obtuse triangle, half of the area belongs to the obtuse
    corner, and a quarter to each of the others.

    Reference:
        Meyer, Desbrun, Schröder and Barr, *Discrete Differential-Geometry Operators for Triangulated 2-Manifolds*,
        2003.

    Args:
        vertices: Coordinates of the vertices.
        faces: Vertices of each triangle.

    Examples:
        >>> vertex_areas(torch.tensor([[0.0, 0.0, 0.0], [2.0, 0.0, 0.0], [0.0, 2.0, 0.0]]), torch.tensor([[0, 1, 2]]))
        tensor([1.0000, 0.5000, 0.5000])
    """
    area = _area_vectors(vertices, faces).norm(dim=1)
    corners = faces.long().T
    sides = torch.stack([vertices[corners[k - 1]] - vertices[corners[k - 2]] for k in range(3)])  # opposite corner k
    squares = sides.square().sum(-1)
    dots = torch.stack([-(sides[k - 1] * sides[k - 2]).sum(-1) for k in range(3)])
    cotangents = dots / (2 * area)
    obtuse = dots < 0
    parts = torch.where(obtuse, area / 2, area / 4)
    nearest = torch.stack([squares[k - 1] * cotangents[k - 1] + squares[k - 2] * cotangents[k - 2] for k in range(3)])
    parts = torch.where(obtuse.any(0), parts, nearest / 8)
    return vertices.new_zeros(len(vertices)).index_add(0, corners.flatten(), parts.flatten())


def cotangent_laplacian(vertices: Float[Tensor, "n 3"], faces: Int[Tensor, "f 3"]) -> Float[Tensor, "n n"]:
    r"""Returns the cotangent Laplacian of a mesh as a sparse matrix: symmetric and positive semidefinite.

    $$u^\top L u = \int \lVert \nabla u \rVert^2, \qquad L_{ij} = -\tfrac12 (\cot \alpha_{ij} + \cot \beta_{ij}), \qquad
    L_{ii} = -\sum_{j \ne i} L_{ij}$$

    with the angles $\alpha_{ij}$ and $\beta_{ij}$ opposite the edge $ij$, and $u$ linear on every face. The
    Laplace-Beltrami operator is $-M^{-1} L$ with the areas $M$ of `vertex_areas`. It depends on the lengths of the
    edges only, so that it does not change when a surface is bent without stretching.

    Reference:
        Pinkall and Polthier, *Computing Discrete Minimal Surfaces and Their Conjugates*, 1993.

    Args:
        vertices: Coordinates of the vertices.
        faces: Vertices of each triangle.

    Examples:
        >>> right = torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
        >>> cotangent_laplacian(right, torch.tensor([[0, 1, 2]])).to_dense()
        tensor([[ 1.0000, -0.5000, -0.5000],
                [-0.5000,  0.5000,  0.0000],
                [-0.5000,  0.0000,  0.5000]])
    """
    double_area = 2 * _area_vectors(vertices, faces).norm(dim=1)
    corners = faces.long().T
    rows, columns, weights = [], [], []
    for k in range(3):
        opposite, i, j = corners[k], corners[k - 2], corners[k - 1]
        to_i, to_j = vertices[i] - vertices[opposite], vertices[j] - vertices[opposite]
        half = (to_i * to_j).sum(1) / double_area / 2
        rows += [i, j, i, j]
        columns += [j, i, i, j]
        weights += [-half, -half, half, half]
    index, n = torch.stack([torch.cat(rows), torch.cat(columns)]), len(vertices)
    return torch.sparse_coo_tensor(index, torch.cat(weights), (n, n), check_invariants=False).coalesce()


def angle_defect(vertices: Float[Tensor, "n 3"], faces: Int[Tensor, "f 3"]) -> Float[Tensor, " n"]:
    r"""Returns the integral of the Gaussian curvature at each vertex.

    $$\int_i K = 2\pi - \sum_{f \ni i} \theta_{f,i}, \qquad \sum_i \int_i K = 2\pi \chi$$

    with the angles $\theta_{f,i}$ of the faces. At the boundary, the angles of a straight line are $\pi$ instead of
    $2\pi$, and the defect is the turning angle of the boundary. The sum is $2\pi$ times the Euler characteristic $\chi$
    (Gauss-Bonnet). It is 0 at a vertex without faces.

    Args:
        vertices: Coordinates of the vertices.
        faces: Vertices of each triangle.

    Examples:
        >>> from lawful.data import cube
        >>> mesh = cube()
        >>> angle_defect(mesh.vertices, mesh.faces) / torch.pi
        tensor([0.5000, 0.5000, 0.5000, 0.5000, 0.5000, 0.5000, 0.5000, 0.5000])
    """
    double_area = 2 * _area_vectors(vertices, faces).norm(dim=1)
    corners, total = faces.long().T, vertices.new_zeros(len(vertices))
    for k in range(3):
        first, second = (vertices[corners[k - m]] - vertices[corners[k]] for m in (1, 2))
        total = total.index_add(0, corners[k], torch.atan2(double_area, (first * second).sum(1)))
    flat = 2 * math.pi - math.pi * boundary_vertices(faces, len(vertices)).to(total)
    used = torch.zeros(len(vertices), dtype=torch.bool, device=faces.device)
    used[faces.flatten().long()] = True
    return torch.where(used, flat - total, 0.0)


def gaussian_curvature(vertices: Float[Tensor, "n 3"], faces: Int[Tensor, "f 3"]) -> Float[Tensor, " n"]:
    r"""Returns the Gaussian curvature at each vertex: the angle defect divided by the area.

    It is $1 / r^2$ on a sphere, 0 on surfaces that can be rolled out flat, and NaN at vertices of the boundary and at
    vertices without faces. Bending without stretching does not change it.

    Args:
        vertices: Coordinates of the vertices.
        faces: Vertices of each triangle.

    Examples:
        >>> from lawful.data import icosphere
        >>> sphere = icosphere(3, radius=2.0)
        >>> bool(((gaussian_curvature(sphere.vertices, sphere.faces) - 1 / 4).abs() < 0.01).all())
        True
    """
    return _inside(angle_defect(vertices, faces) / vertex_areas(vertices, faces), vertices, faces)


def mean_curvature(vertices: Float[Tensor, "n 3"], faces: Int[Tensor, "f 3"]) -> Float[Tensor, " n"]:
    r"""Returns the mean curvature at each vertex: the mean of the two principal curvatures.

    $$H_i = \frac{n_i \cdot (L x)_i}{2 M_{ii}}$$

    with the cotangent Laplacian $L$, the areas $M$ and the outward normal $n$. It is $1 / r$ on a sphere of radius $r$
    and $1 / (2 r)$ on a cylinder, and NaN at vertices of the boundary and at vertices without faces.

    Reference:
        Meyer, Desbrun, Schröder and Barr, *Discrete Differential-Geometry Operators for Triangulated 2-Manifolds*,
        2003.

    Args:
        vertices: Coordinates of the vertices.
        faces: Vertices of each triangle.

    Examples:
        >>> from lawful.data import icosphere
        >>> sphere = icosphere(3, radius=2.0)
        >>> bool(((mean_curvature(sphere.vertices, sphere.faces) - 1 / 2).abs() < 0.01).all())
        True
    """
    along = (vertex_normals(vertices, faces) * (cotangent_laplacian(vertices, faces) @ vertices)).sum(1)
    return _inside(along / (2 * vertex_areas(vertices, faces)), vertices, faces)


def boundary_vertices(faces: Int[Tensor, "f 3"], num_vertices: int) -> Bool[Tensor, " n"]:
    """Returns which vertices have an edge that belongs to one face only.

    Args:
        faces: Vertices of each triangle.
        num_vertices: Number of vertices.

    Examples:
        >>> boundary_vertices(torch.tensor([[0, 1, 2]]), 4)
        tensor([ True,  True,  True, False])
    """
    f = faces.long()
    sides = torch.cat([f[:, [0, 1]], f[:, [1, 2]], f[:, [2, 0]]]).sort(1).values
    edges, counts = sides.unique(dim=0, return_counts=True)
    found = torch.zeros(num_vertices, dtype=torch.bool, device=faces.device)
    found[edges[counts == 1].flatten()] = True
    return found


def _inside(curvature: Tensor, vertices: Tensor, faces: Tensor) -> Tensor:
    """Replaces curvatures at the boundary by NaN."""
    return torch.where(boundary_vertices(faces, len(vertices)), math.nan, curvature)


def _area_vectors(vertices: Tensor, faces: Tensor) -> Tensor:
    """Returns the normal of each face with its area as the length."""
    if vertices.dim() != 2 or vertices.shape[1] != 3 or faces.dim() != 2 or faces.shape[1] != 3:
        raise ValueError(
            f"expected vertices of shape (n, 3) and faces of shape (f, 3), got {tuple(vertices.shape)} and "
            f"{tuple(faces.shape)}"
        )
    if any_true((faces < 0) | (faces >= len(vertices))):
        raise ValueError(f"faces must be from 0 to {len(vertices) - 1}, the last vertex")
    a, b, c = vertices[faces.long()].unbind(1)
    found = torch.linalg.cross(b - a, c - a) / 2
    if any_true(~(found.norm(dim=1) > 0)):
        wrong = int((~(found.norm(dim=1) > 0)).nonzero()[0])
        raise ValueError(f"faces must have a positive area, face {wrong} has none")
    return found


def claims() -> Iterator[Claim]:
    """Gauss-Bonnet: the angle defects of any closed surface sum to 2 pi times its Euler characteristic."""
    tetrahedron = torch.tensor([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]])
    corners = torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])

    def total(v: Tensor) -> Tensor:
        return angle_defect(v, tetrahedron).sum()

    def four_pi(v: Tensor) -> Tensor:
        return v.new_tensor(4 * math.pi)

    moved = transformed(lambda x: corners.to(x) + 0.2 * x.tanh(), "4 3")
    yield Claim(agreement(other=four_pi), total, moved, name="angle_defect: Gauss-Bonnet")
