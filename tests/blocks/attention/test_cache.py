import pytest
import torch

from lawful.blocks import HeadSpec, KVCache, MultiHeadAttention
from lawful.functions.attention import CAUSAL, Mask


def test_the_room_doubles_and_old_views_stay():
    cache, k = KVCache(), torch.arange(200.0).reshape(1, 1, 200, 1)
    seen, sizes = [], set()
    for piece in k.split(1, dim=-2):
        seen.append(cache.append(piece, -piece)[0])
        sizes.add(cache.nbytes)
    assert len(sizes) <= 5
    for n, keys in enumerate(seen, 1):
        torch.testing.assert_close(keys, k[..., :n, :], rtol=0, atol=0)


def test_a_window_takes_bounded_memory():
    layer, x = MultiHeadAttention(8, heads=2), torch.randn(1, 500, 8, generator=torch.Generator().manual_seed(0))
    mask, cache = Mask(causal=True, window=10), layer.cache(window=10)
    with torch.no_grad():
        full = layer(x, mask=mask)
        found = torch.cat([layer(piece, mask=mask, cache=cache) for piece in x.split(1, dim=1)], dim=1)
    torch.testing.assert_close(found, full)
    assert (cache.length, cache.nbytes) == (500, 2 * 2 * 32 * 4 * 4)


@pytest.mark.parametrize("sets", [2, [HeadSpec(key=3), HeadSpec(count=2, key=2)]])
def test_rows_are_selected_and_tokens_taken_back(sets):
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


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match="window must be at least 1: got 0"):
        KVCache(window=0)
    with pytest.raises(ValueError, match="empty"):
        KVCache().all()
    cache = KVCache(window=3)
    cache.append(torch.zeros(2, 1, 40, 4), torch.zeros(2, 1, 40, 4))
    cache.append(torch.zeros(2, 1, 41, 4), torch.zeros(2, 1, 41, 4))
    with pytest.raises(ValueError, match="81 tokens, cannot go back to 20"):
        cache.trim(20)
    with pytest.raises(ValueError, match="cannot go back to 82"):
        cache.trim(82)
    with pytest.raises(ValueError, match=r"holds \(2, 1\): got \(1, 1\)"):
        cache.append(torch.zeros(1, 1, 1, 4), torch.zeros(1, 1, 1, 4))
