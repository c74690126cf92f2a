"""Batch normalisation: each channel by its mean and deviation over the batch."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks.normalization.normalize import axes_of, normalize
from lawful.laws import Claim, agreement, batch_independence, gradient, shape


class BatchNorm(nn.Module):
    r"""Normalises each channel over the batch and all positions, then scales and shifts it.

    $$y = \gamma \, \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}} + \beta$$

    In training $\mu$ and $\sigma^2$ are those of the batch, so that its samples depend on each other; in evaluation
    they are running averages, $r \leftarrow (1 - m) r + m \, s$, and each channel is an affine map. The average of the
    variance is of the one that divides by $n - 1$. With $\gamma = \sqrt{\sigma^2 + \epsilon}$, the deviation and not
    the variance, and $\beta = \mu$ the layer does nothing. Since $\beta$ is there, a layer before it needs no bias.

    Parameters and buffers are named as those of `nn.BatchNorm1d` to `3d`, which this is for any number of space axes.

    Reference:
        Ioffe and Szegedy, *Batch Normalization: Accelerating Deep Network Training by Reducing Internal Covariate
        Shift*, 2015.

    Args:
        c: The channels.
        eps: $\epsilon$, above 0.
        momentum: $m$; with None the average is over all batches so far.
        affine: Whether there are $\gamma$ (`weight`) and $\beta$ (`bias`).

    Examples:
        >>> BatchNorm(1, eps=1e-9)(torch.tensor([[1.0], [3.0]])).detach()
        tensor([[-1.],
                [ 1.]])
    """

    def __init__(self, c: int, *, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True) -> None:
        super().__init__()
        if c < 1 or not eps > 0:
            raise ValueError(f"c is at least 1, and eps above 0: got {c=}, {eps=}")
        if momentum is not None and not 0 <= momentum <= 1:
            raise ValueError(f"momentum is from 0 to 1: got {momentum}")
        self.weight = nn.Parameter(torch.ones(c)) if affine else None
        self.bias = nn.Parameter(torch.zeros(c)) if affine else None
        self.eps, self.momentum = eps, momentum
        self.running_mean: Tensor
        self.running_var: Tensor
        self.num_batches_tracked: Tensor
        self.register_buffer("running_mean", torch.zeros(c))
        self.register_buffer("running_var", torch.ones(c))
        self.register_buffer("num_batches_tracked", torch.tensor(0))

    def forward(self, x: Float[Tensor, "b c *space"]) -> Float[Tensor, "b c *space"]:
        """Normalises by the batch in training, by the running averages in evaluation."""
        if x.dim() < 2 or x.shape[1] != self.running_mean.numel():
            raise ValueError(f"axis 1 is to have size {self.running_mean.numel()}: got shape {tuple(x.shape)}")
        share = self.momentum or 0.0
        if self.training:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                share = 1 / int(self.num_batches_tracked)
        return F.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, self.training, share, self.eps
        )

    def extra_repr(self) -> str:
        affine = self.weight is not None
        return f"{self.running_mean.numel()}, eps={self.eps}, momentum={self.momentum}, {affine=}"


def claims() -> Iterator[Claim]:
    """The laws that BatchNorm obeys; `invariances` claims more."""
    for affine, inputs in ((True, shape("b:2..4 3 n:1..3")), (False, shape("b:2..3 3 2 h:1..3"))):
        norm = BatchNorm(3) if affine else BatchNorm(3, affine=False)
        norm.running_mean.copy_(torch.tensor([1.0, -2.0, 0.5]))
        norm.running_var.copy_(torch.tensor([2.0, 0.5, 4.0]))

        def equation(x: Tensor, norm: BatchNorm = norm) -> Tensor:
            per_channel = (1, -1, *[1] * (x.dim() - 2))
            mean, variance = (r.reshape(per_channel) for r in (norm.running_mean, norm.running_var))
            by_batch = normalize(x, axes_of("batch", x.dim()), eps=1e-5)
            y = by_batch if norm.training else (x - mean) / (variance + 1e-5).sqrt()
            affine = [p.reshape(per_channel) for p in norm.parameters()]
            return affine[0] * y + affine[1] if affine else y

        yield Claim(agreement(other=equation), norm, inputs, name=f"BatchNorm({affine=})")
    yield Claim(batch_independence(), BatchNorm(3).eval(), shape("b 3 n"), name="BatchNorm.eval()")
    yield Claim(agreement(other=lambda x: x), _undone, shape("b:2..4 3 n"), name="γ = deviation, β = mean")
    for momentum in (0.3, None):

        def tracked(x: Tensor, momentum: float | None = momentum) -> Tensor:
            norm = BatchNorm(3, momentum=momentum).to(x)
            for batch in (x, 2 * x, x + 1):
                norm(batch)
            return torch.stack([norm.running_mean, norm.running_var])

        def averaged(x: Tensor, momentum: float | None = momentum) -> Tensor:
            mean, variance = x.mean((0, 2)), x.var((0, 2))
            seen = torch.stack([torch.stack([mean, variance]), torch.stack([2 * mean, 4 * variance])])
            last = torch.stack([mean + 1, variance])
            if momentum is None:
                return (seen.sum(0) + last) / 3
            start = torch.stack([torch.zeros_like(mean), torch.ones_like(mean)])
            kept = 1 - momentum
            return kept**3 * start + momentum * (kept**2 * seen[0] + kept * seen[1] + last)

        yield Claim(agreement(other=averaged), tracked, shape("b:2..4 3 n"), name=f"running averages, {momentum=}")
    yield Claim(gradient(), BatchNorm(2, eps=0.1), shape("b:2..3 2 2"))


def _undone(x: Tensor) -> Tensor:
    """A batch norm whose scale and shift are the deviation and the mean of its batch."""
    norm = BatchNorm(x.shape[1]).to(x)
    deviation = (x.var((0, 2), correction=0) + norm.eps).sqrt()
    return torch.func.functional_call(norm, {"weight": deviation, "bias": x.mean((0, 2))}, x)
