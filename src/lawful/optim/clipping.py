"""Clipping gradients: all by their length, or each entry."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.laws import Claim, agreement, idempotence, shape


@torch.no_grad()
def clip_norm(params: Iterable[Tensor], at_most: float) -> Float[Tensor, ""]:
    r"""Shortens the gradient, of all parameters together, where it is too long, and returns how long it was.

    $$g \leftarrow g \, \min\Bigl(1, \frac{c}{\|g\|_2 + 10^{-6}}\Bigr)$$

    The direction stays. A gradient with NaN or infinity in it stays so.

    Reference:
        Pascanu, Mikolov and Bengio, *On the Difficulty of Training Recurrent Neural Networks*, 2013.

    Args:
        params: The parameters, whose `grad` is changed; those without are left out.
        at_most: $c$.

    Examples:
        >>> x = nn.Parameter(torch.zeros(2))
        >>> x.grad = torch.tensor([3.0, 4.0])
        >>> clip_norm([x], 1.0)
        tensor(5.)
        >>> x.grad
        tensor([0.6000, 0.8000])
    """
    grads = _grads(params, at_most)
    if not grads:
        return torch.zeros(())
    device = grads[0].device
    norm = torch.linalg.vector_norm(torch.stack([n.to(device) for n in torch._foreach_norm(grads)]))
    factor = (at_most / (norm + 1e-6)).clamp(max=1.0)
    for g in grads:
        g.mul_(factor.to(g.device))
    return norm


@torch.no_grad()
def clip_value(params: Iterable[Tensor], at_most: float) -> None:
    r"""Brings each entry of the gradient between $-c$ and $c$.

    Args:
        params: The parameters, whose `grad` is changed; those without are left out.
        at_most: $c$.

    Examples:
        >>> x = nn.Parameter(torch.zeros(2))
        >>> x.grad = torch.tensor([3.0, -0.5])
        >>> clip_value([x], 1.0)
        >>> x.grad
        tensor([ 1.0000, -0.5000])
    """
    if grads := _grads(params, at_most):
        torch._foreach_clamp_min_(grads, -at_most)
        torch._foreach_clamp_max_(grads, at_most)


def _grads(params: Iterable[Tensor], at_most: float) -> list[Tensor]:
    if not at_most > 0:
        raise ValueError(f"at_most is above 0: got {at_most}")
    return [p.grad for p in params if p.grad is not None]


def claims() -> Iterator[Claim]:
    """The laws that clipping obeys."""

    def clipped(x: Tensor) -> Tensor:
        p = nn.Parameter(torch.zeros_like(x))
        p.grad = x.detach().clone()
        clip_value([p], 0.5)
        return p.grad

    def shortened(x: Tensor) -> Tensor:
        halves = [nn.Parameter(torch.zeros_like(half)) for half in x.chunk(2, -1)]
        for p, half in zip(halves, x.detach().chunk(2, -1), strict=True):
            p.grad = half.clone()
        clip_norm(halves, 0.5)
        return torch.cat([p.grad for p in halves if p.grad is not None], -1)

    def projected(x: Tensor) -> Tensor:
        return x * (0.5 / (x.square().sum().sqrt() + 1e-6)).clamp(max=1.0)

    yield Claim(idempotence(), clipped, shape("n 4"), name="clip_value")
    yield Claim(agreement(other=projected), shortened, shape("n 4"), name="clip_norm")
