import math

import pytest
import torch
from torch import nn

from lawful.blocks import EGNNLayer, GramMLP, PrincipalAxes, Symmetrized
from lawful.groups import Euclidean
from lawful.probe import (
    discover_point_symmetry,
    discover_symmetry,
    fit_generator,
    generator_parts,
    image_generators,
    name_generator,
)

TURN = torch.tensor([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])


@pytest.fixture
def points():
    return torch.randn(60, 4, 3, dtype=torch.float64)


def mlp():
    hidden = nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 12)
    return nn.Sequential(nn.Flatten(-2), *hidden, nn.Unflatten(-1, (4, 3))).double()


def egnn(output):
    layer = EGNNLayer(2).double()
    return lambda x: layer(torch.ones_like(x[..., :2]), x)[output]


def test_symmetries_of_networks_are_named(points):
    frame = PrincipalAxes(Euclidean(3))
    symmetric = Symmetrized(mlp(), Euclidean(3), output="equivariant", frame=frame)
    gram = GramMLP(4, out_vectors=2).double()
    for f, output, expected in (
        (egnn(0), "invariant", ["rotations", "translations"]),
        (egnn(1), "equivariant", ["rotations", "translations"]),
        (symmetric, "equivariant", ["rotations", "translations"]),
        (lambda x: gram(x)[0], "equivariant", ["rotations"]),
        (mlp(), "equivariant", []),
        (lambda x: (x[:, 0] - x[:, 1]).norm(dim=-1).log(), "invariant", ["rotations", "translations"]),
        (lambda x: nn.functional.normalize(x, dim=-1), "equivariant", ["rotations", "scaling"]),
    ):
        assert discover_symmetry(f, points, output=output).names()[:2] == expected


def test_a_symmetry_about_one_axis_has_one_generator(points):
    found = discover_symmetry(lambda x: x[..., :2].norm(dim=-1) + x[..., 2].sin(), points)
    assert len(found.generators) == 1
    assert found.contains(TURN) == pytest.approx(1.0)
    assert found.contains(torch.eye(3)) < 1e-6
    assert found.names() == ["1 more"]


def test_output_generators_complete_the_equation(points):
    """A linear map turns a generator A of the input into W A W^-1."""
    w = torch.randn(3, 3, dtype=torch.float64)
    found = discover_symmetry(lambda x: x @ w.T, points, output="equivariant")
    assert len(found.generators) == 12  # every affine motion
    for a, b in zip(found.generators, found.output_generators, strict=True):
        torch.testing.assert_close(b[:, :3], w @ a[:, :3] @ torch.linalg.inv(w))
        torch.testing.assert_close(b[:, 3], w @ a[:, 3])


def test_tolerance_admits_approximate_symmetries(points):
    def nearly(x):
        return x.square().sum(-1) + 3e-3 * x[..., 0].pow(3)

    assert discover_symmetry(nearly, points).names() == ["1 more"]  # the rotation about the first axis
    assert discover_symmetry(nearly, points, tolerance=1e-2).names() == ["rotations"]


def test_generator_of_pairs_without_a_basis():
    a, x = 0.3 * torch.randn(5, 5, dtype=torch.float64), torch.randn(50, 5, dtype=torch.float64)
    torch.testing.assert_close(fit_generator(x, x @ torch.linalg.matrix_exp(a).T), a)


def test_generator_of_rotated_images():
    """Images are interpolated bilinearly: the rotation blurs, and has no useful logarithm."""
    angle, n = math.pi / 10, 7
    turn = torch.tensor([[math.cos(angle), -math.sin(angle), 0.0], [math.sin(angle), math.cos(angle), 0.0]])
    grid = nn.functional.affine_grid(turn[None], [1, 1, n, n], align_corners=True)
    pixels = torch.eye(n * n).reshape(-1, 1, n, n)
    rotation = nn.functional.grid_sample(pixels, grid.expand(n * n, -1, -1, -1), align_corners=True).flatten(1)
    x, basis = torch.rand(2000, n * n) - 0.5, image_generators(n, n)
    found, expected = fit_generator(x, x @ rotation, basis=basis), basis[3] - basis[4]
    correlation = torch.corrcoef(torch.stack([found.flatten(), expected.flatten()]))[0, 1]
    assert correlation.abs() > 0.95


