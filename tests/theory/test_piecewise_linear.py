"""Piecewise-linear functions as networks: exact, minimal, with proofs and bounds that hold."""

import math
import random
import re
from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from torch import nn

import lawful
from lawful.checking import check_claims
from lawful.laws import agreement, shape
from lawful.theory import (
    PiecewiseLinear,
    RationalNetwork,
    _subset_sum,
    compile_piecewise_linear,
    piecewise_linear,
    prove_piecewise_linear,
)


def random_function(seed, n, *, integers=False):
    rng = np.random.default_rng(seed)
    if integers:
        return PiecewiseLinear(range(n), rng.integers(-4, 5, n).tolist())
    return PiecewiseLinear(np.sort(rng.normal(size=n)), rng.normal(size=n))


def fewest_units(slopes):
    """Tries all orientations of one unit per breakpoint."""
    if len(slopes) == 1:
        return 2 if slopes[0] else 0
    jumps = [b - a for a, b in pairwise(slopes)]
    subsets = (c for r in range(len(jumps) + 1) for c in combinations(jumps, r))
    return len(jumps) + (not any(sum(subset) == -slopes[0] for subset in subsets))


# ---------------------------------------------------------------- oracle


@pytest.mark.parametrize("width", [None, 3, 4, 7])
@pytest.mark.parametrize("n", [2, 3, 4, 9, 30])
def test_the_rational_network_equals_the_function(n, width):
    """At the knots, between them and outside, in exact arithmetic."""
    function = random_function(n, n)
    network = function.to_network(width=width)
    knots = function.knots
    points = [*knots, *((a + b) / 2 for a, b in pairwise(knots)), knots[0] - 3, knots[-1] + Fraction(1, 7)]
    for x in points:
        left = max((i for i, t in enumerate(knots) if t <= x), default=0)
        i = min(left, n - 2)
        slope = (function.values[i + 1] - function.values[i]) / (knots[i + 1] - knots[i])
        expected = function.values[i] + slope * (x - knots[i])
        assert function.exact(x) == expected
        assert network(x) == (expected,)
    if width is not None:
        assert max(network.hidden_dims) <= width


@pytest.mark.parametrize("width", [None, 3, 5])
def test_the_module_equals_numpy(width):
    function = random_function(1, 40)
    network = compile_piecewise_linear(function, width=width, dtype=torch.float64)
    x = torch.linspace(float(function.knots[0]), float(function.knots[-1]), 5001, dtype=torch.float64)
    expected = np.interp(x, [float(t) for t in function.knots], [float(v) for v in function.values])
    np.testing.assert_allclose(network(x[:, None])[:, 0].detach(), expected, rtol=0, atol=1e-9)
    np.testing.assert_allclose(function(x), expected, rtol=0, atol=1e-12)


def test_the_number_of_units_is_minimal():
    """Against all orientations, for small integers, where many of the functions need no additional unit."""
    sizes = set()
    for seed in range(150):
        random.seed(seed)
        n = random.randint(1, 7)
        slopes = [random.randint(-5, 5) for _ in range(n + 1)]
        slopes = [s for i, s in enumerate(slopes) if i == 0 or s != slopes[i - 1]]
        function = PiecewiseLinear.from_slopes(
            range(max(len(slopes) - 1, 1)), slopes if len(slopes) > 1 else slopes * 2
        )
        (units,) = function.to_network().hidden_dims
        assert units == fewest_units(slopes), slopes
        proof = prove_piecewise_linear(function.to_network().to_module(torch.float64), function)
        assert proof.exact
        assert proof.minimal
        assert proof.weight_error == 0
        sizes.add(units - (len(slopes) - 1))
    assert sizes == {0, 1, 2}


