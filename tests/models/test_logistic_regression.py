import pytest
import torch
from sklearn import linear_model
from torch.nn import functional as F

import lawful
from lawful.models import LogisticRegression, LogisticRegressionConfig
from lawful.models.linear import monotone_in_score


def data():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 3, generator=generator, dtype=torch.float64)
    noise = torch.randn(200, generator=generator, dtype=torch.float64)
    return x, (x @ torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64) + noise > 0.3).double()


def test_equals_scikit_learn_with_its_weights_and_trains_to_them():
    x, y = data()
    fitted = linear_model.LogisticRegression(C=1e9, tol=1e-10).fit(x.numpy(), y.numpy())
    model = LogisticRegression(LogisticRegressionConfig(d=3)).double()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=200, line_search_fn="strong_wolfe", tolerance_grad=1e-9)

    def closure():
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(model.score(x), y)
        loss.backward()
        return loss

    optimizer.step(closure)
    expected = torch.from_numpy(fitted.predict_proba(x.numpy())[:, 1])
    torch.testing.assert_close(model(x).detach(), expected, rtol=1e-3, atol=1e-3)
    model.linear.weight.data, model.linear.bias.data = (torch.from_numpy(p) for p in (fitted.coef_, fitted.intercept_))
    torch.testing.assert_close(model(x).detach(), expected)


def test_the_law_of_monotony_tells_the_other_class():
    class Other(LogisticRegression):
        def forward(self, x):
            return 1 - super().forward(x)

    report = lawful.check(
        Other(LogisticRegressionConfig(d=3)), monotone_in_score(), inputs=lawful.shape("b 3"), cases=30
    )
    assert report.verdicts[0].status == "refuted"


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match=r"size 3: got shape \(5, 2\)"):
        LogisticRegression(LogisticRegressionConfig(d=3))(torch.zeros(5, 2))
    with pytest.raises(ValueError, match="d_in=0"):
        LogisticRegression(LogisticRegressionConfig(d=0))
