"""Gradient descent, and descent with momentum."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from lawful.laws import AtMost, Claim, Map, Statement, agreement, law, shape
from lawful.optim.chain import Chain
from lawful.optim.transforms import AddDecayedWeights, EmaMomentum, Momentum, NesterovTrace, ScaleByLearningRate

Params = Iterable[Any]


def gradient_descent(params: Params, *, lr: float, decay: float = 0.0) -> Chain:
    r"""Builds gradient descent, stochastic where the gradient is that of a batch.

    $$\theta_{t + 1} = \theta_t - \eta \, \nabla C(\theta_t)$$

    If $C$ is convex and its gradient has the Lipschitz constant $L$, then for $\eta \le 1 / L$

    $$C(\theta_t) - \min C \le \frac{\|\theta_0 - \theta^*\|^2}{2 \eta t}.$$

    Reference:
        Garrigos and Gower, *Handbook of Convergence Theorems for (Stochastic) Gradient Methods*, 2023.

    Args:
        params: The parameters $\theta$, or groups of them.
        lr: The learning rate $\eta$.
        decay: $\lambda$ of the weight decay, added to the gradient as $\lambda \theta$.

    Examples:
        >>> x = nn.Parameter(torch.tensor([1.0]))
        >>> optimizer = gradient_descent([x], lr=0.25)
        >>> x.square().sum().backward()
        >>> optimizer.step()
        >>> x.item()
        0.5
    """
    return Chain(params, [AddDecayedWeights(decay), ScaleByLearningRate(lr)])


def sgd(params: Params, *, lr: float, momentum: float = 0.9, decay: float = 0.0) -> Chain:
    r"""Builds descent along a sum of past gradients, as PyTorch's `SGD` with momentum.

    $$v_{t + 1} = m \, v_t + \nabla C(\theta_t), \qquad \theta_{t + 1} = \theta_t - \eta \, v_{t + 1}$$

    While the learning rate stays the same it is `heavy_ball`; when it changes, the whole velocity changes with it.

    Reference:
        Polyak, *Some Methods of Speeding Up the Convergence of Iteration Methods*, 1964.

    Args:
        params: The parameters $\theta$, or groups of them.
        lr: The learning rate $\eta$.
        momentum: $m$.
        decay: $\lambda$ of the weight decay, added to the gradient as $\lambda \theta$.

    Examples:
        >>> sgd(nn.Linear(2, 1).parameters(), lr=0.1).param_groups[0]["momentum"]
        0.9
    """
    return Chain(params, [AddDecayedWeights(decay), Momentum(momentum), ScaleByLearningRate(lr)])


def heavy_ball(params: Params, *, lr: float, momentum: float = 0.9, decay: float = 0.0) -> Chain:
    r"""Builds descent with a velocity that the gradient pushes.

    $$v_{t + 1} = m \, v_t - \gamma \, \nabla C(\theta_t), \qquad \theta_{t + 1} = \theta_t + v_{t + 1}$$

    The parameters move by the new velocity $v_{t + 1}$. Written with the old one $v_t$, as one sometimes reads, each
    gradient would act one step late, the first step would do nothing, and $m = 0$ would not be gradient descent.

    Reference:
        Polyak, *Some Methods of Speeding Up the Convergence of Iteration Methods*, 1964.

    Args:
        params: The parameters $\theta$, or groups of them.
        lr: The learning rate $\gamma$.
        momentum: $m$.
        decay: $\lambda$ of the weight decay, added to the gradient as $\lambda \theta$.

    Examples:
        >>> heavy_ball(nn.Linear(2, 1).parameters(), lr=0.1).param_groups[0]["lr"]
        0.1
    """
    return Chain(params, [AddDecayedWeights(decay), ScaleByLearningRate(lr), Momentum(momentum)])


def momentum(params: Params, *, lr: float, beta: float = 0.9, decay: float = 0.0) -> Chain:
    r"""Builds descent along an average of past gradients.

    $$v_{t + 1} = \beta \, v_t + (1 - \beta) \, \nabla C(\theta_t), \qquad
    \theta_{t + 1} = \theta_t - \eta \, v_{t + 1}$$

    It is `heavy_ball` with $m = \beta$ and $\gamma = \eta (1 - \beta)$: its velocity is $-\eta$ times the one here.

    Reference:
        Goh, *Why Momentum Really Works*, 2017.

    Args:
        params: The parameters $\theta$, or groups of them.
        lr: The learning rate $\eta$.
        beta: $\beta$.
        decay: $\lambda$ of the weight decay, added to the gradient as $\lambda \theta$.

    Examples:
        >>> momentum(nn.Linear(2, 1).parameters(), lr=0.1).param_groups[0]["beta"]
        0.9
    """
    return Chain(params, [AddDecayedWeights(decay), EmaMomentum(beta), ScaleByLearningRate(lr)])


def nesterov(params: Params, *, lr: float, momentum: float = 0.9, decay: float = 0.0) -> Chain:
    r"""Builds descent that looks one step ahead, as PyTorch's `SGD(nesterov=True)`.

    $$v_{t + 1} = m \, v_t + \nabla C(\theta_t), \qquad
    \theta_{t + 1} = \theta_t - \eta \, (m \, v_{t + 1} + \nabla C(\theta_t))$$

    In terms of $\theta_t + \eta \, m \, v_t$ this is Nesterov's method: the gradient is taken where the velocity is
    about to carry the parameters.

    Reference:
        Nesterov, *A Method for Solving the Convex Programming Problem with Convergence Rate O(1/k²)*, 1983;
        Sutskever and others, *On the Importance of Initialization and Momentum in Deep Learning*, 2013.

    Args:
        params: The parameters $\theta$, or groups of them.
        lr: The learning rate $\eta$.
        momentum: $m$.
        decay: $\lambda$ of the weight decay, added to the gradient as $\lambda \theta$.

    Examples:
        >>> nesterov(nn.Linear(2, 1).parameters(), lr=0.1).param_groups[0]["decay"]
        0.0
    """
    return Chain(params, [AddDecayedWeights(decay), NesterovTrace(momentum), ScaleByLearningRate(lr)])


def path(build: Callable[[Params], torch.optim.Optimizer], cost: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Where an optimizer goes from a point in six steps: the points, stacked."""
    p = nn.Parameter(x.detach().clone())
    optimizer, points = build([p]), [x]
    for _ in range(6):
        p.grad = torch.func.grad(cost)(p.detach())
        optimizer.step()
        points.append(p.detach().clone())
    return torch.stack(points)


