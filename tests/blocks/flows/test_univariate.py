import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from lawful.blocks import AffineTransform, DiscretizedLogistic, RationalQuadraticSpline, ShiftTransform
from lawful.laws import Claim, agreement, finiteness, invertibility, shape, transformed

TRANSFORMS = [
    ShiftTransform(),
    AffineTransform(),
    RationalQuadraticSpline(num_bins=5),
    DiscretizedLogistic(num_levels=6, num_components=3),
]


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda m: type(m).__name__)
def test_inverse_with_the_negative_log_derivative(transform):
    x, u = randn(200).mul(0.4).clamp(-0.99, 0.99), 2 * randn(200, transform.num_parameters, seed=1)
    y, log_derivative = transform.forward(x, u)
    again, back = transform.inverse(y, u)
    torch.testing.assert_close(again, x, atol=1e-6, rtol=0)
    torch.testing.assert_close(back, -log_derivative, atol=1e-4, rtol=0)


@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda m: type(m).__name__)
def test_the_log_derivative_equals_autograd(transform):
    x, u = randn(50).mul(0.4).clamp(-0.99, 0.99).requires_grad_(), randn(50, transform.num_parameters, seed=1)
    y, log_derivative = transform.forward(x, u)
    (slope,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(log_derivative, slope.log())


@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda m: type(m).__name__)
def test_every_parameter_changes_the_transform(transform):
    x, u = randn(50).mul(0.4).clamp(-0.99, 0.99), randn(50, transform.num_parameters, seed=1).requires_grad_()
    (gradient,) = torch.autograd.grad(transform.forward(x, u)[0].sum(), u)
    assert bool(gradient.any(0).all())


def test_a_shift_has_log_derivative_0():
    assert bool((ShiftTransform().forward(randn(9), randn(9, 1))[1] == 0).all())


@pytest.mark.parametrize("size", [1.0, 1e3])
def test_a_spline_has_finite_gradients_everywhere(size):
    spline = RationalQuadraticSpline(num_bins=8)
    x = torch.tensor([-1e6, -3.0, -3.0 - 1e-7, 0.0, 3.0, 3.1, 1e6]).requires_grad_()
    u = (size * randn(7, spline.num_parameters).float()).requires_grad_()
    y, log_derivative = spline.forward(x, u)
    found = torch.autograd.grad(y.sum() + log_derivative.sum(), (x, u))
    assert all(bool(part.isfinite().all()) for part in (y, log_derivative, *found))
    back, _ = spline.inverse(y.detach(), u)
    assert bool(back.isfinite().all())


def test_a_spline_has_linear_tails():
    spline, u = RationalQuadraticSpline(num_bins=4), randn(1, 13).expand(3, 13)
    y, log_derivative = spline.forward(torch.tensor([3.0, 4.0, 9.0], dtype=torch.float64), u)
    torch.testing.assert_close(y - y[0], torch.tensor([0.0, 1.0, 6.0], dtype=torch.float64) * log_derivative[0].exp())


def test_the_density_is_constant_on_each_level():
    levels, u = DiscretizedLogistic(num_levels=4, num_components=2), randn(1, 6).expand(64, 6)
    _, log_derivative = levels.forward(torch.linspace(-1, 1, 65, dtype=torch.float64)[:-1] + 1 / 64, u)
    density = log_derivative.reshape(4, 16).exp() / 2
    torch.testing.assert_close(density, density[:, :1].expand(4, 16))
    torch.testing.assert_close(density[:, 0].sum() / 2, torch.tensor(1.0, dtype=torch.float64))


def test_the_ends_of_the_interval_belong_to_the_first_and_last_level():
    levels, u = DiscretizedLogistic(num_levels=4, num_components=2), randn(1, 6).expand(4, 6)
    y, log_derivative = levels.forward(torch.tensor([-1.0, -0.9, 0.9, 1.0], dtype=torch.float64), u)
    torch.testing.assert_close(y[[0, 3]], torch.tensor([-1.0, 1.0], dtype=torch.float64))
    torch.testing.assert_close(log_derivative[[0, 3]], log_derivative[[1, 2]])


def test_invalid_options_are_rejected():
    with pytest.raises(ValueError, match="bound must be positive, got 0"):
        AffineTransform(bound=0.0)
    with pytest.raises(ValueError, match=r"expected parameters of shape \(\*n, 13\), got \(2, 12\)"):
        RationalQuadraticSpline(num_bins=4).forward(torch.zeros(2), torch.zeros(2, 12))
    with pytest.raises(ValueError, match="min_size must be in"):
        RationalQuadraticSpline(num_bins=2000)
    with pytest.raises(ValueError, match="got 0 and"):
        RationalQuadraticSpline(num_bins=0)
    with pytest.raises(ValueError, match="num_levels=1"):
        DiscretizedLogistic(num_levels=1)
    with pytest.raises(ValueError, match="floor must be in"):
        DiscretizedLogistic(num_levels=2, floor=0.0)
    with pytest.raises(ValueError, match=r"expected parameters of shape \(\*n, 6\)"):
        DiscretizedLogistic(num_levels=2, num_components=2).forward(torch.zeros(1), torch.zeros(1, 5))


