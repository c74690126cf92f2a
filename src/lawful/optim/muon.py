"""A momentum that warms up: an average that is fast at first, while the gradient still changes fast.

Muon: a momentum whose singular values are all made the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.functions.decompositions import well_conditioned
from lawful.laws import Claim, Draw, agreement, boundedness, equivariance, shape, transformed
from lawful.optim.chain import Chain
from lawful.optim.transforms import (
    AdamMoments,
    AddDecayedWeights,
    NesterovAverage,
    ScaleByLearningRate,
    Stateless,
    StepContext,
    within,
)


@dataclass(frozen=True)
class WarmupMomentum:
    r"""Averages updates and looks one step ahead, as `NesterovAverage` does, with a $\beta$ that rises at first.

    $$\beta_t = \beta + (\beta_0 - \beta) \max\bigl(0, 1 - \tfrac{t}{n}\bigr), \qquad
    v' = \beta_t v + (1 - \beta_t) \, u, \qquad u' = \beta_t v' + (1 - \beta_t) \, u$$

    at step $t = 0, 1, \dots$ of a parameter.

    Reference:
        Jordan et al., *modded-nanogpt: Speedrunning the NanoGPT baseline*, 2024.

    Args:
        beta: $\beta$, from step $n$ on.
        first: $\beta_0$, at the first step.
        rise: $n$; with 0 there is no rise.
    """

    beta: float = 0.95
    first: float = 0.85
    rise: int = 300

    def __post_init__(self) -> None:
        within("beta", self.beta, below=1.0)
        within("first", self.first, below=1.0)
        within("rise", self.rise)

    def start(self, p: Tensor) -> dict[str, Tensor]:
        """The number of steps, and the average."""
        step = torch.zeros((), dtype=torch.float32, device=p.device)
        return {"step": step, "momentum_buffer": torch.zeros_like(p)}

    def __call__(self, updates: list[Tensor], at: StepContext) -> list[Tensor]:
        beta, first, rise = (at.options[name] for name in ("beta", "first", "rise"))
        left = [max(0.0, 1 - step.item() / rise) if rise else 0.0 for step in at.kept("step")]
        torch._foreach_add_(at.kept("step"), 1)
        now = [beta + (first - beta) * share for share in left]
        v, new = at.kept("momentum_buffer"), torch._foreach_mul(updates, [1 - beta for beta in now])
        torch._foreach_mul_(v, now)
        torch._foreach_add_(v, new)
        ahead = torch._foreach_mul(v, now)
        torch._foreach_add_(ahead, new)
        return list(ahead)


def _rising_claims() -> Iterator[Claim]:
    """The laws that a rising average obeys."""

    def last(part: WarmupMomentum | NesterovAverage) -> Callable[..., Tensor]:
        """What a part makes of the last of some updates."""

        def of(*updates: Tensor) -> Tensor:
            kept, options = [part.start(updates[0])], {"beta": part.beta}
            if isinstance(part, WarmupMomentum):
                options |= {"first": part.first, "rise": part.rise}
            found = [part([update.clone()], StepContext([update], kept, options))[0].clone() for update in updates]
            return found[-1]

        return of

    def written(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        """With a momentum of 1/2, 5/8 and 3/4."""
        v = 3 / 4 * (5 / 8 * a / 2 + 3 / 8 * b) + c / 4
        return 3 / 4 * v + c / 4

    three = shape("n 2"), shape("n 2"), shape("n 2")
    rising = last(WarmupMomentum(0.75, first=0.5, rise=2))
    yield Claim(agreement(other=written), rising, three, name="RisingAverage, the third step")
    flat, plain = last(WarmupMomentum(0.75, rise=0)), last(NesterovAverage(0.75))
    yield Claim(agreement(other=plain), flat, three, name="RisingAverage without a rise")


_COEFFICIENTS = 3.4445, -4.7750, 2.0315
USUAL = AdamMoments()
"""The moments of AdamW, unless others are given."""


def newton_schulz(x: Float[Tensor, "*batch m n"], *, steps: int = 5, eps: float = 1e-7) -> Float[Tensor, "*batch m n"]:
    r"""Brings the singular values of matrices close to 1 by Newton-Schulz steps, and leaves the directions.

    $$X_0 = \frac{X}{\|X\|_F}, \qquad X_{k + 1} = a X_k + b \, (X_k X_k^\top) X_k + c \, (X_k X_k^\top)^2 X_k$$

    With $X = U S V^\top$ this is $U \, p^k(S / \|S\|) \, V^\top$ with $p(s) = a s + b s^3 + c s^5$. The coefficients
    3.4445, -4.7750, 2.0315 raise small values fast, and in return do not settle: after five steps the values that were
    at least 1/100 of the norm lie between 0.68 and 1.14, and 0 stays 0.

    Reference:
        Jordan, *Muon: An Optimizer for Hidden Layers in Neural Networks*, 2024.

    Args:
        x: The matrices $X$, all orthogonalised in the same products.
        steps: The number of steps.
        eps: The least norm to divide by.

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
    r"""The factor $\sqrt{\max(1, m / n)}$ of an m x n matrix, so that an update changes outputs alike at any shape."""
    return math.sqrt(max(1, m / n))


