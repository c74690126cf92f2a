from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from lawful.blocks import AttentionCache, HeadSpec, KVCache, MultiHeadAttention, crop_mask
from lawful.functions.attention import CAUSAL, LinearAttention, Mask
from lawful.laws import Claim, agreement, shape, tokens
from lawful.laws import mask as mask_domain


def test_buffers_double_and_old_views_stay_valid():
    cache, k = KVCache(), torch.arange(200.0).reshape(1, 1, 200, 1)
    seen, sizes = [], set()
    for piece in k.split(1, dim=-2):
        seen.append(cache.append(piece, -piece)[0])
        sizes.add(cache.nbytes)
    assert len(sizes) <= 5
    for n, keys in enumerate(seen, 1):
        torch.testing.assert_close(keys, k[..., :n, :], rtol=0, atol=0)


def test_a_window_bounds_the_memory():
    layer, x = MultiHeadAttention(8, num_heads=2), torch.randn(1, 500, 8, generator=torch.Generator().manual_seed(0))
    mask, cache = Mask(causal=True, window=10), layer.cache(window=10)
    with torch.no_grad():
        full = layer(x, mask=mask)
        found = torch.cat([layer(piece, mask=mask, cache=cache) for piece in x.split(1, dim=1)], dim=1)
    torch.testing.assert_close(found, full)
    assert (cache.length, cache.nbytes) == (500, 2 * 2 * 32 * 4 * 4)


@pytest.mark.parametrize("sets", [[HeadSpec(4, count=2)], [HeadSpec(3), HeadSpec(2, count=2)]])
def test_select_and_trim(sets):
    layer, x = MultiHeadAttention(8, heads=sets).double(), torch.randn(2, 6, 8).double()
    cache = layer.cache()
    layer(x[:, :4], mask=CAUSAL, cache=cache)
    swapped = cache.select(torch.tensor([1, 0]))
    swapped.trim(3)
    torch.testing.assert_close(
        layer(x.flip(0)[:, 3:], mask=CAUSAL, cache=swapped), layer(x.flip(0), mask=CAUSAL)[:, 3:]
    )
    assert (cache.length, swapped.length) == (4, 6)
    assert cache.nbytes > 0


def test_invalid_operations_are_rejected():
    with pytest.raises(ValueError, match="window must be at least 1, got 0"):
        KVCache(window=0)
    with pytest.raises(ValueError, match="empty"):
        KVCache().get()
    cache = KVCache(window=3)
    cache.append(torch.zeros(2, 1, 40, 4), torch.zeros(2, 1, 40, 4))
    cache.append(torch.zeros(2, 1, 41, 4), torch.zeros(2, 1, 41, 4))
    with pytest.raises(ValueError, match="cannot trim a cache of 81 tokens to 20"):
        cache.trim(20)
    with pytest.raises(ValueError, match="cannot trim a cache of 81 tokens to 82"):
        cache.trim(82)
    with pytest.raises(ValueError, match=r"expected keys of shape \(2, 1, 't', 'k'\), got \(1, 1, 1, 4\)"):
        cache.append(torch.zeros(1, 1, 1, 4), torch.zeros(1, 1, 1, 4))


def test_both_caches_follow_the_protocol():
    assert isinstance(KVCache(), AttentionCache)
    assert isinstance(LinearAttention().cache(), AttentionCache)


def claims() -> Iterator[Claim]:
    """Second derivations of the KV cache."""

    def in_pieces(k, v, window=None):
        cache = KVCache(window=window)
        for piece in zip(k.split((1, 40, 2, 1, 3), -2), v.split((1, 40, 2, 1, 3), -2), strict=True):
            cache.append(*piece)
        return cache

    def windowed(k, v):
        cache = in_pieces(k[..., :-3, :], v[..., :-3, :], window=4)
        return torch.cat(cache.append(k[..., -3:, :], v[..., -3:, :]), dim=-1)

    def selected(k, v):
        cache = in_pieces(k, v).select(torch.tensor([1, 1, 0]))
        cache.trim(39)
        return torch.cat(cache.append(k[[1, 1, 0], :, 39:], v[[1, 1, 0], :, 39:]), dim=-1)

    def joined(k, v):
        return torch.cat([k, v], dim=-1)

    inputs, longer = ((shape(f"2 g {t} 2"), shape(f"2 g {t} 3")) for t in (47, 50))
    yield Claim(agreement(other=joined), lambda k, v: torch.cat(in_pieces(k, v).get(), -1), inputs, name="in pieces")
    yield Claim(agreement(other=lambda k, v: joined(k, v)[..., -6:, :]), windowed, longer, name="window=4")
    yield Claim(agreement(other=lambda k, v: joined(k, v)[[1, 1, 0]]), selected, inputs, name="select and trim")

    def masks(padding, documents):
        pairs = padding.unsqueeze(-1) | documents.bool().unsqueeze(-2)
        return (
            Mask(prefix=3, padding=padding),
            Mask(causal=True, documents=documents),
            Mask(pairs=pairs),
            Mask(window=2),
        )

    def cropped(padding, documents):
        dense = [crop_mask(m, s, total=5).dense(2, s) for m in masks(padding, documents) for s in (3, 5)]
        return torch.cat([x.expand(2, 2, -1) for x in dense if x is not None], dim=-1).double()

    def columns(padding, documents):
        dense = [(m.dense(2, 5), s) for m in masks(padding, documents) for s in (3, 5)]
        return torch.cat([x.expand(2, 2, -1)[..., -s:] for x, s in dense if x is not None], dim=-1).double()

    inputs = mask_domain("2 5"), tokens("2 5", vocab_size=2)
    yield Claim(replace(agreement(other=columns), cases=20), cropped, inputs, name="crop_mask")
