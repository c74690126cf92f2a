"""Softmax attention: dense, fused, chunked and sliding-window kernels."""

from dataclasses import replace
from functools import partial, reduce
from itertools import cycle, product
from operator import and_

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
    chunked_attention,
    fused_attention,
    masked_softmax,
    reference_attention,
    single_head,
    sliding_window_attention,
)
from lawful.laws import Claim, agreement, fully_masked_row_is_finite, second_order_gradient, shape, tokens
from lawful.laws import mask as mask_input

KERNELS = {
    "reference": reference_attention,
    "fused": fused_attention,
    "chunked": ChunkedAttention(4),
    "chunked reference": ChunkedAttention(3, kernel=reference_attention),
}


def randn(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def qkv(t, s, *, batch=(2,), h=4, g=4, k=3, v=3, dtype=torch.float64):
    sizes = (h, t, k), (g, s, k), (g, s, v)
    return [randn(*batch, *size, seed=n, dtype=dtype).requires_grad_() for n, size in enumerate(sizes)]


def gradients(y, leaves):
    return torch.autograd.grad(y, leaves, randn(*y.shape, seed=9, dtype=y.dtype))


def rules(t, s, batch):
    """The options of masks; a mask with several rules is also built with `&`."""
    there = {"padding": randn(*batch, s, seed=5) > -0.3}
    found = [
        [{}],
        [{"causal": True}],
        [{"causal": True, "prefix": 2}],
        [{"window": 2}],
        [{"causal": True, "window": 9}],
        [there],
        [{"causal": True}, there],
        [{"padding": torch.zeros(s, dtype=torch.bool)}],
        [{"pairs": randn(*batch, t, s, seed=6) > 0}],
    ]
    if t <= s:
        found.append([{"causal": True, "documents": (randn(*batch, s, seed=7) > 0).long(), **there}])
    return found


def combined(parts):
    return reduce(and_, (Mask(**part) for part in parts))


def masks(t, s, batch):
    return [combined(parts) for parts in rules(t, s, batch)]


def visible(t, s, batch, *, causal=False, window=None, prefix=0, padding=None, documents=None, pairs=None):
    """Which key each query sees, one entry at a time; the last query is at the last key."""
    seen = torch.ones(*batch, t, s, dtype=torch.bool)
    for query, key in product(range(t), range(s)):
        position = s - t + query
        entry = seen[..., query, key]
        entry &= not causal or key <= position or key < prefix
        entry &= window is None or abs(position - key) < window
        entry &= padding is None or padding[..., key]
        entry &= documents is None or documents[..., position] == documents[..., key]
        entry &= pairs is None or pairs[..., query, key]
    return seen


def torch_attention(q, k, v, seen, bias=None):
    """PyTorch's math backend with an explicit mask."""
    added = torch.zeros(q.shape[-2], k.shape[-2], dtype=q.dtype) if bias is None else bias
    added = added.masked_fill(~seen.unsqueeze(-3), -torch.inf)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=added, enable_gqa=True)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize(
    ("t", "s", "batch", "g", "v"), [(5, 5, (), 4, 3), (1, 7, (2,), 2, 5), (9, 13, (2, 1), 1, 2), (6, 4, (2,), 2, 5)]
)
def test_equals_pytorch_under_every_mask(kernel, t, s, batch, g, v):
    leaves = qkv(t, s, batch=batch, g=g, v=v)
    for parts, bias in zip(rules(t, s, batch), cycle((None, randn(4, t, s, seed=8))), strict=False):
        seen = reduce(and_, (visible(t, s, batch, **part) for part in parts))
        ours, theirs = kernel(*leaves, mask=combined(parts), bias=bias), torch_attention(*leaves, seen, bias)
        torch.testing.assert_close(ours, theirs)
        for found, expected in zip(gradients(ours, leaves), gradients(theirs, leaves), strict=True):
            torch.testing.assert_close(found, expected)


def block_window_sizes():
    """All pairs of block size and sequence lengths, with a window each; the other windows are long."""
    blocks, windows, sizes = (None, 1, 3), (1, 2, 7, 40), ((10, 10), (4, 11), (1, 9), (5, 3), (30, 30))
    for n, (block, size) in enumerate(product(blocks, sizes)):
        for window in windows:
            marks = () if window == windows[n % len(windows)] else pytest.mark.long
            yield pytest.param(block, window, *size, marks=marks)


