import pytest
import torch
from torch import nn
from sklearn import linear_model
from sklearn.preprocessing import PolynomialFeatures
from torch.nn import functional as F

from lawful.blocks import Standardize
from lawful.models import (
    LinearRegression,
    LinearRegressionConfig,
    Monomials,
    PolynomialRegression,
    PolynomialRegressionConfig,
    SoftmaxRegression,
    SoftmaxRegressionConfig,
    Standardized,
    ThresholdedRegression,
    ThresholdedRegressionConfig,
)


def data(n=40, d=3, q=2):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return x, torch.randn(n, q, generator=generator, dtype=torch.float64) + x.sum(-1, keepdim=True)


@pytest.mark.parametrize("penalty", [0.0, 2.0])
def test_linear_regression_equals_scikit_learn(penalty):
    x, y = data()
    fitted = (linear_model.Ridge(penalty) if penalty else linear_model.LinearRegression()).fit(x.numpy(), y.numpy())
    model = LinearRegression(LinearRegressionConfig(d_in=3, d_out=2)).double().fit(x, y, penalty=penalty)
    torch.testing.assert_close(model.linear.weight.data, torch.from_numpy(fitted.coef_))
    torch.testing.assert_close(model(x).detach(), torch.from_numpy(fitted.predict(x.numpy())))


def test_with_more_inputs_than_examples_the_smallest_fit_is_taken():
    x, y = data(n=5, d=20, q=1)
    model = LinearRegression(LinearRegressionConfig(d_in=20)).double().fit(x, y)
    torch.testing.assert_close(model(x).detach(), y)
    centred = x - x.mean(0)
    weight = torch.linalg.lstsq(centred, y - y.mean(0), driver="gelsd").solution
    torch.testing.assert_close(model.linear.weight.data, weight.T)


def test_a_constant_input_is_no_obstacle():
    x, y = data()
    x[:, 1] = 7
    assert LinearRegression(LinearRegressionConfig(d_in=3, d_out=2)).double().fit(x, y)(x).isfinite().all()


@pytest.mark.parametrize(("d", "degree"), [(1, 5), (2, 3), (4, 4), (3, 1)])
def test_monomials_equal_scikit_learn(d, degree):
    x, _ = data(d=d)
    expected = PolynomialFeatures(degree, include_bias=False).fit_transform(x.numpy())
    found = Monomials(d, degree=degree)
    torch.testing.assert_close(found(x), torch.from_numpy(expected))
    assert found.count == expected.shape[1]


def test_a_polynomial_is_found_again():
    x, _ = data()
    y = (x[:, :1] * x[:, 1:2] - 2 * x[:, 2:] ** 2 + 3).float()
    model = PolynomialRegression(PolynomialRegressionConfig(d_in=3, degree=3)).fit(x.float(), y)
    torch.testing.assert_close(model(x.float()).detach(), y, atol=1e-4, rtol=1e-4)
    assert set(model.state_dict()) == {"linear.linear.weight", "linear.linear.bias"}


def test_too_many_monomials_are_refused_before_they_are_made():
    for d, degree in ((10_000, 3), (2, 10**6), (10**9, 1)):
        with pytest.raises(ValueError, match=f"at most 100000 monomials were wanted: got more, of {d} entries"):
            Monomials(d, degree=degree)


def test_softmax_regression_trains_to_scikit_learns():
    x, _ = data(200)
    labels = (x @ torch.randn(3, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)).argmax(-1)
    labels[:40] = torch.arange(40) % 4
    fitted = linear_model.LogisticRegression(C=1.0, tol=1e-10, max_iter=1000).fit(x.numpy(), labels.numpy())
    model = SoftmaxRegression(SoftmaxRegressionConfig(d=3, classes=4)).double()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=500, line_search_fn="strong_wolfe", tolerance_grad=1e-9)

    def closure():
        optimizer.zero_grad()
        penalty = 0.5 * model.linear.weight.square().sum()
        loss = F.cross_entropy(model(x), labels, reduction="sum") + penalty
        loss.backward()
        return loss

    optimizer.step(closure)
    expected = torch.from_numpy(fitted.predict_proba(x.numpy()))
    torch.testing.assert_close(model(x).softmax(-1).detach(), expected, rtol=1e-3, atol=1e-3)


