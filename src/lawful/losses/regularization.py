"""Penalties on parameters: what a loss adds to keep them small or few.

The locality penalty: units have places, and a weight costs its size times how far it reaches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial
from itertools import pairwise
from typing import Protocol, cast, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.laws import Claim, agreement, convexity, homogeneity, shape


def l1(x: Float[Tensor, "*shape"]) -> Float[Tensor, ""]:
    r"""Sums absolute values (lasso), which makes many parameters exactly 0.

    $$\rho(\theta) = \|\theta\|_1 = \sum_i |\theta_i|$$

    Args:
        x: The parameters $\theta$.

    Examples:
        >>> l1(torch.tensor([3.0, -4.0]))
        tensor(7.)
    """
    return x.abs().sum()


def l2(x: Float[Tensor, "*shape"]) -> Float[Tensor, ""]:
    r"""Sums squares (ridge, Tikhonov), which makes all parameters smaller.

    $$\rho(\theta) = \|\theta\|_2^2 = \sum_i \theta_i^2$$

    The square of the norm, not the norm: large parameters are pulled harder than small ones.

    Args:
        x: The parameters $\theta$.

    Examples:
        >>> l2(torch.tensor([3.0, -4.0]))
        tensor(25.)
    """
    return x.square().sum()


def elastic_net(x: Float[Tensor, "*shape"], *, alpha: float) -> Float[Tensor, ""]:
    r"""Mixes both, so that few parameters are left and those are small.

    $$\rho(\theta) = \alpha \, \|\theta\|_1 + (1 - \alpha) \, \|\theta\|_2^2$$

    Reference:
        Zou and Hastie, *Regularization and Variable Selection via the Elastic Net*, 2005.

    Args:
        x: The parameters $\theta$.
        alpha: $\alpha$, from 0 (`l2`) to 1 (`l1`).

    Examples:
        >>> elastic_net(torch.tensor([3.0, -4.0]), alpha=0.5)
        tensor(16.)
    """
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha is from 0 to 1: got {alpha}")
    if alpha in (0, 1):
        return l1(x) if alpha else l2(x)
    return alpha * l1(x) + (1 - alpha) * l2(x)


def penalty(module: nn.Module, rho: Callable[[Tensor], Tensor], *, on: str = "*") -> Float[Tensor, ""]:
    r"""Sums a penalty over the parameters of a module, or of some of its layers.

    $$\rho(\Theta) = \sum_{\theta \in \Theta} \rho(\theta)$$

    A loss adds it with a factor: `loss + 0.01 * penalty(model, l2, on="*.weight")`. A tensor that is shared counts
    once, and is found under each of its names.

    Args:
        module: The module with parameters $\Theta$.
        rho: $\rho$: `l1`, `l2`, `partial(elastic_net, alpha=0.5)` or another.
        on: Which parameters, as a pattern of their names with `*` and `?`.

    Examples:
        >>> layer = nn.Linear(2, 1)
        >>> bool(penalty(layer, l2, on="bias") == layer.bias.square().sum())
        True
    """
    named = list(module.named_parameters(remove_duplicate=False))
    found = {id(p): p for name, p in named if fnmatchcase(name, on)}
    if not found:
        raise ValueError(f"no parameter is named {on!r}: the module has {[name for name, _ in named]}")
    return torch.stack([rho(p) for p in found.values()]).sum()


def _penalties_claims() -> Iterator[Claim]:
    """The laws that penalties obey."""
    x = shape("n 2")
    yield Claim(homogeneity(degree=1.0), l1, x)
    yield Claim(homogeneity(degree=2.0), l2, x)
    yield Claim(agreement(other=lambda x: torch.linalg.vector_norm(x, 1)), l1, x)
    yield Claim(agreement(other=lambda x: torch.linalg.vector_norm(x) ** 2), l2, x)
    mixed = partial(elastic_net, alpha=0.3)
    yield Claim(convexity(), mixed, x, name="elastic_net(alpha=0.3)")
    yield Claim(agreement(other=lambda x: 0.3 * l1(x) + 0.7 * l2(x)), mixed, x, name="elastic_net(alpha=0.3)")
    for alpha, end in ((0.0, l2), (1.0, l1)):
        yield Claim(agreement(other=end), partial(elastic_net, alpha=alpha), x, name=f"elastic_net(alpha={alpha})")

    def of_layers(x: Tensor) -> Tensor:
        layers = nn.ParameterDict({"a_weight": x, "b_weight": 2 * x, "b_bias": 3 * x})
        return penalty(layers, l2, on="*_weight")

    yield Claim(agreement(other=lambda x: 5 * l2(x)), of_layers, x, name="penalty(on='*_weight')")


@runtime_checkable
class AffineLayer(Protocol):
    """A layer with a weight of two axes, rows for what comes out, and a bias or none: `Dense`, `nn.Linear`."""

    weight: nn.Parameter
    bias: nn.Parameter | None


def affine_layers(model: nn.Module) -> list[AffineLayer]:
    """Finds the affine layers of a stack, from the input to the output: any modules with a `weight` and a `bias`.

    Args:
        model: The stack; what else is in it is taken to treat all units of a layer alike.

    Examples:
        >>> stack = nn.Sequential(nn.Linear(4, 20), nn.SiLU(), nn.Linear(20, 2))
        >>> [tuple(layer.weight.shape) for layer in affine_layers(stack)]
        [(20, 4), (2, 20)]
    """
    found = [cast(AffineLayer, module) for module in model.modules() if _is_affine(module)]
    if not found:
        raise ValueError(f"a stack of affine layers was wanted: {type(model).__name__} has none")
    if len({id(layer.weight) for layer in found}) < len(found):
        raise ValueError("each layer is to have a weight of its own: two layers share one")
    for first, second in pairwise(found):
        if first.weight.shape[0] != second.weight.shape[1]:
            sizes = [tuple(reversed(layer.weight.shape)) for layer in found]
            raise ValueError(f"each layer is to take what the one before gives: got sizes {sizes}")
    return found


def _is_affine(module: nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    return isinstance(weight, nn.Parameter) and weight.dim() == 2 and hasattr(module, "bias")


def on_a_line(n: int) -> Float[Tensor, "n 1"]:
    """Places units evenly on the line from 0 to 1.

    Examples:
        >>> on_a_line(2)
        tensor([[0.2500], [0.7500]])
    """
    return ((torch.arange(n) + 0.5) / n)[:, None]


def on_a_grid(n: int) -> Float[Tensor, "n 2"]:
    """Places units on a square grid in the unit square, row by row.

    Examples:
        >>> on_a_grid(4)
        tensor([[0.2500, 0.2500], [0.7500, 0.2500], [0.2500, 0.7500], [0.7500, 0.7500]])
    """
    side = max(1, math.isqrt(n - 1) + 1)
    places = torch.arange(n)
    return (torch.stack([places % side, places // side], dim=1) + 0.5) / side


def lengths(places: Sequence[Float[Tensor, "_ _"]], *, gap: float, order: float = 1.0) -> list[Float[Tensor, "_ _"]]:
    r"""Measures the connections between units that have places, layer by layer.

    $$d_{ij} = \bigl(\|r_i - s_j\|_p^p + g^p\bigr)^{1/p}$$

    Args:
        places: Where the units of each layer are, the inputs first: $s$ of one layer and $r$ of the next.
        gap: $g$, how far a layer is above the one before.
        order: $p$: 2 is the Euclidean distance, 1 is what its authors computed with.

    Examples:
        >>> lengths([on_a_line(2), on_a_line(1)], gap=0.5)
        [tensor([[0.7500, 0.7500]])]
    """
    if not (gap >= 0 and order >= 1):
        raise ValueError(f"gap is at least 0 and order at least 1: got {gap} and {order}")
    raised = [torch.cat([p, p.new_full((len(p), 1), gap * i)], dim=1) for i, p in enumerate(places)]
    exact = "donot_use_mm_for_euclid_dist"
    return [torch.cdist(above, below, p=order, compute_mode=exact) for below, above in pairwise(raised)]


def locality(
    layers: Sequence[AffineLayer], lengths: Sequence[Float[Tensor, "_ _"]], *, bias: float = 0.0
) -> Float[Tensor, ""]:
    r"""Sums absolute weights, each times its length, so that few and short connections are left.

    $$\rho = \sum_\ell \sum_{i, j} d^\ell_{ij} \, |W^\ell_{ij}| + g \sum_\ell \sum_i |b^\ell_i|$$

    Reference:
        Liu, Gan and Tegmark, *Seeing is Believing: Brain-Inspired Modular Training for Mechanistic
        Interpretability*, 2023.

    Args:
        layers: The layers with weights $W$ and biases $b$.
        lengths: $d$ of each layer.
        bias: $g$, what a bias costs; 0 leaves them out.

    Examples:
        >>> layers = [nn.Linear(2, 1)]
        >>> bool(locality(layers, [torch.ones(1, 2)]) == layers[0].weight.abs().sum())
        True
    """
    shapes, wanted = [tuple(d.shape) for d in lengths], [tuple(layer.weight.shape) for layer in layers]
    if shapes != wanted:
        raise ValueError(f"lengths of shapes {wanted} were wanted: got {shapes}")
    terms = [(layer.weight.abs() * d).sum() for layer, d in zip(layers, lengths, strict=True)]
    if bias:
        terms += [bias * layer.bias.abs().sum() for layer in layers if layer.bias is not None]
    return torch.stack(terms).sum()


def _locality_claims() -> Iterator[Claim]:
    """The laws that the penalty obeys."""
    far = lengths([on_a_grid(3).double(), on_a_grid(2).double()], gap=0.3, order=2.0)

    def of(x: Tensor) -> Tensor:
        layer = cast(AffineLayer, nn.ParameterDict({"weight": x[:2, :3], "bias": x[:2, 3]}))
        return locality([layer], [d.to(x) for d in far], bias=0.3)

    def equation(x: Tensor) -> Tensor:
        below, above = on_a_grid(3).to(x), on_a_grid(2).to(x)
        reach = [[((above[i] - below[j]).square().sum() + 0.09).sqrt() for j in range(3)] for i in range(2)]
        return sum((x[i, j].abs() * reach[i][j] for i in range(2) for j in range(3)), 0.3 * x[:2, 3].abs().sum())

    yield Claim(homogeneity(degree=1.0), of, shape("2 4"), name="locality")
    yield Claim(agreement(other=equation), of, shape("2 4"), name="locality")


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _penalties_claims()
    yield from _locality_claims()
