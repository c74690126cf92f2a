from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize
import torch
from torch import Tensor

from lawful.functions import well_conditioned
from lawful.groups import SE3, SO3, SU2, Circle, DirectProduct, Scaling
from lawful.laws import AtMost, Claim, Map, Statement, agreement, batch_independence, law, shape, transformed
from lawful.solvers import Residual, gauss_newton, levenberg_marquardt
from lawful.solvers.least_squares import _norm, _Problems

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

        expected = scipy.optimize.least_squares(residual, [1.0, 1.0], xtol=1e-15, ftol=1e-15, gtol=1e-15)
        np.testing.assert_allclose(found.x[n], expected.x, rtol=1e-6)
        np.testing.assert_allclose(found.cost[n], expected.cost, rtol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_a_problem_without_a_batch(method):
    found = method(lambda x: torch.stack([x[..., 0] ** 2 - 2, x[..., 1].exp() - 3], -1), torch.ones(2).double())
    torch.testing.assert_close(found.x, torch.tensor([2**0.5, np.log(3)], dtype=torch.float64))
    assert found.converged.shape == found.cost.shape == found.num_steps.shape == ()


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
    """SE(3) as 4 x 4 matrices, by the matrix exponential: the group interface of the solvers."""

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
    assert found.num_steps[0] <= 1 < found.num_steps[1] < found.num_steps[2]
    alone = torch.stack([method(residual, one).x for one in start])
    torch.testing.assert_close(found.x, alone, rtol=1e-14, atol=0)
    assert found.converged.all()


@pytest.mark.parametrize("method", METHODS)
def test_convergence_is_reported(method):
    found = method(lambda x: x.square() - 2, torch.tensor([[2**0.5], [100.0]], dtype=torch.float64), max_steps=2)
    assert found.converged.tolist() == [True, False]


@pytest.mark.parametrize("method", METHODS)
def test_weights_in_the_residual_get_no_graph(method):
    weight = torch.tensor(2.0, requires_grad=True)
    assert not method(lambda x: weight * x - 1, torch.zeros(1)).x.requires_grad


@pytest.mark.parametrize("method", METHODS)
def test_nan_is_rejected(method):
    with pytest.raises(ValueError, match="expected a finite x0, got NaN"):
        method(lambda x: x, torch.tensor([torch.nan]))
    with pytest.raises(ValueError, match="at x0 is not finite in 1 of 2"):
        method(lambda x: x.log(), torch.tensor([[1.0], [-1.0]]))


@pytest.mark.parametrize("method", METHODS)
def test_invalid_shapes_and_dtypes(method):
    with pytest.raises(ValueError, match="expected a floating-point x0"):
        method(lambda x: x, torch.tensor([1]))
    with pytest.raises(ValueError, match="expected a floating-point x0"):
        method(lambda x: x, torch.zeros(0, 2))
    with pytest.raises(ValueError, match=r"got \(\) and torch.float32"):
        method(lambda x: x.sum(), torch.zeros(2))
    with pytest.raises(ValueError, match=r"got \(3, 2\) and torch.float32"):
        method(lambda x: x.expand(3, 2), torch.zeros(2))
    with pytest.raises(ValueError, match=r"got \(2,\) and torch.float64"):
        method(lambda x: x.double(), torch.zeros(2))


def test_a_rank_deficient_problem_does_not_stop_the_others():
    def residual(x):
        return torch.stack([x.prod(-1) - 2, x.sum(-1) - 3, x.prod(-1) - 2], -1)

    start = torch.tensor([[1.0, 1.0], [0.5, 3.0]], dtype=torch.float64)
    found = gauss_newton(residual, start)
    assert found.converged.tolist() == [False, True]
    assert found.num_steps[0] == 0
    torch.testing.assert_close(found.x, torch.tensor([[1.0, 1.0], [1.0, 2.0]], dtype=torch.float64))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("dtype", "unit"), [(torch.float32, 1e-6), (torch.float64, 1e-10), (torch.float32, 1e9)])
def test_solution_does_not_depend_on_units(method, dtype, unit):
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
def test_overflow_and_underflow_of_squares(method, size, dtype):
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
def test_invalid_settings(method):
    for wrong in ({"max_steps": -1}, {"tol": torch.nan}, {"tol": -1.0}, {"tol": torch.inf}):
        with pytest.raises(ValueError, match="expected max_steps >= 0 and 0 <= tol < 1, got"):
            method(lambda x: x, torch.ones(1), **wrong)


@pytest.mark.parametrize("method", METHODS)
def test_a_jacobian_that_is_not_finite_is_rejected(method):
    with pytest.raises(ValueError, match="has a Jacobian that is not finite in 1 of 2"):
        method(lambda x: x.sqrt() - 1, torch.tensor([[0.0], [4.0]]))


