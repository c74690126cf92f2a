"""Penalties on parameters: what a loss adds to keep them small or few."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from functools import partial

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


def claims() -> Iterator[Claim]:
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
