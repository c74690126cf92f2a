import pytest
import torch

from lawful.groups import SO2, SO3
from lawful.groups.group import LieGroup, sized


def test_sizes_are_said():
    assert sized(torch.zeros(5, 3, 3), 3, 3).shape == (5, 3, 3)
    with pytest.raises(ValueError, match=r"the last axis is to have size 3: got shape \(2, 4\)"):
        sized(torch.zeros(2, 4), 3)
    with pytest.raises(ValueError, match=r"the last axes are to have size 3 x 3: got shape \(3,\)"):
        sized(torch.zeros(3), 3, 3)


@pytest.mark.parametrize("group", [SO2(), SO3()])
def test_jacobians_have_inverses_by_default(group):
    v = torch.randn(4, group.dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    default = LieGroup.left_jacobian_inverse(group, v)
    torch.testing.assert_close(default, group.left_jacobian_inverse(v))
    torch.testing.assert_close(
        group.right_jacobian(v) @ group.right_jacobian_inverse(v), default @ group.left_jacobian(v)
    )
