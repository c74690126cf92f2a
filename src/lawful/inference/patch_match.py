"""PatchMatch: for every patch of an image the most similar one elsewhere, and holes filled from such patches.

Filling a hole without looking elsewhere: with the mean colour, or smoothly from its border.
Completion by patches: a hole in an image is filled with patches of the rest, from coarse to fine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from lawful.functions.random import integer_noise, uniform_noise
from lawful.laws import AtMost, Claim, Map, Statement, agreement, boundedness, law, shape, transformed


@dataclass(frozen=True, eq=False)
class Field:
    """Holds where the patch that is most similar to each patch of a target was found."""

    row: Int[Tensor, "h w"]
    """The row of the first pixel of the patch of the source."""
    column: Int[Tensor, "h w"]
    """The column of it."""
    cost: Float[Tensor, "h w"]
    """The sum of the squared differences between both patches."""

    @property
    def energy(self) -> float:
        """The costs of all patches together."""
        return float(self.cost.double().sum())


@dataclass(frozen=True)
class PatchMatch:
    r"""Looks for the most similar patch by chance and by asking neighbours.

    $$\mathrm{nnf}(p) = \arg\min_q \ \sum_{u} \bigl\| a_{p + u} - b_{q + u} \bigr\|^2$$

    A few random guesses for many patches hit well somewhere; neighbours of a hit then shift it by their distance, since
    images are coherent. A round first asks the four neighbours, 8, 4, 2 and 1 pixels away, then guesses within a
    window around the best so far that is halved until it is one pixel wide. All patches do so at once. A guess
    is taken only where it is better, so that the energy never rises.

    Reference:
        Barnes, Shechtman, Finkelstein and Goldman, *PatchMatch: A Randomized Correspondence Algorithm for Structural
        Image Editing*, 2009.

    Args:
        patch: The width of a patch.
        rounds: How often neighbours are asked and guesses made.
        seed: What the guesses are drawn from.

    Examples:
        >>> image = torch.arange(48.0).reshape(1, 6, 8)
        >>> PatchMatch(patch=3)(image, image).energy
        0.0
    """

    patch: int = 7
    rounds: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        if self.patch < 1 or self.rounds < 0:
            raise ValueError(f"patch is at least 1 and rounds at least 0: got {self.patch} and {self.rounds}")

    def __call__(
        self,
        target: Float[Tensor, "c h1 w1"],
        source: Float[Tensor, "c h2 w2"],
        *,
        allowed: Bool[Tensor, "m n"] | None = None,
        wanted: Bool[Tensor, "r s"] | None = None,
        start: Field | None = None,
    ) -> Field:
        """Finds for each patch of the target one of the source.

        Args:
            target: The image $a$.
            source: The image $b$.
            allowed: By the place of its first pixel, whether a patch of the source may be found; all unless given.
            wanted: Whether a patch of the target is looked for; others keep what they had. All unless given.
            start: What was found before; a random guess unless given.
        """
        search = _PatchSearch(target, source, patch=self.patch, allowed=allowed, wanted=wanted)
        best = search.guessed(self.seed) if start is None else search.again(start)
        for number in range(self.rounds):
            best = search.asked(best)
            best = search.drawn(best, seed=self.seed, stream=1 + number)
        return search.field(best)


class _PatchSearch:
    """The patches of both images, as rows of numbers, and the moves of a search among them."""

    def __init__(
        self, target: Tensor, source: Tensor, *, patch: int, allowed: Tensor | None, wanted: Tensor | None
    ) -> None:
        for name, image in (("target", target), ("source", source)):
            if image.dim() != 3 or min(image.shape[1:]) < patch:
                raise ValueError(
                    f"{name} is an image, channels first, of at least {patch} x {patch}: got {tuple(image.shape)}"
                )
        self.size = (target.shape[1] - patch + 1, target.shape[2] - patch + 1)
        self.room = (source.shape[1] - patch + 1, source.shape[2] - patch + 1)
        every = torch.ones(self.size, dtype=torch.bool) if wanted is None else wanted
        self.allowed = torch.ones(self.room, dtype=torch.bool) if allowed is None else allowed
        if tuple(every.shape) != self.size or tuple(self.allowed.shape) != self.room:
            raise ValueError(
                f"wanted of {self.size} and allowed of {self.room} were wanted: got {tuple(every.shape)} and "
                f"{tuple(self.allowed.shape)}"
            )
        if not bool(self.allowed.any()):
            raise ValueError(f"no patch of {patch} x {patch} pixels of the source is allowed: the mask leaves none")
        self.places = every.nonzero()
        self.target = _patches(target, patch)[every.flatten()]
        self.pixels, across = source.flatten(1).T.contiguous(), torch.arange(patch)
        self.width = source.shape[2]
        self.offsets = (across[:, None] * self.width + across).flatten()
        self.free = self.allowed.flatten()
        self.number = torch.full(self.size, -1, dtype=torch.long)
        self.number[every] = torch.arange(len(self.places))

    def cost(self, found: Tensor, here: Tensor | slice = slice(None)) -> Tensor:
        """The squared differences of the wanted patches from those found; infinite where none is allowed."""
        first = found // self.room[1] * self.width + found % self.room[1]
        difference = self.target[here] - self.pixels[first[:, None] + self.offsets].flatten(1)
        return torch.where(self.free[found], torch.einsum("nk,nk->n", difference, difference), torch.inf)

    def guessed(self, seed: int) -> tuple[Tensor, Tensor]:
        """A random allowed patch for each."""
        choices = self.free.nonzero()[:, 0]
        found = choices[integer_noise(len(self.places), high=len(choices), seed=seed)]
        return found, self.cost(found)

    def again(self, start: Field) -> tuple[Tensor, Tensor]:
        """What was found before, with its cost now; a random guess where that is no longer allowed."""
        i, j = self.places.unbind(1)
        found = start.row[i, j] * self.room[1] + start.column[i, j]
        fresh = self.guessed(0)[0]
        found = torch.where(self.free[found], found, fresh)
        return found, self.cost(found)

    def better(self, best: tuple[Tensor, Tensor], row: Tensor, column: Tensor, here: Tensor) -> tuple[Tensor, Tensor]:
        """Takes a guess for some patches where it is better than the best so far."""
        guess = row.clamp(0, self.room[0] - 1) * self.room[1] + column.clamp(0, self.room[1] - 1)
        cost = self.cost(guess, here)
        improved = cost < best[1][here]
        best[0][here[improved]], best[1][here[improved]] = guess[improved], cost[improved]
        return best

    def asked(self, best: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Each patch asks its neighbours for what they found, shifted by how far away they are."""
        for far in (8, 4, 2, 1):
            for down, right in ((far, 0), (-far, 0), (0, far), (0, -far)):
                i, j = self.places[:, 0] - down, self.places[:, 1] - right
                inside = (i >= 0) & (i < self.size[0]) & (j >= 0) & (j < self.size[1])
                here = inside.nonzero()[:, 0]
                neighbour = self.number[i[here], j[here]]
                here, neighbour = here[neighbour >= 0], neighbour[neighbour >= 0]
                found = best[0][neighbour]
                best = self.better(best, found // self.room[1] + down, found % self.room[1] + right, here)
        return best

    def drawn(self, best: tuple[Tensor, Tensor], *, seed: int, stream: int) -> tuple[Tensor, Tensor]:
        """Each patch guesses around the best so far, nearer and nearer."""
        window, here = max(self.room), torch.arange(len(self.places))
        halvings = max(1, window.bit_length())
        noise = 2 * uniform_noise(len(here), halvings, 2, seed=seed, stream=stream) - 1
        for number in range(halvings):
            reach = window / 2**number
            shift = (reach * noise[:, number]).round().long()
            row, column = best[0] // self.room[1], best[0] % self.room[1]
            best = self.better(best, row + shift[:, 0], column + shift[:, 1], here)
        return best

    def field(self, best: tuple[Tensor, Tensor]) -> Field:
        i, j = self.places.unbind(1)
        row, column = torch.zeros(self.size, dtype=torch.long), torch.zeros(self.size, dtype=torch.long)
        cost = self.target.new_zeros(self.size)
        row[i, j], column[i, j], cost[i, j] = best[0] // self.room[1], best[0] % self.room[1], best[1]
        return Field(row, column, cost)


def _patches(image: Tensor, patch: int) -> Tensor:
    """The patches of an image, a row each: pixel by pixel, the channels of each together."""
    c = len(image)
    return F.unfold(image[None], patch)[0].T.unflatten(1, (c, patch * patch)).transpose(1, 2).flatten(1)


def voted(
    image: Float[Tensor, "c h w"],
    source: Float[Tensor, "c h2 w2"],
    field: Field,
    *,
    patch: int,
    hole: Bool[Tensor, "h w"],
    weight: Float[Tensor, "r s"],
) -> Float[Tensor, "c h w"]:
    r"""Fills a hole with the weighted mean of what the patches found over each pixel say of it.

    $$a_p = \frac{\sum_u w_{p - u} \, b_{\mathrm{nnf}(p - u) + u}}{\sum_u w_{p - u}}$$

    Args:
        image: The image with a hole.
        source: Where patches were found.
        field: What was found.
        patch: The width of a patch.
        hole: Which pixels are to be filled.
        weight: $w$, how much each patch is believed.
    """
    total, votes = torch.zeros_like(image), torch.zeros_like(image[0])
    h, w = field.row.shape
    for down in range(patch):
        for right in range(patch):
            said = source[:, field.row + down, field.column + right]
            total[:, down : down + h, right : right + w] += weight * said
            votes[down : down + h, right : right + w] += weight
    filled = hole & (votes > 0)
    return torch.where(filled, total / votes.clamp_min(torch.finfo(votes.dtype).tiny), image)


@law("energy after more rounds ≤ energy before")
def energy_never_rises(f: Map, a: Tensor, b: Tensor) -> Statement:
    """The cost of no patch is higher after a further round, which takes guesses only where they are better.

    The map gives the costs after each round, along its first axis.

    Satisfied by: PatchMatch.
    Broken by: taking a neighbour's guess without comparing it; a cost that is not that of the patch found.
    """
    costs = f(a, b)
    return AtMost(costs[1:], costs[:-1])


def _patch_match_claims() -> Iterator[Claim]:
    """The laws that PatchMatch obeys."""

    def searched(a: Tensor, b: Tensor) -> Tensor:
        return torch.stack([PatchMatch(patch=2, rounds=n)(a, b).cost for n in range(4)])

    pair = (shape("2 5 6"), shape("2 6 5"))
    yield Claim(replace(energy_never_rises(), cases=20), searched, pair, name="PatchMatch, round by round")

    def said(a: Tensor, b: Tensor) -> Tensor:
        return PatchMatch(patch=2, rounds=1)(a, b).cost

    def measured(a: Tensor, b: Tensor) -> Tensor:
        found = PatchMatch(patch=2, rounds=1)(a, b)
        rows = [[_apart(a, b, i, j, found) for j in range(a.shape[2] - 1)] for i in range(a.shape[1] - 1)]
        return torch.stack([torch.stack(row) for row in rows])

    yield Claim(replace(agreement(other=measured), cases=20), said, pair, name="PatchMatch, the cost of what was found")

    def least(a: Tensor, b: Tensor) -> Tensor:
        return PatchMatch(patch=2, rounds=60)(a, b).cost

    def all_tried(a: Tensor, b: Tensor) -> Tensor:
        patches = [image.unfold(1, 2, 1).unfold(2, 2, 1).permute(1, 2, 0, 3, 4) for image in (a, b)]
        apart = patches[0][:, :, None, None] - patches[1][None, None]
        return apart.square().sum((4, 5, 6)).amin((2, 3))

    few = (shape("1 3 4"), shape("1 4 3"))
    yield Claim(replace(agreement(other=all_tried), cases=5), least, few, name="PatchMatch, after many rounds")

    def kept(a: Tensor) -> Tensor:
        found = PatchMatch(patch=2, rounds=6)(a, a)
        hole = torch.zeros(a.shape[1:], dtype=torch.bool)
        hole[1:3, 1:3] = True
        return voted(a + hole, a, found, patch=2, hole=hole, weight=torch.ones_like(found.cost))

    def apart(x: Tensor) -> Tensor:
        return x + 10 * torch.arange(20.0).to(x).reshape(1, 4, 5)

    yield Claim(
        replace(agreement(other=lambda a: a), cases=10),
        kept,
        transformed(apart, "1 4 5"),
        name="voted, of an image found in itself",
    )


def _apart(a: Tensor, b: Tensor, i: int, j: int, found: Field) -> Tensor:
    k, m = int(found.row[i, j]), int(found.column[i, j])
    return (a[:, i : i + 2, j : j + 2] - b[:, k : k + 2, m : m + 2]).square().sum()


def checked_hole(image: Float[Tensor, "c h w"], hole: Bool[Tensor, "h w"]) -> None:
    """Refuses what cannot be filled, and says why.

    Raises:
        TypeError: where the mask is not one of truth values.
        ValueError: where it is not that of the image, where nothing is left, or where what is left is not finite.
    """
    if hole.dtype is not torch.bool:
        raise TypeError(f"a mask is True where pixels are missing: got {hole.dtype}")
    if image.dim() != 3 or tuple(hole.shape) != tuple(image.shape[1:]):
        raise ValueError(
            f"an image, channels first, and a mask of its size were wanted: got {tuple(image.shape)} and "
            f"{tuple(hole.shape)}"
        )
    if bool(hole.all()):
        raise ValueError("the mask leaves no pixel of the image to go by")
    if not bool(image[:, ~hole].isfinite().all()):
        raise ValueError("the pixels outside the mask are finite: some are not")


def mean_fill(image: Float[Tensor, "c h w"], hole: Bool[Tensor, "h w"]) -> Float[Tensor, "c h w"]:
    """Fills a hole with the mean colour of the rest: the simplest that can be done.

    Args:
        image: The image, channels first.
        hole: True where pixels are missing.

    Examples:
        >>> mean_fill(torch.tensor([[[1.0, 3.0, 9.0]]]), torch.tensor([[False, False, True]]))
        tensor([[[1., 3., 2.]]])
    """
    checked_hole(image, hole)
    return torch.where(hole, image[:, ~hole].mean(1)[:, None, None], image)


def smooth_fill(
    image: Float[Tensor, "c h w"], hole: Bool[Tensor, "h w"], *, tolerance: float = 1e-4
) -> Float[Tensor, "c h w"]:
    r"""Fills a hole as heat spreads into it from its border: each pixel is the mean of its neighbours.

    $$\Delta u = 0 \text{ in the hole}, \qquad u = \text{image at its border}$$

    Solved by conjugate gradients on the pixels of the hole; at the edge of the image there is no flow.

    Args:
        image: The image, channels first.
        hole: True where pixels are missing.
        tolerance: How small the residual is to become, relative to the first.

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
        pressed = inside * _laplacian(p)
        along = square / (p * pressed).sum((1, 2), keepdim=True).clamp_min(tiny)
        u, r = u + along * p, r - along * pressed
        before, square = square, r.square().sum((1, 2), keepdim=True)
        p = r + square / before.clamp_min(tiny) * p
    return torch.where(hole, u, image)


def _laplacian(u: Tensor) -> Tensor:
    """The sum of the differences from the neighbours of each pixel; those outside the image are like it."""
    down, right = (F.pad(u.diff(dim=dim), edges) for dim, edges in ((1, (0, 0, 1, 1)), (2, (1, 1))))
    return -down.diff(dim=1) - right.diff(dim=2)


def _filling_claims() -> Iterator[Claim]:
    """The laws that filling obeys."""
    hole = torch.zeros(5, 6, dtype=torch.bool)
    hole[1:4, 2:5] = hole[2, 5] = True

    inner = [(i, j) for i in (1, 2, 3) for j in (2, 3, 4)]

    def filled(x: Tensor) -> Tensor:
        u = smooth_fill(x, hole, tolerance=1e-12)
        return torch.stack([u[:, i, j] for i, j in [*inner, (2, 5)]])

    def means(x: Tensor) -> Tensor:
        u = smooth_fill(x, hole, tolerance=1e-12)
        around = [(u[:, i - 1, j] + u[:, i + 1, j] + u[:, i, j - 1] + u[:, i, j + 1]) / 4 for i, j in inner]
        return torch.stack([*around, (u[:, 1, 5] + u[:, 3, 5] + u[:, 2, 4]) / 3])

    mean = replace(agreement(other=means, rtol=1e-6), cases=20)
    yield Claim(mean, filled, transformed(torch.tanh, "2 5 6"), name="smooth_fill, each the mean")
    yield Claim(
        boundedness(low=-1.0, high=1.0), lambda x: smooth_fill(x.tanh(), hole), shape("1 5 6"), name="smooth_fill"
    )

    def simple(x: Tensor) -> Tensor:
        return mean_fill(x, hole)

    def equation(x: Tensor) -> Tensor:
        return torch.where(hole, (x * ~hole).sum((1, 2), keepdim=True) / 20, x)

    yield Claim(agreement(other=equation), simple, shape("2 5 6"), name="mean_fill")


@dataclass(frozen=True, kw_only=True)
class PatchCompletion:
    r"""Fills a hole so that every patch that touches it looks like some patch outside: nothing is learnt.

    $$\min_{a \text{ in the hole}} \ \sum_{p \text{ touches it}} \ \min_{q \text{ outside}} \ \| a_p - a_q \|^2$$

    Images repeat themselves. In turns, each patch finds its most similar one (PatchMatch), and each pixel becomes the
    mean of what the patches over it say, the better they match and the nearer to the border the more. It begins with
    the image at a size at which the hole is small, filled smoothly; the field of each size begins the next.

    It makes texture, not the texture that was there: by squared error a smooth fill is often nearer to the truth, and
    looks like fog. In six holes of 40 x 40 to 50 x 90 pixels in two photographs its pixels differ from their
    neighbours by 0.35 to 0.83 of what the true ones do, those of `smooth_fill` by 0.09 to 0.4; each took about 3 s.

    Reference:
        Wexler, Shechtman and Irani, *Space-Time Completion of Video*, 2007; Barnes, Shechtman, Finkelstein and Goldman,
        *PatchMatch: A Randomized Correspondence Algorithm for Structural Image Editing*, 2009.

    Args:
        patch: The width of a patch.
        turns: How often at the smallest size patches are found and pixels filled; at larger ones less, but twice.
        rounds: How often PatchMatch asks and guesses in each.
        near: By how much less, for each pixel farther from the border, a patch is believed.
        seed: What guesses are drawn from.

    Examples:
        >>> stripes = torch.arange(24).remainder(4).div(3).expand(1, 24, 24)
        >>> hole = torch.zeros(24, 24, dtype=torch.bool)
        >>> hole[9:15, 9:15] = True
        >>> filled = PatchCompletion(patch=5)(stripes.masked_fill(hole, 0.0), hole)
        >>> bool((filled - stripes).abs().max() < 1e-3)
        True
    """

    patch: int = 7
    turns: int = 16
    rounds: int = 2
    near: float = 1.3
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.patch, self.turns, self.rounds) < 1 or not self.near >= 1:
            got = f"patch={self.patch}, turns={self.turns}, rounds={self.rounds}, near={self.near}"
            raise ValueError(f"patch, turns, rounds and near are at least 1: got {got}")

    def __call__(self, image: Float[Tensor, "c h w"], hole: Bool[Tensor, "h w"]) -> Float[Tensor, "c h w"]:
        """Fills the hole; all other pixels stay as they are.

        Args:
            image: The image, channels first.
            hole: True where pixels are missing.

        Raises:
            ValueError: where no whole patch is outside the hole.
        """
        checked_hole(image, hole)
        if not bool(hole.any()):
            return image.clone()
        sizes = self._sizes(image, hole)
        filled, field = smooth_fill(*sizes[-1]), None
        for level, (known, missing) in reversed([*enumerate(sizes)]):
            window = _Window.around(missing, self.patch)
            turns = max(2, self.turns >> (len(sizes) - 1 - level))
            filled, field = self._filled(filled if field is None else known, missing, window, field, turns)
            if level:
                known, missing = sizes[level - 1]
                field = _enlarged(field, window, _Window.around(missing, self.patch), known, self.patch)
        return torch.where(hole, filled, image)

    def _sizes(self, image: Tensor, hole: Tensor) -> list[tuple[Tensor, Tensor]]:
        """The image and its hole at each size, until the hole is no wider than a patch."""
        sizes = [(torch.where(hole, 0.0, image), hole)]
        while int(_depth(hole).max()) > self.patch // 2:
            image, hole = _halved(*sizes[-1])
            if min(hole.shape) < 2 * self.patch or not bool(_outside(hole, self.patch).any()):
                break
            sizes.append((image, hole))
        return sizes

    def _filled(
        self, image: Tensor, hole: Tensor, window: _Window, field: Field | None, turns: int
    ) -> tuple[Tensor, Field]:
        """Finds patches and fills pixels, in turns; a field that is given fills the hole first."""
        here, inside = window.cut(image), window.cut(hole)
        allowed, wanted = _outside(hole, self.patch), ~_outside(inside, self.patch)
        half = (self.patch - 1) // 2
        deep = _depth(inside)[half:, half:][: wanted.shape[0], : wanted.shape[1]]
        believed = torch.where(wanted, self.near ** -deep.to(image), 0.0)
        if field is not None:
            here = voted(here, image, field, patch=self.patch, hole=inside, weight=believed)
        for turn in range(turns):
            search = PatchMatch(self.patch, self.rounds, self.seed + turn)
            field = search(here, image, allowed=allowed, wanted=wanted, start=field)
            usual = field.cost[wanted].quantile(0.75).clamp_min(1e-12)
            weight = believed * (-field.cost / (2 * usual)).exp().clamp_min(1e-6)
            here = voted(here, image, field, patch=self.patch, hole=inside, weight=weight)
        image = image.clone()
        window.cut(image).copy_(here)
        if field is None:
            raise ValueError("turns are at least 1")
        return image, field


@dataclass(frozen=True)
class _Window:
    """A part of an image: rows and columns."""

    rows: tuple[int, int]
    columns: tuple[int, int]

    @classmethod
    def around(cls, hole: Tensor, patch: int) -> _Window:
        """All pixels that a patch which touches the hole has."""
        ends = []
        for there, most in ((hole.any(1), hole.shape[0]), (hole.any(0), hole.shape[1])):
            places = there.nonzero()[:, 0]
            low, high = max(0, int(places[0]) - patch + 1), min(most, int(places[-1]) + patch)
            ends.append((min(low, max(0, most - patch)), min(most, max(high, low + patch))))
        return cls(*ends)

    def cut(self, x: Tensor) -> Tensor:
        return x[..., slice(*self.rows), slice(*self.columns)]


def _outside(hole: Tensor, patch: int) -> Tensor:
    """By the place of its first pixel, whether a patch has no pixel of the hole."""
    return F.max_pool2d(hole[None].float(), patch, stride=1)[0] == 0


def _depth(hole: Tensor) -> Tensor:
    """How many pixels it is from each pixel of the hole to the nearest outside; 0 there."""
    left, depth = hole.float(), torch.zeros(hole.shape)
    while bool(left.any()):
        depth, left = depth + left, 1 - F.max_pool2d(1 - F.pad(left, (1, 1, 1, 1), value=1.0)[None], 3, stride=1)[0]
        if bool((left == hole).all()):
            break
    return depth


def _halved(image: Tensor, hole: Tensor) -> tuple[Tensor, Tensor]:
    """Half the size: the mean of what is known of four pixels, and a hole where any is missing."""
    odd = (0, hole.shape[1] % 2, 0, hole.shape[0] % 2)
    known = F.avg_pool2d(F.pad((~hole)[None].to(image), odd, mode="replicate"), 2)
    seen = F.avg_pool2d(F.pad((image * ~hole), odd, mode="replicate"), 2)
    return seen / known.clamp_min(0.25), known[0] < 1


def _enlarged(field: Field, small: _Window, large: _Window, image: Tensor, patch: int) -> Field:
    """The field at twice the size: what each half of a patch found, twice as far."""
    ends = []
    for side, (first, last), begin, found in (
        (1, large.rows, small.rows[0], field.row),
        (2, large.columns, small.columns[0], field.column),
    ):
        here = torch.arange(first, last - patch + 1)
        place = (here // 2 - begin).clamp(0, found.shape[side - 1] - 1)
        ends.append((place, here - 2 * (place + begin), image.shape[side] - patch))
    (i, down, most_down), (j, right, most_right) = ends
    row = (2 * field.row[i][:, j] + down[:, None]).clamp(0, most_down)
    column = (2 * field.column[i][:, j] + right).clamp(0, most_right)
    return Field(row, column, field.cost[i][:, j])


def _by_patches_claims() -> Iterator[Claim]:
    """The laws that completion by patches obeys."""
    hole = torch.zeros(9, 12, dtype=torch.bool)
    hole[3:6, 4:7] = True
    complete = PatchCompletion(patch=3, turns=2)

    def outside(x: Tensor) -> Tensor:
        return complete(x, hole)[:, ~hole]

    apart = replace(agreement(other=lambda x: x[:, ~hole]), cases=8)
    yield Claim(apart, outside, shape("2 9 12"), name="PatchCompletion, outside the hole")

    def unseen(x: Tensor) -> Tensor:
        return complete(x.masked_fill(hole, 7.0), hole)

    plain = replace(agreement(other=lambda x: complete(x, hole)), cases=8)
    yield Claim(plain, unseen, shape("1 9 12"), name="PatchCompletion, whatever stood in the hole")

    def even(x: Tensor) -> Tensor:
        return complete(x.mean((1, 2), keepdim=True).expand(2, 9, 12).masked_fill(hole, 0.0), hole)

    def colour(x: Tensor) -> Tensor:
        return x.mean((1, 2), keepdim=True).expand(2, 9, 12)

    yield Claim(replace(agreement(other=colour), cases=8), even, shape("2 9 12"), name="PatchCompletion of one colour")


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _patch_match_claims()
    yield from _filling_claims()
    yield from _by_patches_claims()
