import math
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from lawful.blocks import (
    ActNorm,
    AffineTransform,
    AutoregressiveTransform,
    ComposedTransform,
    CouplingTransform,
    DiagonalScale,
    DiscretizedLogistic,
    FourierEncoding,
    InvertibleLinear,
    LevelEncoding,
    MaskedLinear,
    MaskedNetwork,
    PermutationTransform,
    RationalQuadraticSpline,
    ShiftTransform,
)
from lawful.checking.check import SearchBudget, judge_law
from lawful.laws import Claim, agreement, causality, invertibility, linearity, log_determinant, shape, transformed


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def perturb_parameters(block):
    """The block in float64 with perturbed parameters."""
    block = block.double()
    with torch.no_grad():
        for i, p in enumerate(block.parameters()):
            p.add_(0.3 * randn(*p.shape, seed=i))
    return block


BLOCKS = {
    "additive": lambda: CouplingTransform(4, transform=ShiftTransform(), condition_dim=2),
    "affine": lambda: CouplingTransform(4, transform=AffineTransform(), condition_dim=2, dropout=0.1).eval(),
    "spline": lambda: CouplingTransform(
        4, transform=RationalQuadraticSpline(num_bins=4), condition_dim=2, encoding=FourierEncoding(num_frequencies=2)
    ),
    "autoregressive": lambda: AutoregressiveTransform(
        4, transform=RationalQuadraticSpline(num_bins=4), order=[3, 1, 0, 2], condition_dim=2
    ),
    "composition": lambda: ComposedTransform(
        [ActNorm(4), InvertibleLinear(4), CouplingTransform(4, transform=AffineTransform(), condition_dim=2)]
    ),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_inverse_with_a_condition(name):
    block, x, c = perturb_parameters(BLOCKS[name]()), randn(5, 4), randn(5, 2, seed=9)
    y, log_det = block(x, c)
    again, back = block.inverse(y, c)
    torch.testing.assert_close(again, x, atol=1e-8, rtol=1e-6)
    torch.testing.assert_close(back, -log_det, atol=1e-6, rtol=1e-6)
    assert bool((block(x, c + 1)[0] - y).abs().max() > 1e-3)


@pytest.mark.parametrize("name", BLOCKS)
def test_log_determinant_equals_the_jacobian(name):
    block, x, c = perturb_parameters(BLOCKS[name]()), randn(1, 4), randn(1, 2, seed=9)
    jacobian = torch.func.jacrev(lambda x: block(x, c)[0][0])(x)[:, 0]
    torch.testing.assert_close(block(x, c)[1][0], torch.linalg.slogdet(jacobian).logabsdet)


SIGNED = [
    DiagonalScale,
    ActNorm,
    InvertibleLinear,
    ComposedTransform,
    CouplingTransform,
    AutoregressiveTransform,
    AffineTransform,
    RationalQuadraticSpline,
    DiscretizedLogistic,
]


@pytest.mark.parametrize("block", SIGNED)
def test_a_sign_error_in_the_log_determinant_of_the_inverse_is_refuted(block, monkeypatch):
    inverse = block.inverse

    def with_sign_error(self, *args):
        x, log_det = inverse(self, *args)
        return x, -log_det

    monkeypatch.setattr(block, "inverse", with_sign_error)
    module = CouplingTransform if block is AffineTransform else block
    claims = [c for c in sys.modules[module.__module__].claims() if "log_determinant" in c.law.name]
    budget = SearchBudget(cases=12, shrinks=0)
    assert "refuted" in [judge_law(c.law, c.target, c.inputs, c.label, budget).status for c in claims]


def test_an_additive_coupling_has_log_determinant_0():
    assert bool((perturb_parameters(CouplingTransform(6, transform=ShiftTransform()))(randn(8, 6))[1] == 0).all())


def test_a_masked_network_sees_only_earlier_entries():
    network = perturb_parameters(MaskedNetwork([2, 0, 1], num_outputs=2, hidden_dims=[6, 5], condition_dim=1))
    x, c = randn(1, 3), randn(1, 1)
    seen = torch.func.jacrev(lambda x: network(x, c))(x)[0, :, :, 0].abs().sum(1) > 0
    assert seen.tolist() == [[False, True, True], [False, False, False], [False, True, False]]
    of_condition = torch.func.jacrev(lambda c: network(x, c))(c)[0, :, :, 0, 0].abs().sum(1)
    assert bool((of_condition > 0).all())


def test_one_entry():
    block = perturb_parameters(
        AutoregressiveTransform(1, transform=RationalQuadraticSpline(num_bins=3), hidden_dims=[4])
    )
    x = randn(5, 1)
    torch.testing.assert_close(block.inverse(block(x)[0])[0], x)


def test_masked_weights_do_nothing():
    layer = MaskedLinear(torch.tensor([[True, False]]))
    before = layer(torch.ones(1, 2))
    with torch.no_grad():
        layer.weight[0, 1] = 7.0
    assert torch.equal(layer(torch.ones(1, 2)), before)


def test_initial_masked_weights_have_variance_one_over_the_visible_inputs():
    mask = torch.arange(100) < torch.tensor([25, 100]).repeat_interleave(200)[:, None]
    layer = MaskedLinear(mask)
    variances = torch.stack([layer.weight[:200, :25].var(), layer.weight[200:].var()])
    torch.testing.assert_close(variances, torch.tensor([1 / 25, 1 / 100]), rtol=0.1, atol=0)


def test_the_lu_form_starts_as_a_rotation():
    w = InvertibleLinear(5).weight
    torch.testing.assert_close(w @ w.T, torch.eye(5), atol=1e-5, rtol=0)


def test_fit_standardizes_the_data_of_each_layer():
    both = ComposedTransform([ActNorm(2), PermutationTransform([1, 0]), ActNorm(2)])
    x = torch.stack([torch.linspace(3, 9, 50), torch.full((50,), 4.0)], -1)
    y, log_det = both.fit(x)(x)
    assert bool(y.isfinite().all() and log_det.isfinite().all())
    torch.testing.assert_close(y.mean(0), torch.zeros(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(y.std(0, correction=0), torch.tensor([0.0, 1.0]), atol=1e-5, rtol=0)


def test_invalid_options_are_rejected():
    with pytest.raises(ValueError, match="some but not all of 1 entries"):
        CouplingTransform(1, transform=ShiftTransform())
    with pytest.raises(ValueError, match="order must be a permutation of 0 to dim - 1, got"):
        AutoregressiveTransform(2, transform=ShiftTransform(), order=[0, 0])
    with pytest.raises(ValueError, match="order must have 3 entries, got 2"):
        AutoregressiveTransform(3, transform=ShiftTransform(), order=[0, 1])
    with pytest.raises(ValueError, match="expected a condition of size 2, got 0"):
        CouplingTransform(2, transform=ShiftTransform(), condition_dim=2)(torch.zeros(1, 2))
    with pytest.raises(ValueError, match="order must be a permutation"):
        PermutationTransform([1, 2])
    with pytest.raises(ValueError, match="dim must be at least 1"):
        ActNorm(0)
    with pytest.raises(ValueError, match="dim must be at least 1"):
        InvertibleLinear(0)
    with pytest.raises(ValueError, match="num_levels must be at least 2"):
        LevelEncoding(1)
    with pytest.raises(ValueError, match="num_frequencies must be at least 1"):
        FourierEncoding(num_frequencies=0)


def test_repr():
    assert "2 identity, 2 transformed, transform=ShiftTransform()" in repr(
        CouplingTransform(4, transform=ShiftTransform())
    )
    assert "transform=AffineTransform(bound=2.0)" in repr(AutoregressiveTransform(2, transform=AffineTransform()))


def _claims_of_networks() -> Iterator[Claim]:
    def waves(x):
        rows = []
        for value in x.unbind(-1):
            rows += [value, *(torch.sin(math.pi * k * value / 4) for k in (1, 2))]
            rows += [torch.cos(math.pi * k * value / 4) for k in (1, 2)]
        return torch.stack(rows, -1)

    def nearest(x):
        centers = x.new_tensor([-0.8, -0.4, 0.0, 0.4, 0.8])
        index = (x[..., None] - centers).abs().argmin(-1)
        return torch.stack([centers[index], (index == 0).to(x), (index == 4).to(x)], -1).flatten(1)

    fourier = FourierEncoding(num_frequencies=2, bound=2.0)
    yield Claim(agreement(other=waves), fourier, shape("n 2"), name="FourierEncoding")
    cells = transformed(lambda x: 1.2 * torch.tanh(x), "n 3")
    yield Claim(agreement(other=nearest), LevelEncoding(5), cells, name="LevelEncoding")
    mask = torch.tensor([[True, False, True], [False, True, True]])
    layer = MaskedLinear(mask)

    def masked(x):
        return x @ torch.where(mask, layer.weight, torch.zeros_like(layer.weight)).T + layer.bias

    yield Claim(agreement(other=masked), layer, shape("b 3"))
    additive = CouplingTransform(3, transform=ShiftTransform(), hidden_dims=[5])

    def coupled(x):
        w, b, v, c = additive.parameters()
        h = torch.relu(x[:, [0, 2]] @ w.T + b) @ v.T + c
        return torch.stack([x[:, 0], x[:, 1] + h[:, 0], x[:, 2]], -1), 0 * x[:, 0]

    yield Claim(agreement(other=coupled), additive, shape("n 3"), name="additive coupling")


def _claims_of_splines() -> Iterator[Claim]:
    options = {
        "transform": RationalQuadraticSpline(num_bins=2, bound=2.0),
        "hidden_dims": [5],
        "encoding": FourierEncoding(num_frequencies=1),
        "activation": torch.tanh,
    }
    coupling = CouplingTransform(3, **options)
    autoregressive = AutoregressiveTransform(3, order=[2, 0, 1], **options)
    for block in (coupling, autoregressive):
        for law in (log_determinant(), invertibility()):
            yield Claim(replace(law, cases=20), block, shape("n 3"), name=f"{type(block).__name__}, spline")
    inverse = lambda y: autoregressive.inverse(y)  # noqa: E731
    yield Claim(replace(log_determinant(), cases=20), inverse, shape("n 3"), name="AutoregressiveTransform.inverse")
    affine = AutoregressiveTransform(3, transform=AffineTransform(bound=1.0), hidden_dims=[5])
    yield Claim(causality(time=1), affine, shape("n 3"))


def claims() -> Iterator[Claim]:
    """Second derivations of flows."""
    yield from _claims_of_networks()
    yield from _claims_of_splines()
    scale, block, turn = DiagonalScale(3), InvertibleLinear(3), PermutationTransform([2, 0, 1])
    with torch.no_grad():
        block.log_scale.add_(torch.tensor([0.3, -0.5, 0.9]))

    def product(x):
        lower = torch.tril(block.lower, -1) + torch.eye(3).to(x)
        upper = torch.triu(block.upper, 1) + torch.diag(block.sign * torch.exp(block.log_scale))
        return torch.einsum("ij,jk,kl,nl->ni", block.permutation, lower, upper, x)

    def listed(x):
        return torch.stack([x[:, 2], x[:, 0], x[:, 1]], -1)

    for f, other in ((scale, lambda x: x * torch.exp(scale.log_scale)), (block, product), (turn, listed)):
        yield Claim(agreement(other=other), lambda x, f=f: f(x)[0], shape("n 3"), name=type(f).__name__)
    yield Claim(linearity(), lambda x: turn(x)[0], shape("n 3"), name="PermutationTransform")
    coupling = CouplingTransform(3, transform=AffineTransform(bound=1.0), hidden_dims=[4])
    composed = ComposedTransform([ActNorm(3), coupling, turn, ActNorm(3)])
    for law in (log_determinant(), invertibility()):
        yield Claim(law, composed, shape("n 3"))
    yield Claim(log_determinant(), lambda y: composed.inverse(y), shape("n 3"), name="ComposedTransform.inverse")
