"""Adam, AdamW, and Adam without the correction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from lawful.laws import Claim, agreement, shape
from lawful.optim.chain import Chain
from lawful.optim.sgd import bowl, path
from lawful.optim.transforms import AdamMoments, AddDecayedWeights, ScaleByLearningRate, UncorrectedMoments

Params = Iterable[Any]


def adam(
    params: Params,
    *,
    lr: float = 1e-3,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    decay: float = 0.0,
) -> Chain:
    r"""Builds Adam: descent along the average gradient, each entry in units of its own size.

    $$\theta_{t + 1} = \theta_t - \frac{\eta}{\sqrt{\hat s_t} + \epsilon} \, \hat v_t$$

    with the corrected moments of `AdamMoments`. The decay is coupled: part of the gradient, and so divided by its size.

    Reference:
        Kingma and Ba, *Adam: A Method for Stochastic Optimization*, 2015.

    Args:
        params: The parameters $\theta$, or groups of them.
        lr: The learning rate $\eta$.
        beta1: $\beta_1$, how slowly the average gradient $\hat v$ changes.
        beta2: $\beta_2$, how slowly the average square $\hat s$ changes.
        eps: $\epsilon$.
        decay: $\lambda$ of the weight decay, added to the gradient as $\lambda \theta$.

    Examples:
        >>> x = torch.nn.Parameter(torch.tensor([100.0]))
        >>> optimizer = adam([x], lr=1.0)
        >>> x.square().sum().backward()
        >>> optimizer.step()
        >>> x.item()
        99.0
    """
    return Chain(params, [AddDecayedWeights(decay), AdamMoments(beta1, beta2, eps), ScaleByLearningRate(lr)])


def adamw(
    params: Params,
    *,
    lr: float = 1e-3,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    decay: float = 0.01,
) -> Chain:
    r"""Builds Adam with decoupled decay: the same chain as `adam` with the decay behind the moments.

    $$\theta_{t + 1} = \theta_t - \eta \, \Bigl(\frac{\hat v_t}{\sqrt{\hat s_t} + \epsilon} + \lambda \theta_t\Bigr)$$

    Reference:
        Loshchilov and Hutter, *Decoupled Weight AddDecayedWeights Regularization*, 2019.

    Args:
        params: The parameters $\theta$, or groups of them.
        lr: The learning rate $\eta$.
        beta1: $\beta_1$, how slowly the average gradient $\hat v$ changes.
        beta2: $\beta_2$, how slowly the average square $\hat s$ changes.
        eps: $\epsilon$.
        decay: $\lambda$: without a gradient the parameters shrink by $1 - \eta \lambda$ at each step.

    Examples:
        >>> layer = torch.nn.Linear(2, 1)
        >>> optimizer = adamw([{"params": [layer.weight]}, {"params": [layer.bias], "decay": 0.0}])
        >>> [group["decay"] for group in optimizer.param_groups]
        [0.01, 0.0]
    """
    return Chain(params, [AdamMoments(beta1, beta2, eps), AddDecayedWeights(decay), ScaleByLearningRate(lr)])


def uncorrected_adam(
    params: Params,
    *,
    lr: float = 1e-3,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    decay: float = 0.0,
) -> Chain:
    r"""Builds Adam without the correction, to see what that is for.

    $$\theta_{t + 1} = \theta_t - \frac{\eta}{\sqrt{s_t} + \epsilon} \, v_t$$

    The first step is $(1 - \beta_1) / \sqrt{1 - \beta_2}$ times that of `adam`: about 3 times, as $s$ starts further
    below its mean than $v$ does.

    Reference:
        Kingma and Ba, *Adam: A Method for Stochastic Optimization*, 2015, section 3.

    Args:
        params: The parameters $\theta$, or groups of them.
        lr: The learning rate $\eta$.
        beta1: $\beta_1$, how slowly the average gradient $v$ changes.
        beta2: $\beta_2$, how slowly the average square $s$ changes.
        eps: $\epsilon$.
        decay: $\lambda$ of the weight decay, added to the gradient as $\lambda \theta$.

    Examples:
        >>> x = torch.nn.Parameter(torch.tensor([100.0]))
        >>> optimizer = uncorrected_adam([x], lr=1.0)
        >>> x.square().sum().backward()
        >>> optimizer.step()
        >>> round(100 - x.item(), 2)
        3.16
    """
    return Chain(params, [AddDecayedWeights(decay), UncorrectedMoments(beta1, beta2, eps), ScaleByLearningRate(lr)])


def claims() -> Iterator[Claim]:
    """The laws that Adam obeys."""

    def fused(x: Tensor) -> Tensor:
        return path(lambda p: adam(p, lr=0.1, eps=0.1), bowl, x)

    def equation(x: Tensor) -> Tensor:
        v, s, points = torch.zeros_like(x), torch.zeros_like(x), [x]
        for t in range(1, 7):
            g = torch.func.grad(bowl)(x)
            v, s = 0.9 * v + 0.1 * g, 0.999 * s + (1 - 0.999) * g**2
            x = x - 0.1 * (v / (1 - 0.9**t)) / ((s / (1 - 0.999**t)).sqrt() + 0.1)
            points.append(x)
        return torch.stack(points)

    def shrunk(x: Tensor) -> Tensor:
        return path(lambda p: adamw(p, lr=0.1, decay=0.5), lambda x: 0 * x.sum(), x)[-1]

    def by_default(build: Callable[[Params], torch.optim.Optimizer]) -> Callable[[Tensor], Tensor]:
        return lambda x: path(build, bowl, x)

    yield Claim(replace(agreement(other=equation), cases=40), fused, shape("n 3"), name="adam")
    for ours, theirs in ((adam, torch.optim.Adam), (adamw, torch.optim.AdamW)):
        yield Claim(
            agreement(other=by_default(theirs)), by_default(ours), shape("n 3"), name=f"{ours.__name__}, defaults"
        )
    first = (1 - 0.9) / (1 - 0.999) ** 0.5 * 1e-3
    yield Claim(
        agreement(other=lambda x: x - first * torch.func.grad(bowl)(x).sign(), within=1e-4),
        lambda x: by_default(uncorrected_adam)(x)[1],
        shape("n 3"),
        name="uncorrected_adam, first step",
    )
    yield Claim(agreement(other=lambda x: (1 - 0.1 * 0.5) ** 6 * x), shrunk, shape("n 3"), name="adamw at rest")