def test_translation_of_images_is_generated_by_the_derivative():
    basis = image_generators(1, 21)
    wave = (0.5 * torch.arange(21.0)).sin()
    moved = torch.linalg.matrix_exp(0.5 * basis[1]) @ wave
    expected = (0.5 * (torch.arange(21.0) + 0.5)).sin()
    torch.testing.assert_close(moved[5:16], expected[5:16], rtol=0, atol=0.05)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: discover_symmetry(torch.relu, torch.randn(5, 2), output="same"), "output must be 'invariant' or"),
        (
            lambda: discover_symmetry(torch.relu, torch.randn(5)),
            r"expected at least two inputs, of shape \(n, ..., d\)",
        ),
        (lambda: discover_symmetry(torch.relu, torch.full((5, 2), torch.nan)), "x must be finite"),
        (
            lambda: discover_symmetry(lambda x: x.sum(-1), torch.randn(5, 2)),
            "5 equations for 6 unknowns: pass more inputs",
        ),
        (lambda: fit_generator(torch.randn(3, 4), torch.randn(3, 4)), "with n >= d"),
        (lambda: fit_generator(torch.randn(9, 2), torch.zeros(9, 2)), "singular and has no logarithm: pass a basis"),
        (lambda: fit_generator(torch.randn(9, 2), torch.randn(9, 2), basis=TURN[None]), r"basis of shape \(k, 2, 2\)"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_generator_of_the_wrong_size_is_refused(points):
    found = discover_symmetry(egnn(0), points)
    with pytest.raises(ValueError, match=r"expected a generator of shape \(3, 3\) or \(3, 4\), got \(2, 2\)"):
        found.contains(torch.eye(2))


def sphere(count, d):
    return nn.functional.normalize(torch.randn(count, d), dim=-1) * (1 + 0.1 * torch.randn(count, 1))


@pytest.mark.parametrize("d", [2, 3])
def test_points_about_a_sphere_have_rotations(d):
    x = sphere(2000, d)
    found = discover_point_symmetry(x)
    assert found.names() == ["rotations"]
    moved = discover_point_symmetry(x @ torch.randn(d, d) + 5)  # an ellipsoid: rotations in other coordinates
    assert len(moved.generators) == d * (d - 1) // 2


def test_symmetries_of_points_keep_their_distribution():
    x = sphere(3000, 2) @ torch.tensor([[2.0, 0.5], [0.0, 1.0]]) + 3
    (generator,) = discover_point_symmetry(x).generators.float()
    linear, shift = generator[:, :2], generator[:, 2]
    torch.testing.assert_close(linear @ x.mean(0), -shift, rtol=0, atol=0.05)  # the center stays
    covariance = x.mT.cov()
    change = linear @ covariance + covariance @ linear.mT
    assert change.norm() < 0.1 * (linear @ covariance).norm()


def test_other_points_have_no_symmetry():
    angles = 2 * math.pi * torch.randint(0, 5, (2000,)) / 5
    five = torch.stack([angles.cos(), angles.sin()], 1) + 0.2 * torch.randn(2000, 2)
    for x in (five, torch.rand(2000, 2), torch.rand(2000, 3).square(), torch.rand(2000, 1)):
        assert len(discover_point_symmetry(x).generators) == 0


def test_generator_of_smooth_images():
    """The data span a subspace: the transformation has no unique matrix."""
    basis = image_generators(6, 6)
    rows = torch.arange(6.0)
    blur = torch.exp(-(rows[:, None] - rows).square() / 8)
    x = (blur @ torch.randn(200, 6, 6) @ blur).flatten(1)
    turn = 0.2 * (basis[3] - basis[4])
    found = fit_generator(x, x @ torch.linalg.matrix_exp(turn).mT, basis=basis)
    torch.testing.assert_close(found, turn, rtol=0, atol=1e-3)


@pytest.mark.parametrize(
    ("generator", "name"),
    [
        ([[0.0, -2.0], [2.0, 0.0]], "rotation"),
        ([[0.0, -2.0, 1.0], [2.0, 0.0, 3.0]], "rotation"),
        ([[0.5, 0.0, 0.1], [0.0, 0.5, 0.0]], "scaling"),
        ([[0.5, 0.0], [0.0, -0.5]], "stretch"),
        ([[0.0, 0.0], [0.7, 0.0]], "shear"),
        ([[0.0, 0.1, 3.0], [0.1, 0.0, 0.0]], "translation"),
        ([[0.5, -0.6], [0.6, 0.5]], "rotation and scaling"),
    ],
)
def test_generators_are_named(generator, name):
    generator = torch.tensor(generator)
    assert name_generator(generator) == name
    assert sum(share**2 for share in generator_parts(generator).values()) == pytest.approx(1.0)


def test_sinc_derivative_is_exact_for_smooth_images():
    """Central differences are off by a few percent."""
    places = torch.arange(41, dtype=torch.float64) - 20
    bump, slope = (-places.square() / 8).exp(), -places / 4 * (-places.square() / 8).exp()
    found = {name: image_generators(1, 41, derivative=name)[1].double() @ bump for name in ("sinc", "central")}
    torch.testing.assert_close(found["sinc"], slope, rtol=0, atol=1e-5)
    assert (found["central"] - slope).abs().max() > 0.005
    with pytest.raises(ValueError, match="derivative must be 'central' or 'sinc', got 'spline'"):
        image_generators(5, 5, derivative="spline")
