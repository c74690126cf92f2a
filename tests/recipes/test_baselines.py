import pytest
import torch
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from lawful.data import SupervisedDataset
from lawful.recipes.classify import of_classes, of_numbers
from lawful.recipes.data import SupervisedData


def test_against_scikit_learn_for_classes():
    parts = SupervisedData(data="wine").parts("classify")
    found = of_classes(parts.train, parts.test)
    peers = {
        "commonest class": DummyClassifier(),
        "5 nearest examples": make_pipeline(StandardScaler(), KNeighborsClassifier(5)),
    }
    for name, peer in peers.items():
        peer.fit(parts.train.inputs.numpy(), parts.train.targets.numpy())
        expected = peer.score(parts.test.inputs.numpy(), parts.test.targets.numpy())
        assert found[name]["value"] == pytest.approx(expected, abs=0.03)  # ties among neighbours are broken otherwise


def test_against_scikit_learn_for_numbers():
    parts = SupervisedData(data="diabetes").parts("regress")
    found = of_numbers(parts.train, parts.test)
    peers = {"mean": DummyRegressor(), "5 nearest examples": make_pipeline(StandardScaler(), KNeighborsRegressor(5))}
    for name, peer in peers.items():
        peer.fit(parts.train.inputs.numpy(), parts.train.targets.numpy())
        y = torch.as_tensor(peer.predict(parts.test.inputs.numpy())).reshape(-1, 1)
        assert found[name]["value"] == pytest.approx(float((y - parts.test.targets).square().mean().sqrt()), rel=1e-3)


def test_fewer_than_five_examples():
    few = SupervisedDataset(inputs=torch.eye(3), targets=torch.tensor([0, 1, 1]), classes=("a", "b"))
    assert of_classes(few, few)["commonest class"]["value"] == pytest.approx(2 / 3)
