"""A model that standardizes its inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterator

from jaxtyping import Float
from torch import Tensor, nn

from lawful.blocks import Standardize
from lawful.laws import Claim, invariance, shape


class Standardized(nn.Module):
    r"""Standardizes the inputs of a model, and maps its outputs back to the units of the targets.

    $$y = \sigma_y \, f\Bigl(\frac{x - \mu_x}{\sigma_x}\Bigr) + \mu_y$$

    The statistics are fitted to the training data only, and saved with the weights. A classifier has no output
    normalizer. The loss in standardized units compares `output_normalizer(model(x))` with `output_normalizer(y)`.

    Args:
        model: $f$.
        normalizer: Standardization of the inputs.
        output_normalizer: Standardization of the targets. None for a classifier.

    Examples:
        >>> import torch
        >>> model = Standardized(nn.Identity(), normalizer=Standardize(1))
        >>> model.fit_normalizer(torch.tensor([[1.0], [3.0]]))(torch.tensor([[5.0]]))
        tensor([[3.]])
    """

    def __init__(
        self, model: nn.Module, *, normalizer: Standardize, output_normalizer: Standardize | None = None
    ) -> None:
        super().__init__()
        self.model, self.normalizer, self.output_normalizer = model, normalizer, output_normalizer

    def fit_normalizer(self, x: Float[Tensor, "n ..."], y: Float[Tensor, "n ..."] | None = None) -> Standardized:
        """Fits the mean and standard deviation of inputs and targets.

        Args:
            x: Training inputs.
            y: Training targets, if there is an output normalizer.
        """
        if (y is None) != (self.output_normalizer is None):
            raise ValueError("pass targets y if and only if the model has an output_normalizer")
        self.normalizer.fit(x)
        if self.output_normalizer is not None and y is not None:
            self.output_normalizer.fit(y)
        return self

    def forward(self, x: Float[Tensor, "b ..."]) -> Float[Tensor, "b ..."]:
        """Predicts in the units of the targets."""
        y = self.model(self.normalizer(x))
        return y if self.output_normalizer is None else self.output_normalizer.inverse(y)


def claims() -> Iterator[Claim]:
    """The laws of a standardized model."""

    def fitted(x: Tensor) -> Tensor:
        return Standardized(nn.Tanh(), normalizer=Standardize(2)).to(x).fit_normalizer(x)(x)

    units = invariance(
        sample=lambda draw: (draw.choice((0.5, 3.0), "factor"), draw.choice((0.0, -2.0), "shift")),
        act=lambda g, x: g[0] * x + g[1],
    )
    yield Claim(units, fitted, shape("n:3..5 2"), name="Standardized, in other units")