def test_a_threshold_makes_mistakes_that_logistic_regression_does_not_make():
    x = torch.tensor([[0.0], [1], [2], [3], [40], [50]])
    labels = torch.tensor([0, 0, 1, 1, 1, 1])
    bad = ThresholdedRegression(ThresholdedRegressionConfig(d=1)).fit(x, labels)
    good = linear_model.LogisticRegression().fit(x.numpy(), labels.numpy())
    assert (bad(x).argmax(-1) != labels).any()
    assert (good.predict(x.numpy()) == labels.numpy()).all()


def test_a_threshold_of_two_classes_is_one_half():
    x, _ = data(60)
    labels = (x[:, 0] + 0.3 * x[:, 1] > 0.2).long()
    model = ThresholdedRegression(ThresholdedRegressionConfig(d=3)).double().fit(x, labels)
    fitted = linear_model.LinearRegression().fit(x.numpy(), labels.numpy())
    torch.testing.assert_close(model.regress(x)[:, 1].detach(), torch.from_numpy(fitted.predict(x.numpy())))
    assert ((model.regress(x)[:, 1] > 0.5) == model(x).argmax(-1).bool()).all()
    assert torch.equal(model(x).softmax(-1), F.one_hot(model(x).argmax(-1), 2).double())


def test_standardized_takes_and_gives_raw_numbers():
    x, y = data(q=1)
    x, y = 1000 + 50 * x, 1e5 * y
    core = LinearRegression(LinearRegressionConfig(d_in=3))
    model = Standardized(core, inputs=Standardize(3), outputs=Standardize(1)).double().fit(x, y)
    core.fit(model.inputs(x), model.outputs(y))
    expected = linear_model.LinearRegression().fit(x.numpy(), y.numpy()).predict(x.numpy())
    torch.testing.assert_close(model(x).detach(), torch.from_numpy(expected))
    assert {"inputs.mean", "outputs.std", "model.linear.weight"} < set(model.state_dict())


def test_errors_say_what_was_wanted_and_what_came(unchecked):
    x, y = data()
    model = LinearRegression(LinearRegressionConfig(d_in=3, d_out=2))
    with pytest.raises(ValueError, match=r"rows of 3 inputs .* got shapes \(40, 3\) and \(39, 2\)"):
        model.fit(x, y[1:])
    with pytest.raises(ValueError, match="penalty is not negative: got -1"):
        model.fit(x, y, penalty=-1.0)
    with pytest.raises(ValueError, match="got NaN or infinite"):
        model.fit(x / 0, y)
    with pytest.raises(ValueError, match="labels from 0 to 1 were wanted: got 0 to 2"):
        ThresholdedRegression(ThresholdedRegressionConfig(d=3)).fit(x, torch.arange(40) % 3)
    with pytest.raises(TypeError, match=r"a row of integers was wanted: got torch\.float64"):
        ThresholdedRegression(ThresholdedRegressionConfig(d=3)).fit(x, y[:, 0])
    with pytest.raises(ValueError, match="d and degree are at least 1: got d=2, degree=0"):
        Monomials(2, degree=0)
    with pytest.raises(ValueError, match=r"last axis is to have size 2: got shape \(5, 3\)"):
        Monomials(2, degree=2)(torch.zeros(5, 3))
    for outputs, targets, wanted in ((None, y, "no targets"), (Standardize(2), None, "targets")):
        with pytest.raises(ValueError, match=f"^{wanted} were wanted"):
            Standardized(nn.Linear(3, 2), inputs=Standardize(3), outputs=outputs).fit(x, targets)
