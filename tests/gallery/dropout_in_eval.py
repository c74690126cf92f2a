"""Functional attention applies dropout in eval mode (nanoGPT#240)."""

from torch import Tensor, nn
from torch.nn import functional as F

from lawful import shape
from lawful.laws import determinism

law = determinism()
inputs = shape("b t 8")
max_sizes = {"t": 2}


class Fixed(nn.Module):
    """Attends to the past, with dropout on the weights in training."""

    def __init__(self, dropout: float = 0.2) -> None:
        super().__init__()
        self.dropout = dropout
        self.qkv = nn.Linear(8, 24)
        self.out = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.rate(), is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))

    def rate(self) -> float:
        return self.dropout if self.training else 0.0


class Broken(Fixed):
    """Passes the dropout rate in both modes."""

    def rate(self) -> float:
        return self.dropout
