"""Generation with the decoder itself, against Hugging Face's and against full passes."""

from functools import partial

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from lawful.blocks.attention import MultiHeadAttention
from lawful.functions.attention import LinearAttention, Mask, SlidingWindowAttention
from lawful.inference import GREEDY, SamplingConfig, beam_search, generate, perplexity, token_log_probs
from lawful.models import GPT2_WEIGHTS, decoder, gpt, rotary_attention

PROMPTS = [[1, 2, 3], [4], [5, 6, 0, 1, 2]]


def randomize_zero_weights(model):
    """A model in double precision whose zero weights are randomized."""
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.data = parameter.data.double() + 0.3 * torch.randn(parameter.shape, generator=generator).double()
    return model.double()


def both_models(context=64):
    torch.manual_seed(0)
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "bos_token_id": None, "eos_token_id": None}
    theirs = randomize_zero_weights(GPT2LMHeadModel(GPT2Config(vocab_size=11, n_positions=context, **sizes)).eval())
    ours = gpt(vocab_size=11, dim=16, num_layers=2, num_heads=2, context_length=context).double()
    GPT2_WEIGHTS.load_state_dict(ours, theirs.state_dict())
    return ours, theirs


def test_greedy_equals_transformers():
    ours, theirs = both_models()
    prompt = torch.tensor([[1, 2, 3], [7, 8, 9]])
    options = {"do_sample": False, "pad_token_id": 0, "attention_mask": torch.ones_like(prompt)}
    expected = theirs.generate(prompt, max_new_tokens=20, **options)[:, 3:]
    assert generate(ours, prompt, max_new_tokens=20, sampling=GREEDY).tolist() == expected.tolist()


def test_ragged_prompts_equal_transformers():
    ours, theirs = both_models()
    padded, there = torch.zeros(3, 5, dtype=torch.int64), torch.zeros(3, 5, dtype=torch.int64)
    for i, prompt in enumerate(PROMPTS):
        padded[i, 5 - len(prompt) :] = torch.tensor(prompt)
        there[i, 5 - len(prompt) :] = 1
    expected = theirs.generate(padded, attention_mask=there, max_new_tokens=12, do_sample=False, pad_token_id=0)[:, 5:]
    assert generate(ours, PROMPTS, max_new_tokens=12, sampling=GREEDY).tolist() == expected.tolist()


def test_beam_search_equals_transformers():
    ours, theirs = both_models()
    prompt = torch.tensor([[1, 2, 3]])
    options = {"do_sample": False, "pad_token_id": 0, "attention_mask": torch.ones_like(prompt)}
    expected = theirs.generate(prompt, max_new_tokens=8, num_beams=4, num_return_sequences=4, **options)[:, 3:]
    found = beam_search(ours, [1, 2, 3], max_new_tokens=8, num_beams=4)
    assert [list(one.tokens) for one in found] == expected.tolist()


def test_perplexity_equals_transformers():
    ours, theirs = both_models()
    text = torch.randint(11, (30,), generator=torch.Generator().manual_seed(1))
    assert perplexity(ours, text) == pytest.approx(float(theirs(text[None], labels=text[None]).loss.detach().exp()))


SIZES = {"vocab_size": 11, "dim": 16, "num_layers": 2}
LINEAR = {"num_heads": 2, "kernel": LinearAttention()}
KINDS = {
    "rotary": lambda: decoder(**SIZES),
    "grouped": lambda: decoder(**SIZES, attention=partial(rotary_attention, num_kv_heads=2)),
    "window": lambda: decoder(**SIZES, mask=Mask(causal=True, window=4)),
    "window kernel": lambda: decoder(**SIZES, attention=partial(rotary_attention, kernel=SlidingWindowAttention(4))),
    "linear": lambda: decoder(**SIZES, attention=partial(MultiHeadAttention, **LINEAR)),
    "linear, rotary": lambda: decoder(**SIZES, attention=partial(rotary_attention, **LINEAR)),
    "no positions": lambda: decoder(**SIZES, attention=partial(MultiHeadAttention, num_heads=2)),
    "learned": lambda: gpt(**SIZES, num_heads=2, context_length=8),
}


@pytest.mark.usefixtures("unchecked")  # type checks would take most of the time
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rules", [GREEDY, SamplingConfig(temperature=0.8, top_k=6, repetition_penalty=1.2)])
def test_ragged_prompts_equal_single_prompts_and_full_passes(kind, rules):
    torch.manual_seed(0)
    model = randomize_zero_weights(KINDS[kind]())
    together = generate(model, PROMPTS, max_new_tokens=10, sampling=rules, seed=2)
    for i, prompt in enumerate(PROMPTS):
        alone = generate(model, prompt, max_new_tokens=10, sampling=rules, seed=2, first_index=i)
        assert alone.tolist() == together[i : i + 1].tolist()
    if rules is GREEDY:
        seen, context = [*PROMPTS[2]], model.context_length or 100
        for token in together[2].tolist():
            seen = seen[-((context + 1) // 2) :] if len(seen) > context else seen
            assert int(model(torch.tensor([seen]))[0, -1].argmax()) == token
            seen.append(token)


def test_log_prob_of_beam_search():
    model = randomize_zero_weights(KINDS["rotary"]())
    (found, *_) = beam_search(model, [1, 2], max_new_tokens=5, num_beams=3)
    scores = token_log_probs(model, [1, 2, *found.tokens])
    assert float(scores[1:].sum()) == pytest.approx(found.log_prob)
