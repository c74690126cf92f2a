"""The mean loss per token counts the masked tokens, too (SkyRL#462, d2l-en#2076)."""

from torch import Tensor, nn
from torch.nn import functional as F

from lawful import mask, shape, tokens
from lawful.laws import mean_over_unmasked_positions

law = mean_over_unmasked_positions()
inputs = (shape("b t 8"), tokens("b t", vocab_size=4), mask("b t"))
max_sizes = {"b": 2, "t": 2}


class Fixed(nn.Module):
    """Divides the losses of the tokens by the number of unmasked tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(8, 4)

    def forward(self, x: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        return self.mean(F.cross_entropy(self.score(x).mT, labels, reduction="none") * mask, mask)

    def mean(self, losses: Tensor, mask: Tensor) -> Tensor:
        return losses.sum() / mask.sum()


class Broken(Fixed):
    """Divides by the number of all tokens, so that the loss is smaller the longer the padding is."""

    def mean(self, losses: Tensor, mask: Tensor) -> Tensor:
        return losses.mean()
