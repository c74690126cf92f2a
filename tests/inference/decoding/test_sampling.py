import math

import pytest
import torch
from transformers.generation import logits_process

from lawful.models.generation import GREEDY, SamplingConfig, TokenSampler


def logits(n=50, vocab=23, seed=0):
    return 3 * torch.randn(n, vocab, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (SamplingConfig(temperature=0.5), {"TemperatureLogitsWarper": 0.5}),
        (SamplingConfig(top_k=5), {"TopKLogitsWarper": 5}),
        (SamplingConfig(top_k=1000), {}),
        (SamplingConfig(top_p=0.7), {"TopPLogitsWarper": 0.7}),
        (SamplingConfig(min_p=0.2), {"MinPLogitsWarper": 0.2}),
        (SamplingConfig(repetition_penalty=1.5), {"RepetitionPenaltyLogitsProcessor": 1.5}),
        (SamplingConfig(never=(3, 7)), {"SuppressTokensLogitsProcessor": [3, 7]}),
        (
            SamplingConfig(repetition_penalty=0.8, temperature=1.7, top_k=9, top_p=0.8, min_p=0.1),
            {
                "RepetitionPenaltyLogitsProcessor": 0.8,
                "TemperatureLogitsWarper": 1.7,
                "TopKLogitsWarper": 9,
                "TopPLogitsWarper": 0.8,
                "MinPLogitsWarper": 0.1,
            },
        ),
    ],
)
def test_the_rules_are_those_of_transformers(ours, theirs):
    x = logits()
    rows = torch.randint(23, (50, 6), generator=torch.Generator().manual_seed(1))
    seen = torch.zeros(50, 23, dtype=torch.bool).scatter(1, rows, True)
    wanted = x
    for made, value in theirs.items():
        wanted = getattr(logits_process, made)(value)(rows, wanted)
    torch.testing.assert_close(ours.probabilities(x, seen=seen), wanted.softmax(-1))


def test_greedy_takes_the_most_probable_and_the_first_of_several():
    x = torch.tensor([[1.0, 3.0, 3.0], [5.0, 0.0, 1.0]])
    assert GREEDY.probabilities(x).tolist() == [[0, 1, 0], [1, 0, 0]]
    assert TokenSampler(GREEDY, [torch.tensor([0])] * 2, vocab=3)(x).tolist() == [1, 0]


@pytest.mark.parametrize("temperature", [1e-30, 1e30])
def test_extreme_temperatures_are_finite(temperature):
    p = SamplingConfig(temperature=temperature).probabilities(logits())
    torch.testing.assert_close(p.sum(-1), torch.ones(50))


def test_draws_follow_the_probabilities():
    x = logits(1, 6)
    draw = TokenSampler(SamplingConfig(top_k=4), [torch.tensor([0])], vocab=6, seed=3)
    counts = torch.zeros(6)
    n = 5000
    for _ in range(n):
        counts[draw(x)] += 1
    p = SamplingConfig(top_k=4).probabilities(x)[0]
    assert (counts[p == 0] == 0).all()
    kept = p > 0
    chi = ((counts[kept] - n * p[kept]) ** 2 / (n * p[kept])).sum()
    assert chi < 30  # 3 degrees of freedom: one in 1e6


def test_a_token_without_probability_is_never_drawn():
    x = torch.full((64, 5), -math.inf)
    x[:, 2] = 0.0
    draw = TokenSampler(SamplingConfig(), [torch.tensor([0])] * 64, vocab=5)
    assert all((draw(x) == 2).all() for _ in range(300))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"temperature": -0.1}, "temperature is at least 0, which is greedy: got -0.1"),
        ({"temperature": math.nan}, "got nan"),
        ({"temperature": math.inf}, "got inf"),
        ({"top_k": 0}, "top_k is at least 1: got 0"),
        ({"top_p": 0.0}, "top_p is above 0 and at most 1: got 0.0"),
        ({"top_p": 1.1}, "got 1.1"),
        ({"min_p": -1.0}, "min_p is from 0 to 1: got -1.0"),
        ({"repetition_penalty": 0.0}, "repetition_penalty is above 0: got 0.0"),
    ],
)
def test_errors_say_what_was_wanted_and_what_came(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        SamplingConfig(**options)
