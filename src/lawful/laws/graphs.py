"""Graphs: outputs follow a renumbering of the nodes.

The map takes features of the nodes, of shape (n, ...), and `edge_index`, integers of shape (2, e) with the source and
the target of each edge, as in PyTorch Geometric. Further inputs belong to the nodes if their first axis has size n.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lawful.laws._helpers import require_axis
from lawful.laws.interfaces import Draw, Map, RejectCase
from lawful.laws.law import Inapplicable, law
from lawful.laws.statements import Equal, Statement


def _renumber(xs: tuple[Tensor, ...], draw: Draw) -> tuple[Tensor, list[Tensor]]:
    """Returns a random order of the nodes, and the inputs with the nodes in this order."""
    x = xs[0]
    place = next((k for k, z in enumerate(xs) if k and _is_edge_index(z)), None)
    if place is None or not x.dim():
        raise Inapplicable("expected features of the nodes, and an edge_index: integers of shape (2, edges)")
    n, edges = x.shape[0], xs[place]
    if bool(((edges < 0) | (edges >= n)).any()):
        raise Inapplicable(f"edge_index must be between 0 and {n - 1} for {n} nodes, got {_span(edges)}")
    if len(xs) > 2 and n == edges.shape[1]:
        raise RejectCase  # inputs of the nodes and of the edges have the same shape
    order = draw.permutation(n)
    number = order.argsort()
    renumbered = [z.index_select(0, order) if z.dim() and z.shape[0] == n else z for z in xs]
    renumbered[place] = number[edges].to(edges.dtype)
    return order, renumbered


def _is_edge_index(x: Tensor) -> bool:
    integer = not x.is_floating_point() and not x.is_complex() and x.dtype is not torch.bool
    return integer and x.dim() == 2 and x.shape[0] == 2


def _span(x: Tensor) -> str:
    return f"{int(x.min())} to {int(x.max())}"


@law("f(πx, πE) = π f(x, E)", eval_if_random=True, every_input=True)
def node_permutation_equivariance(f: Map, *xs: Tensor, draw: Draw) -> Statement:
    """Renumbering the nodes of a graph permutes the outputs of the nodes.

    The inputs are the features of the nodes, `edge_index`, and any further features of nodes and edges.

    Satisfied by: message passing with a sum, mean or maximum over the neighbors.
    Broken by: an embedding of node numbers; a pass over the nodes in order; edges read in one direction by number.
    """
    order, renumbered = _renumber(xs, draw)
    return Equal(f(*renumbered), require_axis(f(*xs), xs[0], 0).index_select(0, order))


@law("f(πx, πE) = f(x, E)", eval_if_random=True, every_input=True)
def node_permutation_invariance(f: Map, *xs: Tensor, draw: Draw) -> Statement:
    """Renumbering the nodes of a graph does not change the output for the whole graph.

    The inputs are the same as in `node_permutation_equivariance`.

    Satisfied by: message passing with a sum, mean or maximum over all nodes as the readout.
    Broken by: the features of the first node as the readout; a concatenation of all nodes.
    """
    return Equal(f(*_renumber(xs, draw)[1]), f(*xs))
