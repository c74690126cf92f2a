from collections.abc import Iterator
from functools import partial
from typing import cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lawful.laws import Claim, agreement, convexity, homogeneity, shape
from lawful.losses import (
    AffineLayer,
    affine_layers,
    connection_lengths,
    grid_positions,
    line_positions,
    locality_penalty,
)
from lawful.losses.regularization import elastic_net_penalty, l1_penalty, l2_penalty, parameter_penalty
from lawful.models import MLP


def test_equal_numpys_norms():
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    np.testing.assert_allclose(l1_penalty(x), np.linalg.norm(x.numpy().ravel(), 1))
    np.testing.assert_allclose(l2_penalty(x), np.linalg.norm(x.numpy()) ** 2)
    for alpha in (0.0, 0.25, 1.0):
        expected = alpha * np.abs(x.numpy()).sum() + (1 - alpha) * (x.numpy() ** 2).sum()
        np.testing.assert_allclose(elastic_net_penalty(x, alpha=alpha), expected)


def test_gradients_at_zero_are_zero():
    x = torch.zeros(3, requires_grad=True)
    for rho in (l1_penalty, l2_penalty, partial(elastic_net_penalty, alpha=0.5)):
        assert (torch.autograd.grad(rho(x), x)[0] == 0).all()


def test_elastic_net_at_alpha_1_does_not_overflow_like_l2():
    x = torch.tensor([1e30])
    assert elastic_net_penalty(x, alpha=1.0) == l1_penalty(x)
    assert elastic_net_penalty(x, alpha=0.0) == torch.inf
    (slope,) = torch.autograd.grad(elastic_net_penalty(x.requires_grad_(), alpha=1.0), x)
    assert slope == 1


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1))


def test_parameter_penalty_of_all_or_matching_parameters():
    model = network()
    first, _, last = model
    torch.testing.assert_close(parameter_penalty(model, l2_penalty), sum(p.square().sum() for p in model.parameters()))
    torch.testing.assert_close(
        parameter_penalty(model, l1_penalty, pattern="*.weight"), first.weight.abs().sum() + last.weight.abs().sum()
    )
    torch.testing.assert_close(
        parameter_penalty(model, l2_penalty, pattern="2.*"), l2_penalty(last.weight) + l2_penalty(last.bias)
    )
    torch.testing.assert_close(
        parameter_penalty(model, partial(elastic_net_penalty, alpha=0.0), pattern="0.bias"), l2_penalty(first.bias)
    )


def test_its_gradient_reaches_just_those():
    model = network()
    parameter_penalty(model, l2_penalty, pattern="*.weight").backward()
    torch.testing.assert_close(model[0].weight.grad, 2 * model[0].weight.detach())
    assert model[0].bias.grad is None


def test_it_equals_weight_decay():
    plain, decayed = network(), network()
    steps = (
        (torch.optim.SGD(plain.parameters(), lr=0.1), lambda: 0.5 * 0.3 * parameter_penalty(plain, l2_penalty)),
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
    for pattern in ("*.weight", "0.weight", "1.weight"):
        torch.testing.assert_close(parameter_penalty(model, l2_penalty, pattern=pattern), l2_penalty(model[0].weight))


def test_invalid_penalties():
    with pytest.raises(ValueError, match=r"no parameter matches '\*.wieght': the module has \['0.weight', '0.bias'"):
        parameter_penalty(network(), l2_penalty, pattern="*.wieght")
    with pytest.raises(ValueError, match=r"the module has \[\]"):
        parameter_penalty(nn.ReLU(), l2_penalty)
    with pytest.raises(ValueError, match=r"expected alpha from 0 to 1, got 1\.5"):
        elastic_net_penalty(torch.zeros(2), alpha=1.5)


def stack():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.SiLU(), nn.Linear(5, 2, bias=False)).double()


@pytest.mark.parametrize("place", [line_positions, grid_positions])
@pytest.mark.parametrize("order", [1.0, 2.0, 3.0])
def test_equals_the_sum_written_out(place, order):
    model, gap, expected = stack(), 0.3, 0.0
    layers, places = affine_layers(model), [place(n).double() for n in (3, 5, 2)]
    for layer, below, above in zip(layers, places[:-1], places[1:], strict=True):
        for i, row in enumerate(layer.weight.detach().numpy()):
            for j, weight in enumerate(row):
                steps = [*np.abs(above[i].numpy() - below[j].numpy()), gap]
                expected += abs(weight) * sum(step**order for step in steps) ** (1 / order)
        expected += 0.7 * sum(map(abs, layer.bias.tolist())) if layer.bias is not None else 0
    found = locality_penalty(layers, connection_lengths(places, layer_distance=gap, p=order), bias_weight=0.7)
    np.testing.assert_allclose(found.item(), expected, rtol=1e-12)


