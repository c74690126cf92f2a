"""An adapter is merged into its weight and unmerged with another formula (microsoft/LoRA#61)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lawful import tokens
from lawful.laws import train_eval_round_trip

law = train_eval_round_trip()
inputs = tokens("b t", vocab_size=6)
max_sizes = {"b": 1, "t": 1}


class Fixed(nn.Module):
    """Embeds tokens by a table and a low-rank adapter, merged into the table in eval mode."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(6, 6), requires_grad=False)
        self.a = nn.Parameter(torch.randn(2, 6))
        self.b = nn.Parameter(torch.randn(6, 2))
        self.merged = False

    def train(self, mode: bool = True) -> "Fixed":
        if mode and self.merged:
            self.table.data -= (self.b @ self.a).detach().mT
        if not mode and not self.merged:
            self.table.data += self.merge().detach()
        self.merged = not mode
        return super().train(mode)

    def merge(self) -> Tensor:
        """Returns the update of the table: a row for each token."""
        return (self.b @ self.a).mT

    def forward(self, x: Tensor) -> Tensor:
        y = F.embedding(x, self.table)
        return y if self.merged else y + F.embedding(x, self.a.mT) @ self.b.mT


class Broken(Fixed):
    """Forgets to transpose; the error shows unless the table is square."""

    def merge(self) -> Tensor:
        return self.b @ self.a
