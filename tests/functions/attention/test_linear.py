"""Linear attention."""

import pytest
import torch
from torch.nn import functional as F

from lawful.functions.attention import CAUSAL, NO_MASK, LinearAttention, Mask, elu_features, linear_attention
from lawful.laws import Claim, agreement, shape
from lawful.laws import mask as mask_input


def randn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).requires_grad_()


def quadratic(q, k, v, mask, features=elu_features):
    k, v = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    weights = features(q) @ features(k).mT
    seen = mask.dense(*weights.shape[-2:])
    weights = weights if seen is None else weights * seen.unsqueeze(-3)
    return weights / weights.sum(-1, keepdim=True).clamp_min(1e-300) @ v


@pytest.mark.parametrize(("t", "s"), [(5, 5), (1, 7), (9, 13), (13, 9)])
@pytest.mark.parametrize("chunk", [1, 4, 64])
def test_equals_the_quadratic_form(t, s, chunk):
    there = torch.arange(s).expand(2, s) % 3 > 0
    masks = [NO_MASK, CAUSAL, Mask(causal=True, prefix=3), Mask(padding=there), CAUSAL & Mask(padding=there)]
    for g, mask in [(g, mask) for g in (1, 2, 4) for mask in masks]:
        leaves = randn(2, 4, t, 3), randn(2, g, s, 3, seed=1), randn(2, g, s, 5, seed=2)
        ours, theirs = LinearAttention(chunk_size=chunk)(*leaves, mask=mask), quadratic(*leaves, mask)
        torch.testing.assert_close(ours, theirs)
        cotangent = randn(*ours.shape, seed=3)
        for found, expected in zip(*(torch.autograd.grad(y, leaves, cotangent) for y in (ours, theirs)), strict=True):
            torch.testing.assert_close(found, expected)


def test_the_feature_map_may_change_the_size():
    def squares(x):
        return (x.unsqueeze(-1) * x.unsqueeze(-2)).flatten(-2)

    leaves = randn(1, 2, 6, 3), randn(1, 2, 6, 3, seed=1), randn(1, 2, 6, 4, seed=2)
    torch.testing.assert_close(LinearAttention(squares)(*leaves, mask=CAUSAL), quadratic(*leaves, CAUSAL, squares))


def test_decoding_equals_the_full_pass_with_a_state_of_constant_size():
    q, k, v = randn(3, 4, 9, 2), randn(3, 2, 9, 2, seed=1), randn(3, 2, 9, 5, seed=2)
    kernel = LinearAttention(chunk_size=2)
    state, outputs, sizes = kernel.cache(), [], set()
    assert state.nbytes == state.length == 0
    for piece in torch.arange(9).split([4, 1, 1, 3]):
        outputs.append(state.attend(q[..., piece, :], k[..., piece, :], v[..., piece, :], mask=CAUSAL))
        sizes.add(state.nbytes)
    torch.testing.assert_close(torch.cat(outputs, -2), kernel(q, k, v, mask=CAUSAL))
    assert state.length == 9
    assert sizes == {3 * 2 * 2 * 6 * 8}


def test_beams_are_selected():
    q, k, v = randn(2, 1, 4, 2), randn(2, 1, 4, 2, seed=1), randn(2, 1, 4, 2, seed=2)
    state, rows = LinearAttention().cache().select(torch.tensor([0])), torch.tensor([1, 1, 0])
    state.attend(q[..., :3, :], k[..., :3, :], v[..., :3, :])
    chosen = state.select(rows)
    last = chosen.attend(*(x[rows][..., 3:, :] for x in (q, k, v)))
    torch.testing.assert_close(last, LinearAttention()(q, k, v, mask=CAUSAL)[rows][..., 3:, :])
    assert (state.length, chosen.length) == (3, 4)


def test_a_state_is_trimmed_to_all_or_nothing():
    q, k, v = (randn(1, 1, 4, 2, seed=n) for n in range(3))
    state = LinearAttention().cache()
    whole = state.attend(q, k, v)
    state.trim(4)
    with pytest.raises(ValueError, match="trimmed to 0 or 4 tokens, got 2"):
        state.trim(2)
    state.trim(0)
    torch.testing.assert_close(state.attend(q, k, v), whole)


