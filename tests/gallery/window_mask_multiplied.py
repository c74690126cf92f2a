"""A window multiplied into the additive causal mask turns masked entries into 0 (transformers#31673)."""

import torch
from torch import Tensor, nn

from lawful import shape
from lawful.laws import causality

law = causality(time=1)
inputs = shape("b t 8")
max_sizes = {"t": 2}


class Fixed(nn.Module):
    """Attends to the last `window` positions through an additive mask, where 0 means visible."""

    def __init__(self, window: int = 4) -> None:
        super().__init__()
        self.window = window
        self.qkv = nn.Linear(8, 24)
        self.out = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        t = x.shape[1]
        causal = x.new_full((t, t), torch.finfo(x.dtype).min).triu(1)
        far = torch.ones(t, t, dtype=torch.bool, device=x.device).tril(-self.window)
        weights = (q @ k.mT / 2 + self.narrow(causal, far)).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))

    def narrow(self, causal: Tensor, far: Tensor) -> Tensor:
        """Hides the far past as well."""
        return causal.masked_fill(far, torch.finfo(causal.dtype).min)


class Broken(Fixed):
    """Multiplies as if 0 meant hidden: future positions become 0, which means visible."""

    def narrow(self, causal: Tensor, far: Tensor) -> Tensor:
        return causal * far
