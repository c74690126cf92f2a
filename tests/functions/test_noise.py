import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import ndtri

from lawful.functions import LogProbEstimate, categorical_noise, integer_noise, normal_noise, uniform_noise


@pytest.mark.parametrize("draw", [uniform_noise, normal_noise])
@pytest.mark.parametrize("sizes", [(), (1,), (5,), (2, 3, 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_sample_has_the_same_noise_in_every_batch(draw, sizes, dtype):
    all_at_once = draw(23, *sizes, seed=7, stream=2, dtype=dtype)
    assert all_at_once.shape == (23, *sizes)
    for n in (1, 4, 9):
        parts = [draw(min(n, 23 - i), *sizes, seed=7, stream=2, first=i, dtype=dtype) for i in range(0, 23, n)]
        assert torch.equal(torch.cat(parts), all_at_once)


def test_equals_numpys_generator():
    words = np.random.Philox(key=[3, 5]).random_raw(8)
    u = ((words >> np.uint64(12)).astype(np.float64) + 0.5) / 2**52
    found = uniform_noise(2, 3, seed=3, stream=5, dtype=torch.float64)
    np.testing.assert_array_equal(found.numpy(), u.reshape(2, 4)[:, :3])
    normal = normal_noise(2, 3, seed=3, stream=5, dtype=torch.float64)
    np.testing.assert_allclose(normal.numpy(), ndtri(u.reshape(2, 4)[:, :3]), rtol=1e-13)


def test_seeds_and_streams_are_independent():
    noises = [normal_noise(2000, seed=s, stream=t, dtype=torch.float64) for s in range(3) for t in range(3)]
    correlations = torch.corrcoef(torch.stack(noises)) - torch.eye(9)
    assert correlations.abs().max() < 5 / 2000**0.5


def test_follows_its_distribution():
    assert stats.kstest(normal_noise(20000, seed=1).numpy(), "norm").pvalue > 1e-3
    assert stats.kstest(uniform_noise(20000, seed=2).numpy(), "uniform").pvalue > 1e-3
    assert stats.chisquare(torch.bincount(integer_noise(20000, high=7, seed=3))).pvalue > 1e-3
    p = torch.tensor([0.5, 0.0, 2.0, 1.5])
    counts = torch.bincount(categorical_noise(20000, p, seed=4), minlength=4)
    assert counts[1] == 0
    assert stats.chisquare(counts[p > 0], 20000 * p[p > 0] / p.sum()).pvalue > 1e-3


def test_in_any_precision_the_ends_are_left_out():
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        u = uniform_noise(200000, seed=0, dtype=dtype)
        assert u.dtype == dtype
        assert u.min() > 0
        assert u.max() < 1


def test_the_global_generator_is_left_alone():
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    normal_noise(10, seed=0)
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize(
    ("changed", "said"), [({"seed": -1}, "seed"), ({"first": -3}, "first"), ({"seed": 2**64}, "seed")]
)
def test_impossible_numbers_are_named(changed, said):
    with pytest.raises(ValueError, match=f"{said} is a whole number from 0"):
        normal_noise(2, **{"seed": 0, **changed})


def test_impossible_ranges_and_probabilities():
    with pytest.raises(ValueError, match="high is from 1"):
        integer_noise(2, high=0, seed=0)
    for p in ([0.0, 0.0], [1.0, -0.5], [float("nan"), 1.0]):
        with pytest.raises(ValueError, match="probabilities that are not negative"):
            categorical_noise(2, torch.tensor(p), seed=0)


def test_no_samples_and_no_sizes():
    assert normal_noise(0, 3, seed=0).shape == (0, 3)
    assert normal_noise(3, 0, seed=0).shape == (3, 0)


def test_an_estimate_of_samples_knows_its_error():
    values = torch.tensor([[1.0, 5.0], [3.0, 5.0]])
    found = LogProbEstimate.of_samples(values, evaluations=2)
    torch.testing.assert_close(found.value, torch.tensor([2.0, 5.0]))
    torch.testing.assert_close(found.error, torch.tensor([1.0, 0.0]))
    assert LogProbEstimate.of_samples(values[:1], evaluations=1).error.isnan().all()
    assert LogProbEstimate.exact(values).error.eq(0).all()