@pytest.mark.parametrize(("block", "window", "t", "s"), list(block_window_sizes()))
def test_sliding_window_equals_the_dense_mask(block, window, t, s):
    leaves, bias = qkv(t, s, h=2, g=1, v=4), randn(2, 1, t, s, seed=8)
    for mask in masks(t, s, (2,)):
        seen = mask & Mask(window=window)
        ours = SlidingWindowAttention(block_size=block, segment_size=8)(*leaves, mask=seen, bias=bias)
        theirs = reference_attention(*leaves, mask=seen, bias=bias)
        torch.testing.assert_close(ours, theirs)
        for found, expected in zip(gradients(ours, leaves), gradients(theirs, leaves), strict=True):
            torch.testing.assert_close(found, expected)


def slope(i, j):
    return -(i.unsqueeze(-1) - j.unsqueeze(-2)).abs().double().unsqueeze(-3) * torch.tensor([1.0, 0.5])[:, None, None]


@pytest.mark.parametrize(
    "kernel", [*KERNELS.values(), sliding_window_attention, SlidingWindowAttention(block_size=2, segment_size=2)]
)
def test_bias_as_a_function_of_positions(kernel):
    leaves, mask = qkv(5, 9, h=2, g=2), Mask(causal=True, window=4)
    positions = torch.arange(9)
    expected = reference_attention(*leaves, mask=mask, bias=slope(positions[-5:], positions))
    torch.testing.assert_close(kernel(*leaves, mask=mask, bias=slope), expected)


@pytest.mark.parametrize("kernel", [*KERNELS.values(), SlidingWindowAttention(block_size=2, segment_size=2)])
def test_gradient_of_the_bias(kernel):
    leaves, bias = qkv(7, 7), randn(4, 7, 7, seed=8).requires_grad_()
    mask, scale = Mask(window=3), randn(1, seed=3).requires_grad_()

    def by_position(i, j):
        return scale * slope(i, j)[..., :1, :, :]

    for given, leaf in ((bias, bias), (by_position, scale)):
        ours, theirs = (
            gradients(f(*leaves, mask=mask, bias=given), [leaf, *leaves]) for f in (kernel, reference_attention)
        )
        for found, expected in zip(ours, theirs, strict=True):
            torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    "kernel", [*KERNELS.values(), partial(sliding_window_attention, mask=Mask(causal=True, window=50))]
)
def test_last_queries_equal_the_full_pass(kernel):
    q, k, v = qkv(9, 9)
    call = partial(kernel, mask=CAUSAL) if not isinstance(kernel, partial) else kernel
    torch.testing.assert_close(call(q[..., -3:, :], k, v), call(q, k, v)[..., -3:, :])


@pytest.mark.parametrize("kernel", [*KERNELS.values(), sliding_window_attention])
def test_fully_masked_rows_are_zero_with_zero_gradient(kernel):
    leaves = qkv(6, 6, dtype=torch.float32)
    there = torch.ones(2, 6, dtype=torch.bool)
    there[0] = there[1, :2] = False
    y = kernel(*leaves, mask=Mask(causal=True, window=8, padding=there))
    assert y[0].abs().max() == 0
    assert y[1, :, :2].abs().max() == 0
    for found in gradients(y, leaves):
        assert found.isfinite().all()
        assert found[0].abs().max() == 0


def test_steps_compose_to_attention():
    q, k, v = qkv(4, 6, g=2)
    weights = attention_weights(q, k, mask=CAUSAL, scale=0.3)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, 4, dtype=torch.float64))
    assert weights[..., 0, 3:].abs().max() == 0
    torch.testing.assert_close(weights, masked_softmax(attention_scores(q, k, scale=0.3), mask=CAUSAL))
    torch.testing.assert_close(apply_weights(weights, v), fused_attention(q, k, v, mask=CAUSAL, scale=0.3))


def test_bfloat16_is_preserved():
    q, k, v = (x.detach().to(torch.bfloat16) for x in qkv(5, 5, v=4))
    expected = reference_attention(q.float(), k.float(), v.float(), mask=CAUSAL)
    for kernel in (fused_attention, reference_attention, ChunkedAttention(2)):
        y = kernel(q, k, v, mask=CAUSAL, bias=torch.zeros(5, 5))
        assert y.dtype == torch.bfloat16
        torch.testing.assert_close(y.float(), expected, atol=3e-2, rtol=3e-2)


def test_the_bias_is_evaluated_chunk_by_chunk():
    leaves, calls = qkv(64, 64), []

    def bias(i, j):
        calls.append((len(i), len(j)))
        return torch.zeros(len(i), len(j), dtype=torch.float64)

    y = ChunkedAttention(16)(*leaves, mask=CAUSAL, bias=bias)
    assert calls == [(16, 16), (16, 32), (16, 48), (16, 64)]
    gradients(y, leaves)
    assert sorted(calls) == sorted(2 * [(16, 16), (16, 32), (16, 48), (16, 64)])


