import pytest
import torch

import lawful
from lawful.blocks import AdaNorm
from lawful.laws import gradient, shape


def test_equals_the_formula_of_the_paper():
    x = torch.randn(3, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = (x - x.mean(-1, keepdim=True)) / x.std(-1, correction=0, keepdim=True)
    torch.testing.assert_close(AdaNorm(scale=2.0, k=0.3, eps=0.0)(x), 2 * (1 - 0.3 * y) * y)


def test_the_gain_has_the_mean_c():
    x = torch.randn(3, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = AdaNorm(scale=1.0, k=0.0)(x)
    gain = AdaNorm(scale=2.0, k=0.3)(x) / y
    torch.testing.assert_close(gain.mean(-1), torch.full((3,), 2.0, dtype=torch.float64))


def test_the_gradient_is_not_the_derivative():
    report = lawful.check(AdaNorm(), gradient(), inputs=shape("b 4"))
    assert report.verdicts[0].status == "refuted"


def test_nan_propagates_and_a_single_number_is_refused(unchecked):
    assert AdaNorm()(torch.tensor([[1.0, torch.nan], [1.0, 2.0]])).isnan().tolist() == [[True, True], [False, False]]
    with pytest.raises(ValueError, match=r"a last axis was wanted: got shape \(\)"):
        AdaNorm()(torch.tensor(1.0))
