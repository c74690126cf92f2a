import re

import pytest
import torch
from torch import nn

import lawful
from lawful.blocks import CIRCULAR, AveragePool, Convolution, GlobalPool, MaxPool, global_average, global_max
from lawful.laws import invariance, lipschitz, shape, translation_equivariance

MAX = {1: nn.MaxPool1d, 2: nn.MaxPool2d, 3: nn.MaxPool3d}
AVERAGE = {1: nn.AvgPool1d, 2: nn.AvgPool2d, 3: nn.AvgPool3d}


def drawn(*sizes):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("patch", [(2,), (3, 2), (2, 1, 3)])
@pytest.mark.parametrize("stride", [None, 1, 2])
def test_equals_torch(patch, stride):
    x = drawn(2, 3, *[7] * len(patch))
    torch.testing.assert_close(MaxPool(patch, stride=stride)(x), MAX[len(patch)](patch, stride)(x))
    torch.testing.assert_close(AveragePool(patch, stride=stride)(x), AVERAGE[len(patch)](patch, stride)(x))


def test_global_pools_equal_torch():
    x = drawn(2, 3, 4, 5)
    torch.testing.assert_close(GlobalPool()(x), nn.AdaptiveAvgPool2d(1)(x)[..., 0, 0])
    torch.testing.assert_close(GlobalPool(global_max)(x), nn.AdaptiveMaxPool2d(1)(x)[..., 0, 0])


def test_patches_do_not_overlap_unless_asked():
    assert MaxPool((2, 2))(torch.zeros(1, 1, 6, 7)).shape == (1, 1, 3, 3)


def test_a_peak_decides_its_patch():
    x = torch.zeros(1, 1, 4)
    x[0, 0, 1] = 100
    assert MaxPool((4,))(x).item() == 100
    assert AveragePool((4,))(x).item() == 25


def test_pooling_breaks_equivariance_to_single_steps():
    pool = nn.Sequential(MaxPool((2,)), nn.Upsample(scale_factor=2))
    report = lawful.check(pool, translation_equivariance(axis=2), inputs=shape("b 1 6"))
    assert report.verdicts[0].status == "refuted"


def test_overlapping_patches_are_not_1_lipschitz():
    report = lawful.check(MaxPool((2,), stride=1), lipschitz(constant=1.0), inputs=shape("b 1 5"))
    assert report.verdicts[0].status == "refuted"


def test_a_network_is_not_invariant_to_rotation():
    torch.manual_seed(0)
    network = nn.Sequential(Convolution(1, 2, kernel=(3, 3), padding=CIRCULAR), nn.ReLU(), GlobalPool())
    law = invariance(sample=lambda draw: draw.integer(1, 3, "turns"), act=lambda n, x: x.rot90(n, (2, 3)))
    assert lawful.check(network, law, inputs=shape("b 1 5 5")).verdicts[0].status == "refuted"


def test_nan_propagates():
    x = torch.tensor([[[1.0, torch.nan, 2.0, 3.0]]])
    for pool in (MaxPool((2,)), AveragePool((2,))):
        assert pool(x).isnan().tolist() == [[[True, False]]]


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match=r"space axes of at least \(3,\) were wanted: got shape \(1, 1, 2\)"):
        MaxPool((3,))(torch.zeros(1, 1, 2))
    with pytest.raises(ValueError, match=r"at least \(2, 2\) were wanted: got shape \(1, 1, 4\)"):
        AveragePool((2, 2))(torch.zeros(1, 1, 4))
    with pytest.raises(ValueError, match=r"one to three axes: got \(\)"):
        MaxPool(())
    with pytest.raises(ValueError, match="stride is an int of at least 1"):
        AveragePool((2,), stride=0)


@pytest.mark.parametrize("pool", [global_average, global_max, GlobalPool(), GlobalPool(global_max)])
@pytest.mark.parametrize("sizes", [(3, 2), (1, 1), (1, 1, 2, 2, 2, 2)])
def test_global_pools_refuse_what_has_no_space(pool, sizes):
    with pytest.raises(ValueError, match="one to three space axes were wanted: got shape " + re.escape(f"{sizes}")):
        pool(torch.ones(sizes))


def test_an_average_of_integers_is_refused(unchecked):
    with pytest.raises(TypeError, match=r"floating point numbers were wanted: got torch\.int64"):
        AveragePool((2,))(torch.tensor([[[1, 2]]]))


def test_a_patch_is_a_tuple(unchecked):
    with pytest.raises(ValueError, match="a patch is a tuple of one to three axes: got 2"):
        MaxPool(2)


def test_pools_say_their_sizes():
    assert repr(MaxPool((2, 3))) == "MaxPool((2, 3), stride=(2, 3))"
    assert repr(AveragePool((2,), stride=1)) == "AveragePool((2,), stride=(1,))"
    assert repr(GlobalPool(global_max)) == "GlobalPool(global_max)"
