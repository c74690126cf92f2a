"""The jigsaw: tiles of an image put back by the continuity of their borders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lawful.laws import Claim, agreement, shape, transformed

SIDES = ((0, 1), (1, 0), (0, -1), (-1, 0))
"""Where a neighbour is: right, below, left, above."""


def tiles_of(image: Float[Tensor, "c h w"], *, rows: int, columns: int) -> Float[Tensor, "n c a b"]:
    """Cuts an image into tiles of one size, row by row.

    Args:
        image: The image, channels first.
        rows: How many tiles are below each other; they divide the height.
        columns: How many are beside each other.

    Examples:
        >>> tiles_of(torch.zeros(3, 8, 12), rows=2, columns=3).shape
        torch.Size([6, 3, 4, 4])
    """
    c, h, w = image.shape
    if min(rows, columns) < 1 or h % rows or w % columns:
        raise ValueError(f"rows and columns divide an image: got {h} x {w} and {rows} x {columns}")
    parts = image.reshape(c, rows, h // rows, columns, w // columns)
    return parts.permute(1, 3, 0, 2, 4).flatten(0, 1)


def put_together(tiles: Float[Tensor, "n c a b"], order: Int[Tensor, "rows columns"]) -> Float[Tensor, "c h w"]:
    """Lays tiles out: at each place the tile of that number.

    Args:
        tiles: The tiles.
        order: Their numbers, place by place.

    Examples:
        >>> image = torch.arange(24.0).reshape(1, 4, 6)
        >>> torch.equal(put_together(tiles_of(image, rows=2, columns=3), torch.arange(6).reshape(2, 3)), image)
        True
    """
    return torch.cat([torch.cat([*tiles[row]], dim=2) for row in order], dim=1)


def compatibility(tiles: Float[Tensor, "n c a b"]) -> Float[Tensor, "4 n n"]:
    r"""Measures how badly each tile goes on in each other, to the right, below, to the left and above.

    $$d(i, j) = \sum_k (g_k - \mu_i)^\top S_i^{-1} (g_k - \mu_i) + \text{the same from } j, \qquad
    g_k = x_{j, k, \text{first}} - x_{i, k, \text{last}}$$

    The step across the border is compared with the steps just before it, of which $\mu_i$ is the mean and $S_i$ the
    covariance over channels: a border in a steady ramp is no jump. A tile does not go on in itself: infinity.

    Reference:
        Gallagher, *Jigsaw Puzzles with Pieces of Unknown Orientation*, 2012 (the Mahalanobis gradient).

    Args:
        tiles: The tiles, of at least two pixels on each side.

    Examples:
        >>> image = torch.linspace(0, 1, 12).expand(1, 4, 12)
        >>> compatibility(tiles_of(image, rows=1, columns=3))[0].argmin(1)[:2]
        tensor([1, 2])
    """
    if tiles.dim() != 4 or min(tiles.shape[2:]) < 2:
        raise ValueError(f"tiles of at least 2 x 2 pixels were wanted: got shape {tuple(tiles.shape)}")
    if not bool(tiles.isfinite().all()):
        raise ValueError("the pixels of tiles are finite: some are not")
    right, below = (_across(t) for t in (tiles, tiles.transpose(2, 3)))
    found = torch.stack([right, below, right.T, below.T])
    return found.masked_fill(torch.eye(len(tiles), dtype=torch.bool, device=tiles.device), torch.inf)


def _across(tiles: Tensor) -> Tensor:
    """How badly tile i, at the left, goes on in tile j, at the right."""
    first, last = tiles[..., 0].transpose(1, 2), tiles[..., -1].transpose(1, 2)
    out, back = last - tiles[..., -2].transpose(1, 2), first - tiles[..., 1].transpose(1, 2)
    step = first[None] - last[:, None]
    return _surprise(step, out, dim=0) + _surprise(-step, back, dim=1)


def _surprise(step: Tensor, usual: Tensor, dim: int) -> Tensor:
    """The squared Mahalanobis distance of steps "i j k c" from the usual ones "n k c" of tile i or j, added up."""
    mean = usual.mean(1, keepdim=True)
    off = usual - mean
    covariance = off.mT @ off / off.shape[1] + _FLOOR * torch.eye(off.shape[2]).to(off)
    away = step - mean.unsqueeze(1 - dim)
    inverse = torch.linalg.inv(covariance).unsqueeze(1 - dim)
    return torch.einsum("ijkc,ijcd,ijkd->ij", away, inverse.expand(*away.shape[:2], -1, -1), away)


_FLOOR = 1e-4
"""The least variance of the steps in a tile, for images from 0 to 1: that of a hundredth."""


def solved(tiles: Float[Tensor, "n c a b"], *, rows: int, columns: int) -> Int[Tensor, "rows columns"]:
    r"""Finds the order of tiles in which their borders are continuous.

    Two tiles are best buddies on a side if each goes on in the other better than in any third; how much better is the
    confidence of the match. The puzzle grows from the tile with the surest neighbours: at each free place beside what
    lies already the tile is laid of the largest confidence there, summed over the neighbours. Where what was laid is
    too far to one side it is free to move: only its extent is bounded. The whole is then laid again from its largest
    consistent part, some times, and the order of the smallest total incompatibility is returned.

    Reference:
        Pomeranz, Shemesh and Ben-Shahar, *A Fully Automated Greedy Square Jigsaw Puzzle Solver*, 2011.

    Args:
        tiles: The tiles, in any order; all upright.
        rows: How many tiles are below each other.
        columns: How many are beside each other.

    Examples:
        >>> x = torch.linspace(0, 1, 12)
        >>> tiles = tiles_of((x[:, None] ** 2 + x).expand(1, 12, 12), rows=3, columns=3)
        >>> mixed = torch.tensor([4, 0, 8, 2, 6, 1, 3, 7, 5])
        >>> torch.equal(mixed[solved(tiles[mixed], rows=3, columns=3)], torch.arange(9).reshape(3, 3))
        True
    """
    n = len(tiles)
    if min(rows, columns) < 1 or rows * columns != n:
        raise ValueError(f"as many tiles as places were wanted: got {n} and {rows} x {columns}")
    if n == 1:
        return torch.zeros(1, 1, dtype=torch.long)
    apart = compatibility(tiles)
    sure = _confidence(apart)
    best_one, least = None, torch.inf
    seeds = sure.amax(2).sum(0).argsort(descending=True)[: min(n, _TRIES)].tolist()
    for seed in seeds:
        order = _grown(sure, seed, rows, columns)
        total = _total(apart, order)
        if total < least or best_one is None:
            best_one, least = order, total
    return best_one if best_one is not None else torch.arange(n).reshape(rows, columns)


_TRIES = 8
"""From how many tiles the puzzle is grown."""


def _confidence(apart: Tensor) -> Tensor:
    """How much better a match is than the second best, from both sides; 1 - d(i, j) / d(second best), "4 n n"."""
    tiny = torch.finfo(apart.dtype).tiny
    found = []
    for side, back in ((0, 2), (1, 3), (2, 0), (3, 1)):
        ahead = 1 - apart[side] / _second(apart[side]).clamp_min(tiny)
        behind = 1 - apart[back] / _second(apart[back]).clamp_min(tiny)
        found.append((ahead + behind.T) / 2)
    return torch.stack(found).clamp_min(-1e3)


def _second(apart: Tensor) -> Tensor:
    """Of each row, the best of the other entries: the second best at the best, the best elsewhere."""
    if len(apart) < 3:
        return torch.ones_like(apart)
    least = apart.topk(2, dim=1, largest=False)
    return least.values[:, :1].expand_as(apart).scatter(1, least.indices[:, :1], least.values[:, 1:])


def _grown(sure: Tensor, seed: int, rows: int, columns: int) -> Tensor:
    """Lays the surest tile beside those that lie, one by one, on a board that is wide enough for any beginning."""
    n = sure.shape[1]
    laid: dict[tuple[int, int], int] = {(0, 0): seed}
    left = torch.ones(n, dtype=torch.bool)
    left[seed] = False
    scores: dict[tuple[int, int], Tensor] = {}
    place = (0, 0)
    while len(laid) < n:
        for side, (down, right) in enumerate(SIDES):
            free = (place[0] + down, place[1] + right)
            if free not in laid:
                scores[free] = scores.get(free, torch.zeros(n)) + sure[side, laid[place]]
        fits = {spot: score for spot, score in scores.items() if _fits(spot, laid, rows, columns)}
        spots = [*fits]
        table = torch.stack([fits[spot] for spot in spots]).masked_fill(~left, -torch.inf)
        best = int(table.argmax())
        place, tile = spots[best // n], best % n
        laid[place], left[tile] = tile, False
        del scores[place]
    top, side = (min(end) for end in zip(*laid, strict=True))
    order = torch.zeros(rows, columns, dtype=torch.long)
    for (i, j), tile in laid.items():
        order[i - top, j - side] = tile
    return order


def _fits(spot: tuple[int, int], laid: Iterable[tuple[int, int]], rows: int, columns: int) -> bool:
    """Whether all would still lie within so many rows and columns."""
    down, right = zip(spot, *laid, strict=True)
    return max(down) - min(down) < rows and max(right) - min(right) < columns


def _total(apart: Tensor, order: Tensor) -> float:
    """How badly neighbours fit, over all borders of an order."""
    return float(apart[0, order[:, :-1], order[:, 1:]].sum() + apart[1, order[:-1], order[1:]].sum())


def neighbours_right(order: Int[Tensor, "rows columns"], truth: Int[Tensor, "rows columns"]) -> float:
    """Measures which part of the borders has the two tiles on it that it should: 1 for a solved puzzle.

    Args:
        order: The numbers of the tiles, place by place.
        truth: Those of the image.

    Examples:
        >>> truth = torch.arange(6).reshape(2, 3)
        >>> neighbours_right(truth.roll(1, 1), truth)
        0.7142857142857143
    """

    def pairs(x: Tensor) -> set[tuple[int, int, int]]:
        beside = {(0, *pair) for pair in zip(x[:, :-1].flatten().tolist(), x[:, 1:].flatten().tolist(), strict=True)}
        below = {(1, *pair) for pair in zip(x[:-1].flatten().tolist(), x[1:].flatten().tolist(), strict=True)}
        return beside | below

    right = pairs(truth)
    return len(right & pairs(order)) / len(right) if right else 1.0


def claims() -> Iterator[Claim]:
    """The laws that the jigsaw obeys."""

    def there_and_back(x: Tensor) -> Tensor:
        return put_together(tiles_of(x, rows=2, columns=3), torch.arange(6).reshape(2, 3))

    yield Claim(agreement(other=lambda x: x), there_and_back, shape("2 4 6"), name="tiles_of, put_together")

    def smooth(x: Tensor) -> Tensor:
        """An image that bends, at random, but not by much from pixel to pixel."""
        i, j = torch.arange(8.0).to(x)[:, None], torch.arange(12.0).to(x)
        a = 0.2 * x.tanh()
        return torch.stack([(1 + a[0]) * i + 0.3 * j, (1 + a[1]) * j - 0.2 * i, 0.1 * i * (1 + a[2]) * j]) / 12

    def mended(x: Tensor, order: Tensor) -> Tensor:
        tiles = tiles_of(x, rows=2, columns=3)[order]
        return put_together(tiles, solved(tiles, rows=2, columns=3))

    def mixed(x: Tensor) -> Tensor:
        return x.argsort()

    given = (transformed(smooth, "3"), transformed(mixed, "6"))
    yield Claim(agreement(other=lambda x, order: x), mended, given, name="solved, of a smooth image")

    def borders(tiles: Tensor) -> Tensor:
        return compatibility(tiles)[:2, 0, 1]

    def equation(tiles: Tensor) -> Tensor:
        return torch.stack([_border(*tiles), _border(*tiles.transpose(2, 3))])

    yield Claim(agreement(other=equation), borders, shape("2 2 3 3"), name="compatibility")


def _border(a: Tensor, b: Tensor) -> Tensor:
    """The equation of compatibility, row by row."""
    total = a.new_zeros(())
    for near, far, sign in ((a, b, 1), (b.flip(2), a.flip(2), 1)):
        usual = near[:, :, -1] - near[:, :, -2]
        covariance = torch.cov(usual, correction=0) + 1e-4 * torch.eye(len(usual)).to(a)
        for k in range(a.shape[1]):
            g = sign * (far[:, k, 0] - near[:, k, -1]) - usual.mean(1)
            total = total + g @ torch.linalg.solve(covariance, g)
    return total
