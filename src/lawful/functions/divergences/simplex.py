"""What the divergences share: the check of their inputs, p log q, and a law."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lawful.laws import Same, Statement, law


def check_distributions(**distributions: Tensor) -> None:
    """Refuses tensors that are not made of distributions along their last axis.

    What rounding does to probabilities is let pass, and so is NaN. Nothing is checked where values cannot be looked
    at: in compiled code and inside `torch.vmap`.
    """
    if torch.compiler.is_compiling():
        return
    for name, p in distributions.items():
        values = p.detach()
        rounding = torch.finfo(p.dtype).eps
        try:
            if bool((values < -8 * rounding).any()):
                raise ValueError(f"{name} is to have no negative probability: got {float(values.min()):g}")
            total = values.sum(-1)
            off = (total - 1).abs()
            if bool((off > max(1e-3, rounding**0.5)).any()):
                worst = float(total.flatten()[off.nan_to_num(0.0).argmax()])
                raise ValueError(f"the probabilities of {name} are to add up to 1 along the last axis: got {worst:g}")
        except RuntimeError as error:
            if "vmap" not in str(error):
                raise


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
