from functools import partial

import pytest
import torch
from torch import nn

from lawful.inference.beam_search import beam_search, beam_searches
from lawful.models.generation import GREEDY, generate
from lawful.models.transformer import (
    ConditionalDecoder,
    DecoderConfig,
    EncoderConfig,
    EncoderDecoder,
    EncoderDecoderConfig,
    TransformerExtras,
    rotary_attention,
)

SOURCES = [[1, 2, 3, 4], [4, 0], [5, 5, 1]]
STARTS = [[0], [3, 1], [2]]


def made(**extras):
    torch.manual_seed(0)
    parts = {"vocab": 6, "d": 8, "depth": 2, "attention": partial(rotary_attention, heads=2)}
    halves = (
        EncoderConfig(**parts, extras=TransformerExtras(**extras)),
        DecoderConfig(**parts, order="(scf)*", extras=TransformerExtras()),
    )
    model = EncoderDecoder(EncoderDecoderConfig(encoder=halves[0], decoder=halves[1])).double()
    for p in model.parameters():
        nn.init.normal_(p, std=0.4)
    return model


def together(model):
    source = torch.tensor([row + [0] * (4 - len(row)) for row in SOURCES])
    return ConditionalDecoder(model, source, there=torch.arange(4) < torch.tensor([[len(row)] for row in SOURCES]))


def test_generate_takes_an_encoder_decoder_and_its_sources():
    model = made()
    found = generate(together(model), STARTS, tokens=6, sampling=GREEDY)
    for source, start, row in zip(SOURCES, STARTS, found.tolist(), strict=True):
        target = list(start)
        for _ in range(6):
            target.append(int(model(torch.tensor([source]), torch.tensor([target]))[0, -1].argmax()))
        assert row == target[len(start) :]


def test_beam_search_takes_an_encoder_decoder_and_its_sources():
    model = made()
    found = beam_searches(together(model), STARTS, tokens=5, beams=3, stop=[2])
    for source, start, best in zip(SOURCES, STARTS, found, strict=True):
        alone = beam_search(ConditionalDecoder(model, torch.tensor([source])), start, tokens=5, beams=3, stop=[2])
        assert [one.tokens for one in best] == [one.tokens for one in alone]


def test_several_targets_of_one_source():
    model = made()
    given, targets = ConditionalDecoder(model, torch.tensor([SOURCES[0]])), torch.tensor([[0, 1], [3, 3], [2, 0]])
    wanted = model(torch.tensor([SOURCES[0]] * 3), targets)
    torch.testing.assert_close(given(targets), wanted)


def test_it_is_decoded_in_evaluation_mode_and_put_back():
    model = made(entry=lambda d: nn.Dropout(0.5))
    given = together(model).train()
    assert torch.equal(generate(given, STARTS, tokens=4), generate(given, STARTS, tokens=4))
    assert model.training


def test_sources_are_not_parameters_and_not_kept_in_the_state():
    model = made()
    assert {name.removeprefix("model.") for name in together(model).state_dict()} == set(model.state_dict())


def test_a_target_is_wanted_for_each_source():
    with pytest.raises(ValueError, match="a target for each of 3 sources was wanted: got 2"):
        together(made())(torch.tensor([[0], [1]]))
