"""Entropies and divergences."""

import math
from inspect import unwrap

import numpy as np
import pytest
import scipy.stats
import torch
from scipy.spatial.distance import jensenshannon

from lawful.functions import (
    cross_entropy,
    entropy,
    entropy_from_logits,
    js_distance,
    js_divergence,
    kl_divergence,
    kl_divergence_from_logits,
    self_information,
    total_variation,
)
from lawful.laws import Claim, agreement, boundedness, finiteness, probabilities, shape, tokens

PAIRS = (cross_entropy, js_divergence, js_distance, kl_divergence, total_variation)


def logits(*shape, seed=0, dtype=torch.float64):
    return 2 * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def distributions(*shape, seed=0, dtype=torch.float64, zeros=False):
    x = logits(*shape, seed=seed, dtype=dtype)
    return x.masked_fill((x < -1) & (x < x.amax(-1, keepdim=True)), -math.inf).softmax(-1) if zeros else x.softmax(-1)


@pytest.mark.parametrize("zeros", [False, True])
def test_equals_scipy(zeros):
    p, q = distributions(20, 5, zeros=zeros), distributions(20, 5, seed=1, zeros=zeros)
    np.testing.assert_allclose(entropy(p), scipy.stats.entropy(p, axis=-1), atol=1e-14)
    np.testing.assert_allclose(kl_divergence(p, q), scipy.stats.entropy(p, q, axis=-1), rtol=1e-10)
    np.testing.assert_allclose(js_distance(p, q), jensenshannon(p, q, axis=-1), rtol=1e-10)
    np.testing.assert_allclose(js_divergence(p, q), jensenshannon(p, q, axis=-1) ** 2, rtol=1e-10)
    both = scipy.stats.entropy(p, q, axis=-1) + scipy.stats.entropy(p, axis=-1)
    np.testing.assert_allclose(cross_entropy(p, q), both, rtol=1e-10)
    np.testing.assert_allclose(total_variation(p, q), np.abs(p.numpy() - q.numpy()).sum(-1) / 2, rtol=1e-12)
    if zeros:
        assert kl_divergence(p, q).isinf().any()
        assert kl_divergence(p, q).isfinite().any()


def test_from_logits_is_accurate_where_probabilities_round():
    x, y = torch.tensor([200.0, 0.0]), torch.tensor([0.0, 200.0])
    assert float(kl_divergence_from_logits(x, y)) == 200.0
    assert math.isinf(kl_divergence(x.softmax(-1), y.softmax(-1)))
    assert float(entropy_from_logits(torch.tensor([30.0, 0.0]))) == pytest.approx(31 * math.exp(-30))


