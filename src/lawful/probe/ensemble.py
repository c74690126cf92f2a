"""A residual network as an ensemble: what every subset of its blocks gives, and what each adds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.blocks.dense import Dense
from lawful.blocks.residual import Residual, paths
from lawful.functions.activations import identity
from lawful.laws import Claim, agreement, shape
from lawful.probe.edits import zeroed
from lawful.probe.record import record


def subnetworks(
    run: Callable[[], Tensor], model: nn.Module, names: Sequence[str], *, most: int = 1024
) -> Float[Tensor, "n ..."]:
    r"""Returns what a model gives with every subset of its residual blocks, the others adding nothing.

    The subsets $S$ are counted in binary: row 0 is without any of the blocks, row 1 with the first alone, row 3 with
    the first two, the last row with all: the model itself.

    Reference:
        Veit, Wilber and Belongie, *Residual Networks Behave Like Ensembles of Relatively Shallow Networks*, 2016.

    Args:
        run: Calls the model.
        model: The model.
        names: What the blocks add: `layers.0.added`, or the names of modules on branches.
        most: How many subsets there may be, $2^n$ for $n$ names.

    Examples:
        >>> model = nn.Sequential(Residual(nn.Identity()), Residual(nn.Identity()))
        >>> subnetworks(lambda: model(torch.ones(1)), model, ["0.block", "1.block"]).flatten()
        tensor([1., 2., 2., 4.])
    """
    if 2 ** len(names) > most:
        raise ValueError(f"{len(names)} blocks have {2 ** len(names):,} subsets, more than most={most:,}: name fewer")
    outputs = []
    for subset in range(2 ** len(names)):
        off = [name for i, name in enumerate(names) if not subset >> i & 1]
        with record(model, edit=dict.fromkeys(off, zeroed)):
            outputs.append(run())
    return torch.stack(outputs)


def path_terms(outputs: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
    r"""Returns what each subset of blocks adds that no smaller one does: the term of the path through just these.

    $$T(S) = \sum_{R \subseteq S} (-1)^{|S| - |R|} F(R), \qquad \sum_S T(S) = F(\text{all})$$

    The sum is exact for any blocks. Where the blocks are linear, $T(S)$ is the path through the blocks of $S$, each
    once: $f_2 f_1 x$. Otherwise it is their interaction, a finite difference of that order.

    Reference:
        Harsanyi, *A Simplified Bargaining Model for the n-Person Cooperative Game*, 1963.

    Args:
        outputs: $F(S)$ for every subset, as `subnetworks` counts them.

    Examples:
        >>> path_terms(torch.tensor([1.0, 2.0, 2.0, 4.0]))
        tensor([1., 1., 1., 1.])
    """
    count = len(outputs)
    if count < 1 or count & (count - 1):
        raise ValueError(f"the outputs of all 2^n subsets were wanted: got {count}")
    terms, step = outputs, 1
    while step < count:
        pairs = terms.unflatten(0, (-1, 2, step))
        terms = torch.stack([pairs[:, 0], pairs[:, 1] - pairs[:, 0]], dim=1).flatten(0, 2)
        step *= 2
    return terms


def claims() -> Iterator[Claim]:
    """The laws that the ensemble of paths obeys."""
    maps, curves = ([Dense(3, 3, activation=f, bias=False) for _ in range(3)] for f in (identity, torch.tanh))
    linear, bent = (nn.Sequential(*map(Residual, blocks)) for blocks in (maps, curves))
    names = ["0.block", "1.block", "2.block"]

    def terms(x: Tensor, model: nn.Module) -> Tensor:
        return path_terms(subnetworks(lambda: model(x), model, names))

    def summed(x: Tensor) -> Tensor:
        return terms(x, bent).sum(0)

    def written(x: Tensor) -> Tensor:
        return paths(maps, x)

    def interaction(x: Tensor) -> Tensor:
        return terms(x, bent)[3]

    def difference(x: Tensor) -> Tensor:
        f, g, _ = curves
        return g(x + f(x)) - g(x)

    yield Claim(agreement(other=bent), summed, shape("b 3"), name="the terms add up to the model")
    yield Claim(agreement(other=written), lambda x: terms(x, linear), shape("b 3"), name="linear blocks: paths")
    yield Claim(agreement(other=difference), interaction, shape("b 3"), name="the term of two blocks")
