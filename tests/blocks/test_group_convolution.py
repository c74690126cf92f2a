import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import lawful
from lawful.blocks import (
    GroupConv2d,
    LiftingConv2d,
    kernel_rotations,
    rotate_feature_map,
    rotate_image,
    rotate_plane,
)
from lawful.groups import SO3, Cyclic, Dihedral
from lawful.laws import equivariance


@pytest.mark.parametrize("group", [Cyclic(4), Dihedral(4)])
def test_equals_a_sum_over_the_group_with_loops(group):
    lift, layer = LiftingConv2d(2, 3, 3, group=group), GroupConv2d(3, 2, 3, group=group)
    x, elements = torch.randn(2, 2, 6, 6), list(group.elements())
    f = torch.stack([F.conv2d(x, rotate_image(g, lift.weight), padding=1) for g in elements], 2)
    torch.testing.assert_close(lift(x), f)
    outputs = []
    for g in elements:
        parts = []
        for j, h in enumerate(elements):
            k = group.compose(group.inverse(g), h)
            kernel = layer.weight[:, :, next(i for i, e in enumerate(elements) if torch.equal(e, k))]
            parts.append(F.conv2d(f[:, :, j], rotate_image(g, kernel), padding=1))
        outputs.append(sum(parts))
    torch.testing.assert_close(layer(f), torch.stack(outputs, 2), rtol=1e-4, atol=1e-5)


def test_quarter_turns_of_a_fine_group_are_exact():
    """Elements of C8 that are quarter turns: the layers commute with them up to rounding."""
    group, x = Cyclic(8), torch.randn(1, 1, 9, 9, dtype=torch.float64)
    lift, layer = LiftingConv2d(1, 2, 5, group=group).double(), GroupConv2d(2, 2, 3, group=group).double()
    for turns in range(0, 8, 2):
        g = torch.tensor(turns)
        moved = layer(lift(torch.rot90(x, turns // 2, (-2, -1))).tanh())
        torch.testing.assert_close(moved, layer.act(g, layer(lift(x).tanh())), rtol=0, atol=1e-6)


def test_the_error_of_finer_angles_is_far_below_that_of_a_convolution():
    """Smooth images under 45 degrees: the error comes from interpolation."""
    torch.manual_seed(0)
    group, n = Cyclic(8), 33
    row, column = torch.meshgrid(*[torch.linspace(-1, 1, n)] * 2, indexing="ij")
    window = ((1 - row.square() - column.square()).clamp_min(0) ** 2)[None, None]
    x = window * F.interpolate(torch.randn(8, 1, 5, 5), (n, n), mode="bicubic", align_corners=True)
    g, lift = torch.tensor(1), LiftingConv2d(1, 8, 7, group=group, bias=False)
    layer, plain = GroupConv2d(8, 8, 7, group=group, bias=False), nn.Conv2d(1, 8, 7, padding=3, bias=False)
    with torch.no_grad():
        moved = rotate_plane(group, g, x)
        found, expected = layer(lift(moved)).amax(2), rotate_plane(group, g, layer(lift(x)).amax(2))
        error = (found - expected).norm() / expected.norm()
        found, expected = plain(moved), rotate_plane(group, g, plain(x))
        plain_error = (found - expected).norm() / expected.norm()
    assert error < 0.15
    assert plain_error > 2 * error


def test_a_kernel_that_does_not_turn_is_refuted():
    layer = LiftingConv2d(1, 1, 3, group=Cyclic(4))
    layer.rotations[1] = layer.rotations[0]
    law = equivariance(group=Cyclic(4), act=rotate_image, act_out=layer.act)
    assert lawful.check(layer, law, inputs=lawful.shape("b 1 5 5"))["equivariance"].status == "refuted"


def test_orientations_that_do_not_permute_are_refuted():
    layer = GroupConv2d(1, 1, 3, group=Cyclic(4))
    layer.table[:] = torch.arange(4)
    law = equivariance(group=Cyclic(4), act=layer.act)
    assert lawful.check(layer, law, inputs=lawful.shape("b 1 4 5 5"))["equivariance"].status == "refuted"


@pytest.mark.parametrize("group", [Cyclic(1), Cyclic(6), Cyclic(4), Dihedral(1), Dihedral(4)])
def test_matrices_rotate_kernels(group):
    matrices = kernel_rotations(group, 5)
    assert matrices.shape == (len(group.elements()), 25, 25)
    disk = torch.ones(25)
    corners = 4 % group.n == 0  # a finer group leaves them out
    for g, matrix in zip(group.elements(), matrices, strict=True):
        turn = int(g if g.dim() == 0 else g[0])
        if 4 * turn % group.n == 0:
            x = torch.randn(5, 5)
            if not corners:
                x[[0, 0, 4, 4], [0, 4, 0, 4]] = x[[0, 0, 4, 4], [1, 3, 1, 3]] = x[[1, 1, 3, 3], [0, 4, 0, 4]] = 0.0
            torch.testing.assert_close((matrix @ x.flatten()).reshape(5, 5), rotate_plane(group, g, x))
        center = (matrix @ disk).reshape(5, 5)[2, 2]
        assert float(center) == pytest.approx(1.0)


def test_actions_compose():
    group = Dihedral(4)
    f = torch.randn(2, 8, 5, 5)
    for g in group.elements():
        for h in group.elements():
            one = rotate_feature_map(group, g, rotate_feature_map(group, h, f))
            torch.testing.assert_close(one, rotate_feature_map(group, group.compose(g, h), f))


def test_rotation_by_interpolation_keeps_a_round_image():
    n = 41
    row, column = torch.meshgrid(*[torch.linspace(-1, 1, n)] * 2, indexing="ij")
    disk = torch.exp(-8 * (row.square() + column.square()))
    torch.testing.assert_close(rotate_plane(Cyclic(12), torch.tensor(1), disk), disk, rtol=0, atol=0.01)
    wide = torch.exp(-8 * (row.square() + column.square()))[:, 4:-4]
    torch.testing.assert_close(rotate_plane(Cyclic(12), torch.tensor(1), wide), wide, rtol=0, atol=0.01)
    ramp = math.cos(math.pi / 6) * column + math.sin(-math.pi / 6) * row
    turned = rotate_plane(Cyclic(12), torch.tensor(1), column)
    torch.testing.assert_close(turned[10:-10, 10:-10], ramp[10:-10, 10:-10], rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LiftingConv2d(1, 1, 4, group=Cyclic(4)), "kernel_size must be odd, got 4"),
        (lambda: GroupConv2d(1, 1, 3, group=SO3()), r"group must be Cyclic\(n\) or Dihedral\(n\), got"),
        (
            lambda: LiftingConv2d(2, 1, 3, group=Cyclic(4))(torch.randn(1, 1, 5, 5)),
            r"expected images of shape \(b, 2, h, w\)",
        ),
        (
            lambda: GroupConv2d(2, 1, 3, group=Dihedral(4))(torch.randn(1, 2, 4, 5, 5)),
            r"feature map of shape \(b, 2, 8, h, w\), got \(1, 2, 4, 5, 5\)",
        ),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()
