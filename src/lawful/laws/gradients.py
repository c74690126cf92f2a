"""Gradients, inverses and log-determinants: backpropagation is correct and reaches every parameter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from lawful.laws._helpers import axis_size, require_real, transform_along
from lawful.laws._tree import Key
from lawful.laws.interfaces import Draw, Map
from lawful.laws.law import Axis, Inapplicable, Unsupported, law
from lawful.laws.statements import Equal, Occurs, Statement

_STEP = 1e-3


@law("⟨c, Df(x) v⟩ = ⟨Df(x)ᵀ c, v⟩", rtol=1e-6, every_input=True)
def gradient(f: Map, *xs: Tensor, draw: Draw) -> Statement:
    """Backpropagation computes the derivative with respect to all inputs and parameters.

    The cotangent c and the unit direction v are random. The left side is a central difference $D(h)$ with Richardson
    extrapolation, $(4 D(h/2) - D(h))/3$. Its error is bounded by $|D(h) - D(h/2)|$ and, near a kink, by how far the
    gap between the one-sided differences is from halving with h. Cases in which the first bound exceeds 1 %, such as
    a saturated softmax, are skipped, as are cases in which the output does not change at all and the gradient is below
    its resolution. `gradient().excluding(kink_at(0.0))` excludes kinks by position.

    Satisfied by: compositions of differentiable functions.
    Broken by: a hand-written backward pass; a detached branch; an in-place update under `no_grad`.
    """
    return _check_derivative(f, xs, lambda g, inputs: g(*inputs), draw)


@law("⟨d, D(Df(x)ᵀ c) v⟩ = ⟨D(Df(x)ᵀ c)ᵀ d, v⟩", rtol=1e-6, every_input=True, cases=40)
def second_order_gradient(f: Map, *xs: Tensor, draw: Draw) -> Statement:
    """Double backpropagation computes the derivative of the input gradient, as a gradient penalty needs.

    Checked in the same way as `gradient`.

    Satisfied by: compositions of functions that PyTorch can differentiate twice.
    Broken by: a norm or an angle at 0; a hand-written backward pass that is not differentiable.
    """
    cotangents: list[Tensor] = []

    def input_gradient(g: Map, inputs: list[Tensor]) -> Tensor:
        with torch.enable_grad():
            leaves = [x.requires_grad_() if x.is_floating_point() and x.is_leaf else x for x in inputs]
            y = g(*leaves)
            if not y.is_floating_point():
                raise Inapplicable(f"expected a floating-point output, got {y.dtype}")
            if not cotangents:
                cotangents.append(draw.normal(*y.shape))
            reals = [x for x in leaves if x.requires_grad]
            if not reals:
                raise Inapplicable("no floating-point input to differentiate with respect to")
            if not y.requires_grad:
                return torch.zeros_like(torch.cat([x.reshape(-1) for x in reals]))
            try:
                found = torch.autograd.grad(y, reals, cotangents[0].clone(), create_graph=True, allow_unused=True)
            except RuntimeError as error:
                raise Unsupported(f"the map cannot be differentiated twice: {error}") from error
        pairs = zip(found, reals, strict=True)
        return torch.cat([(torch.zeros_like(x) if g is None else g).reshape(-1) for g, x in pairs])

    return _check_derivative(f, xs, input_gradient, draw)


def _check_derivative(
    f: Map, xs: tuple[Tensor, ...], value: Callable[[Map, list[Tensor]], Tensor], draw: Draw
) -> Statement:
    """States that a difference quotient of `value(f, xs)` equals the directional derivative from backpropagation.

    The direction runs over all floating-point inputs and all parameters.
    """
    parameters = {name: p for name, p in f.parameters.items() if p.is_floating_point()}
    points = [x.detach() for x in xs if x.is_floating_point()] + [p.detach() for p in parameters.values()]
    if not points:
        raise Inapplicable("no floating-point input and no parameter to differentiate with respect to")
    direction = draw.normal(sum(p.numel() for p in points))
    draw.assume(direction.norm() > 0)
    parts = (direction / direction.norm()).split([p.numel() for p in points])
    v = [part.reshape(p.shape) for part, p in zip(parts, points, strict=True)]

    def value_at(h: float) -> Tensor:
        rest = iter([p + h * d for p, d in zip(points, v, strict=True)])
        inputs = [next(rest) if x.is_floating_point() else x for x in xs]
        return value(f.with_parameters(dict(zip(parameters, rest, strict=True))), inputs).detach()

    with torch.enable_grad():
        leaves = [x.detach().requires_grad_(x.is_floating_point()) for x in xs]
        sources = [x for x in leaves if x.requires_grad] + list(parameters.values())
        y = value(f, leaves)
        if not y.is_floating_point():
            raise Inapplicable(f"expected a floating-point output, got {y.dtype}")
        c = draw.normal(*y.shape)
        try:
            found = torch.autograd.grad(y, sources, c.clone(), allow_unused=True) if y.requires_grad else ()
        except RuntimeError as error:
            if "is not implemented" not in str(error):
                raise
            raise Unsupported(f"the map cannot be differentiated: {error}") from error
    backward = sum(((g * d).sum() for g, d in zip(found, v, strict=False) if g is not None), torch.zeros_like(c).sum())

    def differences(h: float) -> tuple[Tensor, Tensor]:
        """Returns the central difference and the gap between the one-sided differences."""
        ahead, behind = value_at(h), value_at(-h)
        return c * (ahead - behind) / (2 * h), c * (ahead + behind - 2 * y.detach()) / h

    (coarse, coarse_gap), (fine, fine_gap) = differences(_STEP), differences(_STEP / 2)
    change = (fine - coarse).abs().sum()
    rounding = torch.finfo(y.dtype).eps * (c * y.detach()).abs().sum() / _STEP
    error = 10 * (change + (2 * fine_gap - coarse_gap).abs().sum() + rounding)
    draw.assume((change <= 0.01 * (fine.abs() + coarse.abs()).sum()) | ~(change + backward).isfinite())
    if not (fine.any() or coarse.any() or fine_gap.any()):  # such as GELU below -9, where 1 + erf(x) is rounded to 0
        largest = max(float(p.abs().max()) for p in points if p.numel())
        resolution = torch.finfo(y.dtype).eps * c.abs().sum() * max(1.0, largest) / _STEP
        draw.assume((backward == 0) | ~(backward.abs() <= resolution))
    cause = ""
    if len(v) == 1 or not direction.all():  # the checker sets entries to zero when it simplifies a counterexample
        names = [*_input_names(xs), *parameters]
        gradients = [*found, *[None] * (len(v) - len(found))]
        cause = _wrong_gradient({name: g for name, g, d in zip(names, gradients, v, strict=True) if d.any()})
    left = (fine + (fine - coarse) / 3).sum()
    return Equal(left, backward, atol=error, exercised=True, causes=[cause])


def _input_names(xs: Sequence[Tensor]) -> list[str]:
    """Returns the names of the floating-point inputs in a report."""
    reals = [n for n, x in enumerate(xs) if x.is_floating_point()]
    return ["the input"] if len(xs) == 1 and reals else [f"input {n}" for n in reals]


def _wrong_gradient(gradients: dict[str, Tensor | None]) -> str:
    """Says which of few gradients is wrong or missing."""
    if len(gradients) > 3:
        return ""
    if all(g is None or not g.any() for g in gradients.values()):
        return f"{' and '.join(gradients)} {'receives' if len(gradients) == 1 else 'receive'} no gradient"
    return f"the gradient of {' or '.join(gradients)} is wrong"


@law("∇ Σ f(x) = g(x)", eval_if_random=True, every_input=True, discover_with=None)
def derivative(f: Map, *xs: Tensor, formula: Callable[..., Tensor]) -> Statement:
    """The gradient of the sum of the outputs with respect to the first input is given by `formula`.

    Satisfied by: the square and 2x; a norm and x / |x|.
    Broken by: the square and x; the gradient of a cross-entropy without the target.
    """
    with torch.enable_grad():
        x = require_real(xs[0]).detach().requires_grad_(True)
        y = f(x, *xs[1:]).sum()
        if not y.requires_grad:
            raise Inapplicable("the output does not require a gradient")
        (found,) = torch.autograd.grad(y, x)
    return Equal(found, f.with_function(formula)(*xs), exercised=True)


@law("f⁻¹(f(x)) = x", eval_if_random=True)
def invertibility(f: Map, x: Tensor, *, inverse: str | Callable[..., Any] = "inverse") -> Statement:
    """The inverse recovers the input.

    `inverse` is the name of a method of the module, or a function. Its first output is compared.

    Satisfied by: coupling layers, affine maps, orthogonal matrices.
    Broken by: an inverse with a wrong sign or order; an inverse that returns a cached value.
    """
    return Equal(f.method(inverse)(f(x)), x, exercised=True)


@law("log_det = log |det Df(x)|", eval_if_random=True)
def log_determinant(f: Map, x: Tensor, *, log_det: Key = 1, draw: Draw) -> Statement:
    """The returned log-determinant of each sample is log |det| of the Jacobian.

    `log_det` is the key of the output that holds it.

    Satisfied by: a coupling layer that sums its log-scales.
    Broken by: a wrong sign; a sum over the batch; a missing factor.
    """
    i = draw.integer(0, require_real(x).shape[0] - 1, "i")
    with torch.enable_grad():
        sample = x[i : i + 1].detach().requires_grad_(True)
        y = f(sample).reshape(-1)
        if not y.requires_grad:
            raise Inapplicable("the output does not require a gradient, so there is no Jacobian to compare with")
        if y.numel() != sample.numel():
            raise Inapplicable(f"expected a square Jacobian, got {sample.numel()} inputs and {y.numel()} outputs")
        rows = [torch.autograd.grad(entry, sample, retain_graph=True)[0].reshape(-1) for entry in y]
    volume = torch.linalg.slogdet(torch.stack(rows)).logabsdet
    reported = f.output(log_det)(x)
    if reported.numel() not in (1, x.shape[0]):
        raise Inapplicable(f"expected one log-determinant per sample, got shape {tuple(reported.shape)}")
    return Equal(reported.reshape(-1)[i if reported.numel() > 1 else 0], volume, exercised=True)


@law("log_det of f⁻¹ at f(x) = -log_det of f at x", eval_if_random=True)
def inverse_log_determinant(
    f: Map, x: Tensor, *, inverse: str | Callable[..., Any] = "inverse", log_det: Key = 1
) -> Statement:
    """The log-determinant that the inverse returns is minus that of the forward map.

    `inverse` is the name of a method of the module, or a function; `log_det` is the key of the output of both that
    holds the log-determinant. `log_determinant` checks the forward map.

    Satisfied by: an inverse that subtracts its log-scales.
    Broken by: an inverse that returns the log-determinant of the forward map.
    """
    back = f.method(inverse).output(log_det)(f(require_real(x)))
    return Equal(back, -f.output(log_det)(x), exercised=True)


def _gradients(outputs: Sequence[Tensor], sources: Sequence[Tensor], cotangents: Sequence[Tensor]) -> list[Tensor]:
    """Returns the gradient of each source; zeros where there is none."""
    pairs = [(y, c) for y, c in zip(outputs, cotangents, strict=True) if y.requires_grad]
    if not pairs or not sources:
        return [torch.zeros_like(source) for source in sources]
    found = torch.autograd.grad([y for y, _ in pairs], sources, [c.clone() for _, c in pairs], allow_unused=True)
    return [torch.zeros_like(s) if g is None else g for s, g in zip(sources, found, strict=True)]


@law("∂f/∂θ ≠ 0 at some x, for every parameter θ", every_input=True, every_output=True)
def every_parameter_receives_a_gradient(f: Map, *xs: Tensor, draw: Draw) -> Statement:
    """Every parameter has a non-zero gradient for some input.

    Satisfied by: layers whose parameters all reach the output.
    Broken by: a layer that is never called; one `detach` too many; rounding or an argmax in between.
    """
    parameters = f.parameters
    if not parameters:
        raise Inapplicable("no parameter requires a gradient")
    with torch.enable_grad():
        ys = [y for y in f(*xs) if y.is_floating_point()]
        found = _gradients(ys, list(parameters.values()), [draw.normal(*y.shape) for y in ys])
    return Occurs([f"gradient of {name}" for name in parameters], [bool((g != 0).any()) for g in found])


def _checkpoint(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *a, **k: checkpoint(function, *a, use_reentrant=False, determinism_check="none", **k)


@law("∇(f recomputed in the backward pass) = ∇f, with the same random state", every_input=True)
def checkpointed_gradient(f: Map, *xs: Tensor, draw: Draw) -> Statement:
    """Activation checkpointing, which runs the forward pass again, gives the same gradients.

    Satisfied by: layers whose randomness comes from PyTorch's generator, such as dropout.
    Broken by: randomness from elsewhere; a call that changes the result of the next.
    """
    parameters, cotangents = f.parameters, list[Tensor]()
    f = f.with_seed(draw.integer(0, 2**16, "ω"))

    def gradients(g: Map) -> list[Tensor]:
        leaves = [x.detach().requires_grad_(x.is_floating_point()) for x in xs]
        sources = [x for x in leaves if x.requires_grad] + list(parameters.values())
        y = g(*leaves)
        if not y.requires_grad or not sources:
            raise Inapplicable("the output does not require a gradient")
        if not cotangents:
            cotangents.append(draw.normal(*y.shape))
        return _gradients([y], sources, cotangents)

    with torch.enable_grad():
        names = [f"gradient of {name}" for name in (*_input_names(xs), *parameters)]
        return Equal(gradients(f), gradients(f.wrapped(_checkpoint)), exact=True, names=names)


@law("∇L(x) = Σ_k w_k ∇L(x_k) for micro-batches x_k of x", eval_if_random=True)
def gradient_accumulation(
    f: Map, *xs: Tensor, batch: Axis = 0, reduction: Literal["mean", "sum"] = "mean", draw: Draw
) -> Statement:
    """Accumulating the gradients of micro-batches gives the gradient of the full batch.

    The map is a scalar loss. With `reduction="mean"` each micro-batch is weighted by its number of samples; with
    `"sum"` the gradients are added.

    Satisfied by: a mean over samples; a sum over tokens divided by a constant.
    Broken by: a mean over the tokens of each micro-batch; batch norm in training mode.
    """
    if reduction not in ("mean", "sum"):
        raise ValueError(f"reduction must be 'mean' or 'sum', got {reduction!r}")
    n = axis_size(xs[0], batch, "batch")
    cut = draw.integer(1, n - 1, "cut")

    def part(first: int, end: int) -> list[Tensor]:
        return transform_along(f, xs, batch, lambda x, same: x.narrow(same, first, end - first))

    def gradients(inputs: Sequence[Tensor]) -> list[Tensor]:
        with torch.enable_grad():
            loss = f(*inputs)
            if loss.numel() != 1:
                raise Inapplicable(f"expected a scalar loss, got shape {tuple(loss.shape)}")
            found = _gradients([loss], list(f.parameters.values()), [torch.ones_like(loss)])
        return [loss.detach().reshape(()), *found]

    weights = (cut / n, 1 - cut / n) if reduction == "mean" else (1.0, 1.0)
    parts = zip(gradients(part(0, cut)), gradients(part(cut, n)), strict=True)
    summed = [weights[0] * a + weights[1] * b for a, b in parts]
    return Equal(gradients(xs), summed, names=["loss", *(f"gradient of {name}" for name in f.parameters)])
