"""A model with standardising as a part of it: raw data in, raw predictions out."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.blocks import Standardize
from lawful.laws import Claim, agreement, invariance, shape
from lawful.models.linear import LinearRegression, LinearRegressionConfig


class Standardized(nn.Module):
    r"""Standardises what goes into a model, and undoes it for what comes out.

    $$y = \sigma_y \, f\Bigl(\frac{x - \mu_x}{\sigma_x}\Bigr) + \mu_y$$

    The moments are fitted to the training data only, and saved with the weights. A classifier has no $\mu_y$ and
    $\sigma_y$: its scores come out as they are. A loss in standard units is that of `outputs(model(x))` and
    `outputs(y)`.

    Args:
        model: $f$.
        inputs: The layer of $\mu_x$ and $\sigma_x$.
        outputs: The layer of $\mu_y$ and $\sigma_y$, or None.

    Examples:
        >>> model = Standardized(nn.Identity(), inputs=Standardize(1))
        >>> model.fit(torch.tensor([[1.0], [3.0]]))(torch.tensor([[5.0]]))
        tensor([[3.]])
    """

    def __init__(self, model: nn.Module, *, inputs: Standardize, outputs: Standardize | None = None) -> None:
        super().__init__()
        self.model, self.inputs, self.outputs = model, inputs, outputs

    def fit(self, x: Float[Tensor, "n ..."], y: Float[Tensor, "n ..."] | None = None) -> Standardized:
        """Reads the moments of inputs, and of targets where there is a layer for them."""
        if (y is None) != (self.outputs is None):
            wanted = "no targets" if self.outputs is None else "targets"
            raise ValueError(f"{wanted} were wanted: got {'none' if y is None else 'some'}")
        self.inputs.fit(x)
        if self.outputs is not None and y is not None:
            self.outputs.fit(y)
        return self

    def forward(self, x: Float[Tensor, "b ..."]) -> Float[Tensor, "b ..."]:
        """Predicts in the units of the data."""
        y = self.model(self.inputs(x))
        return y if self.outputs is None else self.outputs.inverse(y)


def claims() -> Iterator[Claim]:
    """The laws that a standardised model obeys."""
    x = torch.tensor([[0.0, 1.0], [4.0, 1.0], [0.0, 3.0], [4.0, 3.0]])
    y = torch.tensor([[-1.0], [5.0], [5.0], [-1.0]])
    linear = LinearRegression(LinearRegressionConfig(d_in=2))
    model = Standardized(linear, inputs=Standardize(2), outputs=Standardize(1)).fit(x, y)

    def equation(x: Tensor) -> Tensor:
        return 3 * linear((x - 2) / x.new_tensor([2, 1])) + 2

    def trained_on_other_units(x: Tensor) -> Tensor:
        core = Standardized(nn.Tanh(), inputs=Standardize(2)).to(x)
        return core.fit(x)(x)

    units = invariance(
        sample=lambda draw: (draw.choice((0.5, 3.0), "factor"), draw.choice((0.0, -2.0), "shift")),
        act=lambda g, x: g[0] * x + g[1],
    )
    yield Claim(agreement(other=equation), model, shape("b 2"), name="Standardized")
    yield Claim(units, trained_on_other_units, shape("n:3..5 2"), name="Standardized, in other units")
