"""The softmax of attention runs over the queries instead of the keys (labml#146)."""

from torch import Tensor, nn

from lawful import shape
from lawful.laws import sums_to_one

law = sums_to_one(axis=-1, output=1)
inputs = shape("b t 8")
max_sizes = {"t": 2}


class Fixed(nn.Module):
    """Attends over all positions, and returns the weights as well: batch, head, query, key."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.out = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        weights = self.normalize(q @ k.mT / 2)
        return x + self.out((weights @ v).transpose(1, 2).flatten(2)), weights

    def normalize(self, scores: Tensor) -> Tensor:
        """Normalizes over the keys."""
        return scores.softmax(-1)


class Broken(Fixed):
    """Normalizes over the queries; the shapes match, and a model trains."""

    def normalize(self, scores: Tensor) -> Tensor:
        return scores.softmax(-2)
