r"""Activations: rectifiers, sigmoids, softmax, gated linear units.

| function | equation | derivative |
|---|---|---|
| `F.relu` | $\max(x, 0)$ | $[x > 0]$ |
| `F.leaky_relu` | $\max(x, a x)$ | $1$ or $a$ |
| `F.elu` | $x$ for $x > 0$, else $e^x - 1$ | $e^{\min(x, 0)}$ |
| `torch.sigmoid` | $1 / (1 + e^{-x})$ | $\sigma(x)\, \sigma(-x)$ |
| `torch.tanh` | $\sinh x / \cosh x$ | $1 - \tanh^2 x$ |
| `F.softplus` | $\log(1 + e^x)$ | $\sigma(x)$ |
| `F.silu` | $x\, \sigma(x)$ | $\sigma(x) (1 + x\, \sigma(-x))$ |
| `F.gelu` | $x\, \Phi(x)$ | $\Phi(x) + x\, \varphi(x)$ |
| `F.softmax` | $e^{x_i} / \sum_j e^{x_j}$ | $p_i ([i = j] - p_j)$ |
| `F.glu` | $a \odot \sigma(b)$, for $x = [a, b]$ | |

ReLU, SiLU, GELU and softplus satisfy $f(x) - f(-x) = x$; $\sigma(x) + \sigma(-x) = 1$.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.laws import (
    Claim,
    Law,
    agreement,
    batch_independence,
    boundedness,
    checkpointed_gradient,
    convexity,
    derivative,
    evenness,
    finiteness,
    gradient,
    homogeneity,
    idempotence,
    linearity,
    lipschitz,
    monotonicity,
    no_mutation,
    non_negativity,
    oddness,
    permutation_equivariance,
    second_order_gradient,
    shape,
    shift_invariance,
    sums_to_one,
)
from lawful.pytorch._rows import Row, claims_from

_Map = Callable[[Tensor], Tensor]


def claims() -> Iterator[Claim]:
    """Laws of PyTorch's activations."""
    yield from claims_from([*_equations(), *_shapes(), *_identities(), *_softmax(), *_gates(), *_random()])


def _equations() -> Iterator[Row]:
    sigmoid, ndtr = torch.sigmoid, torch.special.ndtr
    density = math.sqrt(2 * math.pi)
    rows: tuple[tuple[str, _Map, _Map, _Map], ...] = (
        ("F.relu", F.relu, lambda x: (x > 0) * x, lambda x: (x > 0).to(x)),
        (
            "F.leaky_relu",
            F.leaky_relu,
            lambda x: torch.maximum(x, 0.01 * x),
            lambda x: torch.where(x > 0, 1.0, 0.01).to(x),
        ),
        ("F.elu", F.elu, lambda x: torch.where(x > 0, x, x.expm1()), lambda x: x.clamp(max=0).exp()),
        ("torch.sigmoid", sigmoid, lambda x: (1 + (x / 2).tanh()) / 2, lambda x: sigmoid(x) * sigmoid(-x)),
        ("torch.tanh", torch.tanh, lambda x: 2 * sigmoid(2 * x) - 1, lambda x: 1 - x.tanh().square()),
        (
            "F.softplus(threshold=50)",
            partial(F.softplus, threshold=50),
            lambda x: x.clamp(min=0) + (-x.abs()).exp().log1p(),
            sigmoid,
        ),
        ("F.silu", F.silu, lambda x: x * sigmoid(x), lambda x: sigmoid(x) * (1 + x * sigmoid(-x))),
        (
            "F.gelu",
            F.gelu,
            lambda x: x * ndtr(x),
            lambda x: ndtr(x) + x * (-x.square() / 2).exp() / density,
        ),
        (
            "F.gelu(approximate='tanh')",
            partial(F.gelu, approximate="tanh"),
            lambda x: x * sigmoid(math.sqrt(8 / math.pi) * (x + 0.044715 * x**3)),
            lambda x: _gelu_tanh_slope(x),
        ),
    )
    for name, f, equation, slope in rows:
        yield name, f, shape("b 4"), (agreement(other=equation), derivative(formula=slope))
    for name in ("elu", "softplus", "silu", "gelu"):
        yield f"F.{name}", getattr(F, name), shape("b 4"), (finiteness(),)


def _gelu_tanh_slope(x: Tensor) -> Tensor:
    a = math.sqrt(8 / math.pi)
    p = torch.sigmoid(a * (x + 0.044715 * x**3))
    return p + x * p * (1 - p) * a * (1 + 3 * 0.044715 * x.square())


