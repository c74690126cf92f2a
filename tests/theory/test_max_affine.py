"""Maxima of affine maps as networks, and creases that one hidden layer cannot represent."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import torch

from lawful.checking import check_claims
from lawful.theory import MaxAffine, compile_max_affine, max_affine, rounding_bound


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 9])
def test_the_rational_network_is_the_maximum(dim, count):
    rng = np.random.default_rng(count)
    weight, bias = rng.integers(-3, 4, (count, dim)), rng.normal(size=count)
    function = MaxAffine(weight, bias)
    network = function.to_network()
    assert len(network.hidden_dims) == math.ceil(math.log2(count))
    for x in product((-2, Fraction(-1, 3), 0, 5), repeat=dim):
        expected = max(
            sum(Fraction(int(a)) * v for a, v in zip(row, x, strict=True)) + Fraction(b)
            for row, b in zip(weight, bias, strict=True)
        )
        assert function.exact(*x) == expected
        assert network(*x) == (expected,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("minimum", [False, True])
def test_the_network_and_its_rounding_bound(dtype, minimum):
    rng = np.random.default_rng(0)
    weight, bias = rng.normal(size=(7, 2)), rng.normal(size=7)
    network = compile_max_affine(weight, bias, minimum=minimum, dtype=dtype)
    sign = -1 if minimum else 1
    function = MaxAffine(sign * weight, sign * bias)
    torch.manual_seed(0)
    x = torch.rand(300, 2, dtype=dtype) * 4 - 2
    found = [sign * Fraction(value) for value in network(x)[:, 0].tolist()]
    worst = max(abs(a - function.exact(*p)) for a, p in zip(found, x.tolist(), strict=True))
    bound = rounding_bound(function.to_network().to_module(dtype), function.to_network(), [-2, -2], [2, 2])
    assert worst <= bound < 300 * worst


def test_the_bound_counts_wrong_weights():
    function = MaxAffine([[1, 0], [0, 1], [0, 0]], [0, 0, 0])
    network = function.to_network().to_module(torch.float64)
    with torch.no_grad():
        network[0].weight[0, 0] += 0.01
    assert 0.01 <= rounding_bound(network, function.to_network(), [-1, -1], [1, 1]) < 0.04


def gradient_jump(function, point, normal):
    """Second difference across a line, over the length of the normal vector: exact close to the line."""
    h = Fraction(1, 10**9)
    ahead, behind = ([p + s * h * g for p, g in zip(point, normal, strict=True)] for s in (1, -1))
    change = function.exact(*ahead) + function.exact(*behind) - 2 * function.exact(*point)
    return change / h / sum(g * g for g in normal)


@pytest.mark.parametrize(
    ("weight", "bias"),
    [
        ([[1, 0], [0, 1], [0, 0]], [0, 0, 0]),
        ([[1, 2], [-1, 0], [0, -1], [3, 3]], [0, 1, 2, -5]),
        ([[0, 0], [1, 0], [0, 1], [1, 1]], [0, 0, 0, Fraction(1, 2)]),
        ([[0, 0], [1, 0], [0, 1], [1, 2]], [0, 0, 0, 0]),
    ],
)
def test_a_broken_crease_is_one(weight, bias):
    function = MaxAffine(weight, bias)
    crease = function.broken_crease()
    assert crease.jumps[0] != crease.jumps[1]
    for point, jump in zip(crease.points, crease.jumps, strict=True):
        assert sum(g * p for g, p in zip(crease.normal, point, strict=True)) + crease.offset == 0
        assert gradient_jump(function, point, crease.normal) == jump
    assert "one hidden layer" in str(crease)


def test_sums_of_ridges_have_no_broken_crease():
    """Sums of ReLUs of affine maps, written as a maximum over all subsets."""
    rng = np.random.default_rng(0)
    for seed in range(20):
        units = rng.integers(-3, 4, (1 + seed % 3, 3)).tolist()
        subsets = list(product((0, 1), repeat=len(units)))
        rows = [
            [sum(s * unit[i] for s, unit in zip(subset, units, strict=True)) for i in range(3)] for subset in subsets
        ]
        assert MaxAffine([row[:2] for row in rows], [row[2] for row in rows]).broken_crease() is None


def test_claims():
    check_claims(max_affine.claims(), cases=10).raise_for_refuted()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: MaxAffine([[1, 0], [1]], [0, 0]), r"got 2 rows of sizes \[1, 2\] and 2 entries"),
        (lambda: MaxAffine([[1, 0]], [0, 0]), r"got 1 rows of sizes \[2\] and 2 entries"),
        (lambda: MaxAffine([[1, math.inf]], [0]), r"weight and bias must be finite"),
        (lambda: MaxAffine([[1]], [0]).broken_crease(), r"function of two variables: got 1"),
        (
            lambda: rounding_bound(
                compile_max_affine([[1], [2]], [0, 0]), MaxAffine([[1]], [0]).to_network(), [0], [1]
            ),
            r"networks of equal shape, got",
        ),
        (
            lambda: rounding_bound(compile_max_affine([[1]], [0]), MaxAffine([[1]], [0]).to_network(), [0], [math.inf]),
            r"finite corners of a box",
        ),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
