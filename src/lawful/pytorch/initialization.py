r"""Initialization of weights: `torch.nn.init`.

A layer $y = \sigma(W x)$ with $n$ inputs, $m$ outputs and independent weights of variance $v$ has
$\mathbb E\, (Wx)_i^2 = n v \operatorname{mean}(x^2)$.

| function | variance of a weight | $\mathbb E\, \sigma(Wx)_i^2 / \operatorname{mean}(x^2)$ |
|---|---|---|
| `xavier_normal_`, `xavier_uniform_` | $2 / (n + m)$ | $2n / (n + m)$ |
| `kaiming_normal_`, `kaiming_uniform_` | $2 / n$ | 1, for $\sigma = \operatorname{ReLU}$ |
| `kaiming_normal_(nonlinearity="linear")` | $1 / n$ | 1 |
| `orthogonal_` | | $W^\top W = 1$: lengths and angles are preserved |

Reference:
    Glorot and Bengio, *Understanding the difficulty of training deep feedforward neural networks*, 2010.
    He, Zhang, Ren and Sun, *Delving Deep into Rectifiers*, 2015. Saxe, McClelland and Ganguli, *Exact solutions to the
    nonlinear dynamics of learning in deep linear neural networks*, 2014.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Generator, Tensor
from torch.nn import init

from lawful.laws import Claim, Law, agreement, boundedness, isometry, orthonormality, shape, variance_preservation
from lawful.pytorch._rows import Row, claims_from


def claims() -> Iterator[Claim]:
    """Laws of torch.nn.init."""
    yield from claims_from([*_variances(), *_orthogonal(), *_generators()], cases=6)


def _new_weight(fill: Callable[..., Tensor], x: Tensor) -> Tensor:
    return fill(torch.empty_like(x))


def _variances() -> Iterator[Row]:
    linear = partial(init.kaiming_normal_, nonlinearity="linear")
    rows: tuple[tuple[str, Callable[..., Tensor], str, Law], ...] = (
        ("xavier_normal_", init.xavier_normal_, "30 10", variance_preservation(ratio=2 * 10 / (10 + 30))),
        ("xavier_uniform_", init.xavier_uniform_, "30 10", variance_preservation(ratio=2 * 10 / (10 + 30))),
        ("kaiming_normal_", _kaiming_normal, "24 2 3", variance_preservation(activation=torch.relu)),
        ("kaiming_uniform_", _kaiming_uniform, "24 2 3", variance_preservation(activation=torch.relu)),
        ("kaiming_normal_(nonlinearity='linear')", linear, "30 10", variance_preservation()),
    )
    for name, fill, weight, law in rows:
        yield f"nn.init.{name}", partial(_new_weight, fill), shape(weight), (law,)
    bounded = boundedness(low=-0.5, high=0.5)
    yield "nn.init.trunc_normal_", partial(_new_weight, _trunc_normal), shape("3 4"), (bounded,)


def _kaiming_normal(weight: Tensor) -> Tensor:
    return init.kaiming_normal_(weight, nonlinearity="relu")


def _kaiming_uniform(weight: Tensor) -> Tensor:
    return init.kaiming_uniform_(weight, nonlinearity="relu")


def _trunc_normal(weight: Tensor) -> Tensor:
    return init.trunc_normal_(weight, a=-0.5, b=0.5)


def _orthogonal() -> Iterator[Row]:
    yield "nn.init.orthogonal_", partial(_new_weight, init.orthogonal_), shape("5 3"), (orthonormality(),)

    def rotate(x: Tensor) -> Tensor:
        return x @ init.orthogonal_(torch.empty(6, 4).to(x)).T

    yield "x Wᵀ, W from nn.init.orthogonal_", rotate, shape("b 4"), (isometry(),)
    identity = agreement(other=lambda x: torch.eye(*x.shape).to(x))
    yield "nn.init.eye_", partial(_new_weight, init.eye_), shape("3 2"), (identity,)
    delta = agreement(other=lambda x: x)

    def convolve(x: Tensor) -> Tensor:
        return torch.conv1d(x, init.dirac_(torch.empty(2, 2, 3).to(x)), padding=1)

    yield "F.conv1d with nn.init.dirac_", convolve, shape("b 2 n"), (delta,)


def _generators() -> Iterator[Row]:
    fills = init.xavier_normal_, init.xavier_uniform_, init.kaiming_normal_, init.kaiming_uniform_, init.orthogonal_

    def initialize(x: Tensor) -> Tensor:
        return torch.stack([fill(torch.empty_like(x), generator=Generator().manual_seed(0)) for fill in fills])

    def initialize_after_noise(x: Tensor) -> Tensor:
        torch.rand(3)
        return initialize(x)

    yield "nn.init with a generator", initialize, shape("2 3"), (agreement(other=initialize_after_noise),)
