import pytest

from lawful.blocks import MACARON, expand_layer_pattern, sandwich_pattern


@pytest.mark.parametrize(
    ("pattern", "num_layers", "expanded"),
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
def test_patterns_are_expanded(pattern, num_layers, expanded):
    assert expand_layer_pattern(pattern, num_layers) == expanded


def test_sandwich_pattern():
    assert [expand_layer_pattern(sandwich_pattern(3, num_outer=k)) for k in range(4)] == [
        "sfsfsf",
        "ssfsff",
        "sssfff",
        "sssfff",
    ]


@pytest.mark.parametrize("pattern", ["", "x", "(sf", "sf)*", "(sx)*", "*", "2s", "()*", "s0", "s**", "s*2", "(sf)2*"])
def test_invalid_patterns_are_rejected(pattern):
    with pytest.raises(ValueError, match="layer_pattern may contain s, m, f, h, c"):
        expand_layer_pattern(pattern, 2)


def test_invalid_options_are_rejected():
    with pytest.raises(ValueError, match="num_layers must be at least 1, got 0"):
        expand_layer_pattern("(sf)*", 0)
    with pytest.raises(ValueError, match="between 0 and num_layers: got num_outer=4, num_layers=3"):
        sandwich_pattern(3, num_outer=4)


@pytest.mark.parametrize("n", range(1, 10))
def test_number_of_sublayers_of_each_kind(n):
    def count(pattern):
        expanded = expand_layer_pattern(pattern, n)
        return [expanded.count(letter) for letter in "sfhc"]

    assert count("(sf)*") == [n, n, 0, 0]
    assert count("s*") == [n, 0, 0, 0]
    assert count("(hsh)*c") == [n, 0, 2 * n, 1]
    assert count("((sf)2f)*") == [2 * n, 3 * n, 0, 0]
    assert count(sandwich_pattern(n, num_outer=1)) == [n, n, 0, 0]
