"""Certified bounds of outputs: sound, tight for affine maps, equal to the formulas of CROWN."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from torch import nn

from lawful.inference.attacks import FREE, PGD, TARGETED, margin
from lawful.models import MLP
from lawful.theory import RationalNetwork, _relaxations, output_bounds

METHODS = ("ibp", "crown", "alpha-crown")


class Block(nn.Module):
    def __init__(self, inner, inplace):
        super().__init__()
        self.inner, self.relu = inner, nn.ReLU(inplace=inplace)

    def forward(self, x):
        identity = x
        out = self.inner(x)
        out += identity
        return self.relu(0.5 * out - 0.1).view(x.shape)


def conv(inplace=False):
    norm = nn.BatchNorm2d(4)
    nn.init.normal_(norm.running_mean)
    nn.init.uniform_(norm.running_var, 0.5, 2)
    nn.init.normal_(norm.weight)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, stride=2, padding=1),
        norm,
        nn.LeakyReLU(0.1),
        Block(
            nn.Sequential(nn.Conv2d(4, 4, 3, padding="same", groups=2), nn.ReLU(inplace), nn.Conv2d(4, 4, 1)), inplace
        ),
        nn.AvgPool2d(2),
        nn.Dropout(0.5),
        nn.Flatten(),
        nn.Linear(4, 3),
    ), (2, 4, 4)


def mlp(*activations):
    layers = [layer for a in activations for layer in (nn.Linear(6, 6), a)]
    return nn.Sequential(nn.Sequential(nn.Linear(3, 6), activations[0]), *layers, nn.Linear(6, 3)), (3,)


NETWORKS = {
    "relu": lambda: mlp(nn.ReLU(), nn.ReLU()),
    "tanh": lambda: mlp(nn.Tanh(), nn.Sigmoid()),
    "gelu": lambda: mlp(nn.GELU(), nn.GELU("tanh")),
    "silu": lambda: mlp(nn.SiLU(), nn.Softplus(beta=2)),
    "conv": conv,
    "conv in place": lambda: conv(inplace=True),
    "conv1d": lambda: (
        nn.Sequential(
            nn.Conv1d(2, 3, 3, dilation=2), nn.Tanh(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(3, 2)
        ),
        (2, 9),
    ),
    "MLP": lambda: (MLP(3, 2, hidden_dims=(5, 5), activation=nn.LeakyReLU(1.5)), (3,)),
}


def build(name, dtype=torch.float64):
    network, shape = NETWORKS[name]()
    x = torch.randn(2, *shape, dtype=dtype)
    return network.to(dtype).eval(), x, 0.3 * torch.rand(2, *shape, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", NETWORKS)
def test_samples_and_corners_are_inside_and_each_method_is_inside_the_one_before(name, dtype):
    network, x, radius = build(name, dtype)
    signs = torch.cat([2 * torch.rand(200, *x.shape) - 1, torch.randn(100, *x.shape).sign()]).to(dtype)
    points = torch.minimum(torch.maximum(x + signs * radius, x - radius), x + radius)
    with torch.no_grad():
        y = network(points.flatten(0, 1)).unflatten(0, points.shape[:2])
    previous = None
    for method in METHODS:
        lower, upper = output_bounds(network, x - radius, x + radius, method=method, steps=3)
        assert lower.shape == network(x).shape
        assert bool((lower <= y).all() and (y <= upper).all())
        if previous is not None:
            slack = 1e-12 if dtype == torch.float64 else 1e-5
            assert bool((lower >= previous[0] - slack).all() and (upper <= previous[1] + slack).all())
            assert (upper - lower).sum() < (previous[1] - previous[0]).sum()
        previous = lower, upper


@pytest.mark.parametrize("name", NETWORKS)
def test_attacks_do_not_leave_the_bounds(name):
    network, x, _ = build(name, torch.float32)
    eps = 0.2
    lower, upper = output_bounds(network, x - eps, x + eps, method="crown")
    for label in range(2):
        y = torch.full((2,), label)
        for goal in (None, TARGETED):
            attack = PGD(
                eps=eps * (1 - 1e-6), steps=15, loss=margin, bounds=FREE, **({} if goal is None else {"goal": goal})
            )
            with torch.no_grad():
                found = network(attack(network, x, y))
            assert bool((lower <= found).all() and (found <= upper).all())


@pytest.mark.parametrize("method", METHODS)
def test_affine_maps_are_bounded_exactly(method):
    network = nn.Sequential(nn.Linear(4, 9), nn.Identity(), nn.Linear(9, 9), nn.Dropout(0.1), nn.Linear(9, 2))
    network = network.double().eval()
    x, radius = torch.randn(3, 4, dtype=torch.float64), torch.rand(3, 4, dtype=torch.float64)
    matrix = network[4].weight @ network[2].weight @ network[0].weight
    spread = radius @ matrix.abs().T
    lower, upper = output_bounds(network, x - radius, x + radius, method=method)
    expected = network(x)
    if method == "ibp":
        assert bool((lower < expected - spread).all())
    else:
        torch.testing.assert_close(lower, (expected - spread).detach(), rtol=0, atol=1e-11)
        torch.testing.assert_close(upper, (expected + spread).detach(), rtol=0, atol=1e-11)


def crown_by_hand(network, x, eps):
    """The formulas of the paper for two hidden layers, in NumPy. Each layer is also bounded by the one before."""
    layers = [[p.detach().double().numpy() for p in network[i].parameters()] for i in (0, 2, 4)]
    hidden = []

    def lines(low, high):
        slope = np.where(low >= 0, 1.0, np.where(high <= 0, 0.0, high / np.maximum(high - low, 1e-300)))
        shift = np.where((low < 0) & (high > 0), -slope * low, 0.0)
        return slope, shift, np.where(low >= 0, 1.0, (high > -low).astype(float))

    def bound(rows, constant):
        for weight, bias, (low, high) in reversed(hidden):
            slope, shift, below = lines(low, high)
            constant = constant + np.minimum(rows, 0) @ shift
            rows = np.maximum(rows, 0) * below + np.minimum(rows, 0) * slope
            constant, rows = constant + rows @ bias, rows @ weight
        return rows @ x - eps * np.abs(rows).sum(-1) + constant

    low, high = x - eps, x + eps
    for weight, bias in layers:
        center, radius = weight @ (low + high) / 2 + bias, np.abs(weight) @ (high - low) / 2
        low = np.maximum(bound(weight, bias), center - radius)
        high = np.minimum(-bound(-weight, -bias), center + radius)
        hidden.append((weight, bias, (low, high)))
        last, low, high = (low, high), np.maximum(low, 0), np.maximum(high, 0)
    return last


def test_crown_is_the_formula_of_the_paper():
    network = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)).double()
    x = torch.randn(3, dtype=torch.float64)
    expected = crown_by_hand(network, x.numpy(), 0.4)
    found = output_bounds(network, x[None] - 0.4, x[None] + 0.4)
    np.testing.assert_allclose(found[0][0], expected[0], rtol=0, atol=1e-10)
    np.testing.assert_allclose(found[1][0], expected[1], rtol=0, atol=1e-10)


def triangle_relaxation(network, x, eps):
    """Bounds by linear programs: a ReLU is above both of its pieces and below its chord."""
    layers = [[p.detach().numpy() for p in network[i].parameters()] for i in (0, 2, 4)]
    size = len(x)
    boxes = [(v - eps, v + eps) for v in x]
    rows, limits = np.zeros((0, size)), np.zeros(0)
    matrix, shift = layers[0]
    for i in range(3):
        bounds = [
            [s * linprog(s * row, rows, limits, bounds=boxes).fun + b for s in (1, -1)]
            for row, b in zip(matrix, shift, strict=True)
        ]
        if i == 2:
            return np.array(bounds).T
        low, high = np.array(bounds).T
        chord = np.where(low >= 0, 1.0, np.where(high <= 0, 0.0, high / (high - low)))[:, None]
        offset = np.where((low < 0) & (high > 0), -chord[:, 0] * low, 0.0)
        units = np.eye(len(low))
        above, zero = np.hstack([matrix, -units]), np.hstack([0 * matrix, -units])
        below = np.hstack([-chord * matrix, units])
        rows = np.vstack([np.pad(rows, ((0, 0), (0, len(low)))), above, zero, below])
        limits = np.concatenate([limits, -shift, 0 * shift, chord[:, 0] * shift + offset])
        boxes += [(None, None)] * len(low)
        matrix, shift = layers[i + 1]
        matrix = np.hstack([np.zeros((len(matrix), rows.shape[1] - matrix.shape[1])), matrix])


def test_optimized_slopes_reach_the_linear_programs():
    # With bounds of the hidden layers by the same method, the best slopes are the dual solution.
    network = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)).double()
    x = torch.randn(3, dtype=torch.float64)
    lower, upper = triangle_relaxation(network, x.numpy(), 0.8)
    crown = output_bounds(network, x[None] - 0.8, x[None] + 0.8)
    alpha = output_bounds(network, x[None] - 0.8, x[None] + 0.8, method="alpha-crown")
    best = np.concatenate([lower, -upper])
    gap, before = (best - torch.cat([b.lower[0], -b.upper[0]]).numpy() for b in (alpha, crown))
    assert (gap > -1e-9).all()
    assert gap.sum() < 0.02 * before.sum()


def test_a_convolution_is_its_matrix():
    layer = nn.Conv2d(2, 3, 3, stride=2, padding=1).double()
    basis = torch.eye(2 * 5 * 4, dtype=torch.float64).reshape(-1, 2, 5, 4)
    bias = layer(torch.zeros(1, 2, 5, 4, dtype=torch.float64)).flatten()
    dense = nn.Linear(40, len(bias)).double()
    dense.weight.data, dense.bias.data = (layer(basis).flatten(1) - bias).T.contiguous().detach(), bias.detach()
    head = nn.Linear(len(bias), 2).double()
    x = torch.randn(1, 2, 5, 4, dtype=torch.float64)
    for method in ("ibp", "crown"):
        a = output_bounds(nn.Sequential(layer, nn.Tanh(), nn.Flatten(), head), x - 0.2, x + 0.2, method=method)
        b = output_bounds(
            nn.Sequential(dense, nn.Tanh(), head), (x - 0.2).flatten(1), (x + 0.2).flatten(1), method=method
        )
        torch.testing.assert_close(tuple(a), tuple(b), rtol=0, atol=1e-10)


ACTIVATIONS = [
    _relaxations.LeakyReLU(),
    _relaxations.LeakyReLU(0.2),
    _relaxations.LeakyReLU(-0.5),
    _relaxations.LeakyReLU(2.0),
    _relaxations.sigmoid(),
    _relaxations.tanh(),
    _relaxations.silu(),
    _relaxations.gelu(),
    _relaxations.gelu("tanh"),
    _relaxations.softplus(0.5),
]


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=lambda a: a.name)
def test_lines_bound_the_activation(activation):
    center, width = 4 * torch.randn(300, dtype=torch.float64), 10 * torch.rand(300, dtype=torch.float64) ** 4
    center[:4], width[:4] = torch.tensor([0.0, 1e4, -1e4, 300.0]), torch.tensor([2e4, 1.0, 1.0, 0.0])
    low, high = center - width, center + width
    x = low + torch.linspace(0, 1, 501, dtype=torch.float64)[:, None] * (high - low)
    x = torch.minimum(x, high)
    below, above = activation.slopes(low, high)
    for scale in (1.0, -2.0):  # any slope is sound
        for sign, slope in ((-1, below), (1, above)):
            line = scale * slope * x + activation.intercept(scale * slope, low, high, sign=sign)
            assert bool((sign * (line - activation.value(x)) >= 0).all())
    bottom, top = activation.interval(low, high)
    y = activation.value(x)
    assert bool((bottom <= y).all() and (y <= top).all())
    narrow = width < 2
    torch.testing.assert_close(bottom[narrow], y.amin(0)[narrow], rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("activation", ACTIVATIONS[4:], ids=lambda a: a.name)
def test_lines_touch_the_envelope_at_the_midpoint(activation):
    low = torch.tensor([-3.0, -1.0, -0.5, 0.2, 1.0, -6.0], dtype=torch.float64)
    high = torch.tensor([2.0, 4.0, 0.6, 3.0, 1.1, -2.0], dtype=torch.float64)
    middle = (low + high) / 2
    # The concave envelope at the midpoint: the highest chord of a fine grid.
    steps = torch.linspace(0, 1, 801, dtype=torch.float64)
    for sign, slope in zip((-1, 1), activation.slopes(low, high), strict=True):
        found = sign * (slope * middle + activation.intercept(slope, low, high, sign=sign))
        for i in range(len(low)):
            p = steps * (high[i] - low[i]) / 2
            left, right = sign * activation.value(middle[i] - p), sign * activation.value(middle[i] + p)
            a, b = p[:, None], p[None]
            chords = (left[:, None] * b + right[None] * a) / (a + b).clamp(min=1e-30)
            chords[0, 0] = left[0]
            assert chords.max() - 1e-12 <= found[i] <= chords.max() + 1e-4 * (1 + high[i] - low[i])


def test_rounding_of_float32_is_covered():
    network = nn.Sequential(nn.Linear(3, 50), nn.ReLU(), nn.Linear(50, 1))
    with torch.no_grad():
        network[0].weight.mul_(1e4)
        network[2].weight.mul_(1e4)
    x = torch.randn(20, 3)
    exact = RationalNetwork.from_module(network)
    values = torch.tensor([float(exact(*(Fraction(v) for v in row))[0]) for row in x.tolist()], dtype=torch.float64)
    inner = output_bounds(network, x, x, rounding=False)
    outer = output_bounds(network, x, x)
    with torch.no_grad():
        y = network(x)[:, 0].double()
    assert bool((inner.lower[:, 0] <= values).all() and (values <= inner.upper[:, 0]).all())
    assert not bool((inner.lower[:, 0] <= y).all() and (y <= inner.upper[:, 0]).all())  # float32 does leave them
    assert bool((outer.lower[:, 0] <= y).all() and (y <= outer.upper[:, 0]).all())


def test_a_softplus_above_its_threshold_is_covered():
    network = nn.Sequential(nn.Linear(1, 1), nn.Softplus(threshold=8)).double()
    nn.init.ones_(network[0].weight)
    nn.init.zeros_(network[0].bias)
    x = torch.tensor([[8.0001]], dtype=torch.float64)
    lower, _ = output_bounds(network, x, x)
    assert lower.item() <= network(x).item() == x.item()


def test_numbers_that_overflow_have_infinite_bounds():
    network = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 1))
    nn.init.constant_(network[0].weight, 1e30)
    nn.init.constant_(network[2].weight, 1e30)
    lower, upper = output_bounds(network, torch.full((1, 1), -1.0), torch.ones(1, 1))
    assert upper.item() == float("inf")
    assert lower.item() <= 0


def linear(size=2):
    return nn.Sequential(nn.Linear(size, 2))


@pytest.mark.parametrize(
    ("network", "lower", "upper", "options", "message"),
    [
        (linear(), [[0, 0]], [[0, -1]], {}, "lower must not exceed upper: got 0 > -1"),
        (linear(), [[0, 0]], [[0, float("inf")]], {}, "finite: got NaN or an unbounded box"),
        (linear(), [[0, float("nan")]], [[0, 1]], {}, "finite: got NaN"),
        (linear(), [[0, 0]], [[0, 0, 0]], {}, r"same shape: got \(1, 2\), \(1, 3\)"),
        (linear(), [0, 0], [1, 1], {}, r"batch of corners, of shape \(n, ...\): got \(2,\)"),
        (linear(3), [[0, 0]], [[1, 1]], {}, "shapes cannot be multiplied"),
        (linear(), [[0, 0]], [[1, 1]], {"method": "lp"}, "'ibp', 'crown' or 'alpha-crown': got 'lp'"),
        (linear(), [[0, 0]], [[1, 1]], {"steps": -1}, "steps must not be negative: got -1"),
        (nn.Sequential(linear(), nn.LayerNorm(2)), [[0, 0]], [[1, 1]], {}, "layer_norm is not supported: expected"),
        (nn.Sequential(linear(), nn.Softmax(-1)), [[0, 0]], [[1, 1]], {}, "softmax is not supported"),
        (nn.Sequential(linear(), nn.Dropout()), [[0, 0]], [[1, 1]], {}, r"dropout must be off: call network.eval\(\)"),
        (
            nn.Sequential(linear(), nn.BatchNorm1d(2)),
            [[0, 0]],
            [[1, 1]],
            {},
            r"running statistics: call network.eval\(\)",
        ),
        (linear().half(), [[0, 0]], [[1, 1]], {}, "float32 or float64: got torch.float16"),
    ],
)
def test_errors(network, lower, upper, options, message):
    with pytest.raises((ValueError, RuntimeError), match=message):
        output_bounds(network, torch.tensor(lower).float(), torch.tensor(upper).float(), **options)


def test_weights_that_are_not_finite_are_refused():
    network = linear()
    nn.init.constant_(network[0].bias, float("nan"))
    with pytest.raises(ValueError, match="weights of network must be finite"):
        output_bounds(network, torch.zeros(1, 2), torch.ones(1, 2))


class Data(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


class Product(nn.Module):
    def forward(self, x):
        return x * x


class Merged(nn.Module):
    def forward(self, x):
        return x.view(1, -1)


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (Merged(), "a reshape must keep the batch axis"),
        (Data(), "sum is not supported"),
        (Product(), "product of two tensors"),
    ],
)
def test_networks_that_are_not_a_fixed_graph_are_refused(network, message):
    with pytest.raises(ValueError, match=message):
        output_bounds(network, torch.zeros(1, 2), torch.ones(1, 2))
