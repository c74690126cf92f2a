"""Linear regions: equal to an enumeration in fractions, also where creases coincide."""

import math
from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from torch import nn

from lawful.blocks import conv_to_matrix
from lawful.theory import (
    _arrangement,
    _subdivision,
    collapse,
    compile_max_affine,
    compile_piecewise_linear,
    regions_in_box,
    regions_on_plane,
    regions_on_segment,
)


def random_network(dims, seed=0, *, integers=False, slope=None, dtype=torch.float64):
    torch.manual_seed(seed)
    modules = []
    for a, b in pairwise(dims):
        layer = nn.Linear(a, b, dtype=dtype)
        if integers:
            with torch.no_grad():
                for parameter in layer.parameters():
                    parameter.copy_(torch.randint(-2, 3, parameter.shape))
        modules += [layer, nn.ReLU() if slope is None else nn.LeakyReLU(slope)]
    return nn.Sequential(*modules[:-1])


def enumerate_in_fractions(network, polygon):
    """Clips polygons, or intervals, by one unit after the other in fractions: pattern, corners and affine map."""
    dim = len(polygon[0])
    zero = Fraction(0)
    identity = [[Fraction(int(i == j)) for j in range(dim)] + [zero] for i in range(dim)]
    cells = [((), [tuple(map(Fraction, p)) for p in polygon], identity)]
    for module in network:
        if isinstance(module, nn.Linear):
            weight = [[Fraction(w) for w in row] for row in module.weight.double().tolist()]
            bias = [Fraction(b) for b in module.bias.double().tolist()]
            cells = [(pattern, corners, compose(weight, bias, forms)) for pattern, corners, forms in cells]
            continue
        slope = Fraction(getattr(module, "negative_slope", 0))
        for unit in range(len(cells[0][2])):
            split = []
            for pattern, corners, forms in cells:
                form = forms[unit]
                for sign in (1, -1):
                    part = clip(corners, [sign * c for c in form])
                    if part is None or (sign == 1 and not any(evaluate(form, p) for p in part)):
                        continue
                    mapped = (
                        forms
                        if sign == 1
                        else [[slope * c for c in row] if i == unit else row for i, row in enumerate(forms)]
                    )
                    split.append(((*pattern, sign == 1), part, mapped))
            cells = split
    return cells


def compose(weight, bias, forms):
    return [
        [
            sum(w * form[j] for w, form in zip(row, forms, strict=True)) + (b if j == len(forms[0]) - 1 else 0)
            for j in range(len(forms[0]))
        ]
        for row, b in zip(weight, bias, strict=True)
    ]


def evaluate(form, point):
    return sum((a * x for a, x in zip(form[:-1], point, strict=True)), form[-1])


def clip(corners, form):
    """Returns the part of a polygon or interval where a form is not negative, or None if it is flat."""
    values = [evaluate(form, p) for p in corners]
    if len(corners[0]) == 1:
        (a, b), (x, y) = corners, values
        if x * y < 0:
            middle = (a[0] + x / (x - y) * (b[0] - a[0]),)
            return [a, middle] if x > 0 else [middle, b]
        return corners if max(x, y) > 0 or x == y == 0 else None
    found = []
    for i, (p, v) in enumerate(zip(corners, values, strict=True)):
        q, w = corners[i - 1], values[i - 1]
        if v * w < 0:
            found.append(tuple(a + w / (w - v) * (b - a) for a, b in zip(q, p, strict=True)))
        if v >= 0:
            found.append(p)
    return found if len(set(found)) > 2 and area(found) else None


def area(corners):
    return sum(p[0] * q[1] - q[0] * p[1] for p, q in zip(corners, corners[1:] + corners[:1], strict=True)) / 2


