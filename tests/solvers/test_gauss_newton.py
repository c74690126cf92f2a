import numpy as np
import pytest
import scipy.optimize
import torch

from lawful.groups import SE3, SO3, SU2, Circle, DirectProduct, Scaling
from lawful.solvers import gauss_newton, levenberg_marquardt

METHODS = [gauss_newton, levenberg_marquardt]


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def decay(times, values):
    """The residual of a exp(-b t) against values, for each of a batch."""
    return lambda x: x[..., :1] * (-x[..., 1:] * times).exp() - values


@pytest.mark.parametrize("method", METHODS)
def test_equals_scipy_on_each_of_a_batch(method):
    times = torch.linspace(0, 3, 12, dtype=torch.float64)
    truth = torch.tensor([[2.0, 0.5], [1.0, 1.5], [3.0, 1.0]], dtype=torch.float64)
    values = truth[:, :1] * (-truth[:, 1:] * times).exp() + 0.05 * normal(3, 12)
    found = method(decay(times, values), torch.ones(3, 2, dtype=torch.float64))
    assert found.converged.all()
    for n in range(3):

        def residual(x, n=n):
            return x[0] * np.exp(-x[1] * times.numpy()) - values[n].numpy()

        wanted = scipy.optimize.least_squares(residual, [1.0, 1.0], xtol=1e-15, ftol=1e-15, gtol=1e-15)
        np.testing.assert_allclose(found.x[n], wanted.x, rtol=1e-6)
        np.testing.assert_allclose(found.cost[n], wanted.cost, rtol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_a_problem_without_a_batch(method):
    found = method(lambda x: torch.stack([x[..., 0] ** 2 - 2, x[..., 1].exp() - 3], -1), torch.ones(2).double())
    torch.testing.assert_close(found.x, torch.tensor([2**0.5, np.log(3)], dtype=torch.float64))
    assert found.converged.shape == found.cost.shape == found.steps.shape == ()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_wahba_equals_the_singular_value_solution(method, dtype):
    so3 = SO3()
    p, turn = normal(4, 9, 3, dtype=dtype), so3.exp(0.5 * normal(4, 3, seed=1, dtype=dtype))
    q = p @ turn.mT + 0.1 * normal(4, 9, 3, seed=2, dtype=dtype)
    start = torch.eye(3, dtype=dtype).expand(4, 3, 3)
    found = method(lambda g: (p @ g.mT - q).flatten(-2), start, group=so3)
    assert found.converged.all()
    u, _, vt = torch.linalg.svd(q.mT @ p)
    sign = torch.linalg.det(u @ vt)
    diagonal = torch.stack([torch.ones_like(sign), torch.ones_like(sign), sign], -1)
    torch.testing.assert_close(found.x, u * diagonal[:, None] @ vt, rtol=0, atol=1e-9 if dtype.itemsize == 8 else 1e-4)


class RigidMotions:
    """SE(3) as 4 x 4 matrices, by the matrix exponential: all that the solvers ask of a group."""

    dim = 6

    def exp(self, v):
        x, y, z, a, b, c = v.unbind(-1)
        o = torch.zeros_like(x)
        rows = [[o, -z, y, a], [z, o, -x, b], [-y, x, o, c], [o, o, o, o]]
        return torch.linalg.matrix_exp(torch.stack([torch.stack(row, -1) for row in rows], -2))

    def compose(self, g, h):
        return g @ h


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("group", [SE3(), RigidMotions()])
def test_point_clouds_are_aligned_by_rigid_motions(method, group):
    truth = group.exp(normal(3, 6))
    points = torch.cat([normal(3, 8, 3, seed=1), torch.ones(3, 8, 1, dtype=torch.float64)], -1)
    targets = points @ truth.mT
    start = torch.eye(4, dtype=torch.float64).expand(3, 4, 4)
    found = method(lambda g: (points @ g.mT - targets)[..., :3].flatten(-2), start, group=group)
    torch.testing.assert_close(found.x, truth)
    assert found.converged.all()


@pytest.mark.parametrize("method", METHODS)
def test_each_of_a_batch_stops_on_its_own(method):
    def residual(x):
        return x.square() - 2

    start = torch.tensor([[2**0.5], [1.5], [100.0]], dtype=torch.float64)
    found = method(residual, start)
    assert found.steps[0] <= 1 < found.steps[1] < found.steps[2]
    alone = torch.stack([method(residual, one).x for one in start])
    torch.testing.assert_close(found.x, alone, rtol=1e-14, atol=0)
    assert found.converged.all()


@pytest.mark.parametrize("method", METHODS)
def test_says_where_it_has_not_converged(method):
    found = method(lambda x: x.square() - 2, torch.tensor([[2**0.5], [100.0]], dtype=torch.float64), steps=2)
    assert found.converged.tolist() == [True, False]


@pytest.mark.parametrize("method", METHODS)
def test_weights_in_the_residual_get_no_graph(method):
    weight = torch.tensor(2.0, requires_grad=True)
    assert not method(lambda x: weight * x - 1, torch.zeros(1)).x.requires_grad


@pytest.mark.parametrize("method", METHODS)
def test_numbers_that_are_none_are_refused(method):
    with pytest.raises(ValueError, match="finite start is wanted: got NaN"):
        method(lambda x: x, torch.tensor([torch.nan]))
    with pytest.raises(ValueError, match="at the start is to be finite: it is not in 1 of 2"):
        method(lambda x: x.log(), torch.tensor([[1.0], [-1.0]]))


@pytest.mark.parametrize("method", METHODS)
def test_shapes_and_types_that_do_not_fit_are_refused(method):
    with pytest.raises(ValueError, match="a start of real numbers is wanted"):
        method(lambda x: x, torch.tensor([1]))
    with pytest.raises(ValueError, match="a start of real numbers is wanted"):
        method(lambda x: x, torch.zeros(0, 2))
    with pytest.raises(ValueError, match=r"\(\*batch, m\): got torch.float32 \(\)"):
        method(lambda x: x.sum(), torch.zeros(2))
    with pytest.raises(ValueError, match=r"got torch.float32 \(3, 2\)"):
        method(lambda x: x.expand(3, 2), torch.zeros(2))
    with pytest.raises(ValueError, match=r"got torch.float64 \(2,\)"):
        method(lambda x: x.double(), torch.zeros(2))


def test_a_problem_with_dependent_columns_stays_and_does_not_stop_the_others():
    def residual(x):
        return torch.stack([x.prod(-1) - 2, x.sum(-1) - 3, x.prod(-1) - 2], -1)

    start = torch.tensor([[1.0, 1.0], [0.5, 3.0]], dtype=torch.float64)
    found = gauss_newton(residual, start)
    assert found.converged.tolist() == [False, True]
    assert found.steps[0] == 0
    torch.testing.assert_close(found.x, torch.tensor([[1.0, 1.0], [1.0, 2.0]], dtype=torch.float64))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("dtype", "unit"), [(torch.float32, 1e-6), (torch.float64, 1e-10), (torch.float32, 1e9)])
