import copy

import pytest
import torch
from torch import nn

from lawful.blocks import Dense, Embedding, tie_weights


def language_model():
    model = nn.ModuleDict({"embedding": Embedding(5, 3), "head": Dense(3, 5)})
    tie_weights(model.embedding, "weight", model.head, "weight")
    return model


def test_one_tensor_not_a_copy():
    model = language_model()
    assert model.head.weight is model.embedding.weight
    assert sum(p.numel() for p in model.parameters()) == 5 * 3 + 5


def test_the_gradient_is_the_sum_of_both_uses():
    model, x = language_model(), torch.tensor([0, 2])
    free = copy.deepcopy(model)
    free.head.weight = nn.Parameter(model.head.weight.detach().clone())
    for m in (model, free):
        m.head(m.embedding(x)).square().sum().backward()
    torch.testing.assert_close(model.head.weight.grad, free.head.weight.grad + free.embedding.weight.grad)


def test_it_survives_saving_loading_copying_and_a_step():
    model, other = language_model(), language_model()
    other.load_state_dict(model.state_dict())
    moved = copy.deepcopy(other).double()
    assert moved.head.weight is moved.embedding.weight
    torch.testing.assert_close(other.head.weight, model.embedding.weight, rtol=0, atol=0)
    optimizer = torch.optim.SGD(moved.parameters(), lr=0.1)
    moved.head(moved.embedding(torch.tensor([1]))).sum().backward()
    optimizer.step()
    assert moved.head.weight is moved.embedding.weight


def test_names_may_lead_into_submodules():
    model = nn.Sequential(nn.Sequential(Dense(3, 3)), Dense(3, 3))
    tie_weights(model, "1.weight", model, "0.0.weight")
    assert model[0][0].weight is model[1].weight


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match=r"one shape: got weight \(5, 3\) and weight \(3, 5\)"):
        tie_weights(Embedding(5, 3), "weight", Dense(5, 3), "weight")
    with pytest.raises(AttributeError, match="wait"):
        tie_weights(Embedding(5, 3), "wait", Dense(3, 5), "weight")
