import math

import pytest
import torch

from lawful.data import Mesh, cube, cylinder, icosphere, sheet, torus
from lawful.functions import (
    angle_defect,
    boundary_vertices,
    cotangent_laplacian,
    face_normals,
    gaussian_curvature,
    mean_curvature,
    vertex_areas,
    vertex_normals,
)

SHAPES = {
    "sphere": icosphere(2),
    "torus": torus(12, 24),
    "cube": cube(),
    "cylinder": cylinder(5, 12),
    "sheet": sheet(5, 7, width=2.0, bending_angle=3.0),
}


def arguments(mesh):
    return mesh.vertices.double(), mesh.faces


def noisy(mesh):
    return mesh.vertices.double() + 0.02 * torch.randn(mesh.vertices.shape).double(), mesh.faces


@pytest.mark.parametrize("name", SHAPES)
def test_angle_defects_sum_to_the_euler_characteristic(name):
    for v, f in (arguments(SHAPES[name]), noisy(SHAPES[name])):
        total = float(angle_defect(v, f).sum())
        assert total == pytest.approx(2 * math.pi * SHAPES[name].euler_characteristic, abs=1e-9)


@pytest.mark.parametrize("radius", [0.5, 3.0])
def test_curvature_of_a_sphere(radius):
    v, f = arguments(icosphere(3, radius=radius))
    torch.testing.assert_close(gaussian_curvature(v, f), torch.full((len(v),), radius**-2).double(), rtol=0.01, atol=0)
    torch.testing.assert_close(mean_curvature(v, f), torch.full((len(v),), 1 / radius).double(), rtol=1e-3, atol=0)
    torch.testing.assert_close(vertex_normals(v, f), v / radius, atol=0.02, rtol=0)
    inward = mean_curvature(v, f.flip(1))
    torch.testing.assert_close(inward, -mean_curvature(v, f))


def test_curvature_of_a_torus():
    radius, tube = 2.0, 0.5
    v, f = arguments(torus(60, 160, radius=radius, tube_radius=tube))
    distance = v[:, :2].norm(dim=1)
    cosine = (distance - radius) / tube
    gaussian, mean = cosine / (tube * distance), (1 / tube + cosine / distance) / 2
    torch.testing.assert_close(gaussian_curvature(v, f), gaussian, atol=0.02 * float(gaussian.abs().max()), rtol=0)
    torch.testing.assert_close(mean_curvature(v, f), mean, atol=0.02 * float(mean.max()), rtol=0)


def test_curvature_of_a_cylinder_and_a_bent_sheet():
    v, f = arguments(cylinder(9, 60, radius=2.0))
    inside = ~boundary_vertices(f, len(v))
    assert boundary_vertices(f, len(v)).sum() == 120
    assert gaussian_curvature(v, f)[~inside].isnan().all()
    assert mean_curvature(v, f)[~inside].isnan().all()
    assert gaussian_curvature(v, f)[inside].abs().max() < 1e-9
    torch.testing.assert_close(mean_curvature(v, f)[inside], torch.full((7 * 60,), 1 / 4).double(), rtol=0.01, atol=0)
    flat, bent = (arguments(sheet(9, 9, bending_angle=angle)) for angle in (0.0, 2.0))
    assert mean_curvature(*flat).nan_to_num().abs().max() < 1e-9 < mean_curvature(*bent).nan_to_num().abs().max()
    for mesh in (flat, bent):
        assert gaussian_curvature(*mesh).nan_to_num().abs().max() < 1e-9


def test_laplacian_is_the_dirichlet_energy():
    """The energy of a piecewise linear function, from its gradient on each face."""
    v, f = noisy(SHAPES["torus"])
    u = torch.randn(len(v)).double()
    a, b, c = v[f].unbind(1)
    edges, rises = torch.stack([b - a, c - a], 1), torch.stack([u[f[:, 1]] - u[f[:, 0]], u[f[:, 2]] - u[f[:, 0]]], 1)
    gradients = torch.linalg.lstsq(edges, rises[..., None]).solution[..., 0]
    area = torch.linalg.cross(b - a, c - a).norm(dim=1) / 2
    laplacian = cotangent_laplacian(v, f)
    torch.testing.assert_close(u @ (laplacian @ u), (area * gradients.square().sum(1)).sum())
    torch.testing.assert_close(laplacian.to_dense(), laplacian.to_dense().T)
    assert (laplacian @ torch.ones(len(v)).double()).abs().max() < 1e-12
    torch.testing.assert_close(vertex_areas(v, f).sum(), area.sum())


def test_spectrum_of_the_sphere():
    """Spherical harmonics have the eigenvalues l (l + 1), 2 l + 1 times."""
    v, f = arguments(icosphere(3))
    root = vertex_areas(v, f).rsqrt()
    values = torch.linalg.eigvalsh(root[:, None] * cotangent_laplacian(v, f).to_dense() * root)[:16]
    expected = torch.tensor([k * (k + 1) for k in range(4) for _ in range(2 * k + 1)]).double()
    torch.testing.assert_close(values, expected, rtol=0.02, atol=1e-9)


def test_bending_changes_no_intrinsic_quantity():
    flat, bent = (arguments(sheet(5, 9, bending_angle=angle)) for angle in (0.0, 4.0))
    for function in (vertex_areas, angle_defect, lambda v, f: cotangent_laplacian(v, f).to_dense()):
        torch.testing.assert_close(function(*bent), function(*flat), atol=1e-6, rtol=1e-6)
    assert (mean_curvature(*bent) - mean_curvature(*flat)).nan_to_num().abs().max() > 1


def test_normals():
    v, f = arguments(cube(2.0))
    normals = face_normals(v, f)
    assert ((normals * v[f].mean(1)).sum(1) > 0.99).all()
    extra = torch.cat([v, torch.zeros(1, 3).double()])
    assert torch.equal(vertex_normals(extra, f)[-1], torch.zeros(3).double())
    assert angle_defect(extra, f)[-1] == 0
    assert gaussian_curvature(extra, f)[-1].isnan()


@pytest.mark.parametrize("function", [vertex_areas, angle_defect, mean_curvature, vertex_normals])
def test_gradients(function):
    faces = icosphere(0).faces
    v = icosphere(0).vertices.double() + 0.1 * torch.randn(12, 3).double()
    assert torch.autograd.gradcheck(lambda v: function(v, faces), v.requires_grad_())


def test_bad_meshes():
    v, f = icosphere(0).vertices, icosphere(0).faces
    with pytest.raises(ValueError, match=r"vertices of shape \(n, 3\) and faces of shape \(f, 3\), got \(12, 2\)"):
        vertex_areas(v[:, :2], f)
    with pytest.raises(ValueError, match="faces must be from 0 to 11"):
        angle_defect(v, f + 1)
    with pytest.raises(ValueError, match="faces must have a positive area, face 1 has none"):
        cotangent_laplacian(Mesh(v, f).vertices, torch.tensor([[0, 1, 2], [3, 3, 4]]))
