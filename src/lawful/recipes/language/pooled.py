"""The pooled encoder: a classifier of texts."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor, nn

from lawful.blocks import Dense
from lawful.functions.attention import Mask
from lawful.models.transformer import Encoder


class Pooled(nn.Module):
    r"""Averages the vectors that an encoder gives to the tokens of a text, and scores the classes.

    $$y = W \frac{1}{n} \sum_{i \le n} x_i + b$$

    Tokens that are padding are not seen, and not counted.

    Args:
        encoder: What gives $x$.
        classes: The number of classes.
        padding: The token that stands where there is none.

    Examples:
        >>> import torch
        >>> from lawful.models.transformer import EncoderConfig
        >>> model = Pooled(Encoder(EncoderConfig(vocab=5, d=8, depth=1)), classes=3, padding=4)
        >>> model(torch.tensor([[1, 2, 3], [1, 4, 4]])).shape
        torch.Size([2, 3])
    """

    def __init__(self, encoder: Encoder, *, classes: int, padding: int) -> None:
        super().__init__()
        self.encoder, self.padding = encoder, padding
        self.head = Dense(encoder.config.d, classes)
        nn.init.zeros_(self.head.weight)

    def forward(self, tokens: Int[Tensor, "b t"]) -> Float[Tensor, "b classes"]:
        """The scores of the classes."""
        there = tokens != self.padding
        x = self.encoder(tokens, mask=Mask(padding=there)).masked_fill(~there[..., None], 0.0)
        return self.head(x.sum(1) / there.sum(1, keepdim=True).clamp_min(1))
