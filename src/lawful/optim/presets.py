"""SGD, Adam and AdamW as presets of `Chain`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from lawful.laws import AtMost, Claim, Map, Statement, law, shape
from lawful.optim.chain import Chain
from lawful.optim.transforms import AddDecayedWeights, GradientTransform, Momentum, ScaleByAdam, ScaleByLearningRate


def sgd(
    params: Iterable[Any], lr: float, *, momentum: float = 0.0, nesterov: bool = False, weight_decay: float = 0.0
) -> Chain:
    r"""Builds stochastic gradient descent, as `torch.optim.SGD`.

    $$v_{t + 1} = m \, v_t + \nabla L(\theta_t), \qquad \theta_{t + 1} = \theta_t - \eta \, v_{t + 1}$$

    With Nesterov momentum, the step is $-\eta \, (m \, v_{t + 1} + \nabla L(\theta_t))$: the gradient is evaluated
    where the momentum is about to move the parameters. Polyak's heavy ball scales the gradient before it accumulates,
    `Chain(params, [ScaleByLearningRate(lr), Momentum(m)])`; both are equal at a constant learning rate.

    If $L$ is convex, its gradient has the Lipschitz constant $K$, $m = 0$ and $\eta \le 1 / K$, then

    $$L(\theta_t) - \min L \le \frac{\|\theta_0 - \theta^*\|^2}{2 \eta t}.$$

    Reference:
        Polyak, *Some Methods of Speeding Up the Convergence of Iteration Methods*, 1964; Sutskever et al., *On the
        Importance of Initialization and Momentum in Deep Learning*, 2013; Garrigos and Gower, *Handbook of Convergence
        Theorems for (Stochastic) Gradient Methods*, 2023.

    Args:
        params: Parameters or parameter groups.
        lr: Learning rate $\eta$.
        momentum: Momentum $m$.
        nesterov: Whether to use Nesterov momentum.
        weight_decay: Weight decay $\lambda$, added to the gradient as $\lambda \theta$.

    Examples:
        >>> x = nn.Parameter(torch.tensor([1.0]))
        >>> optimizer = sgd([x], lr=0.25)
        >>> x.square().sum().backward()
        >>> optimizer.step()
        >>> x.item()
        0.5
    """
    if nesterov and not momentum:
        raise ValueError("nesterov needs momentum > 0, got momentum=0.0")
    accumulate: list[GradientTransform] = [Momentum(momentum, nesterov)] if momentum else []
    return Chain(params, [AddDecayedWeights(weight_decay), *accumulate, ScaleByLearningRate(lr)])


def adam(
    params: Iterable[Any],
    lr: float = 1e-3,
    *,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
) -> Chain:
    r"""Builds Adam, as `torch.optim.Adam`.

    $$\theta_{t + 1} = \theta_t - \eta \, \frac{\hat v_t}{\sqrt{\hat s_t} + \epsilon}$$

    with the averages $\hat v$ and $\hat s$ of `ScaleByAdam`. The weight decay is coupled: it is part of the gradient.

    Reference:
        Kingma and Ba, *Adam: A Method for Stochastic Optimization*, 2015.

    Args:
        params: Parameters or parameter groups.
        lr: Learning rate $\eta$.
        betas: Decays $\beta_1$ and $\beta_2$ of the averages of the gradient and its square.
        eps: $\epsilon$, added to the denominator.
        weight_decay: Weight decay $\lambda$, added to the gradient as $\lambda \theta$.

    Examples:
        >>> x = nn.Parameter(torch.tensor([100.0]))
        >>> optimizer = adam([x], lr=1.0)
        >>> x.square().sum().backward()
        >>> optimizer.step()
        >>> x.item()
        99.0
    """
    return Chain(params, [AddDecayedWeights(weight_decay), ScaleByAdam(betas, eps), ScaleByLearningRate(lr)])


def adamw(
    params: Iterable[Any],
    lr: float = 1e-3,
    *,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.01,
) -> Chain:
    r"""Builds Adam with decoupled weight decay, as `torch.optim.AdamW`.

    $$\theta_{t + 1} = \theta_t - \eta \, \Bigl(\frac{\hat v_t}{\sqrt{\hat s_t} + \epsilon} + \lambda \theta_t\Bigr)$$

    Reference:
        Loshchilov and Hutter, *Decoupled Weight Decay Regularization*, 2019.

    Args:
        params: Parameters or parameter groups.
        lr: Learning rate $\eta$.
        betas: Decays $\beta_1$ and $\beta_2$ of the averages of the gradient and its square.
        eps: $\epsilon$, added to the denominator.
        weight_decay: Weight decay $\lambda$: every step shrinks the parameters by the factor $1 - \eta \lambda$.

    Examples:
        >>> layer = nn.Linear(2, 1)
        >>> optimizer = adamw([{"params": [layer.weight]}, {"params": [layer.bias], "weight_decay": 0.0}])
        >>> [group["weight_decay"] for group in optimizer.param_groups]
        [0.01, 0.0]
    """
    return Chain(params, [ScaleByAdam(betas, eps), AddDecayedWeights(weight_decay), ScaleByLearningRate(lr)])


def _trajectory(build: Callable[[list[nn.Parameter]], torch.optim.Optimizer], x: Tensor) -> Tensor:
    """Returns the points that six steps on `_quadratic` visit."""
    p = nn.Parameter(x.detach().clone())
    optimizer, points = build([p]), [x]
    for _ in range(6):
        p.grad = torch.func.grad(_quadratic)(p.detach())
        optimizer.step()
        points.append(p.detach().clone())
    return torch.stack(points)


def _quadratic(x: Tensor) -> Tensor:
    """A convex loss with curvatures from 1/2 to 2 and its minimum 0 at 1."""
    return (torch.linspace(0.5, 2.0, x.shape[-1]).to(x) * (x - 1).square()).sum() / 2


@law("L(θ_t) - min L ≤ |θ_0 - θ*|² / (2ηt)", discover_with=None)
def _sublinear_convergence(f: Map, x: Tensor, *, lr: float) -> Statement:
    """The suboptimality of gradient descent on a smooth convex loss falls like one over the number of steps.

    The map returns the points visited on `_quadratic`.

    Satisfied by: gradient descent with a learning rate of at most one over the Lipschitz constant.
    Broken by: a larger learning rate; a step in another direction.
    """
    points = f(x)
    bound = (x - 1).square().sum() / (2 * lr * torch.arange(1, len(points)).to(x))
    return AtMost(torch.stack([_quadratic(point) for point in points[1:]]), bound)


def claims() -> Iterator[Claim]:
    """Laws of the presets."""

    def descend(x: Tensor) -> Tensor:
        return _trajectory(lambda p: sgd(p, lr=0.5), x)

    yield Claim(_sublinear_convergence(lr=0.5), descend, shape("n 3"), name="sgd(lr=1 / K)")
