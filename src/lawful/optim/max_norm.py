"""Max-norm constraint: bounds the norm of the weights into each unit."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from lawful.laws import Claim, boundedness, idempotence, shape


@torch.no_grad()
def max_norm(module: nn.Module, *, limit: float, params: str = "*weight") -> None:
    r"""Rescales the weights into each unit in place, as `torch.renorm`. Call it after each optimizer step.

    $$w_i \leftarrow w_i \, \min\Bigl(1, \frac{c}{\|w_i\|_2}\Bigr)$$

    where row $w_i$ holds the weights into unit $i$. Parameters with one axis, such as biases, are skipped.

    Reference:
        Srivastava et al., *Dropout: A Simple Way to Prevent Neural Networks from Overfitting*, 2014.

    Args:
        module: Module to constrain.
        limit: Largest norm $c$.
        params: Name pattern (with `*` and `?`) of the parameters. Frozen ones stay as they are.

    Examples:
        >>> layer = nn.Linear(100, 5)
        >>> max_norm(layer, limit=0.1)
        >>> bool((layer.weight.norm(dim=1) < 0.1001).all())
        True
    """
    if not limit > 0:
        raise ValueError(f"limit must be positive, got {limit}")
    weights = [
        (name, p) for name, p in module.named_parameters(remove_duplicate=False) if p.ndim > 1 and p.requires_grad
    ]
    matching = {id(p): p for name, p in weights if fnmatchcase(name, params)}
    if not matching:
        raise ValueError(f"no weight matches params={params!r}, the module has {[name for name, _ in weights]}")
    for p in matching.values():
        norm = torch.linalg.vector_norm(p, dim=tuple(range(1, p.ndim)), keepdim=True)
        p.copy_(torch.where(norm > limit, p * (limit / norm), p))


def claims() -> Iterator[Claim]:
    """Laws of the constraint."""

    def constrain(x: Tensor) -> Tensor:
        module = nn.ParameterDict({"weight": x.detach().clone()})
        max_norm(module, limit=0.5)
        return module["weight"].detach()

    def row_norms(x: Tensor) -> Tensor:
        return constrain(x).flatten(1).norm(dim=1)

    yield Claim(idempotence(), constrain, shape("n 3 2"), name="max_norm")
    yield Claim(boundedness(low=0.0, high=0.5), row_norms, shape("n 3 2"), name="max_norm, norms of the rows")
