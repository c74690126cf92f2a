"""The likelihood of levels: the share of each cell under a mixture of logistics."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.data.dequantizer import Dequantizer
from lawful.functions.noise import uniform_noise
from lawful.laws import Claim, agreement, made


class LevelLikelihood(nn.Module):
    r"""Takes each entry as one of several levels, with what a mixture of logistics gives to its cell.

    $$P(k \mid z) = \sum_m \pi_m \Bigl[\sigma \Bigl(\frac{t_k + h - \mu_m}{s_m}\Bigr) -
    \sigma \Bigl(\frac{t_k - h - \mu_m}{s_m}\Bigr)\Bigr], \qquad p(x \mid z) = \prod_j \frac{P(k_j \mid z)}{w}$$

    The levels $t_k$ go from -1 to 1 and are $2h$ apart; the outermost cells reach to infinity, so that blank and full
    pixels can be sure. The density is constant on each cell of width $w$, in the units of the data: a `Dequantizer`
    turns it into the bits of the levels themselves, with no gap. The logarithm of a difference of sigmoids is
    $\log \sigma(a) + \log \sigma(-b) + \log(1 - e^{b - a})$: no digits are lost far from a middle.

    Reference:
        Salimans, Karpathy, Chen and Kingma, *PixelCNN++*, 2017.

    Args:
        shape: The shape of an example.
        levels: The levels of the data.
        components: How many logistics are mixed.

    Examples:
        >>> likelihood = LevelLikelihood((2,), Dequantizer(levels=17))
        >>> likelihood.outputs, likelihood.log_prob(torch.zeros(1, 2), torch.zeros(1, 18)).shape
        (18, torch.Size([1]))
    """

    middles: Tensor

    def __init__(self, shape: tuple[int, ...], levels: Dequantizer, *, components: int = 3) -> None:
        super().__init__()
        if components < 1:
            raise ValueError(f"at least 1 component was wanted: got {components}")
        self.shape, self.levels, self.components = shape, levels, components
        self.outputs = 3 * components * math.prod(shape)
        middles = torch.linspace(-1, 1, components + 2)[1:-1]
        self.register_buffer("middles", middles.reshape(-1, *[1] * len(shape)), persistent=False)

    @property
    def reach(self) -> float:
        """$h$, half of what two levels are apart."""
        return 1 / (self.levels.levels - 1)

    def fit(self, x: Float[Tensor, "n *shape"]) -> LevelLikelihood:
        """Looks whether the data lie in cells."""
        self.inputs(x)
        return self

    def inputs(self, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
        """Returns the levels, from -1 to 1: where in their cells values are makes no difference."""
        low, high = self.levels.support
        least, most = (float(end) for end in x.aminmax()) if x.numel() else (low, high)
        slack = 1e-3 * self.levels.width
        if not low - slack <= least <= most <= high + slack:
            raise ValueError(f"values from {low:g} to {high:g} were wanted, for levels: got {least:g} to {most:g}")
        place = ((x - self.levels.low) / self.levels.width).round().clamp(0, self.levels.levels - 1)
        return 2 * self.reach * place - 1

    def read(self, y: Float[Tensor, "*m o"]) -> tuple[Tensor, Tensor, Tensor]:
        r"""Returns $\log \pi$, $\mu$ and $\log s$, each of the components before the shape; none is far below $h$."""
        weights, means, scales = y.unflatten(-1, (3, self.components, *self.shape)).unbind(-len(self.shape) - 2)
        axis = -len(self.shape) - 1
        return weights.log_softmax(axis), means + self.middles, (scales - 1).clamp(math.log(self.reach) - 3, 7)

    def log_prob(self, x: Float[Tensor, "n *shape"], y: Float[Tensor, "*m n o"]) -> Float[Tensor, "*m n"]:
        r"""Returns $\log p(x \mid z)$."""
        d = len(self.shape)
        weights, means, scales = self.read(y)
        t, inverse = self.inputs(x).unsqueeze(-d - 1), (-scales).exp()
        lowest, highest = t < self.reach - 1, t > 1 - self.reach
        logs = torch.where(highest, 0.0, F.logsigmoid((t + self.reach - means) * inverse))
        logs = logs + torch.where(lowest, 0.0, F.logsigmoid((means + self.reach - t) * inverse))
        inside = (-torch.expm1(-2 * self.reach * inverse)).log()
        logs = weights + logs + torch.where(lowest | highest, 0.0, inside)
        each = logs.logsumexp(-d - 1).sum([*range(-d, 0)])
        return each - math.prod(self.shape) * math.log(self.levels.width)

    def mean(self, y: Float[Tensor, "n o"]) -> Float[Tensor, "n *shape"]:
        r"""Returns the mean of the logistics, cut off at the ends: that of the levels to within half a step.

        $$-1 + \sum_m \pi_m s_m \Bigl[\log(1 + e^{(\mu_m + 1) / s_m}) - \log(1 + e^{(\mu_m - 1) / s_m})\Bigr]$$
        """
        weights, means, scales = self.read(y)
        above, below = (F.softplus((means + end) * (-scales).exp()) for end in (1, -1))
        t = (weights.exp() * scales.exp() * (above - below)).sum(1) - 1
        return self.levels.low + (t + 1) / 2 * (self.levels.high - self.levels.low)

    def sample(self, y: Float[Tensor, "n o"], *, seed: int, stream: int, first: int) -> Float[Tensor, "n *shape"]:
        """Draws levels, and a place in the cell of each."""
        weights, means, scales = self.read(y)
        u = uniform_noise(len(y), 3, *self.shape, seed=seed, stream=stream, first=first, dtype=y.dtype, device=y.device)
        which = (u[:, :1] > weights.exp().cumsum(1)[:, :-1]).sum(1, keepdim=True)
        mean, scale = (z.gather(1, which).squeeze(1) for z in (means, scales.exp()))
        t = mean + scale * u[:, 1].logit()
        place = ((t + 1) / (2 * self.reach)).round().clamp(0, self.levels.levels - 1)
        return self.levels.low + self.levels.width * (place + u[:, 2] - 0.5)


def claims() -> Iterator[Claim]:
    """The laws that the likelihood of levels obeys."""
    levels = Dequantizer(levels=4, low=2.0, high=5.0)
    model = LevelLikelihood((2,), levels, components=2)
    outputs = made(lambda y: y.tanh() / 2, "n 12")

    def inner(y: Tensor) -> Tensor:
        return model.to(y).log_prob(y.new_tensor([[3.0, 5.0]]).expand(len(y), 2), y)

    def written_out(y: Tensor) -> Tensor:
        weights, means, scales = y.unflatten(-1, (3, 2, 2)).unbind(1)
        means, scales = means + y.new_tensor([[-1 / 3], [1 / 3]]), (scales - 1).exp()
        upper, lower = (((y.new_tensor(t) - means) / scales).sigmoid() for t in ([0.0, 9e9], [-2 / 3, 2 / 3]))
        return (weights.softmax(1) * (upper - lower)).sum(1).log().sum(1)

    yield Claim(replace(agreement(other=written_out), cases=20), inner, outputs, name="LevelLikelihood.log_prob")

    def moved(y: Tensor) -> Tensor:
        return model.to(y).log_prob(y.new_tensor([[3.4, 4.6]]).expand(len(y), 2), y)

    yield Claim(replace(agreement(other=inner), cases=10), moved, outputs, name="LevelLikelihood, constant on cells")
