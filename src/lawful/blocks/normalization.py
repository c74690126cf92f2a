r"""Normalization that PyTorch lacks, and the axes and invariances of the usual norms.

A linear layer without bias followed by a norm, $f(x, W) = \operatorname{norm}(x W^\top)$, is a map of the data and of
the weight. `INVARIANCES` lists which rescalings and shifts of either leave it unchanged.

Reference:
    Ba, Kiros and Hinton, *Layer Normalization*, 2016, table 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.functions.whitening import inverse_root
from lawful.laws import (
    Claim,
    Draw,
    batch_independence,
    equivariance,
    homogeneity,
    scale_invariance,
    shape,
    shift_invariance,
    ties,
    transformed,
)

NORMALIZED_AXES = {
    "batch": "b s",
    "layer": "c s",
    "instance": "s",
    "group": "c s",
    "rms": "c s",
}
"""Axes of the statistics of each norm: batch b, channels c (of one group), space s."""


def normalized_axes(kind: str, dim: int, *, num_batch_axes: int = 1) -> tuple[int, ...]:
    """Returns the axes over which a norm computes its statistics.

    Args:
        kind: A key of `NORMALIZED_AXES`.
        dim: Number of axes of the input: batch, channels, space.
        num_batch_axes: Number of leading batch axes.

    Examples:
        >>> normalized_axes("batch", 4), normalized_axes("instance", 4), normalized_axes("layer", 3, num_batch_axes=2)
        ((0, 2, 3), (2, 3), (2,))
    """
    if kind not in NORMALIZED_AXES:
        raise ValueError(f"kind must be one of {', '.join(NORMALIZED_AXES)}, got {kind!r}")
    first = num_batch_axes
    axes = {"b": range(first), "c": range(first, first + 1), "s": range(first + 1, dim)}
    return tuple(axis for letter in NORMALIZED_AXES[kind].split() for axis in axes[letter])


def normalize(x: Float[Tensor, "*shape"], axes: tuple[int, ...], *, eps: float = 1e-5) -> Float[Tensor, "*shape"]:
    r"""Normalizes to mean 0 and variance 1 over the given axes.

    $$y = \frac{x - \operatorname{mean}(x)}{\sqrt{\operatorname{var}(x) + \epsilon}}$$

    The variance is the biased one. With $\epsilon = 0$ constant entries give NaN.

    Args:
        x: Input.
        axes: Axes of mean and variance.
        eps: $\epsilon$.

    Examples:
        >>> normalize(torch.tensor([1.0, 3.0]), (0,), eps=0.0)
        tensor([-1.,  1.])
    """
    if not axes:
        raise ValueError("axes must contain at least one axis, got none")
    centered = x - x.mean(axes, keepdim=True)
    return centered * (centered.square().mean(axes, keepdim=True) + eps).rsqrt()


class AdaNorm(nn.Module):
    r"""Layer norm whose gain depends on the normalized input instead of being learned.

    $$z = C (1 - k y) \odot y \qquad y = \frac{x - \operatorname{mean}(x)}{\sqrt{\operatorname{var}(x) + \epsilon}}$$

    The gain has mean $C$ for any input, and the mean of $z$ is bounded, at $-C k$. In the backward pass the gain is a
    constant: the gradient is centered and scaled as in a layer norm, and is not the derivative of the output.

    Reference:
        Xu et al., *Understanding and Improving Layer Normalization*, 2019.

    Args:
        scale: $C$.
        k: Strength of the reduction of large entries.
        eps: $\epsilon$.

    Examples:
        >>> AdaNorm(eps=0.0)(torch.tensor([1.0, 3.0]))
        tensor([-1.1000,  0.9000])
    """

    def __init__(self, *, scale: float = 1.0, k: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__()
        if not eps >= 0:
            raise ValueError(f"eps must be non-negative, got {eps}")
        self.scale, self.k, self.eps = scale, k, eps

    def forward(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        """Normalizes the last axis."""
        if x.dim() == 0:
            raise ValueError("expected x of shape (*batch, d), got ()")
        y = F.layer_norm(x, x.shape[-1:], eps=self.eps)
        return self.scale * (1 - self.k * y.detach()) * y

    def extra_repr(self) -> str:
        return f"scale={self.scale}, k={self.k}, eps={self.eps}"


class WhiteningNorm(nn.Module):
    r"""Decorrelated batch norm: whitens the channels over the batch and all positions.

    $$y = (\Sigma + \epsilon 1)^{-1/2} (x - \mu)$$

    The whitening matrix is the symmetric one (ZCA): rotating the channels rotates the output. In training mode $\mu$
    and $\Sigma$ are computed from the batch; in eval mode mean and matrix are running averages. A batch with fewer
    entries than channels is regularized by $\epsilon$; an empty batch leaves the averages unchanged. Computes in
    float32 or higher precision, also under autocast.

    Reference:
        Huang et al., *Decorrelated Batch Normalization*, 2018.

    Args:
        num_features: Number of channels.
        eps: $\epsilon$, positive.
        momentum: Weight of a batch in the running averages.

    Examples:
        >>> x = torch.tensor([[2.0, 2.0], [-2.0, -2.0], [1.0, -1.0], [-1.0, 1.0]])
        >>> y = WhiteningNorm(2, eps=1e-9)(x)
        >>> torch.allclose(y.mT @ y / 4, torch.eye(2), atol=1e-5)
        True
    """

    def __init__(self, num_features: int, *, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        if num_features < 1 or not eps > 0 or not 0 <= momentum <= 1:
            expected = "num_features must be at least 1, eps positive and momentum in [0, 1]"
            raise ValueError(f"{expected}: got {num_features=}, {eps=}, {momentum=}")
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.running_mean: Tensor
        self.running_matrix: Tensor
        self.register_buffer("running_mean", torch.zeros(num_features))
        self.register_buffer("running_matrix", torch.eye(num_features))

    def forward(self, x: Float[Tensor, "b c *space"]) -> Float[Tensor, "b c *space"]:
        """Whitens with the statistics of the batch in training mode, with running averages in eval mode."""
        if x.dim() < 2 or x.shape[1] != self.num_features:
            raise ValueError(f"expected x of shape (b, {self.num_features}, *space), got {tuple(x.shape)}")
        if not x.is_floating_point():
            raise TypeError(f"expected a floating-point tensor, got {x.dtype}")
        device, precise = x.device.type, torch.promote_types(x.dtype, torch.float32)
        autocast = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
        with torch.autocast(device, enabled=False) if autocast else nullcontext():
            rows = x.movedim(1, -1).to(precise)
            if self.training and x.numel():
                mean, matrix = self._batch_statistics(rows)
            else:
                mean, matrix = self.running_mean.to(precise), self.running_matrix.to(precise)
            return ((rows - mean) @ matrix).movedim(-1, 1).to(x.dtype)

    def _batch_statistics(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and whitening matrix of a batch; updates the running averages."""
        mean = rows.flatten(0, -2).mean(0)
        flat = rows.flatten(0, -2) - mean
        matrix = inverse_root(flat.mT @ flat / len(flat) + self.eps * torch.eye(flat.shape[1]).to(flat))
        for running, new in ((self.running_mean, mean), (self.running_matrix, matrix)):
            running.lerp_(new.detach().to(running.dtype), self.momentum)
        return mean, matrix

    def extra_repr(self) -> str:
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}"


