"""A divergence mixes clamped probabilities with unclamped logits, and is negative (pytorch#72525)."""

from torch import Tensor, nn
from torch.nn import functional as F

from lawful import shape
from lawful.laws import non_negativity

law = non_negativity()
inputs = (shape("n"), shape("n"))
max_sizes = {"n": 1}


class Fixed(nn.Module):
    r"""Measures $\mathrm{KL}(p \| q) = p (a - b) + \log(1 - p) - \log(1 - q)$ between Bernoulli variables.

    The logits $a$ of $p$ and $b$ of $q$ are scores over a temperature, as in distillation.
    """

    def __init__(self, temperature: float = 0.1) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, teacher: Tensor, student: Tensor) -> Tensor:
        a, b = teacher / self.temperature, student / self.temperature
        return F.logsigmoid(-a) - F.logsigmoid(-b) + self.probability(a) * (a - b)

    def probability(self, logit: Tensor) -> Tensor:
        return logit.sigmoid()


class Broken(Fixed):
    """Clamps the probability, which then does not match the logits."""

    def probability(self, logit: Tensor) -> Tensor:
        return logit.sigmoid().clamp(1e-3, 1 - 1e-3)
