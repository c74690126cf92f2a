"""PatchMatch, and inpainting of images without a model: by the mean color, by diffusion and by patches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from lawful.functions.random import integer_noise, uniform_noise
from lawful.laws import AtMost, Claim, Map, Statement, agreement, boundedness, law, shape


@dataclass(frozen=True, eq=False)
class NearestNeighborField:
    """Nearest-neighbor field: for each patch of the target, the position of a similar patch of the source."""

    row: Int[Tensor, "h w"]
    """Row of the top-left pixel of the source patch."""
    column: Int[Tensor, "h w"]
    """Column of the top-left pixel of the source patch."""
    cost: Float[Tensor, "h w"]
    """Sum of squared differences between the two patches."""

    @property
    def energy(self) -> float:
        """Sum of the costs of all patches."""
        return float(self.cost.double().sum())


@dataclass(frozen=True)
class PatchMatch:
    r"""Approximate nearest-neighbor field between the patches of two images.

    $$\mathrm{nnf}(p) = \arg\min_q \ \sum_{u} \bigl\| a_{p + u} - b_{q + u} \bigr\|^2$$

    The field starts at random. An iteration propagates matches from the four neighbors at distances 8, 4, 2 and 1, then
    searches at random in windows around the current match, halved down to one pixel. All patches are updated in
    parallel. A candidate is accepted only if its cost is lower, so that the energy never rises.

    Reference:
        Barnes, Shechtman, Finkelstein and Goldman, *PatchMatch: A Randomized Correspondence Algorithm for Structural
        Image Editing*, 2009.

    Args:
        patch_size: Width and height of a patch.
        iterations: Number of iterations of propagation and random search.
        seed: Random seed.

    Examples:
        >>> image = torch.arange(48.0).reshape(1, 6, 8)
        >>> PatchMatch(patch_size=3)(image, image).energy
        0.0
    """

    patch_size: int = 7
    iterations: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        if self.patch_size < 1 or self.iterations < 0:
            raise ValueError(
                f"patch_size must be at least 1 and iterations at least 0, got {self.patch_size} and {self.iterations}"
            )

    def __call__(
        self,
        target: Float[Tensor, "c h1 w1"],
        source: Float[Tensor, "c h2 w2"],
        *,
        source_mask: Bool[Tensor, "m n"] | None = None,
        target_mask: Bool[Tensor, "r s"] | None = None,
        initial: NearestNeighborField | None = None,
    ) -> NearestNeighborField:
        """Returns a match in the source for each patch of the target.

        Args:
            target: Image $a$.
            source: Image $b$.
            source_mask: True at the top-left pixels of source patches that may be matched. Defaults to all.
            target_mask: True at the top-left pixels of target patches to match. Defaults to all.
            initial: Initial field. Random by default.
        """
        search = _PatchSearch(
            target, source, patch_size=self.patch_size, source_mask=source_mask, target_mask=target_mask
        )
        best = search.random_matches(self.seed) if initial is None else search.matches_of(initial)
        for number in range(self.iterations):
            best = search.propagate(best)
            best = search.random_search(best, seed=self.seed, stream=1 + number)
        return search.field(best)


class _PatchSearch:
    """State of a search: the target patches as rows, the source pixels, and the update steps."""

    def __init__(
        self, target: Tensor, source: Tensor, *, patch_size: int, source_mask: Tensor | None, target_mask: Tensor | None
    ) -> None:
        for name, image in (("target", target), ("source", source)):
            if image.dim() != 3 or min(image.shape[1:]) < patch_size:
                raise ValueError(
                    f"expected {name} of shape (c, h, w) with h and w at least {patch_size}, got {tuple(image.shape)}"
                )
        self.target_size = (target.shape[1] - patch_size + 1, target.shape[2] - patch_size + 1)
        self.source_size = (source.shape[1] - patch_size + 1, source.shape[2] - patch_size + 1)
        mask = torch.ones(self.target_size, dtype=torch.bool) if target_mask is None else target_mask
        self.source_mask = torch.ones(self.source_size, dtype=torch.bool) if source_mask is None else source_mask
        if tuple(mask.shape) != self.target_size or tuple(self.source_mask.shape) != self.source_size:
            raise ValueError(
                f"expected target_mask of shape {self.target_size} and source_mask of shape {self.source_size}, "
                f"got {tuple(mask.shape)} and {tuple(self.source_mask.shape)}"
            )
        if not bool(self.source_mask.any()):
            raise ValueError(
                f"source_mask excludes every patch of {patch_size} x {patch_size} pixels: reduce patch_size or the mask"
            )
        self.positions = mask.nonzero()
        self.target = _patches(target, patch_size)[mask.flatten()]
        self.pixels, across = source.flatten(1).T.contiguous(), torch.arange(patch_size)
        self.width = source.shape[2]
        self.offsets = (across[:, None] * self.width + across).flatten()
        self.valid = self.source_mask.flatten()
        self.row_of = torch.full(self.target_size, -1, dtype=torch.long)
        self.row_of[mask] = torch.arange(len(self.positions))

    def cost(self, match: Tensor, here: Tensor | slice = slice(None)) -> Tensor:
        """Returns the cost of matches; infinite where the source mask is False."""
        first = match // self.source_size[1] * self.width + match % self.source_size[1]
        difference = self.target[here] - self.pixels[first[:, None] + self.offsets].flatten(1)
        return torch.where(self.valid[match], torch.einsum("nk,nk->n", difference, difference), torch.inf)

    def random_matches(self, seed: int) -> tuple[Tensor, Tensor]:
        """Returns random matches."""
        choices = self.valid.nonzero()[:, 0]
        match = choices[integer_noise(len(self.positions), high=len(choices), seed=seed)]
        return match, self.cost(match)

    def matches_of(self, initial: NearestNeighborField) -> tuple[Tensor, Tensor]:
        """Returns the matches of a field, random where the source mask excludes them."""
        i, j = self.positions.unbind(1)
        match = initial.row[i, j] * self.source_size[1] + initial.column[i, j]
        random = self.random_matches(0)[0]
        match = torch.where(self.valid[match], match, random)
        return match, self.cost(match)

    def accept(self, best: tuple[Tensor, Tensor], row: Tensor, column: Tensor, here: Tensor) -> tuple[Tensor, Tensor]:
        """Accepts candidates with a lower cost than the current match."""
        candidate = row.clamp(0, self.source_size[0] - 1) * self.source_size[1] + column.clamp(
            0, self.source_size[1] - 1
        )
        cost = self.cost(candidate, here)
        improved = cost < best[1][here]
        best[0][here[improved]], best[1][here[improved]] = candidate[improved], cost[improved]
        return best

    def propagate(self, best: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Propagates matches from neighbors, shifted by their distance."""
        for offset in (8, 4, 2, 1):
            for down, right in ((offset, 0), (-offset, 0), (0, offset), (0, -offset)):
                i, j = self.positions[:, 0] - down, self.positions[:, 1] - right
                inside = (i >= 0) & (i < self.target_size[0]) & (j >= 0) & (j < self.target_size[1])
                here = inside.nonzero()[:, 0]
                neighbor = self.row_of[i[here], j[here]]
                here, neighbor = here[neighbor >= 0], neighbor[neighbor >= 0]
                match = best[0][neighbor]
                best = self.accept(best, match // self.source_size[1] + down, match % self.source_size[1] + right, here)
        return best

    def random_search(self, best: tuple[Tensor, Tensor], *, seed: int, stream: int) -> tuple[Tensor, Tensor]:
        """Searches at random around the current matches, in windows of decreasing size."""
        window, here = max(self.source_size), torch.arange(len(self.positions))
        num_windows = max(1, window.bit_length())
        noise = 2 * uniform_noise(len(here), num_windows, 2, seed=seed, stream=stream) - 1
        for number in range(num_windows):
            radius = window / 2**number
            shift = (radius * noise[:, number]).round().long()
            row, column = best[0] // self.source_size[1], best[0] % self.source_size[1]
            best = self.accept(best, row + shift[:, 0], column + shift[:, 1], here)
        return best

    def field(self, best: tuple[Tensor, Tensor]) -> NearestNeighborField:
        i, j = self.positions.unbind(1)
        row, column = torch.zeros(self.target_size, dtype=torch.long), torch.zeros(self.target_size, dtype=torch.long)
        cost = self.target.new_zeros(self.target_size)
        row[i, j], column[i, j], cost[i, j] = best[0] // self.source_size[1], best[0] % self.source_size[1], best[1]
        return NearestNeighborField(row, column, cost)


def _patches(image: Tensor, patch_size: int) -> Tensor:
    """Returns the patches of an image as rows, with the channels last."""
    c = len(image)
    return F.unfold(image[None], patch_size)[0].T.unflatten(1, (c, patch_size * patch_size)).transpose(1, 2).flatten(1)


def _average_patches(
    image: Float[Tensor, "c h w"],
    source: Float[Tensor, "c h2 w2"],
    field: NearestNeighborField,
    *,
    patch_size: int,
    hole: Bool[Tensor, "h w"],
    weight: Float[Tensor, "r s"],
) -> Float[Tensor, "c h w"]:
    r"""Fills a hole with the weighted mean of the matched patches that overlap each pixel.

    $$a_p = \frac{\sum_u w_{p - u} \, b_{\mathrm{nnf}(p - u) + u}}{\sum_u w_{p - u}}$$

    Args:
        image: Image with a hole.
        source: Source image of the matches.
        field: Nearest-neighbor field.
        patch_size: Width and height of a patch.
        hole: True at missing pixels.
        weight: Weight $w$ of each patch.
    """
    total, votes = torch.zeros_like(image), torch.zeros_like(image[0])
    h, w = field.row.shape
    for down in range(patch_size):
        for right in range(patch_size):
            values = source[:, field.row + down, field.column + right]
            total[:, down : down + h, right : right + w] += weight * values
            votes[down : down + h, right : right + w] += weight
    filled = hole & (votes > 0)
    return torch.where(filled, total / votes.clamp_min(torch.finfo(votes.dtype).tiny), image)


def _check_hole(image: Float[Tensor, "c h w"], hole: Bool[Tensor, "h w"]) -> None:
    """Checks an image and its mask.

    Raises:
        TypeError: If the mask is not boolean.
        ValueError: If the shapes do not match, if no pixel is known, or if a known pixel is not finite.
    """
    if hole.dtype is not torch.bool:
        raise TypeError(f"hole must be boolean, True at missing pixels, got {hole.dtype}")
    if image.dim() != 3 or tuple(hole.shape) != tuple(image.shape[1:]):
        raise ValueError(
            f"expected image of shape (c, h, w) and hole of shape (h, w), got {tuple(image.shape)} and "
            f"{tuple(hole.shape)}"
        )
    if bool(hole.all()):
        raise ValueError("hole must leave at least one known pixel")
    if not bool(image[:, ~hole].isfinite().all()):
        raise ValueError("image must be finite outside the hole")


def mean_fill(image: Float[Tensor, "c h w"], hole: Bool[Tensor, "h w"]) -> Float[Tensor, "c h w"]:
    """Fills a hole with the mean color of the known pixels.

    Args:
        image: Image, channels first.
        hole: True at missing pixels.

    Examples:
        >>> mean_fill(torch.tensor([[[1.0, 3.0, 9.0]]]), torch.tensor([[False, False, True]]))
        tensor([[[1., 3., 2.]]])
    """
    _check_hole(image, hole)
    return torch.where(hole, image[:, ~hole].mean(1)[:, None, None], image)


def smooth_fill(
    image: Float[Tensor, "c h w"], hole: Bool[Tensor, "h w"], *, tolerance: float = 1e-4
) -> Float[Tensor, "c h w"]:
    r"""Fills a hole with the solution of Laplace's equation: each pixel is the mean of its neighbors.

    $$\Delta u = 0 \text{ in the hole}, \qquad u = \text{image at its border}$$

    Solved by conjugate gradients, with Neumann conditions at the edges of the image.

    Args:
        image: Image, channels first.
        hole: True at missing pixels.
        tolerance: Tolerance of the residual, relative to the initial one.

    Examples:
        >>> smooth_fill(torch.tensor([[[0.0, 7.0, 7.0, 3.0]]]), torch.tensor([[False, True, True, False]]))
        tensor([[[0., 1., 2., 3.]]])
    """
    u = mean_fill(image, hole)
    inside = hole.to(u)
    r = -inside * _laplacian(u)
    p, square = r, r.square().sum((1, 2), keepdim=True)
    goal, tiny = tolerance**2 * square, torch.finfo(u.dtype).tiny
    for _ in range(int(hole.sum())):
        if bool((square <= goal).all()):
            break
        laplacian = inside * _laplacian(p)
        step = square / (p * laplacian).sum((1, 2), keepdim=True).clamp_min(tiny)
        u, r = u + step * p, r - step * laplacian
        before, square = square, r.square().sum((1, 2), keepdim=True)
        p = r + square / before.clamp_min(tiny) * p
    return torch.where(hole, u, image)


def _laplacian(u: Tensor) -> Tensor:
    """Returns the negative discrete Laplacian, with Neumann conditions at the edges."""
    down, right = (F.pad(u.diff(dim=dim), edges) for dim, edges in ((1, (0, 0, 1, 1)), (2, (1, 1))))
    return -down.diff(dim=1) - right.diff(dim=2)


@dataclass(frozen=True, kw_only=True)
class PatchCompletion:
    r"""Inpainting by patches: every patch that overlaps the hole resembles a patch outside of it. Needs no training.

    $$\min_{a \text{ in the hole}} \ \sum_{p \text{ overlaps it}} \ \min_{q \text{ outside}} \ \| a_p - a_q \|^2$$

    Alternates between PatchMatch and a weighted mean of the overlapping patches. Weights decrease with the cost of a
    match and with the distance from the border. Works from coarse to fine: it starts at a resolution at which the hole
    is small, with `smooth_fill`, and each resolution initializes the field of the next.

    The result has plausible texture, not the true one. `smooth_fill` often has a lower squared error but is blurred: in
    six holes of 40 x 40 to 50 x 90 pixels in two photographs, the mean difference between neighboring pixels was 0.35
    to 0.83 of the true one, and 0.09 to 0.4 for `smooth_fill`. Each hole took about 3 s.

    Reference:
        Wexler, Shechtman and Irani, *Space-Time Completion of Video*, 2007; Barnes, Shechtman, Finkelstein and Goldman,
        *PatchMatch: A Randomized Correspondence Algorithm for Structural Image Editing*, 2009.

    Args:
        patch_size: Width and height of a patch.
        steps: Steps of matching and averaging at the coarsest resolution. Halved at each finer one, at least 2.
        iterations: Iterations of PatchMatch per step.
        distance_decay: Factor by which the weight of a patch decreases per pixel of distance from the border.
        seed: Random seed.

    Examples:
        >>> stripes = torch.arange(24).remainder(4).div(3).expand(1, 24, 24)
        >>> hole = torch.zeros(24, 24, dtype=torch.bool)
        >>> hole[9:15, 9:15] = True
        >>> filled = PatchCompletion(patch_size=5)(stripes.masked_fill(hole, 0.0), hole)
        >>> bool((filled - stripes).abs().max() < 1e-3)
        True
    """

    patch_size: int = 7
    steps: int = 16
    iterations: int = 2
    distance_decay: float = 1.3
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.patch_size, self.steps, self.iterations) < 1 or not self.distance_decay >= 1:
            raise ValueError(f"patch_size, steps, iterations and distance_decay must be at least 1, got {self}")

    def __call__(self, image: Float[Tensor, "c h w"], hole: Bool[Tensor, "h w"]) -> Float[Tensor, "c h w"]:
        """Returns the image with the hole filled. Other pixels do not change.

        Args:
            image: Image, channels first.
            hole: True at missing pixels.

        Raises:
            ValueError: If the image is smaller than a patch, or no patch lies outside the hole.
        """
        _check_hole(image, hole)
        if not bool(hole.any()):
            return image.clone()
        if min(hole.shape) < self.patch_size:
            size = " x ".join(map(str, hole.shape))
            raise ValueError(
                f"the image must be at least patch_size={self.patch_size} high and wide, got {size} pixels"
            )
        pyramid = self._pyramid(image, hole)
        filled, field = smooth_fill(*pyramid[-1]), None
        for level, (known, missing) in reversed([*enumerate(pyramid)]):
            window = _Window.around(missing, self.patch_size)
            steps = max(2, self.steps >> (len(pyramid) - 1 - level))
            filled, field = self._optimize(filled if field is None else known, missing, window, field, steps)
            if level:
                known, missing = pyramid[level - 1]
                field = _upsample_field(field, window, _Window.around(missing, self.patch_size), known, self.patch_size)
        return torch.where(hole, filled, image)

    def _pyramid(self, image: Tensor, hole: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Returns the image and its hole at each resolution, until the hole is no wider than a patch."""
        pyramid = [(torch.where(hole, 0.0, image), hole)]
        while int(_distance(hole).max()) > self.patch_size // 2:
            image, hole = _downsample(*pyramid[-1])
            if min(hole.shape) < 2 * self.patch_size or not bool(_no_overlap(hole, self.patch_size).any()):
                break
            pyramid.append((image, hole))
        return pyramid

    def _optimize(
        self, image: Tensor, hole: Tensor, window: _Window, field: NearestNeighborField | None, steps: int
    ) -> tuple[Tensor, NearestNeighborField]:
        """Alternates between matching and averaging. An initial field fills the hole first."""
        here, inside = window.cut(image), window.cut(hole)
        source_mask, target_mask = _no_overlap(hole, self.patch_size), ~_no_overlap(inside, self.patch_size)
        half = (self.patch_size - 1) // 2
        distance = _distance(inside)[half:, half:][: target_mask.shape[0], : target_mask.shape[1]]
        weight_of_distance = torch.where(target_mask, self.distance_decay ** -distance.to(image), 0.0)
        if field is not None:
            here = _average_patches(
                here, image, field, patch_size=self.patch_size, hole=inside, weight=weight_of_distance
            )
        for step in range(steps):
            search = PatchMatch(self.patch_size, self.iterations, self.seed + step)
            field = search(here, image, source_mask=source_mask, target_mask=target_mask, initial=field)
            scale = field.cost[target_mask].quantile(0.75).clamp_min(1e-12)
            weight = weight_of_distance * (-field.cost / (2 * scale)).exp().clamp_min(1e-6)
            here = _average_patches(here, image, field, patch_size=self.patch_size, hole=inside, weight=weight)
        image = image.clone()
        window.cut(image).copy_(here)
        if field is None:
            raise ValueError("steps must be at least 1")
        return image, field


@dataclass(frozen=True)
class _Window:
    """A rectangular crop: row and column ranges."""

    rows: tuple[int, int]
    columns: tuple[int, int]

    @classmethod
    def around(cls, hole: Tensor, patch_size: int) -> _Window:
        """Returns the bounding box of all patches that overlap the hole."""
        ends = []
        for mask, size in ((hole.any(1), hole.shape[0]), (hole.any(0), hole.shape[1])):
            indices = mask.nonzero()[:, 0]
            low, high = max(0, int(indices[0]) - patch_size + 1), min(size, int(indices[-1]) + patch_size)
            ends.append((min(low, max(0, size - patch_size)), min(size, max(high, low + patch_size))))
        return cls(*ends)

    def cut(self, x: Tensor) -> Tensor:
        return x[..., slice(*self.rows), slice(*self.columns)]


def _no_overlap(hole: Tensor, patch_size: int) -> Tensor:
    """Returns, per top-left pixel, whether a patch does not overlap the hole."""
    return F.max_pool2d(hole[None].float(), patch_size, stride=1)[0] == 0


def _distance(hole: Tensor) -> Tensor:
    """Returns the distance of each pixel of the hole from its border, in pixels; 0 outside."""
    remaining, distance = hole.float(), torch.zeros(hole.shape)
    while bool(remaining.any()):
        distance, remaining = (
            distance + remaining,
            1 - F.max_pool2d(1 - F.pad(remaining, (1, 1, 1, 1), value=1.0)[None], 3, stride=1)[0],
        )
        if bool((remaining == hole).all()):
            break
    return distance


def _downsample(image: Tensor, hole: Tensor) -> tuple[Tensor, Tensor]:
    """Halves the resolution: the mean of the known pixels; a pixel is missing if any of its four is."""
    odd = (0, hole.shape[1] % 2, 0, hole.shape[0] % 2)
    known = F.avg_pool2d(F.pad((~hole)[None].to(image), odd, mode="replicate"), 2)
    total = F.avg_pool2d(F.pad((image * ~hole), odd, mode="replicate"), 2)
    return total / known.clamp_min(0.25), known[0] < 1


def _upsample_field(
    field: NearestNeighborField, small: _Window, large: _Window, image: Tensor, patch_size: int
) -> NearestNeighborField:
    """Doubles the resolution of a field."""
    ends = []
    for side, (first, last), begin, match in (
        (1, large.rows, small.rows[0], field.row),
        (2, large.columns, small.columns[0], field.column),
    ):
        here = torch.arange(first, last - patch_size + 1)
        place = (here // 2 - begin).clamp(0, match.shape[side - 1] - 1)
        ends.append((place, here - 2 * (place + begin), image.shape[side] - patch_size))
    (i, down, max_row), (j, right, max_column) = ends
    row = (2 * field.row[i][:, j] + down[:, None]).clamp(0, max_row)
    column = (2 * field.column[i][:, j] + right).clamp(0, max_column)
    return NearestNeighborField(row, column, field.cost[i][:, j])


@law("cost after n + 1 iterations ≤ cost after n")
def _cost_never_rises(f: Map, a: Tensor, b: Tensor) -> Statement:
    """The cost of no patch rises with a further iteration. The map returns the costs per iteration, along dim 0.

    Satisfied by: PatchMatch.
    Broken by: accepting a neighbor's match without comparing costs.
    """
    costs = f(a, b)
    return AtMost(costs[1:], costs[:-1])


def claims() -> Iterator[Claim]:
    """Yields the claims of PatchMatch and of inpainting."""

    def costs(a: Tensor, b: Tensor) -> Tensor:
        return torch.stack([PatchMatch(patch_size=2, iterations=n)(a, b).cost for n in range(4)])

    yield Claim(replace(_cost_never_rises(), cases=20), costs, (shape("2 5 6"), shape("2 6 5")), name="PatchMatch")
    hole = torch.zeros(9, 12, dtype=torch.bool)
    hole[3:6, 4:7] = True
    maximum = boundedness(low=-1.0, high=1.0)
    yield Claim(maximum, lambda x: smooth_fill(x.tanh(), hole), shape("1 9 12"), name="smooth_fill: maximum principle")
    complete = PatchCompletion(patch_size=3, steps=2)

    def outside(x: Tensor) -> Tensor:
        return complete(x, hole)[:, ~hole]

    unchanged = replace(agreement(other=lambda x: x[:, ~hole]), cases=8)
    yield Claim(unchanged, outside, shape("2 9 12"), name="PatchCompletion does not change known pixels")