INVARIANCE_LAWS = {
    "weight matrix re-scaling": homogeneity(degree=0.0, input=1),
    "weight matrix re-centering": shift_invariance(axis=0, input=1),
    "weight vector re-scaling": scale_invariance(axis=1, input=1),
    "dataset re-scaling": homogeneity(degree=0.0, input=0),
    "dataset re-centering": shift_invariance(axis=0, input=0),
    "single training case re-scaling": scale_invariance(axis=1, input=0),
}
"""Columns of the table of invariances."""

INVARIANCES = {
    "batch norm": (True, False, True, True, True, False),
    "weight norm": (True, False, True, False, False, False),
    "layer norm": (True, True, False, True, False, True),
}
"""Rows of the table: whether the normalized layer is invariant."""


def normalized_linear(kind: str) -> Callable[[Tensor, Tensor], Tensor]:
    """Returns a normalized linear layer as a map of data (b, c) and weight (d, c), without eps.

    Args:
        kind: A key of `INVARIANCES`.

    Examples:
        >>> layer = normalized_linear("layer norm")
        >>> layer(torch.eye(2), torch.tensor([[3.0, 0.0], [0.0, 2.0]]))
        tensor([[ 1., -1.],
                [-1.,  1.]])
    """
    if kind not in INVARIANCES:
        raise ValueError(f"kind must be one of {', '.join(INVARIANCES)}, got {kind!r}")

    def layer(x: Tensor, w: Tensor) -> Tensor:
        if kind == "weight norm":
            return x @ (w / w.norm(dim=1, keepdim=True)).mT
        if kind == "batch norm":
            return F.batch_norm(x @ w.mT, None, None, training=True, eps=1e-30)
        return F.layer_norm(x @ w.mT, (len(w),), eps=0.0)

    return layer


def _distinct_rows(x: Tensor) -> Tensor:
    """Rows with non-zero variance, so that eps = 0 gives finite values."""
    rows, columns = x.shape
    return x.tanh() + 3 * torch.eye(rows, columns).to(x) + torch.arange(columns).to(x)


def claims() -> Iterator[Claim]:
    """Laws of normalization."""
    inputs = transformed(_distinct_rows, "b:3..5 3"), transformed(_distinct_rows, "d:3..5 3")
    for kind, row in INVARIANCES.items():
        for (column, law), holds in zip(INVARIANCE_LAWS.items(), row, strict=True):
            if holds:
                yield Claim(law, normalized_linear(kind), inputs, name=f"{kind}, {column}")
    for law in (scale_invariance(), shift_invariance()):
        yield Claim(law.excluding(ties), AdaNorm(eps=0.0), shape("b 4"), name="AdaNorm(eps=0)")

    def whiten(x: Tensor) -> Tensor:
        return WhiteningNorm(x.shape[1], eps=0.1).to(x)(x)

    def rotation(draw: Draw) -> Tensor:
        return torch.linalg.qr(draw.normal(3, 3)).Q

    rotated = equivariance(sample=rotation, act=lambda q, x: x @ q.mT)
    yield Claim(rotated, whiten, shape("b:2..5 3"), name="WhiteningNorm")
    yield Claim(shift_invariance(axis=0), whiten, shape("b:2..5 3"), name="WhiteningNorm")
    yield Claim(batch_independence(), WhiteningNorm(3).eval(), shape("b 3"), name="WhiteningNorm.eval()")
