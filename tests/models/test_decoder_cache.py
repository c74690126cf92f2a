from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

from lawful.blocks import MultiHeadAttention
from lawful.functions.attention import Mask
from lawful.inference import beam_search, beam_search_batch
from lawful.laws import Claim, agreement, mask, tokens
from lawful.models import (
    GREEDY,
    ConditionalDecoder,
    EncoderDecoder,
    TransformerExtras,
    decoder,
    encoder,
    generate,
)

SOURCES = [[1, 2, 3, 4], [4, 0], [5, 5, 1]]
STARTS = [[0], [3, 1], [2]]


def build(**extras):
    torch.manual_seed(0)
    parts = {"vocab_size": 6, "dim": 8, "num_layers": 2, "num_heads": 2, "init": None}
    source = encoder(**parts, extras=TransformerExtras(**extras))
    model = EncoderDecoder(source, decoder(**parts, layer_pattern="(scf)*")).double()
    for p in model.parameters():
        nn.init.normal_(p, std=0.4)
    return model


def together(model):
    source = torch.tensor([row + [0] * (4 - len(row)) for row in SOURCES])
    return ConditionalDecoder(model, source, padding=torch.arange(4) < torch.tensor([[len(row)] for row in SOURCES]))


def test_generate_from_sources():
    model = build()
    found = generate(together(model), STARTS, max_new_tokens=6, sampling=GREEDY)
    for source, start, row in zip(SOURCES, STARTS, found.tolist(), strict=True):
        target = list(start)
        for _ in range(6):
            target.append(int(model(torch.tensor([source]), torch.tensor([target]))[0, -1].argmax()))
        assert row == target[len(start) :]


def test_beam_search_from_sources():
    model = build()
    found = beam_search_batch(together(model), STARTS, max_new_tokens=5, num_beams=3, stop_tokens=[2])
    for source, start, best in zip(SOURCES, STARTS, found, strict=True):
        alone = beam_search(
            ConditionalDecoder(model, torch.tensor([source])), start, max_new_tokens=5, num_beams=3, stop_tokens=[2]
        )
        assert [one.tokens for one in best] == [one.tokens for one in alone]


def test_several_targets_of_one_source():
    model = build()
    given, targets = ConditionalDecoder(model, torch.tensor([SOURCES[0]])), torch.tensor([[0, 1], [3, 3], [2, 0]])
    expected = model(torch.tensor([SOURCES[0]] * 3), targets)
    torch.testing.assert_close(given(targets), expected)


def test_generates_in_eval_mode():
    model = build(embedding_norm=lambda d: nn.Dropout(0.5))
    given = together(model).train()
    assert torch.equal(generate(given, STARTS, max_new_tokens=4), generate(given, STARTS, max_new_tokens=4))
    assert model.training


def test_sources_are_not_in_the_state_dict():
    model = build()
    assert {name.removeprefix("model.") for name in together(model).state_dict()} == set(model.state_dict())


def test_needs_one_target_per_source():
    with pytest.raises(ValueError, match=r"expected one target per source \(3\), got 2"):
        together(build())(torch.tensor([[0], [1]]))


def claims():
    """Second derivations of the decoder of fixed sources."""
    parts = {"vocab_size": 5, "dim": 4, "num_layers": 1, "num_heads": 2, "init": None}
    plain = partial(MultiHeadAttention, num_heads=2, bias=False)
    target_half = decoder(**parts | {"vocab_size": 6}, layer_pattern="(scf)*", attention=plain)
    model = EncoderDecoder(encoder(**parts, attention=plain), target_half)

    def selected(source, padding, target):
        given = ConditionalDecoder(model, source, padding=padding)
        cache = given.cache()
        given(target[:, :1], cache=cache)
        rows = target.new_tensor([1, 0, 1])
        return given(target[rows, 1:], cache=cache.select(rows))

    def full(source, padding, target):
        return model(source, target, source_mask=Mask(padding=padding))[:, 1:][[1, 0, 1]]

    def several(source, target):
        return ConditionalDecoder(model, source[:1])(target)

    def repeated(source, target):
        return model(source[:1].repeat(len(target), 1), target)

    source, target = tokens("2 s", vocab_size=5), tokens("2 t:2..4", vocab_size=6)
    for f, other, inputs, name in (
        (selected, full, (source, mask("2 s"), target), "ConditionalDecoder, rows selected"),
        (several, repeated, (source, target), "ConditionalDecoder, several targets of a source"),
    ):
        yield Claim(replace(agreement(other=other), cases=6), f, inputs, name=name)
