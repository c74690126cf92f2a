import pytest
import torch

from lawful.blocks import (
    ActNorm,
    AffineTransform,
    AutoregressiveTransform,
    ComposedTransform,
    CouplingTransform,
    FourierEncoding,
    InvertibleLinear,
    LevelEncoding,
    MaskedDense,
    MaskedNetwork,
    PermutationTransform,
    RationalQuadraticSpline,
    ShiftTransform,
)


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def stirred(block):
    """The block in double precision with parameters that are not at their start."""
    block = block.double()
    with torch.no_grad():
        for i, p in enumerate(block.parameters()):
            p.add_(0.3 * randn(*p.shape, seed=i))
    return block


BLOCKS = {
    "additive": lambda: CouplingTransform(4, transform=ShiftTransform(), condition=2),
    "affine": lambda: CouplingTransform(4, transform=AffineTransform(), condition=2, dropout=0.1).eval(),
    "spline": lambda: CouplingTransform(
        4, transform=RationalQuadraticSpline(bins=4), condition=2, encoding=FourierEncoding(count=2)
    ),
    "autoregressive": lambda: AutoregressiveTransform(
        4, transform=RationalQuadraticSpline(bins=4), order=[3, 1, 0, 2], condition=2
    ),
    "composition": lambda: ComposedTransform(
        [ActNorm(4), InvertibleLinear(4), CouplingTransform(4, transform=AffineTransform(), condition=2)]
    ),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_with_a_condition_there_and_back(name):
    block, x, c = stirred(BLOCKS[name]()), randn(5, 4), randn(5, 2, seed=9)
    y, log_det = block(x, c)
    again, back = block.inverse(y, c)
    torch.testing.assert_close(again, x, atol=1e-8, rtol=1e-6)
    torch.testing.assert_close(back, -log_det, atol=1e-6, rtol=1e-6)
    assert bool((block(x, c + 1)[0] - y).abs().max() > 1e-3)


@pytest.mark.parametrize("name", BLOCKS)
def test_the_log_determinant_is_that_of_the_jacobian(name):
    block, x, c = stirred(BLOCKS[name]()), randn(1, 4), randn(1, 2, seed=9)
    jacobian = torch.func.jacrev(lambda x: block(x, c)[0][0])(x)[:, 0]
    torch.testing.assert_close(block(x, c)[1][0], torch.linalg.slogdet(jacobian).logabsdet)


def test_an_additive_coupling_keeps_volumes_to_the_last_bit():
    assert bool((stirred(CouplingTransform(6, transform=ShiftTransform()))(randn(8, 6))[1] == 0).all())


def test_a_masked_network_sees_only_what_came_before_also_with_a_condition():
    network = stirred(MaskedNetwork([2, 0, 1], size=2, hidden=[6, 5], condition=1))
    x, c = randn(1, 3), randn(1, 1)
    seen = torch.func.jacrev(lambda x: network(x, c))(x)[0, :, :, 0].abs().sum(1) > 0
    assert seen.tolist() == [[False, True, True], [False, False, False], [False, True, False]]
    of_condition = torch.func.jacrev(lambda c: network(x, c))(c)[0, :, :, 0, 0].abs().sum(1)
    assert bool((of_condition > 0).all())


def test_one_entry_is_mapped_too():
    block = stirred(AutoregressiveTransform(1, transform=RationalQuadraticSpline(bins=3), hidden=[4]))
    x = randn(5, 1)
    torch.testing.assert_close(block.inverse(block(x)[0])[0], x)


def test_masked_weights_do_nothing():
    layer = MaskedDense(torch.tensor([[True, False]]))
    before = layer(torch.ones(1, 2))
    with torch.no_grad():
        layer.weight[0, 1] = 7.0
    assert torch.equal(layer(torch.ones(1, 2)), before)


def test_the_lu_form_starts_as_a_rotation():
    w = InvertibleLinear(5).weight
    torch.testing.assert_close(w @ w.T, torch.eye(5), atol=1e-5, rtol=0)


def test_fit_standardises_what_arrives_and_a_constant_stays_finite():
    both = ComposedTransform([ActNorm(2), PermutationTransform([1, 0]), ActNorm(2)])
    x = torch.stack([torch.linspace(3, 9, 50), torch.full((50,), 4.0)], -1)
    y, log_det = both.fit(x)(x)
    assert bool(y.isfinite().all() and log_det.isfinite().all())
    torch.testing.assert_close(y.mean(0), torch.zeros(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(y.std(0, correction=0), torch.tensor([0.0, 1.0]), atol=1e-5, rtol=0)


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match="some of 1 entries, but not all"):
        CouplingTransform(1, transform=ShiftTransform())
    with pytest.raises(ValueError, match="places 0 to d - 1 was wanted: got"):
        AutoregressiveTransform(2, transform=ShiftTransform(), order=[0, 0])
    with pytest.raises(ValueError, match="an order of 3 entries was wanted: got 2"):
        AutoregressiveTransform(3, transform=ShiftTransform(), order=[0, 1])
    with pytest.raises(ValueError, match="a condition of size 2 was wanted: got one of size 0"):
        CouplingTransform(2, transform=ShiftTransform(), condition=2)(torch.zeros(1, 2))
    with pytest.raises(ValueError, match="in some order were wanted"):
        PermutationTransform([1, 2])
    with pytest.raises(ValueError, match="d is at least 1"):
        ActNorm(0)
    with pytest.raises(ValueError, match="d is at least 1"):
        InvertibleLinear(0)
    with pytest.raises(ValueError, match="levels are at least 2"):
        LevelEncoding(1)
    with pytest.raises(ValueError, match="count is at least 1"):
        FourierEncoding(count=0)


def test_blocks_say_what_they_apply():
    assert "2 kept, 2 changed, transform=Shift()" in repr(CouplingTransform(4, transform=ShiftTransform()))
    assert "transform=Affine(bound=2.0)" in repr(AutoregressiveTransform(2, transform=AffineTransform()))
