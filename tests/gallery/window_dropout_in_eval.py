"""A function for windowed attention applies dropout by default, also in eval mode (torchvision#7103)."""

from torch import Tensor, nn
from torch.nn import functional as F

from lawful import shape
from lawful.laws import determinism

law = determinism()
inputs = shape("b n 8")
max_sizes = {"n": 1}


def window_attention(x: Tensor, qkv: nn.Linear, window: int, dropout: float, training: bool = True) -> Tensor:
    """Attends within windows of a sequence that is padded to a multiple of them."""
    n = x.shape[1]
    windows = F.pad(x, (0, 0, 0, -n % window)).unflatten(1, (-1, window))
    q, k, v = qkv(windows).chunk(3, dim=-1)
    weights = F.dropout((q @ k.mT / 8**0.5).softmax(-1), dropout, training)
    return F.dropout((weights @ v).flatten(1, 2)[:, :n], dropout, training)


class Fixed(nn.Module):
    """Attends within windows, with dropout in training."""

    def __init__(self, dropout: float = 0.2) -> None:
        super().__init__()
        self.dropout = dropout
        self.qkv = nn.Linear(8, 24)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.attend(x)

    def attend(self, x: Tensor) -> Tensor:
        return window_attention(x, self.qkv, 4, self.dropout, training=self.training)


class Broken(Fixed):
    """Omits the last argument, `training`."""

    def attend(self, x: Tensor) -> Tensor:
        return window_attention(x, self.qkv, 4, self.dropout)
