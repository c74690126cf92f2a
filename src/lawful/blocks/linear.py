"""The dense layer: an affine map, then an activation.

Weight tying: two modules, one parameter.
The bilinear layer: linear in each of two inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.functions.activations import identity
from lawful.laws import Claim, agreement, homogeneity, linearity, shape, state_dict_round_trip, tokens, weight_sharing

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


def _dense_claims() -> Iterator[Claim]:
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


def tie_weights(source: nn.Module, name: str, target: nn.Module, target_name: str) -> None:
    r"""Makes a parameter of one module that of another: one tensor, not a copy.

    Both modules then read and train the same numbers, and the gradient is the sum of what the two uses give. Copying,
    saving, loading and moving a model that holds both keep the tie; a new parameter in the place of one of them, as
    `load_state_dict(..., assign=True)` puts there, ends it.

    Reference:
        Press and Wolf, *Using the Output Embedding to Improve Language Models*, 2017.

    Args:
        source: The module that has the parameter.
        name: Its name there, such as `"weight"`.
        target: The module that is to use it too.
        target_name: The name of the parameter of `target` that it replaces.

    Examples:
        >>> embedding, head = nn.Embedding(65, 8), Dense(8, 65, bias=False)
        >>> tie_weights(embedding, "weight", head, "weight")
        >>> head.weight is embedding.weight
        True
    """
    shared, replaced = source.get_parameter(name), target.get_parameter(target_name)
    if shared.shape != replaced.shape:
        raise ValueError(
            f"tied parameters are to have one shape: got {name} {tuple(shared.shape)} "
            f"and {target_name} {tuple(replaced.shape)}"
        )
    path, _, leaf = target_name.rpartition(".")
    setattr(target.get_submodule(path), leaf, shared)


def _tying_claims() -> Iterator[Claim]:
    """The laws that tied weights obey."""
    model = nn.Sequential(nn.Embedding(5, 3), Dense(3, 5, bias=False))
    tie_weights(model, "0.weight", model, "1.weight")

    def gram(x: Tensor) -> Tensor:
        w = model.get_parameter("0.weight")
        return (w @ w.mT)[x]

    for law in (weight_sharing(names=("0.weight", "1.weight")), agreement(other=gram), state_dict_round_trip()):
        yield Claim(law, model, tokens("b t", vocab_size=5), name="tied embedding and head")


class Bilinear(nn.Bilinear):
    r"""Multiplies every entry of one vector with every entry of another, and weighs the products.

    $$z_k = x^\top A_k \, y + b_k = \sum_{ij} A_{kij} \, x_i y_j + b_k$$

    Without $b$ it is linear in $x$ and linear in $y$; with both together it is not. The parameters `weight` $A$, of
    shape (d_out, d_x, d_y), and `bias` $b$ are those of PyTorch's own.

    Args:
        sizes: The sizes of $x$ and of $y$.
        d_out: The size of $z$.
        bias: Whether there is a $b$.

    Examples:
        >>> Bilinear((2, 3), 4)(torch.ones(5, 2), torch.ones(5, 3)).shape
        torch.Size([5, 4])
    """

    def __init__(self, sizes: tuple[int, int], d_out: int, *, bias: bool = True) -> None:
        if min(*sizes, d_out) < 1:
            raise ValueError(f"every size is at least 1: got sizes={sizes}, d_out={d_out}")
        super().__init__(*sizes, d_out, bias=bias)

    # pyrefly: ignore [bad-override-param-name]
    def forward(self, x: Float[Tensor, "*batch d_x"], y: Float[Tensor, "*batch d_y"]) -> Float[Tensor, "*batch d_out"]:
        """Combines the last axes of two inputs."""
        sizes = (self.in1_features, self.in2_features)
        if (*x.shape[-1:], *y.shape[-1:]) != sizes:
            raise ValueError(f"the last axes are to have sizes {sizes}: got {tuple(x.shape)} and {tuple(y.shape)}")
        if x.shape[:-1] != y.shape[:-1]:
            raise ValueError(f"one batch was wanted: got {tuple(x.shape)} and {tuple(y.shape)}")
        return super().forward(x, y)


def _bilinear_claims() -> Iterator[Claim]:
    """The laws that a bilinear layer obeys."""
    layer, inputs = Bilinear((3, 2), 4), (shape("b 3"), shape("b 2"))

    def equation(x: Tensor, y: Tensor) -> Tensor:
        return torch.einsum("kij,bi,bj->bk", layer.weight, x, y) + layer.bias

    yield Claim(agreement(other=equation), layer, inputs)
    for n in (0, 1):
        yield Claim(linearity(input=n), Bilinear((3, 2), 4, bias=False), inputs, name=f"Bilinear, in input {n}")


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _dense_claims()
    yield from _tying_claims()
    yield from _bilinear_claims()
