import pytest
import torch

from lawful.models.generation import GREEDY, SamplingConfig, generate, stream
from tests.inference.decoding.small import Counting, Decaying

PROMPTS = [[1, 2, 3], [4], [5, 6, 0, 1, 2], [3, 3]]
RULES = [
    GREEDY,
    SamplingConfig(),
    SamplingConfig(temperature=0.7, top_k=4),
    SamplingConfig(top_p=0.8, repetition_penalty=1.3),
    SamplingConfig(temperature=0.0, repetition_penalty=2.0),
    SamplingConfig(min_p=0.1, never=(2, 4)),
]


def plain(model, prompt, tokens, context):
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
def test_greedy_is_the_full_pass_token_by_token(context):
    model = Decaying()
    wanted = [plain(model, prompt, 12, context) for prompt in PROMPTS]
    assert generate(model, PROMPTS, tokens=12, sampling=GREEDY, context=context).tolist() == wanted
    limited = Decaying(context=context)
    assert generate(limited, PROMPTS, tokens=12, sampling=GREEDY).tolist() == wanted


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("context", [None, 4])
def test_ragged_prompts_come_out_as_one_by_one(rules, context):
    model = Decaying()
    together = generate(model, PROMPTS, tokens=20, sampling=rules, seed=5, context=context)
    for i, prompt in enumerate(PROMPTS):
        alone = generate(model, prompt, tokens=20, sampling=rules, seed=5, first=i, context=context)
        assert alone.tolist() == together[i : i + 1].tolist()
    assert list(stream(model, PROMPTS, tokens=20, sampling=rules, seed=5, context=context)) == together.T.tolist()


def test_a_seed_says_what_is_drawn():
    model = Decaying()
    torch.manual_seed(0)
    state = torch.get_rng_state()
    draws = [generate(model, [[1], [1]], tokens=300, seed=seed).tolist() for seed in (0, 0, 1)]
    assert (torch.get_rng_state() == state).all()
    assert draws[0] == draws[1] != draws[2]
    assert draws[0][0] != draws[0][1]


def test_with_a_cache_each_token_is_read_once():
    model = Decaying()
    generate(model, [[1, 2, 3]], tokens=4)
    assert model.calls == [(1, 3), (1, 1), (1, 1), (1, 1)]


def test_stop_tokens_end_a_row_and_then_all():
    model = Counting(10)
    found = generate(model, [[0], [3], [5]], tokens=20, sampling=GREEDY, stop={4, 7})
    assert found.tolist() == [[1, 2, 3, 4], [4, 4, 4, 4], [6, 7, 7, 7]]
    assert generate(model, [0], tokens=3, sampling=GREEDY, stop={4}).tolist() == [[1, 2, 3]]


def test_prompts_of_any_kind():
    model = Counting(10)
    for prompt in ([1, 2], (1, 2), torch.tensor([1, 2]), torch.tensor([[1, 2]]), [torch.tensor([1, 2])], [[1, 2]]):
        assert generate(model, prompt, tokens=2, sampling=GREEDY).tolist() == [[3, 4]]
    assert generate(model, torch.tensor([[1], [5]], dtype=torch.uint8), tokens=1, sampling=GREEDY).tolist() == [
        [2],
        [6],
    ]


def test_the_model_is_in_evaluation_mode_and_back_afterwards():
    model = Decaying()
    modes = []
    model.register_forward_pre_hook(lambda *_: modes.append(model.training))
    generate(model, [1], tokens=2)
    steps = stream(model, [1], tokens=5)
    next(steps)
    assert not torch.is_inference_mode_enabled()
    steps.close()
    assert model.training
    assert not any(modes)


def test_what_is_generated_can_be_trained_on():
    found = generate(Decaying(), [1], tokens=3)
    embedding = torch.nn.Embedding(7, 2)
    embedding(found).sum().backward()
    assert embedding.weight.grad is not None


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"prompts": []}, "a prompt is a row of at least one token: prompt 0 has shape"),
        ({"prompts": [[1], []]}, "prompt 1 has shape"),
        ({"prompts": torch.zeros(1, 0).long()}, "prompt 0 has shape"),
        ({"tokens": 0}, "tokens are at least 1: got 0"),
        ({"context": 0}, "context is at least 1: got 0"),
        ({"sampling": SamplingConfig(never=(9,))}, "never is to have tokens from 0 to 6: got 9"),
        ({"sampling": SamplingConfig(never=tuple(range(7)))}, "never leaves none of the 7 tokens"),
    ],
)
def test_errors_say_what_was_wanted_and_what_came(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        generate(Decaying(), **({"prompts": [1], "tokens": 3} | options))


def test_a_model_that_has_diverged_is_refused():
    model = Decaying()
    model.head.data.fill_(torch.nan)
    with pytest.raises(ValueError, match="not all finite"):
        generate(model, [1], tokens=3)
