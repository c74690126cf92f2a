import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from lawful.inference.likelihood import perplexity, token_log_probs
from lawful.models.generation import GREEDY, generate
from tests.inference.decoding.small import Decaying

TEXT = torch.randint(7, (23,), generator=torch.Generator().manual_seed(0))


def by_hand(model, text, context):
    """Token by token: each is predicted from those before it in its window."""
    found = []
    for i in range(1, len(text)):
        start = (i - 1) // context * context
        found.append(model(text[None, start:i])[0, -1].log_softmax(-1)[text[i]])
    return torch.stack(found).detach()


@pytest.mark.parametrize("context", [1, 4, 11, 22, 50])
@pytest.mark.parametrize("batch", [1, 3, 64])
def test_each_token_is_predicted_once(context, batch):
    model = Decaying()
    wanted = by_hand(model, TEXT, context)
    torch.testing.assert_close(
        token_log_probs(model, TEXT, context=context, batch=batch).double(), wanted, rtol=1e-5, atol=1e-6
    )
    assert perplexity(model, TEXT, context=context) == pytest.approx(math.exp(-wanted.mean()), rel=1e-5)


def test_the_context_is_the_limit_of_the_model_or_the_whole_text():
    whole = token_log_probs(Decaying(), TEXT)
    torch.testing.assert_close(whole, token_log_probs(Decaying(), TEXT, context=22))
    torch.testing.assert_close(token_log_probs(Decaying(context=4), TEXT), token_log_probs(Decaying(), TEXT, context=4))
    assert token_log_probs(Decaying(), TEXT.tolist()).equal(whole)
    assert token_log_probs(Decaying(), TEXT.to(torch.uint8)).equal(whole)


def test_a_model_that_knows_nothing_hesitates_among_all():
    model = Decaying()
    model.head.data.zero_()
    assert perplexity(model, TEXT) == pytest.approx(7)


def test_the_model_is_left_as_it_was():
    model = Decaying()
    found = token_log_probs(model, TEXT)
    assert model.training
    assert not found.requires_grad


@pytest.mark.parametrize("text", [[3], torch.tensor([3])])
def test_one_token_is_refused(text):
    with pytest.raises(ValueError, match="at least 2 tokens were wanted"):
        token_log_probs(Decaying(), text)


def test_what_is_no_text_or_no_model_is_refused_in_words():
    model = Decaying()
    with pytest.raises(ValueError, match=r"one row of tokens was wanted: got shape \(2, 3\)"):
        token_log_probs(model, torch.zeros(2, 3, dtype=torch.int64))
    with pytest.raises(ValueError, match="context is at least 1: got 0"):
        perplexity(model, [1, 2, 3], context=0)
    with pytest.raises(TypeError, match="scores of the next token were wanted, a tensor: got dict"):
        token_log_probs(lambda tokens: {}, [1, 2, 3])
    with pytest.raises(TypeError, match=r"a model with a method cache\(\).*: got Linear"):
        generate(nn.Linear(2, 2), [1], tokens=1)


def test_prompts_may_be_numpy_and_are_to_be_whole_numbers():
    model = Decaying()
    wanted = generate(model, [[1, 2], [3, 4]], tokens=4, sampling=GREEDY)
    assert torch.equal(generate(model, np.array([[1, 2], [3, 4]]), tokens=4, sampling=GREEDY), wanted)
    assert torch.equal(generate(model, np.array([1, 2]), tokens=4, sampling=GREEDY), wanted[:1])
    with pytest.raises(TypeError, match=r"tokens are whole numbers: prompt 0 has torch\.float32"):
        generate(model, [1.5], tokens=1)
    for text in ("ab", ["ab"]):
        with pytest.raises(TypeError, match=r"rows of tokens were wanted, such as tokenizer\.encode\(text\): got text"):
            generate(model, text, tokens=1)


class Boxed(nn.Module):
    """A model whose scores are in an output, as Hugging Face has it."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return SimpleNamespace(logits=self.model(tokens))


def test_the_output_may_hold_the_scores():
    model = Decaying()
    assert torch.equal(token_log_probs(Boxed(model), [1, 2, 3]), token_log_probs(model, [1, 2, 3]))
