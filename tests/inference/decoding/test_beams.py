from itertools import product

import pytest
import torch

from lawful.inference.beam_search import beam_search, beam_searches
from lawful.inference.likelihood import token_log_probs
from lawful.models.generation import GREEDY, Bigrams, generate
from lawful.models.transformer import Decoder, DecoderConfig, TransformerExtras
from tests.inference.decoding.small import Decaying


def every(model, prompt, tokens, stop, power):
    """All continuations, with the logarithms of their probabilities, the best first."""
    vocab, found = len(model.embedding), {}
    for y in product(range(vocab), repeat=tokens):
        ends = [i for i, token in enumerate(y) if token in stop]
        y = y[: ends[0] + 1] if ends else y
        if y not in found:
            found[y] = float(token_log_probs(model, [*prompt, *y])[len(prompt) - 1 :].double().sum())
    return sorted(found.items(), key=lambda pair: pair[1] / len(pair[0]) ** power, reverse=True)


@pytest.mark.parametrize("stop", [(), (2,), (0, 3)])
@pytest.mark.parametrize("power", [0.0, 1.0])
def test_enough_beams_find_the_best(stop, power):
    model = Decaying(vocab=4, seed=1)
    wanted = every(model, [1, 2], 4, stop, power)
    found = beam_search(model, [1, 2], tokens=4, beams=300, stop=stop, power=power)
    assert [f.tokens for f in found[:20]] == [tokens for tokens, _ in wanted[:20]]
    assert len(found) == len(wanted)
    for one, (_, log_probability) in zip(found[:20], wanted[:20], strict=True):
        assert one.log_probability == pytest.approx(log_probability, rel=1e-5)


def test_one_beam_is_greedy():
    model = Decaying()
    (found,) = beam_search(model, [1, 2, 3], tokens=9, beams=1)
    assert list(found.tokens) == generate(model, [1, 2, 3], tokens=9, sampling=GREEDY)[0].tolist()


def test_more_beams_find_more_probable_ones_here():
    model = Decaying(vocab=7, seed=4)
    model.head.data /= 4
    best = [beam_search(model, [1], tokens=6, beams=beams)[0].log_probability for beams in (1, 2, 8, 64)]
    assert best == sorted(best)
    assert best[-1] > best[0]


def test_the_context_slides_as_in_generation():
    model = Decaying()
    (found,) = beam_search(model, [1, 2, 3], tokens=9, beams=1, context=4)
    assert list(found.tokens) == generate(model, [1, 2, 3], tokens=9, sampling=GREEDY, context=4)[0].tolist()
    assert len(beam_search(model, [1], tokens=9, beams=3, context=4)) == 3


PROMPTS = [[1, 2, 3], [4], [0, 6], [1, 2, 3, 4, 5]]


@pytest.mark.parametrize("stop", [(), (2,), (0, 3, 5)])
@pytest.mark.parametrize("context", [None, 6])
@pytest.mark.parametrize("beams", [1, 3])
def test_several_prompts_give_what_each_gives_alone(stop, context, beams):
    model = Decaying(vocab=7, seed=3)
    model.head.data /= 4
    together = beam_searches(model, PROMPTS, tokens=7, beams=beams, stop=stop, context=context)
    for prompt, found in zip(PROMPTS, together, strict=True):
        alone = beam_search(model, prompt, tokens=7, beams=beams, stop=stop, context=context)
        assert [one.tokens for one in found] == [one.tokens for one in alone]
        assert [one.log_probability for one in found] == pytest.approx([one.log_probability for one in alone])


def test_several_prompts_to_a_decoder():
    torch.manual_seed(0)
    model = Decoder(DecoderConfig(vocab=7, d=8, depth=2, extras=TransformerExtras())).double()
    together = beam_searches(model, PROMPTS, tokens=5, beams=3, stop=[1])
    for prompt, found in zip(PROMPTS, together, strict=True):
        assert [one.tokens for one in found] == [
            one.tokens for one in beam_search(model, prompt, tokens=5, beams=3, stop=[1])
        ]


def test_a_search_that_is_over_does_not_wait_in_the_batch():
    found = beam_searches(Bigrams(50 * torch.eye(10).roll(1, dims=1)), [[0], [7]], tokens=8, beams=1, stop=[9])
    assert [best.tokens for (best,) in found] == [tuple(range(1, 9)), (8, 9)]


def test_errors_say_what_was_wanted_and_what_came():
    model = Decaying()
    with pytest.raises(ValueError, match=r"got 0, 4 and 1.0"):
        beam_search(model, [1], tokens=0)
    with pytest.raises(ValueError, match=r"got 3, 0 and 1.0"):
        beam_search(model, [1], tokens=3, beams=0)
    with pytest.raises(ValueError, match=r"takes one prompt, beam_searches several: got shape \(2, 1\)"):
        beam_search(model, torch.tensor([[1], [2]]), tokens=3)
    with pytest.raises(ValueError, match="at least one token"):
        beam_search(model, [], tokens=3)
