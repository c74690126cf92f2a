"""Certified radii of classifiers: exact for linear ones, never contradicted by attacks."""

import pytest
import torch
from torch import nn

from lawful.inference.attacks import FREE, L2, PGD, InputBounds, LInf, margin
from lawful.theory import robustness_radius


@pytest.mark.parametrize("method", ["ibp", "crown", "alpha-crown"])
@pytest.mark.parametrize("norm", ["inf", "2"])
def test_linear_classifiers_have_their_exact_radius(norm, method):
    network = nn.Sequential(nn.Linear(5, 4).double())
    x = 0.1 * torch.randn(20, 5, dtype=torch.float64)
    with torch.no_grad():
        logits = network(x)
        label = logits.argmax(1)
        label[0] = logits[0].argmin()
        weight = network[0].weight
        margins = logits.gather(1, label[:, None]) - logits
        difference = weight[label][:, None] - weight
        size = difference.norm(dim=-1) if norm == "2" else difference.abs().sum(-1)
        exact = (margins / size).nan_to_num(nan=float("inf")).amin(1).clamp(0, 1)
    found = robustness_radius(network, x, label, norm=norm, method=method, steps=30)
    assert found[0] == 0
    assert bool((found <= exact).all())
    if method != "ibp":
        torch.testing.assert_close(found, exact, rtol=0, atol=1e-8)


def classifier(dtype):
    centers = 2 * torch.eye(3, 6)
    label = torch.arange(300) % 3
    x = (centers[label] + 0.4 * torch.randn(300, 6)).to(dtype)
    network = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3)).to(dtype)
    optimizer = torch.optim.Adam(network.parameters(), 0.01)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x), label).backward()
        optimizer.step()
    return network, x[:30], label[:30]


@pytest.mark.parametrize(("norm", "ball"), [("inf", LInf()), ("2", L2())])
def test_attacks_succeed_only_outside_the_radius(norm, ball):
    network, x, label = classifier(torch.float32)
    radius = robustness_radius(network, x, label, norm=norm, max_radius=4)
    loose = robustness_radius(network, x, label, norm=norm, method="ibp", max_radius=4)
    assert bool((radius >= loose - 0.002).all())
    assert (radius > 0.1).float().mean() > 0.8
    for i in range(10):
        inside = PGD(eps=float(radius[i]) * (1 - 1e-6), norm=ball, steps=20, loss=margin, bounds=FREE)
        outside = PGD(eps=5 * float(radius[i]) + 0.5, norm=ball, steps=20, loss=margin, bounds=FREE)
        with torch.no_grad():
            attacked = network(inside(network, x[i : i + 1], label[i : i + 1])).argmax(1)
            far = network(outside(network, x[i : i + 1], label[i : i + 1])).argmax(1)
        if radius[i] > 0:
            assert attacked == label[i]
        assert far != label[i]


@pytest.mark.parametrize(("norm", "ball"), [("inf", LInf()), ("2", L2())])
def test_a_range_of_inputs_makes_the_radius_larger(norm, ball):
    network, x, label = classifier(torch.float64)
    x = x.clamp(0, 2)
    free = robustness_radius(network, x, label, norm=norm, max_radius=3)
    bounded = robustness_radius(network, x, label, norm=norm, max_radius=3, input_range=(0, 2))
    assert bool((bounded >= free - 1e-3).all())
    assert bounded.sum() > 1.01 * free.sum()
    attack = PGD(eps=float(bounded.median()), norm=ball, steps=20, loss=margin, bounds=InputBounds(0, 2))
    chosen = bounded >= bounded.median()
    with torch.no_grad():
        found = network(attack(network, x[chosen], label[chosen])).argmax(1)
    assert bool((found == label[chosen]).all())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"norm": "1"}, "norm must be 'inf' or '2': got '1'"),
        ({"method": "lp"}, "method must be"),
        ({"max_radius": 0}, "max_radius must be positive and finite: got 0"),
        ({"label": torch.tensor([3, 0])}, "label must be in 0 to 2: got 0 to 3"),
        ({"label": torch.tensor([0])}, r"one class for each input: got \(1,\) for \(2, 4\)"),
        ({"x": torch.full((2, 4), float("nan"))}, "batch of finite inputs"),
        ({"input_range": (0, 0.5)}, r"within input_range=\(0, 0.5\): got 1 to 1"),
        ({"network": nn.Linear(4, 1)}, r"at least two classes: got shape \(1,\)"),
    ],
)
def test_errors(change, message):
    arguments = {"network": nn.Linear(4, 3), "x": torch.ones(2, 4), "label": torch.tensor([0, 1])} | change
    with pytest.raises(ValueError, match=message):
        robustness_radius(**arguments)
