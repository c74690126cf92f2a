"""Masks: padding and masked positions have no effect, and a fully masked row gives no NaN.

The map takes x and a boolean mask whose valid positions have the value `keep` (by default True).
"""

from __future__ import annotations

import torch
from torch import Tensor

from lawful.laws._helpers import axis_size, require_axis
from lawful.laws.interfaces import Draw, Map
from lawful.laws.law import Axis, Inapplicable, law
from lawful.laws.statements import Equal, Finite, Statement, index_along, up_to


def _require_mask(mask: Tensor) -> Tensor:
    if mask.dtype is not torch.bool:
        raise Inapplicable(f"expected a boolean mask as the second input, got {mask.dtype}")
    return mask


def _require_key_mask(mask: Tensor, x: Tensor, time: int) -> Tensor:
    expected = (x.shape[0], axis_size(x, time, "time"))
    if tuple(_require_mask(mask).shape) != expected:
        raise Inapplicable(f"expected a mask of shape (b, t) = {expected}, got {tuple(mask.shape)}")
    return mask


def _is_pooled(y: Tensor, x: Tensor, time: int) -> bool:
    """Returns whether an output has no time axis, like a pooled vector or a loss; it has fewer axes than the input."""
    return y.dim() < x.dim() and not (-y.dim() <= time < y.dim() and y.shape[time] == x.shape[time])


def _valid(mask: Tensor, y: Tensor, time: int, keep: bool) -> Tensor:
    """Returns the valid positions of a mask of shape (b, t), broadcast to an output with batch and time axes."""
    shape = [1] * y.dim()
    shape[0], shape[time] = mask.shape
    return (mask == keep).reshape(shape)


@law("f([x, p], [m, 0])[≤ t] = f(x, m)", eval_if_random=True)
def padding_invariance(f: Map, x: Tensor, mask: Tensor, *, time: Axis = 1, keep: bool = True, draw: Draw) -> Statement:
    """Padding at the end, with any values, does not change the outputs before it.

    The second input is a mask of shape (b, t), or the lengths, of shape (b,). An output without a time axis, such as a
    pooled vector or a loss, does not change at all.

    Satisfied by: attention under a key mask; a recurrence; a convolution whose input is masked first.
    Broken by: a convolution or a norm that reads the padding; a mean over the padded length.
    """
    t, extra = axis_size(x, time, "time"), draw.integer(1, 5, "extra")
    content = draw.like(x.narrow(time, 0, 1).repeat_interleave(extra, dim=time))
    longer = torch.cat([x, content], dim=time)
    where = up_to(t - 1, axis=time)
    if mask.dim() != 1 or mask.is_floating_point() or mask.dtype is torch.bool:
        _require_key_mask(mask, x, time)
        padded = torch.cat([mask, torch.full((mask.shape[0], extra), not keep, device=mask.device)], dim=1)
        y, z = f(x, mask), f(longer, padded)
        if _is_pooled(y, x, time):
            draw.assume((mask == keep).any())
            return Equal(y, z)
        y = require_axis(y, x, time, "time")
        return Equal(y, z.narrow(time, 0, t), where=_valid(mask, y, time, keep))
    lengths = mask.clamp(1, t)
    y = f(x, lengths)
    if _is_pooled(y, x, time):
        return Equal(y, f(longer, lengths))
    y = require_axis(y, x, time, "time")
    valid = index_along(y, time) < lengths.reshape([-1] + [1] * (y.dim() - 1))
    return Equal(y, f(longer, lengths).narrow(time, 0, t), where=valid & where(y))


@law("f(x, m)[i] does not depend on x[j], m[j] = 0, for m[i] = 1")
def masked_positions_have_no_influence(
    f: Map, x: Tensor, mask: Tensor, *, time: Axis = 1, keep: bool = True, draw: Draw
) -> Statement:
    """The content of a masked position does not affect the output at valid positions.

    It does not affect an output without a time axis, such as a pooled vector or a loss, at all.

    Satisfied by: attention whose scores are set to -inf at masked keys.
    Broken by: a mask of the wrong polarity; a mask that is added rather than applied; a norm over time.
    """
    valid = _valid(_require_key_mask(mask, x, time), x, time, keep)
    changed = draw.replace(x, lambda _: ~valid)
    y = f(x, mask)
    if _is_pooled(y, x, time):
        return Equal(y, f(changed, mask), exact=True)
    y = require_axis(y, x, time, "time")
    return Equal(y, f(changed, mask), where=_valid(mask, y, time, keep), exact=True)


@law("m[i, :] = 0 ⇒ f(x, m) and its gradient are finite")
def fully_masked_row_is_finite(f: Map, x: Tensor, mask: Tensor, *, keep: bool = True, draw: Draw) -> Statement:
    """A fully masked row (along the last axis of the mask) gives no NaN, in the output or the gradient.

    Satisfied by: softmax with the scores of a fully masked row replaced by zeros before and after.
    Broken by: softmax over a row of -inf; replacing the NaN afterwards, which leaves it in the gradient.
    """
    rows = _require_mask(mask).reshape(-1, mask.shape[-1]).clone()
    rows[draw.integer(0, rows.shape[0] - 1, "row")] = not keep
    empty = rows.reshape(mask.shape)
    values = [f(x, empty)]
    with torch.enable_grad():
        x = x.detach().requires_grad_(x.is_floating_point())
        y = f(x, empty)
        if y.requires_grad and x.requires_grad:
            values += torch.autograd.grad(y, x, draw.normal(*y.shape), allow_unused=True)
    return Finite([value for value in values if value is not None])
