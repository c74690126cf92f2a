"""PatchMatch: for every patch of an image the most similar one elsewhere, and holes filled from such patches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from lawful.functions.noise import integer_noise, uniform_noise
from lawful.laws import AtMost, Claim, Map, Statement, agreement, law, made, shape


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
        search = _Search(target, source, patch=self.patch, allowed=allowed, wanted=wanted)
        best = search.guessed(self.seed) if start is None else search.again(start)
        for number in range(self.rounds):
            best = search.asked(best)
            best = search.drawn(best, seed=self.seed, stream=1 + number)
        return search.field(best)


class _Search:
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

    Kept by: PatchMatch.
    Broken by: taking a neighbour's guess without comparing it; a cost that is not that of the patch found.
    """
    costs = f(a, b)
    return AtMost(costs[1:], costs[:-1])


def claims() -> Iterator[Claim]:
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
        made(apart, "1 4 5"),
        name="voted, of an image found in itself",
    )


def _apart(a: Tensor, b: Tensor, i: int, j: int, found: Field) -> Tensor:
    k, m = int(found.row[i, j]), int(found.column[i, j])
    return (a[:, i : i + 2, j : j + 2] - b[:, k : k + 2, m : m + 2]).square().sum()
