from inspect import unwrap

import numpy as np
import pytest
import torch

from lawful.groups.euclidean import Scaling


def test_log_turns_products_into_sums():
    group = Scaling()
    g, h = group.sample(2, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(group.log(group.compose(g, h)), group.log(g) + group.log(h))
    torch.testing.assert_close(group.exp(group.log(g)), g)
    torch.testing.assert_close(group.distance(g, h), torch.log(g / h).abs())
    assert (g > 0).all()


def test_jacobians_are_the_unit_matrix():
    group = Scaling()
    v = torch.zeros(5, 1)
    assert torch.equal(group.left_jacobian(v), torch.ones(5, 1, 1))
    assert torch.equal(group.adjoint(group.exp(v)), torch.ones(5, 1, 1))


def test_factors_that_are_not_positive_have_no_logarithm():
    assert Scaling().log(torch.tensor(-1.0)).isnan().all()


def test_each_sample_of_a_batch_has_its_own_factor():
    g, x = torch.tensor([1.0, 2.0]), torch.ones(2, 3)
    assert torch.equal(Scaling().act(g, x), torch.tensor([[1.0] * 3, [2.0] * 3]))


@pytest.mark.parametrize("method", ["exp", "hat", "left_jacobian"])
def test_coordinates_are_one_number(method):
    with pytest.raises(ValueError, match=r"size 1: got shape \(2,\)"):
        unwrap(getattr(Scaling, method))(Scaling(), torch.zeros(2))


def test_equals_the_positive_numbers_of_numpy():
    group = Scaling()
    g, h = group.sample(2, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    np.testing.assert_allclose(group.compose(g, group.inverse(h)), g.numpy() / h.numpy(), rtol=1e-14)
    np.testing.assert_allclose(group.exp(g[:, None]), np.exp(g.numpy()), rtol=1e-14)