def test_chunks_read_only_the_keys_of_their_window():
    lengths = []

    def kernel(q, k, v, **options):
        lengths.append(k.shape[-2])
        return reference_attention(q, k, v, **options)

    q, k = torch.ones(1, 1, 8, 2), torch.ones(1, 1, 12, 2)
    chunked_attention(q, k, k, chunk_size=4, kernel=kernel, mask=Mask(causal=True, window=3))
    assert lengths == [4 + 3 - 1] * 2


def test_wrong_arguments_raise():
    q, k, v = (x.detach() for x in qkv(2, 2, h=4, g=3))
    for kernel in (reference_attention, fused_attention):
        with pytest.raises(ValueError, match="got num_heads=4, num_kv_heads=3"):
            kernel(q, k, v)
    with pytest.raises(ValueError, match="needs a window"):
        sliding_window_attention(q, q, q, mask=CAUSAL)
    with pytest.raises(ValueError, match="chunk_size must be at least 1, got 0"):
        ChunkedAttention(0)
    with pytest.raises(ValueError, match="block_size must be at least 1, got -1"):
        SlidingWindowAttention(block_size=-1)
    with pytest.raises(ValueError, match="window must be at least 1, got 0"):
        SlidingWindowAttention(0)


def test_functions_equal_their_kernels():
    q, k, v = qkv(40, 40)
    expected = reference_attention(q, k, v, mask=Mask(causal=True, window=5))
    torch.testing.assert_close(sliding_window_attention(q, k, v, window=5, mask=CAUSAL), expected)
    torch.testing.assert_close(SlidingWindowAttention(5)(q, k, v, mask=CAUSAL), expected)
    torch.testing.assert_close(SlidingWindowAttention(9)(q, k, v, mask=Mask(causal=True, window=5)), expected)
    causal = reference_attention(q, k, v, mask=CAUSAL)
    torch.testing.assert_close(chunked_attention(q, k, v, chunk_size=7, mask=CAUSAL), causal)


MASKS = NO_MASK, CAUSAL, Mask(causal=True, prefix=2), Mask(window=2), Mask(causal=True, window=3)


def equals_reference(name, kernel, masks):
    """Claims that a kernel equals `reference_attention` under several masks, with padding, documents and biases."""

    def under_masks(f):
        return lambda q, k, v: torch.stack([f(q, k, v, mask=mask, scale=0.5) for mask in masks])

    def padded_and_biased(f):
        def over_masks(q, k, v, b, p, d):
            valid = Mask(padding=p, documents=d)
            return torch.stack([f(q, k, v, bias=b, mask=mask & valid) for mask in masks])

        return over_masks

    for axes in (("b 4 t 3", "b 2 s 3", "b 2 s 2"), ("b 2 t 2", "b 2 t 2", "b 2 t 3")):
        expected = replace(agreement(other=under_masks(reference_attention)), cases=8)
        yield Claim(expected, under_masks(kernel), tuple(map(shape, axes)), name=name)
    inputs = *[shape("b 2 t 3")] * 3, shape("2 t t"), mask_input("b t"), tokens("b t", vocab_size=2)
    expected = replace(agreement(other=padded_and_biased(reference_attention)), cases=8)
    yield Claim(expected, padded_and_biased(kernel), inputs, name=f"{name}, biased and padded")


def with_position_bias(kernel, mask):
    def bias(i, j):
        return (i.unsqueeze(-1) - j.unsqueeze(-2)).abs().double().unsqueeze(-3)

    return lambda q, k, v: kernel(q, k, v, mask=mask, bias=lambda i, j: bias(i, j).to(q))


def claims():
    """Second derivations of attention."""
    yield from score_claims()
    yield from reference_claims()
    yield from equals_reference("fused_attention", fused_attention, MASKS)
    yield from equals_reference("ChunkedAttention(2)", ChunkedAttention(2), MASKS)
    windows = [mask for mask in MASKS if mask.window is not None] + [Mask(causal=True, window=2, prefix=3)]
    small = SlidingWindowAttention(block_size=2, segment_size=4)
    yield from equals_reference("SlidingWindowAttention", small, windows)
    heads = shape("b 2 t 2"), shape("b 2 s 2"), shape("b 2 s 3")
    twice = ChunkedAttention(2, kernel=reference_attention)
    for kernel, mask in ((twice, CAUSAL), (SlidingWindowAttention(block_size=2, segment_size=2), Mask(window=3))):
        expected = agreement(other=with_position_bias(reference_attention, mask))
        name = f"{type(kernel).__name__}, position bias"
        yield Claim(replace(expected, cases=12), with_position_bias(kernel, mask), heads, name=name)
    yield Claim(
        replace(second_order_gradient(), cases=4),
        with_position_bias(twice, CAUSAL),
        heads,
        name="ChunkedAttention, twice",
    )

    def over_batches(f):
        def call(q, k, v, p):
            found, last = [], q[..., -1:, :]
            for n in range(3):
                inputs = [x[(0,) * n] for x in (q, k, v)]
                found += [f(*inputs, mask=mask) for mask in (CAUSAL, Mask(padding=p[(0,) * n]))]
            found += [f(last, k, v, mask=mask) for mask in (CAUSAL, Mask(padding=p))] + [f(last[0], k[0], v[0])]
            found += [f(q, k, v, bias=lambda i, j: (i.unsqueeze(-1) + 2.0 * j).to(q))]
            return torch.cat([y.flatten() for y in found])

        return call

    axes = shape("a b 4 t 3"), shape("a b 2 s 3"), shape("a b 2 s 3"), mask_input("a b s")
    same = replace(agreement(other=over_batches(reference_attention)), cases=8)
    yield Claim(same, over_batches(fused_attention), axes, name="fused_attention, batch dimensions")


