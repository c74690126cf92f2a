"""The fused path inverts the meaning of the mask (x-transformers#160, TransformerEngine#614)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lawful import mask, shape
from lawful.laws import masked_positions_have_no_influence

law = masked_positions_have_no_influence(time=1)
inputs = (shape("b t 8"), mask("b t"))
max_sizes = {"t": 2}


class Fixed(nn.Module):
    """Attends to the visible positions: step by step in training, fused in evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.out = nn.Linear(8, 8)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        hidden = ~mask[:, None, None, :]
        y = self.plain(q, k, v, hidden) if self.training else self.fused(q, k, v, hidden)
        return self.out(y.transpose(1, 2).flatten(2))

    def plain(self, q: Tensor, k: Tensor, v: Tensor, hidden: Tensor) -> Tensor:
        scores = q @ k.mT / 2
        return scores.masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(-1) @ v

    def fused(self, q: Tensor, k: Tensor, v: Tensor, hidden: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=~hidden)


class Broken(Fixed):
    """Passes the mask unchanged, although the fused function uses the opposite convention."""

    def fused(self, q: Tensor, k: Tensor, v: Tensor, hidden: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=hidden)
