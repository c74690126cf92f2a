"""The convergence bounds hold along runs, and wrong assumptions are found."""

import pytest
import torch

from lawful.theory import gradient_descent


def quadratic(eigenvalues, seed=0):
    """A quadratic function with given eigenvalues, its minimizer and its gradient's Lipschitz constant."""
    generator = torch.Generator().manual_seed(seed)
    n = len(eigenvalues)
    basis = torch.linalg.qr(torch.randn(n, n, generator=generator, dtype=torch.float64)).Q
    matrix = basis @ torch.diag(torch.tensor(eigenvalues, dtype=torch.float64)) @ basis.T
    center = torch.randn(n, generator=generator, dtype=torch.float64)
    return lambda x: (x - center) @ matrix @ (x - center) / 2 + 3, center


def logistic(x):
    data = torch.randn(50, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return torch.nn.functional.softplus(data @ x).mean() + 0.05 * x.square().sum()


def huber(x):
    return torch.where(x.abs() < 1, x.square() / 2, x.abs() - 0.5).sum()


@pytest.mark.parametrize("method", ["gradient", "nesterov"])
@pytest.mark.parametrize("mu", [0.0, 0.1])
@pytest.mark.parametrize("share", [1.0, 0.3])
def test_quadratic_functions_stay_below_the_bound(method, mu, share):
    function, center = quadratic([0.1, 1.0, 5.0])
    start = torch.full((3,), 4.0)
    run = gradient_descent(
        function, start, lipschitz=5, strong_convexity=mu, minimizer=center, learning_rate=share / 5, method=method
    )
    assert run.holds, str(run)
    assert run.assumptions_hold, str(run)
    assert run.minimum == 3
    assert "at all 100 steps" in str(run)
    assert run.gap[-1] < 0.2 * run.gap[0]
    # An independent run.
    if method == "gradient":
        x = start.double()
        for expected in run.values:
            torch.testing.assert_close(function(x), expected)
            x = x - run.learning_rate * torch.func.grad(function)(x)


def test_the_bound_is_reached_by_the_worst_function():
    # Drori and Teboulle, 2014: a Huber function whose gap after t steps is L R^2 / (4 t + 2).
    t = 20
    tau = 1 / (2 * t + 1)

    def worst(x):
        return torch.where(x.abs() >= tau, tau * x.abs() - tau**2 / 2, x.square() / 2).sum()

    run = gradient_descent(worst, torch.ones(1), lipschitz=1, minimizer=torch.zeros(1), steps=t)
    assert run.holds
    assert run.assumptions_hold
    assert run.gap[-1] == pytest.approx(1 / (4 * t + 2))
    assert run.gap[-1] / run.bound[-1] == pytest.approx(t / (2 * t + 1))


@pytest.mark.parametrize("method", ["gradient", "nesterov"])
def test_convex_functions_without_a_known_minimizer(method):
    data = torch.randn(50, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    constant = float(torch.linalg.eigvalsh(data.T @ data / 50).max()) / 4 + 0.1
    run = gradient_descent(
        logistic, torch.full((3,), 2.0), lipschitz=constant, strong_convexity=0.1, method=method, steps=300
    )
    assert run.holds
    assert run.assumptions_hold
    assert run.gap[-1] < 1e-6
    assert bool((run.gap >= -1e-12).all())


def test_a_lipschitz_constant_that_is_too_small_is_found():
    function, center = quadratic([0.1, 1.0, 5.0])
    run = gradient_descent(function, torch.full((3,), 4.0), lipschitz=2, minimizer=center, steps=30)
    assert not run.holds
    assert not run.assumptions_hold
    assert 2 < run.observed_lipschitz <= 5 * (1 + 1e-9)
    assert "The gap is larger than the bound at step" in str(run)
    assert "lipschitz is too small: it is at least" in str(run)


def test_functions_that_are_not_convex_are_found():
    def double_well(x):
        return ((x.square() - 1).square()).sum()

    run = gradient_descent(double_well, torch.tensor([0.1]), lipschitz=44, minimizer=torch.ones(1), steps=20)
    assert run.convexity_violation is not None
    assert not run.assumptions_hold
    assert "The function is not convex" in str(run)


def test_strong_convexity_that_is_too_large_is_found():
    function, center = quadratic([0.1, 1.0])
    run = gradient_descent(
        function, torch.full((2,), 4.0), lipschitz=1, strong_convexity=0.5, minimizer=center, steps=30
    )
    assert not run.holds
    assert "not strongly convex with constant 0.5" in str(run)


def test_a_minimizer_that_is_wrong_is_found():
    run = gradient_descent(huber, torch.full((2,), 3.0), lipschitz=1, minimizer=torch.full((2,), 2.9))
    assert not run.assumptions_hold or bool((run.gap < -1e-9).any())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lipschitz": -1}, "lipschitz must be positive and finite: got -1"),
        ({"lipschitz": float("nan")}, "lipschitz must be positive and finite: got nan"),
        ({"strong_convexity": 3}, "strong_convexity must be between 0 and lipschitz=2: got 3"),
        ({"learning_rate": 0.6}, "learning_rate must be positive and at most 1 / lipschitz = 0.5: got 0.6"),
        ({"steps": 0}, "steps must be at least 1: got 0"),
        ({"method": "adam"}, "method must be 'gradient' or 'nesterov': got 'adam'"),
        ({"minimizer": None}, "minimizer is required: without it, strong_convexity must be positive"),
        ({"minimizer": torch.zeros(2)}, r"minimizer must be finite and of shape \(3,\): got \(2,\)"),
        ({"start": torch.full((3,), float("inf"))}, "start must be finite"),
        ({"function": torch.square}, r"function must return one number: got shape \(3,\)"),
    ],
)
def test_errors(change, message):
    arguments = {
        "function": lambda x: x.square().sum(),
        "start": torch.ones(3),
        "lipschitz": 2,
        "minimizer": torch.zeros(3),
    } | change
    with pytest.raises(ValueError, match=message):
        gradient_descent(**arguments)
