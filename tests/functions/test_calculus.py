"""Derivative identities."""

import pytest
import torch

import lawful
from lawful.functions import DERIVATIVE_IDENTITIES, DerivativeIdentity
from lawful.laws import Claim, derivative, shape


def test_formulas_are_unique():
    formulas = [row.formula for row in DERIVATIVE_IDENTITIES]
    assert len(set(formulas)) == len(formulas)


@pytest.mark.parametrize("row", DERIVATIVE_IDENTITIES, ids=lambda row: row.formula)
def test_gradient_equals_a_central_difference(row):
    generator = torch.Generator().manual_seed(0)

    def sample(described):
        x = torch.randn([axis.number or 2 for axis in described.axes], generator=generator, dtype=torch.float64)
        kind = type(described.domain).__name__
        return (
            x.softmax(-1) if kind == "Simplex" else described.domain.function(x) if kind == "TransformedDomain" else x
        )

    x, *rest = (sample(described) for described in row.inputs)
    step = 1e-5
    direction = torch.randn(x.shape, generator=generator, dtype=torch.float64)
    if x.dim() == 2 and torch.allclose(x.sum(-1), torch.ones(2, dtype=torch.float64)):
        direction -= direction.mean(-1, keepdim=True)
    ahead, behind = (row.function(x + s * direction, *rest).sum() for s in (step, -step))
    torch.testing.assert_close(
        (ahead - behind) / (2 * step), (row.gradient(x, *rest) * direction).sum(), rtol=1e-6, atol=1e-8
    )


def test_the_second_derivative_is_that_of_the_first():
    rows, x = {row.formula: row for row in DERIVATIVE_IDENTITIES}, torch.tensor([0.2, 3.0])
    torch.testing.assert_close(rows["(x log x)'' = 1/x"].function(x), rows["(x log x)' = log x + 1"].gradient(x))


def test_claim_from_a_derivative_identity():
    row = DerivativeIdentity("(x³)' = 3x²", lambda x: x**3, lambda x: 3 * x**2, (shape("b"),))
    claim = Claim(derivative(formula=row.gradient), row.function, row.inputs, row.formula)
    assert claim.label == "(x³)' = 3x²"


def test_a_false_identity_is_refuted():
    row = DerivativeIdentity("(x³)' = 2x²", lambda x: x**3, lambda x: 2 * x**2, (shape("b"),))
    found = lawful.check(row.function, derivative(formula=row.gradient), inputs=row.inputs, cases=20)
    assert found.verdicts[0].status == "refuted"


def test_identities_are_frozen_and_complete():
    with pytest.raises(TypeError, match="gradient"):
        DerivativeIdentity("(x³)' = 3x²", lambda x: x**3)
    with pytest.raises(AttributeError, match="formula"):
        DERIVATIVE_IDENTITIES[0].formula = ""