@pytest.mark.parametrize("method", METHODS)
def test_elements_of_product_groups_are_rejected(method):
    group = DirectProduct(SO3(), SO3())
    with pytest.raises(TypeError, match=r"expected x0 to be a tensor|parameter 'x0?'"):
        method(lambda g: g[0].flatten(-2), group.identity(), group=group)


def test_a_step_to_a_nonfinite_residual_is_rejected():
    with pytest.raises(ValueError, match="after a step is not finite"):
        gauss_newton(lambda x: x.log() - 3, torch.tensor([100.0]))


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
    expected = scipy.optimize.least_squares(by_numpy, [0.5, 0.5], method="lm", xtol=1e-15, ftol=1e-15, gtol=1e-15)
    np.testing.assert_allclose(found.x, expected.x, rtol=1e-6)
    assert found.converged


def test_singular_jacobian():
    found = levenberg_marquardt(lambda x: x.sum(-1, keepdim=True) - 1, torch.zeros(4, 2, dtype=torch.float64))
    torch.testing.assert_close(found.x, torch.full((4, 2), 0.5, dtype=torch.float64))
    flat = levenberg_marquardt(lambda x: 0 * x + 1, torch.zeros(2))
    assert flat.converged


def test_steps_to_a_nonfinite_residual_are_undone():
    found = levenberg_marquardt(lambda x: x.log() - 3, torch.tensor([100.0], dtype=torch.float64))
    torch.testing.assert_close(found.x, torch.tensor([3.0], dtype=torch.float64).exp())


def test_no_convergence_without_a_finite_step():
    found = levenberg_marquardt(lambda x: torch.where(x == 1, x, torch.nan * x), torch.ones(1))
    assert not found.converged
    assert found.x == 1


def test_many_residuals_of_a_singular_problem_in_float32():
    found = levenberg_marquardt(lambda x: x.sum(-1, keepdim=True).expand(5000) - 1, torch.zeros(20))
    assert found.converged
    torch.testing.assert_close(found.x.sum(), torch.tensor(1.0))


def test_damping_must_be_positive():
    with pytest.raises(ValueError, match="expected a finite damping > 0, got 0"):
        levenberg_marquardt(lambda x: x, torch.ones(1), damping=0.0)
    with pytest.raises(ValueError, match="expected a finite damping > 0, got inf"):
        levenberg_marquardt(lambda x: x, torch.ones(1), damping=torch.inf)


def _residuals_claims() -> Iterator[Claim]:
    """Laws of the Jacobian and of `_norm`."""

    def bent(x: Tensor) -> Tensor:
        return torch.cat([x.sin() * x.roll(1, -1), x[..., :1].exp()], -1)

    def turned(g: Tensor) -> Tensor:
        return g.square().flatten(-2)

    def jacobian(x: Tensor) -> Tensor:
        return _Problems.initialize(bent, x, group=None, max_steps=0, tol=None)[0].jacobian(x)

    def one_by_one(x: Tensor) -> Tensor:
        return torch.stack([torch.func.jacfwd(bent)(point) for point in x])

    def jacobian_on_rotations(g: Tensor) -> Tensor:
        return _Problems.initialize(turned, g, group=SO3(), max_steps=0, tol=None)[0].jacobian(g)

    def by_generators(g: Tensor) -> Tensor:
        moved = g[..., None, :, :] @ SO3().hat(torch.eye(3).to(g))
        return (2 * g[..., None, :, :] * moved).flatten(-2).mT

    yield Claim(agreement(other=one_by_one), jacobian, transformed(torch.tanh, "b 3"), name="_Problems.jacobian")
    rotations = transformed(SO3().exp, "b 3")
    yield Claim(agreement(other=by_generators), jacobian_on_rotations, rotations, name="_Problems.jacobian on SO(3)")
    yield Claim(agreement(other=lambda v: torch.linalg.vector_norm(v, dim=-1)), _norm, shape("b 3"))

    def reported(x: Tensor) -> Tensor:
        """Whether steps of these relative sizes and residual reductions count as converged."""
        eps = torch.finfo(x.dtype).eps
        problems, r = _Problems.initialize(torch.clone, x, group=None, max_steps=0, tol=None)
        steps = ((eps, 1.0), (20 * eps, 1.0), (eps, 0.5), (eps**2, 0.5))
        return torch.stack([problems.below_rounding(x, r, change=part * r, new_r=left * r) for part, left in steps]).to(
            x
        )

    positive = transformed(lambda x: 1 + x.tanh().abs(), "b 3")
    yield Claim(
        agreement(other=lambda x: x.new_tensor([[1], [0], [0], [1]]).expand(4, len(x))),
        reported,
        positive,
        name="_Problems.below_rounding",
    )

    def stationary(x: Tensor) -> Tensor:
        problems, r = _Problems.initialize(torch.clone, x, group=None, max_steps=0, tol=0.1)
        side = x.roll(1, -1) * x.new_tensor([1, -1, 0])
        across = side - x * (x * side).sum(-1, keepdim=True) / x.square().sum(-1, keepdim=True)
        pairs = ((across + x / 1000, -2 * across), (across + x, across - x), (across, x))
        along = [torch.stack(pair, -1) for pair in pairs]
        return torch.stack([problems.is_stationary(r, j) for j in along]).to(x)

    yield Claim(
        agreement(other=lambda x: x.new_tensor([[1], [0], [0]]).expand(3, len(x))),
        stationary,
        positive,
        name="_Problems.is_stationary",
    )


