"""Muon: momentum with orthogonalized updates, for matrices."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
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
_RESTART = 5
"""Steps after which the Gram matrix is recomputed."""
_LARGE = 256
"""Size from which matrices are multiplied one at a time, and symmetric products in blocks."""
_BLOCK = 128
"""Rows of a block of a symmetric product."""
_BFLOAT16_FLAGS = "amx_bf16", "avx512_bf16", "bf16"
"""CPU capabilities (x86 and ARM) that multiply bfloat16 natively."""


def newton_schulz(x: Float[Tensor, "*batch m n"], *, steps: int = 5, eps: float = 1e-7) -> Float[Tensor, "*batch m n"]:
    r"""Brings the singular values of matrices close to 1 by Newton-Schulz iterations.

    $$X_0 = \frac{X}{\|X\|_F}, \qquad X_{k + 1} = a X_k + b \, (X_k X_k^\top) X_k + c \, (X_k X_k^\top)^2 X_k$$

    The singular vectors stay. The coefficients $(a, b, c) = (3.4445, -4.7750, 2.0315)$ raise small values fast but do
    not converge: after five steps, values that were at least 1/100 of the norm lie between 0.68 and 1.14. Zero stays
    zero.

    Matrices of at least 64 x 128 with an aspect ratio of at least 2, in float32 or float64, are iterated by their Gram
    matrix $G_k = X_k X_k^\top$, which takes half the time: $X_{k + j} = P_{k + j - 1} \cdots P_k X_k$ with
    $P = a + b \, G + c \, G^2$ and $G_{k + 1} = P_k G_k P_k$. Rounding errors of $G$ grow by up to $a^2$ per step, so
    $G$ is recomputed after five. In float32 the relative error is then about 1e-5 for a Gaussian matrix, 5e-4 for
    singular values from 1 to 1e-8 and 0.03 for rank 1; bfloat16, as in `torch.optim.Muon`, gives 0.01, 0.1 and 1.

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
    tall = x.shape[-2] > x.shape[-1]
    y = (x.mT if tall else x).reshape(-1, *sorted(x.shape[-2:]))
    y = y / torch.linalg.matrix_norm(y, keepdim=True).clamp_min(eps)
    if y.dtype in (torch.float32, torch.float64) and y.shape[-1] >= 2 * y.shape[-2] >= 128:
        for start in range(0, steps, _RESTART):
            y = _gram_newton_schulz(y, min(_RESTART, steps - start))
    elif len(y) == 1 and y.dtype in (torch.bfloat16, torch.float16):
        y = _single_newton_schulz(y[0], steps)
    else:
        a, b, c = _COEFFICIENTS
        for _ in range(steps):
            gram = _symmetric_product(y, y.mT)
            y = torch.baddbmm(y, _symmetric_product(gram, gram, plus=gram, beta=b, alpha=c), y, beta=a)
    return (y.mT if tall else y).reshape(x.shape)


def _single_newton_schulz(y: Tensor, steps: int) -> Tensor:
    """Iterates one wide or square matrix with `addmm`, which has bfloat16 kernels."""
    a, b, c = _COEFFICIENTS
    for _ in range(steps):
        gram = y @ y.mT
        y = torch.addmm(y, torch.addmm(gram, gram, gram, beta=b, alpha=c), y, beta=a)
    return y


def _gram_newton_schulz(y: Tensor, steps: int) -> Tensor:
    """Iterates wide matrices by their Gram matrix."""
    a, b, c = _COEFFICIENTS
    gram, total = _symmetric_product(y, y.mT), None
    for step in range(steps):
        factor = _symmetric_product(gram, gram, plus=gram, beta=b, alpha=c)
        factor.diagonal(dim1=-2, dim2=-1).add_(a)
        total = factor if total is None else _symmetric_product(factor, total)
        if step + 1 < steps:
            gram = _symmetric_product(_symmetric_product(gram, factor), factor)
    return y if total is None else total @ y


def _symmetric_product(
    x: Tensor, y: Tensor, *, plus: Tensor | None = None, beta: float = 0.0, alpha: float = 1.0
) -> Tensor:
    """Returns `beta * plus + alpha * x @ y` for a symmetric result; blocks below the diagonal are copied."""
    n = x.shape[-2]
    if n < _LARGE or x.dtype not in (torch.float32, torch.float64):
        return x @ y if plus is None else torch.baddbmm(plus, x, y, beta=beta, alpha=alpha)
    out = x.new_empty(len(x), n, n) if plus is None else plus.clone()
    for i in range(0, n, _BLOCK):
        rows = slice(i, i + _BLOCK)
        out[:, rows, i:].baddbmm_(x[:, rows], y[:, :, i:], beta=beta, alpha=alpha)
        out[:, rows, :i] = out[:, :i, rows].mT
    return out


