r"""Losses of classification, regression and distribution matching.

| loss | equation, before the mean |
|---|---|
| `F.cross_entropy` | $-\sum_k p_k \log \operatorname{softmax}(x)_k$; gradient $\operatorname{softmax}(x) - p$ |
| `label_smoothing=s` | the target $(1 - s)\, p + s / K$ |
| `F.nll_loss` | $-\log q_k$ |
| `F.binary_cross_entropy_with_logits` | $-y \log \sigma(x) - (1 - y) \log \sigma(-x)$; gradient $\sigma(x) - y$ |
| `F.kl_div` | $\sum_k p_k (\log p_k - \log q_k)$, called with $\log q$ first |
| `F.mse_loss`, `F.l1_loss` | $(x - y)^2$, $\; \lvert x - y \rvert$ |
| `F.huber_loss` | $\frac12 e^2$ for $e = \lvert x - y \rvert \le \delta$, else $\delta (e - \frac12 \delta)$ |
| `F.smooth_l1_loss` | Huber's, divided by $\beta = \delta$ |
| `F.gaussian_nll_loss` | $\frac12 (\log v + (x - y)^2 / v)$ |
| `F.poisson_nll_loss` | $e^x - y x$ |
| `F.hinge_embedding_loss` | $x$ for $y = 1$, else $\max(0, 1 - x)$ |
| `F.triplet_margin_loss` | $\max(0, \lVert a - p \rVert - \lVert a - n \rVert + 1)$ |

With `reduction="mean"` the loss of a batch is the mean of the losses of its samples, weighted by the class weights if
there are any, and does not depend on their order. With `ignore_index` it is the mean over the other positions, and
padding changes nothing. Cross-entropy is convex in the logits, does not change when a constant is added to them, and is
smallest at the true distribution (Gibbs).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.laws import (
    Claim,
    Law,
    agreement,
    batch_independence,
    batch_padding_invariance,
    boundedness,
    commutativity,
    convexity,
    derivative,
    divergence,
    finiteness,
    gibbs_inequality,
    gradient,
    linearity,
    lipschitz,
    mask,
    masked_loss_ignores_masked_positions,
    mean_over_samples,
    mean_over_unmasked_positions,
    metric,
    non_negativity,
    permutation_invariance,
    probabilities,
    shape,
    shift_invariance,
    tokens,
    transformed,
)
from lawful.pytorch._rows import Row, claims_from

_Loss = Callable[..., Tensor]
_PAIR, _CLASSES = (shape("b 4"), shape("b 4")), (shape("b 4"), tokens("b", vocab_size=4))
_SOFT, _SIMPLEX = (shape("b 4"), probabilities("b 4")), (probabilities("b 4"), probabilities("b 4"))


def claims() -> Iterator[Claim]:
    """Laws of PyTorch's losses."""
    yield from claims_from([*_cross_entropies(), *_binary(), *_divergences(), *_regression(), *_margins(), *_means()])


