import pytest
import torch

from lawful.blocks import AffineTransform, DiscretizedLogistic, RationalQuadraticSpline, ShiftTransform

MAPS = [
    ShiftTransform(),
    AffineTransform(),
    RationalQuadraticSpline(bins=5),
    DiscretizedLogistic(levels=6, components=3),
]


def given(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("map_", MAPS, ids=lambda m: type(m).__name__)
def test_there_and_back_with_opposite_slopes(map_):
    x, u = given(200).mul(0.4).clamp(-0.99, 0.99), 2 * given(200, map_.size, seed=1)
    y, log_slope = map_.forward(x, u)
    again, back = map_.inverse(y, u)
    torch.testing.assert_close(again, x, atol=1e-6, rtol=0)
    torch.testing.assert_close(back, -log_slope, atol=1e-4, rtol=0)


@pytest.mark.parametrize("map_", MAPS, ids=lambda m: type(m).__name__)
def test_the_log_slope_is_that_of_the_derivative(map_):
    x, u = given(50).mul(0.4).clamp(-0.99, 0.99).requires_grad_(), given(50, map_.size, seed=1)
    y, log_slope = map_.forward(x, u)
    (slope,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(log_slope, slope.log())


def test_a_shift_keeps_volumes_to_the_last_bit():
    assert bool((ShiftTransform().forward(given(9), given(9, 1))[1] == 0).all())


@pytest.mark.parametrize("size", [1.0, 1e3])
def test_a_spline_has_finite_gradients_far_outside_its_box_and_for_wild_parameters(size):
    spline = RationalQuadraticSpline(bins=8)
    x = torch.tensor([-1e6, -3.0, -3.0 - 1e-7, 0.0, 3.0, 3.1, 1e6]).requires_grad_()
    u = (size * given(7, spline.size).float()).requires_grad_()
    y, log_slope = spline.forward(x, u)
    found = torch.autograd.grad(y.sum() + log_slope.sum(), (x, u))
    assert all(bool(part.isfinite().all()) for part in (y, log_slope, *found))
    back, _ = spline.inverse(y.detach(), u)
    assert bool(back.isfinite().all())


def test_a_spline_goes_on_with_the_slope_of_its_end():
    spline, u = RationalQuadraticSpline(bins=4), given(1, 13).expand(3, 13)
    y, log_slope = spline.forward(torch.tensor([3.0, 4.0, 9.0], dtype=torch.float64), u)
    torch.testing.assert_close(y - y[0], torch.tensor([0.0, 1.0, 6.0], dtype=torch.float64) * log_slope[0].exp())


def test_levels_are_spread_evenly_over_their_cells():
    levels, u = DiscretizedLogistic(levels=4, components=2), given(1, 6).expand(64, 6)
    _, log_slope = levels.forward(torch.linspace(-1, 1, 65, dtype=torch.float64)[:-1] + 1 / 64, u)
    density = log_slope.reshape(4, 16).exp() / 2
    torch.testing.assert_close(density, density[:, :1].expand(4, 16))
    torch.testing.assert_close(density[:, 0].sum() / 2, torch.tensor(1.0, dtype=torch.float64))


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match="bound is above 0: got 0"):
        AffineTransform(bound=0.0)
    with pytest.raises(ValueError, match="13 parameters an entry were wanted: got shape"):
        RationalQuadraticSpline(bins=4).forward(torch.zeros(2), torch.zeros(2, 12))
    with pytest.raises(ValueError, match="below 1 / bins"):
        RationalQuadraticSpline(bins=2000)
    with pytest.raises(ValueError, match="got 0 and"):
        RationalQuadraticSpline(bins=0)
    with pytest.raises(ValueError, match="got 1 levels"):
        DiscretizedLogistic(levels=1)
    with pytest.raises(ValueError, match="floor is between"):
        DiscretizedLogistic(levels=2, floor=0.0)
    with pytest.raises(ValueError, match="6 parameters an entry"):
        DiscretizedLogistic(levels=2, components=2).forward(torch.zeros(1), torch.zeros(1, 5))
