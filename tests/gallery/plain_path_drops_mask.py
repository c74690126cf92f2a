"""The path without the fused kernel drops the causal mask (keras#23038)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lawful import shape
from lawful.laws import switch_agreement

law = switch_agreement(attribute="fused")
inputs = shape("b t 8")
max_sizes = {"t": 2}


class Fixed(nn.Module):
    """Causal attention: fused, or plain if the weights are requested."""

    def __init__(self) -> None:
        super().__init__()
        self.fused = True
        self.qkv = nn.Linear(8, 24)
        self.out = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True) if self.fused else self.weights(q, k) @ v
        return self.out(y.transpose(1, 2).flatten(2))

    def weights(self, q: Tensor, k: Tensor) -> Tensor:
        return self.mask(q @ k.mT / 2).softmax(-1)

    def mask(self, scores: Tensor) -> Tensor:
        """Hides the future."""
        return scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)


class Broken(Fixed):
    """Relies on the fused kernel for the mask, but does not call it."""

    def mask(self, scores: Tensor) -> Tensor:
        return scores
