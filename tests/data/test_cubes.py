import math

import pytest
import torch

from lawful.data import cubes, render_cubes
from lawful.groups import SO3


def turn(axis, angle):
    return SO3().exp(angle * torch.eye(3)[axis])


def test_a_quarter_turn_about_the_line_of_sight_turns_the_image():
    start = SO3().sample(3, generator=torch.Generator().manual_seed(0))
    images = render_cubes(start, size=16)
    turned = render_cubes(turn(2, math.pi / 2) @ start, size=16)
    torch.testing.assert_close(turned, images.rot90(1, (-2, -1)), atol=0.02, rtol=0)


def test_each_face_has_its_own_color_and_covers_its_area():
    quarter, half = math.pi / 2, math.pi
    turns = [turn(1, 0.0), turn(1, quarter), turn(1, half), turn(1, -quarter), turn(0, quarter), turn(0, -quarter)]
    images = render_cubes(torch.stack(turns), size=42)
    centers = images[:, :, 20:22, 20:22].mean((2, 3))
    assert float(torch.cdist(centers, centers).fill_diagonal_(9).min()) > 0.2
    area = (images.amax(1) > 0).float().mean((1, 2))
    assert (area - (2 / math.sqrt(3) / 2.1) ** 2).abs().max() < 0.05


def test_every_rotation_has_its_own_image():
    """Also where the viewer sees one face only, whose square has four orientations."""
    start = torch.stack([turn(2, k * math.pi / 2) for k in range(4)])
    images = render_cubes(start).flatten(1)
    assert float(torch.cdist(images, images).fill_diagonal_(9).min()) > 1


def test_cubes_are_8_bit_images_with_their_rotations():
    data, other = cubes(samples=20), cubes(samples=20, seed=1)
    steps = data.inputs * 255
    torch.testing.assert_close(steps, steps.round(), atol=1e-4, rtol=0)
    drawn = render_cubes(data.targets.unflatten(1, (3, 3)))
    torch.testing.assert_close(data.inputs, drawn, atol=0.5 / 255 + 1e-5, rtol=0)
    assert data.fingerprint() != other.fingerprint()


def test_bad_arguments_raise():
    with pytest.raises(ValueError, match=r"rotations of shape \(n, 3, 3\), got shape \(3, 3\)"):
        render_cubes(torch.eye(3))
    with pytest.raises(ValueError, match="expected finite rotations"):
        render_cubes(torch.full((1, 3, 3), torch.nan))
    with pytest.raises(ValueError, match="size must be at least 1, got 0"):
        render_cubes(torch.eye(3)[None], size=0)
    with pytest.raises(ValueError, match="samples must be at least 1, got 0"):
        cubes(samples=0)
