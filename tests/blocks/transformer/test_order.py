import pytest

from lawful.blocks import MACARON, expand_layer_pattern, sandwich


@pytest.mark.parametrize(
    ("pattern", "depth", "written"),
    [
        ("(sf)*", 3, "sfsfsf"),
        ("s*", 4, "ssss"),
        (MACARON, 2, "hshhsh"),
        ("s2(sf)3f2", 1, "sssfsfsfff"),
        ("(s(ff)2)*f", 2, "sffffsfffff"),
        ("(scf)* f", 2, "scfscff"),
        ("fs", 7, "fs"),
        ("s0f", 1, "f"),
    ],
)
def test_patterns_are_written_out(pattern, depth, written):
    assert expand_layer_pattern(pattern, depth) == written


def test_a_sandwich_moves_attention_down_and_feed_forward_up():
    assert [expand_layer_pattern(sandwich(3, bread=k)) for k in range(4)] == ["sfsfsf", "ssfsff", "sssfff", "sssfff"]


@pytest.mark.parametrize("pattern", ["", "x", "(sf", "sf)*", "(sx)*", "*", "2s", "()*", "s0", "s**", "s*2", "(sf)2*"])
def test_other_patterns_are_refused(pattern):
    with pytest.raises(ValueError, match="letters s, f, h and c"):
        expand_layer_pattern(pattern, 2)


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match="depth is at least 1: got 0"):
        expand_layer_pattern("(sf)*", 0)
    with pytest.raises(ValueError, match=r"between 0 and depth.*got 4 of 3"):
        sandwich(3, bread=4)
