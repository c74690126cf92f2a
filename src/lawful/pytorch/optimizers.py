r"""Optimizers, learning-rate schedulers and gradient clipping.

With gradient $g_t$ at $\theta_{t-1}$ and learning rate $\eta$:

| optimizer | update |
|---|---|
| `SGD` | $\theta_t = \theta_{t-1} - \eta g_t$ |
| `SGD(momentum=m)` | $v_t = m v_{t-1} + g_t$, $\; \theta_t = \theta_{t-1} - \eta v_t$ |
| `SGD(nesterov=True)` | $\theta_t = \theta_{t-1} - \eta (g_t + m v_t)$: the gradient is taken at the point ahead |
| `Adam` | $\theta_t = \theta_{t-1} - \eta\, \hat m_t / (\sqrt{\hat v_t} + \varepsilon)$, with bias-corrected moments |
| `AdamW` | Adam after $\theta \leftarrow (1 - \eta \lambda)\, \theta$ |
| `Muon` | $\theta_t = \theta_{t-1} - \eta\, U V^\top$ for momentum $U \Sigma V^\top$, up to the Newton-Schulz error |
| `clip_grad_norm_` | $g \leftarrow g \min(1, c / (\lVert g \rVert + 10^{-6}))$ |
| `CosineAnnealingLR` | $\eta_t = \eta_0 (1 + \cos(\pi t / T)) / 2$ |

On a convex cost whose gradient has Lipschitz constant $1 / \eta$, gradient descent satisfies
$C(\theta_t) - \min C \le \lVert \theta_0 - \theta^* \rVert^2 / (2 \eta t)$. SGD commutes with rotations, Adam only with
permutations and sign flips of the coordinates; Adam with $\varepsilon = 0$ does not depend on the scale of the cost.

Reference:
    Polyak, *Some methods of speeding up the convergence of iteration methods*, 1964. Sutskever, Martens, Dahl and
    Hinton, *On the importance of initialization and momentum in deep learning*, 2013. Kingma and Ba, *Adam*, 2015.
    Loshchilov and Hutter, *Decoupled Weight Decay Regularization*, 2019. Jordan et al., *Muon*, 2024.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn, optim
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.optim import lr_scheduler

from lawful.laws import (
    Claim,
    Draw,
    agreement,
    boundedness,
    equivariance,
    homogeneity,
    idempotence,
    layout_independence,
    linearity,
    monotonicity,
    non_negativity,
    permutation_equivariance,
    scale_invariance,
    shape,
    transformed,
)
from lawful.pytorch._rows import Row, claims_from

_STEPS = 6
_STRIDES = "torch: the fused CPU kernels read storage in order, whatever the strides of parameter and gradient"
_Optimizer = Callable[..., optim.Optimizer]


def claims() -> Iterator[Claim]:
    """Laws of torch.optim, its schedulers, and gradient clipping."""
    yield from claims_from([*_gradient_descent(), *_adam(), *_muon(), *_schedulers(), *_clipping()])


def _cost(x: Tensor) -> Tensor:
    """Convex quadratic with curvatures from 1/2 to 2 and minimum 0 at 1."""
    return (torch.linspace(0.5, 2.0, x.shape[-1]).to(x) * (x - 1).square()).sum() / 2


def _path(optimizer: _Optimizer, x: Tensor, cost: Callable[[Tensor], Tensor] = _cost) -> Tensor:
    """Returns the start and the points after each step, stacked."""
    parameter = nn.Parameter(x.detach().clone())
    steps, points = optimizer([parameter]), [x]
    for _ in range(_STEPS):
        parameter.grad = torch.func.grad(cost)(parameter.detach())
        steps.step()
        points.append(parameter.detach().clone())
    return torch.stack(points)


def _one_step(optimizer: _Optimizer, gradient: Tensor) -> Tensor:
    """Returns the update of a parameter at 0 for a given gradient."""
    parameter = nn.Parameter(torch.zeros_like(gradient, memory_format=torch.contiguous_format))
    parameter.grad = gradient.detach().clone()
    optimizer([parameter]).step()
    return parameter.detach().clone()


def _gradient_descent() -> Iterator[Row]:
    x, slope = shape("n 3"), torch.func.grad(_cost)
    plain = partial(optim.SGD, lr=0.5)

    def slack(x: Tensor) -> Tensor:
        """Bound of the convergence theorem minus the cost, at every step."""
        costs = torch.stack([_cost(point) for point in _path(plain, x)[1:]])
        return (x - 1).square().sum() / (2 * 0.5 * torch.arange(1, _STEPS + 1).to(x)) - costs

    def heavy_ball(x: Tensor) -> Tensor:
        points = [x, x - 0.1 * slope(x)]
        for _ in range(_STEPS - 1):
            points.append(points[-1] - 0.1 * slope(points[-1]) + 0.8 * (points[-1] - points[-2]))
        return torch.stack(points)

    def look_ahead(x: Tensor) -> Tensor:
        point, v, points = x, torch.zeros_like(x), [x]
        for _ in range(_STEPS):
            v = 0.8 * v + slope(point - 0.1 * 0.8 * v)
            point = point - 0.1 * v
            points.append(point - 0.1 * 0.8 * v)
        return torch.stack(points)

    def with_penalty(x: Tensor) -> Tensor:
        return _path(plain, x, lambda p: _cost(p) + 0.1 * p.square().sum() / 2)

    yield "convergence bound minus cost of SGD", slack, x, (non_negativity(),)
    momentum = partial(optim.SGD, lr=0.1, momentum=0.8)
    yield "SGD(momentum=0.8)", partial(_path, momentum), x, (agreement(other=heavy_ball),)
    yield "SGD(nesterov=True)", partial(_path, partial(momentum, nesterov=True)), x, (agreement(other=look_ahead),)
    decay = partial(plain, weight_decay=0.1)
    yield "SGD(weight_decay=0.1)", partial(_path, decay), x, (agreement(other=with_penalty),)
    turned = equivariance(sample=_rotation, act=lambda q, g: g @ q)
    yield "step of SGD", partial(_one_step, plain), shape("n 3"), (linearity(), turned)


def _rotation(draw: Draw) -> Tensor:
    return torch.linalg.qr(draw.normal(3, 3)).Q


def _adam() -> Iterator[Row]:
    x = shape("n 3")

    def equation(x: Tensor) -> Tensor:
        m, v, points = torch.zeros_like(x), torch.zeros_like(x), [x]
        for t in range(1, _STEPS + 1):
            g = torch.func.grad(_cost)(points[-1])
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
            points.append(points[-1] - 0.1 * (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 0.1))
        return torch.stack(points)

    def at_rest(x: Tensor) -> Tensor:
        return _path(partial(optim.AdamW, lr=0.1, weight_decay=0.5), x, lambda p: 0 * p.sum())[-1]

    def last(x: Tensor) -> Tensor:
        return plain(x)[-1]

    plain = partial(_path, partial(optim.Adam, lr=0.1, eps=0.1))
    yield "Adam", plain, x, (agreement(other=equation),)
    yield "last point of Adam", last, x, (permutation_equivariance(axis=0),)
    yield "AdamW without gradient", at_rest, x, (agreement(other=lambda x: (1 - 0.1 * 0.5) ** _STEPS * x),)
    for kind in (optim.Adam, optim.AdamW, optim.SGD):
        name, single = f"{kind.__name__}(fused=True)", partial(_one_step, partial(kind, lr=0.1))
        fused = partial(_one_step, partial(kind, lr=0.1, fused=True))
        same, strided = agreement(other=lambda g, f=single: f(g.contiguous())), layout_independence()
        yield name, lambda g, f=fused: f(g.contiguous()), x, (same,)
        yield (
            f"{name}, parameter and gradient with other strides",
            lambda g, f=fused: f(g),
            x,
            (strided.waived(_STRIDES),),
        )
    away = transformed(lambda g: g + torch.where(g < 0, -1.0, 1.0), "n 3")
    signs = agreement(other=lambda g: -0.1 * g.sign())
    first = partial(_one_step, partial(optim.Adam, lr=0.1, eps=0.0))
    yield "first step of Adam(eps=0)", first, away, (signs, scale_invariance(axis=0), permutation_equivariance(axis=1))


def _muon() -> Iterator[Row]:
    def step(g: Tensor) -> Tensor:
        return -_one_step(partial(optim.Muon, lr=1.0, weight_decay=0.0, momentum=0.0, nesterov=False), g)

    def singular_values(g: Tensor) -> Tensor:
        return torch.linalg.svdvals(step(g))

    full_rank = transformed(lambda x: torch.eye(3, 5).to(x) + 0.8 * x / (1 + x.norm()), "3 5")
    bounds = boundedness(low=0.6, high=1.3)
    yield "singular values of a step of Muon", singular_values, full_rank, (bounds,)
    yield "step of Muon", step, full_rank, (homogeneity(degree=0.0, rtol=0.02),)


def _rates(scheduler: Callable[..., Any], t: Tensor, steps: int = 20) -> Tensor:
    """Returns the learning rates at the steps `t`, at most `steps`, from a base rate of 1."""
    optimizer = optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule, rates = scheduler(optimizer), list[float]()
    for _ in range(steps + 1):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return torch.tensor(rates, dtype=torch.float64).to(t)[t.long().clamp(max=steps)]


def _schedulers() -> Iterator[Row]:
    t = transformed(lambda x: (10 * x.abs()).clamp(max=1e6).floor(), "n")
    cosine = partial(lr_scheduler.CosineAnnealingLR, T_max=20)
    warmup = partial(lr_scheduler.LinearLR, start_factor=0.1, total_iters=10)
    decay = partial(lr_scheduler.ExponentialLR, gamma=0.9)
    cycle = partial(lr_scheduler.OneCycleLR, max_lr=1.0, total_steps=22)
    decreasing, bounds = monotonicity(decreasing=True), boundedness(low=0.0, high=1.0)
    equation = agreement(other=lambda t: (1 + (math.pi * t.clamp(max=20) / 20).cos()) / 2)
    yield "CosineAnnealingLR", partial(_rates, cosine), t, (equation, decreasing, bounds)
    ramp = agreement(other=lambda t: 0.1 + 0.9 * (t / 10).clamp(max=1))
    yield "LinearLR", partial(_rates, warmup), t, (ramp, monotonicity(), bounds)
    yield (
        "ExponentialLR",
        partial(_rates, decay),
        t,
        (agreement(other=lambda t: 0.9 ** t.clamp(max=20)), decreasing, bounds),
    )
    yield "OneCycleLR", partial(_rates, cycle), t, (bounds,)


def _clipping() -> Iterator[Row]:
    def clip(method: Callable[..., Any], g: Tensor) -> Tensor:
        halves = [nn.Parameter(torch.zeros_like(half)) for half in g.chunk(2, -1)]
        for parameter, half in zip(halves, g.detach().chunk(2, -1), strict=True):
            parameter.grad = half.clone()
        method(halves, 0.5)
        return torch.cat([parameter.grad for parameter in halves if parameter.grad is not None], -1)

    def equation(g: Tensor) -> Tensor:
        return g * (0.5 / (g.norm() + 1e-6)).clamp(max=1.0)

    by_norm, by_value = partial(clip, clip_grad_norm_), partial(clip, clip_grad_value_)
    turned = equivariance(sample=lambda draw: torch.linalg.qr(draw.normal(4, 4)).Q, act=lambda q, g: g @ q)
    yield "clip_grad_norm_", by_norm, shape("n 4"), (agreement(other=equation), turned)
    yield "norm after clip_grad_norm_", lambda g: by_norm(g).norm(), shape("n 4"), (boundedness(high=0.5),)
    yield "clip_grad_value_", by_value, shape("n 4"), (idempotence(), boundedness(low=-0.5, high=0.5), monotonicity())
