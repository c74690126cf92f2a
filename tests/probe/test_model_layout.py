"""Layouts, frozen norms and linear residual branches."""

from collections.abc import Iterator
from functools import partial

import pytest
import torch
from torch import nn

from lawful.blocks import (
    LayerScale,
    Residual,
    sandwich_norm,
)
from lawful.laws import Claim, agreement, linearity, shape
from lawful.probe import frozen_norm, infer_layout, linearize_branch


def test_other_norms_raise():
    with pytest.raises(TypeError, match="got BatchNorm1d"):
        frozen_norm(nn.BatchNorm1d(4), torch.ones(2, 4))


def test_a_module_with_two_names_is_found():
    shared = nn.Linear(3, 3)
    model = nn.ModuleDict({"embedding": shared, "layers": nn.ModuleList(), "norm": nn.LayerNorm(3), "head": shared})
    assert infer_layout(model).head == "head"


@pytest.mark.parametrize("y", [[1.0], [-1.0], [1.0, -1.0], [1.0, -2.0, 0.5]])
@pytest.mark.parametrize("gate", [nn.Tanh(), nn.ReLU(), nn.SiLU()])
def test_gates_that_are_not_linear_raise(gate, y):
    y = torch.tensor([y])
    with pytest.raises(ValueError, match=f"must be linear, got {type(gate).__name__}"):
        linearize_branch(Residual(nn.Identity(), gate=gate), y)


class Median(nn.Module):
    """Returns the median of the features: f(a x) = a f(x), but not f(x + y) = f(x) + f(y)."""

    def forward(self, x):
        return x.median(-1, keepdim=True).values.expand_as(x)


def test_a_gate_that_is_homogeneous_but_not_additive_raises():
    with pytest.raises(ValueError, match="must be linear, got Median"):
        linearize_branch(Residual(nn.Identity(), gate=Median()), torch.tensor([[1.0, -2.0, 0.5]]))


def claims() -> Iterator[Claim]:
    """Second derivations of frozen norms and residual branches."""
    at = torch.tensor([[0.5, -1.0, 2.0, 0.0]])
    for norm in (nn.LayerNorm(4, elementwise_affine=False), nn.Identity()):

        def frozen(x, norm=norm):
            linear, shift = frozen_norm(norm, x)
            return linear(x) + shift

        def linear_part(x, norm=norm):
            return frozen_norm(norm, at.to(x))[0](x)

        name = f"frozen_norm({type(norm).__name__})"
        yield Claim(agreement(other=norm), frozen, shape("b t 4"), name=name)
        yield Claim(linearity(), linear_part, shape("b 4"), name=name)
    block, gate = nn.Linear(4, 4), partial(LayerScale, 4, init_value=0.3)
    layers = {
        "gate": Residual(block, gate=gate(), scale=0.5),
        "sandwich": sandwich_norm(block, nn.LayerNorm(4), gate=gate()),
    }
    for name, layer in layers.items():

        def by_parts(x, layer=layer):
            y = block(x if layer.norm is None else layer.norm(x))
            linear, constant = linearize_branch(layer, y)
            return x + linear(0.3 * y) + linear(0.7 * y) + constant

        yield Claim(agreement(other=layer), by_parts, shape("b t 4"), name=f"linearize_branch, {name}")