def _cross_entropies() -> Iterator[Row]:
    each = partial(F.cross_entropy, reduction="none")
    smooth = partial(F.cross_entropy, label_smoothing=0.3, reduction="sum")

    def gather(x: Tensor, k: Tensor) -> Tensor:
        return -x.log_softmax(-1).gather(-1, k[:, None])[:, 0]

    def soft_targets(x: Tensor, k: Tensor) -> Tensor:
        return F.cross_entropy(x, 0.7 * F.one_hot(k, 4).to(x) + 0.3 / 4, reduction="sum")

    def as_two_classes(x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(torch.stack([torch.zeros_like(x), x], -1), y.long())

    name, soft = "F.cross_entropy", (shift_invariance(), convexity(), batch_independence(input=(0, 1)), finiteness())
    yield name, each, _CLASSES, (agreement(other=gather), non_negativity(input=(0, 1)))
    yield f"{name}, soft targets", each, _SOFT, (*soft, derivative(formula=lambda x, p: x.softmax(-1) - p))
    yield f"{name}(q.log(), p)", lambda p, q: each(q.log(), p), _SIMPLEX, (gibbs_inequality(),)
    slope = derivative(formula=lambda x, k: x.softmax(-1) - 0.7 * F.one_hot(k, 4) - 0.075)
    yield f"{name}(label_smoothing=0.3)", smooth, _CLASSES, (agreement(other=soft_targets), slope)
    nll = partial(F.nll_loss, reduction="none")
    yield "F.nll_loss", nll, _CLASSES, (agreement(other=lambda x, k: -x.gather(-1, k[:, None])[:, 0]), linearity())
    logits = transformed(lambda x: 2 * x.tanh(), "b")  # F.cross_entropy loses digits where the prediction is confident
    name = "F.binary_cross_entropy_with_logits is F.cross_entropy of (0, x)"
    yield name, _binary_loss, (logits, tokens("b", vocab_size=2)), (agreement(other=as_two_classes),)


_BITS = (shape("b"), tokens("b", vocab_size=2))


def _binary_loss(x: Tensor, y: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(x, y.to(x))


def _of_features(loss: _Loss, target: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """The loss of a linear model as a function of its weights, on five fixed examples."""

    def of_weights(weight: Tensor) -> Tensor:
        x = torch.linspace(-1, 2, 15).to(weight).reshape(5, 3)
        return loss(x @ weight, target(x))

    return of_weights


def _binary() -> Iterator[Row]:
    def of_sigmoids(x: Tensor, y: Tensor) -> Tensor:
        return F.binary_cross_entropy(x.sigmoid(), y.sigmoid())

    def from_probability(x: Tensor, y: Tensor) -> Tensor:
        return F.binary_cross_entropy(torch.sigmoid(x.clamp(-9, 9)), y)

    def from_logits(x: Tensor, y: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(x.clamp(-9, 9), y)

    name, targets = "F.binary_cross_entropy_with_logits", (shape("b 4"), probabilities("b 4"))
    slope = derivative(formula=lambda x, y: (x.sigmoid() - y.to(x)) / len(x))
    yield name, _binary_loss, _BITS, (slope, convexity(), non_negativity(), finiteness())
    yield "F.binary_cross_entropy of a sigmoid", from_probability, targets, (agreement(other=from_logits),)
    clamped = "torch: the loss clamps its logarithms at -100, its gradient divides by p (1 - p) (pytorch#103316)"
    yield "F.binary_cross_entropy", of_sigmoids, _PAIR, (gradient().waived(clamped),)
    logistic = _of_features(F.binary_cross_entropy_with_logits, lambda x: torch.arange(5).to(x) % 2)
    yield "logistic regression", logistic, shape("3"), (convexity(), gradient())


def _divergences() -> Iterator[Row]:
    def kl(p: Tensor, q: Tensor) -> Tensor:
        return F.kl_div(q.log(), p, reduction="none").sum(-1)

    def from_logits(x: Tensor, y: Tensor) -> Tensor:
        return F.kl_div(y.log_softmax(-1), x.log_softmax(-1), reduction="none", log_target=True).sum(-1)

    def sum_of_logs(x: Tensor, y: Tensor) -> Tensor:
        return (x.softmax(-1) * (x.log_softmax(-1) - y.log_softmax(-1))).sum(-1)

    def entropy(p: Tensor, q: Tensor) -> Tensor:
        return -torch.xlogy(p, p).sum(-1)

    def cross_entropy(p: Tensor, q: Tensor) -> Tensor:
        return F.cross_entropy(q.log(), p, reduction="none")

    laws = divergence(), gibbs_inequality(), convexity(input=(0, 1))
    yield "F.kl_div", kl, _SIMPLEX, laws
    chain = agreement(other=lambda p, q: kl(p, q) + entropy(p, q))
    yield "F.cross_entropy = F.kl_div + entropy", cross_entropy, _SIMPLEX, (chain,)
    yield "F.kl_div(log_target=True)", from_logits, _PAIR, (agreement(other=sum_of_logs), finiteness())


def _regression() -> Iterator[Row]:
    def huber(x: Tensor, y: Tensor) -> Tensor:
        return F.huber_loss(x, y, delta=0.7, reduction="none")

    def huber_equation(x: Tensor, y: Tensor) -> Tensor:
        small = (x - y).abs().clamp(max=0.7)
        return small * ((x - y).abs() - small / 2)

    def bound(x: Tensor, y: Tensor) -> Tensor:
        """min(e² / 2, δ e), which the Huber loss never exceeds."""
        return torch.minimum((x - y).square() / 2, 0.7 * (x - y).abs())

    def from_zero(x: Tensor) -> Tensor:
        return huber(x, torch.zeros_like(x))

    def gaussian(x: Tensor, y: Tensor) -> Tensor:
        return F.gaussian_nll_loss(x, y, torch.full_like(x, 0.5), reduction="none")

    def gaussian_equation(x: Tensor, y: Tensor) -> Tensor:
        density = torch.distributions.Normal(y, 0.5**0.5)
        return -density.log_prob(x) - 0.5 * torch.log(torch.tensor(2 * torch.pi))

    pair, even = _PAIR, (commutativity(), convexity(input=(0, 1)), non_negativity(input=(0, 1)))
    distance = partial(F.l1_loss, reduction="sum")
    yield "F.l1_loss", distance, pair, (metric(), agreement(other=lambda x, y: (x - y).abs().sum()))
    yield "F.mse_loss", F.mse_loss, pair, (agreement(other=lambda x, y: (x - y).square().mean()), *even)
    slope = derivative(formula=lambda x, y: 2 * (x - y) / x.numel())
    yield "F.mse_loss", F.mse_loss, pair, (slope,)
    linear = _of_features(F.mse_loss, lambda x: x.sin().sum(-1))
    yield "linear regression", linear, shape("3"), (convexity(), gradient())
    yield "F.huber_loss(delta=0.7)", huber, pair, (agreement(other=huber_equation), *even, gradient())
    below = non_negativity(input=(0, 1))
    yield "min(e² / 2, δ e) - F.huber_loss", lambda x, y: bound(x, y) - huber(x, y), pair, (below,)
    yield "F.huber_loss(delta=0.7), from 0", from_zero, shape("b 1"), (lipschitz(constant=0.7),)
    smooth = agreement(other=lambda x, y: F.huber_loss(x, y, delta=0.7) / 0.7)
    yield "F.smooth_l1_loss(beta=0.7)", partial(F.smooth_l1_loss, beta=0.7), pair, (smooth,)
    yield "F.gaussian_nll_loss", gaussian, pair, (agreement(other=gaussian_equation), convexity(), gradient())


def _margins() -> Iterator[Row]:
    def poisson(x: Tensor, y: Tensor) -> Tensor:
        return F.poisson_nll_loss(x.tanh(), y.square(), reduction="none")

    def counts(x: Tensor, y: Tensor) -> Tensor:
        return F.poisson_nll_loss(x.tanh(), y.square(), full=True)

    def hinge(x: Tensor, k: Tensor) -> Tensor:
        return F.hinge_embedding_loss(x, 2 * k.to(x) - 1, reduction="none")

    def hinge_equation(x: Tensor, k: Tensor) -> Tensor:
        return torch.where(k == 1, x, (1 - x).clamp(min=0))

    equation = agreement(other=lambda x, y: x.tanh().exp() - y.square() * x.tanh())
    yield "F.poisson_nll_loss", poisson, _PAIR, (equation, gradient())
    zero = "torch: the gradient by a count of 0 is NaN (0 · ∞ in the masked Stirling term)"
    yield "F.poisson_nll_loss(full=True)", counts, _PAIR, (finiteness(input=(0, 1)).waived(zero),)
    signs = (shape("b 4"), tokens("b 4", vocab_size=2))
    yield "F.hinge_embedding_loss", hinge, signs, (agreement(other=hinge_equation), convexity())
    yield "F.multi_margin_loss", F.multi_margin_loss, _CLASSES, (shift_invariance(), convexity())
    triplet, every = partial(F.triplet_margin_loss, reduction="none"), {"input": (0, 1, 2)}
    yield "F.triplet_margin_loss", triplet, (shape("b 4"),) * 3, (non_negativity(**every), batch_independence(**every))
    laws = commutativity(), boundedness(low=-1.0, high=1.0), batch_independence(input=(0, 1))
    yield "F.cosine_similarity", F.cosine_similarity, _PAIR, laws


def _means() -> Iterator[Row]:
    rows: tuple[tuple[type[nn.Module], Sequence[Any]], ...] = (
        (nn.L1Loss, _PAIR),
        (nn.MSELoss, _PAIR),
        (nn.HuberLoss, _PAIR),
        (nn.SmoothL1Loss, _PAIR),
        (nn.CrossEntropyLoss, _CLASSES),
        (nn.NLLLoss, _CLASSES),
        (nn.BCEWithLogitsLoss, (shape("b 4"), probabilities("b 4"))),
        (nn.MultiMarginLoss, _CLASSES),
    )
    laws: tuple[Law, ...] = (permutation_invariance(axis=0), mean_over_samples())
    for loss, inputs in rows:
        yield f"nn.{loss.__name__}", loss(), inputs, laws
    weights = torch.tensor([0.5, 1.0, 2.0, 3.0])
    weighted = mean_over_samples(weights=lambda x, k: weights[k])
    yield "nn.CrossEntropyLoss(weight)", nn.CrossEntropyLoss(weight=weights), _CLASSES, (weighted,)

    def masked(x: Tensor, k: Tensor, valid: Tensor) -> Tensor:
        return F.cross_entropy(x.mT, k.masked_fill(~valid, -100))

    laws = (masked_loss_ignores_masked_positions(), mean_over_unmasked_positions())
    laws += tuple(batch_padding_invariance(axis=axis) for axis in (0, 1))
    inputs = (shape("b t 4"), tokens("b t", vocab_size=4), mask("b t"))
    yield "F.cross_entropy(ignore_index=-100)", masked, inputs, laws
