import numpy as np
import pytest
import torch
from torch import nn

from lawful.blocks import Dense, augmented, collapse


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_equals_numpy():
    layer, x = Dense(4, 3, activation=torch.relu).double(), randn(2, 5, 4)
    w, b = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    np.testing.assert_allclose(layer(x).detach().numpy(), np.maximum(x.numpy() @ w.T + b, 0))


@pytest.mark.parametrize("bias", [True, False])
def test_weights_move_over_from_torch_and_back(bias):
    ours, theirs = Dense(4, 3, bias=bias).double(), nn.Linear(4, 3, bias=bias).double()
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    x = randn(2, 4)
    torch.testing.assert_close(ours(x), theirs(x), rtol=0, atol=0)


def test_a_module_can_be_the_activation():
    layer = Dense(2, 2, activation=nn.PReLU())
    assert "activation.weight" in layer.state_dict()


@pytest.mark.parametrize("biases", [(True, True), (True, False), (False, True), (False, False)])
def test_two_layers_collapse_to_one(biases):
    first, second = Dense(4, 6, bias=biases[0]).double(), Dense(6, 3, bias=biases[1], activation=torch.tanh).double()
    x = randn(7, 4)
    one = collapse(first, second)
    torch.testing.assert_close(one(x), second(first(x)))
    assert one.weight.dtype is torch.float64
    assert one.weight.requires_grad


def test_an_activation_in_between_keeps_layers_from_collapsing():
    with pytest.raises(ValueError, match="no activation in between: got relu"):
        collapse(Dense(2, 2, activation=torch.relu), Dense(2, 2))


@pytest.mark.parametrize("bias", [True, False])
def test_the_bias_folds_into_the_weight(bias):
    layer, x = Dense(4, 3, bias=bias, activation=torch.tanh).double(), randn(5, 4)
    one = torch.ones(5, 1, dtype=torch.float64)
    torch.testing.assert_close(augmented(layer)(torch.cat([x, one], 1)), layer(x))


def test_an_empty_batch_gives_an_empty_batch():
    assert Dense(4, 3)(torch.zeros(0, 4)).shape == (0, 3)


def test_nan_propagates():
    assert Dense(2, 1)(torch.tensor([float("nan"), 0.0])).isnan().all()


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match=r"size 4: got shape \(2, 5\)"):
        Dense(4, 3)(torch.zeros(2, 5))
    with pytest.raises(ValueError, match="at least 1: got d_in=0"):
        Dense(0, 3)
    with pytest.raises(ValueError, match="got 3 and 4"):
        collapse(Dense(2, 3), Dense(4, 2))
    with pytest.raises(RuntimeError, match="dtype"):
        Dense(4, 3)(torch.zeros(2, 4, dtype=torch.float64))


def test_the_identity_is_no_activation():
    first, second, x = Dense(2, 3, activation=nn.Identity()), Dense(3, 1), torch.ones(2)
    torch.testing.assert_close(collapse(first, second)(x), second(first(x)))
