import pytest
import torch

from lawful.groups.finite import Cyclic


@pytest.mark.parametrize("n", [1, 2, 5])
def test_acts_as_roll(n):
    x = torch.arange(3 * n).reshape(3, n)
    for k in range(n):
        assert torch.equal(Cyclic(n).act(torch.tensor(k), x), x.roll(k, -1))
    each = torch.arange(3) % n
    assert torch.equal(Cyclic(n).act(each, x), torch.stack([row.roll(int(k)) for k, row in zip(each, x, strict=True)]))


def test_rotation_is_a_root_of_the_identity():
    group, one = Cyclic(6), torch.eye(2, dtype=torch.float64)
    turn = group.rotation(torch.tensor(1), dtype=torch.float64)
    torch.testing.assert_close(torch.linalg.matrix_power(turn, 6), one)
    torch.testing.assert_close(turn @ one[0], torch.tensor([0.5, 0.75**0.5], dtype=torch.float64))


def test_distance_goes_the_shorter_way_round():
    assert Cyclic(6).distance(torch.tensor(0), torch.arange(6)).tolist() == [0, 1, 2, 3, 2, 1]


def test_samples_are_uniform():
    counts = Cyclic(5).sample(10000, generator=torch.Generator().manual_seed(0)).bincount(minlength=5)
    assert ((counts - 2000).square() / 2000).sum() < 30  # chi-squared with 4 degrees of freedom


def test_gradients_pass_through_the_action():
    x = torch.arange(4.0).requires_grad_()
    Cyclic(4).act(torch.tensor(1), x)[0].backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 0.0, 0.0, 1.0]


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match="at least 1: got 0"):
        Cyclic(0)
    with pytest.raises(ValueError, match=r"size 4: got shape \(3,\)"):
        Cyclic(4).act(torch.tensor(1), torch.zeros(3))
