from collections.abc import Callable

import pytest

import lawful


@pytest.fixture
def judge() -> Callable[..., lawful.Verdict]:
    """Judges one law on one map."""

    def verdict(f, law, inputs=None, *, cases=50, **options):
        return lawful.check(f, law, inputs=inputs, cases=cases, **options).verdicts[0]

    return verdict
