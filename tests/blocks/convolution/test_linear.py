import numpy as np
import pytest
import torch
from torch import nn

from lawful.blocks.convolution_matrix import linear_matrix, tolerated


def test_equals_numpy():
    a = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    np.testing.assert_array_equal(linear_matrix(lambda x: x @ a.T, (4,)), a)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_module_is_asked_in_its_own_precision(dtype):
    layer = nn.Linear(4, 3, bias=False).to(dtype)
    found = linear_matrix(layer, (4,))
    assert found.dtype is dtype
    assert found.equal(layer.weight)


def test_the_axes_of_an_output_come_before_those_of_an_input():
    found = linear_matrix(lambda x: x.sum(-1), (2, 3))
    assert found.equal(torch.eye(2)[:, :, None].expand(2, 2, 3))


def test_modes_are_restored_when_it_raises():
    model = nn.Sequential(nn.ReLU(), nn.Dropout(0.5).eval())
    with pytest.raises(ValueError, match="not linear"):
        linear_matrix(model, (2,))
    assert [m.training for m in model.modules()] == [True, True, False]


@pytest.mark.parametrize(
    ("f", "why"),
    [
        (lambda x: x + 1, r"not linear: f\(0\) = 0 fails at output \(0,\): 1, 0"),
        (torch.abs, r"not linear: f\(-1 x\) = -1 f\(x\) fails"),
        (lambda x: x.clamp(-20, 20), r"not linear: f\(100 x\) = 100 f\(x\) fails"),
        (lambda x: x**3 / (x.square().sum(-1, keepdim=True) + 1e-30), r"f\(x \+ y\) = f\(x\) \+ f\(y\) fails"),
        (lambda x: x - x.mean(0), r"not linear"),
        (lambda x: x / 0, r"not linear: f\(0\) = 0 fails at output \(0,\): nan, 0"),
    ],
)
def test_says_where_it_is_not_linear(f, why):
    with pytest.raises(ValueError, match=why):
        linear_matrix(f, (3,))


def test_a_tolerance_says_what_counts_as_linear():
    def nearly(x):
        return x + 1e-3 * x.abs()

    with pytest.raises(ValueError, match="not linear"):
        linear_matrix(nearly, (3,))
    assert linear_matrix(nearly, (3,), tolerance=0.1).shape == (3, 3)


def test_integers_are_refused():
    with pytest.raises(TypeError, match=r"floating point numbers were wanted: got torch\.int64"):
        linear_matrix(lambda x: x.long(), (3,))
    assert tolerated(torch.float64) == 1e-4
