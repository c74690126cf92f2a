import math
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from lawful.inference import perplexity, token_log_probs
from lawful.laws import Claim, agreement, transformed
from lawful.models import GREEDY, generate
from tests.models.small import Bigrams, Decaying

TEXT = torch.randint(7, (23,), generator=torch.Generator().manual_seed(0))


def log_probs_by_loop(model, text, context):
    """Log-probabilities token by token, from the tokens before it in its window."""
    found = []
    for i in range(1, len(text)):
        start = (i - 1) // context * context
        found.append(model(text[None, start:i])[0, -1].log_softmax(-1)[text[i]])
    return torch.stack(found).detach()


@pytest.mark.parametrize("context", [1, 4, 11, 22, 50])
@pytest.mark.parametrize("batch", [1, 3, 64])
def test_each_token_is_predicted_once(context, batch):
    model = Decaying()
    expected = log_probs_by_loop(model, TEXT, context)
    torch.testing.assert_close(
        token_log_probs(model, TEXT, context_length=context, batch_size=batch).double(), expected, rtol=1e-5, atol=1e-6
    )
    assert perplexity(model, TEXT, context_length=context) == pytest.approx(math.exp(-expected.mean()), rel=1e-5)


def test_default_context():
    whole = token_log_probs(Decaying(), TEXT)
    torch.testing.assert_close(whole, token_log_probs(Decaying(), TEXT, context_length=22))
    torch.testing.assert_close(
        token_log_probs(Decaying(context_length=4), TEXT), token_log_probs(Decaying(), TEXT, context_length=4)
    )
    assert token_log_probs(Decaying(), TEXT.tolist()).equal(whole)
    assert token_log_probs(Decaying(), TEXT.to(torch.uint8)).equal(whole)


def test_uniform_model_has_perplexity_vocab_size():
    model = Decaying()
    model.head.data.zero_()
    assert perplexity(model, TEXT) == pytest.approx(7)


def test_model_is_unchanged():
    model = Decaying()
    found = token_log_probs(model, TEXT)
    assert model.training
    assert not found.requires_grad


@pytest.mark.parametrize("text", [[3], torch.tensor([3])])
def test_one_token_is_rejected(text):
    with pytest.raises(ValueError, match="expected at least 2 tokens"):
        token_log_probs(Decaying(), text)


def test_errors(unchecked):
    model = Decaying()
    with pytest.raises(ValueError, match=r"expected tokens of shape \(n,\), got \(2, 3\)"):
        token_log_probs(model, torch.zeros(2, 3, dtype=torch.int64))
    with pytest.raises(ValueError, match="context_length must be at least 1, got 0"):
        perplexity(model, [1, 2, 3], context_length=0)
    with pytest.raises(TypeError, match="expected a model that returns logits, got dict"):
        token_log_probs(lambda tokens: {}, [1, 2, 3])
    with pytest.raises(TypeError, match=r"expected a model with a method cache\(\).*, got Linear"):
        generate(nn.Linear(2, 2), [1], max_new_tokens=1)


def test_numpy_prompts(unchecked):
    model = Decaying()
    expected = generate(model, [[1, 2], [3, 4]], max_new_tokens=4, sampling=GREEDY)
    assert torch.equal(generate(model, np.array([[1, 2], [3, 4]]), max_new_tokens=4, sampling=GREEDY), expected)
    assert torch.equal(generate(model, np.array([1, 2]), max_new_tokens=4, sampling=GREEDY), expected[:1])
    with pytest.raises(TypeError, match=r"token ids must be integers: prompt 0 has torch\.float32"):
        generate(model, [1.5], max_new_tokens=1)
    for text in ("ab", ["ab"]):
        with pytest.raises(TypeError, match=r"expected token ids, such as tokenizer\.encode\(text\), got text"):
            generate(model, text, max_new_tokens=1)


class Boxed(nn.Module):
    """A model that returns an output object with logits, as in Hugging Face."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return SimpleNamespace(logits=self.model(tokens))


def test_hugging_face_outputs():
    model = Decaying()
    assert torch.equal(token_log_probs(Boxed(model), [1, 2, 3]), token_log_probs(model, [1, 2, 3]))


def claims():
    """Second derivations of likelihoods."""
    text = [2, 0, 1, 1, 2, 0]

    def each(x):
        return token_log_probs(Bigrams(x), text, context_length=2, batch_size=2)

    def looked_up(x):
        p = x.exp() / x.exp().sum(-1, keepdim=True)
        return torch.stack([p[a, b].log() for a, b in pairwise(text)])

    def measured(x):
        return x.new_tensor(perplexity(Bigrams(x), text))

    def geometric_mean(x):
        return looked_up(x).exp().prod() ** (-1 / 5)

    for f, other, name in ((each, looked_up, "token_log_probs"), (measured, geometric_mean, "perplexity")):
        yield Claim(replace(agreement(other=other), cases=20), f, transformed(torch.tanh, "3 3"), name=name)