ZERO, HALF = [0.0, 1.0], [0.5, 0.5]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("function", PAIRS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("pair", [(ZERO, HALF), (HALF, HALF), (ZERO, ZERO), (HALF, ZERO), (ZERO, [1.0, 0.0])])
def test_gradients_are_finite_where_the_value_is(function, pair, dtype):
    p, q = (torch.tensor(v, dtype=dtype, requires_grad=True) for v in pair)
    value = function(p, q)
    assert not value.isnan()
    if value.isfinite():
        value.backward()
        assert p.grad.isfinite().all()
        assert q.grad.isfinite().all()


def test_cross_entropy_gradient_at_a_zero_probability():
    p, q = torch.tensor(ZERO, requires_grad=True), torch.tensor([0.2, 0.8])
    cross_entropy(p, q).backward()
    torch.testing.assert_close(p.grad, -q.log())


def test_gradients():
    p, q = distributions(2, 4), distributions(2, 4, seed=1)
    along = torch.randn(2, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    along -= along.mean(-1, keepdim=True)
    for function in PAIRS:
        inputs = tuple(torch.zeros(1, dtype=torch.float64, requires_grad=True) for _ in range(2))
        assert torch.autograd.gradcheck(lambda s, t, f=function: f(p + s * along, q - t * along), inputs, eps=1e-7)


def test_information_and_extremes_of_entropy():
    assert self_information(torch.tensor(0.0)).isinf()
    assert float(self_information(torch.tensor(0.25))) == pytest.approx(2 * math.log(2))
    assert float(entropy(torch.full((8,), 1 / 8))) == pytest.approx(math.log(8))
    assert float(entropy(torch.eye(8)[0])) == 0


@pytest.mark.parametrize("function", PAIRS, ids=lambda f: f.__name__)
def test_invalid_distributions_raise(function):
    p, q = torch.tensor(HALF), torch.tensor(HALF)
    for bad in ([1.1, -0.1], [[0.5, 0.5], [1.5, -0.5]]):
        with pytest.raises(ValueError, match="must not be negative, got -0"):
            function(torch.tensor(bad), q)
    with pytest.raises(ValueError, match=r"must sum to 1 along the last dimension, got 0\.9"):
        function(p, torch.tensor([0.5, 0.4]))
    for n in (1, 3):
        with pytest.raises(ValueError, match=rf"must have the same last dimension, got \(2,\) and \({n},\)"):
            function(p, torch.ones(n) / n)
    with pytest.raises(ValueError, match="got 0"):
        function(torch.ones(0), torch.ones(0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rounding_errors_pass(dtype):
    p = distributions(50, 1000, dtype=torch.float32).to(dtype)
    assert kl_divergence(p, p).abs().max() == 0
    assert entropy(torch.tensor([1.0 + 1e-7, -1e-7])).isfinite()


@pytest.mark.parametrize("function", PAIRS, ids=lambda f: f.__name__)
def test_nan_propagates(function):
    nan, q = torch.tensor([math.nan, 0.5]), torch.tensor([0.0, 1.0])
    assert function(nan, q).isnan()
    assert function(q, nan).isnan()


@pytest.mark.parametrize("function", PAIRS, ids=lambda f: f.__name__)
def test_transforms(function):
    p, q = distributions(5, 4), distributions(5, 4, seed=1)
    torch.testing.assert_close(torch.vmap(function)(p, q), function(p, q))
    rows = torch.vmap(torch.func.grad(function))(p, q)
    torch.testing.assert_close(rows, torch.func.grad(lambda p: function(p, q).sum())(p))


def test_self_information_of_invalid_probabilities_raises():
    for bad in (-0.5, 1.5):
        with pytest.raises(ValueError, match=f"between 0 and 1, got {bad}"):
            self_information(torch.tensor([0.5, bad]))
    with pytest.raises(TypeError, match="floating-point dtype"):
        self_information(torch.tensor([0, 1]))
    assert self_information(torch.tensor(math.nan)).isnan()
    assert torch.vmap(self_information)(torch.tensor(HALF)).shape == (2,)


@pytest.mark.parametrize(("dtype", "gap"), [(torch.float32, 20.0), (torch.float32, 80.0), (torch.float64, 40.0)])
def test_entropy_from_logits_is_accurate(dtype, gap):
    rest = math.exp(-gap)
    expected = math.log1p(rest) + gap * rest / (1 + rest)
    x = torch.tensor([0.0, gap], dtype=dtype, requires_grad=True)
    found = entropy_from_logits(x)
    assert float(found.detach()) == pytest.approx(expected, rel=100 * torch.finfo(dtype).eps)
    slope = torch.autograd.grad(found, x)[0]
    assert float(slope[0]) == pytest.approx(gap * rest, rel=1e-3)


def test_entropy_from_logits_has_right_derivatives():
    x = torch.cat([logits(3, 4), torch.zeros(1, 4, dtype=torch.float64)]).requires_grad_()
    assert torch.autograd.gradcheck(entropy_from_logits, x)
    assert torch.autograd.gradgradcheck(entropy_from_logits, x)
    x = torch.tensor([0.0, 1.0, -math.inf], requires_grad=True)
    assert torch.autograd.grad(entropy_from_logits(x), x)[0].isfinite().all()
    torch.testing.assert_close(torch.vmap(entropy_from_logits)(logits(3, 4)), entropy_from_logits(logits(3, 4)))


def test_js_distance_of_close_distributions_is_accurate():
    p = distributions(50, 6, dtype=torch.float32)
    for size in (1e-2, 1e-4, 1e-6):
        off = size * p * torch.randn(50, 6, generator=torch.Generator().manual_seed(3))
        q = p + off - p * off.sum(-1, keepdim=True)
        t = ((p.double() - q.double()) / (p.double() + q.double())).numpy()
        m = (p.double() + q.double()).numpy() / 2
        expected = np.sqrt((m * (np.log1p(-(t**2)) + 2 * t * np.arctanh(t))).sum(-1) / 2)
        np.testing.assert_allclose(js_distance(p, q), expected, rtol=1e-5)


def test_from_logits_equals_softmax():
    x, y = logits(20, 5), logits(20, 5, seed=1)
    torch.testing.assert_close(entropy_from_logits(x), entropy(x.softmax(-1)))
    torch.testing.assert_close(kl_divergence_from_logits(x, y), kl_divergence(x.softmax(-1), y.softmax(-1)))


def test_impossible_outcomes_in_logits():
    x, y = (torch.tensor([0.0, 1.0, -math.inf], requires_grad=True) for _ in range(2))
    value = kl_divergence_from_logits(x, y)
    assert value.isfinite()
    assert all(slope.isfinite().all() for slope in torch.autograd.grad(value, (x, y)))
    assert math.isinf(kl_divergence_from_logits(torch.zeros(3), torch.tensor([0.0, 1.0, -math.inf])))


@pytest.mark.parametrize("function", [*PAIRS, kl_divergence_from_logits], ids=lambda f: f.__name__)
def test_different_outcomes_and_integers_raise(function):
    plain = unwrap(js_divergence if function is js_distance else function)
    with pytest.raises(ValueError, match=r"must have the same last dimension, got \(2,\) and \(1,\)"):
        plain(torch.tensor(HALF), torch.tensor([1.0]))
    with pytest.raises(TypeError, match=r"floating-point dtype, got torch\.int64"):
        plain(torch.tensor([1, 0]), torch.tensor([1, 0]))
    assert function(torch.tensor([HALF] * 3), torch.tensor(HALF)).shape == (3,)


def total_variation_over_events(p, q):
    """The largest difference over all 2ⁿ events, by definition."""
    n = p.shape[-1]
    events = torch.arange(2**n).unsqueeze(-1) >> torch.arange(n) & 1
    return ((p - q) @ events.to(p).mT).abs().amax(-1)


def claims():
    """Second derivations of entropies and divergences."""
    one, pair, logits = probabilities("b 4"), (probabilities("b 4"), probabilities("b 4")), (shape("b 4"), shape("b 4"))
    yield Claim(boundedness(low=0.0), self_information, one)
    yield Claim(agreement(other=lambda p: (p * self_information(p)).sum(-1)), entropy, one)
    yield Claim(agreement(other=lambda p: torch.special.entr(p).sum(-1)), entropy, one)
    independent = agreement(other=lambda p, q: entropy((p.unsqueeze(-1) * q.unsqueeze(-2)).flatten(-2)))
    yield Claim(independent, lambda p, q: entropy(p) + entropy(q), pair, "entropy(p) + entropy(q)")
    yield Claim(finiteness(), entropy, one)
    yield Claim(agreement(other=lambda p, q: -torch.xlogy(p, q).sum(-1)), cross_entropy, pair)
    one_hot = agreement(other=lambda i, q: self_information(q.gather(-1, i.unsqueeze(-1)).squeeze(-1)))
    hot = (tokens("b", vocab_size=4), one)
    yield Claim(one_hot, lambda i, q: cross_entropy(torch.eye(4).to(q)[i], q), hot, "cross_entropy(one-hot, q)")
    yield Claim(agreement(other=lambda x: entropy(x.softmax(-1))), entropy_from_logits, shape("b 4"))
    yield Claim(agreement(other=lambda p, q: (p * (p / q).log()).sum(-1)), kl_divergence, pair)
    yield Claim(agreement(other=lambda p, q: kl_divergence(p, q) + entropy(p)), cross_entropy, pair, "CE = KL + H")
    softmaxes = agreement(other=lambda x, y: kl_divergence(x.softmax(-1), y.softmax(-1)))
    yield Claim(softmaxes, kl_divergence_from_logits, logits)
    middle = agreement(other=lambda p, q: (kl_divergence(p, (p + q) / 2) + kl_divergence(q, (p + q) / 2)) / 2)
    mixture = agreement(other=lambda p, q: entropy((p + q) / 2) - (entropy(p) + entropy(q)) / 2)
    for law in (middle, mixture, agreement(other=lambda p, q: js_distance(p, q).square())):
        yield Claim(law, js_divergence, pair)
    yield Claim(agreement(other=total_variation_over_events), total_variation, pair)
    yield Claim(agreement(other=lambda p, q: (p - q).abs().sum(-1) / 2), total_variation, pair)
