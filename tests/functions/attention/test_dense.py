from functools import partial
from itertools import cycle

import pytest
import torch
from torch.nn import functional as F

from lawful.functions.attention import (
    CAUSAL,
    NO_MASK,
    ChunkedAttention,
    Mask,
    SlidingWindowAttention,
    apply_weights,
    attention_scores,
    attention_weights,
    fused_attention,
    masked_softmax,
    reference_attention,
    window_attention,
)

KERNELS = {
    "plain": reference_attention,
    "fused": fused_attention,
    "chunked": ChunkedAttention(size=4),
    "chunked plain": ChunkedAttention(size=3, kernel=reference_attention),
}


def drawn(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def qkv(t, s, *, batch=(2,), h=4, g=4, k=3, v=3, dtype=torch.float64):
    sizes = (h, t, k), (g, s, k), (g, s, v)
    return [drawn(*batch, *size, seed=n, dtype=dtype).requires_grad_() for n, size in enumerate(sizes)]


def gradients(y, leaves):
    return torch.autograd.grad(y, leaves, drawn(*y.shape, seed=9, dtype=y.dtype))


def masks(t, s, batch):
    there = drawn(*batch, s, seed=5) > -0.3
    found = [
        NO_MASK,
        CAUSAL,
        Mask(causal=True, prefix=2),
        Mask(window=2),
        Mask(causal=True, window=9),
        Mask(padding=there),
        CAUSAL & Mask(padding=there),
        Mask(padding=torch.zeros(s, dtype=torch.bool)),
        Mask(pairs=drawn(*batch, t, s, seed=6) > 0),
    ]
    if t <= s:
        found.append(Mask(causal=True, documents=(drawn(*batch, s, seed=7) > 0).long(), padding=there))
    return found


def by_torch(q, k, v, mask, bias=None):
    """PyTorch's own, told everything explicitly, in its plain form."""
    seen = mask.dense(q.shape[-2], k.shape[-2])
    added = torch.zeros(q.shape[-2], k.shape[-2], dtype=q.dtype) if bias is None else bias
    added = added if seen is None else added.masked_fill(~seen.unsqueeze(-3), -torch.inf)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=added, enable_gqa=True)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize(("t", "s"), [(5, 5), (1, 7), (9, 13), (6, 4)])
def test_equals_pytorch_under_every_mask(kernel, t, s):
    for batch, g, v in (((), 4, 3), ((2,), 2, 5), ((2, 1), 1, 2)):
        leaves = qkv(t, s, batch=batch, g=g, v=v)
        for mask, bias in zip(masks(t, s, batch), cycle((None, drawn(4, t, s, seed=8))), strict=False):
            ours, theirs = kernel(*leaves, mask=mask, bias=bias), by_torch(*leaves, mask, bias)
            torch.testing.assert_close(ours, theirs)
            for found, wanted in zip(gradients(ours, leaves), gradients(theirs, leaves), strict=True):
                torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("block", [None, 1, 3])
@pytest.mark.parametrize("window", [1, 2, 7, 40])
@pytest.mark.parametrize(("t", "s"), [(10, 10), (4, 11), (1, 9), (5, 3), (70, 70)])
def test_a_window_equals_its_mask(block, window, t, s):
    leaves, bias = qkv(t, s, h=2, g=1, v=4), drawn(2, 1, t, s, seed=8)
    for mask in masks(t, s, (2,)):
        seen = mask & Mask(window=window)
        ours = SlidingWindowAttention(block=block, span=8)(*leaves, mask=seen, bias=bias)
        theirs = reference_attention(*leaves, mask=seen, bias=bias)
        torch.testing.assert_close(ours, theirs)
        for found, wanted in zip(gradients(ours, leaves), gradients(theirs, leaves), strict=True):
            torch.testing.assert_close(found, wanted)


def slope(i, j):
    return -(i.unsqueeze(-1) - j.unsqueeze(-2)).abs().double().unsqueeze(-3) * torch.tensor([1.0, 0.5])[:, None, None]


@pytest.mark.parametrize("kernel", [*KERNELS.values(), window_attention, SlidingWindowAttention(block=2, span=2)])
def test_a_bias_may_be_a_function_of_positions(kernel):
    leaves, mask = qkv(5, 9, h=2, g=2), Mask(causal=True, window=4)
    positions = torch.arange(9)
    wanted = reference_attention(*leaves, mask=mask, bias=slope(positions[-5:], positions))
    torch.testing.assert_close(kernel(*leaves, mask=mask, bias=slope), wanted)


