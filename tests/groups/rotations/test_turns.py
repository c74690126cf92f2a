from inspect import unwrap
from math import pi

import pytest
import torch

from lawful.groups import skew, turn_mean, turn_mean_inverse
from lawful.groups.group import exp_mean


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("angle", [0.0, 1e-9, 1e-4, 0.1, 1.0, 1.999, 2.001, pi, 5.0, 6.0])
def test_equals_the_integral(angle, dtype):
    axes = torch.nn.functional.normalize(
        torch.randn(20, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64), dim=-1
    )
    v, eps = (angle * axes).to(dtype), torch.finfo(dtype).eps
    wanted = exp_mean(skew(v.double()))
    found = turn_mean(skew(v), square=v.square().sum(-1))
    back = turn_mean_inverse(skew(v), square=v.square().sum(-1))
    assert (found - wanted).abs().max() <= 10 * eps
    inverse = torch.linalg.inv(wanted)
    assert (back - inverse).abs().max() <= 50 * eps * inverse.abs().max() ** 2


@pytest.mark.parametrize("function", [turn_mean, turn_mean_inverse])
def test_generators_are_square(function):
    with pytest.raises(ValueError, match=r"size 3 x 3: got shape \(2, 3\)"):
        unwrap(function)(torch.zeros(2, 3), square=torch.zeros(()))
