from collections.abc import Iterator
from functools import partial

import pytest
import torch
from torch import nn

import lawful
from lawful.blocks import (
    INVARIANCE_LAWS,
    INVARIANCES,
    NORMALIZED_AXES,
    AdaNorm,
    WhiteningNorm,
    normalize,
    normalized_axes,
    normalized_linear,
)
from lawful.blocks.normalization import _distinct_rows
from lawful.laws import (
    Claim,
    agreement,
    batch_independence,
    derivative,
    gradient,
    homogeneity,
    shape,
    shift_invariance,
    ties,
    transformed,
)

X = 3 + 2 * torch.randn(2, 4, 3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
INPUTS = transformed(_distinct_rows, "b:3..5 3"), transformed(_distinct_rows, "d:3..5 3")
NOT_INVARIANT = [
    (kind, column)
    for kind, row in INVARIANCES.items()
    for column, holds in zip(INVARIANCE_LAWS, row, strict=True)
    if not holds
]


@pytest.mark.parametrize(("kind", "column"), NOT_INVARIANT)
def test_non_invariances_of_the_table_are_refuted(kind, column):
    report = lawful.check(normalized_linear(kind), INVARIANCE_LAWS[column], inputs=INPUTS, cases=20)
    assert report.verdicts[0].status == "refuted"


def test_an_unknown_row_is_rejected():
    with pytest.raises(ValueError, match="one of batch norm, weight norm, layer norm, got 'group norm'"):
        normalized_linear("group norm")


@pytest.mark.parametrize("axes", [(0,), (-1,), (0, 2, 3), (1, 2, 3)])
def test_normalized_entries_have_mean_0_and_variance_1(axes):
    y = normalize(X, axes, eps=0.0)
    torch.testing.assert_close(y.mean(axes), torch.zeros_like(y.mean(axes)))
    torch.testing.assert_close(y.var(axes, correction=0), torch.ones_like(y.mean(axes)))
    with pytest.raises(ValueError, match="at least one axis"):
        normalize(X, ())


def test_normalized_axes():
    assert {kind: normalized_axes(kind, 4) for kind in NORMALIZED_AXES} == {
        "batch": (0, 2, 3),
        "layer": (1, 2, 3),
        "instance": (2, 3),
        "group": (1, 2, 3),
        "rms": (1, 2, 3),
    }
    with pytest.raises(ValueError, match="kind must be one of"):
        normalized_axes("power", 4)


@pytest.mark.parametrize(
    ("kind", "theirs"),
    [
        ("batch", nn.BatchNorm2d(4)),
        ("layer", nn.LayerNorm((4, 3, 5))),
        ("instance", nn.InstanceNorm2d(4)),
        ("group", nn.GroupNorm(1, 4)),
    ],
)
def test_normalized_axes_equal_torch(kind, theirs):
    torch.testing.assert_close(normalize(X, normalized_axes(kind, 4)), theirs.double()(X))


def correlated_data(*sizes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(*sizes, generator=generator, dtype=torch.float64)
    mix = torch.randn(sizes[1], sizes[1], generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    return 2 + torch.einsum("ij,bj...->bi...", mix, x)


@pytest.mark.parametrize("space", [(), (5,), (2, 3)])
def test_output_channels_are_white(space):
    x = correlated_data(50, 3, *space)
    rows = WhiteningNorm(3, eps=1e-12).double()(x).movedim(1, -1).reshape(-1, 3)
    torch.testing.assert_close(rows.mean(0), torch.zeros(3, dtype=torch.float64))
    torch.testing.assert_close(rows.T.cov(correction=0), torch.eye(3, dtype=torch.float64))


def test_eval_mode_uses_running_averages():
    norm = WhiteningNorm(3, momentum=0.05, eps=1e-9).double()
    for seed in range(200):
        norm(correlated_data(100, 3, seed=seed))
    y = norm.eval()(correlated_data(2000, 3, seed=1000))
    torch.testing.assert_close(y.T.cov(), torch.eye(3, dtype=torch.float64), atol=0.1, rtol=0)
    assert norm(correlated_data(1, 3)).shape == (1, 3)


def test_fewer_samples_than_channels_stay_finite():
    x = correlated_data(2, 5).requires_grad_()
    y = WhiteningNorm(5).double()(x)
    y.square().sum().backward()
    assert y.isfinite().all()
    assert x.grad.isfinite().all()


def test_invalid_whitening_norms_are_rejected():
    with pytest.raises(ValueError, match=r"expected x of shape \(b, 3, \*space\), got \(2, 4\)"):
        WhiteningNorm(3)(torch.zeros(2, 4))
    with pytest.raises(ValueError, match="got num_features=0, eps=1e-05"):
        WhiteningNorm(0)
    with pytest.raises(ValueError, match=r"eps positive.*got num_features=3, eps=0"):
        WhiteningNorm(3, eps=0.0)


@pytest.mark.parametrize("sizes", [(0, 2, 5), (4, 2, 0)])
def test_an_empty_batch_leaves_the_averages_alone(sizes):
    norm = WhiteningNorm(2)
    norm(correlated_data(5, 2).float())
    before = [buffer.clone() for buffer in norm.buffers()]
    assert norm(torch.zeros(sizes)).shape == sizes
    for buffer, old in zip(norm.buffers(), before, strict=True):
        assert buffer.equal(old)


@pytest.mark.parametrize("training", [True, False])
def test_autocast_computes_in_single_precision(training):
    x = correlated_data(8, 3).float()
    norm, other = WhiteningNorm(3).train(training), WhiteningNorm(3).train(training)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = norm(x)
    torch.testing.assert_close(y, other(x), rtol=0, atol=0)
    torch.testing.assert_close(norm.running_matrix, other.running_matrix, rtol=0, atol=0)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(training, dtype):
    x = correlated_data(8, 3, 2).to(dtype)
    norm, other = WhiteningNorm(3, eps=1e-2).to(dtype).train(training), WhiteningNorm(3, eps=1e-2).train(training)
    y = norm(x)
    assert y.dtype is dtype
    torch.testing.assert_close(y.float(), other(x.float()), rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(norm.running_mean.float(), other.running_mean, rtol=1e-2, atol=1e-2)


def test_it_trains_under_autocast():
    model = nn.Sequential(nn.Linear(4, 3), WhiteningNorm(3))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(correlated_data(8, 4).float())[:, 0].pow(3).sum()
    loss.backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


def test_integers_are_rejected(unchecked):
    with pytest.raises(TypeError, match=r"expected a floating-point tensor, got torch\.int64"):
        WhiteningNorm(3).eval()(torch.ones(2, 3, dtype=torch.long))


def test_equals_the_formula_of_the_paper():
    x = torch.randn(3, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = (x - x.mean(-1, keepdim=True)) / x.std(-1, correction=0, keepdim=True)
    torch.testing.assert_close(AdaNorm(scale=2.0, k=0.3, eps=0.0)(x), 2 * (1 - 0.3 * y) * y)


def test_the_gain_has_mean_scale():
    x = torch.randn(3, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = AdaNorm(scale=1.0, k=0.0)(x)
    gain = AdaNorm(scale=2.0, k=0.3)(x) / y
    torch.testing.assert_close(gain.mean(-1), torch.full((3,), 2.0, dtype=torch.float64))


def test_the_gradient_is_not_the_derivative():
    report = lawful.check(AdaNorm(), gradient(), inputs=shape("b 4"))
    assert report.verdicts[0].status == "refuted"


def test_nan_propagates_and_a_scalar_is_rejected(unchecked):
    assert AdaNorm()(torch.tensor([[1.0, torch.nan], [1.0, 2.0]])).isnan().tolist() == [[True, True], [False, False]]
    with pytest.raises(ValueError, match=r"expected x of shape \(\*batch, d\), got \(\)"):
        AdaNorm()(torch.tensor(1.0))


def claims() -> Iterator[Claim]:
    """Second derivations of normalization."""
    c, k, eps, inputs = 2.0, 0.3, 0.1, shape("b 4")
    norm = AdaNorm(scale=c, k=k, eps=eps)

    def equation(x):
        y = normalize(x, (-1,), eps=1e-5)
        return y - y.square() / 10

    def bound(x):
        variance = x.var(-1, correction=0)
        return -c * k * variance / (variance + eps)

    def constant_gain(x):
        gain = c * (1 - k * normalize(x, (-1,), eps=eps))
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            return torch.autograd.grad(normalize(leaf, (-1,), eps=eps), leaf, gain)[0]

    yield Claim(agreement(other=equation), AdaNorm(), inputs)
    yield Claim(agreement(other=bound), lambda x: norm(x).mean(-1), inputs, name="AdaNorm, mean")
    yield Claim(derivative(formula=constant_gain), norm, inputs)
    yield Claim(batch_independence(), norm, inputs)
    yield Claim(gradient(), partial(normalize, axes=(0, 2), eps=0.1), shape("b 2 n"), name="normalize")
    exact = partial(normalize, axes=(-1,), eps=0.0)
    for law in (shift_invariance(), homogeneity(degree=0.0)):
        yield Claim(law.excluding(ties), exact, inputs, name="normalize(eps=0)")

    def whiten(x):
        return WhiteningNorm(x.shape[1], eps=0.1).to(x)(x)

    def covariance(x):
        rows = whiten(x).movedim(1, -1).reshape(-1, 2)
        return rows.mT @ rows / len(rows)

    def regularized(x):
        rows = x.movedim(1, -1).reshape(-1, 2)
        a = rows.T.cov(correction=0) + 0.1 * torch.eye(2).to(x)
        return torch.eye(2).to(x) - 0.1 * torch.linalg.inv(a)

    yield Claim(agreement(other=regularized), covariance, shape("b 2 n"), name="WhiteningNorm, covariance")
    single = agreement(other=lambda x: normalize(x, (0, 2), eps=0.1))
    yield Claim(single, whiten, shape("b 1 n"), name="WhiteningNorm of one channel is a batch norm")

    def running(x):
        layer = WhiteningNorm(2, eps=0.1, momentum=0.3).to(x)
        layer(x)
        return layer.eval()(x)

    def averaged(x):
        one = torch.eye(2).to(x)
        axes, variances, _ = torch.linalg.svd(x.mT.cov(correction=0) + 0.1 * one)
        return (x - 0.3 * x.mean(0)) @ (0.7 * one + 0.3 * axes * variances.rsqrt() @ axes.mT)

    yield Claim(agreement(other=averaged), running, shape("b:2..5 2"), name="WhiteningNorm, running averages")


def test_defaults_equal_batch_norm():
    ours, theirs = WhiteningNorm(3), nn.BatchNorm1d(3)
    assert (ours.eps, ours.momentum) == (theirs.eps, theirs.momentum)
