import itertools
from math import pi

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from lawful.groups import (
    euler_to_matrix,
    euler_to_quaternion,
    matrix_to_euler,
    quaternion_to_euler,
    quaternion_to_matrix,
)

SMALL = ["".join(o) for o in itertools.product("xyz", repeat=3) if o[1] not in (o[0], o[2])]
ORDERS = [*SMALL, *(o.upper() for o in SMALL)]


@pytest.mark.parametrize("order", ORDERS)
def test_equal_scipy(order):
    g = torch.Generator().manual_seed(0)
    angles = (torch.rand(100, 3, generator=g, dtype=torch.float64) - 0.5) * 9
    scipy = Rotation.from_euler(order, angles.numpy())
    np.testing.assert_allclose(euler_to_matrix(angles, order=order), scipy.as_matrix(), atol=1e-14)
    np.testing.assert_allclose(
        quaternion_to_matrix(euler_to_quaternion(angles, order=order)), scipy.as_matrix(), atol=1e-14
    )
    for found in (
        quaternion_to_euler(torch.from_numpy(scipy.as_quat(scalar_first=True)), order=order),
        matrix_to_euler(torch.from_numpy(scipy.as_matrix()), order=order),
    ):
        np.testing.assert_allclose(found, scipy.as_euler(order), atol=1e-11)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("order", ORDERS)
def test_gimbal_lock_gives_the_rotation_back(order, dtype):
    ends = (0.0, pi) if order[0] == order[2] else (-pi / 2, pi / 2)
    g = torch.Generator().manual_seed(1)
    angles = (6 * torch.rand(2, 8, 20, 3, generator=g, dtype=torch.float64) - 3).to(dtype)
    steps = torch.tensor([0.0, *(10.0**-k for k in (16, 15, 12, 9, 7, 5, 3))], dtype=torch.float64)
    angles[..., 1] = (torch.tensor(ends, dtype=torch.float64)[:, None, None] + steps[:, None]).to(dtype)
    r = euler_to_matrix(angles, order=order).requires_grad_()
    found = matrix_to_euler(r, order=order)
    assert (euler_to_matrix(found, order=order) - r).abs().max() <= 30 * torch.finfo(dtype).eps
    assert found.abs().max() <= pi * (1 + torch.finfo(dtype).eps)
    assert torch.autograd.grad(found.sum(), r)[0].isfinite().all()
    assert found[:, 0, :, 2].eq(0).all()


@pytest.mark.parametrize("order", ["xy", "xxy", "xyy", "abc", "Xyz", "", "xyzx"])
def test_unknown_orders_are_refused(order):
    with pytest.raises(ValueError, match="three of x, y, z"):
        euler_to_matrix(torch.zeros(3), order=order)
    with pytest.raises(ValueError, match="three of x, y, z"):
        matrix_to_euler(torch.eye(3), order=order)


def test_wrong_shapes_are_refused():
    with pytest.raises((ValueError, TypeError)):
        euler_to_matrix(torch.zeros(4), order="xyz")
