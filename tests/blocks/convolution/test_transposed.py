import pytest
import torch
from torch import nn

import lawful
from lawful.blocks import SAME, Convolution, TransposedConvolution
from lawful.laws import agreement, shape

TORCH = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}


@pytest.mark.parametrize("kernel", [(3,), (3, 2), (2, 2, 2)])
@pytest.mark.parametrize("settings", [{}, {"stride": 2, "padding": 1}, {"dilation": 2, "groups": 2, "bias": False}])
def test_equals_torch_with_its_weights(kernel, settings):
    other = TORCH[len(kernel)](4, 6, kernel, **settings).double()
    ours = TransposedConvolution(4, 6, kernel=kernel, **settings).double()
    ours.load_state_dict(other.state_dict())
    x = torch.randn(2, 4, *[4] * len(kernel), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(ours(x), other(x))


def test_a_size_is_chosen_as_in_torch():
    settings = {"stride": 3, "padding": 1}
    other = nn.ConvTranspose2d(1, 1, (3, 2), **settings)
    ours = TransposedConvolution(1, 1, kernel=(3, 2), **settings)
    ours.load_state_dict(other.state_dict())
    x = torch.randn(1, 1, 2, 3, generator=torch.Generator().manual_seed(0))
    for size in ((4, 6), (6, 8), (5, 7)):
        torch.testing.assert_close(ours(x, size=size), other(x, output_size=size))


def test_a_flipped_kernel_is_no_transpose():
    conv = Convolution(1, 1, kernel=(2,), bias=False)
    back = TransposedConvolution(1, 1, kernel=(2,), bias=False)
    back.weight = nn.Parameter(conv.weight.detach().flip(-1))

    def left(x, y):
        return (conv(x) * y).sum((1, 2))

    def right(x, y):
        return (x * back(y)).sum((1, 2))

    report = lawful.check(left, agreement(other=right), inputs=(shape("b 1 4"), shape("b 1 3")))
    assert report.verdicts[0].status == "refuted"


def test_errors_say_what_was_wanted_and_what_came():
    layer = TransposedConvolution(2, 1, kernel=(3,), stride=2)
    with pytest.raises(ValueError, match=r"2 channels and 1 space axes was wanted: got shape \(1, 1, 4\)"):
        layer(torch.zeros(1, 1, 4))
    with pytest.raises(ValueError, match=r"does not take size \(11,\) to \(4,\)"):
        layer(torch.zeros(1, 2, 4), size=(11,))
    with pytest.raises(ValueError, match="padding is an int of at least 0: got -1"):
        TransposedConvolution(1, 1, kernel=(3,), padding=-1)
    with pytest.raises(ValueError, match="groups must divide"):
        TransposedConvolution(3, 2, kernel=(3,), groups=2)
    with pytest.raises(ValueError, match="one to three axes"):
        TransposedConvolution(1, 1, kernel=(1, 1, 1, 1))


def test_a_padding_is_a_number_and_the_layer_says_its_sizes(unchecked):
    with pytest.raises(ValueError, match="padding is an int of at least 0: got Padding"):
        TransposedConvolution(1, 1, kernel=(3,), padding=SAME)
    layer = TransposedConvolution(4, 2, kernel=(3,), stride=2, groups=2, padding=1)
    assert repr(layer) == "TransposedConvolution(4, 2, kernel=(3,), stride=(2,), groups=2, padding=1)"
