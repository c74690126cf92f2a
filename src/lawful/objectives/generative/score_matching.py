"""Score matching: the gradient of a log-density learned from samples alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lawful.laws import Claim, agreement, shape
from lawful.objectives.over_data import Reduce

Score = Callable[[Tensor], Tensor]
r"""From $x$, (n, *shape), to $s(x)$ of the same shape; samples do not mix."""


def explicit_score_matching(
    score: Score, x: Float[Tensor, "n *shape"], *, reduce: Reduce = torch.mean
) -> Float[Tensor, "*reduced"]:
    r"""Compares a score with that of the data, without knowing the latter: by parts.

    $$\ell(x) = \tfrac12 \lVert s(x) \rVert^2 + \operatorname{tr} \frac{\partial s}{\partial x}, \qquad
    \mathbb{E} \, \ell = \tfrac12 \, \mathbb{E} \lVert s - \nabla \log p \rVert^2 -
    \tfrac12 \, \mathbb{E} \lVert \nabla \log p \rVert^2$$

    It is least at the score of the data, where it is negative. The trace is exact, by a backward pass for each entry:
    for small data.

    Reference:
        Hyvärinen, *Estimation of Non-Normalized Statistical Models by Score Matching*, 2005.

    Args:
        score: $s$.
        x: $x$.
        reduce: What to make of the losses of the examples.

    Examples:
        >>> explicit_score_matching(lambda x: -x, torch.tensor([[1.0, 1.0]]))
        tensor(-1., grad_fn=<MeanBackward0>)
    """
    s, leaf = _scored(score, x)
    axes = torch.eye(s[0].numel(), dtype=s.dtype, device=s.device).reshape(-1, 1, *s.shape[1:])
    trace = sum(_along(s, leaf, axis.expand_as(s)) for axis in axes)
    return reduce(s.square().flatten(1).sum(1) / 2 + trace)


def sliced_score_matching(
    score: Score,
    x: Float[Tensor, "n *shape"],
    directions: Float[Tensor, "k n *shape"],
    *,
    reduce: Reduce = torch.mean,
) -> Float[Tensor, "*reduced"]:
    r"""Compares a score with that of the data along random directions only.

    $$\ell(x) = \frac1k \sum_v \Bigl(v^\top \frac{\partial s}{\partial x} v +
    \tfrac12 \bigl(v^\top s(x)\bigr)^2\Bigr)$$

    Where $\mathbb{E} v v^\top = 1$ its mean is that of explicit score matching, for one backward pass a direction.

    Reference:
        Song, Garg, Shi and Ermon, *Sliced Score Matching*, 2019.

    Args:
        score: $s$.
        x: $x$.
        directions: $v$, $k$ of them for each example: see `signs_like`.
        reduce: What to make of the losses of the examples.

    Examples:
        >>> x = torch.tensor([[1.0, 1.0]])
        >>> sliced_score_matching(lambda x: -x, x, torch.tensor([[[1.0, 1.0]], [[1.0, -1.0]]]))
        tensor(-1., grad_fn=<MeanBackward0>)
    """
    s, leaf = _scored(score, x)
    return reduce(
        torch.stack([_along(s, leaf, v) + (s * v).flatten(1).sum(1).square() / 2 for v in directions]).mean(0)
    )


def reduced_sliced_score_matching(
    score: Score,
    x: Float[Tensor, "n *shape"],
    directions: Float[Tensor, "k n *shape"],
    *,
    reduce: Reduce = torch.mean,
) -> Float[Tensor, "*reduced"]:
    r"""Compares as sliced score matching does, with less variance: only the trace is left to chance.

    $$\ell(x) = \tfrac12 \lVert s(x) \rVert^2 + \frac1k \sum_v v^\top \frac{\partial s}{\partial x} v$$

    Reference:
        Song, Garg, Shi and Ermon, *Sliced Score Matching*, 2019.

    Args:
        score: $s$.
        x: $x$.
        directions: $v$, with $\mathbb{E} v v^\top = 1$: see `signs_like`.
        reduce: What to make of the losses of the examples.

    Examples:
        >>> reduced_sliced_score_matching(lambda x: -x, torch.ones(1, 2), torch.ones(1, 1, 2))
        tensor(-1., grad_fn=<MeanBackward0>)
    """
    s, leaf = _scored(score, x)
    trace = torch.stack([_along(s, leaf, v) for v in directions]).mean(0)
    return reduce(s.square().flatten(1).sum(1) / 2 + trace)


def denoising_score_matching(
    score: Score,
    x: Float[Tensor, "n *shape"],
    noise: Float[Tensor, "n *shape"],
    *,
    sigma: float,
    reduce: Reduce = torch.mean,
) -> Float[Tensor, "*reduced"]:
    r"""Compares a score with that of noise that was added.

    $$\ell = \tfrac12 \Bigl\lVert s(x + \sigma \varepsilon) + \frac{\varepsilon}{\sigma} \Bigr\rVert^2$$

    It is least at the score of the *noisy* data, $\nabla \log p_\sigma$, which points back from the noise: hence the
    plus. For several noise levels, and networks that predict something else, see `denoising_error`.

    Reference:
        Vincent, *A Connection Between Score Matching and Denoising Autoencoders*, 2011.

    Args:
        score: $s$.
        x: The clean data.
        noise: $\varepsilon$, standard normal.
        sigma: $\sigma$, above 0.
        reduce: What to make of the losses of the examples.

    Examples:
        >>> denoising_score_matching(lambda y: -y, torch.zeros(1, 2), torch.ones(1, 2), sigma=1.0)
        tensor(0.)
    """
    if not 0 < sigma < float("inf"):
        raise ValueError(f"sigma is above 0, and finite: got {sigma}")
    s = _kept(score(x + sigma * noise), x)
    return reduce((s + noise / sigma).square().flatten(1).sum(1) / 2)


def signs_like(x: Float[Tensor, "n *shape"], *, count: int = 1) -> Float[Tensor, "count n *shape"]:
    r"""Draws directions of random signs, for which $\mathbb{E} v v^\top = 1$ and the trace varies least.

    Args:
        x: What they are for.
        count: How many each example has.

    Examples:
        >>> signs_like(torch.zeros(3, 2), count=4).abs().unique(), signs_like(torch.zeros(3, 2)).shape
        (tensor([1.]), torch.Size([1, 3, 2]))
    """
    if count < 1:
        raise ValueError(f"count is at least 1: got {count}")
    return torch.randint(2, (count, *x.shape), device=x.device).to(x.dtype) * 2 - 1


def _scored(score: Score, x: Tensor) -> tuple[Tensor, Tensor]:
    """The score, and the data that it depends on."""
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        s = score(leaf)
    return _kept(s, x), leaf


def _kept(s: Tensor, x: Tensor) -> Tensor:
    if s.shape != x.shape or not len(x):
        raise ValueError(
            f"at least one example, and a score that keeps the shape {tuple(x.shape)}, are wanted: got {tuple(s.shape)}"
        )
    return s


def _along(s: Tensor, leaf: Tensor, v: Tensor) -> Tensor:
    """The derivative of each example's score along v, in that direction; parameters may learn from it."""
    if not s.requires_grad:
        return s.new_zeros(len(s))
    (slope,) = torch.autograd.grad(s, leaf, v, create_graph=True, allow_unused=True)
    return s.new_zeros(len(s)) if slope is None else (slope * v).flatten(1).sum(1)


