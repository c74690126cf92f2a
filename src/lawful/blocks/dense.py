"""The dense layer: an affine map, then an activation."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.functions.activations import identity
from lawful.laws import Claim, agreement, homogeneity, linearity, shape

Activation = Callable[[Tensor], Tensor]


class Dense(nn.Module):
    r"""Applies an affine map, and an activation to each entry of the result.

    $$y = \sigma(W x + b), \qquad y_i = \sigma\Bigl(\sum_j W_{ij} x_j + b_i\Bigr)$$

    Each row of $W$ is a neuron: its dot product with $x$ says how alike the two are. Without an activation the map
    is affine, and linear only if there is no $b$. The parameters `weight` $W$ and `bias` $b$ are those of PyTorch's
    `Linear`, so that weights move over.

    Args:
        d_in: The size of $x$.
        d_out: The size of $y$: the number of neurons, the width of the layer.
        activation: $\sigma$, any function of a tensor.
        bias: Whether there is a $b$.

    Examples:
        >>> layer = Dense(3, 2, activation=torch.relu)
        >>> layer(torch.zeros(5, 3)).shape
        torch.Size([5, 2])
    """

    def __init__(self, d_in: int, d_out: int, *, activation: Activation = identity, bias: bool = True) -> None:
        if min(d_in, d_out) < 1:
            raise ValueError(f"d_in and d_out are at least 1: got d_in={d_in}, d_out={d_out}")
        super().__init__()
        linear = nn.Linear(d_in, d_out, bias=bias)
        self.weight, self.bias = linear.weight, linear.bias
        self.activation = activation

    def forward(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        """Maps the last axis."""
        self._check(x)
        return self.activation(F.linear(x, self.weight, self.bias))

    def _check(self, x: Tensor) -> None:
        """Refuses an input whose last axis has another size."""
        if x.shape[-1:] != self.weight.shape[1:]:
            raise ValueError(f"the last axis is to have size {self.weight.shape[1]}: got shape {tuple(x.shape)}")

    def extra_repr(self) -> str:
        d_out, d_in = self.weight.shape
        return f"{d_in}, {d_out}, activation={name_of(self.activation)}, bias={self.bias is not None}"


def name_of(f: object) -> str:
    """Returns the name of a function, or that of the class of a module."""
    return getattr(f, "__name__", type(f).__name__)


def augmented(layer: Dense) -> Dense:
    r"""Folds the bias of a layer into its weight, as the layer of an input that has a 1 at its end.

    $$W x + b = \begin{bmatrix} W & b \end{bmatrix} \begin{bmatrix} x \\ 1 \end{bmatrix}$$

    Args:
        layer: The layer with the weight $W$ and the bias $b$.

    Examples:
        >>> layer = Dense(2, 1)
        >>> x = torch.tensor([3.0, 4.0, 1.0])
        >>> torch.allclose(augmented(layer)(x), layer(x[:2]))
        True
    """
    _, b = _affine(layer)
    return _filled(torch.cat([layer.weight.detach(), b[:, None]], dim=1), None, layer.activation)


def collapse(first: Dense, second: Dense) -> Dense:
    r"""Multiplies out two layers, the first without an activation, into one that is the same map.

    $$W_2 (W_1 x + b_1) + b_2 = (W_2 W_1) \, x + (W_2 b_1 + b_2)$$

    This is why layers are stacked with an activation in between: without one, depth adds nothing.

    Args:
        first: The layer that is applied first, $W_1$ and $b_1$.
        second: The layer that is applied to its output, $W_2$ and $b_2$; its activation is kept.

    Examples:
        >>> first, second = Dense(2, 3), Dense(3, 1)
        >>> collapse(first, second).weight.shape
        torch.Size([1, 2])
    """
    if not (first.activation is identity or isinstance(first.activation, nn.Identity)):
        raise ValueError(f"two layers are one only with no activation in between: got {name_of(first.activation)}")
    given, taken = len(first.weight), second.weight.shape[1]
    if given != taken:
        raise ValueError(f"the second layer is to take what the first gives: got {given} and {taken}")
    (w1, b1), (w2, b2) = _affine(first), _affine(second)
    return _filled(w2 @ w1, w2 @ b1 + b2, second.activation)


def _affine(layer: Dense) -> tuple[Tensor, Tensor]:
    """The weight, and the bias or zeros."""
    weight = layer.weight.detach()
    return weight, weight.new_zeros(len(weight)) if layer.bias is None else layer.bias.detach()


def _filled(weight: Tensor, bias: Tensor | None, activation: Activation) -> Dense:
    """A layer with these parameters."""
    d_out, d_in = weight.shape
    with torch.device("meta"):
        layer = Dense(d_in, d_out, activation=activation, bias=bias is not None)
    layer.weight = nn.Parameter(weight)
    if bias is not None:
        layer.bias = nn.Parameter(bias)
    return layer


def claims() -> Iterator[Claim]:
    """The laws that a dense layer obeys."""
    layer = Dense(4, 3, activation=torch.tanh)

    def neurons(x: Tensor) -> Tensor:
        rows = zip(layer.weight, layer.bias, strict=True)
        return torch.stack([torch.tanh((w * x).sum(-1) + b) for w, b in rows], dim=-1)

    yield Claim(agreement(other=neurons), layer, shape("b t 4"), name="Dense(4, 3, tanh)")
    yield Claim(linearity(), Dense(4, 3, bias=False), shape("b 4"), name="Dense(bias=False)")
    yield Claim(homogeneity(), Dense(4, 3, activation=torch.relu, bias=False), shape("b 4"), name="Dense(relu)")

    affine, second = Dense(4, 5), Dense(5, 3, activation=torch.relu)

    def slope(x: Tensor) -> Tensor:
        return affine(x) - affine(torch.zeros_like(x))

    def with_one(x: Tensor) -> Tensor:
        return augmented(affine)(torch.cat([x, torch.ones_like(x[..., :1])], dim=-1))

    def collapsed(x: Tensor) -> Tensor:
        return collapse(affine, second)(x)

    yield Claim(linearity(), slope, shape("b 4"), name="Dense less its value at 0")
    yield Claim(agreement(other=with_one), affine, shape("b 4"), name="Dense, augmented")
    yield Claim(agreement(other=collapsed), nn.Sequential(affine, second), shape("b 4"), name="two Dense, collapsed")
