"""Spectra equal those of the iteration matrix, and runs of PyTorch's optimizers."""

import pytest
import torch

from lawful.theory import adam_spectrum, optimal_momentum, quadratic_spectrum, stability_threshold


def symmetric(eigenvalues):
    n = len(eigenvalues)
    basis = torch.linalg.qr(torch.randn(n, n, dtype=torch.float64)).Q
    return basis @ torch.diag(torch.tensor(eigenvalues, dtype=torch.float64)) @ basis.T


def matrix_of(matrix, rate, momentum, method):
    """Iteration of torch.optim.SGD as a matrix on (x, velocity)."""
    one = torch.eye(len(matrix), dtype=torch.float64)
    top = [one - rate * matrix, -rate * momentum * one]
    if method == "nesterov":
        top = [one - rate * (1 + momentum) * matrix, -rate * momentum**2 * one]
    return torch.cat([torch.cat(top, 1), torch.cat([matrix, momentum * one], 1)])


@pytest.mark.parametrize("method", ["heavy_ball", "nesterov"])
@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.95])
def test_the_spectrum_is_that_of_the_iteration_matrix(method, momentum):
    matrix = symmetric([0.2, 1.0, 3.0, 7.0])
    found = quadratic_spectrum(matrix, learning_rate=0.17, momentum=momentum, method=method)
    expected = torch.linalg.eigvals(matrix_of(matrix, 0.17, momentum, method))
    distances = (found.roots.flatten()[:, None] - expected).abs()
    assert distances.amin(0).max() < 1e-6  # double roots are known to half of the digits
    assert distances.amin(1).max() < 1e-6
    assert found.rate == pytest.approx(float(expected.abs().max()), abs=1e-6)


def last_factor(optimizer, x, matrix, steps):
    """Factor by which the error shrinks per step at the end of a run."""
    norms = []
    for _ in range(steps):
        optimizer.zero_grad()
        (x @ matrix @ x / 2).backward()
        optimizer.step()
        norms.append(float(x.detach().norm()))
    return (max(norms[-20:]) / max(norms[steps // 2 - 20 : steps // 2])) ** (2 / steps)


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("rate", [0.05, 0.3])
def test_runs_of_sgd_have_the_rate_and_diverge_beyond_the_threshold(nesterov, rate):
    method = "nesterov" if nesterov else "heavy_ball"
    matrix = symmetric([0.3, 2.0, 9.0])
    found = quadratic_spectrum(matrix, learning_rate=rate, momentum=0.8, method=method)
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([x], lr=rate, momentum=0.8, nesterov=nesterov)
    assert last_factor(optimizer, x, matrix, 140) == pytest.approx(found.rate, rel=0.03)
    assert found.stable == (found.curvatures.max() < found.threshold)
    for share, stable in ((0.999, True), (1.001, False)):
        edge = torch.tensor([found.threshold * share])
        assert quadratic_spectrum(edge, learning_rate=rate, momentum=0.8, method=method).stable is stable


@pytest.mark.parametrize("share", [0.98, 1.02])
def test_runs_of_adam_diverge_beyond_38_over_the_learning_rate(share):
    rate, moments = 0.02, torch.tensor([0.5, 2.0], dtype=torch.float64)
    scale = moments.sqrt() + 1e-8
    root = torch.diag(scale.sqrt())
    matrix = root @ symmetric([38 / rate * share, 100.0]) @ root
    spectrum = adam_spectrum(matrix, moments, learning_rate=rate)
    assert spectrum.threshold == pytest.approx(38 / rate)
    assert spectrum.curvatures[-1].item() == pytest.approx(38 / rate * share)
    assert spectrum.stable == (share < 1)
    x = torch.full((2,), 1e-12, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([x], lr=rate, betas=(0.9, 1 - 1e-14))
    step = torch.tensor(1e18)  # no bias correction
    optimizer.state[x] = {"step": step, "exp_avg": torch.zeros_like(x), "exp_avg_sq": moments.clone()}
    assert last_factor(optimizer, x, matrix, 100) == pytest.approx(spectrum.rate, rel=0.03)


@pytest.mark.parametrize("method", ["gradient", "heavy_ball", "nesterov"])
def test_the_optimal_parameters_are_optimal(method):
    best = optimal_momentum(0.5, 20.0, method=method)
    curvatures = torch.linspace(0.5, 20, 400, dtype=torch.float64)
    kind = "heavy_ball" if method == "gradient" else method

    def rate(learning_rate, momentum):
        return quadratic_spectrum(curvatures, learning_rate=learning_rate, momentum=momentum, method=kind).rate

    assert rate(*best[:2]) == pytest.approx(best.rate, abs=1e-6)
    for factor in (0.7, 0.9, 0.97, 1.0, 1.03, 1.1, 1.3):
        for change in (0,) if method == "gradient" else (-0.1, -0.03, 0, 0.03, 0.1):
            assert rate(best.learning_rate * factor, best.momentum + change) >= best.rate - 1e-6
    assert optimal_momentum(2.0, 2.0, method=method).rate == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: quadratic_spectrum(torch.ones(2), learning_rate=-1),
            "learning_rate must be positive and finite: got -1",
        ),
        (
            lambda: quadratic_spectrum(torch.ones(2), learning_rate=1, momentum=1),
            r"momentum must be in \[0, 1\): got 1",
        ),
        (lambda: quadratic_spectrum(torch.ones(2), learning_rate=1, method="adam2"), "method must be 'heavy_ball'"),
        (lambda: quadratic_spectrum(torch.tensor([[0.0, 1], [0, 0]]), learning_rate=1), "curvature must be symmetric"),
        (
            lambda: quadratic_spectrum(torch.full((2,), float("nan")), learning_rate=1),
            "curvature must be a finite matrix",
        ),
        (lambda: adam_spectrum(torch.eye(2), torch.ones(3), learning_rate=1), "one entry per row of the matrix"),
        (lambda: adam_spectrum(torch.eye(2), -torch.ones(2), learning_rate=1), "must not be negative"),
        (lambda: optimal_momentum(-1, 2), "expected 0 < smallest <= largest < inf: got -1 and 2"),
        (lambda: optimal_momentum(1, 2, method="x"), "method must be 'gradient', 'heavy_ball' or 'nesterov': got 'x'"),
        (lambda: stability_threshold(0.1, method="x"), "method must be"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()
