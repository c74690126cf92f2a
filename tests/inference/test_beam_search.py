from dataclasses import replace
from itertools import product

import pytest
import torch

from lawful.inference import beam_search, beam_search_batch, token_log_probs
from lawful.laws import Claim, agreement, shape
from lawful.models import GREEDY, SamplingConfig, decoder, generate
from tests.models.small import Bigrams, Decaying


def all_continuations(model, prompt, tokens, stop, power):
    """All continuations with their log-probabilities, best first."""
    vocab, found = len(model.embedding), {}
    for y in product(range(vocab), repeat=tokens):
        ends = [i for i, token in enumerate(y) if token in stop]
        y = y[: ends[0] + 1] if ends else y
        if y not in found:
            found[y] = float(token_log_probs(model, [*prompt, *y])[len(prompt) - 1 :].double().sum())
    return sorted(found.items(), key=lambda pair: pair[1] / len(pair[0]) ** power, reverse=True)


@pytest.mark.parametrize("stop", [(), (2,), (0, 3)])
@pytest.mark.parametrize("power", [0.0, 1.0])
def test_enough_beams_are_exact(stop, power):
    model = Decaying(vocab_size=4, seed=1)
    expected = all_continuations(model, [1, 2], 4, stop, power)
    found = beam_search(model, [1, 2], max_new_tokens=4, num_beams=300, stop_tokens=stop, length_penalty=power)
    assert [f.tokens for f in found[:20]] == [tokens for tokens, _ in expected[:20]]
    assert len(found) == len(expected)
    for one, (_, log_prob) in zip(found[:20], expected[:20], strict=True):
        assert one.log_prob == pytest.approx(log_prob, rel=1e-5)


def test_one_beam_is_greedy():
    model = Decaying()
    (found,) = beam_search(model, [1, 2, 3], max_new_tokens=9, num_beams=1)
    assert list(found.tokens) == generate(model, [1, 2, 3], max_new_tokens=9, sampling=GREEDY)[0].tolist()


def test_more_beams_are_no_worse_here():
    model = Decaying(vocab_size=7, seed=4)
    model.head.data /= 4
    best = [beam_search(model, [1], max_new_tokens=6, num_beams=beams)[0].log_prob for beams in (1, 2, 8, 64)]
    assert best == sorted(best)
    assert best[-1] > best[0]


def test_context_slides_as_in_generation():
    model = Decaying()
    (found,) = beam_search(model, [1, 2, 3], max_new_tokens=9, num_beams=1, context_length=4)
    assert (
        list(found.tokens)
        == generate(model, [1, 2, 3], max_new_tokens=9, sampling=GREEDY, context_length=4)[0].tolist()
    )
    assert len(beam_search(model, [1], max_new_tokens=9, num_beams=3, context_length=4)) == 3


PROMPTS = [[1, 2, 3], [4], [0, 6], [1, 2, 3, 4, 5]]


@pytest.mark.parametrize("stop", [(), (2,), (0, 3, 5)])
@pytest.mark.parametrize("context", [None, 6])
@pytest.mark.parametrize("beams", [1, 3])
def test_batch_equals_single_prompts(stop, context, beams):
    model = Decaying(vocab_size=7, seed=3)
    model.head.data /= 4
    options = {"max_new_tokens": 7, "num_beams": beams, "stop_tokens": stop, "context_length": context}
    together = beam_search_batch(model, PROMPTS, **options)
    for prompt, found in zip(PROMPTS, together, strict=True):
        alone = beam_search(model, prompt, **options)
        assert [one.tokens for one in found] == [one.tokens for one in alone]
        assert [one.log_prob for one in found] == pytest.approx([one.log_prob for one in alone])


def test_batch_with_decoder():
    torch.manual_seed(0)
    model = decoder(vocab_size=7, dim=8, num_layers=2, init=None).double()
    together = beam_search_batch(model, PROMPTS, max_new_tokens=5, num_beams=3, stop_tokens=[1])
    for prompt, found in zip(PROMPTS, together, strict=True):
        assert [one.tokens for one in found] == [
            one.tokens for one in beam_search(model, prompt, max_new_tokens=5, num_beams=3, stop_tokens=[1])
        ]


def test_finished_searches_leave_the_batch():
    found = beam_search_batch(
        Bigrams(50 * torch.eye(10).roll(1, dims=1)), [[0], [7]], max_new_tokens=8, num_beams=1, stop_tokens=[9]
    )
    assert [best.tokens for (best,) in found] == [tuple(range(1, 9)), (8, 9)]


def test_errors():
    model = Decaying()
    with pytest.raises(ValueError, match="max_new_tokens=0"):
        beam_search(model, [1], max_new_tokens=0)
    with pytest.raises(ValueError, match="num_beams=0"):
        beam_search(model, [1], max_new_tokens=3, num_beams=0)
    with pytest.raises(ValueError, match=r"expected one prompt of shape \(t,\), got \(2, 1\)"):
        beam_search(model, torch.tensor([[1], [2]]), max_new_tokens=3)
    with pytest.raises(ValueError, match="at least one token"):
        beam_search(model, [], max_new_tokens=3)


