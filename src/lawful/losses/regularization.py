"""Penalties on parameters: L1, L2, elastic net, and the locality penalty of units with positions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Protocol, cast, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.laws import Claim, homogeneity, shape


def l1_penalty(x: Float[Tensor, "*shape"]) -> Float[Tensor, ""]:
    r"""Returns the L1 penalty (lasso), which makes parameters sparse.

    $$\rho(\theta) = \|\theta\|_1 = \sum_i |\theta_i|$$

    Args:
        x: Parameters $\theta$.

    Examples:
        >>> l1_penalty(torch.tensor([3.0, -4.0]))
        tensor(7.)
    """
    return x.abs().sum()


def l2_penalty(x: Float[Tensor, "*shape"]) -> Float[Tensor, ""]:
    r"""Returns the squared L2 norm (ridge, Tikhonov).

    $$\rho(\theta) = \|\theta\|_2^2 = \sum_i \theta_i^2$$

    Args:
        x: Parameters $\theta$.

    Examples:
        >>> l2_penalty(torch.tensor([3.0, -4.0]))
        tensor(25.)
    """
    return x.square().sum()


def elastic_net_penalty(x: Float[Tensor, "*shape"], *, alpha: float) -> Float[Tensor, ""]:
    r"""Returns the elastic net penalty, a mixture of L1 and L2.

    $$\rho(\theta) = \alpha \, \|\theta\|_1 + (1 - \alpha) \, \|\theta\|_2^2$$

    Reference:
        Zou and Hastie, *Regularization and Variable Selection via the Elastic Net*, 2005.

    Args:
        x: Parameters $\theta$.
        alpha: Weight $\alpha$ of the L1 penalty, from 0 to 1.

    Examples:
        >>> elastic_net_penalty(torch.tensor([3.0, -4.0]), alpha=0.5)
        tensor(16.)
    """
    if not 0 <= alpha <= 1:
        raise ValueError(f"expected alpha from 0 to 1, got {alpha}")
    if alpha in (0, 1):
        return l1_penalty(x) if alpha else l2_penalty(x)
    return alpha * l1_penalty(x) + (1 - alpha) * l2_penalty(x)


def parameter_penalty(
    module: nn.Module, penalty: Callable[[Tensor], Tensor], *, pattern: str = "*"
) -> Float[Tensor, ""]:
    r"""Returns the sum of a penalty over parameters of a module.

    $$\rho(\Theta) = \sum_{\theta \in \Theta} \rho(\theta)$$

    Add it to a loss: `loss + 0.01 * parameter_penalty(model, l2_penalty, pattern="*.weight")`. A shared parameter
    counts once and matches by any of its names.

    Args:
        module: Module with parameters $\Theta$.
        penalty: Penalty $\rho$: `l1_penalty`, `l2_penalty`, `partial(elastic_net_penalty, alpha=0.5)`, ...
        pattern: Pattern of parameter names, with `*` and `?`.

    Examples:
        >>> layer = nn.Linear(2, 1)
        >>> bool(parameter_penalty(layer, l2_penalty, pattern="bias") == layer.bias.square().sum())
        True
    """
    named = list(module.named_parameters(remove_duplicate=False))
    matches = {id(p): p for name, p in named if fnmatchcase(name, pattern)}
    if not matches:
        raise ValueError(f"no parameter matches {pattern!r}: the module has {[name for name, _ in named]}")
    return torch.stack([penalty(p) for p in matches.values()]).sum()


@runtime_checkable
class AffineLayer(Protocol):
    """Layer with a weight matrix (out, in) and an optional bias, such as `nn.Linear`."""

    weight: nn.Parameter
    bias: nn.Parameter | None


def affine_layers(model: nn.Module) -> list[AffineLayer]:
    """Returns the affine layers of a stack, from the input to the output.

    Args:
        model: Stack of layers; other modules must act on all units of a layer in the same way.

    Examples:
        >>> stack = nn.Sequential(nn.Linear(4, 20), nn.SiLU(), nn.Linear(20, 2))
        >>> [tuple(layer.weight.shape) for layer in affine_layers(stack)]
        [(20, 4), (2, 20)]
    """
    layers = [cast(AffineLayer, module) for module in model.modules() if _is_affine(module)]
    if not layers:
        raise ValueError(f"expected a stack of affine layers, but {type(model).__name__} has none")
    if len({id(layer.weight) for layer in layers}) < len(layers):
        raise ValueError("expected layers with their own weights, but two layers share one")
    for first, second in pairwise(layers):
        if first.weight.shape[0] != second.weight.shape[1]:
            sizes = [tuple(reversed(layer.weight.shape)) for layer in layers]
            raise ValueError(f"the input size of each layer must be the output size of the one before, got {sizes}")
    return layers


def _is_affine(module: nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    return isinstance(weight, nn.Parameter) and weight.dim() == 2 and hasattr(module, "bias")


def line_positions(n: int) -> Float[Tensor, "n 1"]:
    """Returns equidistant positions of units on the line from 0 to 1.

    Examples:
        >>> line_positions(2)
        tensor([[0.2500], [0.7500]])
    """
    return ((torch.arange(n) + 0.5) / n)[:, None]


def grid_positions(n: int) -> Float[Tensor, "n 2"]:
    """Returns positions of units on a square grid in the unit square, row by row.

    Examples:
        >>> grid_positions(4)
        tensor([[0.2500, 0.2500], [0.7500, 0.2500], [0.2500, 0.7500], [0.7500, 0.7500]])
    """
    side = max(1, math.isqrt(n - 1) + 1)
    index = torch.arange(n)
    return (torch.stack([index % side, index // side], dim=1) + 0.5) / side


def connection_lengths(
    positions: Sequence[Float[Tensor, "_ _"]], *, layer_distance: float, p: float = 1.0
) -> list[Float[Tensor, "_ _"]]:
    r"""Returns the lengths of the connections between units of consecutive layers.

    $$d_{ij} = \bigl(\|r_i - s_j\|_p^p + g^p\bigr)^{1/p}$$

    Args:
        positions: Positions of the units of each layer, the inputs first.
        layer_distance: Distance $g$ of two layers.
        p: Order $p$ of the norm; 2 is Euclidean, the authors used 1.

    Examples:
        >>> connection_lengths([line_positions(2), line_positions(1)], layer_distance=0.5)
        [tensor([[0.7500, 0.7500]])]
    """
    if not (layer_distance >= 0 and p >= 1):
        raise ValueError(f"expected layer_distance >= 0 and p >= 1, got {layer_distance} and {p}")
    points = [torch.cat([r, r.new_full((len(r), 1), layer_distance * i)], dim=1) for i, r in enumerate(positions)]
    exact = "donot_use_mm_for_euclid_dist"
    return [torch.cdist(above, below, p=p, compute_mode=exact) for below, above in pairwise(points)]


def locality_penalty(
    layers: Sequence[AffineLayer], lengths: Sequence[Float[Tensor, "_ _"]], *, bias_weight: float = 0.0
) -> Float[Tensor, ""]:
    r"""Returns the L1 norm of the weights, each times the length of its connection.

    $$\rho = \sum_\ell \sum_{i, j} d^\ell_{ij} \, |W^\ell_{ij}| + g \sum_\ell \sum_i |b^\ell_i|$$

    Reference:
        Liu, Gan and Tegmark, *Seeing is Believing: Brain-Inspired Modular Training for Mechanistic
        Interpretability*, 2023.

    Args:
        layers: Layers with weights $W$ and biases $b$.
        lengths: Lengths $d$ of the connections of each layer.
        bias_weight: Weight $g$ of the biases.

    Examples:
        >>> layers = [nn.Linear(2, 1)]
        >>> bool(locality_penalty(layers, [torch.ones(1, 2)]) == layers[0].weight.abs().sum())
        True
    """
    shapes, expected = [tuple(d.shape) for d in lengths], [tuple(layer.weight.shape) for layer in layers]
    if shapes != expected:
        raise ValueError(f"expected lengths of shapes {expected}, got {shapes}")
    terms = [(layer.weight.abs() * d).sum() for layer, d in zip(layers, lengths, strict=True)]
    if bias_weight:
        terms += [bias_weight * layer.bias.abs().sum() for layer in layers if layer.bias is not None]
    return torch.stack(terms).sum()


def claims() -> Iterator[Claim]:
    """The penalties are homogeneous."""
    yield Claim(homogeneity(degree=1.0), l1_penalty, shape("n 2"))
    yield Claim(homogeneity(degree=2.0), l2_penalty, shape("n 2"))
