import numpy as np
import pytest
import torch
from torch import nn

import lawful
from lawful.blocks import CIRCULAR, FULL, NONE, REFLECT, SAME, Convolution, Padding
from lawful.blocks.convolution_matrix import initialised
from lawful.laws import shape, translation_equivariance

TORCH = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


def drawn(*sizes, seed=0):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(
    ("kernel", "padding", "theirs"),
    [
        ((3,), NONE, {"padding": 0}),
        ((3, 2), 2, {"padding": 2}),
        ((4,), SAME, {"padding": "same"}),
        ((3, 2, 2), SAME, {"padding": "same"}),
        ((3, 5), CIRCULAR, {"padding": "same", "padding_mode": "circular"}),
        ((2, 3), REFLECT, {"padding": "same", "padding_mode": "reflect"}),
        ((3,), FULL, {"padding": 4}),
    ],
)
@pytest.mark.parametrize("bias", [True, False])
def test_equals_torch_with_its_weights(kernel, padding, theirs, bias):
    settings = {"dilation": 2, "groups": 2, "bias": bias}
    other = TORCH[len(kernel)](4, 6, kernel, **settings, **theirs).double()
    ours = Convolution(4, 6, kernel=kernel, padding=padding, **settings).double()
    ours.load_state_dict(other.state_dict())
    x = drawn(2, 4, *(9 + n for n in range(len(kernel))))
    torch.testing.assert_close(ours(x), other(x))


def test_strides_equal_torch():
    other = nn.Conv2d(2, 3, (3, 2), stride=(2, 3), padding=1).double()
    ours = Convolution(2, 3, kernel=(3, 2), stride=(2, 3), padding=1).double()
    ours.load_state_dict(other.state_dict())
    x = drawn(2, 2, 7, 8)
    torch.testing.assert_close(ours(x), other(x))


def test_starts_from_the_distribution_of_torch():
    torch.manual_seed(0)
    ours = Convolution(8, 512, kernel=(3,), groups=2)
    bound = 12**-0.5
    for parameter in ours.parameters():
        assert parameter.abs().max() <= bound
        torch.testing.assert_close(parameter.std(), torch.tensor(bound / 3**0.5), rtol=0.05, atol=0)


def test_equals_its_equation_written_as_a_sum():
    layer = Convolution(2, 1, kernel=(3,)).double()
    x = drawn(1, 2, 6)
    for n in range(4):
        patch = (layer.weight[0] * x[0, :, n : n + 3]).sum() + layer.bias[0]
        torch.testing.assert_close(layer(x)[0, 0, n], patch)


def test_a_border_of_zeros_and_a_stride_break_equivariance():
    for layer in (
        Convolution(1, 1, kernel=(3,), padding=SAME),
        nn.Sequential(Convolution(1, 1, kernel=(1,), stride=2), nn.Upsample(scale_factor=2)),
    ):
        report = lawful.check(layer, translation_equivariance(axis=2), inputs=shape("b 1 6"))
        assert report.verdicts[0].status == "refuted"


def test_rotations_are_not_translations():
    def turned(x):
        return Convolution.forward(layer, x.rot90(1, (2, 3))).rot90(-1, (2, 3))

    torch.manual_seed(0)
    layer = Convolution(1, 1, kernel=(3, 3), padding=CIRCULAR).double()
    x = drawn(1, 1, 5, 5)
    assert not torch.allclose(turned(x), layer(x))


def test_nan_spreads_no_further_than_the_kernel():
    x = torch.zeros(1, 1, 7)
    x[0, 0, 3] = torch.nan
    found = Convolution(1, 1, kernel=(3,), padding=SAME)(x).isnan()[0, 0]
    assert found.tolist() == [False, False, True, True, True, False, False]