def test_many_small_integers_are_decided():
    """More breakpoints than subsets can be compared."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        slopes = np.where(np.arange(61) % 2, 1, -1) * rng.integers(1, 50, 61) * 2
        function = PiecewiseLinear.from_slopes(range(60), slopes.tolist())
        proof = prove_piecewise_linear(compile_piecewise_linear(function, dtype=torch.float64), function)
        assert proof.exact
        assert proof.minimal
        odd = PiecewiseLinear.from_slopes(range(60), (slopes + 1).tolist())
        assert compile_piecewise_linear(odd)[0].out_features == 61  # an odd number of odd numbers is not 0
        assert prove_piecewise_linear(compile_piecewise_linear(odd), odd).minimal


def test_an_undecided_function_says_so():
    rng = np.random.default_rng(0)
    function = PiecewiseLinear(np.linspace(0, 1, 101), rng.normal(size=101))
    proof = prove_piecewise_linear(compile_piecewise_linear(function), function)
    assert (proof.hidden_dims, proof.lower_bound, proof.minimal) == ((100,), 99, False)
    assert "subset-sum problem" in str(proof)


def test_denominators_exclude_what_their_product_excludes():
    rng = random.Random(0)
    for _ in range(200):
        numbers = [rng.choice([1, 3, 5, 7, 9, 15, 21, 25, 27, 49, 121, 11]) for _ in range(rng.randint(1, 9))]
        kept = list(range(len(numbers)))
        while True:
            products = {k: math.prod(numbers[i] for i in kept if i != k) for k in kept}
            if len(left := [k for k in kept if products[k] % numbers[k] == 0]) == len(kept):
                break
            kept = left
        assert _subset_sum._after_denominators(numbers) == kept


def test_denominators_decide_for_many_pieces():
    rng = random.Random(0)
    slopes = [(rng.getrandbits(40) | 1, rng.getrandbits(45) | 1) for _ in range(6500)]
    found = _subset_sum.left_units(slopes)
    assert found.decided
    assert found.reason == "the denominators of the slopes exclude an alternating sum that is zero"


@pytest.mark.parametrize("limit", ["_MAX_DENOMINATOR_BITS", "_MAX_SUMS", "_MAX_NUMBER_BITS"])
def test_a_search_over_its_budget_says_so(monkeypatch, limit):
    rng = np.random.default_rng(0)
    if limit != "_MAX_DENOMINATOR_BITS":
        slopes = np.where(np.arange(61) % 2, 1, -1) * rng.integers(1, 50, 61) * 2
        function = PiecewiseLinear.from_slopes(range(60), slopes.tolist())
    else:
        function = PiecewiseLinear(np.sort(rng.normal(size=60)), rng.normal(size=60))
    network = compile_piecewise_linear(function)
    assert prove_piecewise_linear(network, function).minimal
    monkeypatch.setattr(_subset_sum, limit, 1)
    fresh = PiecewiseLinear(
        function.knots, function.values, left_slope=function.slopes[0], right_slope=function.slopes[-1]
    )
    proof = prove_piecewise_linear(compile_piecewise_linear(fresh), fresh)
    assert proof.exact
    assert not proof.minimal
    assert proof.hidden_dims[0] == proof.lower_bound + 1
    assert "whether that is enough is a subset-sum problem with large numbers" in str(proof)


# ---------------------------------------------------------------- bounds


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("width", [None, 3])
@pytest.mark.parametrize("n", [2, 5, 60])
def test_the_bound_holds_and_is_not_loose(n, width, dtype):
    """Against exact arithmetic, at random points, the knots and their neighbors, for two orders of the sum."""
    function = random_function(n, n)
    network = compile_piecewise_linear(function, width=width, dtype=dtype)
    proof = prove_piecewise_linear(network, function)
    low, high = proof.interval
    torch.manual_seed(0)
    x = torch.cat(
        [
            low + (high - low) * torch.rand(300, dtype=torch.float64),
            torch.tensor([float(t) for t in function.knots], dtype=torch.float64),
        ]
    ).to(dtype)
    x = torch.cat(
        [x, x.nextafter(torch.tensor(math.inf, dtype=dtype)), x.nextafter(torch.tensor(-math.inf, dtype=dtype))]
    )
    x = x[(x.double() >= low) & (x.double() <= high)]
    exact = [function.exact(value) for value in x.tolist()]
    worst = 0
    for order in (1, -1):
        if len(network) == 3:
            with torch.no_grad():
                for layer, axis in ((network[0].weight, 0), (network[0].bias, 0), (network[2].weight, 1)):
                    layer.copy_(layer.flip(axis) if order < 0 else layer)
        found = network(x[:, None])[:, 0].tolist()
        worst = max(worst, *(abs(Fraction(a) - b) for a, b in zip(found, exact, strict=True)))
    assert worst <= proof.error
    # Each of the n roundings of a sum may be the worst one in the bound, and rarely is.
    assert proof.error < max(1e3 * float(worst), 1e-15)


def test_the_error_of_the_weights_is_sharp():
    """It is attained: at a knot, where the network is evaluated exactly."""
    function = random_function(0, 20)
    network = compile_piecewise_linear(function, dtype=torch.float32)
    exact = RationalNetwork.from_module(network)
    kinks = [
        Fraction(-b) / Fraction(w) for (w,), b in zip(network[0].weight.tolist(), network[0].bias.tolist(), strict=True)
    ]
    proof = prove_piecewise_linear(network, function)
    points = [t for t in (*kinks, *function.knots) if proof.interval[0] <= t <= proof.interval[1]]
    largest = max(abs(exact(t)[0] - function.exact(t)) for t in points)
    assert float(largest) == pytest.approx(proof.weight_error, rel=1e-12)
    assert proof.weight_error > 0


def test_a_wrong_weight_is_found():
    """A proof of a network that is not the function has a large error."""
    function = random_function(3, 10)
    for index in range(6):
        network = compile_piecewise_linear(function, dtype=torch.float64)
        with torch.no_grad():
            network[2].weight[0, index] += 0.01
        x = torch.linspace(*map(float, prove_piecewise_linear(network, function).interval), 10001, dtype=torch.float64)
        actual = float((network(x[:, None])[:, 0] - function(x)).abs().max().detach())
        error = prove_piecewise_linear(network, function).error
        assert actual <= error < 1.01 * actual + 1e-12


def test_a_trained_network_has_a_proof_too():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(1, 8), nn.ReLU(), nn.Linear(8, 1))
    function = PiecewiseLinear([-1, 0, 1], [1, 0, 1])
    proof = prove_piecewise_linear(network, function)
    x = torch.linspace(-1, 1, 20001)[:, None]
    actual = float((network(x) - x.abs()).abs().max().detach())
    assert actual <= proof.error < 1.01 * actual


def test_exact_weights_have_no_error():
    tent = PiecewiseLinear([0, 1, 3], [0, 1, 0], left_slope=0, right_slope=0)
    for width in (None, 3):
        proof = prove_piecewise_linear(compile_piecewise_linear(tent, width=width), tent, interval=(-5, 5))
        assert proof.exact
        assert proof.weight_error == 0
        assert 0 < proof.error < 1e-4
    assert re.match(r"With rational weights, a network with 3 hidden units in 2 layers is equal", str(proof)) is None
    assert "is equal to the function on the whole real line" in str(proof)


def test_a_narrow_dtype_has_no_bound():
    function = random_function(0, 1000)
    proof = prove_piecewise_linear(compile_piecewise_linear(function, dtype=torch.bfloat16), function)
    assert proof.error == math.inf


# ---------------------------------------------------------------- laws


def test_claims():
    check_claims(piecewise_linear.claims(), cases=10).raise_for_refuted()


def test_the_checker_refutes_a_wrong_network():
    function = random_function(0, 5)
    network = compile_piecewise_linear(function)
    with torch.no_grad():
        network[2].bias += 0.1
    assert lawful.check(network, agreement(other=function), inputs=shape("b 1"))["agreement"].status == "refuted"


# ---------------------------------------------------------------- behavior


def test_values_follow_from_slopes():
    f = PiecewiseLinear.from_slopes([0, 2, Fraction(5, 2)], [-1, 3, -4, 1], value=1)
    assert [f.exact(x) for x in (-1, 0, 1, 2, Fraction(5, 2), 3)] == [2, 1, 4, 7, 5, Fraction(11, 2)]


def test_affine_functions():
    constant = compile_piecewise_linear([0, 1], [2, 2])
    assert constant[0].out_features == 0
    assert constant(torch.tensor([[5.0]])).tolist() == [[2.0]]
    line = compile_piecewise_linear([0, 1], [1, 3])
    assert line[0].out_features == 2
    assert line(torch.tensor([[-4.0], [4.0]])).tolist() == [[-7.0], [9.0]]
    deep = compile_piecewise_linear([0, 1], [1, 3], width=3)
    assert deep(torch.tensor([[-4.0], [4.0]])).tolist() == [[-7.0], [9.0]]
    for network, knots in ((constant, [2, 2]), (line, [1, 3]), (deep, [1, 3])):
        assert prove_piecewise_linear(network, PiecewiseLinear([0, 1], knots)).exact


def test_compiling_draws_no_random_numbers():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    compile_piecewise_linear([0, 1], [2, 3])
    assert torch.equal(torch.rand(3), expected)


def test_inputs_of_every_kind_are_the_same_function():
    expected = compile_piecewise_linear([0.5, 1.0, 2.0], [1.0, 0.25, 3.0])
    for kind in (np.array, torch.tensor, tuple, lambda values: [Fraction(v) for v in values]):
        network = compile_piecewise_linear(kind([0.5, 1.0, 2.0]), kind([1.0, 0.25, 3.0]))
        assert all(map(torch.equal, network.state_dict().values(), expected.state_dict().values()))


def test_csv(tmp_path):
    path = tmp_path / "curve.csv"
    path.write_text("note,time,height\na,0,1\nb,1,3\nc,2,3\n")
    function = PiecewiseLinear.from_csv(path, x="time", y="height")
    assert (function.knots, function.values) == ((0, 1, 2), (1, 3, 3))
    with pytest.raises(ValueError, match=r"y='depth' is not a column of curve.csv: got note, time, height"):
        PiecewiseLinear.from_csv(path, x="time", y="depth")
    with pytest.raises(ValueError, match=r"expected finite numbers in line 2 of curve.csv, column 'note'"):
        PiecewiseLinear.from_csv(path)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([0, 2, 1], [0, 1, 2]), {}, r"knots must increase: knots\[1\]=2, knots\[2\]=1; sort the knots"),
        (([0, 1, 1], [0, 1, 2]), {}, r"knots\[1\]=1, knots\[2\]=1; a repeated knot is a jump"),
        (([0, math.nan], [0, 1]), {}, r"knots must be finite: knots\[1\] is nan"),
        (([0, 1], [0, math.inf]), {}, r"values must be finite: values\[1\] is inf"),
        (([0, 1], [0, 1, 2]), {}, r"one number per knot: got 2 knots, 3 values"),
        (([], []), {}, r"at least two knots, or one knot and both outer slopes: got 0 knots"),
        (([1], [1]), {}, r"at least two knots, or one knot and both outer slopes: got 1 knots"),
        (([0, 1], [0, 1]), {"left_slope": math.inf}, r"left_slope must be finite: got inf"),
        (([0, 1],), {"slopes": [0, math.inf, 0]}, r"slopes\[1\] is inf: an infinite slope is a jump"),
        (([0, 1],), {"slopes": [0, 1]}, r"one number more than knots: got 2 knots, 2 slopes"),
        (([0, 1],), {}, r"expected either values or slopes: got neither"),
        (([0, 1], [0, 1]), {"slopes": [0, 1, 0]}, r"expected either values or slopes: got both"),
        (([0, 1],), {"slopes": [0, 1, 0], "left_slope": 1}, r"slopes contains the outer slopes"),
        (([0, 1], [0, 1]), {"width": 2}, r"width must be at least 3: got 2"),
        (([0, 1], [0, 1]), {"dtype": torch.int64}, r"dtype must be a floating-point dtype: got torch.int64"),
        (([0, 1e-300], [0, 1e300]), {}, r"larger than any float: scale the function"),
        (([0, 1e-30], [0, 1e30]), {}, r"overflows torch.float32: use a wider dtype"),
        ((np.zeros((2, 2)), [0, 1]), {}, r"knots must have one dimension: got shape \(2, 2\)"),
        ((["a", "b"], [0, 1]), {}, r"knots must be numbers: knots\[0\] is 'a'"),
    ],
)
def test_bad_input_is_refused(arguments, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        compile_piecewise_linear(*arguments, **options)


def test_bad_networks_and_intervals_are_refused():
    function = PiecewiseLinear([0, 1], [0, 1])
    network = compile_piecewise_linear(function)
    with pytest.raises(ValueError, match=r"expected a Sequential of Linear, ReLU, .*: got Linear, GELU, Linear"):
        prove_piecewise_linear(nn.Sequential(network[0], nn.GELU(), network[2]), function)
    with pytest.raises(ValueError, match=r"one input, a hidden layer and one output"):
        prove_piecewise_linear(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)), function)
    with pytest.raises(ValueError, match=r"interval must be finite and increase: got \(1, 0\)"):
        prove_piecewise_linear(network, function, interval=(1, 0))
    torch.manual_seed(0)
    deep = nn.Sequential(nn.Linear(1, 3), nn.ReLU(), nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))
    with pytest.raises(ValueError, match="one hidden layer, or a deep one of compile_piecewise_linear"):
        prove_piecewise_linear(deep, function)
    with torch.no_grad():
        network[0].weight[0] = math.nan
    with pytest.raises(ValueError, match=r"weights must be finite: module\[0\]"):
        prove_piecewise_linear(network, function)


def test_a_piecewise_linear_takes_no_other_arguments():
    with pytest.raises(ValueError, match="a PiecewiseLinear has its values and slopes"):
        compile_piecewise_linear(PiecewiseLinear([0, 1], [0, 1]), [0, 1])