@pytest.mark.parametrize("kernel", [*KERNELS.values(), SlidingWindowAttention(block=2, span=2)])
def test_a_bias_can_be_learned(kernel):
    leaves, bias = qkv(7, 7), drawn(4, 7, 7, seed=8).requires_grad_()
    mask, scale = Mask(window=3), drawn(1, seed=3).requires_grad_()

    def by_position(i, j):
        return scale * slope(i, j)[..., :1, :, :]

    for given, leaf in ((bias, bias), (by_position, scale)):
        ours, theirs = (
            gradients(f(*leaves, mask=mask, bias=given), [leaf, *leaves]) for f in (kernel, reference_attention)
        )
        for found, wanted in zip(ours, theirs, strict=True):
            torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("kernel", [*KERNELS.values(), partial(sliding_window_attention, mask=Mask(causal=True, window=50))])
def test_a_few_queries_over_many_keys_see_what_they_see_in_the_full_pass(kernel):
    q, k, v = qkv(9, 9)
    call = partial(kernel, mask=CAUSAL) if not isinstance(kernel, partial) else kernel
    torch.testing.assert_close(call(q[..., -3:, :], k, v), call(q, k, v)[..., -3:, :])


@pytest.mark.parametrize("kernel", [*KERNELS.values(), window_attention])
def test_a_row_that_sees_nothing_is_0_and_has_no_gradient(kernel):
    leaves = qkv(6, 6, dtype=torch.float32)
    there = torch.ones(2, 6, dtype=torch.bool)
    there[0] = there[1, :2] = False
    y = kernel(*leaves, mask=Mask(causal=True, window=8, padding=there))
    assert y[0].abs().max() == 0
    assert y[1, :, :2].abs().max() == 0
    for found in gradients(y, leaves):
        assert found.isfinite().all()
        assert found[0].abs().max() == 0


def test_weights_are_probabilities_and_the_steps_make_the_whole():
    q, k, v = qkv(4, 6, g=2)
    weights = attention_weights(q, k, mask=CAUSAL, scale=0.3)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, 4, dtype=torch.float64))
    assert weights[..., 0, 3:].abs().max() == 0
    torch.testing.assert_close(weights, masked_softmax(attention_scores(q, k, scale=0.3), mask=CAUSAL))
    torch.testing.assert_close(apply_weights(weights, v), fused_attention(q, k, v, mask=CAUSAL, scale=0.3))


def test_half_precision_is_kept():
    q, k, v = (x.detach().to(torch.bfloat16) for x in qkv(5, 5, v=4))
    wanted = reference_attention(q.float(), k.float(), v.float(), mask=CAUSAL)
    for kernel in (fused_attention, reference_attention, ChunkedAttention(size=2)):
        y = kernel(q, k, v, mask=CAUSAL, bias=torch.zeros(5, 5))
        assert y.dtype == torch.bfloat16
        torch.testing.assert_close(y.float(), wanted, atol=3e-2, rtol=3e-2)


def test_of_a_bias_there_is_never_more_than_a_chunk():
    leaves, asked = qkv(64, 64), []

    def bias(i, j):
        asked.append((len(i), len(j)))
        return torch.zeros(len(i), len(j), dtype=torch.float64)

    y = ChunkedAttention(size=16)(*leaves, mask=CAUSAL, bias=bias)
    assert asked == [(16, 16), (16, 32), (16, 48), (16, 64)]
    gradients(y, leaves)
    assert sorted(asked) == sorted(2 * [(16, 16), (16, 32), (16, 48), (16, 64)])


def test_errors_say_what_was_wanted_and_what_came():
    q, k, v = (x.detach() for x in qkv(2, 2, h=4, g=3))
    for kernel in (reference_attention, fused_attention):
        with pytest.raises(ValueError, match="got h=4, g=3"):
            kernel(q, k, v)
    with pytest.raises(ValueError, match="a mask with a window: got none"):
        sliding_window_attention(q, q, q, mask=CAUSAL)
    with pytest.raises(ValueError, match="size must be at least 1: got 0"):
        ChunkedAttention(size=0)
    with pytest.raises(ValueError, match="block must be at least 1: got -1"):
        SlidingWindowAttention(block=-1)
