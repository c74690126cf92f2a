"""Conversions between rotation matrices, quaternions, rotation vectors and Euler angles."""

import itertools
import re
from collections.abc import Iterator
from functools import partial, reduce
from math import pi

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from lawful.groups import (
    axis_angle_to_matrix,
    axis_angle_to_quaternion,
    canonical_quaternion,
    euler_to_matrix,
    euler_to_quaternion,
    matrix_to_axis_angle,
    matrix_to_euler,
    matrix_to_quaternion,
    quaternion_product,
    quaternion_to_axis_angle,
    quaternion_to_euler,
    quaternion_to_matrix,
    skew,
)
from lawful.groups._helpers import shorten
from lawful.laws import Claim, agreement, homomorphism, invertibility, linearity, shape, transformed


def quaternions(n=300, seed=0):
    normal = torch.randn(n, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.nn.functional.normalize(normal, dim=-1)


def test_equal_scipy():
    q = quaternions()
    scipy = Rotation.from_quat(q.numpy(), scalar_first=True)
    expected = scipy.as_quat(canonical=True, scalar_first=True)
    np.testing.assert_allclose(quaternion_to_matrix(q), scipy.as_matrix(), atol=1e-14)
    np.testing.assert_allclose(quaternion_to_axis_angle(q), scipy.as_rotvec(), atol=1e-14)
    np.testing.assert_allclose(matrix_to_quaternion(torch.from_numpy(scipy.as_matrix())), expected, atol=1e-14)
    np.testing.assert_allclose(matrix_to_axis_angle(torch.from_numpy(scipy.as_matrix())), scipy.as_rotvec(), atol=1e-13)
    v = torch.from_numpy(scipy.as_rotvec())
    np.testing.assert_allclose(canonical_quaternion(axis_angle_to_quaternion(v)), expected, atol=1e-14)
    np.testing.assert_allclose(axis_angle_to_matrix(v), scipy.as_matrix(), atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_pivot_is_right(dtype):
    almost = torch.eye(4, dtype=dtype) + 1e-3 * quaternions(4).to(dtype)
    q = canonical_quaternion(torch.nn.functional.normalize(almost, dim=-1))
    torch.testing.assert_close(matrix_to_quaternion(quaternion_to_matrix(q)), q)


def test_signs_of_half_turns():
    q = torch.tensor([[0.0, 0.0, -1.0, 2.0], [0.0, -1.0, 0.0, 0.0], [-1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    expected = torch.tensor([[0.0, 0.0, 1.0, -2.0], [0.0, 1.0, 0.0, 0.0], [1.0, -1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    torch.testing.assert_close(canonical_quaternion(q), expected)
    half = torch.diag(torch.tensor([-1.0, -1.0, 1.0]))
    torch.testing.assert_close(matrix_to_quaternion(half), torch.tensor([0.0, 0.0, 0.0, 1.0]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_jacobians_of_all_four_pivots_equal_the_derivative_along_the_group(dtype):
    q = quaternions(40, seed=1).to(dtype)
    r = quaternion_to_matrix(q)
    w = quaternions(40, seed=2)[:, 1:].to(dtype)

    def turned(t):
        return matrix_to_quaternion(r @ axis_angle_to_matrix(t * w))

    _, slope = torch.func.jvp(turned, (torch.zeros((), dtype=dtype),), (torch.ones((), dtype=dtype),))
    a, u = canonical_quaternion(q)[:, :1], canonical_quaternion(q)[:, 1:]
    expected = torch.cat([-(u * w).sum(-1, keepdim=True), a * w + torch.linalg.cross(u, w)], dim=-1) / 2
    torch.testing.assert_close(slope, expected)


def test_the_norm_of_a_quaternion_does_not_matter():
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
        (canonical_quaternion, (3,)),
        (skew, (4,)),
    ],
)
def test_wrong_shapes_raise(function, wrong):
    with pytest.raises(ValueError, match=rf"expected a tensor of shape \(\*batch, .*, got {re.escape(str(wrong))}"):
        function(torch.zeros(wrong))


@pytest.mark.parametrize("size", [1e-30, 1e-20, 1e20, 1e30])
def test_huge_and_tiny_quaternions(size):
    q = quaternions(20).float()
    torch.testing.assert_close(quaternion_to_matrix(size * q), quaternion_to_matrix(q))
    torch.testing.assert_close(quaternion_to_axis_angle(size * q), quaternion_to_axis_angle(q))
    torch.testing.assert_close(quaternion_to_euler(size * q, order="xyz"), quaternion_to_euler(q, order="xyz"))


SMALL = ["".join(o) for o in itertools.product("xyz", repeat=3) if o[1] not in (o[0], o[2])]
ORDERS = [*SMALL, *(o.upper() for o in SMALL)]


@pytest.mark.parametrize("order", ORDERS)
def test_euler_equal_scipy(order):
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
def test_euler_gimbal_lock_preserves_the_rotation(order, dtype):
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
def test_euler_unknown_orders_raise(order):
    with pytest.raises(ValueError, match="three of x, y, z"):
        euler_to_matrix(torch.zeros(3), order=order)
    with pytest.raises(ValueError, match="three of x, y, z"):
        matrix_to_euler(torch.eye(3), order=order)


def test_euler_wrong_shapes_raise():
    with pytest.raises(ValueError, match=r"shape \(\*batch, 3\), got \(4,\)"):
        euler_to_matrix(torch.zeros(4), order="xyz")


def claims() -> Iterator[Claim]:
    """Second derivations of the conversions."""
    quaternion, vector = shape("b 4"), shape("b 3")

    def first_nonzero(q):
        return torch.stack([canonical_quaternion(q * (torch.arange(4) >= k))[..., k] for k in range(4)], -1)

    def through_quaternion(v):
        return quaternion_to_matrix(axis_angle_to_quaternion(v))

    def far_from_unit(q):
        return torch.cat([quaternion_to_axis_angle(s * q / q.norm(dim=-1, keepdim=True)) for s in (1e30, 1e-30)])

    def squared_norm(q):
        return q.square().sum(-1)

    yield Claim(agreement(other=torch.abs), first_nonzero, quaternion, name="canonical_quaternion")
    yield Claim(agreement(other=through_quaternion), axis_angle_to_matrix, vector)
    norms = homomorphism(operation=quaternion_product, into=torch.mul)
    yield Claim(norms, squared_norm, quaternion, name="|pq|² = |p|² |q|²")
    yield Claim(linearity(), skew, vector)

    unit = transformed(lambda v: axis_angle_to_quaternion(shorten(v)), "b 3")
    any_norm = agreement(other=lambda q: quaternion_to_axis_angle(q).repeat(2, 1))
    yield Claim(any_norm, far_from_unit, unit, name="quaternion_to_axis_angle of any norm")

    def product_of_rotations(angles, *, order):
        axes = torch.eye(3, dtype=angles.dtype)[["xyz".index(a) for a in order.lower()]]
        rotations = list(torch.linalg.matrix_exp(skew(angles[..., None] * axes)).unbind(-3))
        return reduce(torch.matmul, rotations if order.isupper() else rotations[::-1])

    for order, end in (("XYZ", pi / 2), ("zyx", -pi / 2), ("yxy", 0.0)):
        to_euler, to_matrix = partial(matrix_to_euler, order=order), partial(euler_to_matrix, order=order)

        def gimbal_lock(angles, to_matrix=to_matrix, end=end):
            first, middle, last = angles.unbind(-1)
            return to_matrix(torch.stack([first, torch.where(middle > 0, end, middle), last], dim=-1))

        product = agreement(other=partial(product_of_rotations, order=order))
        yield Claim(product, to_matrix, vector, name=f"euler_to_matrix({order})")
        locked = transformed(gimbal_lock, "b 3")
        yield Claim(invertibility(inverse=to_matrix), to_euler, locked, name=f"gimbal lock of {order}")
