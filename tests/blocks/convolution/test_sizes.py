import pytest
import torch

from lawful.blocks import CIRCULAR, FULL, SAME, Convolution, output_size


def test_the_formulas_of_the_notes():
    assert output_size((10, 12), kernel=(3, 5)) == (10 - 3 + 1, 12 - 5 + 1)
    assert output_size((10,), kernel=(3,), padding=FULL) == (10 + 3 - 1,)
    assert output_size((10,), kernel=(4,), dilation=2, padding=CIRCULAR) == (10,)


@pytest.mark.parametrize("padding", [0, 2, SAME, FULL])
@pytest.mark.parametrize("stride", [1, 2, (3, 1)])
@pytest.mark.parametrize("dilation", [1, (1, 2)])
def test_equals_the_size_of_what_comes_out(padding, stride, dilation):
    settings = {"kernel": (3, 2), "stride": stride, "dilation": dilation, "padding": padding}
    y = Convolution(1, 1, **settings)(torch.zeros(1, 1, 8, 7))
    assert output_size((8, 7), **settings) == y.shape[2:]


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match="a kernel that spans 5 does not fit: got size 4"):
        output_size((4,), kernel=(3,), dilation=2)
    with pytest.raises(ValueError, match="at least 1, on each of 1 space axes"):
        output_size((4,), kernel=(3, 3))
