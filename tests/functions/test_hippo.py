import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import signal as scipy_signal
from scipy import special

from lawful.functions import HIPPO_OPERATORS, discretize, hippo, hippo_memory, hippo_project, hippo_reconstruct

METHODS = ("forward_euler", "backward_euler", "bilinear", "zoh", "foh")
WINDOWS = {"legs": None, "legt": 1.0, "lagt": 1.0, "fourier": 1.0}
EVERY_OPERATOR = pytest.mark.parametrize("name", HIPPO_OPERATORS)


def quadrature(name, nodes=40):
    """Nodes and weights for integrals of functions of the age under the measure."""
    if name == "lagt":
        u, weights = np.polynomial.laguerre.laggauss(nodes)
    else:
        u, weights = np.polynomial.legendre.leggauss(nodes)
        u, weights = (u + 1) / 2, weights / 2
    return torch.from_numpy(u), torch.from_numpy(weights)


def harmonics(t, frequencies=10, seed=0):
    """A random Fourier series."""
    coefficients = torch.randn(2, frequencies, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    angles = 2 * math.pi * t[..., None] * torch.arange(1, frequencies + 1)
    return angles.cos() @ coefficients[0] + angles.sin() @ coefficients[1]


def unit_times(samples):
    return torch.linspace(0, 1, samples, dtype=torch.float64)


def samples(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def relative_error(x, y):
    return float((x - y).norm() / y.norm())


@EVERY_OPERATOR
def test_basis_is_orthonormal_under_the_measure(name):
    u, weights = quadrature(name)
    basis = HIPPO_OPERATORS[name].basis(9, u)
    torch.testing.assert_close(basis.mT @ (weights[:, None] * basis), torch.eye(9, dtype=torch.float64))


def test_basis_equals_scipy():
    u, k = torch.linspace(0, 1, 7, dtype=torch.float64), np.arange(50)
    legendre = special.eval_legendre(k, 1 - 2 * u[:, None].numpy()) * np.sqrt(2 * k + 1)
    laguerre = special.eval_laguerre(k, 20 * u[:, None].numpy())
    torch.testing.assert_close(HIPPO_OPERATORS["legs"].basis(50, u), torch.from_numpy(legendre))
    torch.testing.assert_close(HIPPO_OPERATORS["legt"].basis(50, u), torch.from_numpy(legendre))
    torch.testing.assert_close(HIPPO_OPERATORS["lagt"].basis(50, 20 * u), torch.from_numpy(laguerre))


@EVERY_OPERATOR
def test_measure_integrates_to_one(name):
    u = torch.linspace(-1, 60, 600_001, dtype=torch.float64)
    measure = HIPPO_OPERATORS[name].measure(u)
    torch.testing.assert_close(torch.trapezoid(measure, u), torch.ones_like(u[0]), rtol=0, atol=2e-4)
    assert (measure[u < 0] == 0).all()
    assert (measure[u > HIPPO_OPERATORS[name].max_age] == 0).all()


@EVERY_OPERATOR
@pytest.mark.parametrize("n", [1, 7])
def test_matrices_follow_from_the_definition(name, n):
    """Integration by parts of dc/dt, with the value that leaves the window taken from the coefficients."""
    operator = HIPPO_OPERATORS[name]
    u, weights = quadrature(name)
    phi, slope = operator.basis(n, u), operator.basis(n, u + 1e-30j).imag / 1e-30
    start, end = operator.basis(n, torch.tensor([0.0, 1.0], dtype=torch.float64))
    inner = {"legs": (1 - u)[:, None] * slope - phi, "lagt": slope - phi}.get(name, slope)
    a, b = inner.mT @ (weights[:, None] * phi), start
    if name == "legt":
        a = a - torch.outer(end, end)
    if name == "fourier":  # a Fourier series converges to the mean of both ends
        a, b = a - torch.outer(end, 2 * end), start + end
    found = operator.matrices(n)
    torch.testing.assert_close(found[0], a, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(found[1], b, rtol=1e-10, atol=1e-10)


@EVERY_OPERATOR
@pytest.mark.parametrize("n", [1, 3, 9])
def test_structure_of_the_matrix(name, n):
    operator = HIPPO_OPERATORS[name]
    a, b = operator.matrices(n)
    x = samples(2, 4, n)
    torch.testing.assert_close(operator.matvec(x), x @ a.mT)
    shifted, low_rank = a + a.mT - operator.shift * torch.eye(n), operator.low_rank(n)
    torch.testing.assert_close(shifted, -low_rank @ low_rank.mT)
    rank = {"legs": 1, "legt": 2, "lagt": 1, "fourier": 1}[name]
    assert operator.displacement_rank == rank
    assert torch.linalg.matrix_rank(shifted) == min(rank, n)
    normal = a + low_rank @ low_rank.mT / 2
    torch.testing.assert_close(normal @ normal.mT, normal.mT @ normal)
    torch.testing.assert_close(a[:, 0], -b)
    assert (torch.linalg.eigvals(a).real < 0).all()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["legs", "fourier"])
def test_discretize_equals_scipy(name, method):
    a, b = HIPPO_OPERATORS[name].matrices(5)
    theirs = {"forward_euler": "euler", "backward_euler": "backward_diff"}.get(method, method)
    system = (a.numpy(), b[:, None].numpy(), np.eye(5), np.zeros((5, 1)))
    inputs = samples(20)
    inputs[0] = 0  # their state differs from ours, their response from zero does not
    expected = scipy_signal.dlsim(scipy_signal.cont2discrete(system, 0.03, theirs), inputs.numpy())[1]
    step = discretize(a, b, 0.03, method=method)
    states = [torch.zeros(5, dtype=torch.float64)]
    for before, after in pairwise(inputs):
        states.append(step.transition @ states[-1] + step.start_weight * before + step.end_weight * after)
    torch.testing.assert_close(torch.stack(states), torch.from_numpy(expected))


@pytest.mark.parametrize("method", METHODS)
def test_discretize_of_many_step_sizes(method):
    a, b = HIPPO_OPERATORS["legt"].matrices(4)
    sizes = torch.tensor([0.1, 0.7], dtype=torch.float64)
    steps = discretize(a, b, sizes, method=method)
    for i, size in enumerate(sizes):
        for part, alone in zip(steps, discretize(a, b, float(size), method=method), strict=True):
            torch.testing.assert_close(part[i], alone)
    leaves = [x.clone().requires_grad_() for x in (a, b, sizes[:1])]
    assert torch.autograd.gradcheck(lambda a, b, dt: discretize(a, b, dt, method=method), leaves)


def test_exact_step_of_legs_is_a_matrix_power():
    a, _ = HIPPO_OPERATORS["legs"].matrices(6)
    k = torch.tensor([0.0, 1.0, 2.0, 50.0], dtype=torch.float64)
    found = hippo._legs_steps(6, k, "foh").transition
    powers = torch.linalg.matrix_exp(a * torch.log1p(1 / k[1:])[:, None, None])
    torch.testing.assert_close(found[1:], powers)
    assert (found[0] == 0).all()


def test_exact_step_of_legs_contracts_with_many_coefficients():
    transition = hippo._legs_steps(200, torch.tensor([1.0, 30.0], dtype=torch.float64), "foh").transition
    assert (torch.linalg.matrix_norm(transition, 2) <= 1 + 1e-9).all()


@pytest.mark.parametrize("method", ["foh", "zoh"])
@pytest.mark.parametrize("name", ["legs", "lagt"])
@pytest.mark.parametrize("n", [1, 2, 7])
def test_projection_equals_the_integral(name, method, n):
    """A signal that is linear or constant between samples is projected exactly, at every sample."""
    operator, f = HIPPO_OPERATORS[name], samples(6)
    dt, window = (1.0, None) if name == "legs" else (0.4, 1.3)
    found = hippo_project(f, n, operator=name, dt=dt, window=window, method=method)
    u, weights = quadrature("legs")
    tail, tail_weights = quadrature("lagt")
    for end in range(1, len(f)):
        scale = 1 / end if window is None else dt / window
        expected = torch.zeros(n, dtype=torch.float64)
        for k in range(end):
            ages = (end - k - u) * scale
            values = torch.lerp(f[k], f[k + 1], u) if method == "foh" else f[k].expand_as(u)
            expected += scale * (weights * values * operator.measure(ages)) @ operator.basis(n, ages)
        if name == "lagt":  # the constant before the first sample
            oldest = torch.tensor(end * scale, dtype=torch.float64)
            expected += f[0] * operator.measure(oldest) * (tail_weights @ operator.basis(n, oldest + tail))
        torch.testing.assert_close(found[end], expected)


def test_a_line_is_remembered_exactly():
    line = 3 - 2 * unit_times(300)
    assert hippo_memory(line, 2).error < 1e-10
    assert hippo_memory(line, 64).error < 1e-9


def test_legs_remembers_band_limited_noise():
    f = torch.stack([harmonics(unit_times(1000), seed=seed) for seed in range(2)])
    exact, bilinear = (hippo_memory(f, 64, method=method).error for method in ("foh", "bilinear"))
    assert (exact <= 0.003).all()
    assert (5 * exact <= bilinear).all()
    assert (bilinear <= 0.015).all()


@pytest.mark.parametrize(("method", "order"), list(zip(METHODS, (1, 1, 2, 1, 2), strict=True)))
@EVERY_OPERATOR
def test_order_of_convergence(name, method, order):
    def coefficients(count, method):
        t = unit_times(count + 1)
        f = harmonics(t, 2) * t**3
        window = WINDOWS[name] and 0.5
        return hippo_project(f, 5, operator=name, dt=1 / count, window=window, method=method)[-1]

    exact = (4 * coefficients(1024, "foh") - coefficients(512, "foh")) / 3  # Richardson
    errors = [relative_error(coefficients(count, method), exact) for count in (128, 256)]
    assert abs(math.log2(errors[0] / errors[1]) - order) < 0.2


def test_order_of_legs_against_the_integral():
    u, weights = quadrature("legs", 80)
    exact = (weights * harmonics(1 - u, 3)) @ HIPPO_OPERATORS["legs"].basis(16, u)
    errors = [relative_error(hippo_project(harmonics(unit_times(m), 3), 16)[-1], exact) for m in (101, 201, 401)]
    orders = [math.log2(a / b) for a, b in pairwise(errors)]
    assert orders == pytest.approx([2.0, 2.0], abs=0.05)


def test_windowed_operators_remember_the_last_window():
    t = torch.arange(1501, dtype=torch.float64) / 500
    f = harmonics(t, 3)  # of period 1
    legt = hippo_memory(f, 40, operator="legt", dt=1 / 500, window=0.7)
    fourier = hippo_memory(f, 41, operator="fourier", dt=1 / 500, window=1.0)
    lagt = hippo_memory(f, 80, operator="lagt", dt=1 / 500, window=0.2)
    for memory, first in ((legt, 2.3), (fourier, 2.0), (lagt, 0.0)):
        torch.testing.assert_close(memory.times, t[t >= first - 1e-9])
        assert memory.values.shape == memory.times.shape
    assert legt.error < 1e-3
    assert fourier.error < 1e-3
    past, weights = f, torch.exp((t - 3) / 0.2)
    difference = weights * (lagt.values - past).square()
    torch.testing.assert_close(lagt.error, (difference.sum() / (weights * past.square()).sum()).sqrt())
    assert lagt.error < 0.1
    assert hippo_memory(f, 5, operator="lagt", dt=1 / 500, window=0.01).times[0] > 2.6  # weight above rounding


@EVERY_OPERATOR
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("count", [1, 2, 30])
def test_constant_signals(name, method, count):
    options = {"operator": name, "dt": 0.1, "window": WINDOWS[name], "method": method}
    found = hippo_project(torch.full((2, count), 3.0, dtype=torch.float64), 5, **options)
    expected = torch.tensor([3.0, 0, 0, 0, 0], dtype=torch.float64).expand(2, count, 5)
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=0)
    memory = hippo_memory(torch.full((count,), 3.0, dtype=torch.float64), 5, **options)
    torch.testing.assert_close(memory.values, torch.full_like(memory.times, 3.0), atol=1e-9, rtol=0)
    assert memory.error < 1e-9
    assert hippo_memory(torch.zeros(count), 5, **options).error == 0


@EVERY_OPERATOR
def test_batches_chunks_and_gradients(name, monkeypatch):
    f, options = samples(2, 3, 8), {"operator": name, "dt": 0.2, "window": WINDOWS[name]}
    found = hippo_project(f, 3, **options)
    assert found.shape == (2, 3, 8, 3)
    torch.testing.assert_close(found[1, 2], hippo_project(f[1, 2], 3, **options))
    for entries in (1, 27):  # one and three steps at once
        monkeypatch.setattr(hippo, "_CHUNK_ENTRIES", entries)
        torch.testing.assert_close(hippo_project(f, 3, **options), found)
    short = f[0, :2, :4].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda f: hippo_project(f, 3, **options), short)
    assert torch.autograd.gradcheck(lambda f: hippo_memory(f, 3, **options).values, short)