def test_units_make_no_difference(method, dtype, unit):
    times = torch.linspace(0, unit, 50, dtype=dtype)

    def residual(x):
        return x[..., :1] * torch.exp(-times / x[..., 1:]) - 2 * torch.exp(-times / (0.3 * unit))

    found = method(residual, torch.tensor([1.5, 0.25 * unit], dtype=dtype))
    assert found.converged
    torch.testing.assert_close(found.x, torch.tensor([2, 0.3 * unit], dtype=dtype), rtol=1e-4, atol=0)


@pytest.mark.parametrize("method", METHODS)
def test_a_small_coordinate_is_found_beside_a_large_one(method):
    weights = torch.tensor([1.0, 1e-9])
    for start in (torch.zeros(2), torch.tensor([1.0, 0.0])):
        found = method(lambda x: weights * x - weights, start)
        assert found.converged
        torch.testing.assert_close(found.x, torch.ones(2))


@pytest.mark.parametrize("method", METHODS)
def test_rigid_motions_far_from_the_origin(method):
    points, shift = normal(20, 3, dtype=torch.float32), torch.tensor([1e5, -2e4, 10.0])
    truth = SE3().exp(torch.tensor([0.0, 0.0, 0.0, 0.3, -0.5, 0.4]))
    targets = points @ truth[:3, :3].mT + shift
    start = torch.eye(4)
    start[:3, 3] = torch.tensor([1e5, -2e4, 0.0])

    def residual(g):
        return (points @ g[..., :3, :3].mT + g[..., None, :3, 3] - targets).flatten(-2)

    found = method(residual, start, group=SE3())
    assert found.converged
    rounding = torch.finfo(torch.float32).eps * 1e5
    torch.testing.assert_close(found.x[:3, :3], truth[:3, :3], rtol=0, atol=rounding)
    torch.testing.assert_close(found.x[:3, 3], shift, rtol=0, atol=2 * rounding)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("size", "dtype"), [(1e20, torch.float32), (1e-25, torch.float32), (1e160, torch.float64), (1e-200, torch.float64)]
)
def test_squares_that_over_or_underflow_are_no_convergence(method, size, dtype):
    found = method(lambda x: size * (x.exp() - 2), torch.tensor([3.0], dtype=dtype))
    assert found.converged
    torch.testing.assert_close(found.x, torch.tensor([2.0], dtype=dtype).log())