def adam_matched_scale(m: int, n: int) -> float:
    r"""The factor $0.2 \sqrt{\max(m, n)}$ of an m x n matrix, so that entries change as with AdamW, at its rate.

    Reference:
        Liu and others, *Muon is Scalable for LLM Training*, 2025.
    """
    return 0.2 * math.sqrt(max(m, n))


@dataclass(frozen=True)
class Orthogonalise(Stateless):
    """Orthogonalises updates that are matrices, those of one shape, or its transpose, stacked.

    Args:
        steps: The number of Newton-Schulz steps.
        scale: The factor of a matrix by its shape.
        precision: The type to compute in: bfloat16 is fast where there are kernels for it, and slow on most processors.
    """

    steps: int = 5
    scale: Callable[[int, int], float] = aspect_ratio_scale
    precision: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        within("steps", self.steps, low=1, below=100)

    def __call__(self, updates: list[Tensor], at: StepContext) -> list[Tensor]:
        stacks: dict[tuple[int, int], list[int]] = {}
        for i, update in enumerate(updates):
            if update.ndim != 2:
                raise ValueError(f"Muon is for matrices: got a parameter of shape {tuple(update.shape)}")
            m, n = update.shape
            stacks.setdefault((min(m, n), max(m, n)), []).append(i)
        found = list(updates)
        for (least, _), stack in stacks.items():
            flat = [updates[i] if len(updates[i]) == least else updates[i].mT for i in stack]
            values = newton_schulz(torch.stack(flat).to(self.precision), steps=at.options["steps"])
            for i, value in zip(stack, values.to(updates[0].dtype).unbind(), strict=True):
                m, n = updates[i].shape
                found[i] = (value if m == least else value.mT) * self.scale(m, n)
        return found


def muon(
    params: Iterable[Any],
    *,
    lr: float = 1e-3,
    beta: float | WarmupMomentum = 0.95,
    decay: float = 0.1,
    steps: int = 5,
    scale: Callable[[int, int], float] = aspect_ratio_scale,
    precision: torch.dtype = torch.float32,
) -> Chain:
    r"""Builds Muon, for matrices: steepest descent where the length of a step is its largest singular value.

    $$v_{t + 1} = \beta v_t + (1 - \beta) \, g_t, \qquad
    \theta_{t + 1} = \theta_t - \eta \, \bigl(\kappa \operatorname{orth}(\beta v_{t + 1} + (1 - \beta) \, g_t)
    + \lambda \, \theta_t\bigr)$$

    Reference:
        Jordan, *Muon: An Optimizer for Hidden Layers in Neural Networks*, 2024.

    Args:
        params: The matrices $\theta$, or groups of them.
        lr: The learning rate $\eta$.
        beta: $\beta$, how slowly the average gradient $v$ changes; a `WarmupMomentum` lets it rise at first.
        decay: $\lambda$, decoupled.
        steps: The number of Newton-Schulz steps in `newton_schulz`.
        scale: $\kappa$ by the shape of a matrix: `aspect_ratio_scale`, `adam_matched_scale` or another.
        precision: The type in which to orthogonalise.

    Examples:
        >>> optimizer = muon([nn.Linear(4, 4).weight], lr=0.02)
        >>> optimizer.param_groups[0]["beta"]
        0.95
    """
    return Chain(params, _muon(lr, beta, decay, steps, scale, precision))


