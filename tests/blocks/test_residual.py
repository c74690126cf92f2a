import pytest
import torch
from torch import nn

from lawful.blocks import Residual, contributions, paths, post_norm, pre_norm, sandwich_norm


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_equals_its_equation():
    block, x = nn.Linear(4, 4).double(), randn(3, 4)
    torch.testing.assert_close(Residual(block)(x), x + x @ block.weight.T + block.bias)


def test_equals_torch_transformer_in_both_orders():
    for norm_first, order in ((True, pre_norm), (False, post_norm)):
        theirs = nn.TransformerEncoderLayer(4, 1, 8, 0.0, norm_first=norm_first, batch_first=True).double()
        for name in ("out_proj.weight", "out_proj.bias"):
            nn.init.zeros_(theirs.self_attn.get_parameter(name))
        if not norm_first:
            theirs.norm1 = nn.Identity()
        ours = order(nn.Sequential(theirs.linear1, nn.ReLU(), theirs.linear2), theirs.norm2)
        x = randn(2, 3, 4)
        torch.testing.assert_close(ours(x), theirs(x))


def test_the_gradient_reaches_the_input_through_a_dead_block():
    x = randn(3).requires_grad_()
    Residual(nn.Threshold(1e9, 0.0))(x).sum().backward()
    torch.testing.assert_close(x.grad, torch.ones_like(x))


def test_contributions_add_up_for_any_blocks():
    blocks, x = [nn.Sequential(nn.Linear(4, 4), nn.Tanh()).double() for _ in range(3)], randn(2, 4)
    terms = contributions(blocks, x)
    assert terms.shape == (4, 2, 4)
    torch.testing.assert_close(terms.sum(0), nn.Sequential(*map(Residual, blocks))(x))


def test_paths_are_all_products_of_blocks():
    f, g = (nn.Linear(4, 4, bias=False).double() for _ in range(2))
    x = randn(2, 4)
    torch.testing.assert_close(paths([f, g], x), torch.stack([x, f(x), g(x), g(f(x))]))
    torch.testing.assert_close(paths([], x), x[None])


def test_paths_do_not_add_up_with_an_activation():
    x = torch.tensor([1.0])
    blocks = [nn.Tanh(), nn.Tanh()]
    assert not torch.allclose(paths(blocks, x).sum(0), nn.Sequential(*map(Residual, blocks))(x))


def test_a_block_that_changes_the_shape_is_refused():
    with pytest.raises(ValueError, match=r"keep the shape \(2, 4\): got \(2, 1\)"):
        Residual(nn.Linear(4, 1))(torch.zeros(2, 4))
    for count in (contributions, paths):
        with pytest.raises(ValueError, match=r"keep the shape \(2, 4\): got \(2, 1\)"):
            count([nn.Linear(4, 1)], torch.zeros(2, 4))


def test_a_sandwich_has_two_norms_of_its_own():
    torch.manual_seed(0)
    layer, x = sandwich_norm(nn.Linear(4, 4), nn.LayerNorm(4), step=0.5), torch.randn(3, 4)
    assert layer.norm.weight is not layer.inner.weight
    torch.testing.assert_close(layer(x), x + layer.inner(layer.block(layer.norm(x))) / 2)
    assert "step=0.5" in repr(layer)


def test_a_function_may_stand_for_the_block():
    layer, x = pre_norm(nn.Bilinear(4, 4, 4), nn.LayerNorm(4)), torch.randn(3, 4)
    torch.testing.assert_close(layer(x, lambda y: layer.block(y, x)), x + layer.block(layer.norm(x), x))