@pytest.mark.parametrize("method", METHODS)
def test_groups_of_numbers_and_of_complex_elements(method):
    factors = method(lambda g: g[..., None] - 3.0, torch.ones(2), group=Scaling())
    torch.testing.assert_close(factors.x, torch.full((2,), 3.0))
    turn = torch.tensor([0.6 + 0.8j, 0.8 - 0.6j])
    turns = method(lambda g: torch.view_as_real(g - turn), torch.ones(2, dtype=torch.complex64), group=Circle())
    torch.testing.assert_close(turns.x, turn)
    spin = SU2().exp(0.3 * normal(4, 3, dtype=torch.float32))
    start = torch.eye(2, dtype=torch.complex64).expand(4, 2, 2)
    spins = method(lambda g: torch.view_as_real(g - spin).flatten(-3), start, group=SU2())
    torch.testing.assert_close(spins.x, spin)
    assert factors.converged.all()
    assert turns.converged.all()
    assert spins.converged.all()


@pytest.mark.parametrize("method", METHODS)
def test_wrong_settings_are_refused(method):
    for wrong in ({"steps": -1}, {"tolerance": torch.nan}, {"tolerance": -1.0}, {"tolerance": torch.inf}):
        with pytest.raises(ValueError, match="steps are at least 0, a tolerance 0 to 1: got"):
            method(lambda x: x, torch.ones(1), **wrong)


@pytest.mark.parametrize("method", METHODS)
def test_a_jacobian_that_is_no_number_is_refused(method):
    with pytest.raises(ValueError, match="by a step is to be finite: it is not in 1 of 2"):
        method(lambda x: x.sqrt() - 1, torch.tensor([[0.0], [4.0]]))


@pytest.mark.parametrize("method", METHODS)
def test_elements_of_products_are_refused(method):
    group = DirectProduct(SO3(), SO3())
    with pytest.raises(TypeError, match=r"one tensor is wanted|parameter 'x'"):
        method(lambda g: g[0].flatten(-2), group.identity(), group=group)


def test_a_step_to_where_nothing_is_finite_is_refused():
    with pytest.raises(ValueError, match="after a step is to be finite"):
        gauss_newton(lambda x: x.log() - 3, torch.tensor([100.0]))
