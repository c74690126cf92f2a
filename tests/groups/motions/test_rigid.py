from inspect import unwrap

import pytest
import torch

from lawful.groups import SO3
from lawful.groups.rigid import parts, rigid, rigid_act, rigid_inverse


def test_puts_together_and_takes_apart():
    g = torch.Generator().manual_seed(0)
    r, t = SO3().sample(4, generator=g, dtype=torch.float64), torch.randn(4, 3, generator=g, dtype=torch.float64)
    m = rigid(r, t)
    torch.testing.assert_close(parts(m), (r, t))
    torch.testing.assert_close(rigid_inverse(m), torch.linalg.inv(m))
    torch.testing.assert_close(rigid_act(m, t), torch.einsum("nij,nj->ni", r, t) + t)


def test_one_rotation_for_many_translations():
    assert rigid(torch.eye(2), torch.zeros(5, 2)).shape == (5, 3, 3)
    assert rigid(torch.eye(2).expand(5, 2, 2), torch.zeros(2)).shape == (5, 3, 3)


def test_wrong_shapes_are_refused():
    with pytest.raises(ValueError, match=r"size 2 x 2: got shape \(3, 3\)"):
        unwrap(rigid)(torch.eye(3), torch.zeros(2))
    with pytest.raises(ValueError, match=r"size 2: got shape \(3,\)"):
        unwrap(rigid_act)(torch.eye(3), torch.zeros(3))
    with pytest.raises((ValueError, TypeError)):
        rigid_inverse(torch.zeros(2, 4))
