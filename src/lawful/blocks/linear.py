"""Constructions on linear layers: folding a bias into the weight, tying weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from lawful.laws import Claim, agreement, shape, state_dict_round_trip, tokens, weight_sharing

Activation = Callable[[Tensor], Tensor]
"""An elementwise function, such as `torch.relu` or `nn.GELU()`."""


def fold_bias(layer: nn.Linear) -> nn.Linear:
    r"""Folds the bias of a layer into its weight: a layer without bias for inputs that end with a 1.

    $$W x + b = \begin{bmatrix} W & b \end{bmatrix} \begin{bmatrix} x \\ 1 \end{bmatrix}$$

    Args:
        layer: Layer with weight $W$ and bias $b$.

    Examples:
        >>> layer, x = nn.Linear(2, 1), torch.tensor([3.0, 4.0, 1.0])
        >>> torch.allclose(fold_bias(layer)(x), layer(x[:2]))
        True
    """
    weight = layer.weight.detach()
    bias = weight.new_zeros(len(weight)) if layer.bias is None else layer.bias.detach()
    with torch.device("meta"):  # no random numbers are drawn
        folded = nn.Linear(layer.in_features + 1, layer.out_features, bias=False)
    folded.weight = nn.Parameter(torch.cat([weight, bias[:, None]], dim=1))
    return folded


def tie_weights(source: nn.Module, name: str, target: nn.Module, target_name: str) -> None:
    r"""Makes two modules share one parameter, such as an embedding and the output head.

    The gradient of the parameter is the sum over both uses. Copying, saving, loading and moving a model that contains
    both modules keep the tie; replacing one of the parameters, as `load_state_dict(..., assign=True)` does, ends it.

    Reference:
        Press and Wolf, *Using the Output Embedding to Improve Language Models*, 2017.

    Args:
        source: Module that owns the parameter.
        name: Name of the parameter in `source`, such as `"weight"`.
        target: Module that shares it.
        target_name: Name of the parameter in `target` that is replaced.

    Examples:
        >>> embedding, head = nn.Embedding(65, 8), nn.Linear(8, 65, bias=False)
        >>> tie_weights(embedding, "weight", head, "weight")
        >>> head.weight is embedding.weight
        True
    """
    shared, replaced = source.get_parameter(name), target.get_parameter(target_name)
    if shared.shape != replaced.shape:
        shapes = f"{name} {tuple(shared.shape)}, {target_name} {tuple(replaced.shape)}"
        raise ValueError(f"tied parameters must have the same shape: got {shapes}")
    path, _, leaf = target_name.rpartition(".")
    setattr(target.get_submodule(path), leaf, shared)


def claims() -> Iterator[Claim]:
    """Laws of constructions on linear layers."""
    layer = nn.Linear(4, 5)

    def with_one(x: Tensor) -> Tensor:
        return fold_bias(layer)(torch.cat([x, torch.ones_like(x[..., :1])], dim=-1))

    yield Claim(agreement(other=with_one), layer, shape("b 4"), name="fold_bias")
    model = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5, bias=False))
    tie_weights(model, "0.weight", model, "1.weight")
    for law in (weight_sharing(names=("0.weight", "1.weight")), state_dict_round_trip()):
        yield Claim(law, model, tokens("b t", vocab_size=5), name="tied embedding and head")
