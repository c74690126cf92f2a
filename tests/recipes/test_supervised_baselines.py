import pytest
import torch
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from lawful.data import SupervisedDataset
from lawful.recipes import classify
from lawful.recipes.classify import _classification_baselines, _neighbor_inputs
from lawful.recipes.data import SupervisedDataConfig
from lawful.recipes.regress import _regression_baselines
from lawful.recipes.supervised import _fit_softmax_regression


def test_classification_baselines_match_scikit_learn():
    parts = SupervisedDataConfig(data="wine").load_splits("classify")
    found = _classification_baselines(parts.train, parts.test)
    peers = {
        "most frequent class": DummyClassifier(),
        "5 nearest neighbors": make_pipeline(StandardScaler(), KNeighborsClassifier(5)),
        "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
    }
    assert found.keys() == peers.keys()
    for name, peer in peers.items():
        peer.fit(parts.train.inputs.numpy(), parts.train.targets.numpy())
        expected = peer.score(parts.test.inputs.numpy(), parts.test.targets.numpy())
        assert found[name]["value"] == pytest.approx(expected, abs=0.03)  # ties are broken differently


def test_regression_baselines_match_scikit_learn():
    parts = SupervisedDataConfig(data="diabetes").load_splits("regress")
    found = _regression_baselines(parts.train, parts.test)
    peers = {
        "mean": DummyRegressor(),
        "5 nearest neighbors": make_pipeline(StandardScaler(), KNeighborsRegressor(5)),
        "ridge regression": make_pipeline(StandardScaler(), Ridge(1.0)),
    }
    assert found.keys() == peers.keys()
    for name, peer in peers.items():
        peer.fit(parts.train.inputs.numpy(), parts.train.targets.numpy())
        y = torch.as_tensor(peer.predict(parts.test.inputs.numpy())).reshape(-1, 1)
        assert found[name]["value"] == pytest.approx(float((y - parts.test.targets).square().mean().sqrt()), rel=1e-3)


def test_logistic_regression_matches_scikit_learn():
    parts = SupervisedDataConfig(data="wine").load_splits("classify")
    x, y = StandardScaler().fit_transform(parts.train.inputs.double().numpy()), parts.train.targets
    peer = LogisticRegression(max_iter=5000, tol=1e-8).fit(x, y.numpy())
    found = _fit_softmax_regression(torch.from_numpy(x), y, num_classes=3)
    expected = torch.from_numpy(peer.predict_log_proba(x))
    torch.testing.assert_close(found(torch.from_numpy(x)).log_softmax(-1).detach(), expected, rtol=0, atol=1e-3)


def test_baselines_of_fewer_than_five_examples():
    few = SupervisedDataset(inputs=torch.eye(3), targets=torch.tensor([0, 1, 1]), classes=("a", "b"))
    assert _classification_baselines(few, few)["most frequent class"]["value"] == pytest.approx(2 / 3)


def test_baselines_of_many_examples_see_all_classes_of_a_sorted_file(monkeypatch):
    monkeypatch.setattr(classify, "_MAX_NEIGHBOR_EXAMPLES", 10)
    data = SupervisedDataset(
        inputs=torch.randn(100, 2), targets=torch.arange(100) // 20, classes=("a", "b", "c", "d", "e")
    )
    _, targets, _ = _neighbor_inputs(data)
    assert targets.bincount().tolist() == [2] * 5


def test_nearest_neighbors_of_a_large_split_are_those_of_some_rows(monkeypatch):
    parts = SupervisedDataConfig(data="wine", test_fraction=0.5).load_splits("classify")
    every = classify._neighbor_queries(100, 3000)
    monkeypatch.setattr(classify, "_MAX_DISTANCES", 200_000)
    some = classify._neighbor_queries(100, 3000)
    assert every.tolist() == list(range(3000))
    assert (len(some), int(some[0]), int(some[-1])) == (2000, 0, 2999)
    monkeypatch.setattr(classify, "_QUERY_ROWS", 7)
    few = _classification_baselines(parts.train, parts.test)
    monkeypatch.setattr(classify, "_QUERY_ROWS", 10**6)
    assert few == _classification_baselines(parts.train, parts.test)