def of(*sizes, **settings):
    return lambda: Convolution(2, 2, **settings)(torch.zeros(1, *sizes))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (of(2, 4, kernel=(3,), groups=3), "groups must divide both numbers of channels: got 2 and 2, groups=3"),
        (of(2, 4, kernel=()), r"one to three axes: got \(\)"),
        (of(2, 4, 4, kernel=(3, 0)), r"kernel is an int of at least 1, on each of 2 space axes: got \(3, 0\)"),
        (of(2, 4, kernel=(3,), stride=0), "stride is an int of at least 1, on each of 1 space axes: got 0"),
        (of(2, 4, kernel=(3,), dilation=(1, 2)), r"dilation is an int .* got \(1, 2\)"),
        (of(2, 2, kernel=(3,)), r"space axes of at least \(3,\) were wanted: got shape \(1, 2, 2\)"),
        (of(2, 0, kernel=(3,), padding=FULL), r"at least \(1,\) were wanted: got shape \(1, 2, 0\)"),
        (lambda: Convolution(0, 4, kernel=(3,)), "channels and groups are at least 1: got channels 4 and 0, groups=1"),
        (lambda: Convolution(4, 4, kernel=(3,), groups=0), "at least 1: got channels 4 and 4, groups=0"),
        (of(3, 5, kernel=(3,)), r"2 channels and 1 space axes was wanted: got shape \(1, 3, 5\)"),
        (of(2, 5, 5, kernel=(3,)), r"got shape \(1, 2, 5, 5\)"),
        (lambda: Padding("mirror"), "fill is one of constant, circular, reflect: got 'mirror'"),
        (lambda: Padding(extra=-1), "at least 0: got spans=0, extra=-1"),
    ],
)
def test_errors_say_what_was_wanted_and_what_came(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kernel": 3}, "a kernel is a tuple of one to three axes: got 3"),
        ({"kernel": (2.0,)}, r"kernel is an int of at least 1.*: got \(2\.0,\)"),
        ({"stride": 1.5}, r"stride is an int of at least 1.*: got 1\.5"),
        ({"stride": np.int64(2)}, "stride is an int .*: got .*2"),
        ({"dilation": "1"}, "dilation is an int .*: got '1'"),
    ],
)
def test_what_is_no_number_of_taps_or_steps_is_named(settings, message, unchecked):
    with pytest.raises(ValueError, match=message):
        Convolution(1, 1, **{"kernel": (3,)} | settings)


@pytest.mark.parametrize("padding", ["same", (1, 1), np.int64(1)])
def test_a_padding_is_data_or_a_number(padding, unchecked):
    with pytest.raises(TypeError, match="padding is a Padding, or an int of zeros on both sides: got"):
        Convolution(1, 1, kernel=(3,), padding=padding)


@pytest.mark.parametrize("padding", [NONE, SAME, FULL, CIRCULAR, REFLECT, Padding("reflect", extra=2), 1])
@pytest.mark.parametrize(("kernel", "dilation"), [(1, 1), (2, 1), (3, 2), (5, 1)])
def test_an_input_is_refused_where_it_is_too_small_and_nowhere_else(padding, kernel, dilation):
    layer = Convolution(1, 1, kernel=(kernel,), dilation=dilation, padding=padding)
    (least,) = layer._least
    assert layer(torch.zeros(1, 1, least)).shape[2] >= 1
    with pytest.raises(ValueError, match=rf"at least \({least},\) were wanted: got shape \(1, 1, {least - 1}\)"):
        layer(torch.zeros(1, 1, least - 1))
    layer._least = (0,)
    with pytest.raises(RuntimeError):
        layer(torch.zeros(1, 1, least - 1))


def test_a_layer_says_its_sizes_and_what_is_unusual():
    assert repr(Convolution(1, 4, kernel=(3, 3))) == "Convolution(1, 4, kernel=(3, 3))"
    layer = Convolution(2, 4, kernel=(3,), stride=2, groups=2, padding=SAME, bias=False)
    assert repr(layer) == f"Convolution(2, 4, kernel=(3,), stride=(2,), groups=2, padding={SAME}, bias=False)"


def test_a_weight_of_no_size_or_uneven_groups_is_refused():
    with pytest.raises(ValueError, match=r"kernel is an int of at least 1, on each of 1 space axes: got \(0,\)"):
        initialised(2, 2, (0,), 2, groups=1, bias=True)
    with pytest.raises(ValueError, match="groups must divide both numbers of channels: got 4 and 6, groups=4"):
        initialised(4, 6, (3,), 4, groups=4, bias=True)
