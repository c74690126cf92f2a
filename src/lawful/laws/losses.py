"""Losses: means over samples and over unmasked positions, and padding of the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from lawful.laws._helpers import axis_size, last_mask, transform_along
from lawful.laws.interfaces import Draw, Map, RejectCase
from lawful.laws.law import Axis, Inapplicable, law
from lawful.laws.statements import Equal, Statement


def _scalar_loss(f: Map, inputs: Sequence[Tensor]) -> Tensor:
    loss = f(*inputs)
    if loss.numel() != 1:
        raise Inapplicable(f"expected a scalar loss, got shape {tuple(loss.shape)}")
    return loss.reshape(())


@law("L(x) = Σ_i w_i L(x_i) / Σ_i w_i", eval_if_random=True)
def mean_over_samples(
    f: Map, *xs: Tensor, batch: Axis = 0, weights: Callable[..., Tensor] | None = None, draw: Draw
) -> Statement:
    """The loss of a batch is the mean of the losses of its samples.

    `weights` is a function from the inputs with a batch axis to the weights of the samples, of shape (b,), such as the
    numbers of unmasked positions `lambda x, mask: mask.sum(1)`. By default all samples have the same weight. One
    sample is compared with the rest of the batch.

    Satisfied by: a loss with `reduction="mean"`; a mean over all tokens, weighted by their numbers.
    Broken by: a sum; a mean over tokens without weights; in-batch negatives; batch norm in training mode.
    """
    if (n := axis_size(xs[0], batch, "batch")) < 2:
        raise RejectCase
    w = torch.ones(n, device=xs[0].device) if weights is None else weights(*xs)
    if tuple(w.shape) != (n,):
        raise ValueError(f"weights must return one weight per sample, of shape ({n},), got {tuple(w.shape)}")
    i = draw.integer(0, n - 1, "i")
    others = torch.tensor([k for k in range(n) if k != i], device=w.device)

    def loss_of(samples: Tensor) -> Tensor:
        return _scalar_loss(f, transform_along(f, xs, batch, lambda x, same: x.index_select(same, samples)))

    loss = _scalar_loss(f, xs)
    share = w[i].to(loss.dtype) / w.sum()
    draw.assume((share > 0) & (share < 1))
    return Equal(loss, share * loss_of(torch.tensor([i], device=w.device)) + (1 - share) * loss_of(others))


@law("L(x, m) = Σ_i m_i L(x, e_i) / Σ_i m_i", every_input=True)
def mean_over_unmasked_positions(f: Map, *xs: Tensor, keep: bool = True, draw: Draw) -> Statement:
    """A masked loss is the mean of the losses at the unmasked positions.

    The mask is the last boolean input; unmasked positions have the value `keep`. One position is compared with the
    other unmasked ones, by two other masks.

    Satisfied by: the sum of the losses at unmasked positions, divided by their number; `ignore_index`.
    Broken by: a mean over the padded length; a mean of means over sequences of different lengths; a sum.
    """
    place = last_mask(xs)
    unmasked = xs[place] == keep
    positions = unmasked.reshape(-1).nonzero().reshape(-1)
    n = len(positions)
    if n < 2:
        raise RejectCase
    one = torch.zeros_like(unmasked.reshape(-1))
    one[positions[draw.integer(0, n - 1, "i")]] = True
    one = one.reshape(unmasked.shape)

    def loss_at(where: Tensor) -> Tensor:
        return _scalar_loss(f, [where == keep if k == place else x for k, x in enumerate(xs)])

    return Equal(_scalar_loss(f, xs), loss_at(one) / n + loss_at(unmasked & ~one) * (n - 1) / n)


@law("L(x, m) does not depend on x_i, m_i = 0")
def masked_loss_ignores_masked_positions(
    f: Map, *xs: Tensor, batch: Axis = 0, keep: bool = True, draw: Draw
) -> Statement:
    """A masked loss does not depend on any input at masked positions, such as predictions and labels.

    The mask is the last boolean input with a batch axis; unmasked positions have the value `keep`. The other inputs
    have the axes of the mask first: predictions of shape (b, t, d) and labels (b, t) for a mask (b, t).

    Satisfied by: losses that are selected by the mask; `ignore_index`.
    Broken by: a mask of the wrong polarity; a normalization by the sum over all positions.
    """
    place = last_mask(xs)
    unmasked = xs[place] == keep

    def replace_masked(x: Tensor) -> Tensor:
        return draw.like(x, ~unmasked.reshape(*unmasked.shape, *[1] * (x.dim() - unmasked.dim())).expand_as(x))

    has_positions = [k != place and x.shape[: unmasked.dim()] == unmasked.shape for k, x in enumerate(xs)]
    if not any(has_positions):
        raise Inapplicable(f"expected an input whose shape begins with that of the mask, {tuple(unmasked.shape)}")
    draw.assume(unmasked.any() & ~unmasked.all())
    changed = [replace_masked(x) if has else x for x, has in zip(xs, has_positions, strict=True)]
    return Equal(_scalar_loss(f, xs), _scalar_loss(f, changed), exact=True)


@law("f([x, p], [m, 0])[≤ n] = f(x, m)", eval_if_random=True)
def batch_padding_invariance(f: Map, *xs: Tensor, axis: Axis = 0, keep: bool = True, draw: Draw) -> Statement:
    """Padding a batch with masked samples, or with masked positions, changes no loss and no other output.

    The padding, with any values, is at the end of `axis`: 0 for samples, 1 for positions. The mask is the last boolean
    input with this axis; unmasked positions have the value `keep`.

    Satisfied by: a mean over unmasked positions; a layer that maps each sample independently.
    Broken by: a mean over the padded batch; batch norm in training mode.
    """
    n, place = axis_size(xs[0], axis), last_mask(xs)
    draw.assume((xs[place] == keep).any())
    extra = draw.integer(1, min(n, 3), "extra")

    def pad(x: Tensor, same: int) -> Tensor:
        padding = torch.full_like(x, not keep) if x is xs[place] else draw.like(x)
        return torch.cat([x, padding.narrow(same, 0, extra)], dim=same)

    y, z = f(*xs), f(*transform_along(f, xs, axis, pad))
    if y.dim() > 0:
        if not -y.dim() <= axis < y.dim() or (y.shape[axis], z.shape[axis]) != (n, n + extra):
            raise Inapplicable(
                f"expected a scalar loss, or an output of size {n} along axis {axis}: got {tuple(y.shape)}"
            )
        z = z.narrow(axis, 0, n)
    return Equal(y, z)
