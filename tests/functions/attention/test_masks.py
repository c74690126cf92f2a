"""Attention masks."""

import pytest
import torch

from lawful.functions.attention import CAUSAL, NO_MASK, Mask
from lawful.laws import Claim, agreement, shape, tokens
from lawful.laws import mask as mask_input


def test_rules_that_hide_nothing_give_no_mask():
    assert NO_MASK.dense(3, 5) is None
    assert CAUSAL.dense(1, 5) is None
    assert Mask(window=5).dense(3, 5) is None
    assert Mask(causal=True, prefix=5).dense(3, 5) is None
    assert Mask(window=5).dense(3, 6) is not None


def test_causal_is_aligned_to_the_last_key():
    full = CAUSAL.dense(6, 6)
    assert torch.equal(full, torch.ones(6, 6, dtype=torch.bool).tril())
    assert torch.equal(CAUSAL.dense(2, 6), full[-2:])
    assert CAUSAL.dense(4, 2).tolist() == [[False, False], [False, False], [True, False], [True, True]]


def test_a_prefix_is_visible_to_all():
    assert Mask(causal=True, prefix=2).dense(3, 3).int().tolist() == [[1, 1, 0], [1, 1, 0], [1, 1, 1]]


def test_a_window_includes_the_query():
    assert Mask(window=1).dense(3, 3).int().tolist() == torch.eye(3).int().tolist()
    assert Mask(window=2).dense(1, 4).int().tolist() == [[0, 0, 1, 1]]


def test_documents_and_padding():
    documents, there = torch.tensor([[0, 0, 1], [5, 6, 5]]), torch.tensor([[True, True, True], [True, True, False]])
    seen = Mask(documents=documents, padding=there).dense(3, 3)
    assert seen.int().tolist() == [[[1, 1, 0], [1, 1, 0], [0, 0, 1]], [[1, 0, 0], [0, 1, 0], [1, 0, 0]]]


def test_documents_combine():
    a, b = torch.tensor([0, 0, 1, 1]), torch.tensor([[-7, 2**40, 2**40, 2**40]])
    one, other = Mask(documents=a), Mask(documents=b)
    assert torch.equal((one & other).dense(4, 4), one.dense(4, 4) & other.dense(4, 4))


def test_wrong_sizes_raise():
    with pytest.raises(ValueError, match="positive integer, got 0"):
        Mask(window=0)
    with pytest.raises(ValueError, match="must not be negative, got -1"):
        Mask(prefix=-1)
    with pytest.raises(ValueError, match="one entry per key: expected 4, got 3"):
        Mask(padding=torch.ones(2, 3, dtype=torch.bool)).dense(4, 4)
    with pytest.raises(ValueError, match="rows for 3 queries, got 4"):
        Mask(documents=torch.zeros(3, dtype=torch.long)).dense(4, 3)


@pytest.mark.usefixtures("unchecked")
def test_wrong_types_raise():
    with pytest.raises(TypeError, match=r"padding must be a bool tensor, got torch\.float32"):
        Mask(padding=torch.ones(2, 5))
    with pytest.raises(TypeError, match="pairs must be a bool tensor"):
        Mask(pairs=torch.ones(5, 5, dtype=torch.int64))
    with pytest.raises(TypeError, match="documents must be an integer tensor"):
        Mask(documents=torch.zeros(5))
    with pytest.raises(ValueError, match=r"window must be a positive integer, got 2\.5"):
        Mask(window=2.5)
    with pytest.raises(TypeError, match=r"expected a Mask, got Tensor"):
        Mask() & torch.ones(5, 5, dtype=torch.bool)


def dense_mask(mask, t, s):
    """The mask as a dense tensor: 1 if a key is visible."""
    visible = mask.dense(t, s)
    return torch.ones(t, s, dtype=torch.float64) if visible is None else visible.double()


