from dataclasses import replace

import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor
from torch import nn
from torch.nn import functional as F

import lawful
from lawful.laws import (
    Claim,
    agreement,
    boundedness,
    hidden_unit_permutation,
    piecewise_affinity,
    shape,
    sums_to_one,
)
from lawful.losses.regularization import affine_layers, grid_positions, line_positions
from lawful.models import MLP, SpatialMLP
from lawful.theory import collapse


def test_equals_scikit_learn():
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(50, n, generator=generator, dtype=torch.float64) for n in (3, 2))
    fitted = MLPRegressor(hidden_layer_sizes=(6, 5), solver="lbfgs", max_iter=5, random_state=0)
    with pytest.warns(ConvergenceWarning):
        fitted.fit(x.numpy(), y.numpy())
    model = MLP(3, 2, hidden_dims=(6, 5)).double()
    for layer, w, b in zip(model.layers, fitted.coefs_, fitted.intercepts_, strict=True):
        layer.weight.data, layer.bias.data = torch.from_numpy(w.T), torch.from_numpy(b)
    torch.testing.assert_close(model(x).detach(), torch.from_numpy(fitted.predict(x.numpy())))


@pytest.mark.parametrize("hidden", [(), (4,), (4, 3), (1, 7, 2, 5)])
def test_any_depth_and_width(hidden):
    model = MLP(3, 2, hidden_dims=hidden)
    assert model(torch.zeros(5, 3)).shape == (5, 2)
    assert model.active_units(torch.zeros(5, 3)).shape == (5, sum(hidden))


def test_output_activation():
    x = 10 * torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
    p = MLP(3, 2, output_activation=torch.sigmoid)(x)
    assert ((p > 0) & (p < 1)).all()
    q = MLP(3, 2, output_activation=nn.Softmax(-1))(x)
    torch.testing.assert_close(q.sum(-1), torch.ones(100))


def test_gelu_is_not_piecewise_affine():
    kept, broken = (MLP(2, 1, hidden_dims=(4,), activation=a) for a in (F.leaky_relu, F.gelu))
    for model, status in ((kept, "held"), (broken, "refuted")):
        assert (
            lawful.check(model, piecewise_affinity(), inputs=lawful.shape("b 2"), cases=30).verdicts[0].status == status
        )


def test_learns_xor():
    torch.manual_seed(0)
    model = MLP(2, 1, hidden_dims=(8,))
    x, y = torch.tensor([[0.0, 0], [0, 1], [1, 0], [1, 1]]), torch.tensor([[0.0], [1], [1], [0]])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(300):
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()
    torch.testing.assert_close(model(x).round(), y)


def test_errors():
    with pytest.raises(ValueError, match=r"expected x of shape \(\*batch, 3\), got \(5, 2\)"):
        MLP(3, 2)(torch.zeros(5, 2))
    with pytest.raises(ValueError, match=r"must be at least 1: got \(3, 0, 2\)"):
        MLP(3, 2, hidden_dims=(0,))


def test_activation_modules_are_copied():
    activation = nn.PReLU()
    model = MLP(2, 1, hidden_dims=(3, 3), activation=activation, output_activation=activation)
    assert len({id(module) for module in (activation, *model.activations, model.output_activation)}) == 4
    assert isinstance(MLP(2, 1).activations[0], nn.ReLU)


def test_dropout_changes_no_parameter_names():
    torch.manual_seed(0)
    model, plain = MLP(3, 2, hidden_dims=(50, 50), dropout=0.5), MLP(3, 2, hidden_dims=(50, 50))
    plain.load_state_dict(model.state_dict())
    x = torch.randn(4, 3)
    assert not torch.equal(model(x), model(x))
    assert torch.equal(model.eval()(x), plain(x))
    with pytest.raises(ValueError, match=r"dropout probability.*got 1\.5"):
        MLP(3, 2, dropout=1.5)


def stack():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 12), nn.SiLU(), nn.Linear(12, 9), nn.Tanh(), nn.Linear(9, 3)).double()


