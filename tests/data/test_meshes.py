import math

import pytest
import torch

from lawful.data import Mesh, cube, cylinder, icosphere, sample_surface, sheet, torus


def area_and_volume(mesh):
    """Area, and volume by the divergence theorem: positive if faces point outward."""
    a, b, c = mesh.vertices.double()[mesh.faces].unbind(1)
    normals = torch.linalg.cross(b - a, c - a) / 2
    return float(normals.norm(dim=1).sum()), float((a * normals).sum() / 3)


def edge_lengths(mesh):
    a, b = mesh.edge_index
    return (mesh.vertices[a] - mesh.vertices[b]).norm(dim=1)


@pytest.mark.parametrize(
    ("mesh", "euler", "area", "volume"),
    [
        (icosphere(3, radius=2.0), 2, 16 * math.pi, 32 / 3 * math.pi),
        (torus(40, 80, radius=2.0, tube_radius=0.5), 0, 4 * math.pi**2, math.pi**2),
        (cube(3.0), 2, 54.0, 27.0),
    ],
)
def test_closed_surfaces(mesh, euler, area, volume):
    found = area_and_volume(mesh)
    assert mesh.euler_characteristic == euler
    assert found == pytest.approx((area, volume), rel=0.03)
    a, b = mesh.edge_index
    sides = torch.cat([mesh.faces[:, [0, 1]], mesh.faces[:, [1, 2]], mesh.faces[:, [2, 0]]])
    assert len(sides.unique(dim=0)) == len(sides) == len(a)  # each edge once in each direction: closed and oriented
    assert set(map(tuple, mesh.edge_index.T.tolist())) == set(map(tuple, mesh.edge_index.flip(0).T.tolist()))
    assert (a != b).all()


def test_open_surfaces():
    tube, flat = cylinder(5, 60, radius=2.0, height=3.0), sheet(4, 5, width=2.0, height=3.0)
    assert (tube.euler_characteristic, flat.euler_characteristic) == (0, 1)
    assert area_and_volume(tube)[0] == pytest.approx(12 * math.pi, rel=0.01)
    assert area_and_volume(flat)[0] == pytest.approx(6.0)
    assert tube.vertices[:, :2].norm(dim=1).allclose(torch.tensor(2.0))
    outward = torch.linalg.cross(
        *(tube.vertices[tube.faces[:, [k]]] - tube.vertices[tube.faces[:, [0]]] for k in (1, 2))
    )
    assert ((outward[:, 0] * tube.vertices[tube.faces[:, 0]])[:, :2].sum(1) > 0).all()


@pytest.mark.parametrize("angle", [0.5, -2.0, 2 * math.pi])
def test_bending_is_isometric_and_round(angle):
    flat, bent = sheet(3, 41, width=2.0), sheet(3, 41, width=2.0, bending_angle=angle)
    torch.testing.assert_close(edge_lengths(bent), edge_lengths(flat))
    assert torch.equal(flat.faces, bent.faces)
    profile = bent.vertices[:41, [0, 2]].double()
    (center, _, _, _) = torch.linalg.lstsq(
        torch.cat([2 * profile, torch.ones(41, 1).double()], 1), profile.square().sum(1, keepdim=True)
    )
    radii = (profile - center[:2, 0]).norm(dim=1)
    expected = 2.0 / 40 / (2 * math.sin(abs(angle) / 39 / 2))
    assert radii.allclose(torch.tensor(expected).double(), rtol=1e-3)


def test_points_are_uniform_over_the_area():
    points = sample_surface(cube(2.0), 20_000, seed=1)
    face = points.abs().argmax(1) * 2 + (points.gather(1, points.abs().argmax(1, keepdim=True))[:, 0] > 0)
    counts = face.bincount(minlength=6)
    assert ((counts - 20_000 / 6).abs() < 5 * (20_000 * 5 / 36) ** 0.5).all()
    assert torch.equal(sample_surface(cube(), 9, seed=2), sample_surface(cube(), 9, seed=2))
    assert not torch.equal(sample_surface(cube(), 9, seed=2), sample_surface(cube(), 9, seed=3))
    half = Mesh(torch.tensor([[0.0, 0, 0], [1, 0, 0], [0, 1, 0]]), torch.tensor([[0, 1, 2]]))
    mean = sample_surface(half, 20_000).mean(0)
    torch.testing.assert_close(mean, torch.tensor([1 / 3, 1 / 3, 0]), atol=0.01, rtol=0)


@pytest.mark.parametrize(
    ("vertices", "faces", "message"),
    [
        (torch.zeros(3, 2), [[0, 1, 2]], r"vertices of floats with shape \(n, 3\), got .* \(3, 2\)"),
        (torch.tensor([[0.0, 0, 0], [1, math.nan, 0]]), [[0, 1, 1]], "NaN or infinity at vertex 1"),
        (torch.eye(3), [[0, 1]], r"faces of integers with shape \(f, 3\), got .* \(1, 2\)"),
        (torch.eye(3), [[0.0, 1.0, 2.0]], r"faces of integers with shape \(f, 3\), got torch.float32"),
        (torch.eye(3), torch.zeros(0, 3).long(), "at least one face, got none"),
        (torch.eye(3), [[0, 1, 2], [0, 1, 3]], "face 1 has vertex 3, but there are 3 vertices, 0 to 2"),
        (torch.eye(3), [[0, 1, -1]], "face 0 has vertex -1"),
        (torch.eye(3), [[0, 1, 0]], r"three different vertices, got \[0, 1, 0\] at face 0"),
    ],
)
def test_bad_meshes(vertices, faces, message):
    with pytest.raises(ValueError, match=message):
        Mesh(vertices, torch.as_tensor(faces))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: icosphere(-1), "subdivisions must be at least 0"),
        (lambda: torus(tube_radius=2.0), "0 < tube_radius < radius"),
        (lambda: cylinder(1), "rows must be at least 2"),
        (lambda: cube(0.0), "size must be positive"),
        (lambda: sheet(columns=1), "rows and columns must be at least 2"),
        (lambda: sheet(bending_angle=7.0), "bending_angle must be from -2 pi to 2 pi, got 7"),
        (lambda: sample_surface(cube(), 0), "n must be at least 1"),
        (lambda: sample_surface(Mesh(torch.zeros(3, 3), torch.tensor([[0, 1, 2]])), 5), "no area"),
    ],
)
def test_bad_arguments_of_shapes(make, message):
    with pytest.raises(ValueError, match=message):
        make()