def _shapes() -> Iterator[Row]:
    rising = (monotonicity(), lipschitz())
    rows: tuple[tuple[nn.Module, tuple[Law, ...]], ...] = (
        (nn.ReLU(), (*rising, convexity(), homogeneity(), idempotence(), non_negativity(), no_mutation())),
        (nn.LeakyReLU(), (*rising, convexity(), homogeneity())),
        (nn.PReLU(), (*rising, convexity(), homogeneity(), gradient())),
        (nn.ReLU6(), (*rising, idempotence(), boundedness(low=0.0, high=6.0))),
        (nn.ELU(), (*rising, convexity(), boundedness(low=-1.0))),
        (nn.CELU(), (*rising, convexity(), boundedness(low=-1.0))),
        (nn.SELU(), (monotonicity(), lipschitz(constant=1.7581))),
        (nn.Sigmoid(), (monotonicity(), lipschitz(constant=0.25), boundedness(low=0.0, high=1.0))),
        (nn.Hardsigmoid(), (*rising, boundedness(low=0.0, high=1.0))),
        (nn.Tanh(), (*rising, oddness(), boundedness(low=-1.0, high=1.0))),
        (nn.Hardtanh(), (*rising, oddness(), idempotence(), boundedness(low=-1.0, high=1.0))),
        (nn.Softsign(), (*rising, oddness(), boundedness(low=-1.0, high=1.0))),
        (nn.Tanhshrink(), (*rising, oddness())),
        (nn.Softshrink(), (*rising, oddness())),
        (nn.Hardshrink(), (monotonicity(), oddness(), idempotence())),
        (nn.Softplus(threshold=50), (*rising, convexity(), non_negativity())),
        (nn.LogSigmoid(), (*rising, boundedness(high=0.0))),
        (nn.SiLU(), (boundedness(low=-0.2785), lipschitz(constant=1.0999))),
        (nn.GELU(), (boundedness(low=-0.17), lipschitz(constant=1.129))),
        (nn.Mish(), (boundedness(low=-0.3089), lipschitz(constant=1.0885))),
        (nn.Hardswish(), (boundedness(low=-0.375), lipschitz(constant=1.5))),
    )
    for module, laws in rows:
        yield f"nn.{type(module).__name__}", module, shape("b 4"), laws
    for module in (nn.Tanh(), nn.Softplus(), nn.SiLU(), nn.GELU()):
        yield f"nn.{type(module).__name__}", module, shape("b 4"), (second_order_gradient(),)
    missing = "torch: the derivative of hardsigmoid_backward is not implemented"
    yield "nn.Hardsigmoid", nn.Hardsigmoid(), shape("b 4"), (second_order_gradient().waived(missing),)


def _identities() -> Iterator[Row]:
    x = shape("b 4")
    complement = agreement(other=lambda x: 1 - torch.sigmoid(-x))
    yield "torch.sigmoid(x) = 1 - torch.sigmoid(-x)", torch.sigmoid, x, (complement,)
    identity = agreement(other=lambda x: 1.0 * x)
    for name in ("relu", "silu", "gelu"):
        f = getattr(F, name)
        yield f"F.{name}(x) - F.{name}(-x) = x", lambda x, f=f: f(x) - f(-x), x, (identity,)
    off = "torch: F.softplus returns x above threshold=20, which is off by up to 2e-9"
    yield "F.softplus(x) - F.softplus(-x) = x", lambda x: F.softplus(x) - F.softplus(-x), x, (identity.waived(off),)

    def error(x: Tensor) -> Tensor:
        return F.gelu(x, approximate="tanh") - F.gelu(x)

    yield "error of F.gelu(approximate='tanh')", error, x, (boundedness(low=-5e-4, high=5e-4), evenness())


def _softmax() -> Iterator[Row]:
    rows = shape("b n")
    softmax, log_softmax = partial(F.softmax, dim=-1), partial(F.log_softmax, dim=-1)

    def logarithm(x: Tensor) -> Tensor:
        return x - x.logsumexp(-1, keepdim=True)

    def margin(x: Tensor) -> Tensor:
        """Bounds the probability by the lead of the maximum: softmax(x)_i ≤ exp(x_i - max x)."""
        return (x - x.amax(-1, keepdim=True)).exp() - softmax(x)

    def concentration(x: Tensor) -> Tensor:
        """Bounds the probability of all other entries by their lags: 1 - softmax(x)_max ≤ Σ exp(x_i - max x)."""
        lags = (x - x.amax(-1, keepdim=True)).exp().sum(-1) - 1
        return lags - (1 - softmax(x).amax(-1))

    equation = agreement(other=lambda x: logarithm(x).exp())
    simplex = sums_to_one(), boundedness(low=0.0, high=1.0), shift_invariance(), permutation_equivariance(axis=-1)
    smooth = lipschitz(constant=0.5), gradient(), finiteness()
    yield "F.softmax", softmax, rows, (equation, batch_independence(), *simplex, *smooth)
    yield "exp(x - max x) - F.softmax(x)", margin, rows, (non_negativity(),)
    yield "Σ exp(x - max x) - 1 - (1 - max F.softmax(x))", concentration, rows, (non_negativity(),)
    yield "F.softmax(dim=0)", partial(F.softmax, dim=0), rows, (sums_to_one(axis=0), permutation_equivariance(axis=0))
    laws = shift_invariance(), boundedness(high=0.0), gradient(), finiteness()
    yield "F.log_softmax", log_softmax, rows, (agreement(other=logarithm), *laws)
    laws = convexity(), monotonicity(), lipschitz(), gradient()
    yield "torch.logsumexp", partial(torch.logsumexp, dim=-1), rows, laws


def _gates() -> Iterator[Row]:
    pair = (shape("b 4"), shape("b 4"))

    def glu(a: Tensor, b: Tensor) -> Tensor:
        return F.glu(torch.cat([a, b], dim=-1))

    equation = agreement(other=lambda a, b: a * torch.sigmoid(b))
    yield "F.glu", glu, pair, (equation, linearity(input=0), derivative(formula=lambda a, b: torch.sigmoid(b)))
    yield "nn.GLU", nn.GLU(), shape("b t 4"), (batch_independence(), permutation_equivariance(axis=1), gradient())


def _random() -> Iterator[Row]:
    reason = "torch: slopes are saved before they are drawn (pytorch#193671)"
    yield "nn.RReLU", nn.RReLU(), shape("b 4"), (homogeneity(), gradient(), checkpointed_gradient().waived(reason))
    changed = "inplace=True overwrites its input"
    yield "nn.ReLU(inplace=True)", nn.ReLU(inplace=True), shape("b 4"), (no_mutation().waived(changed),)
