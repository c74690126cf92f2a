from functools import partial

import pytest
import torch
from torch import nn

from lawful.blocks import (
    AdaNorm,
    BatchNorm,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    RMSNorm,
    WeightNorm,
    WhiteningNorm,
    normalize,
)
from lawful.blocks.normalization import OVER, axes_of

X = 3 + 2 * torch.randn(2, 4, 3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def filled(module):
    for seed, parameter in enumerate(module.parameters()):
        nn.init.normal_(parameter, generator=torch.Generator().manual_seed(seed))
    return module.double()


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (LayerNorm(5), nn.LayerNorm(5)),
        (LayerNorm((3, 5), eps=0.1), nn.LayerNorm((3, 5), eps=0.1)),
        (LayerNorm(5, affine=False), nn.LayerNorm(5, elementwise_affine=False)),
        (GroupNorm(2, 4), nn.GroupNorm(2, 4)),
        (GroupNorm(4, 4, eps=0.1, affine=False), nn.GroupNorm(4, 4, eps=0.1, affine=False)),
        (InstanceNorm(4), nn.InstanceNorm2d(4)),
        (InstanceNorm(4, affine=True, eps=0.1), nn.InstanceNorm2d(4, affine=True, eps=0.1)),
    ],
    ids=str,
)
def test_equals_torch_with_its_weights(ours, theirs):
    ours.double().load_state_dict(filled(theirs).state_dict())
    torch.testing.assert_close(ours(X), theirs(X))
    assert ours.eval()(X).equal(ours.train()(X))


@pytest.mark.parametrize("axes", [(0,), (-1,), (0, 2, 3), (1, 2, 3)])
def test_normalised_numbers_have_mean_0_and_variance_1(axes):
    y = normalize(X, axes, eps=0.0)
    torch.testing.assert_close(y.mean(axes), torch.zeros_like(y.mean(axes)))
    torch.testing.assert_close(y.var(axes, correction=0), torch.ones_like(y.mean(axes)))


def test_the_axes_are_one_line_each():
    assert {kind: axes_of(kind, 4) for kind in OVER} == {
        "batch": (0, 2, 3),
        "layer": (1, 2, 3),
        "instance": (2, 3),
        "group": (1, 2, 3),
        "rms": (1, 2, 3),
    }
    assert axes_of("layer", 3, batch=2) == (2,)


def test_constant_inputs_give_zero_and_nan_propagates():
    assert not normalize(torch.full((2, 3), 7.0), (1,)).any()
    x = X.clone()
    x[0, 0, 0, 0] = torch.nan
    assert LayerNorm(5).double()(x).isnan().sum() == 5
    assert InstanceNorm(4).double()(x).isnan().sum() == 15
    assert GroupNorm(2, 4).double()(x).isnan().sum() == 30


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match=r"sizes \(4,\): got shape \(2, 3\)"):
        LayerNorm(4)(torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"d is one or several sizes of at least 1: got \(3, 0\)"):
        LayerNorm((3, 0))
    with pytest.raises(ValueError, match="groups must divide c: got c=4, groups=3"):
        GroupNorm(3, 4)
    with pytest.raises(ValueError, match=r"axis 1 is to have size 4: got shape \(2, 3\)"):
        GroupNorm(2, 4)(torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"size 4, before space axes: got shape \(2, 4\)"):
        InstanceNorm(4)(torch.zeros(2, 4))
    with pytest.raises(ValueError, match="c is at least 1: got 0"):
        InstanceNorm(0)
    with pytest.raises(ValueError, match="at least one axis"):
        normalize(torch.zeros(3), ())
    with pytest.raises(ValueError, match="kind is one of batch, layer, instance, group, rms: got 'foo'"):
        axes_of("foo", 3)


@pytest.mark.parametrize("training", [True, False])
def test_one_position_has_no_deviation(training):
    with pytest.raises(ValueError, match=r"more than one position was wanted.*got shape \(2, 4, 1, 1\)"):
        InstanceNorm(4).train(training)(torch.zeros(2, 4, 1, 1))


@pytest.mark.parametrize("eps", [-1.0, torch.nan])
@pytest.mark.parametrize(
    "norm",
    [partial(LayerNorm, 4), partial(RMSNorm, 4), partial(GroupNorm, 2, 4), partial(InstanceNorm, 4), AdaNorm],
)
def test_a_negative_eps_is_refused(norm, eps):
    with pytest.raises(ValueError, match=f"eps is at least 0: got {eps}"):
        norm(eps=eps)


@pytest.mark.parametrize(
    ("norm", "text"),
    [
        (LayerNorm((3, 4)), "LayerNorm((3, 4), eps=1e-05, affine=True)"),
        (GroupNorm(2, 4, affine=False), "GroupNorm(2, 4, eps=1e-05, affine=False)"),
        (InstanceNorm(4), "InstanceNorm(4, eps=1e-05, affine=False)"),
        (BatchNorm(4), "BatchNorm(4, eps=1e-05, momentum=0.1, affine=True)"),
        (RMSNorm(4), "RMSNorm(4, eps=1e-06)"),
        (AdaNorm(), "AdaNorm(scale=1.0, k=0.1, eps=1e-05)"),
        (WeightNorm(), "WeightNorm(axis=0)"),
        (WhiteningNorm(4), "WhiteningNorm(4, eps=1e-05, momentum=0.1)"),
    ],
)
def test_a_norm_says_its_sizes(norm, text):
    assert repr(norm) == text