def test_its_slope_is_the_length_with_the_sign_of_the_weight():
    model = stack()
    layers, far = (
        affine_layers(model),
        connection_lengths([line_positions(n).double() for n in (3, 5, 2)], layer_distance=0.1),
    )
    locality_penalty(layers, far).backward()
    torch.testing.assert_close(layers[1].weight.grad, far[1] * layers[1].weight.detach().sign())
    assert layers[0].bias.grad is None


def test_positions_are_distinct_and_inside_the_unit_square():
    for n in (1, 2, 7, 9, 10):
        line, grid = line_positions(n), grid_positions(n)
        assert line.shape == (n, 1)
        assert grid.shape == (n, 2)
        for places in (line, grid):
            assert ((places > 0) & (places < 1)).all()
            assert len({tuple(place.tolist()) for place in places}) == n


def test_layers_of_any_stack_are_found():
    model = MLP(4, 2, hidden_dims=(7, 3))
    assert [tuple(layer.weight.shape) for layer in affine_layers(model)] == [(7, 4), (3, 7), (2, 3)]
    normed = nn.Sequential(nn.Embedding(5, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    assert [layer.weight.shape for layer in affine_layers(normed)] == [(2, 4)]


def test_invalid_stacks():
    with pytest.raises(ValueError, match="Sequential has none"):
        affine_layers(nn.Sequential(nn.ReLU()))
    with pytest.raises(ValueError, match=r"output size of the one before, got \[\(2, 3\), \(4, 1\)\]"):
        affine_layers(nn.Sequential(nn.Linear(2, 3), nn.Linear(4, 1)))
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    second.weight = first.weight
    with pytest.raises(ValueError, match="two layers share one"):
        affine_layers(nn.Sequential(first, second))


def test_invalid_lengths():
    with pytest.raises(ValueError, match=r"expected lengths of shapes \[\(5, 3\), \(2, 5\)\]"):
        locality_penalty(affine_layers(stack()), [torch.ones(5, 3)])
    with pytest.raises(ValueError, match="expected layer_distance >= 0 and p >= 1"):
        connection_lengths([line_positions(2), line_positions(2)], layer_distance=0.1, p=0.5)


def _penalties_claims() -> Iterator[Claim]:
    """Laws of penalties."""
    x = shape("n 2")
    yield Claim(homogeneity(degree=1.0), l1_penalty, x)
    yield Claim(homogeneity(degree=2.0), l2_penalty, x)
    yield Claim(agreement(other=lambda x: torch.linalg.vector_norm(x, 1)), l1_penalty, x)
    yield Claim(agreement(other=lambda x: torch.linalg.vector_norm(x) ** 2), l2_penalty, x)
    mixed = partial(elastic_net_penalty, alpha=0.3)
    yield Claim(convexity(), mixed, x, name="elastic_net_penalty(alpha=0.3)")
    yield Claim(
        agreement(other=lambda x: 0.3 * l1_penalty(x) + 0.7 * l2_penalty(x)),
        mixed,
        x,
        name="elastic_net_penalty(alpha=0.3)",
    )
    for alpha, end in ((0.0, l2_penalty), (1.0, l1_penalty)):
        yield Claim(
            agreement(other=end),
            partial(elastic_net_penalty, alpha=alpha),
            x,
            name=f"elastic_net_penalty(alpha={alpha})",
        )

    def of_layers(x: Tensor) -> Tensor:
        layers = nn.ParameterDict({"a_weight": x, "b_weight": 2 * x, "b_bias": 3 * x})
        return parameter_penalty(layers, l2_penalty, pattern="*_weight")

    yield Claim(
        agreement(other=lambda x: 5 * l2_penalty(x)), of_layers, x, name="parameter_penalty(pattern='*_weight')"
    )


def _locality_claims() -> Iterator[Claim]:
    """Laws of the penalty."""
    far = connection_lengths([grid_positions(3).double(), grid_positions(2).double()], layer_distance=0.3, p=2.0)

    def of(x: Tensor) -> Tensor:
        layer = cast(AffineLayer, nn.ParameterDict({"weight": x[:2, :3], "bias": x[:2, 3]}))
        return locality_penalty([layer], [d.to(x) for d in far], bias_weight=0.3)

    def equation(x: Tensor) -> Tensor:
        below, above = grid_positions(3).to(x), grid_positions(2).to(x)
        reach = [[((above[i] - below[j]).square().sum() + 0.09).sqrt() for j in range(3)] for i in range(2)]
        return sum((x[i, j].abs() * reach[i][j] for i in range(2) for j in range(3)), 0.3 * x[:2, 3].abs().sum())

    yield Claim(homogeneity(degree=1.0), of, shape("2 4"), name="locality_penalty")
    yield Claim(agreement(other=equation), of, shape("2 4"), name="locality_penalty")


def claims() -> Iterator[Claim]:
    """Second derivations of penalties."""
    yield from _penalties_claims()
    yield from _locality_claims()
