"""The unrolled step against full passes, over the options of a decoder."""

import importlib
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lawful.blocks import GatedFeedForward
from lawful.blocks.attention import MultiHeadAttention
from lawful.functions.attention import Mask
from lawful.models.generation import PromptReader, unrolled
from lawful.models.gpt2_weights import gpt2_config
from lawful.models.transformer import Decoder
from tests.models.transformer.test_decoder import (
    EXTRAS,
    HEADS,
    KERNELS,
    POSITIONS,
    SMALL,
    TOKENS,
    VALUES,
    VOCAB,
    attention,
    grid,
    made,
    same,
)


def stepped(model, tokens, *, first, padding=None):
    """The logits after each token but the first ones, which are read at once."""
    cache, step = model.cache(padding), unrolled(model)
    with torch.no_grad():
        model(tokens[:, :first], cache=cache)
        found = torch.stack([step(column[:, None], cache) for column in tokens[:, first:].unbind(1)], dim=1)
    assert cache.length == tokens.shape[1]
    return found


@pytest.mark.parametrize(("position", "kernel", "heads", "residual", "order", "values"), list(grid()))
def test_it_gives_what_the_full_pass_gives(position, kernel, heads, residual, order, values):
    given, added = POSITIONS[position]
    function, window = KERNELS[kernel]
    config = replace(
        SMALL,
        attention=partial(attention, heads=HEADS[heads], kernel=function, norm=nn.RMSNorm, **given),
        positions=added,
        mask=Mask(causal=True, window=window),
        residual=residual,
        order=order,
        extras=VALUES[values],
    )
    model = made(config)
    assert (unrolled(model) is None) == (heads == "sizes")
    if heads != "sizes":
        same(stepped(model, TOKENS, first=2), model(TOKENS)[:, 2:])


@pytest.mark.parametrize("extras", EXTRAS)
def test_every_extra_is_unrolled(extras):
    model = made(replace(SMALL, order="(sf)*s", extras=EXTRAS[extras]))
    same(stepped(model, TOKENS, first=1), model(TOKENS)[:, 1:])


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("heads", ["alike", "groups"])
def test_prompts_of_unequal_lengths_give_what_each_gives_alone(positions, window, heads):
    given, added = POSITIONS[positions]
    mask = Mask(causal=True, window=window)
    config = replace(SMALL, attention=partial(attention, heads=HEADS[heads], **given), positions=added, mask=mask)
    model, lengths = made(replace(config, extras=EXTRAS["all"])), torch.tensor([2, 5, 4])
    rows = [torch.arange(3 + n) * (2 * i + 1) % VOCAB for i, n in enumerate(lengths.tolist())]
    padded = torch.stack([F.pad(row, (8 - len(row), 0), value=3) for row in rows])
    found = stepped(model, padded, first=5, padding=torch.arange(5) >= 5 - lengths[:, None])
    for row, logits in zip(rows, found, strict=True):
        same(logits, model(row[None])[0, -3:])


def test_any_norm_and_any_feed_forward():
    model = made(replace(SMALL, norm=nn.LayerNorm, feed_forward=GatedFeedForward))
    same(stepped(model, TOKENS, first=1), model(TOKENS)[:, 1:])


def test_large_matrices_and_keys_without_a_bias(monkeypatch):
    model = made(replace(SMALL, attention=attention))
    module = importlib.import_module("lawful.models.generation")
    for small in (2**18, 0):
        monkeypatch.setattr(module, "SMALL", small)
        same(stepped(model, TOKENS, first=1), model(TOKENS)[:, 1:])
    monkeypatch.undo()
    for layer in model.layers[::2]:
        layer.block.key.bias = None
    same(stepped(model, TOKENS, first=1), model(TOKENS)[:, 1:])


class Own(MultiHeadAttention):
    pass


def test_parts_that_are_not_known_run_as_modules():
    assert unrolled(torch.nn.Identity()) is None
    hooked = made(SMALL)
    hooked.layers[1].register_forward_hook(lambda *_: None)
    others = [
        replace(SMALL, mask=Mask(causal=True, prefix=2)),
        replace(SMALL, attention=partial(attention, kernel=lambda q, k, v, **_: v)),
        replace(SMALL, attention=partial(Own, heads=2)),
        replace(SMALL, order="(scf)*"),
    ]
    for model in (hooked, *map(made, others), Decoder(SMALL).bfloat16()):
        assert unrolled(model) is None
    reader = PromptReader(hooked, TOKENS[:, :4])
    same(reader.feed(TOKENS[:, 4]), hooked(TOKENS[:, :5])[:, -1])


def test_what_is_kept_under_a_window_does_not_grow():
    model = made(replace(SMALL, mask=Mask(causal=True, window=4)))
    sizes = set()
    with torch.inference_mode():
        reader = PromptReader(model, torch.zeros(1, 500, dtype=torch.int64))
        for _ in range(40):
            reader.feed(torch.zeros(1, dtype=torch.int64))
            sizes.add(reader.cache.nbytes)
    assert max(sizes) <= 32 * 2 * 2 * 8 * 8


def test_weights_that_change_are_seen_by_the_next_reader():
    model = made(gpt2_config(vocab=VOCAB, d=8, depth=1, heads=2, context=9))
    same(stepped(model, TOKENS, first=1), model(TOKENS)[:, 1:])
    with torch.no_grad():
        model.layers[0].block.key.weight.mul_(2)
    same(stepped(model, TOKENS, first=1), model(TOKENS)[:, 1:])
