import numpy as np
import pytest
import scipy.optimize
import torch

from lawful.solvers import levenberg_marquardt


def valley(x):
    u, v = x.unbind(-1)
    return torch.stack([10 * (v - u.square()), 1 - u], -1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_finds_the_bottom_of_the_valley_from_anywhere(dtype):
    start = 3 * torch.randn(20, 2, generator=torch.Generator().manual_seed(0), dtype=dtype)
    found = levenberg_marquardt(valley, start)
    assert found.converged.all()
    torch.testing.assert_close(
        found.x, torch.ones(20, 2, dtype=dtype), rtol=0, atol=1e-3 if dtype.itemsize == 4 else 1e-9
    )


def test_equals_scipy_where_the_residual_is_large():
    data = torch.randn(6, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3

    def residual(x):
        u, v = x[..., :1], x[..., 1:]
        return (u * data).sin() + v * data.square() / 9 - data

    def by_numpy(x):
        return np.sin(x[0] * data.numpy()) + x[1] * data.numpy() ** 2 / 9 - data.numpy()

    found = levenberg_marquardt(residual, torch.tensor([0.5, 0.5], dtype=torch.float64))
    wanted = scipy.optimize.least_squares(by_numpy, [0.5, 0.5], method="lm", xtol=1e-15, ftol=1e-15, gtol=1e-15)
    np.testing.assert_allclose(found.x, wanted.x, rtol=1e-6)
    assert found.converged


def test_a_singular_jacobian_does_no_harm():
    found = levenberg_marquardt(lambda x: x.sum(-1, keepdim=True) - 1, torch.zeros(4, 2, dtype=torch.float64))
    torch.testing.assert_close(found.x, torch.full((4, 2), 0.5, dtype=torch.float64))
    flat = levenberg_marquardt(lambda x: 0 * x + 1, torch.zeros(2))
    assert flat.converged


def test_steps_to_where_nothing_is_finite_are_taken_back():
    found = levenberg_marquardt(lambda x: x.log() - 3, torch.tensor([100.0], dtype=torch.float64))
    torch.testing.assert_close(found.x, torch.tensor([3.0], dtype=torch.float64).exp())


def test_nothing_has_converged_where_no_step_is_finite():
    found = levenberg_marquardt(lambda x: torch.where(x == 1, x, torch.nan * x), torch.ones(1))
    assert not found.converged
    assert found.x == 1


def test_many_residuals_of_a_singular_problem_in_float32():
    found = levenberg_marquardt(lambda x: x.sum(-1, keepdim=True).expand(5000) - 1, torch.zeros(20))
    assert found.converged
    torch.testing.assert_close(found.x.sum(), torch.tensor(1.0))


def test_damping_is_above_zero():
    with pytest.raises(ValueError, match="above 0: got 0"):
        levenberg_marquardt(lambda x: x, torch.ones(1), damping=0.0)
    with pytest.raises(ValueError, match="finite and above 0: got inf"):
        levenberg_marquardt(lambda x: x, torch.ones(1), damping=torch.inf)
