"""What a mask promises: padding and masked positions count for nothing, and an empty row is harmless.

The map takes x and a mask with `keep` (True, unless said otherwise) at the positions that are there.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lawful.laws.interfaces import Draw, Map
from lawful.laws.law import Axis, Inapplicable, along, law, length
from lawful.laws.statements import Equal, Finite, Statement, index_along, up_to


def _is_mask(mask: Tensor) -> Tensor:
    if mask.dtype is not torch.bool:
        raise Inapplicable(f"the second input is to be a boolean mask: got {mask.dtype}")
    return mask


def _fits(mask: Tensor, x: Tensor, time: int) -> Tensor:
    wanted = (x.shape[0], length(x, time, "time"))
    if tuple(_is_mask(mask).shape) != wanted:
        raise Inapplicable(f"the mask is to have shape (b, t) = {wanted}: got {tuple(mask.shape)}")
    return mask


def _kept(mask: Tensor, y: Tensor, time: int, keep: bool) -> Tensor:
    """The mask of shape (b, t), laid over an output that runs along batch and time."""
    shape = [1] * y.dim()
    shape[0], shape[time] = mask.shape
    return (mask == keep).reshape(shape)


@law("f([x, p], [m, 0])[≤ t] = f(x, m)")
def padding_invariance(f: Map, x: Tensor, mask: Tensor, *, time: Axis = 1, keep: bool = True, draw: Draw) -> Statement:
    """Padding at the end, of any content, does not change the outputs before it.

    The second input is a mask of shape (b, t), or the lengths, of shape (b,).

    Satisfied by: attention under a key mask; a recurrence; a convolution whose input is masked first.
    Broken by: a convolution or a norm that reads the padding; a mean over the padded length.
    """
    t, extra = length(x, time, "time"), draw.integer(1, 5, "extra")
    content = draw.like(x.narrow(time, 0, 1).repeat_interleave(extra, dim=time))
    longer = torch.cat([x, content], dim=time)
    where = up_to(t - 1, axis=time)
    if mask.dim() != 1 or mask.is_floating_point() or mask.dtype is torch.bool:
        _fits(mask, x, time)
        padded = torch.cat([mask, torch.full((mask.shape[0], extra), not keep, device=mask.device)], dim=1)
        y = along(f(x, mask), x, time, "time")
        z = f(longer, padded).narrow(time, 0, t)
        return Equal(y, z, where=_kept(mask, y, time, keep))
    lengths = mask.clamp(1, t)
    y = along(f(x, lengths), x, time, "time")
    real = index_along(y, time) < lengths.reshape([-1] + [1] * (y.dim() - 1))
    return Equal(y, f(longer, lengths).narrow(time, 0, t), where=real & where(y))


@law("f(x, m)[i] does not depend on x[j], m[j] = 0, for m[i] = 1")
def masked_positions_have_no_influence(
    f: Map, x: Tensor, mask: Tensor, *, time: Axis = 1, keep: bool = True, draw: Draw
) -> Statement:
    """What stands at a masked position does not reach the positions that are there.

    Satisfied by: attention whose scores are set to -inf at masked keys.
    Broken by: a mask of the wrong polarity; a mask that is added rather than applied; a norm over time.
    """
    shown = _kept(_fits(mask, x, time), x, time, keep)
    changed = draw.replace(x, lambda _: ~shown)
    y = along(f(x, mask), x, time, "time")
    return Equal(y, f(changed, mask), where=_kept(mask, y, time, keep), exact=True)


@law("m[i, :] = 0 ⇒ f(x, m) and its gradient are finite")
def fully_masked_row_is_finite(f: Map, x: Tensor, mask: Tensor, *, keep: bool = True, draw: Draw) -> Statement:
    """A row of the mask with nothing in it (along its last axis) gives no NaN, in value or in gradient.

    Satisfied by: softmax over scores of which a masked row is replaced by zeros before and after.
    Broken by: softmax over a row of -inf; zeroing the NaN afterwards, which leaves it in the gradient.
    """
    rows = _is_mask(mask).reshape(-1, mask.shape[-1]).clone()
    rows[draw.integer(0, rows.shape[0] - 1, "row")] = not keep
    empty = rows.reshape(mask.shape)
    values = [f(x, empty)]
    with torch.enable_grad():
        x = x.detach().requires_grad_(x.is_floating_point())
        y = f(x, empty)
        if y.requires_grad and x.requires_grad:
            values += torch.autograd.grad(y, x, draw.normal(*y.shape), allow_unused=True)
    return Finite([value for value in values if value is not None])
