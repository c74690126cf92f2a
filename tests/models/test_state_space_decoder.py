"""Decoders with state-space layers in the place of attention."""

from functools import partial

import pytest
import torch

from lawful.blocks import S4, S4D, SelectiveStateSpace, StateSpace, WeightedSum
from lawful.functions import Mask
from lawful.models import TransformerExtras, decoder, gpt2_init

STATE_SPACES = {
    "S4D": partial(StateSpace, ssm=partial(S4D, state_dim=4)),
    "S4": partial(StateSpace, ssm=partial(S4, state_dim=4)),
    "selective": partial(SelectiveStateSpace, state_dim=4),
}
EVERY_KIND = pytest.mark.parametrize("state_space", STATE_SPACES.values(), ids=STATE_SPACES)


def build(state_space, **options):
    return decoder(
        vocab_size=11, dim=8, num_layers=2, num_heads=2, state_space=state_space, init=None, **options
    ).eval()


@EVERY_KIND
@pytest.mark.parametrize("layer_pattern", ["(mf)*", "smfm"])
def test_generation_with_a_cache_equals_the_full_pass(state_space, layer_pattern):
    model = build(state_space, layer_pattern=layer_pattern, extras=TransformerExtras(embedding_skip=WeightedSum))
    prompt = torch.randint(11, (2, 5))
    found = model.generate(prompt, max_new_tokens=6, temperature=0.0)
    tokens = prompt
    for _ in range(6):
        tokens = torch.cat([tokens, model(tokens)[:, -1:].argmax(-1)], 1)
    assert torch.equal(found, tokens[:, 5:])


@EVERY_KIND
def test_left_padded_rows(state_space):
    model, tokens = build(state_space, layer_pattern="(mf)*"), torch.randint(11, (2, 6))
    padding = torch.tensor([[False, False, True, True, True, True], [True] * 6])
    logits = model(tokens, mask=Mask(padding=padding))
    torch.testing.assert_close(logits[0, 2:], model(tokens[:1, 2:])[0], rtol=1e-4, atol=1e-5)


def test_a_window_limits_attention_only():
    model = build(STATE_SPACES["S4D"], layer_pattern="(smf)*", mask=Mask(causal=True, window=2))
    tokens = torch.randint(11, (1, 12))
    changed = tokens.clone()
    changed[0, 0] = (changed[0, 0] + 1) % 11
    assert not torch.allclose(model(tokens)[0, -1], model(changed)[0, -1])


def test_initialization_keeps_the_dynamics():
    torch.manual_seed(0)
    model = build(STATE_SPACES["S4D"], layer_pattern="(mf)*")
    ssm = model.blocks("m")[0].ssm
    frequency, c = ssm.frequency.clone(), ssm.c.clone()
    gpt2_init(model)
    assert torch.equal(ssm.frequency, frequency)
    assert torch.equal(ssm.c, c)


def test_packed_documents_are_refused():
    model = build(STATE_SPACES["S4D"], layer_pattern="(mf)*")
    with pytest.raises(ValueError, match="supports causal and padding masks only"):
        model(torch.randint(11, (1, 4)), mask=Mask(documents=torch.tensor([[0, 0, 1, 1]])))
