"""What training relies on: gradients reach everything, and are the same however they are gathered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from lawful.laws.language import Axis, Draw, Inapplicable, Map, Reached, Same, Statement, law
from lawful.laws.language.axes import length


def _gradients(outputs: Sequence[Tensor], sources: Sequence[Tensor], cotangents: Sequence[Tensor]) -> list[Tensor]:
    """The gradient of each source; zeros where there is none."""
    pairs = [(y, c) for y, c in zip(outputs, cotangents, strict=True) if y.requires_grad]
    if not pairs or not sources:
        return [torch.zeros_like(source) for source in sources]
    found = torch.autograd.grad([y for y, _ in pairs], sources, [c.clone() for _, c in pairs], allow_unused=True)
    return [torch.zeros_like(s) if g is None else g for s, g in zip(sources, found, strict=True)]


@law("∂f/∂θ ≠ 0 at some x, for every parameter θ", every_input=True, every_output=True)
def every_parameter_receives_a_gradient(f: Map, *xs: Tensor, draw: Draw) -> Statement:
    """No parameter is left out: for each there is an input at which its gradient is not zero.

    Kept by: layers whose parameters all reach the output.
    Broken by: a layer that is made and not used; a `detach` too many; rounding or an argmax on the way.
    """
    parameters = f.parameters
    if not parameters:
        raise Inapplicable("there is no parameter that takes a gradient")
    with torch.enable_grad():
        ys = [y for y in f(*xs) if y.is_floating_point()]
        found = _gradients(ys, list(parameters.values()), [draw.normal(*y.shape) for y in ys])
    return Reached(list(parameters), [bool((g != 0).any()) for g in found])


def _checkpointed(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *a, **k: checkpoint(function, *a, use_reentrant=False, determinism_check="none", **k)


@law("∇(f computed again in the backward pass) = ∇f, from one random state", every_input=True)
def checkpointed_gradient(f: Map, *xs: Tensor, draw: Draw) -> Statement:
    """Activation checkpointing, which computes the map a second time, gives the same gradients.

    Kept by: layers whose randomness comes from PyTorch's generator, dropout among them.
    Broken by: a random choice from elsewhere; a call that changes what the next one computes.
    """
    said = "(lambda *a: torch.utils.checkpoint.checkpoint({f}, *a, use_reentrant=False))"
    parameters, cotangents = f.parameters, list[Tensor]()
    f = f.seeded(draw.integer(0, 2**16, "ω"))

    def gradients(g: Map) -> list[Tensor]:
        leaves = [x.detach().requires_grad_(x.is_floating_point()) for x in xs]
        sources = [x for x in leaves if x.requires_grad] + list(parameters.values())
        y = g(*leaves)
        if not y.requires_grad or not sources:
            raise Inapplicable("the map passes no gradient")
        if not cotangents:
            cotangents.append(draw.normal(*y.shape))
        return _gradients([y], sources, cotangents)

    with torch.enable_grad():
        return Same(gradients(f), gradients(f.through(_checkpointed, said)), exact=True)


@law("∇L(x) = Σ_k w_k ∇L(x_k) for a batch x in parts x_k", every_input=True)
def gradient_accumulation(
    f: Map, *xs: Tensor, batch: Axis = 0, total: Literal["mean", "sum"] = "mean", draw: Draw
) -> Statement:
    """Accumulating the gradients of micro-batches gives the gradient of the full batch.

    The map is a loss: one number. If it is a `mean` over samples, a part counts by how many samples it has; if it
    is a `sum`, parts add up.

    Kept by: a mean of losses of samples; a sum over tokens divided by a number that is known beforehand.
    Broken by: a mean over the tokens of each micro-batch; a batch norm in training.
    """
    if total not in ("mean", "sum"):
        raise ValueError(f"total is mean or sum: got {total!r}")
    n = length(xs[0], batch, "batch")
    cut = draw.integer(1, n - 1, "cut")
    split = [x.dim() > 0 and x.shape[batch % x.dim()] == n for x in xs]

    def part(first: int, end: int) -> list[Tensor]:
        return [x.narrow(batch, first, end - first) if s else x for x, s in zip(xs, split, strict=True)]

    def gradients(inputs: Sequence[Tensor]) -> list[Tensor]:
        with torch.enable_grad():
            loss = f(*inputs)
            if loss.numel() != 1:
                raise Inapplicable(f"a loss, one number, was wanted: got shape {tuple(loss.shape)}")
            found = _gradients([loss], list(f.parameters.values()), [torch.ones_like(loss)])
        return [loss.detach().reshape(()), *found]

    weights = (cut / n, 1 - cut / n) if total == "mean" else (1.0, 1.0)
    parts = zip(gradients(part(0, cut)), gradients(part(cut, n)), strict=True)
    summed = [weights[0] * a + weights[1] * b for a, b in parts]
    return Same(gradients(xs), summed, names=["loss", *f.parameters])
