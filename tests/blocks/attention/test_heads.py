import pytest

from lawful.blocks import HeadSpec, MultiHeadAttention
from lawful.blocks.attention import head_sets


def test_alike_sets_are_one_and_sizes_follow_the_width():
    few, many = head_sets(12, [HeadSpec(count=2), HeadSpec(key=5), HeadSpec(count=3)])
    assert (few.count, few.groups, few.key, few.value) == (5, 5, 2, 2)
    assert (many.count, many.key, many.value) == (1, 5, 5)


def test_sets_with_other_groups_stay_apart():
    assert len(head_sets(8, [HeadSpec(count=2, groups=1), HeadSpec(count=2, groups=2)])) == 2


@pytest.mark.parametrize(
    ("heads", "message"),
    [
        (3, "heads must divide d: got d=8, heads=3"),
        (0, "at least one head"),
        ([], "at least one head"),
        ([HeadSpec(count=4, groups=3)], "groups must divide .* count=4, groups=3"),
        ([HeadSpec(key=0)], "key=0"),
    ],
)
def test_errors_say_what_was_wanted_and_what_came(heads, message):
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(8, heads=heads)
