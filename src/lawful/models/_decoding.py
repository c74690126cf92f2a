"""Decoding one token per row: the sublayers of a decoder as functions with less overhead and the same results."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.compiler import is_compiling
from torch.nn import functional as F
from torch.nn.modules import module as torch_module

from lawful.blocks import FeedForward, KVCache, MultiHeadAttention, Residual
from lawful.functions.attention import (
    NO_MASK,
    ChunkedAttention,
    Mask,
    SlidingWindowAttention,
    fused_attention,
    reference_attention,
)
from lawful.functions.tap import is_recording

_Function = Callable[[Tensor], Tensor]

_MAX_FUSED_WEIGHTS = 2**18  # above this one product costs as much as three
_SOFTMAX_KERNELS = ChunkedAttention | SlidingWindowAttention
_HOOKS = "_forward_hooks", "_forward_pre_hooks"  # backward hooks do not run without gradients


class TokenSteps:
    """The sublayers of a decoder as functions of one token per row.

    A small model spends much of a decode step in calls of modules, lookups of attributes and checks of arguments. Here
    they are done once for all tokens. Query, key and value projections become one matrix.

    Args:
        layers: Sublayers of the decoder.
        norm: Final norm of the decoder.
    """

    def __init__(self, layers: nn.ModuleList, norm: nn.Module) -> None:
        modules = [module for layer in (*layers, norm) for module in layer.modules()]
        self.layers, self.norm = layers, _as_function(norm)
        self.functions: list[Callable[..., Tensor]] = [_sublayer_step(layer) for layer in layers]
        self._hooks = [getattr(module, name) for module in modules for name in _HOOKS]
        self._hooks += [getattr(torch_module, f"_global{name}") for name in _HOOKS]
        self._compiled = any(module._compiled_call_impl is not None for module in modules)
        blocks = [layer.block for layer in layers if isinstance(layer, Residual)]
        attention = [block for block in blocks if isinstance(block, MultiHeadAttention)]
        weights = [p for b in attention for m in (b.query, b.key, b.value) for p in m.parameters()]
        self._weights = [p for p in weights if not p.is_inference()]  # inference tensors have no version
        self._versions = self._weight_versions()

    def is_stale(self, layers: nn.ModuleList) -> bool:
        """Returns whether the layers or the weights of attention have changed."""
        return self.layers is not layers or self._weight_versions() != self._versions

    def _weight_versions(self) -> list[int]:
        return [p._version for p in self._weights]

    def has_hooks(self) -> bool:
        """Returns whether a hook or a compiler must see the calls of modules."""
        return self._compiled or any(self._hooks)


def token_steps(layers: nn.ModuleList, norm: nn.Module, cache: Any) -> TokenSteps | None:
    """Returns the sublayers as functions; None if gradients, a recorder, a hook or a compiler need the modules.

    They are kept in `cache.steps`.
    """
    if torch.is_grad_enabled() or is_recording() or is_compiling():
        return None
    steps = cache.steps
    if steps is None or steps.is_stale(layers):
        steps = cache.steps = TokenSteps(layers, norm)
    return None if steps.has_hooks() else steps


def _sublayer_step(layer: Any) -> Callable[..., Tensor]:
    """A sublayer as a function of one token; the keyword arguments are those of its block."""
    if type(layer) is not Residual:
        return lambda x, **arguments: layer(x, partial(layer.block, **arguments)) if arguments else layer(x)
    block = layer.block
    if type(block) is MultiHeadAttention:
        run = _AttentionStep(block) if _can_fuse(block) else block
    elif type(block) is FeedForward:
        up, activation, down = _as_function(block.up), block.activation, _as_function(block.down)
        run = lambda x: down(activation(up(x)))  # noqa: E731
    else:
        run = block
    norm = None if layer.norm is None else _as_function(layer.norm)
    after = [_as_function(part) for part in (layer.branch_norm, layer.gate) if part is not None]
    scale, output_norm = layer.scale, layer.output_norm

    def step(x: Float[Tensor, "b 1 d"], **arguments: Any) -> Float[Tensor, "b 1 d"]:
        y = run(x if norm is None else norm(x), **arguments)
        for part in after:
            y = part(y)
        y = x + (y if scale == 1 else scale * y)
        return y if output_norm is None else output_norm(y)

    return step


def _as_function(module: nn.Module) -> _Function:
    """A linear layer or layer norm as a function of its current parameters; any other module as it is."""
    parameters: dict[str, Any] = module._parameters
    if type(module) is nn.Linear:
        return lambda x: F.linear(x, parameters["weight"], parameters["bias"])
    if type(module) is nn.LayerNorm:
        shape, eps = module.normalized_shape, module.eps
        return lambda x: torch.layer_norm(x, shape, parameters["weight"], parameters["bias"], eps)
    return module


def _can_fuse(layer: MultiHeadAttention) -> bool:
    """Returns whether the layer is softmax self-attention with one group of heads and small CPU projections."""
    kernel, group = layer.kernel, layer.head_groups[0]
    projections: list[Any] = [layer.query, layer.key, layer.value, layer.out]
    if any(type(m) is not nn.Linear for m in projections):
        return False
    return (
        not layer.is_cross_attention
        and (kernel in (fused_attention, reference_attention) or isinstance(kernel, _SOFTMAX_KERNELS))
        and len(layer.head_groups) == 1
        and group.key_dim == group.value_dim
        and len({m.bias is None for m in projections[:3]}) == 1
        and sum(m.weight.numel() for m in projections[:3]) <= _MAX_FUSED_WEIGHTS
        and all(
            p.device.type == "cpu" and p.dtype in (torch.float32, torch.float64) and not p.is_inference()
            for m in projections
            for p in m.parameters()
        )
    )


class _AttentionStep:
    """`MultiHeadAttention.forward` for one new token per row, with one matrix for queries, keys and values."""

    def __init__(self, layer: MultiHeadAttention) -> None:
        projections: list[Any] = [layer.query, layer.key, layer.value]
        group = layer.head_groups[0]
        self.layer, self.window = layer, getattr(layer.kernel, "window", None)
        self.weight = torch.cat([m.weight for m in projections])
        self.bias = None if layer.query.bias is None else torch.cat([m.bias for m in projections])
        self.out = _as_function(layer.out)
        self.sizes = group.num_heads, group.num_kv_heads, group.key_dim
        self.split = [layer.query_sizes[0], layer.key_sizes[0] + layer.value_sizes[0]]
        self.query_norm, self.key_norm, self.rotary = layer.query_norm, layer.key_norm, layer.rotary
        self.changes_kv = self.query_norm is not None or self.rotary is not None
        self.position_bias = layer.position_bias

    def __call__(
        self,
        x: Float[Tensor, "b 1 d"],
        *,
        mask: Mask,
        cache: Any,
        position_ids: Tensor | None = None,
        first_values: list[Tensor] | None = None,
    ) -> Float[Tensor, "b 1 d"]:
        if not self._applies(mask, cache, position_ids):
            return self.layer(x, mask=mask, cache=cache, position_ids=position_ids, first_values=first_values)
        b, (h, g, dim) = x.shape[0], self.sizes
        q, kv = F.linear(x, self.weight, self.bias).split_with_sizes(self.split, 2)
        q, kv = q.view(b, h, 1, dim), kv.view(b, 2, g, 1, dim)
        if self.changes_kv or first_values is not None:
            k, v = kv.unbind(1)
            if first_values is not None:
                v = self.layer._mix_values(v.reshape(b, 1, g * dim), first_values).view(b, g, 1, dim)
            if self.query_norm is not None and self.key_norm is not None:
                q, k = self.query_norm(q), self.key_norm(k)
            if self.rotary is not None:
                positions = cache.length if position_ids is None else position_ids
                q, k = self.rotary(q, positions), self.rotary(k, positions)
            kv = torch.stack([k, v], dim=1)
        keys, values = cache.append_token(kv)
        bias = None
        if mask.padding is not None or self.position_bias is not None:
            bias = _decode_bias(self.position_bias, mask, keys.shape[2], x)
        if g != h:  # query heads that share keys are rows of one head
            q = q.view(b, g, h // g, dim)
            bias = None if bias is None else bias.expand(b, h, 1, -1).reshape(b, g, h // g, -1)
        z = F.scaled_dot_product_attention(q, keys, values, attn_mask=bias)
        return self.out(z.view(b, 1, h * dim))

    def _applies(self, mask: Mask, cache: Any, position_ids: Tensor | None) -> bool:
        if type(cache) is not KVCache or not cache.length or (self.layer.dropout and self.layer.training):
            return False
        if self.window not in (None, cache.window) or (position_ids is not None and self.position_bias is not None):
            return False
        if mask is NO_MASK:
            return True
        if mask.prefix or mask.documents is not None or mask.pairs is not None:
            return False
        return mask.window in (None, cache.window) and (mask.padding is None or mask.padding.dim() == 2)


def _decode_bias(position_bias: nn.Module | None, mask: Mask, s: int, x: Tensor) -> Float[Tensor, "#b #h 1 s"]:
    """Bias of the scores of one query over the last s keys: padding mask and position bias."""
    bias = x.new_zeros(1, 1, 1, s)
    if mask.padding is not None:
        bias = bias.masked_fill(~mask.padding[:, None, None, -s:], -torch.inf)
    if position_bias is not None:
        positions = torch.arange(s, device=x.device)
        bias = bias + position_bias(positions[-1:], positions)
    return bias
