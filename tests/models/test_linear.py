from dataclasses import replace

import pytest
import torch
from sklearn import linear_model, preprocessing
from torch import nn
from torch.nn import functional as F

import lawful
from lawful.blocks import Standardize
from lawful.laws import (
    AtMost,
    Claim,
    Equal,
    agreement,
    convexity,
    law,
    shape,
    sums_to_one,
    tokens,
    transformed,
)
from lawful.models import (
    LinearRegression,
    LogisticRegression,
    PolynomialFeatures,
    PolynomialRegression,
    SoftmaxRegression,
    Standardized,
    ThresholdedRegression,
    one_hot,
)


def data(n=40, d=3, q=2):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return x, torch.randn(n, q, generator=generator, dtype=torch.float64) + x.sum(-1, keepdim=True)


@pytest.mark.parametrize("penalty", [0.0, 2.0])
def test_linear_regression_equals_scikit_learn(penalty):
    x, y = data()
    fitted = (linear_model.Ridge(penalty) if penalty else linear_model.LinearRegression()).fit(x.numpy(), y.numpy())
    model = LinearRegression(3, 2).double().fit(x, y, penalty=penalty)
    torch.testing.assert_close(model.linear.weight.data, torch.from_numpy(fitted.coef_))
    torch.testing.assert_close(model(x).detach(), torch.from_numpy(fitted.predict(x.numpy())))


def test_underdetermined_fit_has_minimum_norm():
    x, y = data(n=5, d=20, q=1)
    model = LinearRegression(20).double().fit(x, y)
    torch.testing.assert_close(model(x).detach(), y)
    centered = x - x.mean(0)
    weight = torch.linalg.lstsq(centered, y - y.mean(0), driver="gelsd").solution
    torch.testing.assert_close(model.linear.weight.data, weight.T)


def test_constant_input():
    x, y = data()
    x[:, 1] = 7
    assert LinearRegression(3, 2).double().fit(x, y)(x).isfinite().all()


@pytest.mark.parametrize(("d", "degree"), [(1, 5), (2, 3), (4, 4), (3, 1)])
def test_polynomial_features_equal_scikit_learn(d, degree):
    x, _ = data(d=d)
    expected = preprocessing.PolynomialFeatures(degree, include_bias=False).fit_transform(x.numpy())
    found = PolynomialFeatures(d, degree=degree)
    torch.testing.assert_close(found(x), torch.from_numpy(expected))
    assert found.out_dim == expected.shape[1]


def test_fits_a_polynomial():
    x, _ = data()
    y = (x[:, :1] * x[:, 1:2] - 2 * x[:, 2:] ** 2 + 3).float()
    model = PolynomialRegression(3, degree=3).fit(x.float(), y)
    torch.testing.assert_close(model(x.float()).detach(), y, atol=1e-4, rtol=1e-4)
    assert set(model.state_dict()) == {"linear.linear.weight", "linear.linear.bias"}


def test_too_many_features_are_rejected():
    for d, degree in ((10_000, 3), (2, 10**6), (10**9, 1)):
        with pytest.raises(ValueError, match=f"{d} inputs up to degree {degree} have more than 100000 monomials"):
            PolynomialFeatures(d, degree=degree)


def test_softmax_regression_equals_scikit_learn():
    x, _ = data(200)
    labels = (x @ torch.randn(3, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)).argmax(-1)
    labels[:40] = torch.arange(40) % 4
    fitted = linear_model.LogisticRegression(C=1.0, tol=1e-10, max_iter=1000).fit(x.numpy(), labels.numpy())
    model = SoftmaxRegression(3, 4).double()
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


def test_thresholded_regression_makes_mistakes():
    x = torch.tensor([[0.0], [1], [2], [3], [40], [50]])
    labels = torch.tensor([0, 0, 1, 1, 1, 1])
    bad = ThresholdedRegression(1).fit(x, labels)
    good = linear_model.LogisticRegression().fit(x.numpy(), labels.numpy())
    assert (bad(x).argmax(-1) != labels).any()
    assert (good.predict(x.numpy()) == labels.numpy()).all()


def test_two_classes_threshold_at_one_half():
    x, _ = data(60)
    labels = (x[:, 0] + 0.3 * x[:, 1] > 0.2).long()
    model = ThresholdedRegression(3).double().fit(x, labels)
    fitted = linear_model.LinearRegression().fit(x.numpy(), labels.numpy())
    torch.testing.assert_close(model.regress(x)[:, 1].detach(), torch.from_numpy(fitted.predict(x.numpy())))
    assert ((model.regress(x)[:, 1] > 0.5) == model(x).argmax(-1).bool()).all()
    assert torch.equal(model(x).softmax(-1), F.one_hot(model(x).argmax(-1), 2).double())