def _nonlinear_residual(x: Tensor) -> Tensor:
    """A nonlinear residual whose Jacobian has full rank; it has no zero."""
    return torch.cat([x + x.sin() / 2, x.roll(1, -1).cos() - 3], -1)


def _gauss_newton_claims() -> Iterator[Claim]:
    """Laws of Gauss-Newton."""

    def one_step(a: Tensor, b: Tensor) -> Tensor:
        def linear(x: Tensor) -> Tensor:
            return (a @ x[..., None])[..., 0] - b

        return gauss_newton(linear, torch.zeros_like(a[..., 0, :]), max_steps=1).x

    def two_steps(x: Tensor, s: Tensor) -> Tensor:
        return gauss_newton(_nonlinear_residual, x, max_steps=2).x

    def two_steps_in_other_coordinates(x: Tensor, s: Tensor) -> Tensor:
        def back(y: Tensor) -> Tensor:
            return (s @ y[..., None])[..., 0]

        start = torch.linalg.solve(s, x)
        return back(gauss_newton(lambda y: _nonlinear_residual(back(y)), start, max_steps=2).x)

    def turned_back(v: Tensor) -> Tensor:
        targets = SO3().exp(v)
        start = torch.eye(3).to(v).expand_as(targets)
        return gauss_newton(lambda g: (g - targets).flatten(-2), start, group=SO3(), max_steps=5).x

    def below_a_radian(x: Tensor) -> Tensor:
        return 0.4 * x / (1 + x.norm(dim=-1, keepdim=True))

    regular = transformed(well_conditioned, "b 4 3")
    pseudo_inverse = agreement(other=lambda a, b: (torch.linalg.pinv(a) @ b[..., None])[..., 0])
    yield Claim(pseudo_inverse, one_step, (regular, shape("b 4")), name="gauss_newton, one step of a linear problem")

    def reported(a: Tensor, b: Tensor) -> Tensor:
        flat = torch.cat([a[..., :2], 2 * a[..., :1]], -1)
        found, lost = (
            gauss_newton(
                lambda x, a=a: (a @ x[..., None])[..., 0] - 1 - b.abs(), torch.ones_like(b[..., :3]), max_steps=9
            )
            for a in (a, flat)
        )
        kept = (lost.x == 1).all(-1) & (lost.num_steps == 0) & ~lost.converged
        return torch.stack([found.cost, found.converged.to(a), (found.num_steps < 4).to(a), kept.to(a)], -1)

    def least(a: Tensor, b: Tensor) -> Tensor:
        b = 1 + b.abs()
        r = (a @ torch.linalg.pinv(a) @ b[..., None])[..., 0] - b
        one = torch.ones_like(b[..., 0])
        return torch.stack([r.square().sum(-1) / 2, one, one, one], -1)

    once = (transformed(well_conditioned, "b:1..2 4 3"), transformed(torch.tanh, "b:1..2 4"))
    yield Claim(replace(agreement(other=least), cases=6), reported, once, name="gauss_newton, reported results")

    def downhill(x: Tensor) -> Tensor:
        found = gauss_newton(torch.exp, x[..., None])
        return torch.stack([found.x[..., 0], found.num_steps.to(x), found.converged.to(x)])

    for_ever = agreement(other=lambda x: torch.stack([x - 50, 0 * x + 50, 0 * x]))
    yield Claim(replace(for_ever, cases=2), downhill, transformed(torch.tanh, "b:1..2"), name="gauss_newton of exp")
    affine = replace(agreement(other=two_steps_in_other_coordinates), cases=8)
    coordinates = (transformed(torch.tanh, "b 3"), transformed(well_conditioned, "b 3 3"))
    yield Claim(affine, two_steps, coordinates, name="gauss_newton, two steps")
    yield Claim(
        replace(batch_independence(), cases=8),
        lambda x: gauss_newton(_nonlinear_residual, x, max_steps=2).x,
        shape("b 3"),
        name="gauss_newton",
    )
    rotations = replace(agreement(other=SO3().exp), cases=6)
    yield Claim(rotations, turned_back, transformed(below_a_radian, "b 3"), name="gauss_newton on SO(3)")


