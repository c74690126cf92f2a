"""A causal mask aligned to the top left lets a query with a cache see the first key only (pytorch#108108)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lawful import shape
from lawful.laws import agreement


def last_of_full_pass(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attends with all queries, and keeps the last."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)[..., -1:, :]


law = agreement(other=last_of_full_pass)
inputs = (shape("b 2 t 4"), shape("b 2 t 4"), shape("b 2 t 4"))
max_sizes = {"t": 2}


class Fixed(nn.Module):
    """Attends with the newest query to the cached and new keys and values."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self.attend(q[..., -1:, :], k, v)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Aligns the mask to the bottom right: the last query sees the last key."""
        t, s = q.shape[-2], k.shape[-2]
        past = torch.ones(t, s, dtype=torch.bool, device=q.device).tril(s - t)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=past)


class Broken(Fixed):
    """Uses `is_causal`, where the first query sees only the first key."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