def test_standardized_uses_raw_units():
    x, y = data(q=1)
    x, y = 1000 + 50 * x, 1e5 * y
    core = LinearRegression(3)
    model = (
        Standardized(core, normalizer=Standardize(3), output_normalizer=Standardize(1)).double().fit_normalizer(x, y)
    )
    core.fit(model.normalizer(x), model.output_normalizer(y))
    expected = linear_model.LinearRegression().fit(x.numpy(), y.numpy()).predict(x.numpy())
    torch.testing.assert_close(model(x).detach(), torch.from_numpy(expected))
    assert {"normalizer.mean", "output_normalizer.std", "model.linear.weight"} < set(model.state_dict())


def test_errors(unchecked):
    x, y = data()
    model = LinearRegression(3, 2)
    with pytest.raises(ValueError, match=r"expected x of shape \(n, 3\) .* got \(40, 3\) and \(39, 2\)"):
        model.fit(x, y[1:])
    with pytest.raises(ValueError, match="penalty must not be negative, got -1"):
        model.fit(x, y, penalty=-1.0)
    with pytest.raises(ValueError, match="must be finite, got NaN"):
        model.fit(x / 0, y)
    with pytest.raises(ValueError, match=r"labels must be in .0, 2., got 0 to 2"):
        ThresholdedRegression(3).fit(x, torch.arange(40) % 3)
    with pytest.raises(TypeError, match=r"expected integer labels .* got torch\.float64"):
        ThresholdedRegression(3).fit(x, y[:, 0])
    with pytest.raises(ValueError, match="degree must be at least 1, got 0"):
        PolynomialFeatures(2, degree=0)
    with pytest.raises(ValueError, match=r"expected x of shape \(\*batch, 2\), got \(5, 3\)"):
        PolynomialFeatures(2, degree=2)(torch.zeros(5, 3))
    for normalizer, targets in ((None, y), (Standardize(2), None)):
        with pytest.raises(ValueError, match="if and only if the model has an output_normalizer"):
            Standardized(nn.Linear(3, 2), normalizer=Standardize(3), output_normalizer=normalizer).fit_normalizer(
                x, targets
            )
    with pytest.raises(ValueError, match="in_dim must be at least 1, got 0"):
        LogisticRegression(0)


def binary_data():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 3, generator=generator, dtype=torch.float64)
    noise = torch.randn(200, generator=generator, dtype=torch.float64)
    return x, (x @ torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64) + noise > 0.3).double()


def test_logistic_regression_equals_scikit_learn():
    x, y = binary_data()
    fitted = linear_model.LogisticRegression(C=1e9, tol=1e-10).fit(x.numpy(), y.numpy())
    model = LogisticRegression(3).double()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=200, line_search_fn="strong_wolfe", tolerance_grad=1e-9)

    def closure():
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(model.logits(x), y)
        loss.backward()
        return loss

    optimizer.step(closure)
    expected = torch.from_numpy(fitted.predict_proba(x.numpy())[:, 1])
    torch.testing.assert_close(model(x).detach(), expected, rtol=1e-3, atol=1e-3)
    model.linear.weight.data, model.linear.bias.data = (torch.from_numpy(p) for p in (fitted.coef_, fitted.intercept_))
    torch.testing.assert_close(model(x).detach(), expected)


@law("Σ (f(x) - y) = 0 and Σ x (f(x) - y) = 0", every_input=True, discover_with=None)
def residuals_are_orthogonal(f, x, y):
    """The residuals of a fit are orthogonal to the constant and to each input.

    Satisfied by: least squares with a bias.
    Broken by: a penalty; a fit without a bias.
    """
    a = torch.cat([torch.ones_like(x[:, :1]), x], dim=-1)
    return Equal(a.mT @ f(x, y), a.mT @ y, exercised=True)


@law("s(x) ≤ s(y) ⇒ f(x) ≤ f(y)", discover_with=None)
def monotone_in_logits(f, x, *, draw):
    """The input with the higher logit does not have the lower output.

    Satisfied by: a sigmoid of the logits.
    Broken by: the probability of the other class.
    """
    y = draw.like(x)
    lower = f.method("logits")(x) <= f.method("logits")(y)
    return AtMost(torch.where(lower, f(x), f(y)), torch.where(lower, f(y), f(x)))


