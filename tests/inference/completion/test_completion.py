import pytest
import torch

from lawful.inference.patch_match import PatchCompletion, PatchMatch, mean_fill, smooth_fill


def texture(h=32, w=40):
    """Stripes with a slow change of colour, three channels."""
    i, j = torch.arange(h)[:, None] / h, torch.arange(w) / w
    stripes = ((torch.arange(w) // 3) % 2).float().expand(h, w)
    return torch.stack([stripes, 0.5 * stripes + 0.2 * i, 0.3 * i + 0.3 * j + 0 * stripes])


def hole_in(image, top=11, left=14, h=8, w=10):
    hole = torch.zeros(image.shape[1:], dtype=torch.bool)
    hole[top : top + h, left : left + w] = True
    return hole


def off(a, b, hole):
    return float((a - b)[:, hole].square().mean().sqrt())


def test_a_repeated_texture_is_completed_better_than_by_colour_or_heat():
    image = texture()
    hole = hole_in(image)
    known = image.masked_fill(hole, torch.nan)
    patches, smooth, mean = (
        PatchCompletion(patch=5, turns=8)(known, hole),
        smooth_fill(known, hole),
        mean_fill(known, hole),
    )
    assert off(patches, image, hole) < 0.3 * off(smooth, image, hole)
    assert off(smooth, image, hole) < 1.2 * off(mean, image, hole)
    for filled in (patches, smooth, mean):
        assert torch.equal(filled[:, ~hole], image[:, ~hole])
        assert bool(filled.isfinite().all())


def test_more_rounds_never_cost_more_and_come_close_to_the_best():
    draw = torch.Generator().manual_seed(0)
    a, b = torch.rand(3, 14, 15, generator=draw), torch.rand(3, 16, 13, generator=draw)
    energies = [PatchMatch(patch=3, rounds=n)(a, b).energy for n in (0, 1, 2, 4, 8)]
    assert energies == sorted(energies, reverse=True)
    patches = [x.unfold(1, 3, 1).unfold(2, 3, 1).permute(1, 2, 0, 3, 4).reshape(-1, 27) for x in (a, b)]
    best = float(torch.cdist(*patches).square().amin(1).sum())
    assert best <= energies[-1] <= 1.15 * best


def test_a_field_can_go_on_and_keeps_to_what_is_allowed():
    image = texture(20, 24)
    allowed = torch.zeros(16, 20, dtype=torch.bool)
    allowed[:, 10:] = True
    first = PatchMatch(patch=5, rounds=0)(image, image, allowed=allowed)
    more = PatchMatch(patch=5, rounds=3)(image, image, allowed=allowed, start=first)
    assert bool((more.cost <= first.cost).all())
    assert int(more.column.min()) >= 10


def test_small_and_awkward_holes_are_filled():
    image = texture(21, 23)
    corner, edge, specks = (torch.zeros(21, 23, dtype=torch.bool) for _ in range(3))
    corner[:5, :6] = True
    edge[8:12, 17:] = True
    specks[::7, ::5] = True
    for hole in (corner, edge, specks):
        filled = PatchCompletion(patch=3, turns=2)(image.masked_fill(hole, 0.0), hole)
        assert off(filled, image, hole) < 0.35
    assert torch.equal(PatchCompletion()(image, torch.zeros(21, 23, dtype=torch.bool)), image)


@pytest.mark.parametrize(
    ("image", "hole", "error", "message"),
    [
        (torch.zeros(3, 9, 9), torch.zeros(9, 9), TypeError, "a mask is True where pixels are missing"),
        (torch.zeros(3, 9, 9), torch.zeros(9, 8, dtype=torch.bool), ValueError, "a mask of its size"),
        (torch.zeros(3, 9, 9), torch.ones(9, 9, dtype=torch.bool), ValueError, "leaves no pixel"),
        (torch.full((3, 9, 9), torch.nan), torch.eye(9, dtype=torch.bool), ValueError, "are finite: some are not"),
        (torch.zeros(3, 9, 9), torch.eye(9, dtype=torch.bool), ValueError, "the mask leaves none"),
    ],
)
def test_what_cannot_be_filled_is_refused_with_a_sentence(image, hole, error, message):
    with pytest.raises(error, match=message):
        PatchCompletion(patch=7)(image, hole)


def test_options_of_patches_are_checked():
    with pytest.raises(ValueError, match="patch is at least 1"):
        PatchMatch(patch=0)
    with pytest.raises(ValueError, match="patch, turns, rounds and near are at least 1"):
        PatchCompletion(near=0.5)
    with pytest.raises(ValueError, match="of at least 5 x 5"):
        PatchMatch(patch=5)(torch.zeros(1, 4, 9), torch.zeros(1, 9, 9))


@pytest.mark.long
def test_a_photo_is_completed():
    from sklearn.datasets import load_sample_image

    photo = torch.tensor(load_sample_image("china.jpg")).permute(2, 0, 1).float() / 255
    hole = hole_in(photo, 60, 380, 50, 90)
    filled = PatchCompletion()(photo.masked_fill(hole, 0.0), hole)
    assert off(filled, photo, hole) < 0.05 < off(mean_fill(photo, hole), photo, hole)
