import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import ndtri

from lawful.functions import (
    LogProbEstimate,
    categorical_noise,
    integer_noise,
    normal_noise,
    resolve_seed,
    uniform_noise,
)


@pytest.mark.parametrize("draw", [uniform_noise, normal_noise])
@pytest.mark.parametrize("sizes", [(), (1,), (5,), (2, 3, 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_noise_does_not_depend_on_the_batch(draw, sizes, dtype):
    whole = draw(23, *sizes, seed=7, stream=2, dtype=dtype)
    assert whole.shape == (23, *sizes)
    for n in (1, 4, 9):
        parts = [draw(min(n, 23 - i), *sizes, seed=7, stream=2, first=i, dtype=dtype) for i in range(0, 23, n)]
        assert torch.equal(torch.cat(parts), whole)


def test_equals_numpy_philox():
    words = np.random.Philox(key=[3, 5]).random_raw(8)
    u = ((words >> np.uint64(12)).astype(np.float64) + 0.5) / 2**52
    estimate = uniform_noise(2, 3, seed=3, stream=5, dtype=torch.float64)
    np.testing.assert_array_equal(estimate.numpy(), u.reshape(2, 4)[:, :3])
    normal = normal_noise(2, 3, seed=3, stream=5, dtype=torch.float64)
    np.testing.assert_allclose(normal.numpy(), ndtri(u.reshape(2, 4)[:, :3]), rtol=1e-13)


def test_seeds_and_streams_are_independent():
    noises = [normal_noise(2000, seed=s, stream=t, dtype=torch.float64) for s in range(3) for t in range(3)]
    correlations = torch.corrcoef(torch.stack(noises)) - torch.eye(9)
    assert correlations.abs().max() < 5 / 2000**0.5


def test_samples_follow_their_distribution():
    assert stats.kstest(normal_noise(20000, seed=1).numpy(), "norm").pvalue > 1e-3
    assert stats.kstest(uniform_noise(20000, seed=2).numpy(), "uniform").pvalue > 1e-3
    assert stats.chisquare(torch.bincount(integer_noise(20000, high=7, seed=3))).pvalue > 1e-3
    p = torch.tensor([0.5, 0.0, 2.0, 1.5])
    counts = torch.bincount(categorical_noise(20000, p, seed=4), minlength=4)
    assert counts[1] == 0
    assert stats.chisquare(counts[p > 0], 20000 * p[p > 0] / p.sum()).pvalue > 1e-3


def test_uniform_noise_excludes_both_ends_in_every_dtype():
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        u = uniform_noise(200000, seed=0, dtype=dtype)
        assert u.dtype == dtype
        assert u.min() > 0
        assert u.max() < 1


def test_global_generator_is_not_used():
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    normal_noise(10, seed=0)
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize(
    ("arguments", "name"), [({"seed": -1}, "seed"), ({"first": -3}, "first"), ({"seed": 2**64}, "seed")]
)
def test_out_of_range_arguments_are_named(arguments, name):
    with pytest.raises(ValueError, match=f"expected {name} from 0"):
        normal_noise(2, **{"seed": 0, **arguments})


def test_invalid_ranges_and_probabilities():
    with pytest.raises(ValueError, match="expected high from 1"):
        integer_noise(2, high=0, seed=0)
    for p in ([0.0, 0.0], [1.0, -0.5], [float("nan"), 1.0]):
        with pytest.raises(ValueError, match="expected non-negative probabilities"):
            categorical_noise(2, torch.tensor(p), seed=0)


def test_empty_shapes():
    assert normal_noise(0, 3, seed=0).shape == (0, 3)
    assert normal_noise(3, 0, seed=0).shape == (3, 0)


def test_estimate_from_samples_has_a_standard_error():
    values = torch.tensor([[1.0, 5.0], [3.0, 5.0]])
    estimate = LogProbEstimate.from_samples(values, evaluations=2)
    torch.testing.assert_close(estimate.value, torch.tensor([2.0, 5.0]))
    torch.testing.assert_close(estimate.error, torch.tensor([1.0, 0.0]))
    assert LogProbEstimate.from_samples(values[:1], evaluations=1).error.isnan().all()
    assert LogProbEstimate.exact(values).error.eq(0).all()


def test_resolve_seed():
    assert resolve_seed(5) == 5
    torch.manual_seed(0)
    first = resolve_seed(None)
    assert resolve_seed(None) != first
    torch.manual_seed(0)
    assert resolve_seed(None) == first
