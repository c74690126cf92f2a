"""Soft lookup, kernel regression and self-attention without parameters."""

from functools import partial

import numpy as np
import pytest
import torch

from lawful.functions.attention import (
    CAUSAL,
    fused_attention,
    kernel_regression,
    reference_attention,
    self_attention,
    soft_lookup,
)
from lawful.laws import AtMost, Claim, agreement, law, shape


def randn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_lookup_at_low_temperature_is_a_dictionary():
    keys, values = randn(7, 4), randn(7, 3, seed=1)
    keys = keys / keys.norm(dim=-1, keepdim=True)
    found = soft_lookup(keys[[5, 0, 5]], keys, values, temperature=1e-3)
    torch.testing.assert_close(found, values[[5, 0, 5]])


def test_lookup_at_high_temperature_is_the_mean():
    values = randn(7, 3)
    torch.testing.assert_close(soft_lookup(randn(1, 4), randn(7, 4), values, temperature=1e9)[0], values.mean(0))


@pytest.mark.parametrize("kernel", [reference_attention, fused_attention])
@pytest.mark.parametrize("away", [0.0, 1e6])
def test_kernel_regression_equals_numpy(kernel, away):
    x, keys, values = randn(2, 5, 3) + away, randn(2, 6, 3, seed=1) + away, randn(2, 6, 2, seed=2)
    squares = ((x.numpy()[:, :, None] - keys.numpy()[:, None]) ** 2).sum(-1)
    weights = np.exp(-squares / (2 * 0.4**2))
    expected = weights @ values.numpy() / weights.sum(-1, keepdims=True)
    found = kernel_regression(x, keys, values, bandwidth=0.4, kernel=kernel)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_the_nearest_key_decides_with_a_small_bandwidth():
    x, keys, values = randn(5, 3), randn(6, 3, seed=1), randn(6, 2, seed=2)
    nearest = torch.cdist(x, keys).argmin(-1)
    torch.testing.assert_close(kernel_regression(x, keys, values, bandwidth=1e-3), values[nearest])


def test_self_attention_without_parameters():
    x = randn(2, 5, 4)
    torch.testing.assert_close(self_attention(x, scale=1.0), (x @ x.mT).softmax(-1) @ x)
    torch.testing.assert_close(self_attention(x, mask=CAUSAL)[:, 0], x[:, 0])


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan")])
def test_temperature_and_bandwidth_must_be_positive(value):
    x = randn(2, 3)
    with pytest.raises(ValueError, match=f"temperature must be greater than 0, got {value}"):
        soft_lookup(x, x, x, temperature=value)
    with pytest.raises(ValueError, match=f"bandwidth must be greater than 0, got {value}"):
        kernel_regression(x, x, x, bandwidth=value)


@law("|f(λq, k, v) - v_best| ≤ Σ_j |v_j - v_best| exp(-λ(q·k_best - q·k_j))", discover_with=None)
def dictionary_limit(f, q, k, v, *, draw):
    """Scaled queries return the value of the best key, with an error exponential in its margin."""
    scale = draw.choice((1.0, 10.0, 100.0), "λ")
    scores = (q.unsqueeze(-2) * k.unsqueeze(-3)).sum(-1)
    top, best = scores.max(-1, keepdim=True)
    chosen = v.gather(-2, best.expand(*best.shape[:-1], v.shape[-1]))
    away = (v.unsqueeze(-3) - chosen.unsqueeze(-2)).abs()
    bound = (away * (scale * (scores - top)).exp().unsqueeze(-1)).sum(-2)
    return AtMost((f(scale * q, k, v) - chosen).abs(), bound)


def normalized(scores):
    return (scores - scores.logsumexp(-1, keepdim=True)).exp()


def claims():
    """Second derivations of attention without parameters."""
    table = shape("b t 3"), shape("b s 3"), shape("b s 2")

    def lookup_equation(q, k, v):
        return torch.einsum("bts,bsv->btv", normalized(2 * torch.einsum("btk,bsk->bts", q, k)), v)

    def regression(x, k, v):
        scores = -(x.unsqueeze(-2) - k.unsqueeze(-3)).square().sum(-1) / (2 * 0.7**2)
        return torch.einsum("bts,bsv->btv", normalized(scores), v)

    def equation(x):
        scores = torch.einsum("bid,bjd->bij", x, x)
        weights = [normalized(scale * scores) for scale in (3**-0.5, 0.2)]
        return torch.stack([torch.einsum("bij,bjd->bid", w, x) for w in weights])

    cold = partial(soft_lookup, temperature=0.5)
    yield Claim(agreement(other=lookup_equation), cold, table, name="soft_lookup(temperature=0.5)")
    yield Claim(dictionary_limit(), soft_lookup, table)
    narrow = partial(kernel_regression, bandwidth=0.7)
    yield Claim(agreement(other=regression), narrow, table, name="kernel_regression(bandwidth=0.7)")
    both = "self_attention"
    yield Claim(
        agreement(other=equation),
        lambda x: torch.stack([self_attention(x), self_attention(x, scale=0.2)]),
        shape("b t 3"),
        both,
    )
