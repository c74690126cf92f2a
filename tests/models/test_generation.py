import math
from dataclasses import replace

import pytest
import torch
from transformers.generation import logits_process

from lawful.data.batches import make_generator
from lawful.laws import Claim, agreement, shape
from lawful.models import GREEDY, SamplingConfig, TokenSampler, decoder, generate, stream
from tests.models.small import Bigrams, Counting, Decaying

PROMPTS = [[1, 2, 3], [4], [5, 6, 0, 1, 2], [3, 3]]
RULES = [
    GREEDY,
    SamplingConfig(),
    SamplingConfig(temperature=0.7, top_k=4),
    SamplingConfig(top_p=0.8, repetition_penalty=1.3),
    SamplingConfig(temperature=0.0, repetition_penalty=2.0),
    SamplingConfig(min_p=0.1, suppress_tokens=(2, 4)),
]


def full_passes(model, prompt, tokens, context):
    """Greedy, with a full pass for each token and the rule of the context written out."""
    seen, found = list(prompt), []
    for _ in range(tokens):
        if len(seen) > context:
            seen = seen[-((context + 1) // 2) :]
        token = int(model(torch.tensor([seen]))[0, -1].argmax())
        found.append(token)
        seen.append(token)
    return found


@pytest.mark.parametrize("context", [1, 2, 3, 5, 8, 100])
def test_greedy_equals_full_passes(context):
    model = Decaying()
    expected = [full_passes(model, prompt, 12, context) for prompt in PROMPTS]
    assert generate(model, PROMPTS, max_new_tokens=12, sampling=GREEDY, context_length=context).tolist() == expected
    limited = Decaying(context_length=context)
    assert generate(limited, PROMPTS, max_new_tokens=12, sampling=GREEDY).tolist() == expected


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("context", [None, 4])
def test_ragged_prompts_equal_single_prompts(rules, context):
    model = Decaying()
    together = generate(model, PROMPTS, max_new_tokens=20, sampling=rules, seed=5, context_length=context)
    for i, prompt in enumerate(PROMPTS):
        alone = generate(
            model, prompt, max_new_tokens=20, sampling=rules, seed=5, first_index=i, context_length=context
        )
        assert alone.tolist() == together[i : i + 1].tolist()
    assert (
        list(stream(model, PROMPTS, max_new_tokens=20, sampling=rules, seed=5, context_length=context))
        == together.T.tolist()
    )


def test_seed():
    model = Decaying()
    torch.manual_seed(0)
    state = torch.get_rng_state()
    draws = [generate(model, [[1], [1]], max_new_tokens=300, seed=seed).tolist() for seed in (0, 0, 1)]
    assert (torch.get_rng_state() == state).all()
    assert draws[0] == draws[1] != draws[2]
    assert draws[0][0] != draws[0][1]


def test_cache_reads_each_token_once():
    model = Decaying()
    generate(model, [[1, 2, 3]], max_new_tokens=4)
    assert model.calls == [(1, 3), (1, 1), (1, 1), (1, 1)]


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("context", [None, 4])
def test_num_return_sequences_equals_repeated_prompts(rules, context):
    model, options = Decaying(), {"max_new_tokens": 8, "sampling": rules, "seed": 5, "context_length": context}
    repeated = generate(model, [prompt for prompt in PROMPTS for _ in range(3)], **options)
    model.calls.clear()
    assert generate(model, PROMPTS, num_return_sequences=3, **options).tolist() == repeated.tolist()
    assert model.calls[0][0] == 4


def test_stop_tokens():
    model = Counting(10)
    found = generate(model, [[0], [3], [5]], max_new_tokens=20, sampling=GREEDY, stop_tokens={4, 7})
    assert found.tolist() == [[1, 2, 3, 4], [4, 4, 4, 4], [6, 7, 7, 7]]
    assert generate(model, [0], max_new_tokens=3, sampling=GREEDY, stop_tokens={4}).tolist() == [[1, 2, 3]]


def test_prompt_types():
    model = Counting(10)
    for prompt in ([1, 2], (1, 2), torch.tensor([1, 2]), torch.tensor([[1, 2]]), [torch.tensor([1, 2])], [[1, 2]]):
        assert generate(model, prompt, max_new_tokens=2, sampling=GREEDY).tolist() == [[3, 4]]
    assert generate(model, torch.tensor([[1], [5]], dtype=torch.uint8), max_new_tokens=1, sampling=GREEDY).tolist() == [
        [2],
        [6],
    ]


def test_generates_in_eval_mode():
    model = Decaying()
    modes = []
    model.register_forward_pre_hook(lambda *_: modes.append(model.training))
    generate(model, [1], max_new_tokens=2)
    steps = stream(model, [1], max_new_tokens=5)
    next(steps)
    assert not torch.is_inference_mode_enabled()
    steps.close()
    assert model.training
    assert not any(modes)


def test_output_can_be_trained_on():
    found = generate(Decaying(), [1], max_new_tokens=3)
    embedding = torch.nn.Embedding(7, 2)
    embedding(found).sum().backward()
    assert embedding.weight.grad is not None


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"prompts": []}, "a prompt needs at least one token: prompt 0 has shape"),
        ({"prompts": [[1], []]}, "prompt 1 has shape"),
        ({"prompts": torch.zeros(1, 0).long()}, "prompt 0 has shape"),
        ({"max_new_tokens": 0}, "max_new_tokens must be at least 1, got 0"),
        ({"num_return_sequences": 0}, "num_return_sequences must be at least 1, got 0"),
        ({"context_length": 0}, "context_length must be at least 1, got 0"),
        ({"sampling": SamplingConfig(suppress_tokens=(9,))}, "suppress_tokens must be in .0, 7., got 9"),
        ({"sampling": SamplingConfig(suppress_tokens=tuple(range(7)))}, "suppress_tokens excludes all 7 tokens"),
    ],
)
def test_errors(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        generate(Decaying(), **({"prompts": [1], "max_new_tokens": 3} | options))


def test_non_finite_logits_are_rejected():
    model = Decaying()
    model.head.data.fill_(torch.nan)
    with pytest.raises(ValueError, match="not all finite"):
        generate(model, [1], max_new_tokens=3)


def logits(n=50, vocab_size=23, seed=0):
    return 3 * torch.randn(n, vocab_size, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (SamplingConfig(temperature=0.5), {"TemperatureLogitsWarper": 0.5}),
        (SamplingConfig(top_k=5), {"TopKLogitsWarper": 5}),
        (SamplingConfig(top_k=1000), {}),
        (SamplingConfig(top_p=0.7), {"TopPLogitsWarper": 0.7}),
        (SamplingConfig(min_p=0.2), {"MinPLogitsWarper": 0.2}),
        (SamplingConfig(repetition_penalty=1.5), {"RepetitionPenaltyLogitsProcessor": 1.5}),
        (SamplingConfig(suppress_tokens=(3, 7)), {"SuppressTokensLogitsProcessor": [3, 7]}),
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
def test_rules_equal_transformers(ours, theirs):
    x = logits()
    rows = torch.randint(23, (50, 6), generator=torch.Generator().manual_seed(1))
    seen = torch.zeros(50, 23, dtype=torch.bool).scatter(1, rows, True)
    expected = x
    for made, value in theirs.items():
        expected = getattr(logits_process, made)(value)(rows, expected)
    torch.testing.assert_close(ours.probabilities(x, seen=seen), expected.softmax(-1))


def test_greedy_breaks_ties_by_the_first_maximum():
    x = torch.tensor([[1.0, 3.0, 3.0], [5.0, 0.0, 1.0]])
    assert GREEDY.probabilities(x).tolist() == [[0, 1, 0], [1, 0, 0]]
    assert TokenSampler(GREEDY, [torch.tensor([0])] * 2, vocab_size=3)(x).tolist() == [1, 0]


@pytest.mark.parametrize("temperature", [1e-30, 1e30])
def test_extreme_temperatures(temperature):
    p = SamplingConfig(temperature=temperature).probabilities(logits())
    torch.testing.assert_close(p.sum(-1), torch.ones(50))


def test_samples_follow_probabilities():
    x = logits(1, 6)
    draw = TokenSampler(SamplingConfig(top_k=4), [torch.tensor([0])], vocab_size=6, seed=3)
    counts = torch.zeros(6)
    n = 1500
    for _ in range(n):
        counts[draw(x)] += 1
    p = SamplingConfig(top_k=4).probabilities(x)[0]
    assert (counts[p == 0] == 0).all()
    kept = p > 0
    chi = ((counts[kept] - n * p[kept]) ** 2 / (n * p[kept])).sum()
    assert chi < 30  # 3 degrees of freedom: one in 1e6


def test_impossible_tokens_are_never_sampled():
    x = torch.full((64, 5), -math.inf)
    x[:, 2] = 0.0
    draw = TokenSampler(SamplingConfig(), [torch.tensor([0])] * 64, vocab_size=5)
    assert all((draw(x) == 2).all() for _ in range(300))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"temperature": -0.1}, r"temperature must be at least 0, got -0.1"),
        ({"temperature": math.nan}, "got nan"),
        ({"temperature": math.inf}, "got inf"),
        ({"top_k": 0}, r"top_k must be at least 1, got 0"),
        ({"top_p": 0.0}, r"top_p must be in \(0, 1\], got 0.0"),
        ({"top_p": 1.1}, "got 1.1"),
        ({"min_p": -1.0}, r"min_p must be in \[0, 1\], got -1.0"),
        ({"repetition_penalty": 0.0}, r"repetition_penalty must be positive, got 0.0"),
    ],
)
def test_sampling_errors(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        SamplingConfig(**options)


def test_generate_method_equals_function():
    torch.manual_seed(0)
    model = decoder(vocab_size=7, dim=8, num_layers=1, init=None)
    rules = SamplingConfig(temperature=0.8, top_k=4, top_p=0.9, min_p=0.01, repetition_penalty=1.2)
    found = model.generate(
        PROMPTS, max_new_tokens=9, temperature=0.8, top_k=4, top_p=0.9, min_p=0.01, repetition_penalty=1.2, seed=3
    )
    assert torch.equal(found, generate(model, PROMPTS, max_new_tokens=9, sampling=rules, seed=3))


def claims():
    """Second derivations of sampling and generation."""
    rules = SamplingConfig(temperature=0.7, top_k=5, top_p=0.66, min_p=0.03)

    def excluded(x):
        """Token by token, with the rules as counts and sums over more probable tokens."""
        larger = x[..., None, :] > x[..., :, None]
        left = larger.sum(-1) < 5
        p = torch.where(left, (x - x.amax(-1, keepdim=True)).div(0.7).exp(), 0.0)
        p = p / p.sum(-1, keepdim=True)
        first = torch.ones(x.shape[-1], x.shape[-1], dtype=torch.bool).tril(-1)
        before = larger | ((x[..., None, :] == x[..., :, None]) & first)
        left = (before * p[..., None, :]).sum(-1) < 0.66
        p = torch.where(left & (p >= 0.03 * p.amax(-1, keepdim=True)), p, 0.0)
        return p / p.sum(-1, keepdim=True)

    def penalized(x):
        seen = torch.arange(x.shape[-1]) % 2 == 0
        return SamplingConfig(repetition_penalty=1.5, suppress_tokens=(1,)).probabilities(x, seen=seen.expand_as(x))

    def penalized_by_hand(x):
        powers = [2 / 3 if v > 0 else 1.5 for v in x[..., 0::2].flatten()]
        scores = x.clone()
        scores[..., 0::2] *= x.new_tensor(powers).view_as(x[..., 0::2])
        kept = torch.arange(x.shape[-1]) != 1
        p = (scores - scores[..., kept].amax(-1, keepdim=True)).exp() * kept
        return p / p.sum(-1, keepdim=True)

    def sampled(x):
        sample = TokenSampler(SamplingConfig(top_k=2), [torch.tensor([0]) for _ in x], vocab_size=x.shape[-1], seed=1)
        return torch.stack([sample(x) for _ in range(3)]).to(x)

    def inverted(x):
        numbers = [torch.rand(256, generator=make_generator(1, i), dtype=torch.float64) for i in range(len(x))]
        total = SamplingConfig(top_k=2).probabilities(x.double()).cumsum(-1)
        return torch.stack([(total <= torch.stack(numbers)[:, n, None]).sum(-1) for n in range(3)]).to(x)

    prompts = [[0, 1], [2], [1, 1, 0]]

    def greedy(x):
        return generate(Bigrams(x), prompts, max_new_tokens=4, sampling=GREEDY).to(x)

    def followed(x):
        best = [int(row.argmax()) for row in x]
        rows = [[*prompt] for prompt in prompts]
        for row in rows:
            for _ in range(4):
                row.append(best[row[-1]])
        return x.new_tensor([row[-4:] for row in rows])

    def together(x):
        return generate(Bigrams(x), prompts, max_new_tokens=5, seed=3).to(x)

    def alone(x):
        rows = [generate(Bigrams(x), p, max_new_tokens=5, seed=3, first_index=i) for i, p in enumerate(prompts)]
        return torch.cat(rows).to(x)

    for f, other, axes, name in (
        (rules.probabilities, excluded, "b n:1..9", "SamplingConfig, excluded tokens"),
        (penalized, penalized_by_hand, "b n:2..7", "SamplingConfig, repetition penalty and suppressed tokens"),
        (sampled, inverted, "b:1..3 n:2..5", "TokenSampler, inverse transform sampling"),
        (greedy, followed, "3 3", "generate, greedy"),
        (together, alone, "3 3", "generate, ragged prompts one by one"),
    ):
        yield Claim(replace(agreement(other=other), cases=20), f, shape(axes), name=name)