def _valley(x: Tensor) -> Tensor:
    """Rosenbrock's valley, with a floor: steep walls, a bend, and no zero."""
    u, v = x.unbind(-1)
    return torch.stack([3 * (v - u.square()), 1 - u, 1 + v / 10], -1)


@law("c_{s+1} ≤ c_s", cases=5, discover_with=None)
def costs_shrink(f: Map, x: Tensor) -> Statement:
    """The costs, one per step along the last axis, never increase."""
    costs = f(x)
    return AtMost(costs[..., 1:], costs[..., :-1])


@law("|cos(J_i, r)| ≤ 1e-3 at f(x), for every column of J = Dr", cases=5, discover_with=None)
def gradient_vanishes(f: Map, x: Tensor, *, residual: Residual) -> Statement:
    """At the solution, the residual is orthogonal to the columns of the Jacobian."""
    found = f(x)
    j = torch.stack([torch.func.jacfwd(residual)(point) for point in found])
    r = residual(found)
    sizes = j.norm(dim=-2) * r.norm(dim=-1, keepdim=True)
    return AtMost(torch.einsum("bmn,bm->bn", j, r).abs(), 1e-3 * sizes)


def _normal_equation_steps(x: Tensor) -> Tensor:
    """Six steps from one point, by the normal equations."""
    mu, growth, d = 1e-3, 2.0, torch.zeros_like(x)
    for _ in range(6):
        r, j = _valley(x), torch.func.jacrev(_valley)(x)
        d = torch.maximum(d, j.square().sum(0).sqrt())
        delta = torch.linalg.solve(j.T @ j + mu * torch.diag(d.square()), -j.T @ r)
        brought, promised = (r.square().sum() - s.square().sum() for s in (_valley(x + delta), r + j @ delta))
        gain = float((brought / promised).nan_to_num(0.0))
        if brought >= 0:
            x, mu, growth = x + delta, mu * max(1 / 3, 1 - (2 * gain - 1) ** 3), 2.0
        else:
            mu, growth = mu * growth, 2 * growth
    return x


def _levenberg_marquardt_claims() -> Iterator[Claim]:
    """Laws of Levenberg-Marquardt."""

    def costs(x: Tensor) -> Tensor:
        return torch.stack([levenberg_marquardt(_valley, x, max_steps=n).cost for n in range(4)], -1)

    def bottom(x: Tensor) -> Tensor:
        return levenberg_marquardt(_valley, x, max_steps=15).x

    def of_linear(a: Tensor, b: Tensor) -> Tensor:
        def linear(x: Tensor) -> Tensor:
            return (a @ x[..., None])[..., 0] - b

        return levenberg_marquardt(linear, torch.zeros_like(a[..., 0, :]), damping=1e-4, max_steps=3).x

    def shortest(a: Tensor, b: Tensor) -> Tensor:
        """The shortest solution, each coordinate measured by the _norm of its column."""
        d = a.norm(dim=-2)
        return (torch.linalg.pinv(a / d[..., None, :]) @ b[..., None])[..., 0] / d

    def three_steps(x: Tensor, s: Tensor) -> Tensor:
        return levenberg_marquardt(_valley, x, max_steps=3).x

    def three_steps_in_other_units(x: Tensor, s: Tensor) -> Tensor:
        return s * levenberg_marquardt(lambda y: _valley(s * y), x / s, max_steps=3).x

    near = transformed(torch.tanh, "b 2")
    book = replace(agreement(other=lambda x: torch.stack([_normal_equation_steps(p) for p in x])), cases=4)
    six = transformed(lambda x: 3 * x.tanh(), "b:1..2 2")
    yield Claim(
        book, lambda x: levenberg_marquardt(_valley, x, max_steps=6).x, six, name="levenberg_marquardt, six steps"
    )
    units = transformed(lambda z: (5 * z.tanh()).exp(), "b 2")
    other = replace(agreement(other=three_steps_in_other_units), cases=6)
    yield Claim(other, three_steps, (near, units), name="levenberg_marquardt, in any units")
    yield Claim(costs_shrink(), costs, near, name="levenberg_marquardt")
    yield Claim(gradient_vanishes(residual=_valley), bottom, near, name="levenberg_marquardt")
    wide = (transformed(well_conditioned, "b 2 3"), shape("b 2"))
    yield Claim(
        replace(agreement(other=shortest, rtol=1e-4), cases=8), of_linear, wide, name="levenberg_marquardt, linear"
    )


def claims() -> Iterator[Claim]:
    """Second derivations of least squares."""
    yield from _residuals_claims()
    yield from _gauss_newton_claims()
    yield from _levenberg_marquardt_claims()
