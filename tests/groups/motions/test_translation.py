from inspect import unwrap

import pytest
import torch

from lawful.groups.euclidean import Euclidean, Translation


def test_is_the_part_of_the_euclidean_group_that_does_not_turn():
    group, whole = Translation(3), Euclidean(3)
    v, x = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    still = whole.exp(torch.nn.functional.pad(v, (0, 3)))
    torch.testing.assert_close(whole.act(still, x), group.act(group.exp(v), x))
    torch.testing.assert_close(torch.linalg.matrix_exp(group.hat(v)), still)
    assert torch.equal(group.vee(group.hat(v)), v)


def test_jacobians_are_the_unit_matrix():
    v = torch.zeros(2, 5, 3)
    for made in (Translation(3).adjoint(v), Translation(3).left_jacobian(v), Translation(3).right_jacobian(v)):
        assert torch.equal(made, torch.eye(3).expand(2, 5, 3, 3))


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match="at least 1: got 0"):
        Translation(0)
    with pytest.raises(ValueError, match=r"size 3: got shape \(2,\)"):
        Translation(3).act(torch.zeros(2), torch.zeros(2))


def test_one_entry_is_not_spread_over_many():
    group = Translation(3)
    for method in ("compose", "distance"):
        with pytest.raises(ValueError, match=r"size 3: got shape \(1,\)"):
            unwrap(getattr(Translation, method))(group, torch.ones(3), torch.ones(1))
    for method in ("inverse", "exp", "log", "hat", "adjoint"):
        with pytest.raises(ValueError, match=r"size 3: got shape \(2,\)"):
            unwrap(getattr(Translation, method))(group, torch.ones(2))
