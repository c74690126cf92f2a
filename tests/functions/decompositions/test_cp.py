import numpy as np
import pytest
import torch

from lawful.functions import cp, svd


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def seeded(n=0):
    return torch.Generator().manual_seed(n)


def test_finds_the_terms_that_a_tensor_is_made_of():
    u, v, w = normal(4, 2), normal(5, 2, seed=1), normal(6, 2, seed=2)
    t = torch.einsum("ir,jr,kr->ijk", u, v, w)
    found = cp(t, 2, tolerance=1e-14, generator=seeded())
    assert found.converged
    assert found.error < 1e-6
    torch.testing.assert_close(found.tensor(), t, rtol=0, atol=1e-5)
    sizes = (u.norm(dim=0) * v.norm(dim=0) * w.norm(dim=0)).sort(descending=True).values
    torch.testing.assert_close(found.weights, sizes, rtol=1e-4, atol=0)
    cosines = (torch.nn.functional.normalize(u, dim=0).mT @ found.factors[0]).abs().amax(0)
    torch.testing.assert_close(cosines, torch.ones(2, dtype=torch.float64), rtol=0, atol=1e-5)


def test_of_a_matrix_is_its_best_approximation():
    a = normal(5, 4)
    _, s, _ = svd(a)
    found = cp(a, 2, tolerance=1e-13, generator=seeded())
    np.testing.assert_allclose(found.error, (s[2:].norm() / s.norm()).item(), rtol=1e-5)


def test_the_parts_have_their_form():
    t = normal(3, 4, 2, 3)
    found = cp(t, 5, sweeps=20, generator=seeded())
    assert [u.shape for u in found.factors] == [(3, 5), (4, 5), (2, 5), (3, 5)]
    for u in found.factors:
        torch.testing.assert_close(u.norm(dim=0), torch.ones(5, dtype=torch.float64))
    assert (found.weights.diff() <= 0).all()
    assert all(after <= before + 1e-12 for before, after in zip(found.errors, found.errors[1:], strict=False))
    np.testing.assert_allclose(found.error, ((t - found.tensor()).norm() / t.norm()).item(), rtol=1e-9)


def test_says_when_it_has_not_settled():
    assert not cp(normal(4, 4, 4), 3, sweeps=2, tolerance=0.0, generator=seeded()).converged


def test_float32_settles_too():
    found = cp(normal(3, 3, 3).float(), 2, generator=seeded())
    assert found.converged
    assert found.weights.dtype == torch.float32


def test_a_zero_tensor_needs_nothing():
    found = cp(torch.zeros(2, 3, 2), 2, generator=seeded())
    assert found.error == 0
    assert found.tensor().eq(0).all()


def test_the_same_generator_gives_the_same_result():
    t = normal(3, 3, 3)
    one, other = (cp(t, 2, sweeps=5, generator=seeded(3)).weights for _ in range(2))
    assert one.equal(other)


@pytest.mark.parametrize("size", [1e30, 1e-30])
def test_squares_neither_overflow_nor_vanish(size):
    t = size * torch.ones(2, 3, 4)
    found = cp(t, 1, generator=seeded())
    assert found.error < 1e-5
    torch.testing.assert_close(found.tensor(), t, rtol=1e-5, atol=0)


def test_errors():
    for tolerance in (torch.nan, -1.0):
        with pytest.raises(ValueError, match="tolerance is at least 0: got"):
            cp(torch.ones(3, 3), 1, tolerance=tolerance)
    with pytest.raises(ValueError, match=r"two axes is wanted: got shape \(3,\)"):
        cp(torch.zeros(3), 1)
    with pytest.raises(ValueError, match="at least 1: got rank=0"):
        cp(torch.zeros(3, 3), 0)
    with pytest.raises(ValueError, match="finite entries are wanted: got NaN"):
        cp(torch.full((2, 2), torch.nan), 1)
    with pytest.raises(ValueError, match="none at all"):
        cp(torch.zeros(0, 2), 1)
