import pytest
import torch

from lawful.blocks import EGNNLayer, GramLayer, GramMLP, RadialField, gram_matrix
from lawful.functions import adjacency_matrix
from lawful.groups import Orthogonal

N = 6


@pytest.fixture
def edges():
    return torch.randint(N, (2, 20)).unique(dim=1)


def scatter(a, edges):
    dense = torch.zeros(N, N, a.shape[-1])
    dense[edges[0], edges[1]] = a
    return dense


def assert_all_close(found, expected):
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_dense_and_sparse_forms_agree(edges):
    h, x, v, a = torch.randn(N, 4), torch.randn(N, 3), torch.randn(N, 3), torch.randn(edges.shape[1], 2)
    adjacency, dense = adjacency_matrix(edges, N), scatter(a, edges)
    egnn = EGNNLayer(4, edge_dim=2, velocity=True)
    assert_all_close(egnn(h, x, edges, edge_attr=a, velocity=v), egnn(h, x, adjacency, edge_attr=dense, velocity=v))
    field = RadialField(4, edge_dim=2)
    assert_all_close(field(x, edges, edge_attr=a, velocity=v), field(x, adjacency, edge_attr=dense, velocity=v))
    gram, vectors = GramLayer(4, num_vectors=2, edge_dim=2), torch.randn(N, 2, 3)
    assert_all_close(gram(h, x, vectors, edges, edge_attr=a), gram(h, x, vectors, adjacency, edge_attr=dense))


def test_egnn_by_its_equations():
    layer, h, x, v = EGNNLayer(4, velocity=True), torch.randn(N, 4), torch.randn(N, 3), torch.randn(N, 3)
    moved, received = torch.zeros(N, 3), torch.zeros(N, 4)
    for i in range(N):
        for j in set(range(N)) - {i}:
            squared = (x[i] - x[j]).square().sum()
            mlp = layer.message
            hidden = mlp.target(h[i]) + mlp.source(h[j]) + mlp.edge(squared[None])
            m = torch.nn.functional.silu(mlp.out(torch.nn.functional.silu(hidden)))
            moved[i] += (x[i] - x[j]) * layer.coordinate(m) / (N - 1)
            received[i] += m
    moved = moved + layer.velocity(h) * v
    expected = h + layer.feature(torch.cat([h, received], -1)), x + moved, moved
    assert_all_close(layer(h, x, velocity=v), expected)