@cache
def _has_bfloat16_instructions(device: str) -> bool:
    if device == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    flags = torch.cpu.get_capabilities() if device == "cpu" and hasattr(torch.cpu, "get_capabilities") else {}
    return any(flags.get(name, False) for name in _BFLOAT16_FLAGS)


def _newton_schulz_dtype(x: Tensor) -> torch.dtype:
    """Returns the default dtype of the iterations.

    It is float64 for float64; bfloat16, as in `torch.optim.Muon`, for matrices of at least 256 x 256 on devices that
    multiply it natively; and float32 otherwise.
    """
    if x.dtype == torch.float64:
        return torch.float64
    return torch.bfloat16 if min(x.shape) >= _LARGE and _has_bfloat16_instructions(x.device.type) else torch.float32


def aspect_ratio_scale(m: int, n: int) -> float:
    r"""Returns $\sqrt{\max(1, m / n)}$, so that updates of any shape change the outputs by the same amount.

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
    """Orthogonalizes matrices by `newton_schulz`, small ones of one shape or its transpose in one batch.

    Args:
        ns_steps: Number of Newton-Schulz iterations.
        scale: Factor of a matrix, from its numbers of rows and columns.
        dtype: Dtype of the iterations. By default float64 for float64, bfloat16 for matrices of at least 256 x 256 on
            devices that multiply it natively, and float32 otherwise.
    """

    ns_steps: int = 5
    scale: Callable[[int, int], float] = aspect_ratio_scale
    dtype: torch.dtype | None = None

    def __post_init__(self) -> None:
        _check_range("ns_steps", self.ns_steps, low=1, below=100)

    def __call__(self, updates: list[Tensor], context: StepContext) -> list[Tensor]:
        stacks: dict[tuple[int, ...], list[int]] = {}
        for i, update in enumerate(updates):
            if update.ndim != 2:
                raise ValueError(f"Muon expects matrices, got a parameter of shape {tuple(update.shape)}")
            rows, columns = sorted(update.shape)
            stacks.setdefault((rows, columns) if rows < _LARGE else (rows, columns, i), []).append(i)
        result = list(updates)
        whole = [x.full_tensor() if hasattr(x, "full_tensor") else x for x in updates]  # of sharded matrices
        for (rows, *_), indices in stacks.items():
            wide = [whole[i] if len(whole[i]) == rows else whole[i].mT for i in indices]
            dtype = self.dtype or _newton_schulz_dtype(wide[0])
            stack = torch.stack(wide) if len(wide) > 1 else wide[0].unsqueeze(0)
            values = newton_schulz(stack.to(dtype), steps=context.options["ns_steps"])
            for i, value in zip(indices, values.unbind(), strict=True):
                m, n = updates[i].shape
                value = (value if m == rows else value.mT).to(updates[i].dtype).mul_(self.scale(m, n))
                result[i] = value if whole[i] is updates[i] else _shard_like(value, updates[i])
        return result


def _shard_like(x: Tensor, other: Any) -> Tensor:
    """Shards a tensor that every process has, as `other` is sharded."""
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(x, other.device_mesh, other.placements, src_data_rank=None)


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
        dtype: Dtype of the Newton-Schulz iterations. Defaults to the dtype of `Orthogonalize`.

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
        dtype: torch.dtype | None = None,
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
    dtype: torch.dtype | None = None,
    muon_params: str = "*",
) -> Chain:
    r"""Builds one optimizer for a model: Muon for its matrices, AdamW for the rest.

    The rest are vectors, convolution kernels, embeddings and the matrices that `muon_params` does not match. The option
    `optimizer` of a parameter group is "muon" or "adamw".

    Args:
        model: Model to optimize.
        lr: Learning rate of Muon.
        adam_lr: Learning rate of AdamW, or a dict from name patterns to learning rates; the first match counts.
        momentum: Momentum of Muon, or a `WarmupMomentum`.
        betas: $\beta_1$ and $\beta_2$ of AdamW.
        eps: $\epsilon$ of AdamW.
        weight_decay: Decoupled weight decay of both.
        scale: Factor of Muon's update, from the shape of the matrix.
        dtype: Dtype of the Newton-Schulz iterations. Defaults to the dtype of `Orthogonalize`.
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
