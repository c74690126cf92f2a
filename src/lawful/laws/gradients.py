"""Derivatives and inverses: the gradient is the derivative, the inverse undoes, the log-determinant is right.

What training relies on: gradients reach everything, and are the same however they are gathered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from lawful.laws._helpers import axis_size, require_real
from lawful.laws._tree import Key
from lawful.laws.interfaces import Draw, Map
from lawful.laws.law import Axis, Inapplicable, Unsupported, law
from lawful.laws.statements import Equal, Occurs, Statement

_STEP = 1e-3


@law("⟨c, Df(x) v⟩ = ⟨Df(x)ᵀ c, v⟩", rtol=1e-6, every_input=True)
def gradient(f: Map, *xs: Tensor, draw: Draw) -> Statement:
    """The gradient from backpropagation, of the inputs and the parameters, is the derivative.

    A random cotangent c and a random direction v of length 1. The left side is a central difference $D(h)$,
    improved to $(4 D(h/2) - D(h))/3$. Its error is bounded by $|D(h) - D(h/2)|$ and, for kinks close to x, by how
    far the gap between the one-sided differences is from halving with h. Where the first is above one part in a
    hundred, as in a saturated softmax, the case is outside the domain. `gradient().excluding(kink_at(0.0))`
    excepts kinks by their position.

    Satisfied by: compositions of differentiable functions, away from kinks.
    Broken by: a hand-written backward pass; a detached branch; an update in place under `no_grad`.
    """
    return _derivative(f, xs, lambda g, inputs: g(*inputs), draw)


@law("⟨d, D(Df(x)ᵀ c) v⟩ = ⟨D(Df(x)ᵀ c)ᵀ d, v⟩", rtol=1e-6, every_input=True, cases=40)
def second_order_gradient(f: Map, *xs: Tensor, draw: Draw) -> Statement:
    """The gradient of the gradient by the inputs, as a penalty on it needs, is its derivative, and finite.

    Judged as `gradient` is.

    Satisfied by: compositions of functions that PyTorch can differentiate twice.
    Broken by: a norm or an angle at 0; a backward pass written by hand that hides from differentiation.
    """
    cotangents: list[Tensor] = []

    def slope(g: Map, inputs: list[Tensor]) -> Tensor:
        with torch.enable_grad():
            leaves = [x.requires_grad_() if x.is_floating_point() and x.is_leaf else x for x in inputs]
            y = g(*leaves)
            if not y.is_floating_point():
                raise Inapplicable(f"an output of {y.dtype} has no derivative")
            if not cotangents:
                cotangents.append(draw.normal(*y.shape))
            reals = [x for x in leaves if x.requires_grad]
            if not reals:
                raise Inapplicable("there is no real input to differentiate by")
            if not y.requires_grad:
                return torch.zeros_like(torch.cat([x.reshape(-1) for x in reals]))
            try:
                found = torch.autograd.grad(y, reals, cotangents[0].clone(), create_graph=True, allow_unused=True)
            except RuntimeError as error:
                raise Unsupported(f"it cannot be differentiated twice: {error}") from error
        pairs = zip(found, reals, strict=True)
        return torch.cat([(torch.zeros_like(x) if g is None else g).reshape(-1) for g, x in pairs])

    return _derivative(f, xs, slope, draw)


def _derivative(f: Map, xs: tuple[Tensor, ...], value: Callable[[Map, list[Tensor]], Tensor], draw: Draw) -> Statement:
    """Compares a difference quotient of `value(f, xs)` in a direction with what backpropagation says.

    The direction is one of all real inputs and all parameters.
    """
    parameters = {name: p for name, p in f.parameters.items() if p.is_floating_point()}
    points = [x.detach() for x in xs if x.is_floating_point()] + [p.detach() for p in parameters.values()]
    if not points:
        raise Inapplicable("there is no real input and no parameter to differentiate by")
    direction = draw.normal(sum(p.numel() for p in points))
    draw.assume(direction.norm() > 0)
    parts = (direction / direction.norm()).split([p.numel() for p in points])
    v = [part.reshape(p.shape) for part, p in zip(parts, points, strict=True)]

    def moved(h: float) -> Tensor:
        rest = iter([p + h * d for p, d in zip(points, v, strict=True)])
        inputs = [next(rest) if x.is_floating_point() else x for x in xs]
        return value(f.with_parameters(dict(zip(parameters, rest, strict=True))), inputs).detach()

    with torch.enable_grad():
        leaves = [x.detach().requires_grad_(x.is_floating_point()) for x in xs]
        sources = [x for x in leaves if x.requires_grad] + list(parameters.values())
        y = value(f, leaves)
        if not y.is_floating_point():
            raise Inapplicable(f"an output of {y.dtype} has no derivative")
        c = draw.normal(*y.shape)
        try:
            found = torch.autograd.grad(y, sources, c.clone(), allow_unused=True) if y.requires_grad else ()
        except RuntimeError as error:
            if "is not implemented" not in str(error):
                raise
            raise Unsupported(f"it cannot be differentiated: {error}") from error
    backward = sum(((g * d).sum() for g, d in zip(found, v, strict=False) if g is not None), torch.zeros_like(c).sum())

    def differences(h: float) -> tuple[Tensor, Tensor]:
        """The central difference, and by how much the one-sided ones differ."""
        ahead, behind = moved(h), moved(-h)
        return c * (ahead - behind) / (2 * h), c * (ahead + behind - 2 * y.detach()) / h

    (coarse, bend), (fine, less) = differences(_STEP), differences(_STEP / 2)
    apart = (fine - coarse).abs().sum()
    rounding = torch.finfo(y.dtype).eps * (c * y.detach()).abs().sum() / _STEP
    error = 10 * (apart + (2 * less - bend).abs().sum() + rounding)
    draw.assume((apart <= 0.01 * (fine.abs() + coarse.abs()).sum()) | ~(apart + backward).isfinite())
    return Equal((fine + (fine - coarse) / 3).sum(), backward, atol=error, exercised=True)


@law("∇ Σ f(x) = g(x)", every_input=True, discover_with=None)
def derivative(f: Map, *xs: Tensor, formula: Callable[..., Tensor]) -> Statement:
    """The gradient of the map by its first input, with its outputs added up, is what a formula says.

    Satisfied by: the square and twice its argument; a norm and the direction of its argument.
    Broken by: the square and its argument; a cross-entropy whose gradient forgets the target.
    """
    with torch.enable_grad():
        x = require_real(xs[0]).detach().requires_grad_(True)
        y = f(x, *xs[1:]).sum()
        if not y.requires_grad:
            raise Inapplicable("the map passes no gradient")
        (found,) = torch.autograd.grad(y, x)
    return Equal(found, f.with_function(formula)(*xs), exercised=True)


@law("f⁻¹(f(x)) = x")
def invertibility(f: Map, x: Tensor, *, inverse: str | Callable[..., Any] = "inverse") -> Statement:
    """The inverse undoes the map.

    `inverse` is the name of a method of the module, or a function; its first output counts.

    Satisfied by: coupling layers, affine maps, orthogonal matrices.
    Broken by: an inverse with a wrong sign or order; an inverse that answers from a cache.
    """
    return Equal(f.method(inverse)(f(x)), x, exercised=True)


@law("log_det = log |det Df(x)|")
def log_determinant(f: Map, x: Tensor, *, log_det: Key = 1, draw: Draw) -> Statement:
    """The reported log-determinant, one for each sample, is that of the Jacobian.

    `log_det` names the output that reports it.

    Satisfied by: a coupling layer that sums its log-scales.
    Broken by: a wrong sign; a sum over the batch; a forgotten factor.
    """
    i = draw.integer(0, require_real(x).shape[0] - 1, "i")
    with torch.enable_grad():
        sample = x[i : i + 1].detach().requires_grad_(True)
        y = f(sample).reshape(-1)
        if not y.requires_grad:
            raise Inapplicable("the map passes no gradient, so that it has no Jacobian to compare with")
        if y.numel() != sample.numel():
            raise Inapplicable(f"the Jacobian is not square: {sample.numel()} inputs, {y.numel()} outputs")
        rows = [torch.autograd.grad(entry, sample, retain_graph=True)[0].reshape(-1) for entry in y]
    volume = torch.linalg.slogdet(torch.stack(rows)).logabsdet
    reported = f.output(log_det)(x)
    if reported.numel() not in (1, x.shape[0]):
        raise Inapplicable(f"one log-determinant for each sample was wanted: got shape {tuple(reported.shape)}")
    return Equal(reported.reshape(-1)[i if reported.numel() > 1 else 0], volume, exercised=True)


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

    Satisfied by: layers whose parameters all reach the output.
    Broken by: a layer that is made and not used; a `detach` too many; rounding or an argmax on the way.
    """
    parameters = f.parameters
    if not parameters:
        raise Inapplicable("there is no parameter that takes a gradient")
    with torch.enable_grad():
        ys = [y for y in f(*xs) if y.is_floating_point()]
        found = _gradients(ys, list(parameters.values()), [draw.normal(*y.shape) for y in ys])
    return Occurs(list(parameters), [bool((g != 0).any()) for g in found])