@pytest.mark.parametrize("dim", [1, 2, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_any_dimension_and_error_at_rounding(dim, dtype):
    layers = [EGNNLayer(8, velocity=True).to(dtype) for _ in range(7)]
    r, t = Orthogonal(dim).sample(dtype=dtype), torch.randn(dim, dtype=dtype)

    def run(h, x, v):
        for layer in layers:
            h, x, v = layer(h, x, velocity=v)
        return h, x, v

    h, x, v = torch.randn(N, 8, dtype=dtype), torch.randn(N, dim, dtype=dtype), torch.randn(N, dim, dtype=dtype)
    still, moved = run(h, x, v), run(h, x @ r.T + t, v @ r.T)
    tolerance = 200 * torch.finfo(dtype).eps
    for one, other in zip(moved, (still[0], still[1] @ r.T + t, still[2] @ r.T), strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance * float(other.detach().abs().max()))


def test_coincident_points_have_finite_gradients():
    x = torch.zeros(N, 3, requires_grad=True)
    h, v = torch.randn(N, 4), torch.zeros(N, 3, requires_grad=True)
    outputs = (
        *EGNNLayer(4, velocity=True)(h, x, velocity=v),
        *RadialField(4)(x, velocity=v),
        *GramLayer(4, num_vectors=1)(h, x, v[:, None]),
    )
    sum(y.square().sum() for y in outputs).backward()
    assert x.grad.isfinite().all()
    assert v.grad.isfinite().all()


def test_inputs_are_not_changed():
    h, x, v = torch.randn(N, 4), torch.randn(N, 3), torch.randn(N, 3)
    before = h.clone(), x.clone(), v.clone()
    EGNNLayer(4, velocity=True)(h, x, velocity=v)
    assert all(map(torch.equal, before, (h, x, v)))


@pytest.mark.parametrize("n", [2, 4])
def test_radial_field_by_its_equations(n):
    layer, (x, v) = RadialField(8).double(), torch.randn(2, n, 3).double()
    expected = []
    for i in range(n):
        force = torch.zeros(3).double()
        for j in range(n):
            if i != j:
                distance = ((x[i] - x[j]).square().sum() + 0.01).log()
                force = force + (x[i] - x[j]) * layer.weight(distance[None]).tanh() / (n - 1)
        expected.append(layer.speed(v[i].square().sum().asinh()[None]) * v[i] + force)
    moved, velocity = layer(x, velocity=v)
    torch.testing.assert_close(velocity, torch.stack(expected))
    torch.testing.assert_close(moved, x + velocity)


def test_messages_of_another_width_than_the_features():
    layer = EGNNLayer(4, hidden_dim=7, velocity=True)
    h, x, v = layer(torch.randn(5, 4), torch.randn(5, 3), velocity=torch.randn(5, 3))
    assert (h.shape, x.shape, v.shape) == ((5, 4), (5, 3), (5, 3))


def test_one_point_moves_with_its_velocity_only():
    layer, h, x, v = EGNNLayer(4, velocity=True), torch.randn(1, 4), torch.randn(1, 3), torch.randn(1, 3)
    torch.testing.assert_close(layer(h, x, velocity=v)[1], x + layer.velocity(h) * v)


def test_gram_matrix_determines_vectors_up_to_rotation():
    vectors, r = torch.randn(10, 4, 3), Orthogonal(3).sample()
    torch.testing.assert_close(gram_matrix(vectors @ r.T), gram_matrix(vectors), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(gram_matrix(vectors.roll(1, 1)), gram_matrix(vectors))


def test_gram_mlp_learns_an_equivariant_function():
    """The normalized sum of two vectors, in another orientation than the training data."""
    model = GramMLP(2, out_vectors=1, hidden_dims=(32,))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def target(v):
        return torch.nn.functional.normalize(v.sum(1), dim=-1)

    train = torch.randn(256, 2, 3) * torch.tensor([1.0, 1.0, 0.0])  # in a plane
    for _ in range(300):
        loss = (model(train)[0][:, 0] - target(train)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    turned = train @ Orthogonal(3).sample().T
    assert (model(turned)[0][:, 0] - target(turned)).square().mean() < 0.02


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda h, x: EGNNLayer(4)(h, x[:-1]),
            r"expected coordinates of shape \(6, d\), one point per node, got \(5, 3\)",
        ),
        (lambda h, x: EGNNLayer(4)(h, x / 0), "coordinates must be finite"),
        (lambda h, x: EGNNLayer(4)(h, x, velocity=x), r"velocity needs EGNNLayer\(velocity=True\)"),
        (lambda h, x: EGNNLayer(4, velocity=True)(h, x), "needs velocity"),
        (
            lambda h, x: GramLayer(4, num_vectors=2)(h, x, x[:, None]),
            r"expected vectors of shape \(6, 2, 3\), got \(6, 1",
        ),
        (
            lambda h, x: EGNNLayer(5)(h, x),
            r"expected features of nodes of shape \(\*batch, n, 5\), got \(6, 4\)",
        ),
        (lambda h, x: GramLayer(5, num_vectors=1)(h, x, x[:, None]), r"of shape \(\*batch, n, 5\), got \(6, 4\)"),
        (
            lambda h, x: EGNNLayer(4, velocity=True)(h, x, velocity=x[:, :2]),
            r"expected velocity of shape \(6, 3\), got \(6, 2\)",
        ),
        (lambda h, x: EGNNLayer(4, velocity=True)(h, x, velocity=x / 0), "velocity must be finite"),
        (lambda h, x: RadialField(4)(x / 0, velocity=x), "coordinates must be finite"),
        (lambda h, x: GramLayer(4, num_vectors=1)(h, x, x[:, None] / 0), "vectors must be finite"),
        (lambda h, x: EGNNLayer(4, edge_dim=2)(h, x), r"edge_attr of shape \(\*batch, 6, 6, 2\), got None"),
        (
            lambda h, x: RadialField(4, edge_dim=1)(
                x, torch.tensor([[0], [1]]), velocity=x, edge_attr=torch.zeros(2, 1)
            ),
            r"expected edge_attr of shape \(\*batch, 1, 1\), got \(2, 1\)",
        ),
        (
            lambda h, x: EGNNLayer(4)(h, x, edge_attr=torch.zeros(6, 6, 1)),
            "expected no edge_attr, since edge_dim is 0, got",
        ),
        (lambda h, x: GramLayer(4, num_vectors=0), "num_vectors must be at least 1, got 0"),
        (lambda h, x: GramMLP(2), "expected out_vectors or out_scalars of at least 1"),
        (lambda h, x: GramMLP(2, out_scalars=1)(x), r"expected vectors of shape \(\*batch, 2, d\), got \(6, 3\)"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call(torch.randn(N, 4), torch.randn(N, 3))
