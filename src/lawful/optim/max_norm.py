"""The max-norm constraint: no unit has incoming weights longer than a bound."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.laws import Claim, boundedness, idempotence, shape


def clip_row_norms(x: Float[Tensor, "n *shape"], *, at_most: float) -> Float[Tensor, "n *shape"]:
    r"""Shortens each row that is too long: the nearest matrix whose rows are not.

    $$w_i \leftarrow w_i \, \min\Bigl(1, \frac{c}{\|w_i\|_2}\Bigr)$$

    Args:
        x: The weight, whose row $w_i$, over all axes but the first, holds the incoming weights of a unit.
        at_most: $c$.

    Examples:
        >>> clip_row_norms(torch.tensor([[3.0, 4.0], [0.3, 0.4]]), at_most=1.0)
        tensor([[0.6000, 0.8000], [0.3000, 0.4000]])
    """
    if not at_most > 0:
        raise ValueError(f"at_most is above 0: got {at_most}")
    norm = torch.linalg.vector_norm(x, dim=tuple(range(1, x.ndim)), keepdim=True)
    return torch.where(norm > at_most, x * (at_most / norm), x)


@torch.no_grad()
def max_norm(module: nn.Module, *, at_most: float, on: str = "*weight") -> None:
    """Limits the incoming weights of each unit of a module, or of some of its layers, in place.

    To be called after each step. Parameters with one axis only, such as biases, have no rows and are left alone.

    Reference:
        Srivastava and others, *Dropout: A Simple Way to Prevent Neural Networks from Overfitting*, 2014.

    Args:
        module: The module.
        at_most: The largest length.
        on: Which parameters, as a pattern of their names with `*` and `?`.

    Examples:
        >>> layer = nn.Linear(100, 5)
        >>> max_norm(layer, at_most=0.1)
        >>> bool((layer.weight.norm(dim=1) < 0.1001).all())
        True
    """
    named = [(name, p) for name, p in module.named_parameters(remove_duplicate=False) if p.ndim > 1]
    found = {id(p): p for name, p in named if fnmatchcase(name, on)}
    if not found:
        raise ValueError(f"no parameter with rows is named {on!r}: the module has {[name for name, _ in named]}")
    for p in found.values():
        p.copy_(clip_row_norms(p, at_most=at_most))


def claims() -> Iterator[Claim]:
    """The laws that the constraint obeys."""
    bounded = partial(clip_row_norms, at_most=0.5)

    def norms(x: Tensor) -> Tensor:
        return bounded(x).flatten(1).norm(dim=1)

    yield Claim(idempotence(), bounded, shape("n 3 2"), name="limited")
    yield Claim(boundedness(low=0.0, high=0.5), norms, shape("n 3 2"), name="limited, length of the rows")
