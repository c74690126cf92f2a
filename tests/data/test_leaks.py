import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lawful.data import leaks

rows = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=12)


@settings(max_examples=100, deadline=None)
@given(rows, rows)
def test_count_equals_the_comparison_of_all_pairs(a, b):
    x, y = torch.tensor(a).float(), torch.tensor(b).float()
    same = (x[:, None] == y[None]).all(-1)
    found = leaks({"train": x, "test": y})
    assert sum(leak.count for leak in found) == int(same.any(0).sum())
    assert bool(found) == bool(same.any())
    for leak in found:
        assert (leak.first, leak.second, leak.total) == ("train", "test", len(b))
        assert len(leak.pairs) == min(5, leak.count)
        assert all(a[i] == b[j] for i, j in leak.pairs)


def test_images_integers_zeros_of_both_signs_and_strided_inputs():
    x = torch.randn(4, 1, 3, 3, generator=torch.Generator().manual_seed(0))
    assert leaks({"a": x, "b": x.flip(0).transpose(2, 3).contiguous().transpose(2, 3)})[0].count == 4
    assert leaks({"a": torch.tensor([[0.0]]), "b": torch.tensor([[-0.0]])})[0].pairs == ((0, 0),)
    assert leaks({"a": torch.tensor([[1, 2]]), "b": torch.tensor([[2, 1]])}) == ()


def test_every_pair_of_splits_is_compared():
    one, two = torch.tensor([[1.0]]), torch.tensor([[2.0]])
    found = leaks({"train": one, "validation": two, "test": torch.cat([two, one, one])})
    assert [(leak.first, leak.second, leak.count) for leak in found] == [
        ("train", "test", 2),
        ("validation", "test", 1),
    ]
    assert str(found[0]) == "2 of 3 examples of test also occur in train"
