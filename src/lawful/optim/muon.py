"""Muon: momentum with orthogonalized updates, for matrices."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.laws import Claim, Draw, boundedness, equivariance, transformed
from lawful.optim.chain import Chain
from lawful.optim.transforms import (
    AddDecayedWeights,
    EmaMomentum,
    GradientTransform,
    ScaleByAdam,
    ScaleByLearningRate,
    StepContext,
    WarmupMomentum,
    _check_range,
    _Stateless,
)

_COEFFICIENTS = 3.4445, -4.7750, 2.0315


def newton_schulz(x: Float[Tensor, "*batch m n"], *, steps: int = 5, eps: float = 1e-7) -> Float[Tensor, "*batch m n"]:
    r"""Brings the singular values of matrices close to 1 by Newton-Schulz iterations.

    $$X_0 = \frac{X}{\|X\|_F}, \qquad X_{k + 1} = a X_k + b \, (X_k X_k^\top) X_k + c \, (X_k X_k^\top)^2 X_k$$

    The singular vectors stay. The coefficients $(a, b, c) = (3.4445, -4.7750, 2.0315)$ raise small values fast but do
    not converge: after five steps, values that were at least 1/100 of the norm lie between 0.68 and 1.14. Zero stays
    zero.

    Reference:
        Jordan, *Muon: An Optimizer for Hidden Layers in Neural Networks*, 2024.

    Args:
        x: Matrices $X$, all orthogonalized in the same batched products.
        steps: Number of iterations.
        eps: Lower bound of the norm in the denominator.

    Examples:
        >>> values = torch.linalg.svdvals(newton_schulz(torch.tensor([[3.0, 0.0], [0.0, 0.1]])))
        >>> bool(((values > 0.6) & (values < 1.2)).all())
        True
    """
    a, b, c = _COEFFICIENTS
    tall = x.shape[-2] > x.shape[-1]
    y = (x.mT if tall else x).flatten(end_dim=-3) if x.ndim > 3 else (x.mT if tall else x)
    y = y[None] if x.ndim == 2 else y
    y = y / torch.linalg.matrix_norm(y, keepdim=True).clamp_min(eps)
    for _ in range(steps):
        gram = y @ y.mT
        y = torch.baddbmm(y, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), y, beta=a)
    return (y.mT if tall else y).reshape(x.shape)


def aspect_ratio_scale(m: int, n: int) -> float:
    r"""Returns $\sqrt{\max(1, m / n)}$, so that updates of any shape change the outputs alike.

    Args:
        m: Rows of the matrix.
        n: Columns of the matrix.
    """
    return math.sqrt(max(1, m / n))


def adam_matched_scale(m: int, n: int) -> float:
    r"""Returns $0.2 \sqrt{\max(m, n)}$, so that the updates have the RMS of AdamW's at the same learning rate.

    Reference:
        Liu et al., *Muon is Scalable for LLM Training*, 2025.

    Args:
        m: Rows of the matrix.
        n: Columns of the matrix.
    """
    return 0.2 * math.sqrt(max(m, n))


@dataclass(frozen=True)
class Orthogonalize(_Stateless):
    """Orthogonalizes matrices by `newton_schulz`, those of one shape or its transpose in one batch.

    Args:
        ns_steps: Number of Newton-Schulz iterations.
        scale: Factor of a matrix, from its numbers of rows and columns.
        dtype: Dtype of the iterations. bfloat16 is fast on GPUs and slow on most CPUs.
    """

    ns_steps: int = 5
    scale: Callable[[int, int], float] = aspect_ratio_scale
    dtype: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        _check_range("ns_steps", self.ns_steps, low=1, below=100)

    def __call__(self, updates: list[Tensor], context: StepContext) -> list[Tensor]:
        stacks: dict[tuple[int, int], list[int]] = {}
        for i, update in enumerate(updates):
            if update.ndim != 2:
                raise ValueError(f"Muon expects matrices, got a parameter of shape {tuple(update.shape)}")
            m, n = update.shape
            stacks.setdefault((min(m, n), max(m, n)), []).append(i)
        result = list(updates)
        for (rows, _), indices in stacks.items():
            wide = [updates[i] if len(updates[i]) == rows else updates[i].mT for i in indices]
            values = newton_schulz(torch.stack(wide).to(self.dtype), steps=context.options["ns_steps"])
            for i, value in zip(indices, values.to(updates[0].dtype).unbind(), strict=True):
                m, n = updates[i].shape
                result[i] = (value if m == rows else value.mT) * self.scale(m, n)
        return result


class Muon(Chain):
    r"""Muon: steepest descent in the spectral norm, for matrices.

    $$v_{t + 1} = m \, v_t + (1 - m) \, g_t, \qquad
    \theta_{t + 1} = \theta_t - \eta \, \bigl(\kappa \operatorname{orth}(m \, v_{t + 1} + (1 - m) \, g_t)
    + \lambda \, \theta_t\bigr)$$

    Reference:
        Jordan, *Muon: An Optimizer for Hidden Layers in Neural Networks*, 2024.

    Args:
        params: Matrices $\theta$, or parameter groups of them.
        lr: Learning rate $\eta$.
        weight_decay: Decoupled weight decay $\lambda$.
        momentum: Momentum $m$, or a `WarmupMomentum`.
        nesterov: Whether a constant momentum is Nesterov's, as above.
        ns_steps: Number of Newton-Schulz iterations.
        scale: Factor $\kappa$ of a matrix, from its shape: `aspect_ratio_scale`, `adam_matched_scale` or another.
        dtype: Dtype of the Newton-Schulz iterations.

    Examples:
        >>> optimizer = Muon([nn.Linear(4, 4).weight], lr=0.02)
        >>> optimizer.param_groups[0]["momentum"]
        0.95
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        *,
        weight_decay: float = 0.1,
        momentum: float | WarmupMomentum = 0.95,
        nesterov: bool = True,
        ns_steps: int = 5,
        scale: Callable[[int, int], float] = aspect_ratio_scale,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        average = momentum if isinstance(momentum, WarmupMomentum) else EmaMomentum(momentum, nesterov)
        orthogonalize = Orthogonalize(ns_steps, scale, dtype)
        super().__init__(params, [average, orthogonalize, AddDecayedWeights(weight_decay), ScaleByLearningRate(lr)])