def _checkpointed(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *a, **k: checkpoint(function, *a, use_reentrant=False, determinism_check="none", **k)


@law("∇(f computed again in the backward pass) = ∇f, from one random state", every_input=True)
def checkpointed_gradient(f: Map, *xs: Tensor, draw: Draw) -> Statement:
    """Activation checkpointing, which computes the map a second time, gives the same gradients.

    Satisfied by: layers whose randomness comes from PyTorch's generator, dropout among them.
    Broken by: a random choice from elsewhere; a call that changes what the next one computes.
    """
    said = "(lambda *a: torch.utils.checkpoint.checkpoint({f}, *a, use_reentrant=False))"
    parameters, cotangents = f.parameters, list[Tensor]()
    f = f.with_seed(draw.integer(0, 2**16, "ω"))

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
        return Equal(gradients(f), gradients(f.wrapped(_checkpointed, said)), exact=True)


@law("∇L(x) = Σ_k w_k ∇L(x_k) for a batch x in parts x_k", every_input=True)
def gradient_accumulation(
    f: Map, *xs: Tensor, batch: Axis = 0, total: Literal["mean", "sum"] = "mean", draw: Draw
) -> Statement:
    """Accumulating the gradients of micro-batches gives the gradient of the full batch.

    The map is a loss: one number. If it is a `mean` over samples, a part counts by how many samples it has; if it
    is a `sum`, parts add up.

    Satisfied by: a mean of losses of samples; a sum over tokens divided by a number that is known beforehand.
    Broken by: a mean over the tokens of each micro-batch; a batch norm in training.
    """
    if total not in ("mean", "sum"):
        raise ValueError(f"total is mean or sum: got {total!r}")
    n = axis_size(xs[0], batch, "batch")
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
    return Equal(gradients(xs), summed, names=["loss", *f.parameters])
