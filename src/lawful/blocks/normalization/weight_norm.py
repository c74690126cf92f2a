"""Weight normalisation: a weight as a length and a direction."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.laws import Claim, agreement, gradient, linearity, made, scale_invariance, shape


class WeightNorm(nn.Module):
    r"""Makes the vectors of a weight from their lengths and directions.

    $$w = g \, \frac{v}{\lVert v \rVert}$$

    The scale of $v$ makes no difference, and $v = 0$ gives no number. It is a parametrisation, to be put on any weight:
    `parametrize.register_parametrization(layer, "weight", WeightNorm())`, from `torch.nn.utils`. The parameters are
    then `original0`, which is $g$, and `original1`, which is $v$, as with PyTorch's own `weight_norm`.

    Reference:
        Salimans and Kingma, *Weight Normalization: A Simple Reparameterization to Accelerate Training of Deep Neural
        Networks*, 2016.

    Args:
        axis: The axis that counts the vectors; each runs over all other axes.

    Examples:
        >>> WeightNorm()(torch.tensor([[10.0]]), torch.tensor([[3.0, 4.0]]))
        tensor([[6., 8.]])
    """

    def __init__(self, *, axis: int = 0) -> None:
        super().__init__()
        self.axis = axis

    def forward(self, g: Float[Tensor, "*ones"], v: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Gives each direction its length."""
        n = v.shape[self.axis]
        if g.dim() != v.dim() or not n == g.shape[self.axis] == g.numel():
            raise ValueError(f"one length for each of {n} vectors was wanted: got shape {tuple(g.shape)}")
        return torch._weight_norm(v, g, self.axis % v.dim())

    def right_inverse(self, w: Float[Tensor, "*shape"]) -> tuple[Float[Tensor, "*ones"], Float[Tensor, "*shape"]]:
        """Returns lengths and directions that make the weight: its own, not scaled."""
        others = tuple(axis for axis in range(w.dim()) if axis != self.axis % w.dim())
        return torch.linalg.vector_norm(w, dim=others, keepdim=True), w

    def extra_repr(self) -> str:
        return f"axis={self.axis}"


def claims() -> Iterator[Claim]:
    """The laws that WeightNorm obeys; `invariances` claims more."""

    def away_from_zero(x: Tensor) -> Tensor:
        return x + torch.where(x < 0, -1.0, 1.0)

    directions = made(away_from_zero, "2 3 4")
    for axis, lengths in ((0, "2 1 1"), (1, "1 3 1"), (-1, "1 1 4")):
        norm = WeightNorm(axis=axis)

        def equation(g: Tensor, v: Tensor, axis: int = axis) -> Tensor:
            first = v.movedim(axis, 0)
            length = first.square().sum((1, 2), keepdim=True).sqrt()
            return g * (first / length).movedim(0, axis)

        yield Claim(agreement(other=equation), norm, (shape(lengths), directions), name=f"WeightNorm({axis=})")

        def there_and_back(w: Tensor, norm: WeightNorm = norm) -> Tensor:
            return norm(*norm.right_inverse(w))

        yield Claim(agreement(other=lambda w: w), there_and_back, directions, name=f"its inverse, {axis=}")
    norm = WeightNorm()
    both = (shape("2 1"), made(away_from_zero, "2 3"))
    yield Claim(scale_invariance(axis=1, input=1), norm, both)
    yield Claim(linearity(input=0), norm, both)
    yield Claim(gradient(), norm, both)
