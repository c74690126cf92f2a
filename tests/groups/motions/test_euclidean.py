import numpy as np
import pytest
import torch
from scipy import linalg

from lawful.groups.euclidean import Euclidean
from lawful.groups.rigid import SE3, rigid


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("d", [1, 2, 3, 4])
def test_exp_and_log_equal_scipy(d):
    group = Euclidean(d)
    v = torch.randn(5, group.dim, generator=seeded(), dtype=torch.float64) / 2
    g = group.exp(v)
    torch.testing.assert_close(g, torch.stack([torch.as_tensor(linalg.expm(a.numpy())) for a in group.hat(v)]))
    expected = torch.stack([torch.as_tensor(np.real(linalg.logm(a.numpy()))) for a in g])
    torch.testing.assert_close(group.hat(group.log(g)), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("scale", [0.0, 1e-9, 1.0])
def test_log_of_exp_returns_with_its_derivatives(scale):
    group = Euclidean(3)
    v = scale * torch.randn(6, generator=seeded(), dtype=torch.float64)

    def round_trip(v):
        return group.log(group.exp(v))

    torch.testing.assert_close(round_trip(v), v, rtol=1e-14, atol=0)
    torch.testing.assert_close(torch.func.jacrev(round_trip)(v), torch.eye(6, dtype=v.dtype), rtol=0, atol=1e-14)
    assert torch.func.jacrev(torch.func.jacrev(round_trip))(v).abs().max() < 1e-13


def test_half_turns_come_back():
    group = Euclidean(3)
    g = rigid(torch.diag(torch.tensor([-1.0, -1.0, 1.0], dtype=torch.float64)), torch.arange(3.0).double())
    torch.testing.assert_close(group.exp(group.log(g)), g)


def test_equals_se3_where_nothing_is_reflected():
    group, other = Euclidean(3), SE3()
    v, x = torch.randn(5, 6, generator=seeded()).double(), torch.randn(5, 3, generator=seeded(1)).double()
    g = group.exp(v)
    torch.testing.assert_close(g, other.exp(v))
    torch.testing.assert_close(group.log(g), other.log(g))
    torch.testing.assert_close(group.act(g, x), other.act(g, x))
    torch.testing.assert_close(group.adjoint(g), other.adjoint(g))
    torch.testing.assert_close(group.left_jacobian(v), other.left_jacobian(v))


def test_distances_between_points_stay():
    group = Euclidean(4)
    g, x = group.sample(generator=seeded(), dtype=torch.float64), torch.randn(6, 4, generator=seeded(1)).double()
    torch.testing.assert_close(torch.cdist(group.act(g, x), group.act(g, x)), torch.cdist(x, x))


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match="at least 1: got 0"):
        Euclidean(0)
    with pytest.raises(ValueError, match=r"size 3 x 3: got shape \(2, 2\)"):
        Euclidean(2).inverse(torch.eye(2))
    with pytest.raises(ValueError, match=r"size 6: got shape \(5,\)"):
        Euclidean(3).exp(torch.zeros(5))
    with pytest.raises(ValueError, match="determinant is 1: got -1"):
        Euclidean(2).log(torch.diag(torch.tensor([1.0, -1.0, 1.0])))


def test_log_runs_under_vmap():
    group = Euclidean(3)
    g = group.exp(torch.randn(3, 6, generator=seeded(), dtype=torch.float64) / 3)
    torch.testing.assert_close(torch.func.vmap(group.log)(g), group.log(g))