def test_monotone_in_logits_is_broken_by_the_other_class():
    class Other(LogisticRegression):
        def forward(self, x):
            return 1 - super().forward(x)

    report = lawful.check(Other(3), monotone_in_logits(), inputs=lawful.shape("b 3"), cases=30)
    assert report.verdicts[0].status == "refuted"


def claims():
    """Second derivations of linear models."""
    softmax, logistic, thresholded = SoftmaxRegression(3, 2), LogisticRegression(3), ThresholdedRegression(2)
    standardized = Standardized(LinearRegression(2), normalizer=Standardize(2), output_normalizer=Standardize(1))
    points, signs = torch.linspace(-2.0, 2.0, 12).reshape(4, 3).sin(), torch.tensor([-1.0, 1.0, 1.0, -1.0])
    standardized.fit_normalizer(
        torch.tensor([[0.0, 1.0], [4.0, 1.0], [0.0, 3.0], [4.0, 3.0]]), torch.tensor([[-1.0], [5.0], [5.0], [-1.0]])
    )

    def linear_fit(x, y):
        return LinearRegression(2).to(x).fit(x, y)(x)

    def ridge_fit(x, y):
        return LinearRegression(2).to(x).fit(x, y, penalty=0.5)(x)

    def ridge_equation(x, y):
        a = x - x.mean(0)
        return y.mean(0) + a @ torch.linalg.solve(a.mT @ a + 0.5 * torch.eye(2).to(x), a.mT @ (y - y.mean(0)))

    def monomials(x):
        a, b = x.unbind(-1)
        return torch.stack([a, b, a * a, a * b, b * b, a**3, a * a * b, a * b * b, b**3], dim=-1)

    def polynomial_fit(x, y):
        return PolynomialRegression(1).to(x).fit(x, y)(x)

    def parabola(x):
        return 1 - x + 2 * x.square()

    def difference_of_rows(x):
        weight, bias = (p[1] - p[0] for p in softmax.parameters())
        return torch.sigmoid(x @ weight + bias)

    def sigmoid(x):
        return 1 / (1 + torch.exp(-(x * logistic.linear.weight[0]).sum(-1) - logistic.linear.bias))

    def nll(parameters):
        named = {"weight": parameters[None, :3], "bias": parameters[3:]}
        scores = torch.func.functional_call(logistic.linear, named, (points.to(parameters),))[:, 0]
        return torch.logaddexp(scores * signs.to(scores), torch.zeros_like(scores)).sum()

    def both_outputs(x):
        return ThresholdedRegression(2).to(x).fit(x, torch.tensor([0, 1, 1, 0, 1])).regress(x)

    def vectors(labels):
        return one_hot(labels, 3)

    data, column = (shape("n:5..7 2"), shape("n:5..7 1")), (shape("n:4..6 1"), shape("n:4..6 1"))
    spread = transformed(lambda x: x.tanh() / 4 + torch.arange(-2.0, 2.0)[:, None].to(x), "4 1")
    largest = agreement(other=lambda x: one_hot(thresholded.regress(x).argmax(-1), 2).to(x))
    units = agreement(other=lambda x: 3 * standardized.model((x - 2) / x.new_tensor([2, 1])) + 2)
    for rule, f, inputs, name in (
        (residuals_are_orthogonal(), linear_fit, data, "LinearRegression.fit"),
        (agreement(other=ridge_equation), ridge_fit, data, "LinearRegression.fit(penalty=0.5)"),
        (agreement(other=monomials), PolynomialFeatures(2, degree=3), shape("b 2"), "PolynomialFeatures"),
        (residuals_are_orthogonal(), polynomial_fit, column, "PolynomialRegression.fit"),
        (
            agreement(other=parabola),
            lambda x: polynomial_fit(x, parabola(x)),
            spread,
            "PolynomialRegression, a parabola",
        ),
        (agreement(other=difference_of_rows), lambda x: softmax(x).softmax(-1)[..., 1], shape("b 3"), "two classes"),
        (agreement(other=sigmoid), logistic, shape("b 3"), "LogisticRegression"),
        (monotone_in_logits(), logistic, shape("b 3"), "LogisticRegression"),
        (convexity(), nll, shape("4"), "LogisticRegression, negative log-likelihood"),
        (sums_to_one(), both_outputs, shape("5 2"), "ThresholdedRegression.regress, fitted"),
        (largest, lambda x: thresholded(x).softmax(-1), shape("b 2"), "ThresholdedRegression, largest"),
        (agreement(other=lambda k: torch.eye(3)[k]), vectors, tokens("n", vocab_size=3), "one_hot"),
        (units, standardized, shape("b 2"), "Standardized"),
    ):
        yield Claim(replace(rule, cases=20), f, inputs, name=name)
