"""Collapsed networks are equal to the originals: exactly in rational numbers, and within the bound in floats."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn

from lawful.theory import RationalNetwork, collapse


def trained(layer):
    """Batch norm with statistics that are not the initial ones."""
    for value in (layer.running_mean, layer.weight, layer.bias):
        nn.init.normal_(value)
    nn.init.uniform_(layer.running_var, 0.1, 3)
    return layer


def linear(bias=True):
    return nn.Sequential(
        nn.Linear(4, 6, bias=bias),
        nn.Identity(),
        nn.Sequential(nn.Linear(6, 9), nn.Dropout(0.5)),
        nn.Linear(9, 3, bias=bias),
    )


NETWORKS = {
    "linear": (linear, (4,), 1),
    "linear without bias": (lambda: linear(bias=False), (4,), 1),
    "batch norm": (
        lambda: nn.Sequential(
            trained(nn.BatchNorm1d(4)), nn.Linear(4, 5), trained(nn.BatchNorm1d(5)), nn.ReLU(), nn.Linear(5, 2)
        ),
        (4,),
        3,
    ),
    "convolution": (
        lambda: nn.Sequential(
            trained(nn.BatchNorm2d(2)),
            nn.Conv2d(2, 4, 3, stride=2),
            trained(nn.BatchNorm2d(4)),
            nn.Conv2d(4, 3, 1, stride=2, bias=False),
            nn.Tanh(),
            nn.Conv2d(3, 5, 1),
            nn.Conv2d(5, 2, 2),
            nn.Flatten(),
            nn.Linear(8, 4),
            nn.Linear(4, 2),
        ),
        (2, 13, 13),
        5,
    ),
    "groups": (
        lambda: nn.Sequential(nn.Conv1d(4, 4, 3, padding="same", groups=2), trained(nn.BatchNorm1d(4)), nn.ReLU()),
        (4, 6),
        2,
    ),
    "small without bias before padding": (
        lambda: nn.Sequential(nn.Conv1d(2, 5, 1, bias=False), nn.Conv1d(5, 3, 3, padding=2, dilation=2)),
        (2, 7),
        1,
    ),
    "small after padding": (
        lambda: nn.Sequential(nn.Conv1d(2, 5, 3, padding="same"), nn.Conv1d(5, 3, 1)),
        (2, 7),
        1,
    ),
    "kept: bias before padding": (
        lambda: nn.Sequential(nn.Conv1d(2, 5, 1), nn.Conv1d(5, 3, 3, padding=1)),
        (2, 7),
        2,
    ),
    "kept: batch norm before padding": (
        lambda: nn.Sequential(trained(nn.BatchNorm1d(2)), nn.Conv1d(2, 3, 3, padding=1)),
        (2, 7),
        2,
    ),
    "kept: stride after same": (
        lambda: nn.Sequential(nn.Conv1d(2, 3, 3, padding="same"), nn.Conv1d(3, 2, 1, stride=2)),
        (2, 7),
        2,
    ),
    "kept: circular": (
        lambda: nn.Sequential(nn.Conv1d(2, 3, 3, padding=1, padding_mode="circular"), nn.Conv1d(3, 2, 1)),
        (2, 7),
        2,
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_network_is_equal_within_the_bound(name, dtype):
    build, shape, layers = NETWORKS[name]
    model = build().to(dtype).eval()
    collapsed, proof = collapse(model)
    assert len(collapsed) == layers
    x = 2 * torch.rand(50, *shape, dtype=dtype) - 1
    with torch.no_grad():
        expected, found = model(x), collapsed(x)
    assert found.dtype == dtype
    torch.testing.assert_close(found, expected)
    assert not collapsed.training
    if "circular" in name:
        return
    low, high = -torch.ones(1, *shape, dtype=dtype), torch.ones(1, *shape, dtype=dtype)
    bound = proof.error_bound(low, high)
    worst = (found.double() - expected.double()).abs().amax(0)
    assert bool((worst <= bound[0]).all())
    assert float(bound.max()) < (1e-3 if dtype == torch.float32 else 1e-11)
    exact = proof.error_bound(low, high, rounding=False)
    assert bool((exact <= bound).all())
    assert proof.layers or not exact.any()


def test_the_weights_are_the_rounded_exact_products():
    model = linear().eval()
    collapsed, proof = collapse(model)
    chain = RationalNetwork.from_module(
        nn.Sequential(*[x for layer in (model[0], model[2][0], model[3]) for x in (layer, nn.ReLU())][:-1])
    ).layers

    def exact(x):
        for layer in chain:
            x = layer(x)
        return x

    origin = exact((Fraction(0),) * 4)
    assert collapsed[0].bias.tolist() == [np.float32(float(v)) for v in origin]
    layer = proof.layers[0]
    assert layer.sources == ("0", "2.0", "3")
    assert layer.name == "0"
    for j in range(4):
        column = exact(tuple(Fraction(int(i == j)) for i in range(4)))
        for i in range(3):
            weight = column[i] - origin[i]
            rounded = Fraction(collapsed[0].weight[i, j].item())
            assert abs(rounded - weight) <= Fraction(layer.weight_error[i, j].item())
            assert layer.weight_error[i, j] <= 1.01 * float(abs(rounded - weight)) + 1e-20
            assert abs(rounded - weight) <= abs(weight) * Fraction(1, 2**23)
    assert proof.weight_error == max(layer.weight_error.max(), layer.bias_error.max())
    assert proof.dropped == ("1", "2.1")


def test_products_of_integers_are_exact():
    model = linear().double()
    for p in model.parameters():
        p.data = torch.randint(-9, 10, p.shape).double()
    collapsed, proof = collapse(model.eval())
    assert proof.weight_error == 0
    x = torch.randint(-9, 10, (20, 4)).double()
    assert torch.equal(collapsed(x), model(x))
    assert not proof.error_bound(-torch.ones(1, 4), torch.ones(1, 4), rounding=False).any()


def test_the_scale_of_batch_norm_is_enclosed():
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.BatchNorm1d(1, eps=0, affine=False)).double().eval()
    nn.init.ones_(model[0].weight)
    nn.init.constant_(model[1].running_var, 2.0)
    collapsed, proof = collapse(model)
    found, error = Fraction(collapsed[0].weight.item()), Fraction(proof.layers[0].weight_error.item())
    assert (found - error) ** 2 <= Fraction(1, 2) <= (found + error) ** 2
    assert error < Fraction(1, 2**52)


def test_large_layers_are_merged_in_float64_with_a_bound(monkeypatch):
    monkeypatch.setattr("lawful.theory.affine_collapse._LARGEST", 10)
    model = linear().eval()
    collapsed, proof = collapse(model)
    monkeypatch.undo()
    exact = collapse(model)
    gap = (collapsed[0].weight.double() - exact.model[0].weight.double()).abs()
    assert bool((gap <= proof.layers[0].weight_error + exact.proof.layers[0].weight_error).all())


def test_the_original_is_not_changed_and_no_random_numbers_are_drawn():
    model = linear().eval()
    before, state = [p.clone() for p in model.parameters()], torch.get_rng_state()
    collapsed, _ = collapse(model)
    assert torch.equal(torch.get_rng_state(), state)
    collapsed(torch.ones(1, 4)).sum().backward()
    assert all(p.grad is None for p in model.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def test_layers_with_another_forward_are_kept():
    hooked = nn.Linear(2, 2)
    hooked.register_forward_hook(lambda module, args, output: output + 1)
    normed = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
    for other in (Doubled(2, 2), hooked, normed):
        model = nn.Sequential(nn.Linear(2, 2), other, nn.Linear(2, 2))
        collapsed, proof = collapse(model)
        assert len(collapsed) == 3
        assert proof.layers == ()
        x = torch.randn(4, 2)
        torch.testing.assert_close(collapsed(x), model(x))


def test_the_proof_is_readable():
    proof = collapse(NETWORKS["batch norm"][0]().eval()).proof
    assert str(proof).startswith("5 layers became 3.\n0 replaces 0, 1, 2.\nWeights and biases differ")
    kept = collapse(nn.Sequential(nn.Linear(1, 1), nn.ReLU())).proof
    assert kept.layers == ()
    assert kept.weight_error == 0


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Linear(2, 2), "expected a Sequential: got Linear"),
        (nn.Sequential(nn.Linear(2, 3), nn.Linear(4, 2)), "got out_features=3, in_features=4"),
        (nn.Sequential(nn.Linear(2, 2), nn.Dropout()), r"dropout '1' is in training mode: call model.eval\(\)"),
        (nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), r"batch norm '1' is in training mode: call model.eval\(\)"),
    ],
)
def test_errors(model, message):
    with pytest.raises(ValueError, match=message):
        collapse(model)


def test_weights_that_are_not_finite_are_refused():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    nn.init.constant_(model[1].weight, float("inf"))
    with pytest.raises(ValueError, match="weights must be finite: '1' has a weight that is not"):
        collapse(model)


def test_a_weight_that_overflows_is_refused():
    model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    for layer in model:
        nn.init.constant_(layer.weight, 1e30)
    with pytest.raises(ValueError, match=r"a weight of 0, 1 overflows torch.float32"):
        collapse(model)
