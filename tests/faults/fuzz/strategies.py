"""Strategies for untrusted bytes and JSON values."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


def some(cases):
    return settings(max_examples=cases, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def mutated(data):
    """Strategies of `data` with bytes removed, changed and added."""

    def altered(changes):
        made = bytearray(data)
        for at, new, cut in changes:
            at %= len(made) + 1
            made[at : at + cut] = new
        return bytes(made)

    change = st.tuples(st.integers(0, 1 << 20), st.binary(max_size=6), st.integers(0, 8))
    return st.lists(change, min_size=1, max_size=4).map(altered)


def insert_value(whole, value, draw):
    """Inserts a value at any place of a JSON value, as an attacker could."""
    place = whole
    while isinstance(place, dict | list) and place:
        key = draw(st.sampled_from(list(place) if isinstance(place, dict) else range(len(place))))
        if not isinstance(place[key], dict | list) or draw(st.booleans()):
            place[key] = value
            break
        place = place[key]
    return whole
