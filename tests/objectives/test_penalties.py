from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from lawful.losses.regularization import elastic_net, l1, l2, penalty


def test_equal_numpys_norms():
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    np.testing.assert_allclose(l1(x), np.linalg.norm(x.numpy().ravel(), 1))
    np.testing.assert_allclose(l2(x), np.linalg.norm(x.numpy()) ** 2)
    for alpha in (0.0, 0.25, 1.0):
        wanted = alpha * np.abs(x.numpy()).sum() + (1 - alpha) * (x.numpy() ** 2).sum()
        np.testing.assert_allclose(elastic_net(x, alpha=alpha), wanted)


def test_gradients_at_zero_are_zero():
    x = torch.zeros(3, requires_grad=True)
    for rho in (l1, l2, partial(elastic_net, alpha=0.5)):
        assert (torch.autograd.grad(rho(x), x)[0] == 0).all()


def test_the_ends_of_the_elastic_net_are_finite_where_the_other_end_is_not():
    x = torch.tensor([1e30])
    assert elastic_net(x, alpha=1.0) == l1(x)
    assert elastic_net(x, alpha=0.0) == torch.inf
    (slope,) = torch.autograd.grad(elastic_net(x.requires_grad_(), alpha=1.0), x)
    assert slope == 1


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1))


def test_a_penalty_is_on_all_parameters_or_on_some_layers():
    model = network()
    first, _, last = model
    torch.testing.assert_close(penalty(model, l2), sum(p.square().sum() for p in model.parameters()))
    torch.testing.assert_close(penalty(model, l1, on="*.weight"), first.weight.abs().sum() + last.weight.abs().sum())
    torch.testing.assert_close(penalty(model, l2, on="2.*"), l2(last.weight) + l2(last.bias))
    torch.testing.assert_close(penalty(model, partial(elastic_net, alpha=0.0), on="0.bias"), l2(first.bias))


def test_its_gradient_reaches_just_those():
    model = network()
    penalty(model, l2, on="*.weight").backward()
    torch.testing.assert_close(model[0].weight.grad, 2 * model[0].weight.detach())
    assert model[0].bias.grad is None


def test_it_equals_weight_decay():
    plain, decayed = network(), network()
    steps = (
        (torch.optim.SGD(plain.parameters(), lr=0.1), lambda: 0.5 * 0.3 * penalty(plain, l2)),
        (torch.optim.SGD(decayed.parameters(), lr=0.1, weight_decay=0.3), lambda: torch.zeros(())),
    )
    x = torch.ones(4, 3)
    for (optimizer, extra), model in zip(steps, (plain, decayed), strict=True):
        (model(x).square().mean() + extra()).backward()
        optimizer.step()
    for a, b in zip(plain.parameters(), decayed.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_a_shared_tensor_counts_once():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    for on in ("*.weight", "0.weight", "1.weight"):
        torch.testing.assert_close(penalty(model, l2, on=on), l2(model[0].weight))


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match=r"no parameter is named '\*.wieght': the module has \['0.weight', '0.bias'"):
        penalty(network(), l2, on="*.wieght")
    with pytest.raises(ValueError, match=r"the module has \[\]"):
        penalty(nn.ReLU(), l2)
    with pytest.raises(ValueError, match=r"alpha is from 0 to 1: got 1\.5"):
        elastic_net(torch.zeros(2), alpha=1.5)
