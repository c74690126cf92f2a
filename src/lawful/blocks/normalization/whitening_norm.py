"""Whitening as a layer: batch normalisation that also removes the correlation between channels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.blocks.normalization.normalize import normalize
from lawful.functions.whitening import inverse_root
from lawful.laws import Claim, Draw, agreement, batch_independence, equivariance, shape, shift_invariance


class WhiteningNorm(nn.Module):
    r"""Gives the channels, over the batch and all positions, the mean 0 and the identity as covariance.

    $$y = (\Sigma + \epsilon 1)^{-1/2} (x - \mu)$$

    Of all matrices that whiten, the symmetric one (ZCA) moves the data least: turning the channels turns the output.
    In training $\mu$ and $\Sigma$ are those of the batch; in evaluation the mean and the matrix are running averages.
    A batch with fewer entries than channels has no full covariance, and $\epsilon$ stands in for what is missing; an
    empty one leaves the averages as they are. It computes in single precision at least, under autocast too.

    Reference:
        Huang et al., *Decorrelated Batch Normalization*, 2018.

    Args:
        c: The channels.
        eps: $\epsilon$, above 0.
        momentum: The weight of a batch in the running averages.

    Examples:
        >>> x = torch.tensor([[2.0, 2.0], [-2.0, -2.0], [1.0, -1.0], [-1.0, 1.0]])
        >>> y = WhiteningNorm(2, eps=1e-9)(x)
        >>> torch.allclose(y.mT @ y / 4, torch.eye(2), atol=1e-5)
        True
    """

    def __init__(self, c: int, *, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        if c < 1 or not eps > 0 or not 0 <= momentum <= 1:
            raise ValueError(f"c at least 1, eps above 0, momentum from 0 to 1: got {c=}, {eps=}, {momentum=}")
        self.eps, self.momentum = eps, momentum
        self.running_mean: Tensor
        self.running_matrix: Tensor
        self.register_buffer("running_mean", torch.zeros(c))
        self.register_buffer("running_matrix", torch.eye(c))

    def forward(self, x: Float[Tensor, "b c *space"]) -> Float[Tensor, "b c *space"]:
        """Whitens by the batch in training, by the running averages in evaluation."""
        c = self.running_mean.numel()
        if x.dim() < 2 or x.shape[1] != c:
            raise ValueError(f"axis 1 is to have size {c}: got shape {tuple(x.shape)}")
        if not x.is_floating_point():
            raise TypeError(f"floating point numbers were wanted: got {x.dtype}")
        device, precise = x.device.type, torch.promote_types(x.dtype, torch.float32)
        casts = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
        with torch.autocast(device, enabled=False) if casts else nullcontext():
            rows = x.movedim(1, -1).to(precise)
            if self.training and x.numel():
                mean, matrix = self._of_batch(rows)
            else:
                mean, matrix = self.running_mean.to(precise), self.running_matrix.to(precise)
            return ((rows - mean) @ matrix).movedim(-1, 1).to(x.dtype)

    def _of_batch(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The mean and the matrix of a batch, which are added to the running averages."""
        mean = rows.flatten(0, -2).mean(0)
        flat = rows.flatten(0, -2) - mean
        matrix = inverse_root(flat.mT @ flat / len(flat) + self.eps * torch.eye(flat.shape[1]).to(flat))
        for running, found in ((self.running_mean, mean), (self.running_matrix, matrix)):
            running.lerp_(found.detach().to(running.dtype), self.momentum)
        return mean, matrix

    def extra_repr(self) -> str:
        return f"{self.running_mean.numel()}, eps={self.eps}, momentum={self.momentum}"


def claims() -> Iterator[Claim]:
    """The laws that whitening obeys."""

    def covariance(x: Tensor) -> Tensor:
        rows = _whitened(x).movedim(1, -1).reshape(-1, 2)
        return rows.mT @ rows / len(rows)

    def nearly_one(x: Tensor) -> Tensor:
        rows = x.movedim(1, -1).reshape(-1, 2)
        a = rows.T.cov(correction=0) + 0.1 * torch.eye(2).to(x)
        return torch.eye(2).to(x) - 0.1 * torch.linalg.inv(a)

    yield Claim(agreement(other=nearly_one), covariance, shape("b 2 n"), name="covariance 1")
    yield Claim(equivariance(sample=_rotation, act=_turned), _whitened, shape("b:2..5 3"), name="WhiteningNorm")
    yield Claim(shift_invariance(axis=0), _whitened, shape("b:2..5 3"), name="WhiteningNorm")
    single = agreement(other=lambda x: normalize(x, (0, 2), eps=0.1))
    yield Claim(single, _whitened, shape("b 1 n"), name="one channel: a batch norm")

    def running(x: Tensor) -> Tensor:
        layer = WhiteningNorm(2, eps=0.1, momentum=0.3).to(x)
        layer(x)
        return layer.eval()(x)

    def averaged(x: Tensor) -> Tensor:
        one = torch.eye(2).to(x)
        axes, variances, _ = torch.linalg.svd(x.mT.cov(correction=0) + 0.1 * one)
        return (x - 0.3 * x.mean(0)) @ (0.7 * one + 0.3 * axes * variances.rsqrt() @ axes.mT)

    yield Claim(agreement(other=averaged), running, shape("b:2..5 2"), name="WhiteningNorm, running averages")
    norm, usual = WhiteningNorm(3).eval(), nn.BatchNorm1d(3)
    defaults = agreement(other=lambda x: x.new_tensor([usual.eps, usual.momentum]))
    yield Claim(defaults, lambda x: x.new_tensor([norm.eps, norm.momentum]), shape("1"), name="as in a batch norm")
    yield Claim(batch_independence(), norm, shape("b 3"), name="WhiteningNorm.eval()")


def _whitened(x: Tensor) -> Tensor:
    """What a fresh layer in training gives."""
    return WhiteningNorm(x.shape[1], eps=0.1).to(x)(x)


def _rotation(draw: Draw) -> Tensor:
    return torch.linalg.qr(draw.normal(3, 3)).Q


def _turned(q: Tensor, x: Tensor) -> Tensor:
    return x @ q.mT
