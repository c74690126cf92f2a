import copy
from collections.abc import Iterator

import pytest
import torch
from torch import nn

from lawful.blocks import fold_bias, tie_weights
from lawful.laws import Claim, agreement, tokens


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("bias", [True, False])
def test_bias_can_be_folded_into_the_weight(bias):
    layer, x = nn.Linear(4, 3, bias=bias).double(), randn(5, 4)
    one = torch.ones(5, 1, dtype=torch.float64)
    torch.testing.assert_close(fold_bias(layer)(torch.cat([x, one], 1)), layer(x))


def test_no_random_numbers_are_drawn():
    layer = nn.Linear(2, 3)
    state = torch.get_rng_state()
    fold_bias(layer)
    assert torch.equal(torch.get_rng_state(), state)


def language_model():
    model = nn.ModuleDict({"embedding": nn.Embedding(5, 3), "head": nn.Linear(3, 5)})
    tie_weights(model.embedding, "weight", model.head, "weight")
    return model


def test_tied_weights_are_one_tensor():
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


def test_tied_weights_stay_tied_after_load_deepcopy_and_step():
    model, other = language_model(), language_model()
    other.load_state_dict(model.state_dict())
    moved = copy.deepcopy(other).double()
    assert moved.head.weight is moved.embedding.weight
    torch.testing.assert_close(other.head.weight, model.embedding.weight, rtol=0, atol=0)
    optimizer = torch.optim.SGD(moved.parameters(), lr=0.1)
    moved.head(moved.embedding(torch.tensor([1]))).sum().backward()
    optimizer.step()
    assert moved.head.weight is moved.embedding.weight


def test_names_of_submodules():
    model = nn.Sequential(nn.Sequential(nn.Linear(3, 3)), nn.Linear(3, 3))
    tie_weights(model, "1.weight", model, "0.0.weight")
    assert model[0][0].weight is model[1].weight


def test_invalid_ties_are_rejected():
    with pytest.raises(ValueError, match=r"same shape: got weight \(5, 3\), weight \(3, 5\)"):
        tie_weights(nn.Embedding(5, 3), "weight", nn.Linear(5, 3), "weight")
    with pytest.raises(AttributeError, match="wait"):
        tie_weights(nn.Embedding(5, 3), "wait", nn.Linear(3, 5), "weight")


def claims() -> Iterator[Claim]:
    """Second derivations of tied weights."""
    model = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5, bias=False))
    tie_weights(model, "0.weight", model, "1.weight")

    def gram(x):
        w = model.get_parameter("0.weight")
        return (w @ w.mT)[x]

    yield Claim(agreement(other=gram), model, tokens("b t", vocab_size=5), name="tied embedding and head")