def muon_with_adamw(
    model: nn.Module,
    *,
    lr: float = 1e-3,
    adam_lr: float | Mapping[str, float] = 1e-3,
    momentum: float | WarmupMomentum = 0.95,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.1,
    scale: Callable[[int, int], float] = aspect_ratio_scale,
    dtype: torch.dtype = torch.float32,
    muon_params: str = "*",
) -> Chain:
    r"""Builds one optimizer for a model: Muon for its matrices, AdamW for the rest.

    The rest are vectors, convolution kernels, embeddings and the matrices that `muon_params` does not match. The option
    `optimizer` of a parameter group is "muon" or "adamw".

    Args:
        model: Model to optimize.
        lr: Learning rate of Muon.
        adam_lr: Learning rate of AdamW; or several by name pattern, of which the first match counts.
        momentum: Momentum of Muon, or a `WarmupMomentum`.
        betas: $\beta_1$ and $\beta_2$ of AdamW.
        eps: $\epsilon$ of AdamW.
        weight_decay: Decoupled weight decay of both.
        scale: Factor of Muon's update, from the shape of the matrix.
        dtype: Dtype of the Newton-Schulz iterations.
        muon_params: Name pattern (with `*` and `?`) of the matrices that Muon optimizes.

    Examples:
        >>> optimizer = muon_with_adamw(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1)))
        >>> [(group["optimizer"], len(group["params"])) for group in optimizer.param_groups]
        [('muon', 2), ('adamw', 2)]
    """
    embeddings = {id(p) for module in model.modules() if isinstance(module, nn.Embedding) for p in module.parameters()}
    adam_lrs = adam_lr if isinstance(adam_lr, Mapping) else {"*": adam_lr}
    groups: dict[tuple[str, float], list[Tensor]] = {("muon", lr): []}
    groups |= {("adamw", value): [] for value in adam_lrs.values()}
    for name, p in model.named_parameters():
        if p.ndim == 2 and id(p) not in embeddings and fnmatchcase(name, muon_params):
            groups["muon", lr].append(p)
            continue
        matches = [value for pattern, value in adam_lrs.items() if fnmatchcase(name, pattern)]
        if not matches:
            raise ValueError(f"adam_lr has no pattern that matches {name!r}, got {list(adam_lrs)}")
        groups["adamw", matches[0]].append(p)
    average: GradientTransform = momentum if isinstance(momentum, WarmupMomentum) else EmaMomentum(momentum, True)
    decay, default_lr = AddDecayedWeights(weight_decay), next(iter(adam_lrs.values()))
    transforms: dict[str, list[GradientTransform]] = {
        "muon": [average, Orthogonalize(5, scale, dtype), decay, ScaleByLearningRate(lr)],
        "adamw": [ScaleByAdam(betas, eps), decay, ScaleByLearningRate(default_lr)],
    }
    named = [{"params": params, "optimizer": name, "lr": value} for (name, value), params in groups.items() if params]
    return Chain(named, transforms)


def claims() -> Iterator[Claim]:
    """Laws of the Newton-Schulz iteration."""

    def full_rank(x: Tensor) -> Tensor:
        """Returns matrices with singular values from 0.1 to 1.9: a reflection plus a small perturbation."""
        m, n = x.shape[-2:]
        v = torch.arange(1, max(m, n) + 1).to(x)
        reflection = torch.eye(len(v)).to(x) - 2 * torch.outer(v, v) / v.square().sum()
        return reflection[:m, :n] + 0.9 * x / (1 + torch.linalg.matrix_norm(x, keepdim=True))

    def singular_values(x: Tensor) -> Tensor:
        return torch.linalg.svdvals(newton_schulz(x))

    def rotation(draw: Draw) -> Tensor:
        return torch.linalg.qr(draw.normal(3, 3)).Q

    wide, tall = transformed(full_rank, "b:1..3 3 5"), transformed(full_rank, "5 3")
    yield Claim(boundedness(low=0.6, high=1.3), singular_values, wide, name="newton_schulz, singular values")
    left = equivariance(sample=rotation, act=lambda g, x: g.to(x) @ x)
    right = equivariance(sample=rotation, act=lambda g, x: x @ g.to(x))
    yield Claim(left, newton_schulz, wide, name="newton_schulz")
    yield Claim(right, newton_schulz, tall, name="newton_schulz")
