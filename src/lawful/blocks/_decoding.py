"""Fast paths for decoding token by token: fewer Python calls and one fused projection, with the same results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules import module as torch_module

from lawful.blocks.kv_cache import KVCache
from lawful.functions.attention import (
    NO_MASK,
    ChunkedAttention,
    Mask,
    SlidingWindowAttention,
    fused_attention,
    reference_attention,
)
from lawful.functions.tap import is_recording

_MAX_FUSED_WEIGHTS = 2**18  # above this one product costs as much as three
_SOFTMAX_KERNELS = ChunkedAttention | SlidingWindowAttention


def forward_of(module: nn.Module) -> Callable[..., Tensor]:
    """Returns the `forward` of a module, or the module itself if a hook or a compiler must see the call.

    Examples:
        >>> layer = nn.Linear(2, 2)
        >>> forward_of(layer) == layer.forward
        True
        >>> handle = layer.register_forward_hook(lambda *_: None)
        >>> forward_of(layer) is layer
        True
    """
    if (
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or module._compiled_call_impl is not None
        or torch_module._global_forward_hooks
        or torch_module._global_forward_pre_hooks
        or torch_module._global_backward_hooks
        or torch_module._global_backward_pre_hooks
        or torch.compiler.is_compiling()
    ):
        return module
    return module.forward


def call(module: nn.Module, x: Tensor) -> Tensor:
    """Returns `module(x)`; linear layers and layer norms without hooks run as functions.

    Examples:
        >>> layer, x = nn.Linear(2, 2), torch.ones(2)
        >>> torch.equal(call(layer, x), layer(x))
        True
    """
    forward = forward_of(module)
    if forward is module:
        return module(x)
    parameters: dict[str, Any] = module._parameters
    if type(module) is nn.Linear:
        return F.linear(x, parameters["weight"], parameters["bias"])
    if type(module) is nn.LayerNorm:
        return torch.layer_norm(x, module.normalized_shape, parameters["weight"], parameters["bias"], module.eps)
    return forward(x)


def decode_token(
    layer: Any,
    x: Float[Tensor, "b 1 d"],
    mask: Mask,
    cache: KVCache,
    position_ids: Tensor | None,
    first_values: list[Tensor] | None,
) -> Float[Tensor, "b 1 d"] | None:
    """Runs `MultiHeadAttention.forward` for one new token per row, with one fused projection and less overhead.

    Returns None if the general path is needed.
    """
    if torch.is_grad_enabled() or is_recording() or x.shape[2] != layer.dim or (layer.dropout and layer.training):
        return None
    if mask is not NO_MASK:
        rules = mask.prefix or mask.documents is not None or mask.pairs is not None
        if rules or mask.window not in (None, cache.window):
            return None
        if mask.padding is not None and mask.padding.dim() != 2:
            return None
    fused = cache.fused_projection
    if fused is None or fused.layer is not layer or fused.is_stale():
        fused = cache.fused_projection = _FusedProjection(layer)
    if fused.sizes is None or fused.window not in (None, cache.window):
        return None
    if position_ids is not None and layer.position_bias is not None:
        return None
    b, (h, g, key_dim, value_dim), split = x.shape[0], fused.sizes, fused.split
    q, k, v = F.linear(x, fused.weight, fused.bias).split_with_sizes(split, 2)
    if first_values is not None:
        v = layer._mix_values(v, first_values)
    q, k = q.view(b, h, 1, key_dim), k.view(b, g, 1, key_dim)
    if fused.query_norm is not None and fused.key_norm is not None:
        q, k = fused.query_norm(q), fused.key_norm(k)
    if fused.rotary is not None:
        positions = cache.length if position_ids is None else position_ids
        q, k = fused.rotary(q, positions), fused.rotary(k, positions)
    keys, values = cache.append_token(k, v.view(b, g, 1, value_dim))
    bias = None
    if mask.padding is not None or layer.position_bias is not None:
        bias = _decode_bias(layer.position_bias, mask, keys.shape[2], x)
    if g != h:  # query heads that share keys are rows of one head
        q = q.view(b, g, h // g, key_dim)
        bias = None if bias is None else bias.expand(b, h, 1, -1).reshape(b, g, h // g, -1)
    z = F.scaled_dot_product_attention(q, keys, values, attn_mask=bias)
    return F.linear(z.view(b, 1, h * value_dim), fused.out_weight, fused.out_bias)


def _decode_bias(position_bias: nn.Module | None, mask: Mask, s: int, x: Tensor) -> Float[Tensor, "#b #h 1 s"]:
    """Bias of the scores of one query over the last s keys: padding mask and position bias."""
    bias = x.new_zeros(1, 1, 1, s)
    if mask.padding is not None:
        bias = bias.masked_fill(~mask.padding[:, None, None, -s:], -torch.inf)
    if position_bias is not None:
        positions = torch.arange(s, device=x.device)
        bias = bias + position_bias(positions[-1:], positions)
    return bias


class _FusedProjection:
    """Query, key and value projections of a layer as one matrix; `sizes` is None if they do not fuse."""

    __slots__ = (
        *("weight", "bias", "out_weight", "out_bias", "sizes", "split", "query_norm", "key_norm", "rotary"),
        *("layer", "parameters", "versions", "window"),
    )

    def __init__(self, layer: Any) -> None:
        projections: list[Any] = [layer.query, layer.key, layer.value, layer.out]
        group = layer.head_groups[0]
        self.layer, self.window = layer, getattr(layer.kernel, "window", None)
        self.sizes: tuple[int, int, int, int] | None = None
        self.parameters: list[Tensor] = [p for m in projections if type(m) is nn.Linear for p in m.parameters()]
        if not self._can_fuse(layer, projections):
            self.parameters, self.versions = [], []
            return
        self.versions = [p._version for p in self.parameters]
        biases = [m.bias for m in projections[:3]]
        self.weight = torch.cat([m.weight for m in projections[:3]])
        self.bias = None if biases[0] is None else torch.cat(biases)
        self.out_weight, self.out_bias = layer.out.weight, layer.out.bias
        self.sizes = group.num_heads, group.num_kv_heads, group.key_dim, group.value_dim
        self.split = [layer.query_sizes[0], layer.key_sizes[0], layer.value_sizes[0]]
        self.query_norm, self.key_norm, self.rotary = layer.query_norm, layer.key_norm, layer.rotary

    def _can_fuse(self, layer: Any, projections: list[Any]) -> bool:
        kernel, group = layer.kernel, layer.head_groups[0]
        softmax = kernel in (fused_attention, reference_attention) or isinstance(kernel, _SOFTMAX_KERNELS)
        return (
            softmax
            and len(layer.head_groups) == 1
            and group.key_dim == group.value_dim
            and all(type(m) is nn.Linear and not m._forward_hooks and not m._forward_pre_hooks for m in projections)
            and len({m.bias is None for m in projections[:3]}) == 1
            and sum(m.weight.numel() for m in projections[:3]) <= _MAX_FUSED_WEIGHTS
            and all(
                p.device.type == "cpu" and p.dtype in (torch.float32, torch.float64) and not p.is_inference()
                for p in self.parameters
            )
        )

    def is_stale(self) -> bool:
        """Whether the parameters have changed since they were fused."""
        return [p._version for p in self.parameters] != self.versions
