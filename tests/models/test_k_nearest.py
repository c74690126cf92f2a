import math

import pytest
import torch
from safetensors.torch import load, save
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

from lawful.models import KNearest, KNearestClassifier, KNearestConfig, k_nearest


def data(n, d=4):
    generator = torch.Generator().manual_seed(n)
    x = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return x, torch.randint(3, (n,), generator=generator)


@pytest.mark.parametrize("order", [1.0, 2.0, 3.5, math.inf])
@pytest.mark.parametrize("k", [1, 4, 60])
def test_equals_scikit_learn(order, k):
    (x, labels), (new, _) = data(60), data(25)
    config = KNearestConfig(n=60, d=4, outputs=3, k=k, order=order)
    model = KNearestClassifier(config).double().fit(x, labels)
    metric = {"metric": "chebyshev"} if math.isinf(order) else {"p": order}
    fitted = KNeighborsClassifier(k, **metric).fit(x.numpy(), labels.numpy())
    torch.testing.assert_close(model(new).softmax(-1), torch.from_numpy(fitted.predict_proba(new.numpy())))
    assert model(new).argmax(-1).tolist() == fitted.predict(new.numpy()).tolist()
    y = x[:, :3].sin()
    fitted = KNeighborsRegressor(k, **metric).fit(x.numpy(), y.numpy())
    torch.testing.assert_close(KNearest(config).double().fit(x, y)(new), torch.from_numpy(fitted.predict(new.numpy())))


def test_ties_share_the_places_that_are_left():
    x, y = torch.tensor([[0.0], [1], [-1], [5]]), torch.tensor([[6.0], [1], [3], [100]])
    model = KNearest(KNearestConfig(n=4, d=1, outputs=1, k=2)).fit(x, y)
    torch.testing.assert_close(model(torch.zeros(1, 1)), torch.tensor([[(6 + (1 + 3) / 2) / 2]]))


def test_smoothing_leaves_no_class_impossible():
    x, labels = data(20)
    config = KNearestConfig(n=20, d=4, outputs=3, k=2, smoothing=1.0)
    p = KNearestClassifier(config).double().fit(x, labels)(x).exp()
    assert p.min() == 1 / 5
    torch.testing.assert_close(p.sum(-1), torch.ones(20, dtype=torch.float64))


def test_pieces_give_what_the_whole_gives(monkeypatch):
    (x, labels), (new, _) = data(30), data(17)
    model = KNearestClassifier(KNearestConfig(n=30, d=4, outputs=3)).double().fit(x, labels)
    whole = model(new)
    for entries in (1, 100):
        monkeypatch.setattr(k_nearest, "ENTRIES", entries)
        assert torch.equal(model(new), whole)
    assert model(new.reshape(1, 17, 4)).shape == (1, 17, 3)


def test_its_examples_are_its_state():
    x, labels = data(30)
    config = KNearestConfig(n=30, d=4, outputs=3)
    model, other = KNearestClassifier(config).fit(x, labels), KNearestClassifier(config)
    other.load_state_dict(load(save(model.state_dict())))
    assert torch.equal(model(x.float()), other(x.float()))


def test_errors_say_what_was_wanted_and_what_came(unchecked):
    with pytest.raises(ValueError, match="k is from 1 to the number of examples: got k=5, n=3"):
        KNearest(KNearestConfig(n=3, d=1, outputs=1))
    with pytest.raises(ValueError, match=r"order is at least 1: got 0\.5"):
        KNearest(KNearestConfig(n=9, d=1, outputs=1, order=0.5))
    with pytest.raises(ValueError, match=r"smoothing is not negative: got -1"):
        KNearestClassifier(KNearestConfig(n=9, d=1, outputs=1, smoothing=-1.0))
    model = KNearest(KNearestConfig(n=9, d=2, outputs=1))
    with pytest.raises(ValueError, match=r"shapes \(9, 2\) and \(9, 1\) were wanted: got \(8, 2\) and \(8, 1\)"):
        model.fit(torch.zeros(8, 2), torch.zeros(8, 1))
    with pytest.raises(ValueError, match=r"size 2: got shape \(4, 3\)"):
        model(torch.zeros(4, 3))
    with pytest.raises(ValueError, match="got NaN"):
        model.fit(torch.full((9, 2), torch.nan), torch.zeros(9, 1))
    with pytest.raises(ValueError, match="n, d and outputs are at least 1: got n=0"):
        KNearest(KNearestConfig(n=0, d=1, outputs=1))
