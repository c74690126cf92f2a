"""What the divergences share: the check of their inputs, p log q, and a law."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lawful.functions.checks import seen
from lawful.laws import Same, Statement, law


def check_distributions(**distributions: Tensor) -> None:
    """Refuses tensors that are not made of distributions along their last axis, over the same outcomes.

    What rounding does to probabilities is let pass, and so is NaN. Values are not checked where they cannot be looked
    at: in compiled code and inside `torch.vmap`.
    """
    check_outcomes(**distributions)
    for name, p in distributions.items():
        values, rounding = p.detach(), torch.finfo(p.dtype).eps
        _refuse(values < -8 * rounding, f"{name} is to have no negative probability", values)
        total = values.sum(-1)
        off = (total - 1).abs() > max(1e-3, rounding**0.5)
        _refuse(off, f"the probabilities of {name} are to add up to 1 along the last axis", total)


def check_probabilities(**events: Tensor) -> None:
    """Refuses numbers that are no probabilities, each by itself; lets pass what `check_distributions` does."""
    for name, p in events.items():
        _real(name, p)
        values, rounding = p.detach(), 8 * torch.finfo(p.dtype).eps
        _refuse((values < -rounding) | (values > 1 + rounding), f"{name} is to be from 0 to 1", values)


def _refuse(bad: Tensor, wanted: str, values: Tensor) -> None:
    if seen(bad):
        raise ValueError(f"{wanted}: got {float(values[bad][0]):g}")


def _real(name: str, x: Tensor) -> None:
    if not x.is_floating_point():
        raise TypeError(f"{name} is to be of real numbers: got {x.dtype}")


def check_outcomes(**tensors: Tensor) -> None:
    """Refuses tensors that are not of real numbers, or whose last axes differ: one outcome is not all of them."""
    for name, x in tensors.items():
        _real(name, x)
    if len({x.shape[-1:] for x in tensors.values()}) > 1 or not all(x.dim() for x in tensors.values()):
        shapes = " and ".join(str(tuple(x.shape)) for x in tensors.values())
        raise ValueError(f"{' and '.join(tensors)} are to have the same outcomes along the last axis: got {shapes}")


def p_log_q(p: Tensor, q: Tensor) -> Tensor:
    r"""Returns $p \log q$, which is 0 where both are 0 and $-\infty$ where only $q$ is; so are its gradients finite."""
    return p * q.clamp(min=0).masked_fill((p <= 0) & (q <= 0), 1.0).log()


def p_times_log(p: Tensor, log_q: Tensor) -> Tensor:
    r"""Returns $p \log q$ from $\log q$; 0 where both $p$ and $q$ are 0."""
    return p * log_q.masked_fill((p <= 0) & log_q.isneginf(), 0.0)


@law("D(p, q) = ∞ ⇔ p_i > 0, q_i = 0 for some i", tries=None)
def infinite_off_support(f: Callable[..., Tensor], p: Tensor, q: Tensor) -> Statement:
    """The output is infinite exactly where something happens that was said to be impossible.

    Kept by: the Kullback-Leibler divergence, cross-entropy.
    Broken by: a logarithm with an eps inside; 0 log 0 that is infinite or NaN.
    """
    impossible = ((p > 0) & (q == 0)).any(-1)
    found = f(p, q)
    return Same(
        (found.isposinf().to(p), found.isfinite().to(p)),
        (impossible.to(p), (~impossible).to(p)),
        exercised=bool(impossible.any()),
    )
