"""Losses: means over samples and over unmasked positions, and padding of the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from lawful.laws._helpers import axis_size, last_mask
from lawful.laws.interfaces import Draw, Map, RejectCase
from lawful.laws.law import Axis, Inapplicable, law
from lawful.laws.statements import Equal, Statement


def _scalar_loss(f: Map, inputs: Sequence[Tensor]) -> Tensor:
    loss = f(*inputs)
    if loss.numel() != 1:
        raise Inapplicable(f"expected a scalar loss, got shape {tuple(loss.shape)}")
    return loss.reshape(())


def _num_samples(xs: Sequence[Tensor], batch: int) -> int:
    """Returns the number of samples, which must be the same in all inputs."""
    n = axis_size(xs[0], batch, "batch")
    for x in xs:
        if not -x.dim() <= batch < x.dim() or x.shape[batch] != n:
            raise Inapplicable(f"expected inputs with {n} samples along axis {batch}, got shape {tuple(x.shape)}")
    return n


@law("L(x) = Σ_i w_i L(x_i) / Σ_i w_i", eval_if_random=True, every_input=True)
def mean_over_samples(
    f: Map, *xs: Tensor, batch: Axis = 0, weights: Callable[..., Tensor] | None = None, draw: Draw
) -> Statement:
    """The loss of a batch is the mean of the losses of its samples.

    `weights` is a function from the inputs to the weights of the samples, of shape (b,), such as the numbers of
    unmasked positions `lambda x, mask: mask.sum(1)`. By default all samples have the same weight. One sample is
    compared with the rest of the batch.

    Satisfied by: a loss with `reduction="mean"`; a mean over all tokens, weighted by their numbers.
    Broken by: a sum; a mean over tokens without weights; in-batch negatives; batch norm in training mode.
    """
    n = _num_samples(xs, batch)
    if n < 2:
        raise RejectCase
    w = xs[0].new_ones(n, dtype=torch.float64) if weights is None else weights(*xs)
    if tuple(w.shape) != (n,):
        raise ValueError(f"weights must return one weight per sample, of shape ({n},), got {tuple(w.shape)}")
    i = draw.integer(0, n - 1, "i")
    one, rest = torch.arange(n, device=w.device) == i, torch.arange(n, device=w.device) != i
    share = w[i] / w.sum()
    draw.assume((share > 0) & (share < 1))

    def loss_of(samples: Tensor) -> Tensor:
        return _scalar_loss(f, [x.index_select(batch, samples.nonzero().reshape(-1)) for x in xs])

    loss = _scalar_loss(f, xs)
    share = share.to(loss.dtype)
    return Equal(loss, share * loss_of(one) + (1 - share) * loss_of(rest))


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


@law("f([x, p], [m, 0])[≤ b] = f(x, m)", eval_if_random=True, every_input=True)
def batch_padding_invariance(f: Map, *xs: Tensor, batch: Axis = 0, keep: bool = True, draw: Draw) -> Statement:
    """Fully masked samples at the end of the batch, with any values, change no loss and no other output.

    The mask is the last boolean input; unmasked positions have the value `keep`. For padding at the end of the
    sequences see `padding_invariance`.

    Satisfied by: a mean over unmasked positions; a layer that maps each sample independently.
    Broken by: a mean over the padded batch; batch norm in training mode.
    """
    n, place = _num_samples(xs, batch), last_mask(xs)
    draw.assume((xs[place] == keep).any())
    extra = draw.integer(1, min(n, 3), "extra")
    padding = [draw.like(x).narrow(batch, 0, extra) for x in xs]
    padding[place] = torch.full_like(padding[place], not keep)
    y, z = f(*xs), f(*(torch.cat(pair, dim=batch) for pair in zip(xs, padding, strict=True)))
    if y.dim() > 0:
        if not -y.dim() <= batch < y.dim() or (y.shape[batch], z.shape[batch]) != (n, n + extra):
            raise Inapplicable(f"expected a scalar loss or an output per sample, got shape {tuple(y.shape)}")
        z = z.narrow(batch, 0, n)
    return Equal(y, z)
