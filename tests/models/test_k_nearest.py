import math

import pytest
import torch
from safetensors.torch import load, save
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

from lawful.laws import Claim, agreement, shape, transformed
from lawful.models import KNearest, KNearestClassifier, k_nearest, one_hot


def data(n, d=4):
    generator = torch.Generator().manual_seed(n)
    x = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return x, torch.randint(3, (n,), generator=generator)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.5, math.inf])
@pytest.mark.parametrize("k", [1, 4, 60])
def test_equals_scikit_learn(p, k):
    (x, labels), (new, _) = data(60), data(25)
    model = KNearestClassifier(60, 4, 3, k=k, p=p).double().fit(x, labels)
    metric = {"metric": "chebyshev"} if math.isinf(p) else {"p": p}
    fitted = KNeighborsClassifier(k, **metric).fit(x.numpy(), labels.numpy())
    torch.testing.assert_close(model(new).softmax(-1), torch.from_numpy(fitted.predict_proba(new.numpy())))
    assert model(new).argmax(-1).tolist() == fitted.predict(new.numpy()).tolist()
    y = x[:, :3].sin()
    fitted = KNeighborsRegressor(k, **metric).fit(x.numpy(), y.numpy())
    model = KNearest(60, 4, 3, k=k, p=p).double().fit(x, y)
    torch.testing.assert_close(model(new), torch.from_numpy(fitted.predict(new.numpy())))


def test_ties_share_the_weight():
    x, y = torch.tensor([[0.0], [1], [-1], [5]]), torch.tensor([[6.0], [1], [3], [100]])
    model = KNearest(4, 1, 1, k=2).fit(x, y)
    torch.testing.assert_close(model(torch.zeros(1, 1)), torch.tensor([[(6 + (1 + 3) / 2) / 2]]))


def test_smoothing():
    x, labels = data(20)
    p = KNearestClassifier(20, 4, 3, k=2, smoothing=1.0).double().fit(x, labels)(x).exp()
    assert p.min() == 1 / 5
    torch.testing.assert_close(p.sum(-1), torch.ones(20, dtype=torch.float64))


def test_chunks_equal_full_input(monkeypatch):
    (x, labels), (new, _) = data(30), data(17)
    model = KNearestClassifier(30, 4, 3).double().fit(x, labels)
    whole = model(new)
    for entries in (1, 100):
        monkeypatch.setattr(k_nearest, "_MAX_DISTANCES", entries)
        assert torch.equal(model(new), whole)
    assert model(new.reshape(1, 17, 4)).shape == (1, 17, 3)


def test_examples_are_in_the_state_dict():
    x, labels = data(30)
    model, other = KNearestClassifier(30, 4, 3).fit(x, labels), KNearestClassifier(30, 4, 3)
    other.load_state_dict(load(save(model.state_dict())))
    assert torch.equal(model(x.float()), other(x.float()))


def test_errors(unchecked):
    with pytest.raises(ValueError, match="k must be between 1 and num_examples: got k=5, num_examples=3"):
        KNearest(3, 1, 1)
    with pytest.raises(ValueError, match=r"p must be at least 1, got 0\.5"):
        KNearest(9, 1, 1, p=0.5)
    with pytest.raises(ValueError, match=r"smoothing must not be negative, got -1"):
        KNearestClassifier(9, 1, 1, smoothing=-1.0)
    model = KNearest(9, 2, 1)
    with pytest.raises(ValueError, match=r"expected shapes \(9, 2\) and \(9, 1\), got \(8, 2\) and \(8, 1\)"):
        model.fit(torch.zeros(8, 2), torch.zeros(8, 1))
    with pytest.raises(ValueError, match=r"expected x of shape \(\*batch, 2\), got \(4, 3\)"):
        model(torch.zeros(4, 3))
    with pytest.raises(ValueError, match="got NaN"):
        model.fit(torch.full((9, 2), torch.nan), torch.zeros(9, 1))
    with pytest.raises(ValueError, match="must be at least 1: got num_examples=0"):
        KNearest(0, 1, 1)


def claims():
    """Second derivations of nearest neighbors."""
    points, labels = torch.tensor([[0.0, 0], [0, 2], [2, 0], [1, 1], [1, 1], [-3, 1]]), torch.tensor([0, 1, 2, 0, 1, 2])
    orders = torch.arange(6), torch.tensor([3, 0, 5, 4, 1, 2])
    model, other = (KNearestClassifier(6, 2, 3, k=3, smoothing=0.5).fit(points[i], labels[i]) for i in orders)

    def everyone(x):
        return KNearest(6, 2, 3, k=6, p=math.inf).fit(points, one_hot(labels, 3)).to(x)(x)

    thirds = agreement(other=lambda x: torch.full_like(x[:, :1], 1 / 3).expand(-1, 3))
    yield Claim(agreement(other=other), model, shape("b 2"), name="KNearestClassifier, examples in another order")
    yield Claim(thirds, everyone, shape("b 2"), name="KNearest, k = all")
    positions, values = torch.arange(14.0).cos().reshape(7, 2), torch.arange(7.0)[:, None].square()
    for p in (2.0, 1.0):

        def nearest(x, p=p):
            return KNearest(7, 2, 1, p=p).fit(positions, values).to(x)(x)

        def five(x, p=p):
            distance = (x[:, None] - positions.to(x)).abs().pow(p).sum(-1)
            return values.to(x)[distance.argsort(-1)[:, :5]].mean(1)

        yield Claim(agreement(other=five), nearest, transformed(torch.tanh, "b 2"), name=f"KNearest, 5 of 7, {p=}")
