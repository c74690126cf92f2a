"""What random masks do on average: the laws of dropout, and the exact average over all masks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from lawful.blocks.dense import Dense
from lawful.laws import Averages, Claim, Draw, Map, Same, Statement, agreement, law, shape

MOST_UNITS = 20


@law("E f(x; ω) = f(x) in evaluation, over random states ω", cases=10, tries=None)
def unbiased(f: Map, x: Tensor, *, expected: Callable[..., Any] | None = None, draw: Draw) -> Statement:
    """Training gives, on average, what evaluation gives, or what another map, `expected`, does.

    The samples of a batch are to be random on their own: many copies of one of them are put through at once.

    Kept by: dropout that divides by the probability of staying, or multiplies by it in evaluation.
    Broken by: a scale by the probability of being dropped; no scale at all.
    """
    one = x[:1]
    mean = (f.eval() if expected is None else f.other(expected))(one)[0]
    direction = draw.normal(*mean.shape)
    many = f.seeded(draw.integer(1, 2**16, "ω"))(one.expand(draw.samples, *one.shape[1:]))
    return Averages((many * direction).flatten(1).sum(1), (mean * direction).sum())


@law("f(x)_i is 0 or s x_i in training, e x_i in evaluation", tries=None)
def kept_or_dropped(f: Map, x: Tensor, *, scale: float = 1.0, evaluation: float = 1.0) -> Statement:
    """An entry is dropped, or multiplied by `scale`; in evaluation each is multiplied by `evaluation`.

    Kept by: dropout with the scale of its probability.
    Broken by: noise that is added; a mask that is applied twice, with two scales.
    """
    y = f.after(lambda module: module.train(), "{f}.train()")(x)
    return Same([y * (y - scale * x), f.eval()(x)], [torch.zeros_like(y), evaluation * x], exercised=True)


def average_over_masks(
    f: Callable[[Tensor], Tensor], x: Float[Tensor, "*batch n"], *, keep: float
) -> Float[Tensor, "*batch m"]:
    r"""Averages a function over all masks of its input, each weighed by its probability.

    $$\sum_{m \in \{0, 1\}^n} p^{|m|} (1 - p)^{n - |m|} \, f(m \odot x)$$

    This is the ensemble of the $2^n$ networks that dropout trains. For an affine $f$ it is $f$ with the weights
    multiplied by $p$; if $f$ is a log-softmax of one, a softmax of the average, which is the normalised geometric
    mean of the predictions, is the softmax of that. For other functions weight scaling is an approximation.

    Reference:
        Hinton, Srivastava, Krizhevsky, Sutskever and Salakhutdinov, *Improving neural networks by preventing
        co-adaptation of feature detectors*, 2012.

    Args:
        f: The function $f$, of the last axis.
        x: The input $x$, of at most 20 units, for there are $2^n$ masks.
        keep: $p$, the probability that a unit stays.

    Examples:
        >>> average_over_masks(lambda x: x.sum(-1, keepdim=True), torch.tensor([2.0, 4.0]), keep=0.5)
        tensor([3.])
    """
    check_probability("keep", keep)
    if x.dim() == 0:
        raise ValueError("an input with a last axis was wanted: got shape ()")
    n = x.shape[-1]
    if n > MOST_UNITS:
        raise ValueError(f"at most {MOST_UNITS} units can be averaged over: got {n}")
    masks = torch.arange(2**n, device=x.device)[:, None] >> torch.arange(n, device=x.device) & 1
    weights = torch.where(masks == 1, x.new_tensor(keep), x.new_tensor(1 - keep)).prod(-1)
    masked = masks * x[..., None, :]
    y = f(masked)
    if y.shape[:-1] != masked.shape[:-1]:
        wanted = f"(*{tuple(masked.shape[:-1])}, m) of {tuple(masked.shape)}"
        raise ValueError(f"a function that makes {wanted} was wanted: got {tuple(y.shape)}")
    return torch.einsum("...mo,m->...o", y, weights)


def check_probability(name: str, value: float) -> None:
    """Refuses what is no probability."""
    if not 0 <= value <= 1:
        raise ValueError(f"{name} is a probability, from 0 to 1: got {value}")


def claims() -> Iterator[Claim]:
    """The laws that the average over all masks obeys."""
    layer, keep = Dense(4, 3), 0.7

    def ensemble(x: Tensor) -> Tensor:
        return average_over_masks(layer, x, keep=keep)

    def geometric(x: Tensor) -> Tensor:
        return average_over_masks(lambda z: layer(z).log_softmax(-1), x, keep=keep).softmax(-1)

    def scaled(x: Tensor) -> Tensor:
        return F.linear(x, keep * layer.weight, layer.bias)

    def scaled_softmax(x: Tensor) -> Tensor:
        return scaled(x).softmax(-1)

    def squares(x: Tensor) -> Tensor:
        return average_over_masks(torch.square, x, keep=keep)

    yield Claim(agreement(other=scaled), ensemble, shape("b 4"), name="average over all masks, of an affine map")
    yield Claim(agreement(other=scaled_softmax), geometric, shape("b 4"), name="geometric mean over all masks")
    yield Claim(agreement(other=lambda x: keep * x**2), squares, shape("b n:1..5"), name="average of squares")
