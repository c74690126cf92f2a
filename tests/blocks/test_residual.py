import copy
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import nn

from lawful.blocks import (
    LayerScale,
    Residual,
    ReZero,
    WeightedSum,
    post_norm,
    pre_norm,
    residual_contributions,
    residual_paths,
    sandwich_norm,
    splitting_step,
)
from lawful.laws import Claim, agreement, shape


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
    terms = residual_contributions(blocks, x)
    assert terms.shape == (4, 2, 4)
    torch.testing.assert_close(terms.sum(0), nn.Sequential(*map(Residual, blocks))(x))


def test_paths_are_all_products_of_blocks():
    f, g = (nn.Linear(4, 4, bias=False).double() for _ in range(2))
    x = randn(2, 4)
    torch.testing.assert_close(residual_paths([f, g], x), torch.stack([x, f(x), g(x), g(f(x))]))
    torch.testing.assert_close(residual_paths([], x), x[None])


def test_paths_do_not_add_up_with_an_activation():
    x = torch.tensor([1.0])
    blocks = [nn.Tanh(), nn.Tanh()]
    assert not torch.allclose(residual_paths(blocks, x).sum(0), nn.Sequential(*map(Residual, blocks))(x))


def test_a_block_that_changes_the_shape_is_rejected():
    with pytest.raises(ValueError, match=r"keeps the shape \(2, 4\), got \(2, 1\)"):
        Residual(nn.Linear(4, 1))(torch.zeros(2, 4))
    for count in (residual_contributions, residual_paths):
        with pytest.raises(ValueError, match=r"keeps the shape \(2, 4\), got \(2, 1\)"):
            count([nn.Linear(4, 1)], torch.zeros(2, 4))


def test_sandwich_norm_has_two_separate_norms():
    torch.manual_seed(0)
    layer, x = sandwich_norm(nn.Linear(4, 4), nn.LayerNorm(4), scale=0.5), torch.randn(3, 4)
    assert layer.norm.weight is not layer.branch_norm.weight
    torch.testing.assert_close(layer(x), x + layer.branch_norm(layer.block(layer.norm(x))) / 2)
    assert "scale=0.5" in repr(layer)


def test_block_can_be_replaced_by_a_function_in_forward():
    layer, x = pre_norm(nn.Bilinear(4, 4, 4), nn.LayerNorm(4)), torch.randn(3, 4)
    torch.testing.assert_close(layer(x, lambda y: layer.block(y, x)), x + layer.block(layer.norm(x), x))


def test_rezero_is_the_identity_at_first():
    torch.manual_seed(0)
    layer, x = Residual(nn.Linear(3, 3), gate=ReZero()), torch.randn(2, 3)
    assert torch.equal(layer(x), x)
    layer(x).square().sum().backward()
    assert layer.gate.weight.grad != 0
    assert (layer.block.weight.grad == 0).all()


def test_layer_scale_multiplies_each_channel():
    layer = LayerScale(2)
    layer.weight.data = torch.tensor([2.0, 3.0])
    assert layer(torch.tensor([[1.0, 10.0]])).tolist() == [[2.0, 30.0]]
    assert LayerScale(4).weight.tolist() == [1e-4] * 4 or torch.allclose(LayerScale(4).weight, torch.tensor(1e-4))


def test_weighted_sum_returns_the_first_input_at_first():
    weighted, x, y = WeightedSum(), torch.randn(2, 3), torch.randn(2, 3)
    assert torch.equal(weighted(x, y), x)
    weighted(x, y).sum().backward()
    torch.testing.assert_close(weighted.weight.grad, torch.stack([x.sum(), y.sum()]))


def test_parameter_names_in_the_state_dict():
    assert [list(m.state_dict()) for m in (ReZero(), LayerScale(2), WeightedSum())] == [["weight"]] * 3


def flows(kind, s, f):
    maps = {
        "exact": lambda a: lambda x, h: torch.matrix_exp(h * a) @ x,
        "euler": lambda a: lambda x, h: x + h * (a @ x),
    }
    return {"s": maps[kind](s), "f": maps[kind](f)}


def measure_order(pattern, kind, target=None):
    """Order of the local error in the step size."""
    generator = torch.Generator().manual_seed(0)
    s, f = torch.randn(2, 4, 4, generator=generator, dtype=torch.float64)
    x = torch.randn(4, generator=generator, dtype=torch.float64)
    target = target or (lambda h, s, f: torch.matrix_exp(h * (s + f)))
    errors = [
        (splitting_step(pattern, flows(kind, s, f), x, step_size=h) - target(h, s, f) @ x).norm()
        for h in (2**-9, 2**-10)
    ]
    return float(torch.log2(errors[0] / errors[1]))


@pytest.mark.parametrize(("pattern", "power"), [("sf", 2), ("fs", 2), ("hsh", 3)])
def test_with_exact_flows_the_macaron_order_is_one_order_better(pattern, power):
    assert measure_order(pattern, "exact") == pytest.approx(power, abs=0.05)


