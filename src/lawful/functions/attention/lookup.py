"""Attention without parameters: soft lookup, kernel regression, self-attention of raw vectors."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.functions.attention.dense import Kernel, fused_attention, reference_attention, single_head
from lawful.functions.attention.masks import CAUSAL, NO_MASK, Mask
from lawful.laws import Claim, causality, convex_combination, equivariance, permutation_equivariance, shape


def soft_lookup(
    q: Float[Tensor, "*batch t k"],
    keys: Float[Tensor, "*batch s k"],
    values: Float[Tensor, "*batch s v"],
    *,
    temperature: float = 1.0,
) -> Float[Tensor, "*batch t v"]:
    r"""Differentiable lookup in a table of keys and values.

    $$y = \sum_j \operatorname{softmax}_j \Bigl( \frac{q \cdot k_j}{T} \Bigr) \, v_j$$

    As $T \to 0$ it returns the value of the most similar key, as a dictionary does; the error decreases as
    $e^{-\text{margin} / T}$. With unit vectors as keys and a one-hot query it indexes an array.

    Args:
        q: Queries $q$.
        keys: Keys $k_j$.
        values: Values $v_j$.
        temperature: Temperature $T$, greater than 0.

    Examples:
        >>> table = torch.tensor([[10.0], [20.0], [30.0]])
        >>> soft_lookup(torch.eye(3)[[2, 0]], torch.eye(3), table, temperature=0.01)
        tensor([[30.],
                [10.]])
    """
    if not temperature > 0:
        raise ValueError(f"temperature must be greater than 0, got {temperature}")
    return single_head(reference_attention, q, keys, values, scale=1 / temperature)


def kernel_regression(
    x: Float[Tensor, "*batch t d"],
    keys: Float[Tensor, "*batch s d"],
    values: Float[Tensor, "*batch s v"],
    *,
    bandwidth: float = 1.0,
    kernel: Kernel = reference_attention,
) -> Float[Tensor, "*batch t v"]:
    r"""Nadaraya-Watson kernel regression with a Gaussian kernel, computed as attention.

    $$y = \frac{\sum_j K(x - k_j) \, v_j}{\sum_j K(x - k_j)}, \qquad K(u) = e^{-\lVert u \rVert^2 / 2 \sigma^2}$$

    This is attention with scale $1 / \sigma^2$ and bias $-\lVert k_j \rVert^2 / 2 \sigma^2$, since $\lVert x \rVert^2$
    is the same for all keys. Keys are centered first, which avoids cancellation far from the origin.

    Reference:
        Nadaraya, *On Estimating Regression*, 1964; Watson, *Smooth Regression Analysis*, 1964.

    Args:
        x: Points $x$ to predict at.
        keys: Points $k_j$ with known values.
        values: Values $v_j$.
        bandwidth: Bandwidth $\sigma$, greater than 0; as $\sigma \to 0$ the nearest key decides.
        kernel: Attention function.

    Examples:
        >>> keys = torch.tensor([[0.0], [1.0]])
        >>> kernel_regression(torch.tensor([[0.5], [0.9]]), keys, keys, bandwidth=0.1)
        tensor([[0.5000],
                [1.0000]])
    """
    if not bandwidth > 0:
        raise ValueError(f"bandwidth must be greater than 0, got {bandwidth}")
    center = keys.mean(-2, keepdim=True)
    x, keys = (x - center) / bandwidth, (keys - center) / bandwidth
    bias = -keys.square().sum(-1)[..., None, None, :] / 2
    return single_head(kernel, x, keys, values, bias=bias, scale=1.0)


def self_attention(
    x: Float[Tensor, "*batch t d"],
    *,
    mask: Mask = NO_MASK,
    scale: float | None = None,
    kernel: Kernel = fused_attention,
) -> Float[Tensor, "*batch t d"]:
    r"""Self-attention without parameters: the vectors are queries, keys and values.

    $$y_i = \sum_j \operatorname{softmax}_j \Bigl( \frac{x_i \cdot x_j}{\sqrt{d}} \Bigr) \, x_j$$

    Without a mask it is equivariant to permutations; it is equivariant to rotations.

    Args:
        x: Vectors $x_i$.
        mask: Which vectors each vector sees.
        scale: Factor of the dot products. Defaults to $1 / \sqrt{d}$.
        kernel: Attention function.

    Examples:
        >>> self_attention(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), scale=1000.0)
        tensor([[1., 0.],
                [0., 1.]])
    """
    return single_head(kernel, x, x, x, mask=mask, scale=scale)


def claims() -> Iterator[Claim]:
    """Laws of attention without parameters."""
    table = shape("b t 3"), shape("b s 3"), shape("b s 2")
    yield Claim(convex_combination(), soft_lookup, table)
    yield Claim(convex_combination(), kernel_regression, table)
    yield Claim(permutation_equivariance(), self_attention, shape("b t 3"))
    rotated = equivariance(sample=lambda draw: torch.linalg.qr(draw.normal(3, 3)).Q, act=lambda q, x: x @ q)
    yield Claim(rotated, self_attention, shape("b t 3"))

    def attend_causal(x: Tensor) -> Tensor:
        return self_attention(x, mask=CAUSAL)

    yield Claim(causality(), attend_causal, shape("b t 3"), name="self_attention(mask=CAUSAL)")