def score_claims():
    heads = shape("b 4 t 3"), shape("b 2 s 3")

    def equation(q, k, b):
        k = torch.stack([k[:, 0], k[:, 0], k[:, 1], k[:, 1]], 1)
        return 0.7 * torch.einsum("bhtk,bhsk->bhts", q, k) + b

    def sloped(q, k):
        return attention_scores(q, k, bias=lambda i, j: -(i.unsqueeze(-1) - j).abs().to(q))

    def by_distance(q, k):
        t, s = q.shape[-2], k.shape[-2]
        away = q.new_tensor([[-abs(s - t + i - j) for j in range(s)] for i in range(t)])
        return torch.einsum("bhtk,bhsk->bhts", q, k) / 3**0.5 + away

    def weights_equation(q, k, b):
        scores = equation(q, k, b)
        return (scores - scores.logsumexp(-1, keepdim=True)).exp()

    def padded(x, valid):
        return masked_softmax(x, mask=Mask(padding=valid))

    def padded_equation(x, valid):
        x = torch.where(valid[:, None, None, :], x, -torch.inf)
        weights = (x - x.logsumexp(-1, keepdim=True)).exp()
        return torch.where(valid.any(-1)[:, None, None, None], weights, 0.0)

    def average(w, v):
        return torch.stack([torch.einsum("bts,bsv->btv", w[:, h], v[:, h // 2]) for h in range(4)], 1)

    biased = (*heads, shape("4 t s"))
    yield Claim(agreement(other=equation), lambda q, k, b: attention_scores(q, k, bias=b, scale=0.7), biased, "scores")
    same_heads = shape("b 2 t 3"), shape("b 2 s 3")
    yield Claim(agreement(other=by_distance), sloped, same_heads, name="scores, position bias")
    law = agreement(other=weights_equation)
    yield Claim(law, lambda q, k, b: attention_weights(q, k, bias=b, scale=0.7), biased, "weights")
    inputs = shape("b 2 t s"), mask_input("b s")
    yield Claim(agreement(other=padded_equation), padded, inputs, name="masked_softmax, padded")
    yield Claim(fully_masked_row_is_finite(), padded, inputs, name="masked_softmax, padded")
    yield Claim(agreement(other=average), apply_weights, (shape("b 4 t s"), shape("b 2 s 3")))


def reference_claims():
    def equation(q, k, v):
        scores = torch.einsum("bhtk,bhsk->bhts", q, k) / 3**0.5
        return torch.einsum("bhts,bhsv->bhtv", (scores - scores.logsumexp(-1, keepdim=True)).exp(), v)

    def padded(x, valid):
        return single_head(reference_attention, x, x, x, mask=Mask(padding=valid))

    def padded_equation(x, valid):
        scores = torch.einsum("btk,bsk->bts", x, x) / 3**0.5
        scores = torch.where(valid.unsqueeze(-2), scores, -torch.inf)
        weights = (scores - scores.logsumexp(-1, keepdim=True)).exp()
        return torch.einsum("bts,bsv->btv", torch.where(valid.any(-1)[:, None, None], weights, 0.0), x)

    yield Claim(agreement(other=equation), reference_attention, (shape("b 2 t 3"), shape("b 2 s 3"), shape("b 2 s 4")))
    one = replace(agreement(other=lambda q, k, v: equation(*(x[:, None] for x in (q, k, v)))[:, 0]), cases=20)
    headless = (shape("b t 3"), shape("b s 3"), shape("b s 4"))
    yield Claim(one, lambda q, k, v: single_head(reference_attention, q, k, v), headless, name="single_head")
    yield Claim(agreement(other=padded_equation), padded, (shape("b t 3"), mask_input("b t")), name="padded")
