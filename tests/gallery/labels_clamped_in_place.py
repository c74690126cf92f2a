"""The loss clamps the caller's labels in place (transformers#47742)."""

from torch import Tensor, nn
from torch.nn import functional as F

from lawful import shape, tokens
from lawful.laws import no_mutation

law = no_mutation()
inputs = (shape("b t 8"), tokens("b", vocab_size=16))
max_sizes = {"b": 1, "t": 1}


class Fixed(nn.Module):
    """Scores each position as the start of an answer; a start beyond the end is ignored."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(8, 1)

    def forward(self, x: Tensor, start: Tensor) -> Tensor:
        scores = self.score(x).squeeze(-1)
        beyond = scores.shape[1]
        return F.cross_entropy(scores, self.cut(start, beyond), ignore_index=beyond, reduction="none")

    def cut(self, start: Tensor, beyond: int) -> Tensor:
        return start.clamp(0, beyond)


class Broken(Fixed):
    """Clamps the labels in place; the caller sees a change only if a start is beyond the end."""

    def cut(self, start: Tensor, beyond: int) -> Tensor:
        return start.clamp_(0, beyond)
