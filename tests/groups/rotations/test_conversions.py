import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from lawful.groups import (
    axis_angle_to_matrix,
    axis_angle_to_quaternion,
    canonical,
    matrix_to_axis_angle,
    matrix_to_quaternion,
    quaternion_to_axis_angle,
    quaternion_to_euler,
    quaternion_to_matrix,
    skew,
)


def quaternions(n=300, seed=0):
    normal = torch.randn(n, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.nn.functional.normalize(normal, dim=-1)


def test_equal_scipy():
    q = quaternions()
    scipy = Rotation.from_quat(q.numpy(), scalar_first=True)
    wanted = scipy.as_quat(canonical=True, scalar_first=True)
    np.testing.assert_allclose(quaternion_to_matrix(q), scipy.as_matrix(), atol=1e-14)
    np.testing.assert_allclose(quaternion_to_axis_angle(q), scipy.as_rotvec(), atol=1e-14)
    np.testing.assert_allclose(matrix_to_quaternion(torch.from_numpy(scipy.as_matrix())), wanted, atol=1e-14)
    np.testing.assert_allclose(matrix_to_axis_angle(torch.from_numpy(scipy.as_matrix())), scipy.as_rotvec(), atol=1e-13)
    v = torch.from_numpy(scipy.as_rotvec())
    np.testing.assert_allclose(canonical(axis_angle_to_quaternion(v)), wanted, atol=1e-14)
    np.testing.assert_allclose(axis_angle_to_matrix(v), scipy.as_matrix(), atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_pivot_is_right(dtype):
    almost = torch.eye(4, dtype=dtype) + 1e-3 * quaternions(4).to(dtype)
    q = canonical(torch.nn.functional.normalize(almost, dim=-1))
    torch.testing.assert_close(matrix_to_quaternion(quaternion_to_matrix(q)), q)


def test_signs_of_half_turns():
    q = torch.tensor([[0.0, 0.0, -1.0, 2.0], [0.0, -1.0, 0.0, 0.0], [-1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    wanted = torch.tensor([[0.0, 0.0, 1.0, -2.0], [0.0, 1.0, 0.0, 0.0], [1.0, -1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    torch.testing.assert_close(canonical(q), wanted)
    half = torch.diag(torch.tensor([-1.0, -1.0, 1.0]))
    torch.testing.assert_close(matrix_to_quaternion(half), torch.tensor([0.0, 0.0, 0.0, 1.0]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_jacobians_through_the_four_pivots_are_those_along_the_group(dtype):
    q = quaternions(40, seed=1).to(dtype)
    r = quaternion_to_matrix(q)
    w = quaternions(40, seed=2)[:, 1:].to(dtype)

    def turned(t):
        return matrix_to_quaternion(r @ axis_angle_to_matrix(t * w))

    _, slope = torch.func.jvp(turned, (torch.zeros((), dtype=dtype),), (torch.ones((), dtype=dtype),))
    a, u = canonical(q)[:, :1], canonical(q)[:, 1:]
    wanted = torch.cat([-(u * w).sum(-1, keepdim=True), a * w + torch.linalg.cross(u, w)], dim=-1) / 2
    torch.testing.assert_close(slope, wanted)


def test_the_length_of_a_quaternion_does_not_matter():
    q = quaternions(20)
    torch.testing.assert_close(quaternion_to_matrix(3 * q), quaternion_to_matrix(q))
    torch.testing.assert_close(quaternion_to_axis_angle(-0.1 * q), quaternion_to_axis_angle(q))


def test_skew_is_the_cross_product():
    v, x = quaternions(5)[:, 1:], quaternions(5, seed=3)[:, 1:]
    torch.testing.assert_close((skew(v) @ x[..., None])[..., 0], torch.linalg.cross(v, x))


def test_nan_propagates():
    assert matrix_to_quaternion(torch.full((3, 3), torch.nan)).isnan().any()
    assert quaternion_to_axis_angle(torch.tensor([torch.nan, 0.0, 0.0, 0.0])).isnan().any()


@pytest.mark.parametrize(
    ("function", "wrong"),
    [
        (axis_angle_to_matrix, (4,)),
        (axis_angle_to_quaternion, (2, 2)),
        (quaternion_to_matrix, (3,)),
        (quaternion_to_axis_angle, (3,)),
        (matrix_to_quaternion, (3, 4)),
        (matrix_to_axis_angle, (3,)),
        (canonical, (3,)),
        (skew, (4,)),
    ],
)
def test_wrong_shapes_are_refused(function, wrong):
    with pytest.raises((ValueError, TypeError)):
        function(torch.zeros(wrong))


@pytest.mark.parametrize("size", [1e-30, 1e-20, 1e20, 1e30])
def test_nor_does_a_huge_or_tiny_length(size):
    q = quaternions(20).float()
    torch.testing.assert_close(quaternion_to_matrix(size * q), quaternion_to_matrix(q))
    torch.testing.assert_close(quaternion_to_axis_angle(size * q), quaternion_to_axis_angle(q))
    torch.testing.assert_close(quaternion_to_euler(size * q, order="xyz"), quaternion_to_euler(q, order="xyz"))