def claims():
    """Second derivations of beam search."""

    def searched(x):
        found = beam_search(Bigrams(x), [0], max_new_tokens=4, num_beams=9)
        return x.new_tensor([found[0].log_prob, sum(len(one.tokens) for one in found)])

    def best_path(x):
        steps = x.log_softmax(-1)
        reached = steps[0]
        for _ in range(3):
            reached = (reached[:, None] + steps).amax(0)
        return torch.stack([reached.amax(), x.new_tensor(36.0)])

    def total_probability(x):
        found = beam_search(Bigrams(x), [0], max_new_tokens=3, num_beams=50, stop_tokens={2}, length_penalty=0.0)
        return x.new_tensor([one.log_prob for one in found]).exp().sum()

    def numbers(found, x):
        return x.new_tensor([[one.log_prob, *one.tokens][:2] for best in found for one in best])

    options = {"max_new_tokens": 3, "num_beams": 2, "stop_tokens": {2}}

    def together(x):
        return numbers(beam_search_batch(Bigrams(x), [[1, 0], [2], [1]], **options), x)

    def one_by_one(x):
        return numbers([beam_search(Bigrams(x), prompt, **options) for prompt in ([0], [2], [1])], x)

    for f, other, name in (
        (together, one_by_one, "beam_search_batch, one by one"),
        (searched, best_path, "beam_search finds the best path"),
        (total_probability, lambda x: x.new_ones(()), "beam_search, all continuations"),
    ):
        yield Claim(replace(agreement(other=other), cases=20), f, shape("3 3"), name=name)


# ---------------------------------------------------------------- sampled beams


@torch.no_grad()
def test_sampled_beams_are_drawn_without_replacement_from_the_distribution():
    """The first of two draws has the probabilities of the model, the second those of the rest."""
    model, n, hot = Decaying(vocab_size=4, seed=1), 800, SamplingConfig(temperature=1.5)
    p = hot.probabilities(model(torch.tensor([[1, 2]]))[0, -1].double())
    one = beam_search_batch(model, [[1, 2]] * n, max_new_tokens=1, num_beams=1, sampling=hot)
    counts = torch.tensor([found[0].tokens[0] for found in one]).bincount(minlength=4) / n
    torch.testing.assert_close(counts.double(), p, atol=4 / n**0.5 / 2, rtol=0)
    two = beam_search_batch(model, [[1, 2]] * n, max_new_tokens=1, num_beams=2, sampling=hot)
    pairs = [{hypothesis.tokens[0] for hypothesis in found} for found in two]
    assert all(len(pair) == 2 for pair in pairs)
    expected = p[0] * p[1] / (1 - p[0]) + p[1] * p[0] / (1 - p[1])
    assert abs(pairs.count({0, 1}) / n - float(expected)) < 4 / n**0.5 / 2


@torch.no_grad()
def test_sampled_beams_have_the_log_probabilities_of_the_rules():
    model, sampling = Decaying(vocab_size=5, seed=2), SamplingConfig(temperature=0.7, top_k=3)
    found = beam_search(model, [1, 2], max_new_tokens=4, num_beams=3, sampling=sampling, seed=5)
    assert found == beam_search(model, [1, 2], max_new_tokens=4, num_beams=3, sampling=sampling, seed=5)
    assert found != beam_search(model, [1, 2], max_new_tokens=4, num_beams=3, sampling=sampling, seed=6)
    for tokens, log_prob in found:
        row = torch.tensor([[1, 2, *tokens]])
        p = sampling.probabilities(model(row)[0, 1:-1].double())
        assert float(p.gather(1, row[0, 2:, None]).log().sum()) == pytest.approx(log_prob, rel=1e-5)


def test_one_allowed_token_and_temperature_zero_are_greedy():
    model = Decaying(vocab_size=5, seed=3)
    greedy = tuple(generate(model, [1, 2], max_new_tokens=4, sampling=GREEDY)[0].tolist())
    best, *others = beam_search(model, [1, 2], max_new_tokens=4, num_beams=3, sampling=SamplingConfig(top_k=1))
    assert best.tokens == greedy
    assert not others
    searched = beam_search(model, [1, 2], max_new_tokens=4, num_beams=3)
    assert beam_search(model, [1, 2], max_new_tokens=4, num_beams=3, sampling=GREEDY) == searched


def test_beams_respect_suppressed_tokens_and_the_repetition_penalty():
    model = Decaying(vocab_size=5, seed=3)
    rules = SamplingConfig(suppress_tokens=(0, 1), repetition_penalty=100.0)
    best, *_ = beam_search(model, [2], max_new_tokens=3, num_beams=4, sampling=rules)
    assert not {0, 1} & set(best.tokens)
    plain, *_ = beam_search(model, [2], max_new_tokens=3, num_beams=4, sampling=SamplingConfig(suppress_tokens=(0, 1)))
    assert best.log_prob != plain.log_prob