@pytest.mark.parametrize("place", [line_positions, grid_positions])
def test_swaps_shorten_connections_and_keep_the_function(place):
    model = SpatialMLP(stack(), place=place, order=2.0)
    x = torch.randn(50, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    before, cost = model(x), model.locality().item()
    assert model.swap(max_swaps=5) > 0
    assert model.locality().item() < cost
    for _ in range(3):
        cost = model.locality().item()
        model.swap(max_swaps=5)
        assert model.locality().item() <= cost * (1 + 1e-12)
    torch.testing.assert_close(model(x), before, rtol=1e-12, atol=1e-12)
    assert sorted(model.inputs.tolist()) == [0, 1, 2, 3]
    assert sorted(model.outputs.tolist()) == [0, 1, 2]


def test_orders_are_saved_as_integers():
    model = SpatialMLP(stack())
    model.swap(max_swaps=5)
    assert not model.inputs.is_floating_point()
    assert all(p.is_floating_point() for p in model.parameters())
    again = SpatialMLP(stack())
    again.load_state_dict(model.state_dict())
    x = torch.randn(5, 4, dtype=torch.float64)
    torch.testing.assert_close(again(x), model(x), rtol=0, atol=0)


def test_bias_penalty():
    model = SpatialMLP(stack(), gap=0.5)
    biases = sum(layer.bias.abs().sum() for layer in affine_layers(model))
    torch.testing.assert_close(model.locality() - model.locality(bias=False), 0.5 * biases)


def test_one_layer_swaps_inputs_and_outputs():
    torch.manual_seed(0)
    model = SpatialMLP(nn.Linear(6, 6).double())
    x = torch.randn(3, 6, dtype=torch.float64)
    before, cost = model(x), model.locality().item()
    model.swap(max_swaps=6)
    torch.testing.assert_close(model(x), before)
    assert model.locality().item() < cost


def claims():
    """Second derivations of multilayer perceptrons."""
    model = MLP(3, 2, hidden_dims=(4, 3))

    def equation(x):
        w1, b1, w2, b2, w3, b3 = model.parameters()
        return ((x @ w1.T + b1).clamp_min(0) @ w2.T + b2).clamp_min(0) @ w3.T + b3

    linear = MLP(3, 2, hidden_dims=(4, 3), activation=nn.Identity())

    def collapsed(x):
        return collapse(nn.Sequential(*linear.layers)).model(x)

    into, out_of = ("layers.0.weight", "layers.0.bias"), "layers.1.weight"
    tanh = MLP(3, 2, hidden_dims=(4, 3), activation=torch.tanh)
    sigmoid = MLP(3, 2, hidden_dims=(4,), output_activation=torch.sigmoid)
    softmax = MLP(3, 2, hidden_dims=(4,), output_activation=nn.Softmax(-1))

    def spatial():
        torch.manual_seed(0)
        stack = MLP(3, 2, hidden_dims=(5, 4), activation=F.silu)
        return SpatialMLP(stack, place=grid_positions, gap=0.2, order=2.0)

    plain, swapped = spatial(), spatial()
    for _ in range(3):
        swapped.swap(max_swaps=4)

    def relative_penalty(x):
        model = spatial().to(x.dtype)
        for p in model.parameters():
            p.data.copy_(x[: p.numel()].reshape(p.shape))
        before = model.locality().detach().clone()
        model.swap(max_swaps=4)
        return model.locality().detach() / before.clamp_min(torch.finfo(x.dtype).tiny)

    def penalty(x):
        layer = nn.Linear(2, 2).to(x.dtype)
        layer.weight.data, layer.bias.data = x[:2], x[2]
        model = SpatialMLP(nn.Sequential(layer)).to(x.dtype)
        return torch.stack([model.locality(), model.locality(bias=False)]).detach()

    def penalty_equation(x):
        costs = (x.abs() * x.new_tensor([[0.1, 0.6], [0.6, 0.1], [0.1, 0.1]])).sum(-1)
        return torch.stack([costs.sum(), costs[:2].sum()])

    for rule, f, inputs, name in (
        (agreement(other=equation), model, "b 3", "MLP"),
        (hidden_unit_permutation(into=into, out_of=out_of), tanh, "b 3", "MLP"),
        (agreement(other=collapsed), linear, "b 3", "MLP without activations, collapsed"),
        (boundedness(low=0.0, high=1.0), sigmoid, "b 3", "MLP(sigmoid)"),
        (sums_to_one(axis=-1), softmax, "b 3", "MLP(softmax)"),
        (agreement(other=penalty_equation), penalty, "3 2", "SpatialMLP, penalty"),
        (agreement(other=plain), swapped, "b 3", "SpatialMLP, after swaps"),
        (boundedness(low=0.0, high=1.0), relative_penalty, "20", "SpatialMLP, penalty after swaps"),
    ):
        yield Claim(replace(rule, cases=20), f, shape(inputs), name=name)
