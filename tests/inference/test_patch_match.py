from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from lawful.inference import NearestNeighborField, PatchCompletion, PatchMatch, mean_fill, smooth_fill
from lawful.inference.patch_match import _average_patches
from lawful.laws import Claim, agreement, shape, transformed


def texture(h=32, w=40):
    """Stripes with a color gradient, three channels."""
    i, j = torch.arange(h)[:, None] / h, torch.arange(w) / w
    stripes = ((torch.arange(w) // 3) % 2).float().expand(h, w)
    return torch.stack([stripes, 0.5 * stripes + 0.2 * i, 0.3 * i + 0.3 * j + 0 * stripes])


def hole_in(image, top=11, left=14, h=8, w=10):
    hole = torch.zeros(image.shape[1:], dtype=torch.bool)
    hole[top : top + h, left : left + w] = True
    return hole


def rmse(a, b, hole):
    return float((a - b)[:, hole].square().mean().sqrt())


def test_the_coarsest_resolution_takes_the_most_steps(monkeypatch):
    image, calls, search = texture(), [], PatchMatch.__call__

    def count(self, *args, **options):
        calls.append(args[1].shape[-1])
        return search(self, *args, **options)

    monkeypatch.setattr(PatchMatch, "__call__", count)
    PatchCompletion(patch_size=3, steps=4, iterations=1)(image, hole_in(image))
    width = image.shape[-1]
    assert {size: calls.count(size) for size in calls} == {width // 4: 4, width // 2: 2, width: 2}


def test_patches_complete_a_texture_better_than_mean_and_smooth_fill():
    image = texture()
    hole = hole_in(image)
    known = image.masked_fill(hole, torch.nan)
    patches, smooth, mean = (
        PatchCompletion(patch_size=5, steps=8)(known, hole),
        smooth_fill(known, hole),
        mean_fill(known, hole),
    )
    assert rmse(patches, image, hole) < 0.3 * rmse(smooth, image, hole)
    assert rmse(smooth, image, hole) < 1.2 * rmse(mean, image, hole)
    for filled in (patches, smooth, mean):
        assert torch.equal(filled[:, ~hole], image[:, ~hole])
        assert bool(filled.isfinite().all())


def test_energy_falls_with_iterations_to_nearly_the_minimum():
    draw = torch.Generator().manual_seed(0)
    a, b = torch.rand(3, 14, 15, generator=draw), torch.rand(3, 16, 13, generator=draw)
    energies = [PatchMatch(patch_size=3, iterations=n)(a, b).energy for n in (0, 1, 2, 4, 8)]
    assert energies == sorted(energies, reverse=True)
    patches = [x.unfold(1, 3, 1).unfold(2, 3, 1).permute(1, 2, 0, 3, 4).reshape(-1, 27) for x in (a, b)]
    best = float(torch.cdist(*patches).square().amin(1).sum())
    assert best <= energies[-1] <= 1.15 * best


def test_search_continues_from_a_field_and_respects_the_source_mask():
    image = texture(20, 24)
    allowed = torch.zeros(16, 20, dtype=torch.bool)
    allowed[:, 10:] = True
    first = PatchMatch(patch_size=5, iterations=0)(image, image, source_mask=allowed)
    more = PatchMatch(patch_size=5, iterations=3)(image, image, source_mask=allowed, initial=first)
    assert bool((more.cost <= first.cost).all())
    assert int(more.column.min()) >= 10


def test_fills_holes_at_corners_and_edges_and_single_pixels():
    image = texture(21, 23)
    corner, edge, specks = (torch.zeros(21, 23, dtype=torch.bool) for _ in range(3))
    corner[:5, :6] = True
    edge[8:12, 17:] = True
    specks[::7, ::5] = True
    for hole in (corner, edge, specks):
        filled = PatchCompletion(patch_size=3, steps=2)(image.masked_fill(hole, 0.0), hole)
        assert rmse(filled, image, hole) < 0.35
    assert torch.equal(PatchCompletion()(image, torch.zeros(21, 23, dtype=torch.bool)), image)


@pytest.mark.parametrize(
    ("image", "hole", "error", "message"),
    [
        (torch.zeros(3, 9, 9), torch.zeros(9, 9), TypeError, "hole must be boolean, True at missing pixels"),
        (torch.zeros(3, 9, 9), torch.zeros(9, 8, dtype=torch.bool), ValueError, r"hole of shape \(h, w\)"),
        (
            torch.zeros(3, 9, 9),
            torch.ones(9, 9, dtype=torch.bool),
            ValueError,
            "hole must leave at least one known pixel",
        ),
        (
            torch.full((3, 9, 9), torch.nan),
            torch.eye(9, dtype=torch.bool),
            ValueError,
            "image must be finite outside the hole",
        ),
        (torch.zeros(3, 9, 9), torch.eye(9, dtype=torch.bool), ValueError, "source_mask excludes every patch of 7 x 7"),
        (torch.zeros(3, 6, 6), torch.eye(6, dtype=torch.bool), ValueError, "patch_size=7 high and wide, got 6 x 6"),
    ],
)
def test_invalid_images_and_holes_raise(image, hole, error, message):
    with pytest.raises(error, match=message):
        PatchCompletion(patch_size=7)(image, hole)


def test_invalid_options_raise():
    with pytest.raises(ValueError, match="patch_size must be at least 1"):
        PatchMatch(patch_size=0)
    with pytest.raises(ValueError, match="patch_size, steps, iterations and distance_decay must be at least 1"):
        PatchCompletion(distance_decay=0.5)
    with pytest.raises(ValueError, match="with h and w at least 5"):
        PatchMatch(patch_size=5)(torch.zeros(1, 4, 9), torch.zeros(1, 9, 9))


@pytest.mark.long
def test_completion_of_a_photo():
    from sklearn.datasets import load_sample_image

    photo = torch.tensor(load_sample_image("china.jpg")).permute(2, 0, 1).float() / 255
    hole = hole_in(photo, 60, 380, 50, 90)
    filled = PatchCompletion()(photo.masked_fill(hole, 0.0), hole)
    assert rmse(filled, photo, hole) < 0.05 < rmse(mean_fill(photo, hole), photo, hole)


def claims() -> Iterator[Claim]:
    """Yields second derivations of PatchMatch and of inpainting."""
    yield from _patch_match()
    yield from _fills()
    yield from _completion()


def _patch_match() -> Iterator[Claim]:
    def cost(a: Tensor, b: Tensor) -> Tensor:
        return PatchMatch(patch_size=2, iterations=1)(a, b).cost

    def cost_by_loops(a: Tensor, b: Tensor) -> Tensor:
        field = PatchMatch(patch_size=2, iterations=1)(a, b)
        rows = [[_cost(a, b, i, j, field) for j in range(a.shape[2] - 1)] for i in range(a.shape[1] - 1)]
        return torch.stack([torch.stack(row) for row in rows])

    pair = (shape("2 5 6"), shape("2 6 5"))
    yield Claim(replace(agreement(other=cost_by_loops), cases=20), cost, pair, name="cost of the matches")

    def converged(a: Tensor, b: Tensor) -> Tensor:
        return PatchMatch(patch_size=2, iterations=60)(a, b).cost

    def exhaustive(a: Tensor, b: Tensor) -> Tensor:
        patches = [image.unfold(1, 2, 1).unfold(2, 2, 1).permute(1, 2, 0, 3, 4) for image in (a, b)]
        difference = patches[0][:, :, None, None] - patches[1][None, None]
        return difference.square().sum((4, 5, 6)).amin((2, 3))

    pair = (shape("1 3 4"), shape("1 4 3"))
    yield Claim(replace(agreement(other=exhaustive), cases=5), converged, pair, name="many iterations find the minimum")

    def restored(a: Tensor) -> Tensor:
        field = PatchMatch(patch_size=2, iterations=6)(a, a)
        hole = torch.zeros(a.shape[1:], dtype=torch.bool)
        hole[1:3, 1:3] = True
        return _average_patches(a + hole, a, field, patch_size=2, hole=hole, weight=torch.ones_like(field.cost))

    def distinct(x: Tensor) -> Tensor:
        return x + 10 * torch.arange(20.0).to(x).reshape(1, 4, 5)

    law = replace(agreement(other=lambda a: a), cases=10)
    yield Claim(law, restored, transformed(distinct, "1 4 5"), name="average of an image matched to itself")


def _cost(a: Tensor, b: Tensor, i: int, j: int, field: NearestNeighborField) -> Tensor:
    k, m = int(field.row[i, j]), int(field.column[i, j])
    return (a[:, i : i + 2, j : j + 2] - b[:, k : k + 2, m : m + 2]).square().sum()


def _fills() -> Iterator[Claim]:
    hole = torch.zeros(5, 6, dtype=torch.bool)
    hole[1:4, 2:5] = hole[2, 5] = True
    inner = [(i, j) for i in (1, 2, 3) for j in (2, 3, 4)]

    def pixels(x: Tensor) -> Tensor:
        u = smooth_fill(x, hole, tolerance=1e-12)
        return torch.stack([u[:, i, j] for i, j in [*inner, (2, 5)]])

    def means(x: Tensor) -> Tensor:
        u = smooth_fill(x, hole, tolerance=1e-12)
        around = [(u[:, i - 1, j] + u[:, i + 1, j] + u[:, i, j - 1] + u[:, i, j + 1]) / 4 for i, j in inner]
        return torch.stack([*around, (u[:, 1, 5] + u[:, 3, 5] + u[:, 2, 4]) / 3])

    law = replace(agreement(other=means, rtol=1e-6), cases=20)
    yield Claim(law, pixels, transformed(torch.tanh, "2 5 6"), name="smooth_fill: mean of the neighbors")

    def equation(x: Tensor) -> Tensor:
        return torch.where(hole, (x * ~hole).sum((1, 2), keepdim=True) / 20, x)

    yield Claim(agreement(other=equation), lambda x: mean_fill(x, hole), shape("2 5 6"), name="mean_fill")


def _completion() -> Iterator[Claim]:
    hole = torch.zeros(9, 12, dtype=torch.bool)
    hole[3:6, 4:7] = True
    complete = PatchCompletion(patch_size=3, steps=2)

    def with_other_values(x: Tensor) -> Tensor:
        return complete(x.masked_fill(hole, 7.0), hole)

    law = replace(agreement(other=lambda x: complete(x, hole)), cases=8)
    yield Claim(law, with_other_values, shape("1 9 12"), name="values in the hole have no effect")

    def constant(x: Tensor) -> Tensor:
        return x.mean((1, 2), keepdim=True).expand(2, 9, 12)

    def completed(x: Tensor) -> Tensor:
        return complete(constant(x).masked_fill(hole, 0.0), hole)

    yield Claim(replace(agreement(other=constant), cases=8), completed, shape("2 9 12"), name="image of one color")
