import pytest
import torch
from sklearn.datasets import load_digits, make_low_rank_matrix
from sklearn.decomposition import PCA, IncrementalPCA

from lawful.functions import incremental_pca_axes, pca_axes, randomized_pca_axes


def rows(n=60, d=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) * torch.linspace(5, 0.5, d) + 3


WAYS = {
    "exact": lambda x, k: pca_axes(x, components=k),
    "randomised": lambda x, k: randomized_pca_axes(x, components=k, passes=20),
    "streamed": lambda x, k: incremental_pca_axes(x.split(7), components=k),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("components", [1, 3, 8])
@pytest.mark.parametrize("n", [60, 9])
def test_equals_scikit_learn(way, components, n):
    x = rows(n)
    found = WAYS[way](x, components)
    peer = PCA(components, svd_solver="full").fit(x.numpy())
    torch.testing.assert_close(found.variances, torch.from_numpy(peer.explained_variance_) * (n - 1) / n)
    torch.testing.assert_close(found.mean, torch.from_numpy(peer.mean_))
    axes = torch.from_numpy(peer.components_).mT
    torch.testing.assert_close(found.axes @ found.axes.mT, axes @ axes.mT)
    torch.testing.assert_close(found.total, float(x.var(0, correction=0).sum()))
    torch.testing.assert_close(found.left, max(0.0, found.total - float(found.variances.sum())))


def test_streams_better_than_scikit_learn_when_it_forgets():
    x = torch.from_numpy(load_digits().data)
    exact = pca_axes(x, components=10).variances
    ours = incremental_pca_axes(x.split(100), components=10).variances
    theirs = torch.from_numpy(IncrementalPCA(10, batch_size=100).fit(x.numpy()).explained_variance_)
    theirs = theirs * (len(x) - 1) / len(x)
    assert (ours / exact - 1).abs().max() < 0.2 * (theirs / exact - 1).abs().max()


@pytest.mark.parametrize("shift", [0.0, 10.0])
@pytest.mark.parametrize(("n", "d", "rank"), [(1000, 10, 2), (300, 60, 8), (40, 200, 6)])
def test_the_whitened_covariance_is_one_whatever_the_rank(n, d, rank, shift):
    data = make_low_rank_matrix(n, d, effective_rank=rank, tail_strength=0, random_state=0)
    x = torch.from_numpy(data) + shift
    found = pca_axes(x)
    z = (x - found.mean) @ found.whitener
    assert len(found.variances) < min(n - 1, d) or (n, d) == (40, 200)
    torch.testing.assert_close(z.mT.cov(correction=0), torch.eye(z.shape[1], dtype=x.dtype), rtol=0, atol=1e-10)
    assert z.abs().max() < 10


def test_what_does_not_vary_is_not_kept():
    x = rows()
    x[:, 2], x[:, 5] = 0.1, x[:, 0] - 2 * x[:, 1]
    for way in WAYS.values():
        found = way(x, 8)
        assert len(found.variances) == 6
        assert found.axes[2].abs().max() < 1e-12


def test_float32_is_read_in_float64():
    x = rows(2000).float()
    found = pca_axes(x)
    assert found.axes.dtype == torch.float64
    assert len(found.variances) == 8
    torch.testing.assert_close(found.variances, pca_axes(x.double()).variances)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("x", "said"),
    [
        (torch.zeros(1, 3), "at least 2 rows"),
        (torch.zeros(0, 3), "at least 1 row|at least 2 rows"),
        (torch.zeros(4, 0), "1 feature"),
        (torch.full((4, 3), float("nan")), "got NaN or infinite"),
        (torch.full((4, 3), float("inf")), "got NaN or infinite"),
        (torch.full((4, 3), 0.1), "got 4 equal rows"),
    ],
)
def test_data_without_axes(way, x, said):
    with pytest.raises(ValueError, match=said):
        WAYS[way](x, 1)


def test_impossible_numbers_of_axes():
    for components in (0, 9):
        with pytest.raises(ValueError, match=f"components are from 1 to the 8 features: got {components}"):
            pca_axes(rows(), components=components)
    with pytest.raises(ValueError, match="8 features in every batch were wanted"):
        incremental_pca_axes([rows(), rows(d=7)], components=2)
    with pytest.raises(ValueError, match="at least 2 rows were wanted: got 0"):
        incremental_pca_axes([], components=2)
    with pytest.raises(ValueError, match="not negative"):
        randomized_pca_axes(rows(), components=2, passes=-1)