def share_an_edge(first, second):
    """Whether two cells have a common edge, or for intervals a common end."""
    if len(first[0]) == 1:
        return bool(set(first) & set(second))
    for p, q in zip(first, first[1:] + first[:1], strict=True):
        along = (q[0] - p[0], q[1] - p[1])
        form = (along[1], -along[0], along[0] * p[1] - along[1] * p[0])
        for r, s in zip(second, second[1:] + second[:1], strict=True):
            if evaluate(form, r) == 0 == evaluate(form, s):
                places = [sum(a * (x - y) for a, x, y in zip(along, point, p, strict=True)) for point in (r, s)]
                if min(max(places), sum(a * a for a in along)) > max(min(places), 0):
                    return True
    return False


def count_linear_regions(cells):
    groups = [{i} for i in range(len(cells))]
    for i, j in combinations(range(len(cells)), 2):
        if cells[i][2] == cells[j][2] and groups[i] is not groups[j] and share_an_edge(cells[i][1], cells[j][1]):
            groups[i] |= groups[j]
            for k in list(groups[i]):
                groups[k] = groups[i]
    return len({id(group) for group in groups})


def dead_unit(network):
    with torch.no_grad():
        network[0].weight[0], network[0].bias[0] = 0.0, 0.0
        network[0].weight[1], network[0].bias[1] = 0.0, -1.0


def duplicate_units(network):
    with torch.no_grad():
        for layer in (network[0], network[2]):
            layer.weight[1], layer.bias[1] = layer.weight[0], layer.bias[0]
            layer.weight[2], layer.bias[2] = -3 * layer.weight[0], -3 * layer.bias[0]


def parallel_units(network):
    with torch.no_grad():
        network[0].weight[1] = network[0].weight[0]
        network[0].bias[1] = network[0].bias[0] + 2.0**-30
        network[0].bias[2] = network[0].bias[0] + 2.0**-51
        network[0].weight[2] = network[0].weight[0]


def creases_through_a_point(network):
    with torch.no_grad():
        for layer in network:
            if isinstance(layer, nn.Linear):
                layer.bias.zero_()


def dead_layer(network):
    with torch.no_grad():
        network[2].weight.copy_(-network[2].weight.abs())
        network[2].bias.zero_()


def ignored_unit(network):
    with torch.no_grad():
        network[2].weight[:, 0] = 0


