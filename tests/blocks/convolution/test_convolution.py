import pytest
import torch
from torch import nn

import lawful
from lawful.blocks import CIRCULAR, FULL, NONE, REFLECT, SAME, Convolution, Padding
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
        assert report.verdicts[0].grade == "refuted"


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
        (of(2, 4, 4, kernel=(3, 0)), r"kernel is at least 1, on each of 2 space axes: got \(3, 0\)"),
        (of(2, 4, kernel=(3,), stride=0), "at least 1, on each of 1 space axes: got 0"),
        (of(2, 4, kernel=(3,), dilation=(1, 2)), r"got \(1, 2\)"),
        (of(3, 5, kernel=(3,)), r"2 channels and 1 space axes was wanted: got shape \(1, 3, 5\)"),
        (of(2, 5, 5, kernel=(3,)), r"got shape \(1, 2, 5, 5\)"),
        (lambda: Padding("mirror"), "fill is one of constant, circular, reflect: got 'mirror'"),
        (lambda: Padding(extra=-1), "at least 0: got spans=0, extra=-1"),
    ],
)
def test_errors_say_what_was_wanted_and_what_came(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_border_or_kernel_that_is_too_large_is_refused():
    for settings in ({"kernel": (5,), "padding": REFLECT}, {"kernel": (7,), "padding": CIRCULAR}, {"kernel": (3,)}):
        with pytest.raises(RuntimeError, match=r"[Pp]adding|[Kk]ernel"):
            Convolution(1, 1, **settings)(torch.zeros(1, 1, 2))
