"""The causal mask is applied only together with another mask (xformers#103)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lawful import shape
from lawful.laws import causality

law = causality(time=1)
inputs = shape("b t 8")
max_sizes = {"t": 2}


class Fixed(nn.Module):
    """Causal attention with an optional mask."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.out = nn.Linear(8, 8)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        past = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).tril()
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=self.visible(past, mask))
        return self.out(y.transpose(1, 2).flatten(2))

    def visible(self, past: Tensor, mask: Tensor | None) -> Tensor | None:
        """Combines the two masks."""
        return past if mask is None else past & mask


class Broken(Fixed):
    """Returns early without another mask, and skips the causal mask."""

    def visible(self, past: Tensor, mask: Tensor | None) -> Tensor | None:
        return None if mask is None else past & mask
