"""One step of a decoder, unrolled: the same operators without the modules around them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lawful.blocks.attention import MultiHeadAttention
from lawful.blocks.dense import Dense
from lawful.blocks.feed_forward import FeedForward
from lawful.blocks.residual import Residual
from lawful.functions.attention import EVERYTHING, Chunked, Linear, Mask, Window, fused_attention, plain_attention
from lawful.laws import Claim, agreement, tokens
from lawful.models.transformer import Cache, Decoder, DecoderConfig, gpt2_config
from lawful.models.transformer.stream import places_of

Step = Callable[[Tensor, Any], Tensor]
SMALL = 2**18
"""The number of weights up to which a product costs no more than its call, so that three are made one."""


@dataclass(eq=False, slots=True)
class Moment:
    """What the sublayers share while one token is read."""

    at: int
    """How many tokens were read before."""
    place: Int[Tensor, "b 1"] | int
    """Where the token stands in its own row."""
    hidden: Float[Tensor, "b 1 s"] | None
    """What is added to the scores of the keys: minus infinity where there is no token; None if all are there."""
    kept: Iterator[Any]
    """The caches of the attention layers that are still to come."""
    first: list[Tensor]
    """The values of the first attention, or those of a table."""


Block = Callable[[Tensor, Moment], Tensor]


def unrolled(model: object) -> Step | None:
    """Returns a function that does what `model(tokens, cache=cache)[:, -1]` does with one token, in less time.

    Small models spend most of a step in the calls of modules and in the choices that these make anew for each token;
    here they are made once. A single query needs no mask but for padding, and every kernel of the softmax is the same
    two products for it. None is returned for a model with parts other than those below; for one with hooks, so that
    whatever looks inside a model sees it run as ever; and off the processor or in half precision, where fused
    attention is better.

    Args:
        model: The model; a `Decoder` of causal self-attention, with a window or without, of heads of one size, with any
            feed-forward blocks, norms, positions and extras.
    """
    if type(model) is not Decoder or not _is_band(model.config.mask) or not set(model.order) <= set("sfh"):
        return None
    if any(module._forward_hooks or module._forward_pre_hooks for module in model.modules()):
        return None
    if any(p.device.type != "cpu" or p.dtype not in (torch.float32, torch.float64) for p in model.parameters()):
        return None
    layers: list[tuple[Block, nn.Module | None]] = []
    mixes, attended = iter(model.shortcuts or ()), False
    for letter, layer in zip(model.order, model.layers, strict=True):
        if type(layer) is not Residual:
            return None
        block = (_attending if letter == "s" else _feeding)(layer.block)
        if block is None:
            return None
        layers.append((_added(layer, block), next(mixes, None) if letter == "s" and attended else None))
        attended = attended or letter == "s"
    mix, last = next(mixes, None), _plain(model.norm)
    absolute = any(getattr(layer.block, "absolute", False) for layer in model.layers)

    def step(tokens: Int[Tensor, "b 1"], cache: Cache) -> Float[Tensor, "b vocab"]:
        there = cache.there(1)
        x = start = model.embed(tokens, cache=cache, padding=there)[:, 0]
        hidden = None if there is None else torch.where(there, 0.0, -torch.inf).to(x.dtype)[:, None]
        first = [] if model.values is None else [model.values(tokens)[:, 0]]
        place = cache.length if there is None or not absolute else places_of(there, cache.length, 1)
        moment = Moment(cache.length, place, hidden, iter(cache.layers), first)
        for layer, shortcut in layers:
            x = layer(x if shortcut is None else shortcut(x, start), moment)
        cache.advance(tokens)
        return model.logits(last(x if mix is None else mix(x, start)))

    return step


def _is_band(mask: Mask) -> bool:
    """Whether that it is causal, and a window, are its only rules."""
    return mask.causal and not mask.prefix and mask.padding is mask.documents is mask.pairs is None


def _added(layer: Residual, block: Block) -> Block:
    """The step of a residual connection."""
    norm, step = _plain(layer.norm), layer.step
    between = [_plain(part) for part in (layer.inner, layer.gate) if part is not None]
    after = None if layer.after is None else _plain(layer.after)

    def run(x: Tensor, moment: Moment) -> Tensor:
        y = block(norm(x), moment)
        for part in between:
            y = part(y)
        y = torch.add(x, y, alpha=step)
        return y if after is None else after(y)

    return run


def _attending(block: nn.Module) -> Block | None:
    """The step of attention, if it has one set of heads and looks at what it reads."""
    if type(block) is not MultiHeadAttention or len(block.sets) != 1 or block.crosses:
        return None
    linears, kernel, (heads,) = (block.query, block.key, block.value, block.out), block.kernel, block.sets
    sums = type(kernel) is Linear
    if not (sums or kernel in (fused_attention, plain_attention) or isinstance(kernel, Chunked | Window)):
        return None
    if (sums and block.bias_by is not None) or any(type(one) is not nn.Linear for one in linears):
        return None
    project, out = _projecting(block.query, block.key, block.value), _affine(block.out.weight, block.out.bias)
    h, g, size, width, scale = heads.count, heads.groups, heads.key, heads.value, heads.key**-0.5
    norm_q, norm_k, rotary = (_one(module) for module in (block.query_norm, block.key_norm, block.rotary))
    bias_by, mix, absolute = block.bias_by, block.mix, block.absolute
    unread = block.out.weight.new_empty(1, 1, 1)

    def run(y: Tensor, moment: Moment) -> Tensor:
        b, first, kept = len(y), moment.first, next(moment.kept)
        q, k, v = project(y)
        q, k = q.view(b, h, 1, size), k.view(b, g, 1, size)
        if norm_q is not None and norm_k is not None:
            q, k = norm_q(q), norm_k(k)
        if rotary is not None:
            at = moment.place if absolute else moment.at
            q, k = rotary(q, at), rotary(k, at)
        if not first:
            first.append(v)
        elif mix is not None:
            v = mix(v, first[0])
        v = v.view(b, g, 1, width)
        if sums:
            return out(kept.attend(q, k, v, mask=EVERYTHING).reshape(b, h * width))
        k, v = kept.append(k, v)
        s, hidden = k.shape[-2], moment.hidden
        scores = torch.baddbmm(unread, q.reshape(b * g, h // g, size), k.flatten(0, 1).mT, beta=0, alpha=scale)
        if hidden is not None:
            scores = scores.view(b, h, s) + hidden[..., -s:]
        if bias_by is not None:
            places = torch.arange(s)
            scores = scores.view(b, h, s) + bias_by(places[-1:], places).squeeze(-2)
        weights = scores.softmax(-1).view(b * g, h // g, s)
        return out(torch.bmm(weights, v.flatten(0, 1)).view(b, h * width))

    return run


def _feeding(block: nn.Module) -> Block:
    """The step of a feed-forward block; of any but the usual one, a call."""
    if type(block) is not FeedForward or type(block.up) is not Dense or type(block.down) is not Dense:
        return lambda y, _: block(y[:, None])[:, 0]
    up, down = (_affine(one.weight, one.bias) for one in (block.up, block.down))
    f, g = block.up.activation, block.down.activation
    return lambda y, _: g(down(f(up(y))))


def _projecting(*linears: nn.Linear) -> Callable[[Tensor], Sequence[Tensor]]:
    """Queries, keys and values: by one product if the matrices are small."""
    weights, biases = [one.weight for one in linears], [one.bias for one in linears if one.bias is not None]
    if sum(weight.numel() for weight in weights) > SMALL or 0 < len(biases) < len(linears):
        each = [_affine(one.weight, one.bias) for one in linears]
        return lambda y: [f(y) for f in each]
    joined = _affine(torch.cat(tuple(weights)), torch.cat(tuple(biases)) if biases else None)
    sizes = [len(one.weight) for one in linears]
    return lambda y: torch.split_with_sizes(joined(y), sizes, 1)


def _affine(weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
    """The map of a linear layer."""
    turned = weight.detach().mT
    if bias is None:
        return lambda x: torch.mm(x, turned)
    shift = bias.detach()
    return lambda x: torch.addmm(shift, x, turned)


def _plain(norm: nn.Module | None) -> Callable[[Tensor], Tensor]:
    """What a norm does, or any other part."""
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
        "a window": DecoderConfig(vocab=5, d=8, depth=2, order="(sf)*s", mask=Mask(causal=True, window=2)),
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
