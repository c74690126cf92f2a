"""The pooled encoder: a classifier of texts."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor, nn

from lawful.blocks import Dense, Dropout
from lawful.functions.attention import Mask
from lawful.models.transformer import Encoder


class Pooled(nn.Module):
    r"""Averages the vectors that an encoder gives to the tokens of a text, and scores the classes.

    $$y = W \frac{1}{n} \sum_{i \le n} x_i + b$$

    Tokens that are padding are not seen, and not counted. In training others are left out of the average, at random: a
    class is then to be told from any part of a text, and few texts are harder to learn by heart.

    Args:
        encoder: What gives $x$.
        classes: The number of classes.
        padding: The token that stands where there is none.
        hide: The probability that a token is left out of the average in training.

    Examples:
        >>> import torch
        >>> from lawful.models.transformer import EncoderConfig
        >>> model = Pooled(Encoder(EncoderConfig(vocab=5, d=8, depth=1)), classes=3, padding=4)
        >>> model(torch.tensor([[1, 2, 3], [1, 4, 4]])).shape
        torch.Size([2, 3])
    """

    def __init__(self, encoder: Encoder, *, classes: int, padding: int, hide: float = 0.0) -> None:
        super().__init__()
        self.encoder, self.padding, self.hide = encoder, padding, Dropout(hide)
        self.head = Dense(encoder.config.d, classes)

    def forward(self, tokens: Int[Tensor, "b t"]) -> Float[Tensor, "b classes"]:
        """The scores of the classes."""
        there = tokens != self.padding
        counted = self.hide(there.float()) > 0
        x = self.encoder(tokens, mask=Mask(padding=there)).masked_fill(~counted[..., None], 0.0)
        return self.head(x.sum(1) / counted.sum(1, keepdim=True).clamp_min(1))
