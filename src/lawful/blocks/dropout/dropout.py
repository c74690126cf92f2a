"""Dropout: units that are left out at random while a network learns."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks.dropout.expectation import check_probability, kept_or_dropped, unbiased
from lawful.laws import Claim, shape


class Dropout(nn.Dropout):
    r"""Sets entries to 0 at random in training, and divides the others by the probability that they stay.

    $$y_i = \frac{m_i}{1 - p} \, x_i, \qquad m_i \sim \operatorname{Bernoulli}(1 - p)$$

    The expectation of $y$ is $x$, which is what evaluation gives. This is PyTorch's own, also called inverted
    dropout: $p$ is the probability that an entry is *dropped*, whereas in the paper it is that of staying.

    Reference:
        Srivastava, Hinton, Krizhevsky, Sutskever and Salakhutdinov, *Dropout: A Simple Way to Prevent Neural
        Networks from Overfitting*, 2014.

    Args:
        drop: $p$.

    Examples:
        >>> layer = Dropout(0.5)
        >>> set(layer(torch.ones(100)).tolist()) == {0.0, 2.0}
        True
        >>> layer.eval()(torch.ones(2))
        tensor([1., 1.])
    """

    def __init__(self, drop: float = 0.5) -> None:
        check_probability("drop", drop)
        super().__init__(drop)

    # pyrefly: ignore [bad-override-param-name]
    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Drops entries in training; does nothing in evaluation."""
        return F.dropout(x, self.p, self.training)


class WeightScalingDropout(nn.Module):
    r"""Sets entries to 0 at random in training, and multiplies all by the probability of staying in evaluation.

    $$y_i = m_i x_i \text{ in training}, \qquad y_i = p \, x_i \text{ in evaluation}, \qquad
    m_i \sim \operatorname{Bernoulli}(p)$$

    This is the form of the paper, in which $p$ is the probability that an entry *stays*. Multiplying the entries by
    $p$ is multiplying the weights that lead out of them. It differs from `Dropout` by the constant factor $p$.

    Reference:
        Hinton, Srivastava, Krizhevsky, Sutskever and Salakhutdinov, *Improving neural networks by preventing
        co-adaptation of feature detectors*, 2012.

    Args:
        keep: $p$.

    Examples:
        >>> layer = WeightScalingDropout(0.5)
        >>> set(layer(torch.ones(100)).tolist()) == {0.0, 1.0}
        True
        >>> layer.eval()(torch.ones(2))
        tensor([0.5000, 0.5000])
    """

    def __init__(self, keep: float = 0.5) -> None:
        check_probability("keep", keep)
        super().__init__()
        self.keep = keep

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Drops entries in training; scales them in evaluation."""
        return x * torch.empty_like(x).bernoulli_(self.keep) if self.training else self.keep * x

    def extra_repr(self) -> str:
        return f"keep={self.keep}"


def claims() -> Iterator[Claim]:
    """The laws that dropout obeys."""
    layers = (Dropout(), 2.0, 1.0), (Dropout(0.2), 1 / 0.8, 1.0), (WeightScalingDropout(0.7), 1.0, 0.7)
    for layer, scale, evaluation in (*layers, (WeightScalingDropout(), 1.0, 0.5)):
        for law in (unbiased(), kept_or_dropped(scale=scale, evaluation=evaluation)):
            yield Claim(law, layer, shape("b 4"))