def bowl(x: Tensor) -> Tensor:
    """A convex quadratic with curvatures from 1/2 to 2, least at 1."""
    return (torch.linspace(0.5, 2.0, x.shape[-1]).to(x) * (x - 1).square()).sum() / 2


@law("C(θ_t) - min C ≤ |θ_0 - θ*|² / (2ηt)", discover_with=None)
def sublinear_convergence(f: Map, x: Tensor, *, lr: float) -> Statement:
    """On a convex cost whose gradient is Lipschitz, descent is near the minimum like one over the steps.

    The map gives the points on the way down `bowl`, whose minimum is 0, at 1.

    Kept by: gradient descent with a rate of at most one over the constant.
    Broken by: a rate that is too large; a step in another direction.
    """
    points = f(x)
    bound = (x - 1).square().sum() / (2 * lr * torch.arange(1, len(points)).to(x))
    return AtMost(torch.stack([bowl(point) for point in points[1:]]), bound)


def claims() -> Iterator[Claim]:
    """The laws that descent obeys."""
    x = shape("n 3")

    def going(build: Callable[..., Chain], **options: float) -> Callable[[Tensor], Tensor]:
        return lambda x: path(lambda p: build(p, **options), bowl, x)

    plain = going(gradient_descent, lr=0.5)
    yield Claim(sublinear_convergence(lr=0.5), plain, x, name="gradient_descent(lr=1 / L)")
    averaged = going(momentum, lr=0.5, beta=0.8)
    pushed = going(heavy_ball, lr=0.5 * (1 - 0.8), momentum=0.8)
    yield Claim(
        replace(agreement(other=pushed), cases=40), averaged, x, name="momentum as heavy_ball(lr=η(1 - β), m=β)"
    )
    summed, ball = going(sgd, lr=0.1, momentum=0.8), going(heavy_ball, lr=0.1, momentum=0.8)
    yield Claim(replace(agreement(other=ball), cases=40), summed, x, name="sgd as heavy_ball, at one rate")

    def by_hand(x: Tensor) -> Tensor:
        point, v = x, torch.zeros_like(x)
        seen = [point]
        for _ in range(6):
            ahead = point - 0.1 * 0.8 * v
            v = 0.8 * v + torch.func.grad(bowl)(ahead)
            point = point - 0.1 * v
            seen.append(point - 0.1 * 0.8 * v)
        return torch.stack(seen)

    yield Claim(agreement(other=by_hand), going(nesterov, lr=0.1, momentum=0.8), x, name="nesterov, at the point ahead")