def _muon(
    lr: float,
    beta: float | WarmupMomentum,
    decay: float,
    steps: int,
    scale: Callable[[int, int], float],
    precision: torch.dtype,
) -> list[Any]:
    average = beta if isinstance(beta, WarmupMomentum) else NesterovAverage(beta)
    return [average, Orthogonalise(steps, scale, precision), AddDecayedWeights(decay), ScaleByLearningRate(lr)]


def muon_with_adamw(
    model: nn.Module,
    *,
    lr: float = 1e-3,
    adam_lr: float | Mapping[str, float] = 1e-3,
    beta: float | WarmupMomentum = 0.95,
    decay: float = 0.1,
    moments: AdamMoments = USUAL,
    scale: Callable[[int, int], float] = aspect_ratio_scale,
    precision: torch.dtype = torch.float32,
    on: str = "*",
) -> Chain:
    r"""Builds one optimizer for a model: Muon for its matrices, AdamW for the rest.

    The rest are vectors, kernels of convolutions, embeddings, and whatever `on` leaves out, such as the last layer of a
    classifier. Their groups have the `kind` "muon" and "adamw", and a rate each.

    Args:
        model: The model.
        lr: The learning rate $\eta$ of Muon.
        adam_lr: That of AdamW; or several by patterns of names, of which the first that fits counts.
        beta: $\beta$ of Muon, or a `WarmupMomentum`.
        decay: $\lambda$ of both.
        moments: $\beta_1$, $\beta_2$ and $\epsilon$ of AdamW.
        scale: The factor of a matrix by its shape.
        precision: The type in which to orthogonalise.
        on: Which matrices are Muon's, as a pattern of their names with `*` and `?`.

    Examples:
        >>> optimizer = muon_with_adamw(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1)))
        >>> [(group["kind"], len(group["params"])) for group in optimizer.param_groups]
        [('muon', 2), ('adamw', 2)]
    """
    tables = {id(p) for module in model.modules() if isinstance(module, nn.Embedding) for p in module.parameters()}
    rates = adam_lr if isinstance(adam_lr, Mapping) else {"*": adam_lr}
    groups: dict[tuple[str, float], list[Tensor]] = {("muon", lr): []} | {
        ("adamw", rate): [] for rate in rates.values()
    }
    for name, p in model.named_parameters():
        if p.ndim == 2 and id(p) not in tables and fnmatchcase(name, on):
            groups["muon", lr].append(p)
            continue
        found = [rate for pattern, rate in rates.items() if fnmatchcase(name, pattern)]
        if not found:
            raise ValueError(f"adam_lr is to have a pattern for every name: {name!r} fits none of {list(rates)}")
        groups["adamw", found[0]].append(p)
    kinds = {
        "muon": _muon(lr, beta, decay, 5, scale, precision),
        "adamw": [moments, AddDecayedWeights(decay), ScaleByLearningRate(next(iter(rates.values())))],
    }
    made = [{"params": params, "kind": kind, "lr": rate} for (kind, rate), params in groups.items() if params]
    return Chain(made, kinds)


def _muon_claims() -> Iterator[Claim]:
    """The laws that Muon obeys."""

    def values(x: Tensor) -> Tensor:
        return torch.linalg.svdvals(newton_schulz(x))

    def rotation(draw: Draw) -> Tensor:
        return torch.linalg.qr(draw.normal(3, 3)).Q

    full = transformed(well_conditioned, "b:1..3 3 5")
    yield Claim(boundedness(low=0.6, high=1.3), values, full, name="orthogonalise, singular values")
    turned = equivariance(sample=rotation, act=lambda g, x: g.to(x) @ x)
    yield Claim(turned, newton_schulz, full, name="orthogonalise")
    tall = transformed(well_conditioned, "5 3")
    yield Claim(equivariance(sample=rotation, act=lambda g, x: x @ g.to(x)), newton_schulz, tall, name="orthogonalise")


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _rising_claims()
    yield from _muon_claims()
