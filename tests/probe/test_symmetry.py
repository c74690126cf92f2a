import math

import pytest
import torch
from torch import nn

from lawful.blocks import EGNNLayer, GramMLP, PrincipalAxes, Symmetrized
from lawful.groups import Euclidean
from lawful.probe import discover_symmetry, fit_generator, image_generators

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
