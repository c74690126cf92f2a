"""Stochastic depth: residual branches that are left out at random."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.blocks.dropout.expectation import check_probability, kept_or_dropped, unbiased
from lawful.laws import Claim, Draw, Map, Same, Statement, agreement, law, shape


class StochasticDepth(nn.Module):
    r"""Sets whole samples to 0 at random in training, and divides the others by the probability that they stay.

    $$y^{(i)} = \frac{m_i}{1 - p} \, x^{(i)}, \qquad m_i \sim \operatorname{Bernoulli}(1 - p)$$

    At the end of a residual branch, `Residual(nn.Sequential(block, StochasticDepth(p)))`, it skips the block for
    some samples, so that the network is shorter on average while it learns. The paper multiplies in evaluation
    instead of dividing in training.

    Reference:
        Huang, Sun, Liu, Sedra and Weinberger, *Deep Networks with Stochastic Depth*, 2016.

    Args:
        drop: $p$, the probability that a sample is dropped.

    Examples:
        >>> rows = StochasticDepth(0.5)(torch.ones(100, 2))
        >>> set(map(tuple, rows.tolist())) == {(0.0, 0.0), (2.0, 2.0)}
        True
    """

    def __init__(self, drop: float = 0.5) -> None:
        check_probability("drop", drop)
        super().__init__()
        self.drop = drop

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Drops samples, along the first axis, in training; does nothing in evaluation."""
        if not self.training or self.drop == 0:
            return x
        if self.drop == 1:
            return torch.zeros_like(x)
        mask = x.new_empty(x.shape[:1] + (1,) * (x.dim() - 1)).bernoulli_(1 - self.drop)
        return x * (mask / (1 - self.drop))

    def extra_repr(self) -> str:
        return f"drop={self.drop}"


def depth_rates(depth: int, *, last: float = 0.5) -> list[float]:
    r"""Returns the probabilities of being dropped that rise in equal steps up to that of the last block.

    $$p_\ell = \frac{\ell}{L} \, p_L, \qquad \ell = 1, \dots, L$$

    Early blocks, which the others build upon, are dropped least.

    Args:
        depth: The number of blocks $L$.
        last: $p_L$.

    Examples:
        >>> depth_rates(4, last=0.5)
        [0.125, 0.25, 0.375, 0.5]
    """
    check_probability("last", last)
    if depth < 0:
        raise ValueError(f"depth is at least 0: got {depth}")
    return [last * (n + 1) / depth for n in range(depth)]


@law("f(x)[i] = s_i x[i]", tries=None)
def one_factor_a_sample(f: Map, x: Tensor, *, draw: Draw) -> Statement:
    """Each sample is multiplied by one number, the same for all its entries.

    Kept by: stochastic depth.
    Broken by: dropout, which has a mask of its own for each entry.
    """
    y, z = f(x).flatten(1), x.flatten(1)
    order = draw.permutation(z.shape[1])
    return Same(y * z[:, order], y[:, order] * z, exercised=z.shape[1] > 1)


def claims() -> Iterator[Claim]:
    """The laws that stochastic depth obeys."""
    for law_ in (unbiased(), kept_or_dropped(scale=1 / 0.8), one_factor_a_sample()):
        yield Claim(law_, StochasticDepth(0.2), shape("b 2 3"))
    for drop, scale in ((0.0, 1.0), (1.0, 0.0)):
        layer, scaled = StochasticDepth(drop), agreement(other=lambda x, scale=scale: scale * x)
        yield Claim(scaled, lambda x, f=layer: f.train()(x), shape("b 2"), name=f"StochasticDepth({drop:g})")
    yield Claim(kept_or_dropped(scale=2.0), StochasticDepth(), shape("b 2"))

    def rates(x: Tensor) -> Tensor:
        return x.new_tensor([*depth_rates(len(x), last=0.3), *depth_rates(len(x))])

    def equal_steps(x: Tensor) -> Tensor:
        return torch.cat([torch.linspace(0, last, len(x) + 1).to(x)[1:] for last in (0.3, 0.5)])

    yield Claim(agreement(other=equal_steps), rates, shape("n:1..9"), name="depth_rates")
