import numpy as np
import pytest
import torch
from torch.nn import functional as F

from lawful.blocks import FeedForward, GatedFeedForward
from lawful.functions.activations import geglu, glu, reglu


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


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match=r"size 4: got shape \(2, 5\)"):
        FeedForward(4)(torch.zeros(2, 5))
    with pytest.raises(ValueError, match="d_out=0"):
        GatedFeedForward(4, hidden=0)


def test_a_gated_block_says_its_gating():
    assert "(\n  gating=glu\n" in repr(GatedFeedForward(6, gating=glu))