def _claims_of_affine() -> Iterator[Claim]:
    parameters = torch.tensor([[0.5, -1.0], [-3.0, 2.0], [40.0, 0.0]])
    shift, affine = ShiftTransform(), AffineTransform(bound=1.5)

    def shifted(x):
        return torch.stack(shift.forward(x, parameters[:, :1].to(x).expand(*x.shape, 1)))

    def scaled(x):
        return affine.forward(x, parameters.to(x).expand(*x.shape, 2))[0]

    def equation(x):
        a, t = parameters.to(x).T
        return torch.exp(1.5 * torch.tanh(a / 1.5)) * x + t

    added = agreement(other=lambda x: torch.stack([x + parameters[:, 0].to(x), 0 * x]))
    yield Claim(added, shifted, shape("b 3"), name="ShiftTransform")
    yield Claim(agreement(other=equation), scaled, shape("b 3"), name="AffineTransform")
    back = invertibility(inverse=lambda y: affine.inverse(y, parameters.to(y).expand(*y.shape, 2))[0])
    yield Claim(back, scaled, shape("b 3"), name="AffineTransform")


def _claims_of_spline() -> Iterator[Claim]:
    spline, parameters = RationalQuadraticSpline(num_bins=3, bound=1.5), torch.linspace(-1.5, 2.0, 10).cos() * 2

    def bin_by_bin(x):
        u = parameters.to(x)
        xs, ys = (
            torch.cat([x.new_tensor([-1.5]), 3 * (1e-3 + (1 - 3e-3) * a.softmax(0)).cumsum(0) - 1.5])
            for a in (u[:3], u[3:6])
        )
        slopes = torch.log1p(torch.exp(u[6:] + math.log(math.e ** (1 - 1e-3) - 1))) + 1e-3
        y = torch.where(x < 0, ys[0] + slopes[0] * (x - xs[0]), ys[3] + slopes[3] * (x - xs[3]))
        for i in range(3):
            w, h, t = xs[i + 1] - xs[i], ys[i + 1] - ys[i], (x - xs[i]) / (xs[i + 1] - xs[i])
            above = h * (h / w * t**2 + slopes[i] * t * (1 - t))
            below = h / w + (slopes[i] + slopes[i + 1] - 2 * h / w) * t * (1 - t)
            y = torch.where((xs[i] <= x) & (x <= xs[i + 1]), ys[i] + above / below, y)
        return y

    def forward(x):
        return spline.forward(x, parameters.to(x).expand(*x.shape, 10))[0]

    near = transformed(lambda x: 2 * torch.tanh(x), "b 2")
    yield Claim(agreement(other=bin_by_bin), forward, near, name="RationalQuadraticSpline")
    small = RationalQuadraticSpline(num_bins=2, bound=1.0)
    any_parameters = lambda x: small.forward(x[..., 0], x[..., 1:])[0]  # noqa: E731
    yield Claim(finiteness(), any_parameters, shape("b 8"), name="RationalQuadraticSpline, any parameters")


def _claims_of_levels() -> Iterator[Claim]:
    mixture = DiscretizedLogistic(num_levels=5, num_components=2, floor=0.1)
    parameters = torch.tensor([0.3, -0.4, 0.1, -0.2, 0.5, 1.0])

    def cell_by_cell(x):
        u = parameters.to(x)
        weights, means = u[:2].softmax(0), u[2:4] + x.new_tensor([-1 / 3, 1 / 3])
        cdf = x.new_tensor([0.0] + 4 * [0.0] + [1.0])
        for j in range(1, 5):
            z = (-1 + 2 * j / 5 - means) / torch.exp(u[4:] - 1.5)
            cdf[j] = (weights / (1 + torch.exp(-z))).sum()
        y = x
        for j in range(5):
            ends = [0.9 * cdf[i] + 0.1 * i / 5 for i in (j, j + 1)]
            share = (x - (-1 + 2 * j / 5)) / (2 / 5)
            y = torch.where((share >= 0) & (share <= 1), 2 * (ends[0] + share * (ends[1] - ends[0])) - 1, y)
        return y

    def forward(x):
        return mixture.forward(x, parameters.to(x).expand(*x.shape, 6))[0]

    near = transformed(lambda x: 1.3 * torch.tanh(x), "n 2")
    yield Claim(agreement(other=cell_by_cell), forward, near, name="DiscretizedLogistic")

    def probabilities(x):
        """Density at the center of each cell, with a uniform base of height 1/2, times the width of the cell."""
        centers = torch.linspace(-0.8, 0.8, 5).to(x).expand(len(x), 5)
        log_derivative = mixture.forward(centers, x.unsqueeze(1).expand(-1, 5, -1))[1]
        return (log_derivative.exp() / 2 * (2 / 5)).sum(-1)

    one = replace(agreement(other=lambda x: torch.ones_like(x[:, 0])), cases=10)
    yield Claim(one, probabilities, shape("n 6"), name="probabilities of the levels sum to 1")


def claims() -> Iterator[Claim]:
    """Second derivations of univariate transforms."""
    yield from _claims_of_affine()
    yield from _claims_of_spline()
    yield from _claims_of_levels()
