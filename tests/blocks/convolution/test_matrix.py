import pytest
import scipy.linalg
import torch
from torch import nn

from lawful.blocks import CIRCULAR, FULL, SAME, Convolution, TransposedConvolution, as_matrix, parameter_count
from lawful.blocks.convolution_matrix import spread, taps


def layer(taps, **settings):
    found = Convolution(1, 1, kernel=(len(taps),), bias=False, **settings).double()
    found.weight.data = torch.tensor([[taps]], dtype=torch.float64)
    return found


def test_toeplitz():
    expected = scipy.linalg.toeplitz([1, 0, 0], [1, 2, 3, 0, 0])
    torch.testing.assert_close(as_matrix(layer([1, 2, 3]), (5,)).detach(), torch.from_numpy(expected).double())


def test_circulant():
    expected = scipy.linalg.circulant([2, 1, 0, 0, 3])
    found = as_matrix(layer([1, 2, 3], padding=CIRCULAR), (5,)).detach()
    torch.testing.assert_close(found, torch.from_numpy(expected).double())


def test_full_padding_is_the_matrix_of_scipy():
    expected = scipy.linalg.convolution_matrix([3, 2, 1], 4, mode="full")
    found = as_matrix(layer([1, 2, 3], padding=FULL), (4,)).detach()
    torch.testing.assert_close(found, torch.from_numpy(expected).double())


def test_blocks_of_an_image_are_toeplitz_in_toeplitz():
    image = Convolution(1, 1, kernel=(2, 2), padding=SAME, bias=False).double()
    blocks = as_matrix(image, (3, 4)).unflatten(1, (3, 4)).unflatten(0, (3, 4)).transpose(1, 2)
    torch.testing.assert_close(blocks[1:, 1:], blocks[:-1, :-1])
    torch.testing.assert_close(blocks[..., 1:, 1:], blocks[..., :-1, :-1])
    assert not blocks[1, 0].any()
    assert not blocks[0, 2].any()


def test_gradients_reach_the_kernel():
    image = Convolution(2, 2, kernel=(2, 2), groups=2)
    as_matrix(image, (3, 3)).sum().backward()
    torch.testing.assert_close(image.weight.grad, torch.full_like(image.weight, 4.0))


def test_the_count_of_the_notes():
    three = Convolution(1, 1, kernel=(3,), padding=SAME, bias=False)
    assert parameter_count(three, (5,)) == (3, 25)
    assert parameter_count(three, (500,)) == (3, 250_000)


def test_counts_equal_those_of_the_layers():
    image = Convolution(4, 6, kernel=(3, 2), stride=2, groups=2)
    rows, columns = as_matrix(image, (7, 5)).shape
    dense = torch.nn.Linear(columns, rows)
    assert parameter_count(image, (7, 5)).dense == sum(p.numel() for p in dense.parameters())
    assert parameter_count(image, (7, 5)).convolution == 6 * 2 * 6 + 6


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match=r"along 1 space axes was wanted: got \(3, 3\)"):
        as_matrix(layer([1, 2]), (3, 3))
    with pytest.raises(ValueError, match="spans 3 does not fit: got size 2"):
        as_matrix(layer([1, 2, 3]), (2,))
    with pytest.raises(ValueError, match="spans 5 does not fit: got size 4"):
        taps(4, 3, dilation=2)
    with pytest.raises(ValueError, match=r"reads of \(3,\) taps were wanted: got \(2,\)"):
        spread(torch.zeros(1, 1, 3), [taps(4, 2)])
    with pytest.raises(ValueError, match=r"reads of \(3,\) taps were wanted: got \(\)"):
        spread(torch.zeros(1, 1, 3), [])


@pytest.mark.parametrize("other", [nn.Conv1d(1, 1, 3), TransposedConvolution(1, 1, kernel=(3,))])
@pytest.mark.parametrize("function", [as_matrix, parameter_count])
def test_only_a_convolution_has_this_matrix(function, other, unchecked):
    with pytest.raises(TypeError, match=f"a Convolution was wanted: got {type(other).__name__}"):
        function(other, (5,))
