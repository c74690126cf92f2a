"""The time embedding: how a network hears of the noise level, and of the label."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks.dense import Dense
from lawful.laws import Claim, agreement, batch_independence, made, shape


class FourierFeatures(nn.Module):
    r"""Reads a number off on waves of many lengths.

    $$y = (\cos \omega_1 c, \dots, \cos \omega_{d/2} c, \sin \omega_1 c, \dots), \qquad
    \omega_i = \omega_\text{low}^{1 - u_i} \, \omega_\text{high}^{u_i}$$

    with $u_i$ evenly from 0 to 1. A network finds it easy to bend along $c$ as fast as the fastest wave, and no faster.
    Nothing is learned or drawn.

    Reference:
        Tancik et al., *Fourier Features Let Networks Learn High Frequency Functions in Low Dimensional Domains*, 2020.

    Args:
        d: The number of features, an even number.
        low: $\omega_\text{low}$.
        high: $\omega_\text{high}$.

    Examples:
        >>> FourierFeatures(4, low=1.0, high=2.0)(torch.tensor([0.0]))
        tensor([[1., 1., 0., 0.]])
    """

    frequencies: Tensor

    def __init__(self, d: int, *, low: float = 0.5, high: float = 16.0) -> None:
        if d < 2 or d % 2:
            raise ValueError(f"d is to be even, and at least 2: got {d}")
        if not 0 < low <= high < math.inf:
            raise ValueError(f"frequencies with 0 < low <= high were wanted: got {low=}, {high=}")
        super().__init__()
        spaced = torch.linspace(math.log(low), math.log(high), d // 2, dtype=torch.float64).exp()
        self.register_buffer("frequencies", spaced.to(torch.get_default_dtype()), persistent=False)

    def forward(self, c: Float[Tensor, "*n"]) -> Float[Tensor, "*n d"]:
        """Reads off the waves."""
        angles = c[..., None] * self.frequencies
        return torch.cat([angles.cos(), angles.sin()], -1)


class TimeEmbedding(nn.Module):
    r"""Makes a vector of a noise level, and of a label where there are classes.

    $$e = W_2 \, \operatorname{silu}\bigl(W_1 \phi(c) + b_1 + E_\text{label}\bigr) + b_2$$

    $\phi$ are Fourier features. One more row of $E$ than there are classes is the *null* label, for no label: trained
    on a share of the examples it is the unconditional model that classifier-free guidance goes away from. Rows begin
    as normal noise: from 0, labels are learnt far more slowly.

    Reference:
        Ho and Salimans, *Classifier-Free Diffusion Guidance*, 2022.

    Args:
        d: The size of $e$.
        features: How many Fourier features there are.
        classes: The number of classes; 0 for no labels.

    Examples:
        >>> embedding = TimeEmbedding(8, classes=3)
        >>> embedding(torch.zeros(2)).shape, embedding(torch.zeros(2), torch.tensor([0, 2])).shape
        (torch.Size([2, 8]), torch.Size([2, 8]))
    """

    def __init__(self, d: int, *, features: int = 32, classes: int = 0) -> None:
        if classes < 0:
            raise ValueError(f"classes are at least 0: got {classes}")
        super().__init__()
        self.waves, self.classes = FourierFeatures(features), classes
        self.inner, self.outer = Dense(features, d), Dense(d, d)
        self.labels = nn.Parameter(torch.randn(classes + 1, d)) if classes else None

    def forward(self, c: Float[Tensor, " n"], labels: Int[Tensor, " n"] | None = None) -> Float[Tensor, "n d"]:
        """Embeds noise levels, with labels from 0, or the null label, which is the number of classes."""
        hidden = self.inner(self.waves(c))
        if self.labels is not None:
            hidden = hidden + (self.labels[self.classes] if labels is None else F.embedding(labels, self.labels))
        elif labels is not None:
            raise ValueError("this network knows no labels: it was built without classes")
        return self.outer(F.silu(hidden))


def claims() -> Iterator[Claim]:
    """The laws that the time embedding obeys."""
    waves, embedding = FourierFeatures(6, low=0.5, high=8.0), TimeEmbedding(3, features=4, classes=2)
    with torch.no_grad():
        embedding.labels.copy_(torch.arange(9.0).reshape(3, 3) / 5)  # pyrefly: ignore [missing-attribute]

    def read_off(c: Tensor) -> Tensor:
        angles = [0.5 * c, 2 * c, 8 * c]
        return torch.stack([a.cos() for a in angles] + [a.sin() for a in angles], -1)

    yield Claim(agreement(other=read_off), waves, shape("n"))

    def equation(c: Tensor, row: int) -> Tensor:
        u = 0.5 * c, 16 * c
        phi = torch.stack([u[0].cos(), u[1].cos(), u[0].sin(), u[1].sin()], -1)
        h = phi @ embedding.inner.weight.T + embedding.inner.bias + torch.tensor([0.0, 0.2, 0.4]).to(c) + 0.6 * row
        return (h / (1 + (-h).exp())) @ embedding.outer.weight.T + embedding.outer.bias

    def labelled(c: Tensor) -> Tensor:
        return embedding(c, torch.ones(len(c), dtype=torch.long, device=c.device))

    near = made(torch.tanh, "n")
    yield Claim(
        replace(agreement(other=lambda c: equation(c, 1)), cases=20), labelled, near, name="TimeEmbedding, a label"
    )
    yield Claim(
        replace(agreement(other=lambda c: equation(c, 2)), cases=20),
        embedding,
        near,
        name="TimeEmbedding, the null label",
    )
    yield Claim(batch_independence(), embedding, shape("n"))
