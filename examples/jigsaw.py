"""Solve a jigsaw puzzle: reorder the tiles of an image by the continuity of their borders.

python examples/jigsaw.py
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from jaxtyping import Float, Int
from torch import Tensor

SIDES = ((0, 1), (1, 0), (0, -1), (-1, 0))
"""Offsets of the neighbors: right, below, left, above."""


def split_tiles(image: Float[Tensor, "c h w"], *, rows: int, columns: int) -> Float[Tensor, "n c a b"]:
    """Splits an image into tiles of equal size, row by row.

    Args:
        image: Image, channels first.
        rows: Number of rows of tiles; divides the height.
        columns: Number of columns of tiles.

    Examples:
        >>> split_tiles(torch.zeros(3, 8, 12), rows=2, columns=3).shape
        torch.Size([6, 3, 4, 4])
    """
    c, h, w = image.shape
    if min(rows, columns) < 1 or h % rows or w % columns:
        raise ValueError(f"rows={rows} and columns={columns} must divide the image size, got {h} x {w}")
    parts = image.reshape(c, rows, h // rows, columns, w // columns)
    return parts.permute(1, 3, 0, 2, 4).flatten(0, 1)


def assemble(tiles: Float[Tensor, "n c a b"], order: Int[Tensor, "rows columns"]) -> Float[Tensor, "c h w"]:
    """Assembles tiles in a given order.

    Args:
        tiles: Tiles.
        order: Index of the tile at each position.

    Examples:
        >>> image = torch.arange(24.0).reshape(1, 4, 6)
        >>> torch.equal(assemble(split_tiles(image, rows=2, columns=3), torch.arange(6).reshape(2, 3)), image)
        True
    """
    return torch.cat([torch.cat([*tiles[row]], dim=2) for row in order], dim=1)


def compatibility(tiles: Float[Tensor, "n c a b"]) -> Float[Tensor, "4 n n"]:
    r"""Returns the incompatibility of each pair of tiles: to the right, below, to the left and above.

    $$d(i, j) = \sum_k (g_k - \mu_i)^\top S_i^{-1} (g_k - \mu_i) + \text{the same from } j, \qquad
    g_k = x_{j, k, \text{first}} - x_{i, k, \text{last}}$$

    The gradient across the border is compared with the gradients just before it, with mean $\mu_i$ and covariance $S_i$
    over channels. The incompatibility of a tile with itself is infinite.

    Reference:
        Gallagher, *Jigsaw Puzzles with Pieces of Unknown Orientation*, 2012 (the Mahalanobis gradient).

    Args:
        tiles: Tiles of at least 2 x 2 pixels.

    Examples:
        >>> image = torch.linspace(0, 1, 12).expand(1, 4, 12)
        >>> compatibility(split_tiles(image, rows=1, columns=3))[0].argmin(1)[:2]
        tensor([1, 2])
    """
    if tiles.dim() != 4 or min(tiles.shape[2:]) < 2:
        raise ValueError(f"expected tiles of at least 2 x 2 pixels, got shape {tuple(tiles.shape)}")
    if not bool(tiles.isfinite().all()):
        raise ValueError("expected finite pixels, got NaN or infinity")
    right, below = (_across(t) for t in (tiles, tiles.transpose(2, 3)))
    found = torch.stack([right, below, right.T, below.T])
    return found.masked_fill(torch.eye(len(tiles), dtype=torch.bool, device=tiles.device), torch.inf)


def _across(tiles: Tensor) -> Tensor:
    """Incompatibility of tile i on the left with tile j on the right."""
    first, last = tiles[..., 0].transpose(1, 2), tiles[..., -1].transpose(1, 2)
    out, back = last - tiles[..., -2].transpose(1, 2), first - tiles[..., 1].transpose(1, 2)
    step = first[None] - last[:, None]
    return _mahalanobis(step, out, dim=0) + _mahalanobis(-step, back, dim=1)


def _mahalanobis(step: Tensor, usual: Tensor, dim: int) -> Tensor:
    """Sum of squared Mahalanobis distances of the steps "i j k c" from the steps "n k c" inside tile i or j."""
    mean = usual.mean(1, keepdim=True)
    off = usual - mean
    covariance = off.mT @ off / off.shape[1] + _FLOOR * torch.eye(off.shape[2]).to(off)
    away = step - mean.unsqueeze(1 - dim)
    inverse = torch.linalg.inv(covariance).unsqueeze(1 - dim)
    return torch.einsum("ijkc,ijcd,ijkd->ij", away, inverse.expand(*away.shape[:2], -1, -1), away)


_FLOOR = 1e-4
"""Smallest variance of the steps in a tile, for images from 0 to 1."""


def solve(tiles: Float[Tensor, "n c a b"], *, rows: int, columns: int) -> Int[Tensor, "rows columns"]:
    r"""Finds the order of tiles with the most continuous borders.

    The confidence of a match is its margin over the second best, from both sides. The puzzle grows greedily from a seed
    tile: the next tile is the one with the largest confidence, summed over the neighbors that are already placed. The
    best of several seeds, by total incompatibility, is returned.

    Reference:
        Pomeranz, Shemesh and Ben-Shahar, *A Fully Automated Greedy Square Jigsaw Puzzle Solver*, 2011.

    Args:
        tiles: Tiles in any order, not rotated.
        rows: Number of rows.
        columns: Number of columns of tiles.

    Examples:
        >>> x = torch.linspace(0, 1, 12)
        >>> tiles = split_tiles((x[:, None] ** 2 + x).expand(1, 12, 12), rows=3, columns=3)
        >>> mixed = torch.tensor([4, 0, 8, 2, 6, 1, 3, 7, 5])
        >>> torch.equal(mixed[solve(tiles[mixed], rows=3, columns=3)], torch.arange(9).reshape(3, 3))
        True
    """
    n = len(tiles)
    if min(rows, columns) < 1 or rows * columns != n:
        raise ValueError(f"expected rows * columns tiles, got {n} tiles, rows={rows}, columns={columns}")
    if n == 1:
        return torch.zeros(1, 1, dtype=torch.long)
    apart = compatibility(tiles)
    confidence = _confidence(apart)
    best_order, least = None, torch.inf
    seeds = confidence.amax(2).sum(0).argsort(descending=True)[: min(n, _TRIES)].tolist()
    for seed in seeds:
        order = _grow(confidence, seed, rows, columns)
        total = _total(apart, order)
        if total < least or best_order is None:
            best_order, least = order, total
    return best_order if best_order is not None else torch.arange(n).reshape(rows, columns)


_TRIES = 8
"""Number of seed tiles."""


def _confidence(apart: Tensor) -> Tensor:
    """Confidence of each match: 1 - d(i, j) / d(second best), averaged over both sides, "4 n n"."""
    tiny = torch.finfo(apart.dtype).tiny
    found = []
    for side, back in ((0, 2), (1, 3), (2, 0), (3, 1)):
        ahead = 1 - apart[side] / _second(apart[side]).clamp_min(tiny)
        behind = 1 - apart[back] / _second(apart[back]).clamp_min(tiny)
        found.append((ahead + behind.T) / 2)
    return torch.stack(found).clamp_min(-1e3)


def _second(apart: Tensor) -> Tensor:
    """Best of the other entries of each row: the second best at the best entry, the best elsewhere."""
    if len(apart) < 3:
        return torch.ones_like(apart)
    least = apart.topk(2, dim=1, largest=False)
    return least.values[:, :1].expand_as(apart).scatter(1, least.indices[:, :1], least.values[:, 1:])


def _grow(confidence: Tensor, seed: int, rows: int, columns: int) -> Tensor:
    """Places the most confident tile beside the placed ones, until all are placed."""
    n = confidence.shape[1]
    placed: dict[tuple[int, int], int] = {(0, 0): seed}
    left = torch.ones(n, dtype=torch.bool)
    left[seed] = False
    scores: dict[tuple[int, int], Tensor] = {}
    place = (0, 0)
    while len(placed) < n:
        for side, (down, right) in enumerate(SIDES):
            free = (place[0] + down, place[1] + right)
            if free not in placed:
                scores[free] = scores.get(free, torch.zeros(n)) + confidence[side, placed[place]]
        fits = {spot: score for spot, score in scores.items() if _fits(spot, placed, rows, columns)}
        spots = [*fits]
        table = torch.stack([fits[spot] for spot in spots]).masked_fill(~left, -torch.inf)
        best = int(table.argmax())
        place, tile = spots[best // n], best % n
        placed[place], left[tile] = tile, False
        del scores[place]
    top, side = (min(end) for end in zip(*placed, strict=True))
    order = torch.zeros(rows, columns, dtype=torch.long)
    for (i, j), tile in placed.items():
        order[i - top, j - side] = tile
    return order


def _fits(spot: tuple[int, int], placed: Iterable[tuple[int, int]], rows: int, columns: int) -> bool:
    """Whether the placed tiles and a new one fit into the rows and columns."""
    down, right = zip(spot, *placed, strict=True)
    return max(down) - min(down) < rows and max(right) - min(right) < columns


def _total(apart: Tensor, order: Tensor) -> float:
    """Total incompatibility of an order."""
    return float(apart[0, order[:, :-1], order[:, 1:]].sum() + apart[1, order[:-1], order[1:]].sum())


def neighbor_accuracy(order: Int[Tensor, "rows columns"], truth: Int[Tensor, "rows columns"]) -> float:
    """Returns the fraction of borders with the correct two tiles: 1 for a solved puzzle.

    Args:
        order: Index of the tile at each position.
        truth: Correct order.

    Examples:
        >>> truth = torch.arange(6).reshape(2, 3)
        >>> round(neighbor_accuracy(truth.roll(1, 1), truth), 3)
        0.714
    """

    def pairs(x: Tensor) -> set[tuple[int, int, int]]:
        beside = {(0, *pair) for pair in zip(x[:, :-1].flatten().tolist(), x[:, 1:].flatten().tolist(), strict=True)}
        below = {(1, *pair) for pair in zip(x[:-1].flatten().tolist(), x[1:].flatten().tolist(), strict=True)}
        return beside | below

    right = pairs(truth)
    return len(right & pairs(order)) / len(right) if right else 1.0


if __name__ == "__main__":
    x = torch.linspace(0, 1, 48)
    picture = torch.stack([x[:, None] * x, (6 * x).sin()[:, None] * (4 * x).cos(), x.expand(48, 48)])
    order = torch.randperm(36)
    solution = solve(split_tiles(picture, rows=6, columns=6)[order], rows=6, columns=6)
    print(f"correct borders: {neighbor_accuracy(order[solution], torch.arange(36).reshape(6, 6)):.0%}")