def rounded(network):
    """Weights on a grid, so that many creases meet."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_((4 * parameter).round() / 4)


EDITS = [None, dead_unit, duplicate_units, parallel_units, creases_through_a_point, dead_layer, ignored_unit, rounded]
NAMES = ["random" if edit is None else edit.__name__ for edit in EDITS]


def check(regions, network, polygon):
    cells = enumerate_in_fractions(network, polygon)
    assert regions.num_activation_regions == len(cells)
    expected = {pattern: (set(corners), forms) for pattern, corners, forms in cells}
    assert len(expected) == len(cells)
    exact = [regions.exact_vertex(i) for i in range(len(regions.vertices))]
    for vertex, point in zip(regions.vertices.tolist(), exact, strict=True):
        assert np.allclose(vertex, [float(x) for x in point], rtol=1e-9, atol=1e-9)
    for i, pattern in enumerate(regions.patterns.tolist()):
        corners, forms = expected[tuple(pattern)]
        found = [exact[v] for v in regions.corners[i]]
        assert corners <= set(found)  # an edge may have more vertices, where a neighbor is split
        if regions.dim == 2:
            assert area(found) == area([p for p in found if p in corners]) > 0
        layer = regions.exact_map(i)
        assert [[*row, b] for row, b in zip(layer.weight, layer.bias, strict=True)] == forms
        assert np.allclose(regions.weight[i].numpy(), [[float(c) for c in form[:-1]] for form in forms], atol=1e-12)
        assert np.allclose(regions.bias[i].numpy(), [float(form[-1]) for form in forms], atol=1e-12)
    assert regions.num_linear_regions == count_linear_regions(cells)


SQUARE = [(-1, -1), (1, -1), (1, 1), (-1, 1)]


@pytest.mark.parametrize("edit", EDITS, ids=NAMES)
@pytest.mark.parametrize("slope", [None, 0.25], ids=["relu", "leaky"])
def test_polygons_equal_an_enumeration_in_fractions(edit, slope):
    network = random_network([2, 5, 4, 3, 2], seed=1, slope=slope)
    if edit is not None:
        edit(network)
    check(regions_in_box(network), network, SQUARE)


@pytest.mark.parametrize("edit", EDITS, ids=NAMES)
@pytest.mark.parametrize("slope", [None, -0.5], ids=["relu", "leaky"])
def test_intervals_equal_an_enumeration_in_fractions(edit, slope):
    network = random_network([1, 5, 5, 4, 2], seed=2, slope=slope)
    if edit is not None:
        edit(network)
    check(regions_on_segment(network, -2, 2), network, [(-2,), (2,)])


@pytest.mark.parametrize("seed", range(6))
def test_integer_weights(seed):
    network = random_network([2, 4, 4, 3, 1], seed, integers=True)
    check(regions_in_box(network, (-2, -2), (2, 1)), network, [(-2, -2), (2, -2), (2, 1), (-2, 1)])
    network = random_network([1, 4, 4, 4, 1], seed, integers=True)
    check(regions_on_segment(network, -3, 3), network, [(-3,), (3,)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_larger_network_in_the_plane(dtype):
    network = random_network([2, 32, 32, 16, 3], dtype=dtype)
    regions = regions_in_box(network, (-3, -2), (2, 4))
    count = regions.num_activation_regions
    assert len(regions.vertices) - len(regions.edges) + count == 1  # Euler's formula
    assert len(regions.patterns.unique(dim=0)) == count
    assert (regions.sizes > 0).all()
    assert abs(float(regions.sizes.sum()) - 30) < 1e-9
    assert regions.edge_regions.max() == count - 1
    torch.manual_seed(0)
    x = torch.tensor([-3, -2]) + torch.rand(2000, 2, dtype=torch.float64) * torch.tensor([5, 6])
    double = network.double()
    patterns, hidden = [], x
    with torch.no_grad():
        for module in double:
            hidden = module(hidden)
            if isinstance(module, nn.ReLU):
                patterns.append(hidden > 0)
    known = {tuple(row): i for i, row in enumerate(regions.patterns.tolist())}
    index = torch.tensor([known[tuple(row)] for row in torch.cat(patterns, dim=1).tolist()])  # no pattern is missing
    mapped = torch.einsum("noi,ni->no", regions.weight[index], x) + regions.bias[index]
    assert torch.allclose(mapped, hidden, atol=1e-10)
    for i in index[:100].tolist():
        center = regions[i].vertices.mean(0)
        assert torch.allclose(regions.weight[i] @ center + regions.bias[i], double(center), atol=1e-10)


@pytest.mark.parametrize(("dims", "slope"), [([2, 70, 9, 3], None), ([2, 12, 66, 2], 0.25), ([2, 9, 9, 9, 1], -0.5)])
def test_all_units_at_once_and_one_after_the_other_give_the_same_regions(monkeypatch, dims, slope):
    network = random_network(dims, slope=slope)
    split, done = _subdivision.Subdivision._split_all, []
    monkeypatch.setattr(_subdivision.Subdivision, "_split_all", lambda grid: done.append(split(grid)) or done[-1])
    regions = regions_in_box(network, (-2, -1), (1, 3))
    assert done == [True] * (len(dims) - 2)
    monkeypatch.setattr(_subdivision.Subdivision, "_split_all", lambda grid: False)
    others = regions_in_box(network, (-2, -1), (1, 3))
    assert len(regions) == len(others) > 50
    index = {tuple(row): i for i, row in enumerate(others.patterns.tolist())}
    assert len(index) == len(others)
    for i in range(0, len(regions), 7):
        region, other = regions[i], others[index[tuple(regions.patterns[i].tolist())]]
        assert torch.allclose(region.weight, other.weight)
        assert torch.allclose(region.bias, other.bias)
        corners, expected = (sorted(map(tuple, found.vertices.tolist())) for found in (region, other))
        assert torch.allclose(torch.tensor(corners), torch.tensor(expected))
    exact = {regions.exact_vertex(i) for i in range(0, len(regions.vertices), 50)}
    assert exact <= {others.exact_vertex(i) for i in range(len(others.vertices))}
    assert regions.num_linear_regions == others.num_linear_regions


@pytest.mark.parametrize("name", ["divide_segments", "group_rows"])
def test_without_a_certain_order_units_come_one_after_the_other(monkeypatch, name):
    network = random_network([2, 5, 4, 3, 2], seed=1)
    monkeypatch.setattr(_subdivision, name, lambda *args: None)
    check(regions_in_box(network), network, SQUARE)


def test_wide_layers_do_not_need_the_memory_of_all_pairs_of_units(monkeypatch):
    network = random_network([2, 150, 1])
    split, done = _subdivision.Subdivision._split_all, []
    monkeypatch.setattr(_subdivision.Subdivision, "_split_all", lambda grid: done.append(split(grid)) or done[-1])
    regions = regions_in_box(network, (-2, -2), (2, 2))
    monkeypatch.setattr(_subdivision, "_MAX_PAIRS", 0)
    assert len(regions_in_box(network, (-2, -2), (2, 2))) == len(regions)
    assert done == [True, False]


def test_an_order_that_rounding_changed_is_noticed():
    signs = np.array([[-1, 1, 0, 1], [-1, 1, -1, 0]], dtype=np.int8)  # unit 0 changes its sign before unit 1
    ends, segment, vertex, unit = np.array([[0], [1]]), np.zeros(2, dtype=int), np.array([2, 3]), np.array([0, 1])
    place = np.array([[0.0, 1.0, 0.25, 0.5], [0.0, 0.0, 0.0, 0.0]])
    pieces, _ = _arrangement.divide_segments(signs, place, ends, segment, vertex, unit)
    assert pieces.T.tolist() == [[0, 2], [2, 3], [3, 1]]
    place[0, 2:] = [0.5, 0.25]
    assert _arrangement.divide_segments(signs, place, ends, segment, vertex, unit) is None


def test_a_slice_is_the_network_of_the_slice():
    network = random_network([6, 5, 4, 1], seed=3)
    rng = np.random.default_rng(0)
    origin, directions = rng.normal(size=6), rng.normal(size=(2, 6))
    first = nn.Linear(2, 6, dtype=torch.float64)
    with torch.no_grad():
        first.weight.copy_(torch.from_numpy(directions.T))
        first.bias.copy_(torch.from_numpy(origin))
    corners = [(-2, -1), (2, -1), (2, 1), (-2, 1)]
    regions = regions_on_plane(network, origin, directions, low=(-2, -1), high=(2, 1))
    check(regions, nn.Sequential(first, *network), corners)
    reshaped = nn.Sequential(nn.Flatten(), nn.Identity(), nn.Sequential(*network), nn.Dropout(0.5)).eval()
    again = regions_on_plane(reshaped, torch.from_numpy(origin).reshape(2, 3), directions, low=(-2, -1), high=(2, 1))
    assert torch.equal(again.patterns, regions.patterns)


def test_a_slice_of_a_wide_network_needs_few_exact_values(monkeypatch):
    network = random_network([300, 100, 100, 3], dtype=torch.float32)
    torch.manual_seed(1)
    origin, first, second = torch.rand(3, 300)
    calls = []
    exact = _subdivision.exact_values
    monkeypatch.setattr(_subdivision, "exact_values", lambda *args, **kw: calls.append(1) or exact(*args, **kw))
    regions = regions_on_plane(network, origin, [first - origin, second - origin])
    assert regions.num_activation_regions > 500
    assert len(calls) < 20
    assert abs(float(regions.sizes.sum()) - 4) < 1e-6
    for i in range(0, len(regions), 50):
        s, t = center = regions[i].vertices.mean(0)
        x = origin.double() + s * (first - origin).double() + t * (second - origin).double()
        with torch.no_grad():
            assert torch.allclose(regions.weight[i] @ center + regions.bias[i], network.double()(x), atol=1e-6)


def test_a_segment_between_two_points():
    network = random_network([3, 6, 5, 2], seed=4)
    start, end = [0.1, -2.0, 0.3], torch.tensor([1.7, 3.3, -0.9])
    first, second = nn.Linear(1, 2, dtype=torch.float64), nn.Linear(2, 3, dtype=torch.float64)
    with torch.no_grad():
        first.weight.copy_(torch.tensor([[-1.0], [1.0]]))
        first.bias.copy_(torch.tensor([1.0, 0.0]))
        second.bias.zero_()
        second.weight.copy_(torch.stack([torch.tensor(start, dtype=torch.float64), end.double()], dim=1))
    check(regions_on_segment(network, start, end), nn.Sequential(first, second, *network), [(0,), (1,)])


def test_pieces_of_compiled_functions():
    knots, values = [0, 1, 2, 4, 5], [1, 3, 0, 2, 2.5]
    regions = regions_on_segment(compile_piecewise_linear(knots, values, dtype=torch.float64), -10, 10)
    assert regions.num_linear_regions == 4  # the last two segments are one piece
    starts = [regions.exact_vertex(i)[0] for i in regions.edges[:, 0]]
    assert set(starts) <= {-10, *knots}
    regions = regions_in_box(compile_max_affine([[1, 0], [0, 1], [-1, -1], [0, 0]], [0, 0, 0, 1]), (-3, -3), (3, 3))
    assert regions.num_linear_regions == 4
    assert regions.num_activation_regions > 4


def test_a_network_without_hidden_units():
    regions = regions_on_segment(compile_piecewise_linear([0, 1], [0.5, 0.5]), 0, 1)
    assert (regions.num_activation_regions, regions.num_linear_regions) == (1, 1)
    assert (float(regions.weight), float(regions.bias)) == (0.0, 0.5)
    assert regions.patterns.shape == (1, 0)


def test_regions_below_the_resolution_of_floats():
    """Two breakpoints that have the same rounding are two."""
    network = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1)).double()
    with torch.no_grad():
        network[0].weight.copy_(torch.tensor([[3.0], [3.0 + 2**-50]], dtype=torch.float64))
        network[0].bias.fill_(-1.0)
        network[2].weight.fill_(1.0)
    regions = regions_on_segment(network, 0, 1)
    assert regions.num_linear_regions == 3
    ends = sorted(regions.exact_vertex(i)[0] for i in range(4))
    assert ends[2] == Fraction(1, 3)
    assert 0 < ends[2] - ends[1] < Fraction(1, 10**15)


LINEAR = nn.Linear(2, 3)
EMPTY = compile_piecewise_linear([0, 1], [0.5, 0.5])[:2]


def spoiled(value):
    layer = nn.Linear(2, 3)
    nn.init.constant_(layer.bias, value)
    return nn.Sequential(layer)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: regions_in_box(spoiled(math.nan)), r"weights must be finite: network\[0\]"),
        (lambda: regions_in_box(spoiled(math.inf)), r"weights must be finite: network\[0\]"),
        (lambda: regions_in_box(LINEAR, (-1, -math.inf)), r"low must be finite, since only bounded boxes"),
        (lambda: regions_in_box(LINEAR, (0, 0), (1, math.nan)), r"high must be finite"),
        (lambda: regions_in_box(LINEAR, (0, 1), (1, 1)), r"low must be less than high: got \[0.0, 1.0\]"),
        (lambda: regions_in_box(LINEAR, (0, 0, 0)), r"low must have 2 entries: got shape \(3,\)"),
        (lambda: regions_in_box(nn.Linear(3, 1)), r"network must have 2 inputs: got 3; regions_on_plane"),
        (lambda: regions_in_box(nn.Sequential(LINEAR, nn.GELU())), r"network\[1\] is GELU"),
        (lambda: regions_in_box(nn.Sequential(LINEAR, nn.BatchNorm1d(3))), r"is BatchNorm1d; lawful.theory.collapse"),
        (lambda: regions_in_box(nn.Sequential(nn.Conv2d(1, 1, 2))), r"is Conv2d; .* lawful.blocks.conv_to_matrix"),
        (lambda: regions_in_box(nn.Sequential(nn.Sequential(nn.Tanh()))), r"network\[0\]\[0\] is Tanh"),
        (lambda: regions_in_box(nn.Sequential(LINEAR, nn.Dropout(0.5))), r"call network.eval\(\)"),
        (lambda: regions_in_box(nn.Sequential(nn.ReLU(), LINEAR)), r"first layer must be Linear"),
        (lambda: regions_in_box(nn.Sequential()), r"network must have a Linear layer"),
        (lambda: regions_in_box(nn.Sequential(LINEAR, nn.Linear(4, 1))), r"in_features=3, .* got 4"),
        (lambda: regions_on_segment(EMPTY, 0, 1), r"network must have inputs and outputs: got 1 inputs and 0 outputs"),
        (lambda: regions_in_box(nn.Linear(2, 1, dtype=torch.complex64)), r"real floating-point weights"),
        (lambda: regions_on_segment(LINEAR, [0, 0], [0]), r"end must have 2 entries.* got 1"),
        (lambda: regions_on_segment(LINEAR, [0, 0], [0, math.inf]), r"end must be finite"),
        (lambda: regions_on_segment(LINEAR, [0, 1], [0, 1]), r"start and end must differ"),
        (lambda: regions_on_segment(nn.Linear(1, 1), 1, 0), r"start must be less than end"),
        (lambda: regions_on_plane(LINEAR, [0, 0], [[1, 2], [0.5, 1]]), r"directions must be linearly independent"),
        (lambda: regions_on_plane(LINEAR, [0, 0], [[1, 2]]), r"directions must have two vectors: got 1"),
        (lambda: regions_on_plane(LINEAR, [0], [[1, 2], [2, 1]]), r"origin must have 2 entries"),
        (lambda: regions_on_segment(nn.Linear(1, 1), 0, 1).edge_units, r"edges of regions on a segment"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_batch_norm_is_counted_after_collapse():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(2, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 1)).double()
    network(torch.randn(64, 2).double())  # running statistics
    collapsed, _ = collapse(network.eval())
    regions = regions_in_box(collapsed)
    x = torch.rand(200, 2).double() * 2 - 1
    patterns = (network[:2](x) > 0).unique(dim=0)
    assert {tuple(row) for row in patterns.tolist()} <= {tuple(row) for row in regions.patterns.tolist()}
    assert len(patterns) > 1


def test_convolutions_are_counted_as_matrices():
    torch.manual_seed(0)
    conv, head = nn.Conv1d(1, 2, 2).double(), nn.Linear(6, 1).double()
    dense = nn.Linear(4, 6).double()
    dense.weight.data = conv_to_matrix(conv, (4,)).detach()
    dense.bias.data = conv.bias.detach().repeat_interleave(3)
    network, x = nn.Sequential(dense, nn.ReLU(), head), torch.randn(2, 4).double()
    for region in regions_on_segment(network, *x):
        t = region.vertices.mean(0)
        value = nn.Sequential(conv, nn.ReLU(), nn.Flatten(), head)(torch.lerp(x[0], x[1], t)[None, None])
        torch.testing.assert_close(region.weight @ t + region.bias, value[0])


def test_values_that_overflow_are_refused():
    network = random_network([2, 3, 3, 1])
    with torch.no_grad():
        network[0].weight.fill_(1e300)
        network[2].weight.fill_(1e300)
    with pytest.raises(ValueError, match="overflow float64"):
        regions_in_box(network)