def test_weights_reproduce_the_attention():
    q, k, v = randn(2, 4, 5, 2), randn(2, 2, 5, 2, seed=1), randn(2, 2, 5, 3, seed=2)
    weights = LinearAttention().weights(q, k, mask=CAUSAL)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, 5).to(weights))
    found = weights @ v.repeat_interleave(2, 1)
    torch.testing.assert_close(found, LinearAttention()(q, k, v, mask=CAUSAL))


def test_elu_features_are_accurate():
    x = torch.tensor([-30.0, -1.0, 0.0, 2.0], requires_grad=True)
    torch.testing.assert_close(elu_features(x)[1:], F.elu(x)[1:] + 1)
    torch.testing.assert_close(elu_features(x)[0], torch.tensor(-30.0).exp())
    huge = torch.tensor([200.0], requires_grad=True)
    assert torch.autograd.grad(elu_features(huge).sum(), huge)[0].item() == 1


@pytest.mark.parametrize("mask", [Mask(window=2), Mask(documents=torch.zeros(3, dtype=torch.long))])
def test_unsupported_masks_raise(mask):
    x = randn(1, 1, 3, 2)
    with pytest.raises(ValueError, match=r"causal masks, prefixes and padding, got (window|documents)"):
        LinearAttention()(x, x, x, mask=mask)
    with pytest.raises(ValueError, match="num_heads=3, num_kv_heads=2"):
        LinearAttention()(randn(1, 3, 2, 2), randn(1, 2, 2, 2), randn(1, 2, 2, 2))


def test_the_function_equals_the_kernel():
    q, k, v = randn(2, 4, 5, 3), randn(2, 2, 5, 3, seed=1), randn(2, 2, 5, 3, seed=2)
    torch.testing.assert_close(linear_attention(q, k, v, mask=CAUSAL), LinearAttention()(q, k, v, mask=CAUSAL))


def claims():
    """Second derivations of linear attention."""
    kernel = LinearAttention(chunk_size=2)
    heads = shape("b 4 t 2"), shape("b 2 s 2"), shape("b 2 s 3")
    masks = NO_MASK, CAUSAL, Mask(causal=True, prefix=2)

    def quadratic_form(q, k, v, mask):
        k, v = (torch.stack([x[:, 0], x[:, 0], x[:, 1], x[:, 1]], 1) for x in (k, v))
        q, k = (F.elu(x) + 1 for x in (q, k))
        weights = torch.einsum("bhtk,bhsk->bhts", q, k)
        visible = mask.dense(weights.shape[-2], weights.shape[-1])
        weights = weights if visible is None else weights * visible.unsqueeze(-3)
        total = weights.sum(-1, keepdim=True)
        return torch.einsum("bhts,bhsv->bhtv", weights / torch.where(total > 0, total, 1.0), v)

    def over_masks(f):
        def call(q, k, v, valid):
            padding = Mask(padding=valid)
            return torch.stack([f(q, k, v, mask=mask) for rule in masks for mask in (rule, rule & padding)])

        return call

    inputs = (*heads, mask_input("b s"))
    yield Claim(agreement(other=over_masks(quadratic_form)), over_masks(kernel), inputs, name="LinearAttention, masks")
    scaled = agreement(other=lambda q, k, v: quadratic_form(q / 3, k, v, NO_MASK))
    yield Claim(scaled, lambda q, k, v: kernel(q, k, v, scale=1 / 3), heads, name="LinearAttention, scaled")

    def weighted(q, k, v):
        weights = kernel.weights(q, k, mask=CAUSAL, scale=0.5)
        return torch.einsum("bhts,bhsv->bhtv", weights, torch.stack([v[:, n // 2] for n in range(4)], 1))

    average = agreement(other=lambda q, k, v: kernel(q, k, v, mask=CAUSAL, scale=0.5))
    yield Claim(average, weighted, heads, name="LinearAttention.weights")
    features = agreement(other=lambda x: x.clamp_min(0) + x.clamp_max(0).exp())
    yield Claim(features, elu_features, shape("b n"))