def claims():
    """Second derivations of masks."""

    def one_by_one(padding, documents, t, causal=True):
        b, s = padding.shape
        visible = padding.new_zeros(b, t, s)
        for n in range(b):
            for i in range(t):
                for j in range(s):
                    p = s - t + i
                    early = not causal or j <= p or j < 2
                    visible[n, i, j] = (
                        early and abs(p - j) <= 2 and padding[n, j] and documents[n, p] == documents[n, j]
                    )
        return visible.double()

    def from_rules(padding, documents, t, causal=True):
        whole = Mask(causal=causal, window=3, prefix=2, padding=padding, documents=documents)
        return dense_mask(whole, t, padding.shape[-1])

    for causal in (True, False):
        for less in (0, 1):

            def dense(p, d, less=less, causal=causal):
                return from_rules(p, d, max(p.shape[-1] - less, 1), causal)

            def listed(p, d, less=less, causal=causal):
                return one_by_one(p, d, max(p.shape[-1] - less, 1), causal)

            inputs = mask_input("b:1..2 s:1..5"), tokens("b:1..2 s:1..5", vocab_size=2)
            yield Claim(agreement(other=listed), dense, inputs, name=f"Mask({causal=}), {less} fewer queries")

    def rules(p, d):
        pairs = p.unsqueeze(-1) | d.bool().unsqueeze(-2)
        one = Mask(causal=True, prefix=3, padding=p, documents=d)
        return [one, Mask(window=2, prefix=1), Mask(causal=True, prefix=1, documents=p.long(), pairs=pairs), CAUSAL]

    def combined(p, d):
        s = p.shape[-1]
        return torch.stack([dense_mask(a & b, s, s).expand(len(p), s, s) for a in rules(p, d) for b in rules(p, d)])

    def each(p, d):
        s = p.shape[-1]
        found = [dense_mask(a, s, s).expand(len(p), s, s) for a in rules(p, d)]
        return torch.stack([a * b for a in found for b in found])

    inputs = mask_input("b s:1..5"), tokens("b s:1..5", vocab_size=3)
    yield Claim(agreement(other=each), combined, inputs, name="(a & b)")

    def outside_of_key_range(p, d):
        found = []
        for a in rules(p, d):
            s = p.shape[-1]
            visible = dense_mask(a, s, s).expand(len(p), s, s).clone()
            for i in range(s):
                visible[:, i, a.key_range(i, i + 1, s)] = 0
            found.append(visible)
        return torch.stack(found)

    def properties(x):
        t, s = x.shape
        padded = Mask(causal=True, padding=torch.ones(t + s, dtype=torch.bool))
        masks = [Mask(causal=c, window=w, prefix=n) for c in (True, False) for w in (None, 2, 4) for n in (0, 2, 4)]
        found = [[mask.dense(t, t + s) is None, mask.is_lower_triangular, mask.is_trivial] for mask in (*masks, padded)]
        return torch.tensor(found).double()

    def counted(x):
        t, s = x.shape
        found = []
        for causal in (True, False):
            for window in (None, 2, 4):
                for prefix in (0, 2, 4):
                    whole = all(
                        (not causal or j <= p or j < prefix) and (window is None or abs(p - j) < window)
                        for p in range(s, t + s)
                        for j in range(t + s)
                    )
                    found.append([whole, causal and window is None and not prefix, not causal and window is None])
        return torch.tensor([*found, [False, False, False]]).double()

    yield Claim(agreement(other=counted), properties, shape("t:1..3 s:1..3"), name="Mask, trivial rules")

    def last_rows(p):
        t, wide = max(p.shape[-2] - 1, 1), torch.cat([p, p], dim=-1)
        below, s = dense_mask(CAUSAL, t, t).expand(len(p), t, t), wide.shape[-1]
        alone = dense_mask(Mask(causal=True, pairs=wide), 1, s).expand(-1, t, -1)
        return torch.cat([dense_mask(Mask(pairs=wide), t, s), below, alone], -1)

    def rows_of(p):
        t = max(p.shape[-2] - 1, 1)
        below = torch.tensor([[float(j <= i) for j in range(t)] for i in range(t)], dtype=torch.float64)
        wide = torch.cat([p, p], -1).double()
        return torch.cat([wide[:, -t:], below.expand(len(p), t, t), wide[:, -1:].expand(-1, t, -1)], -1)

    yield Claim(agreement(other=rows_of), last_rows, mask_input("b t:1..4 s:2..4"), name="Mask(pairs), the last rows")

    nothing = agreement(other=lambda p, d: p.new_zeros(4, *p.shape, p.shape[-1]).double())
    yield Claim(nothing, outside_of_key_range, inputs, name="key_range")
