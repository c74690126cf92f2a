import itertools

import pytest
import torch
from torch import nn

from lawful.blocks import average_over_masks


def test_equals_a_loop_over_all_masks():
    f, p = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)).double(), 0.3
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = torch.zeros(3, 2, dtype=torch.float64)
    for mask in itertools.product((0, 1), repeat=4):
        m = torch.tensor(mask, dtype=torch.float64)
        expected += p ** sum(mask) * (1 - p) ** (4 - sum(mask)) * f(m * x)
    torch.testing.assert_close(average_over_masks(f, x, keep=p), expected, rtol=1e-12, atol=1e-12)


def test_weight_scaling_is_not_the_average_of_a_network_with_an_activation():
    x = torch.tensor([1.0, -1.0])
    average = average_over_masks(lambda z: z.sum(-1, keepdim=True).relu(), x, keep=0.5)
    torch.testing.assert_close(average, torch.tensor([0.25]))


@pytest.mark.parametrize("keep", [0.0, 1.0])
def test_the_ends_are_one_mask(keep):
    x = torch.tensor([1.0, 2.0])
    torch.testing.assert_close(average_over_masks(torch.exp, x, keep=keep), torch.exp(keep * x))


def test_it_is_differentiable():
    x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z: average_over_masks(torch.sin, z, keep=0.3), x)


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match="at most 20 units can be averaged over: got 21"):
        average_over_masks(torch.sin, torch.zeros(21), keep=0.5)
    with pytest.raises(ValueError, match="keep is a probability, from 0 to 1: got -1"):
        average_over_masks(torch.sin, torch.zeros(2), keep=-1.0)
    with pytest.raises(ValueError, match=r"makes \(\*\(5, 4\), m\) of \(5, 4, 2\) was wanted: got \(5, 4\)"):
        average_over_masks(lambda x: x.sum(-1), torch.zeros(5, 2), keep=0.5)


def test_a_single_number_has_no_masks(unchecked):
    with pytest.raises(ValueError, match=r"a last axis was wanted: got shape \(\)"):
        average_over_masks(torch.sin, torch.tensor(1.0), keep=0.5)