def claims() -> Iterator[Claim]:
    """The laws that score matching obeys: each loss is the distance to the true score, up to a constant.

    Expectations are exact: by Gauss-Hermite quadrature, of scores that are polynomials.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(6)
    line, mass = torch.tensor(nodes), torch.tensor(weights / weights.sum())
    pairs, masses = torch.cartesian_prod(line, line), torch.outer(mass, mass).flatten()
    mean, std = torch.tensor([0.5, -1.0]).double(), torch.tensor([0.8, 1.3]).double()
    signs = torch.tensor([[1.0, 1.0], [1.0, -1.0]]).double()[:, None].expand(2, 36, 2)

    def expected(values: Tensor) -> Tensor:
        return (masses.to(values) * values).sum()

    def bent(theta: Tensor, x: Tensor) -> Tensor:
        """A score that is not linear, and whose Jacobian is not symmetric."""
        a, b, c = theta.to(x)
        return torch.stack([a * x[:, 0] + b * x[:, 1] + c * x[:, 0] * x[:, 1], b + c * x[:, 1] ** 2 + x[:, 0]], 1)

    def data(theta: Tensor) -> Tensor:
        return (mean + std * pairs).to(theta)

    def fisher(theta: Tensor) -> Tensor:
        x = data(theta)
        true = -(x - mean.to(x)) / std.to(x).square()
        return expected(((bent(theta, x) - true).square() - true.square()).sum(1) / 2)

    losses = {
        "explicit": lambda f, x: explicit_score_matching(f, x, reduce=expected),
        "sliced": lambda f, x: sliced_score_matching(f, x, signs.to(x), reduce=expected),
        "reduced": lambda f, x: reduced_sliced_score_matching(f, x, signs.to(x), reduce=expected),
    }
    for name, loss in losses.items():

        def found(theta: Tensor, loss: Callable[[Score, Tensor], Tensor] = loss) -> Tensor:
            return loss(lambda x: bent(theta, x), data(theta)).detach()

        yield Claim(agreement(other=fisher), found, shape("3"), name=f"{name} score matching, the Fisher divergence")

    def denoising(theta: Tensor) -> Tensor:
        """Data of mean 0.5 and deviation 0.8 on a line, and noise of 0.6."""
        x, noise = (0.5 + 0.8 * pairs[:, :1]).to(theta), pairs[:, 1:].to(theta)

        def score(y: Tensor) -> Tensor:
            return theta[0] + theta[1] * y + theta[2] * y**2

        return denoising_score_matching(score, x, noise, sigma=0.6, reduce=expected)

    def of_noisy(theta: Tensor) -> Tensor:
        y = (0.5 + 1.0 * line).to(theta)  # its variance is 0.64 + 0.36 = 1
        true = 0.5 - y
        off = (theta[0] + theta[1] * y + theta[2] * y**2 - true).square()
        constant = (1 / 0.6**2 - 1) / 2
        return (mass.to(y) * off).sum() / 2 + constant

    yield Claim(agreement(other=of_noisy), denoising, shape("3"), name="denoising score matching, of the noisy data")

    def spread(x: Tensor) -> Tensor:
        """The variance of sliced score matching with s = -c x and signs, which the reduced one has not."""
        v = torch.tensor([[1.0, 1.0], [1.0, -1.0]]).to(x)[:, None].expand(2, len(x), 2)
        both = [sliced_score_matching(lambda y: -3 * y, x, one[None], reduce=lambda z: z).detach() for one in v]
        return (both[0] - both[1]) / 2

    by_hand = agreement(other=lambda x: 9 * x[:, 0] * x[:, 1])
    yield Claim(by_hand, spread, shape("n 2"), name="what the direction changes")
