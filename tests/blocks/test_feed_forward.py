from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from lawful.blocks import FeedForward, GatedFeedForward
from lawful.functions.activations import geglu, glu, reglu
from lawful.laws import Claim, agreement, shape


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("activation", [torch.relu, F.gelu, torch.tanh])
def test_equals_its_equation(activation):
    block, x = FeedForward(4, activation=activation).double(), randn(2, 3, 4)
    h = activation(x @ block.up.weight.T + block.up.bias)
    torch.testing.assert_close(block(x), h @ block.down.weight.T + block.down.bias)
    assert block.up.weight.shape == (16, 4)


@pytest.mark.parametrize(("gating", "curve"), [(glu, torch.sigmoid), (geglu, F.gelu), (reglu, torch.relu)])
def test_a_gate_multiplies(gating, curve):
    block, x = GatedFeedForward(6, gating=gating, bias=True).double(), randn(2, 3, 6)
    w, v, out = ((m.weight, m.bias) for m in (block.up, block.gate, block.down))
    torch.testing.assert_close(block(x), F.linear(F.linear(x, *w) * curve(F.linear(x, *v)), *out))


def test_swiglu_by_default_with_as_many_parameters_as_without_a_gate():
    gated, plain = GatedFeedForward(12).double(), FeedForward(12, bias=False)
    assert sum(p.numel() for p in gated.parameters()) == sum(p.numel() for p in plain.parameters())
    x = randn(5, 12)
    up, gate, down = (m.weight.detach().numpy() for m in (gated.up, gated.gate, gated.down))
    g = x.numpy() @ gate.T
    np.testing.assert_allclose(gated(x).detach().numpy(), (x.numpy() @ up.T * g / (1 + np.exp(-g))) @ down.T)


def test_repr_shows_activation_and_gating():
    assert "(\n  gating=glu\n" in repr(GatedFeedForward(6, gating=glu))
    assert "activation=gelu" in repr(FeedForward(6, activation=F.gelu))


@pytest.mark.parametrize("d", [1, 2, 7])
def test_number_of_parameters(d):
    blocks = FeedForward(d), FeedForward(d, bias=False), GatedFeedForward(d), GatedFeedForward(d, bias=True)
    h = round(8 * d / 3)
    expected = [8 * d * d + 5 * d, 8 * d * d, 3 * h * d, 3 * h * d + 2 * h + d]
    assert [sum(p.numel() for p in block.parameters()) for block in blocks] == expected


def claims() -> Iterator[Claim]:
    """Second derivations of feed-forward blocks."""
    block, gated = FeedForward(3, hidden_dim=5), GatedFeedForward(3, hidden_dim=5, bias=True)

    def equation(x):
        hidden = (x @ block.up.weight.T + block.up.bias).clamp_min(0)
        return hidden @ block.down.weight.T + block.down.bias

    def gated_equation(x):
        gate = x @ gated.gate.weight.T + gated.gate.bias
        hidden = (x @ gated.up.weight.T + gated.up.bias) * gate / (1 + torch.exp(-gate))
        return hidden @ gated.down.weight.T + gated.down.bias

    yield Claim(agreement(other=equation), block, shape("b t 3"))
    yield Claim(agreement(other=gated_equation), gated, shape("b 3"))
