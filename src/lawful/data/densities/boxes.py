"""Uniform densities on boxes, blurred or not; a checkerboard is one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lawful.data.densities.density import check_noise
from lawful.functions.noise import integer_noise, normal_noise, uniform_noise
from lawful.laws import Claim, agreement, derivative, made


@dataclass(frozen=True, eq=False)
class Boxes:
    r"""Chooses one of some disjoint boxes of one size, then a point inside evenly, and blurs it by Gaussian noise.

    $$p(x) = \frac{1}{K} \sum_k \prod_j \frac{\Phi\bigl((x_j - c_{kj} + h) / s\bigr)
    - \Phi\bigl((x_j - c_{kj} - h) / s\bigr)}{2 h}$$

    Without blur the fractions are 1 inside and 0 outside, the density is flat and its score 0 inside. With it both are
    smooth, and finite as far out as numbers go.

    Args:
        centres: $c$.
        half: $h$, half the side of a box.
        blur: $s$.

    Examples:
        >>> one = Boxes(torch.zeros(1, 2), half=0.5)
        >>> one.log_prob(torch.tensor([[0.2, 0.4], [0.2, 0.6]])), one.entropy
        (tensor([0., -inf]), 0.0)
    """

    centres: Float[Tensor, "k d"]
    half: float
    blur: float = 0.0

    def __post_init__(self) -> None:
        if not (0 <= self.half < math.inf and 0 <= self.blur < math.inf and self.half + self.blur > 0):
            raise ValueError(f"half and blur are not negative, and not both 0: got {self.half} and {self.blur}")

    @property
    def d(self) -> int:
        """The dimension."""
        return self.centres.shape[1]

    def sample(self, n: int, seed: int = 0, *, first: int = 0) -> Float[Tensor, "n d"]:
        """Draws the samples `first` to `first + n - 1` of a seed."""
        like = {"seed": seed, "first": first, "dtype": self.centres.dtype, "device": self.centres.device}
        which = integer_noise(n, high=len(self.centres), seed=seed, first=first, stream=1)
        x = self.centres[which] + self.half * (2 * uniform_noise(n, self.d, stream=2, **like) - 1)
        return x + self.blur * normal_noise(n, self.d, **like) if self.blur else x

    def log_prob(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch"]:
        r"""$\log p(x)$."""
        off = x[..., None, :] - self.centres
        return self._along(off)[0].sum(-1).logsumexp(-1) - math.log(len(self.centres))

    def score(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        r"""$\nabla \log p(x)$."""
        if not self.blur:
            return torch.where(x.isnan(), x, 0.0)
        off = x[..., None, :] - self.centres
        logs, inside = self._along(off)
        slopes = (self.half * inside - off) / self.blur**2
        return (logs.sum(-1).softmax(-1)[..., None] * slopes).sum(-2)

    def noised(self, alpha: float, sigma: float) -> Boxes:
        r"""Returns the density of $\alpha x + \sigma \varepsilon$."""
        check_noise(alpha, sigma)
        return replace(
            self, centres=alpha * self.centres, half=alpha * self.half, blur=math.hypot(alpha * self.blur, sigma)
        )

    def denoised(self, y: Float[Tensor, "*batch d"], alpha: float, sigma: float) -> Float[Tensor, "*batch d"]:
        r"""$\mathbb{E}[x \mid \alpha x + \sigma \varepsilon = y]$."""
        there = self.noised(alpha, sigma)
        off = y[..., None, :] - there.centres
        logs, inside = there._along(off)
        back = alpha * self.blur**2 / there.blur**2 if there.blur else 0.0
        found = self.centres + self.half * inside + back * (off - there.half * inside)
        return (logs.sum(-1).softmax(-1)[..., None] * found).sum(-2) if there.blur else y / alpha

    @cached_property
    def entropy(self) -> float:
        r"""In nats: without blur by the formula; with it, by the trapezoidal rule in 1 and 2 dimensions.

        Beyond, it is $H(x \mid k) + H(k) - \mathbb{E} \, H(k \mid x)$, $k$ the box that $x$ came from; the last is that
        of $2^{16}$ samples (error below $\log K / 500$).
        """
        if not self.blur:
            return math.log(len(self.centres)) + self.d * math.log(2 * self.half)
        centres = self.centres.double().cpu()
        if self.d < 3:
            return self._over_a_grid(centres)
        double = replace(self, centres=centres)
        boxes = double._along(double.sample(2**16)[:, None] - centres)[0].sum(-1).softmax(-1)
        doubt = float(torch.special.entr(boxes).sum(-1).mean())
        return self.d * self._over_a_grid(centres[:1, :1] * 0) + math.log(len(centres)) - doubt

    def _over_a_grid(self, centres: Tensor) -> float:
        factors, whole = [], 1.0
        for c in centres.mT:
            low, high, reach = float(c.min()) - self.half, float(c.max()) + self.half, 9 * self.blur
            n = min(4000, max(200, math.ceil(4 * (high - low + 2 * reach) / self.blur)))
            x = torch.linspace(low - reach, high + reach, n, dtype=torch.float64)
            factors.append(self._along(x - c[:, None])[0].exp())
            whole *= float(x[1] - x[0])
        p = (torch.einsum("ka,kb->ab", *factors) if len(factors) == 2 else factors[0].sum(0)) / len(centres)
        return float(torch.special.entr(p).sum()) * whole

    def to(self, dtype: torch.dtype) -> Boxes:
        """Returns it in another precision."""
        return replace(self, centres=self.centres.to(dtype))

    def _along(self, off: Tensor) -> tuple[Tensor, Tensor]:
        r"""Along each coordinate, the log-density of $h u + s \varepsilon$, and $\mathbb{E}[u]$ given what it is.

        $u$ is uniform on [-1, 1]. Where the box is small against the blur, differences of $\Phi$ cancel, and a sum over
        nodes of Gauss and Legendre is exact instead.
        """
        h, s, near = self.half, self.blur, off.abs()
        if not s:
            inside = torch.where(near > h, -math.inf, 0 * near) - math.log(2 * h)
            return inside, off / h
        tilt, bend = near * (h / s**2), h**2 / (2 * s**2)
        few = tilt < 8 if bend < 0.5 else torch.zeros_like(tilt, dtype=torch.bool)
        logs, means = self._by_tails(torch.where(few, 9 * s**2 / h + h, near) if h else near)
        if bend < 0.5:
            nodes, weights = (torch.from_numpy(a).to(off) for a in np.polynomial.legendre.leggauss(20))
            terms = (tilt.clamp_max(8)[..., None] * nodes - bend * nodes.square()).exp() * weights / 2
            whole = terms.sum(-1)
            normal = -0.5 * (near / s).square() - math.log(s * math.sqrt(2 * math.pi))
            logs, means = torch.where(few, normal + whole.log(), logs), torch.where(few, terms @ nodes / whole, means)
        return logs, means * off.sign()

    def _by_tails(self, near: Tensor) -> tuple[Tensor, Tensor]:
        h, s = self.half, self.blur
        if not h:
            return near, near
        a, b = -(h + near) / s, (h - near) / s
        left, right = torch.special.log_ndtr(a), torch.special.log_ndtr(b)
        logs = right + torch.log1p(-(left - right).exp())
        behind = math.sqrt(2 / math.pi) / torch.special.erfcx(-b.clamp_max(0) / math.sqrt(2))
        upper = torch.where(b < 0, behind, (-0.5 * (b.square() + math.log(2 * math.pi)) - right).exp())
        upper = upper / -torch.expm1(left - right)
        lower = (-2 * h * near / s**2).exp() * upper
        return logs - math.log(2 * h), ((near + s * (lower - upper)) / h).clamp(-1, 1)


def checkerboard(*, cells: int = 4, side: float = 1.0, dtype: torch.dtype = torch.float64) -> Boxes:
    r"""Makes the uniform density on the squares of one colour of a checkerboard around 0.

    $$H = \log \tfrac12 (\text{cells} \cdot \text{side})^2$$

    Args:
        cells: The squares along each edge, an even number.
        side: The side of a square.
        dtype: The precision.

    Examples:
        >>> checkerboard().entropy == math.log(8)
        True
    """
    if cells < 2 or cells % 2:
        raise ValueError(f"cells are an even number, at least 2: got {cells}")
    places = torch.arange(cells, dtype=dtype) * side - side * (cells - 1) / 2
    centres = torch.cartesian_prod(places, places)
    coloured = (torch.arange(cells)[:, None] + torch.arange(cells)).reshape(-1) % 2 == 0
    return Boxes(centres[coloured], half=side / 2)


def claims() -> Iterator[Claim]:
    """The laws that boxes obey, blurred a little and a lot."""
    board, few = checkerboard(cells=2, side=2.0), partial(replace, cases=20)

    def under(alpha: float, sigma: float) -> Iterator[Claim]:
        def noised(x: Tensor) -> Boxes:
            return board.to(x.dtype).noised(alpha, sigma)

        def log_prob(x: Tensor) -> Tensor:
            return noised(x).log_prob(x)

        def equation(x: Tensor) -> Tensor:
            """Of the squares around (-1, -1) and (1, 1), by differences of the complement of the error function."""
            off = (x[..., None, :] - alpha * x.new_tensor([[-1.0, -1.0], [1.0, 1.0]])).abs()
            near, far = (torch.special.erfc((off + end) / (sigma * 2**0.5)) for end in (-alpha, alpha))
            return (((near - far) / (4 * alpha)).prod(-1).sum(-1) / 2).log()

        def by_tweedie(y: Tensor) -> Tensor:
            return (y + sigma**2 * noised(y).score(y)) / alpha

        def denoised(y: Tensor) -> Tensor:
            return board.to(y.dtype).denoised(y, alpha, sigma)

        name, near = f"checkerboard.noised({alpha}, {sigma})", made(lambda x: 2 * x.tanh(), "b 2")
        yield Claim(few(agreement(other=equation)), log_prob, near, name=name)
        yield Claim(few(derivative(formula=lambda x: noised(x).score(x))), log_prob, near, name=f"{name}.score")
        yield Claim(few(agreement(other=by_tweedie)), denoised, near, name=f"{name}, denoised")

    yield from under(1.0, 0.3)
    yield from under(0.5, 0.8)

    def small(x: Tensor) -> Tensor:
        return Boxes(x.new_zeros(1, 2), half=1e-5).noised(1.0, 1.0).log_prob(x)

    def point(x: Tensor) -> Tensor:
        return -x.square().sum(-1) / 2 - math.log(2 * math.pi)

    almost = replace(agreement(other=point), within=1e-8)
    yield Claim(almost, small, made(torch.tanh, "b 2"), name="a tiny box is a point")
