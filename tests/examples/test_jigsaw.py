from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from lawful.laws import Claim, agreement, shape, transformed
from tests.examples.loading import load_example

jigsaw = load_example("jigsaw")


def smooth_image(h=48, w=60):
    i, j = torch.linspace(0, 1, h)[:, None], torch.linspace(0, 1, w)
    return torch.stack([(7 * i + 3 * j).sin(), (2 * i - 5 * j).cos() * i, (4 * i * j).sin() + 0.3 * j])


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 5), (4, 5), (6, 6)])
def test_solves_a_shuffled_image(rows, columns):
    image = smooth_image()
    tiles = jigsaw.split_tiles(image, rows=rows, columns=columns)
    mixed = torch.randperm(len(tiles), generator=torch.Generator().manual_seed(3))
    order = jigsaw.solve(tiles[mixed], rows=rows, columns=columns)
    truth = torch.arange(rows * columns).reshape(rows, columns)
    assert jigsaw.neighbor_accuracy(mixed[order], truth) == 1.0
    assert torch.equal(jigsaw.assemble(tiles[mixed], order), image)


def test_invalid_puzzles_are_an_error():
    with pytest.raises(ValueError, match="rows=2 and columns=3 must divide the image size, got 9 x 9"):
        jigsaw.split_tiles(torch.zeros(1, 9, 9), rows=2, columns=3)
    with pytest.raises(ValueError, match="got 4 tiles, rows=2, columns=3"):
        jigsaw.solve(torch.zeros(4, 1, 3, 3), rows=2, columns=3)
    with pytest.raises(ValueError, match="at least 2 x 2 pixels"):
        jigsaw.compatibility(torch.zeros(4, 1, 1, 3))
    with pytest.raises(ValueError, match="finite"):
        jigsaw.compatibility(torch.full((4, 1, 3, 3), torch.nan))


@pytest.mark.long
def test_solves_a_photo():
    from sklearn.datasets import load_sample_image

    photo = torch.tensor(load_sample_image("china.jpg")).permute(2, 0, 1).float() / 255
    tiles = jigsaw.split_tiles(photo[:, :420, :630], rows=6, columns=9)
    mixed = torch.randperm(54, generator=torch.Generator().manual_seed(0))
    order = jigsaw.solve(tiles[mixed], rows=6, columns=9)
    assert jigsaw.neighbor_accuracy(mixed[order], torch.arange(54).reshape(6, 9)) == 1.0


def claims() -> Iterator[Claim]:
    """Second derivations of the jigsaw solver."""

    def there_and_back(x: Tensor) -> Tensor:
        return jigsaw.assemble(jigsaw.split_tiles(x, rows=2, columns=3), torch.arange(6).reshape(2, 3))

    yield Claim(agreement(other=lambda x: x), there_and_back, shape("2 4 6"), name="split_tiles, assemble")

    def smooth(x: Tensor) -> Tensor:
        """A smooth random image."""
        i, j = torch.arange(8.0).to(x)[:, None], torch.arange(12.0).to(x)
        a = 0.2 * x.tanh()
        return torch.stack([(1 + a[0]) * i + 0.3 * j, (1 + a[1]) * j - 0.2 * i, 0.1 * i * (1 + a[2]) * j]) / 12

    def mended(x: Tensor, order: Tensor) -> Tensor:
        tiles = jigsaw.split_tiles(x, rows=2, columns=3)[order]
        return jigsaw.assemble(tiles, jigsaw.solve(tiles, rows=2, columns=3))

    def mixed(x: Tensor) -> Tensor:
        return x.argsort()

    given = (transformed(smooth, "3"), transformed(mixed, "6"))
    yield Claim(agreement(other=lambda x, order: x), mended, given, name="solve, smooth image")

    def borders(tiles: Tensor) -> Tensor:
        return jigsaw.compatibility(tiles)[:2, 0, 1]

    def equation(tiles: Tensor) -> Tensor:
        return torch.stack([_border(*tiles), _border(*tiles.transpose(2, 3))])

    yield Claim(agreement(other=equation), borders, shape("2 2 3 3"), name="compatibility")


def _border(a: Tensor, b: Tensor) -> Tensor:
    """The incompatibility of two tiles, row by row."""
    total = a.new_zeros(())
    for near, far, sign in ((a, b, 1), (b.flip(2), a.flip(2), 1)):
        usual = near[:, :, -1] - near[:, :, -2]
        covariance = torch.cov(usual, correction=0) + 1e-4 * torch.eye(len(usual)).to(a)
        for k in range(a.shape[1]):
            g = sign * (far[:, k, 0] - near[:, k, -1]) - usual.mean(1)
            total = total + g @ torch.linalg.solve(covariance, g)
    return total