@EVERY_OPERATOR
def test_precision(name):
    f, options = harmonics(unit_times(300), 5), {"operator": name, "dt": 1 / 299, "window": WINDOWS[name] and 0.3}
    exact = hippo_project(f, 33, **options)
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 1e-2), (torch.float16, 1e-2)):
        found = hippo_project(f.to(dtype), 33, **options)
        assert found.dtype == dtype
        assert relative_error(found.double(), exact) < tolerance


def test_reconstruction_at_any_age():
    t = unit_times(400)
    coefficients = hippo_project(t.square(), 4)[-1]
    ages = torch.tensor([0.0, 0.31, 1.0], dtype=torch.float64)
    torch.testing.assert_close(hippo_reconstruct(coefficients, ages), (1 - ages).square(), atol=1e-4, rtol=0)
    found = hippo_reconstruct(coefficients.float().expand(2, 4), ages.float())
    torch.testing.assert_close(found, (1 - ages).square().float().expand(2, 3), atol=1e-4, rtol=0)


def test_memory_of_a_batch():
    f = samples(2, 3, 20)
    memory = hippo_memory(f, 4, dt=0.5)
    alone = hippo_memory(f[1, 2], 4, dt=0.5)
    torch.testing.assert_close(memory.values[1, 2], alone.values)
    torch.testing.assert_close(memory.error[1, 2], alone.error)
    torch.testing.assert_close(memory.times, torch.arange(20, dtype=torch.float64) / 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"signal": torch.zeros(0)}, r"signal must have at least one sample .* got \(0,\)"),
        ({"signal": torch.tensor(1.0)}, r"at least one sample along its last dimension, got \(\)"),
        ({"signal": torch.tensor([1.0, torch.nan])}, "signal must be finite, got NaN or infinite"),
        ({"signal": torch.tensor([1.0, torch.inf])}, "signal must be finite, got NaN or infinite"),
        ({"num_coefficients": 0}, "num_coefficients must be at least 1, got 0"),
        ({"num_coefficients": -2}, "num_coefficients must be at least 1, got -2"),
        ({"dt": 0.0}, "dt must be finite and greater than 0, got 0"),
        ({"dt": -1.0}, "dt must be finite and greater than 0, got -1"),
        ({"dt": math.inf}, "dt must be finite and greater than 0, got inf"),
        ({"window": 2.0}, "'legs' remembers all of the past and takes no window, got 2"),
        ({"operator": "legt"}, "operator 'legt' needs a window: pass its length in the unit of dt"),
        ({"operator": "legt", "window": 0.0}, "window must be finite and greater than 0, got 0"),
        ({"operator": "lagt", "window": math.nan}, "window must be finite and greater than 0, got nan"),
        ({"operator": "fourier", "window": 1.0}, "num_coefficients must be odd for operator 'fourier'.* got 4"),
        ({"operator": "leggs"}, "unknown operator 'leggs': did you mean legs"),
        ({"operator": "x"}, "unknown operator 'x'. Operators: legs, legt, lagt, fourier"),
        ({"method": "biliner"}, "unknown method 'biliner': did you mean bilinear"),
    ],
)
def test_wrong_arguments_raise(options, message):
    arguments = {"signal": torch.zeros(3), "num_coefficients": 4} | options
    for function in (hippo_project, hippo_memory):
        with pytest.raises(ValueError, match=message):
            function(**arguments)


def test_integer_signals_raise():
    with pytest.raises(TypeError, match=r"signal must have a floating-point dtype, got torch.int64"):
        hippo_project(torch.arange(4), 3)


def test_discretize_of_wrong_arguments_raises():
    a, b = HIPPO_OPERATORS["legs"].matrices(3)
    with pytest.raises(ValueError, match="unknown method 'zho': did you mean zoh"):
        discretize(a, b, 0.1, method="zho")
    with pytest.raises(ValueError, match="dt must be finite and greater than 0, got 0"):
        discretize(a, b, 0.0)
    with pytest.raises(ValueError, match=r"b of shape \(\*batch, n\), got \(3, 3\) and \(2,\)"):
        discretize(a, b[:2], 0.1)
    with pytest.raises(TypeError, match="expected a square matrix"):
        discretize(a[:2], b, 0.1)


def test_ages_outside_the_window_raise():
    for ages, name in ((torch.tensor([0.5, 1.5]), "legs"), (torch.tensor([-0.5, 0.5]), "lagt")):
        with pytest.raises(ValueError, match=rf"ages must be between 0 and .* for operator '{name}', got .*0?\.5 to"):
            hippo_reconstruct(torch.ones(3), ages, operator=name)
