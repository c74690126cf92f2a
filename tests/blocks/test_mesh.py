from functools import partial

import pytest
import torch

import lawful
from lawful.blocks import EdgeMLP, MeshConv, MessagePassing
from lawful.data import Mesh, icosphere, sheet, torus
from lawful.functions import cotangent_laplacian, vertex_areas
from lawful.laws import agreement

FACES = torch.tensor([[0, 1, 4], [0, 4, 3], [1, 2, 5], [1, 5, 4]])
FLAT = Mesh(torch.tensor([[0.0, 0, 0], [1, 0, 0], [2, 0, 0], [0, 1, 0], [1, 1, 0], [2, 1, 0]]), FACES)
BENT = Mesh(torch.tensor([[0.0, 0, 0], [1, 0, 0], [1, 0, 1], [0, 1, 0], [1, 1, 0], [1, 1, 1]]), FACES)


def operators(mesh):
    vertices = mesh.vertices.double()
    return cotangent_laplacian(vertices, mesh.faces), vertex_areas(vertices, mesh.faces)


def intrinsic(layer, x, mesh):
    return layer.to(x)(x, *(operator.to(x) for operator in operators(mesh)))


def extrinsic(layer, x, mesh):
    """A convolution with a learned kernel on the coordinates of neighbors."""
    vertices, (a, b) = mesh.vertices.to(x), mesh.edge_index
    offsets = vertices[a] - vertices[b]
    return layer.to(x)(x, mesh.edge_index, offsets.expand(*x.shape[:-2], *offsets.shape))


@pytest.mark.parametrize(
    ("convolve", "layer", "status"),
    [
        (intrinsic, MeshConv(2, 3), "held"),
        (extrinsic, MessagePassing(EdgeMLP(2, 3, 8, out_dim=2), torch.add), "refuted"),
    ],
)
def test_only_the_intrinsic_convolution_is_invariant_to_bending(convolve, layer, status):
    law = agreement(other=partial(convolve, layer, mesh=BENT))
    report = lawful.check(partial(convolve, layer, mesh=FLAT), law, inputs=lawful.shape("b 6 2"), cases=10)
    assert report["agreement"].status == status, report


def test_equals_a_function_of_the_eigenvalues():
    mesh, layer = torus(6, 9), MeshConv(3, 2, order=5).double()
    laplacian, areas = operators(mesh)
    x = torch.randn(4, len(areas), 3, dtype=torch.float64)
    dense, root = laplacian.to_dense(), areas.sqrt()
    values, vectors = torch.linalg.eigh(dense / root / root[:, None])
    scaled = 2 * values / (dense.abs().sum(1) / areas).max() - 1
    assert scaled.abs().max() <= 1 + 1e-9
    expected = layer.bias.detach()
    for k, weight in enumerate(layer.weight):
        polynomial = torch.special.chebyshev_polynomial_t(scaled, k)
        matrix = (vectors * polynomial) @ vectors.T * root / root[:, None]
        expected = expected + matrix @ x @ weight
    torch.testing.assert_close(layer(x, laplacian, areas), expected)
    torch.testing.assert_close(layer(x, dense, areas), expected)
    torch.testing.assert_close(layer(x[0], laplacian, areas), expected[0])


def test_output_depends_on_the_vertices_within_the_order():
    mesh, layer = sheet(3, 9), MeshConv(1, 1, order=2).double()
    x = torch.zeros(27, 1, dtype=torch.float64)
    x[13] = 1.0
    moved = (layer(x, *operators(mesh)) - layer(0 * x, *operators(mesh))).abs()[:, 0] > 1e-12
    columns = moved.reshape(3, 9).any(0)
    assert columns.nonzero()[:, 0].tolist() == [2, 3, 4, 5, 6]


def test_bending_a_sheet_onto_a_cylinder():
    x, layer = torch.randn(63, 2), MeshConv(2, 3)
    flat, bent = sheet(7, 9), sheet(7, 9, bending_angle=4.0)
    expected = intrinsic(layer, x, flat)
    torch.testing.assert_close(intrinsic(layer, x, bent), expected, atol=1e-4, rtol=1e-4)
    network = MessagePassing(EdgeMLP(2, 3, 8, out_dim=2), torch.add)
    assert (extrinsic(network, x, bent) - extrinsic(network, x, flat)).abs().max() > 1e-2


def test_constants_stay_constant_and_gradients_flow():
    mesh, layer = icosphere(1), MeshConv(2, 3).double()
    y = layer(torch.ones(42, 2, dtype=torch.float64), *operators(mesh))
    torch.testing.assert_close(y, y[:1].expand_as(y))
    vertices = mesh.vertices.double().requires_grad_()
    layer(
        vertices[:, :2], cotangent_laplacian(vertices, mesh.faces), vertex_areas(vertices, mesh.faces)
    ).sum().backward()
    assert vertices.grad.isfinite().all()
    assert layer.weight.grad.isfinite().all()


def test_renumbering_the_vertices():
    mesh, layer = icosphere(0), MeshConv(2, 3).double()
    laplacian, areas = operators(mesh)
    order, x = torch.randperm(12), torch.randn(12, 2).double()
    moved = layer(x[order], laplacian.to_dense()[order][:, order], areas[order])
    torch.testing.assert_close(moved, layer(x, laplacian, areas)[order])


def test_errors():
    laplacian, areas = operators(icosphere(0))
    layer = MeshConv(2, 3).double()
    with pytest.raises(ValueError, match="order must be at least 0, got -1"):
        MeshConv(2, 3, order=-1)
    with pytest.raises(ValueError, match=r"features of shape \(\*batch, 12, 2\), got \(12, 3\)"):
        layer(torch.zeros(12, 3).double(), laplacian, areas)
    with pytest.raises(ValueError, match=r"a Laplacian of shape \(12, 12\), got \(5, 5\)"):
        layer(torch.zeros(12, 2).double(), laplacian.to_dense()[:5, :5], areas)
    with pytest.raises(ValueError, match="areas must be positive: remove vertices without faces"):
        layer(torch.zeros(12, 2).double(), laplacian, 0 * areas)
    assert repr(MeshConv(2, 3, order=1)) == "MeshConv(2, 3, order=1)"


def test_the_weights_at_the_start_keep_the_variance():
    weight = MeshConv(40, 50, order=4).weight.detach()
    assert float(weight.square().sum((0, 1)).mean()) == pytest.approx(1, rel=0.1)
    assert float(weight.abs().max()) <= (3 / 200) ** 0.5


def test_the_bias_is_added():
    layer, x = MeshConv(2, 3), torch.randn(6, 2)
    before = intrinsic(layer, x, FLAT)
    with torch.no_grad():
        layer.bias.copy_(torch.tensor([1.0, 2.0, 3.0]))
    torch.testing.assert_close(intrinsic(layer, x, FLAT), before + torch.tensor([1.0, 2.0, 3.0]))
