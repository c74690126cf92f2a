"""One step of a decoder, unrolled: the same operators without the modules around them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import linear, scaled_dot_product_attention

from lawful.blocks.attention import MultiHeadAttention
from lawful.blocks.dense import Dense
from lawful.blocks.feed_forward import FeedForward
from lawful.blocks.residual import Residual
from lawful.functions.attention import CAUSAL, fused_attention
from lawful.laws import Claim, agreement, tokens
from lawful.models.transformer import Cache, Decoder, DecoderConfig, gpt2_config

Step = Callable[[Tensor, Any], Tensor]
Layer = Callable[[Tensor, Iterator[Any], int, Tensor | None], Tensor]


def unrolled(model: object) -> Step | None:
    """Returns a function that does what `model(tokens, cache=cache)[:, -1]` does with one token, in less time.

    Small models spend most of a step in the calls of modules and in the choices that these make anew for each token;
    here they are made once. None is returned for a model with parts other than those below, and for one with hooks, so
    that whatever looks inside a model sees it run as ever.

    Args:
        model: The model; a `Decoder` of full causal attention and feed-forward blocks, with any norms and positions.
    """
    if type(model) is not Decoder or model.config.mask is not CAUSAL or model.values is not None:
        return None
    if any(module._forward_hooks or module._forward_pre_hooks for module in model.modules()):
        return None
    pairs = zip(model.order, model.layers, strict=True)
    found = [_attending(layer) if letter == "s" else _feeding(layer) for letter, layer in pairs]
    layers = [layer for layer in found if layer is not None]
    if len(layers) != len(found) or model.shortcuts is not None:
        return None
    last = _norm(model.norm)

    def step(tokens: Int[Tensor, "b 1"], cache: Cache) -> Float[Tensor, "b vocab"]:
        there, at, kept = cache.there(1), cache.length, iter(cache.layers)
        x = model.embed(tokens, cache=cache, padding=there)[:, 0]
        hidden = None if there is None else there[:, None, None]
        for layer in layers:
            x = layer(x, kept, at, hidden)
        cache.advance(tokens)
        return model.logits(last(x))

    return step


def _attending(layer: nn.Module) -> Layer | None:
    """The step of a residual attention block, if it is a plain one."""
    if not isinstance(layer, Residual) or not _plain(layer) or type(layer.block) is not MultiHeadAttention:
        return None
    block = layer.block
    if len(block.sets) != 1 or block.crosses:
        return None
    linears, heads = (block.query, block.key, block.value, block.out), block.sets[0]
    if block.bias_by is not None or block.mix is not None or block.kernel is not fused_attention:
        return None
    if heads.key != heads.value or any(type(one) is not nn.Linear for one in linears):
        return None
    (wq, bq), (wk, bk), (wv, bv), (wo, bo) = ((one.weight, one.bias) for one in linears)
    h, g, size, width = heads.count, heads.groups, heads.key, heads.count * heads.value
    norm, step, scale = _norm(layer.norm), layer.step, size**-0.5
    shape_q, shape_k, turned = (_one(module) for module in (block.query_norm, block.key_norm, block.rotary))

    def run(x: Tensor, kept: Iterator[Any], at: int, hidden: Tensor | None) -> Tensor:
        y, b = norm(x), len(x)
        q, k = linear(y, wq, bq).view(b, h, 1, size), linear(y, wk, bk).view(b, g, 1, size)
        if shape_q is not None and shape_k is not None:
            q, k = shape_q(q), shape_k(k)
        if turned is not None:
            q, k = turned(q, at), turned(k, at)
        k, v = next(kept).append(k, linear(y, wv, bv).view(b, g, 1, size))
        z = scaled_dot_product_attention(q, k, v, attn_mask=hidden, scale=scale, enable_gqa=h != g)
        z = linear(z.reshape(b, width), wo, bo)
        return x + (z if step == 1 else step * z)

    return run


def _feeding(layer: nn.Module) -> Layer | None:
    """The step of a residual feed-forward block, if it is a plain one."""
    if not isinstance(layer, Residual) or not _plain(layer) or type(layer.block) is not FeedForward:
        return None
    block = layer.block
    if type(block.up) is not Dense or type(block.down) is not Dense:
        return None
    (w, b), (v, c) = ((one.weight, one.bias) for one in (block.up, block.down))
    norm, f, g, step = _norm(layer.norm), block.up.activation, block.down.activation, layer.step

    def run(x: Tensor, kept: Iterator[Any], at: int, hidden: Tensor | None) -> Tensor:
        y = g(linear(f(linear(norm(x), w, b)), v, c))
        return x + (y if step == 1 else step * y)

    return run


def _plain(layer: Residual) -> bool:
    return type(layer) is Residual and layer.inner is None and layer.gate is None and layer.after is None


def _norm(norm: nn.Module | None) -> Callable[[Tensor], Tensor]:
    if norm is None:
        return lambda x: x
    if type(norm) is not nn.LayerNorm:
        return norm
    sizes, weight, bias, eps = norm.normalized_shape, norm.weight, norm.bias, norm.eps
    return lambda x: torch.layer_norm(x, sizes, weight, bias, eps)


def _one(module: nn.Module | None) -> nn.Module | None:
    """The module of the only set of heads."""
    return module[0] if isinstance(module, nn.ModuleList) else module


def claims() -> Iterator[Claim]:
    """The law that an unrolled step obeys: it is what the model does."""
    for name, config in {
        "GPT-2": gpt2_config(vocab=5, d=8, depth=2, heads=2, context=40),
        "rotary": DecoderConfig(vocab=5, d=8, depth=1, order="(hsf)*"),
    }.items():
        model = Decoder(config).eval()
        for n, parameter in enumerate(model.parameters()):
            nn.init.normal_(parameter, std=0.5, generator=torch.Generator().manual_seed(n))

        def stepped(x: Tensor, model: Decoder = model) -> Tensor:
            cache, step = model.cache(), unrolled(model)
            if step is None:
                raise TypeError(f"the model has parts that are not known: {model}")
            model(x[:, :1], cache=cache)
            return torch.stack([step(x[:, [i]], cache) for i in range(1, x.shape[1])], dim=1)

        def whole(x: Tensor, model: Decoder = model) -> Tensor:
            return model(x)[:, 1:]

        yield Claim(agreement(other=whole), stepped, tokens("b:1..3 t:2..6", vocab=5), name=f"unrolled, {name}")
