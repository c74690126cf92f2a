import json

import pytest
import torch
from scipy import stats

from lawful.inference.metrics import ConfidenceInterval, bootstrap, wilson


@pytest.mark.parametrize(("hits", "n"), [(0, 1), (1, 1), (0, 30), (7, 30), (30, 30), (990, 1000)])
@pytest.mark.parametrize("level", [0.5, 0.95, 0.99])
def test_wilson_equals_scipy(hits, n, level):
    expected = stats.binomtest(hits, n).proportion_ci(level, method="wilson")
    found = wilson(hits, n, level=level)
    assert found.value == hits / n
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_wilson_interval_of_no_trials_is_0_to_1():
    assert wilson(0, 0) == ConfidenceInterval(0.0, 0.0, 1.0)


def test_the_bootstrap_equals_scipys():
    x = torch.randn(200, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = stats.bootstrap((x.numpy(),), lambda x, axis: x.mean(axis), method="percentile", rng=0)
    found = bootstrap(torch.mean, x, samples=5000)
    assert found.value == float(x.mean())
    interval = expected.confidence_interval
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), abs=0.01)


def test_the_bootstrap_repeats_itself_and_leaves_the_random_state():
    x, state = torch.arange(9.0), torch.get_rng_state()
    assert bootstrap(torch.mean, x) == bootstrap(torch.mean, x) != bootstrap(torch.mean, x, seed=1)
    assert torch.equal(torch.get_rng_state(), state)


def test_bootstrap_interval_contains_a_biased_estimate():
    found = bootstrap(lambda x: x.unique().numel() * torch.ones(()), torch.arange(50.0))
    assert found.high == found.value == 50


def test_it_is_written_as_json():
    assert json.loads(json.dumps(wilson(1, 2).json())).keys() == {"value", "low", "high"}


def test_invalid_arguments_raise():
    with pytest.raises(ValueError, match="hits must be between 0 and n: got hits=3, n=2"):
        wilson(3, 2)
    with pytest.raises(ValueError, match="level must be between 0 and 1, got 95"):
        wilson(1, 2, level=95)
    with pytest.raises(ValueError, match=r"expected equal, non-zero lengths along dim 0, got \[0\]"):
        bootstrap(torch.mean, torch.zeros(0))
    with pytest.raises(ValueError, match=r"got \[2, 3\]"):
        bootstrap(torch.mean, torch.zeros(2), torch.zeros(3))
    with pytest.raises(ValueError, match="samples must be at least 2, got 1"):
        bootstrap(torch.mean, torch.zeros(2), samples=1)
