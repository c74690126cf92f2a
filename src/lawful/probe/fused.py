"""The pattern of fused attention, in any model: computed step by step while it is asked for."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from lawful.functions.tap import tap, tapped
from lawful.laws import Claim, agreement, shape


def tapped_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    r"""Does what PyTorch's `scaled_dot_product_attention` does, with its `scores` and its `pattern` tapped.

    $$\operatorname{softmax}\bigl(s \, q k^\top + m\bigr) \, v$$

    The arguments are those of PyTorch's function, and so is the alignment of `is_causal`, to the first key.

    Examples:
        >>> q, k, v = torch.randn(3, 1, 4, 2).unbind()
        >>> torch.allclose(tapped_attention(q, k, v), F.scaled_dot_product_attention(q, k, v), atol=1e-6)
        True
    """
    if enable_gqa:
        key, value = (x.repeat_interleave(query.shape[-3] // x.shape[-3], -3) for x in (key, value))
    scores = query @ key.mT * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        attn_mask = scores.new_ones(scores.shape[-2:], dtype=torch.bool).tril()
    if attn_mask is not None:
        seen = attn_mask.dtype == torch.bool
        scores = scores.masked_fill(~attn_mask, -math.inf) if seen else scores + attn_mask
    pattern = torch.softmax(tap("scores", scores), -1)
    if attn_mask is not None:
        pattern = pattern.masked_fill((scores == -math.inf).all(-1, keepdim=True), 0.0)
    return F.dropout(tap("pattern", pattern), dropout_p) @ value


# What `nn.MultiheadAttention` calls, with the attention inside it tapped.
_forward: Any = F.multi_head_attention_forward
_inside = {"scaled_dot_product_attention": tapped_attention, "has_torch_function": lambda _: False}
_tapped_forward = FunctionType(_forward.__code__, _forward.__globals__ | _inside, argdefs=_forward.__defaults__)


class WatchedAttention(TorchFunctionMode):
    """Puts `tapped_attention` in the place of PyTorch's fused attention, wherever its pattern is asked for."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Calls a function of PyTorch, or what stands in for it."""
        if func in (F.scaled_dot_product_attention, F.multi_head_attention_forward) and tapped("scores", "pattern"):
            func = tapped_attention if func is F.scaled_dot_product_attention else _tapped_forward
        return func(*args, **(kwargs or {}))


def claims() -> Iterator[Claim]:
    """The laws that tapped attention obeys."""
    lower = torch.ones(3, 3, dtype=torch.bool).tril(1)
    cases = {
        "plain": {},
        "causal": {"is_causal": True},
        "mask and scale": {"attn_mask": lower, "scale": 0.7},
        "added mask": {"attn_mask": 1.0 * lower},
        "an empty row": {"attn_mask": lower & torch.tensor([[True], [False], [True]])},
    }
    for name, options in cases.items():

        def tapped_form(x: Tensor, options: dict[str, Any] = options) -> Tensor:
            return tapped_attention(x, x.flip(-1), x.roll(1, -2), **_typed(options, x))

        def fused(x: Tensor, options: dict[str, Any] = options) -> Tensor:
            return F.scaled_dot_product_attention(x, x.flip(-1), x.roll(1, -2), **_typed(options, x))

        yield Claim(agreement(other=fused), tapped_form, shape("b 2 3 4"), name=f"tapped_attention, {name}")

    def grouped(x: Tensor) -> Tensor:
        return tapped_attention(x, x[:, :2], x[:, 2:], enable_gqa=True)

    def repeated(x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(x, x[:, [0, 0, 1, 1]], x[:, [2, 2, 3, 3]])

    yield Claim(agreement(other=repeated), grouped, shape("b 4 3 2"), name="tapped_attention, grouped")


def _typed(options: dict[str, Any], x: Tensor) -> dict[str, Any]:
    """The options, with an added mask in the precision of x."""
    return {k: v.to(x) if isinstance(v, Tensor) and v.is_floating_point() else v for k, v in options.items()}