@pytest.mark.parametrize("pattern", ["sf", "hsh"])
def test_with_residual_sublayers_both_orders_are_off_by_the_square_of_the_step(pattern):
    assert measure_order(pattern, "euler") == pytest.approx(2, abs=0.05)


def test_macaron_order_has_no_commutator_error():
    def symmetric(h, s, f):
        one = torch.eye(4, dtype=s.dtype)
        return one + h * (s + f) + h**2 * (f @ f / 4 + (s @ f + f @ s) / 2)

    assert measure_order("hsh", "euler", symmetric) == pytest.approx(3, abs=0.05)
    assert measure_order("sf", "euler", symmetric) == pytest.approx(2, abs=0.05)


def test_an_unknown_letter_is_rejected():
    with pytest.raises(KeyError, match=r"^'c'$"):
        splitting_step("scf", {"s": lambda x, h: x, "f": lambda x, h: x}, torch.zeros(2))


def _claims_of_splitting() -> Iterator[Claim]:
    step = 0.5
    s, f = torch.zeros(2, 3, 3, dtype=torch.float64)
    s[0, 1], f[1, 2] = 2.0, 3.0  # the commutator commutes with both: there are no terms of higher order

    def exact(a):
        return lambda x, h: x @ torch.matrix_exp(h * a).to(x).mT

    def euler(a):
        return lambda x, h: x + h * x @ a.to(x).mT

    def flow(a):
        return lambda x: exact(a)(x, 1.0)

    def sublayers(x):
        one = torch.eye(3).to(s)
        return x @ ((one + step / 2 * f) @ (one + step * s) @ (one + step / 2 * f)).to(x).mT

    total, commutator = step * (s + f), step**2 * (f @ s - s @ f)
    exact_flows, euler_flows = {"s": exact(s), "f": exact(f)}, {"s": euler(s), "f": euler(f)}
    for pattern, flows, other, name in (
        ("hsh", exact_flows, flow(total), "Strang splitting is exact"),
        ("sf", exact_flows, flow(total + commutator / 2), "Lie splitting is off by half a commutator"),
        ("fs", exact_flows, flow(total - commutator / 2), "Lie splitting, reversed"),
        ("hsh", euler_flows, sublayers, "Macaron layer of linear sublayers"),
    ):

        def stepped(x, pattern=pattern, flows=flows):
            return splitting_step(pattern, flows, x, step_size=step)

        yield Claim(agreement(other=other), stepped, shape("b 3"), name=name)
    few = replace(agreement(other=flow(s)), cases=20)
    yield Claim(few, lambda x: splitting_step("s", exact_flows, x), shape("b 3"), name="step size 1")


def test_block_has_a_name():
    layer, x = pre_norm(nn.Linear(4, 4), nn.LayerNorm(4), name="attention"), torch.randn(3, 4)
    assert layer.attention is layer.block
    assert [*layer.state_dict()] == ["norm.weight", "norm.bias", "attention.weight", "attention.bias"]
    layer.block = nn.Identity()
    assert isinstance(layer.attention, nn.Identity)
    torch.testing.assert_close(layer(x), x + layer.norm(x))
    torch.testing.assert_close(copy.deepcopy(layer)(x), layer(x))


def claims() -> Iterator[Claim]:
    """Second derivations of residual connections."""
    block, norm, gate = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), nn.LayerNorm(4), nn.Linear(4, 4)
    sandwich = sandwich_norm(block, norm, gate=gate, scale=0.5)
    scale, rezero = LayerScale(4, init_value=0.5), ReZero(init_value=0.5)
    zero = nn.Linear(4, 4, bias=False)
    nn.init.zeros_(zero.weight.requires_grad_(False))
    identity = lambda x: 1 * x  # noqa: E731
    for layer, equation, name in (
        (Residual(zero), identity, "block that returns 0"),
        (pre_norm(block, norm), lambda x: x + block(norm(x)), "pre_norm"),
        (post_norm(block, norm), lambda x: norm(x + block(x)), "post_norm"),
        (sandwich, lambda x: x + gate(sandwich.branch_norm(block(norm(x)))) / 2, "sandwich_norm"),
        (Residual(block, gate=scale), lambda x: x + block(x) @ torch.diag(scale.weight), "LayerScale"),
        (Residual(block, gate=rezero), lambda x: x + rezero.weight * block(x), "ReZero"),
        (lambda x: LayerScale(4)(x), lambda x: 1e-4 * x, "LayerScale at initialization"),
    ):
        yield Claim(agreement(other=equation), layer, shape("b 4"), name=name)
    weighted, inputs = WeightedSum(init_value=(0.5, 2.0)), (shape("b t 3"), shape("b t 3"))
    equation = agreement(other=lambda x, y: weighted.weight[0] * x + weighted.weight[1] * y)
    yield Claim(equation, weighted, inputs)
    first = agreement(other=lambda x, y: 1 * x)
    yield Claim(first, lambda x, y: WeightedSum()(x, y), inputs, name="WeightedSum at initialization")
    yield from _claims_of_splitting()
