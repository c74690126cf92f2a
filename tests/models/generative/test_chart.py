import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.func import jacrev, vmap

from lawful.laws import AtMost, Claim, Draw, Map, Statement, agreement, law, shape, transformed
from lawful.models.generative import Chart, cnn_autoencoder, mlp_autoencoder


def sphere(z):
    x, y = z.unbind(-1)
    return torch.stack([x.cos() * y.cos(), x.sin() * y.cos(), y.sin()], dim=-1)


def great_circle(a, b):
    return math.acos(float(sphere(a) @ sphere(b)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("a", "b"), [((0.0, 0.9), (2.0, 0.9)), ((0.0, -0.5), (1.5, 1.2)), ((0.2, 0.1), (0.2, 1.0))])
def test_the_shortest_way_on_a_sphere_is_a_great_circle(a, b, dtype):
    chart, a, b = Chart(sphere), torch.tensor(a, dtype=dtype), torch.tensor(b, dtype=dtype)
    assert chart.distance(a, b) == pytest.approx(great_circle(a, b), rel=2e-4)
    curve = chart.geodesic(a, b, num_points=100)
    assert torch.equal(curve[0], a)
    assert torch.equal(curve[-1], b)
    normal = torch.linalg.cross(sphere(a), sphere(b))
    torch.testing.assert_close(
        sphere(curve) @ (normal / normal.norm()), torch.zeros(100, dtype=dtype), rtol=0, atol=3e-3
    )
    speeds = sphere(curve).diff(dim=0).norm(dim=-1)
    assert speeds.max() < 1.2 * speeds.min()
    straight = a + torch.linspace(0, 1, 100, dtype=dtype)[:, None] * (b - a)
    assert chart.energy(curve) <= chart.energy(straight) * (1 + 1e-6)
    assert chart.length(curve) <= chart.length(straight) + 1e-6


def test_a_geodesic_with_one_mode_deviates_by_half_a_sine_wave():
    chart, a, b = Chart(sphere), torch.tensor([0.0, 0.9]).double(), torch.tensor([2.0, 0.9]).double()
    t = torch.linspace(0, 1, 21, dtype=torch.float64)[:, None]
    deviation = chart.geodesic(a, b, num_points=21, num_modes=1) - (a + t * (b - a))
    assert deviation[10, 1] > 0.1
    torch.testing.assert_close(deviation, (math.pi * t).sin() * deviation[10])


def test_a_geodesic_without_steps_is_the_straight_line():
    a, b = torch.tensor([0.0, 0.9]), torch.tensor([2.0, 0.9])
    straight = a + torch.linspace(0, 1, 5)[:, None] * (b - a)
    torch.testing.assert_close(Chart(sphere).geodesic(a, b, num_points=5, max_steps=0), straight)


def test_the_shortest_way_in_a_flat_space_is_straight():
    matrix = torch.randn(2, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    chart = Chart(lambda z: z @ matrix)
    a, b = torch.tensor([0.0, 1.0]).double(), torch.tensor([2.0, -1.0]).double()
    assert chart.distance(a, b) == pytest.approx(float(((b - a) @ matrix).norm()))
    straight = a + torch.linspace(0, 1, 64).double()[:, None] * (b - a)
    torch.testing.assert_close(chart.geodesic(a, b), straight, rtol=0, atol=1e-6)
    torch.testing.assert_close(chart.metric(torch.zeros(1, 2).double())[0], matrix @ matrix.mT)


def test_it_goes_round_a_hill():
    """The path over a steep hill is longer than the path around it."""
    chart = Chart(lambda z: torch.cat([z, 3 * (-z.square().sum(-1, keepdim=True)).exp()], dim=-1))
    a, b = torch.tensor([-2.0, 0.1]), torch.tensor([2.0, 0.1])
    curve = chart.geodesic(a, b)
    assert curve[:, 1].max() > 0.8
    straight = a + torch.linspace(0, 1, 64)[:, None] * (b - a)
    assert chart.length(curve) < 0.85 * chart.length(straight)


@pytest.mark.parametrize("kind", ["dense", "convolutions"])
def test_metric_equals_the_jacobian_of_the_decoder(kind):
    torch.manual_seed(0)
    if kind == "dense":
        model = mlp_autoencoder((1, 4, 4), latent_dim=3, hidden_dims=(8,))
    else:
        model = cnn_autoencoder((1, 4, 4), latent_dim=3, channels=2)
    chart, z = Chart(model.double().decode), torch.randn(4, 3, dtype=torch.float64)
    j = vmap(jacrev(lambda code: model.decode(code[None]).flatten()))(z)
    torch.testing.assert_close(chart.jacobian(z), j.detach())
    torch.testing.assert_close(chart.metric(z), (j.mT @ j).detach())
    torch.testing.assert_close(chart.volume(z), torch.linalg.det(j.mT @ j).sqrt().detach())
    assert chart.distance(z[0], z[1]) >= float((model.decode(z[:1]) - model.decode(z[1:2])).detach().norm()) - 1e-9
    assert all(p.grad is None for p in model.parameters())


def test_distance_to_itself_is_zero():
    here = torch.tensor([0.3, 0.2])
    assert Chart(sphere).distance(here, here) == 0


def test_decoder_that_ignores_a_latent_has_zero_volume():
    assert Chart(lambda z: z[:, :1]).volume(torch.ones(2, 2)).tolist() == [0.0, 0.0]


def test_invalid_arguments():
    chart, a = Chart(sphere), torch.zeros(2)
    with pytest.raises(ValueError, match="expected num_points >= 2"):
        chart.geodesic(a, a, num_points=1)
    with pytest.raises(ValueError, match="expected a curve of at least 2 points, got 1"):
        chart.length(torch.zeros(1, 2))
    with pytest.raises(ValueError, match="NaN or infinity"):
        chart.geodesic(a, torch.tensor([float("nan"), 0.0]))


def test_latents_of_different_sizes(unchecked):
    with pytest.raises(ValueError, match="expected a and b of one shape"):
        Chart(sphere).geodesic(torch.zeros(2), torch.zeros(3))


@law("L(γ)² ≤ 2 E(γ)", discover_with=None)
def length_by_energy(f: Map, curve: Tensor, *, draw: Draw) -> Statement:
    """The square of a curve's length is at most twice its energy, by Cauchy and Schwarz.

    `f` returns length and energy.

    Satisfied by: both of one metric.
    Broken by: an energy without its factor; a length of codes in place of their images.
    """
    length, energy = f.raw_output(curve)
    return AtMost(length.square(), 2 * energy)


def claims() -> Iterator[Claim]:
    """Laws of a chart, on known surfaces."""

    def sphere(z: Tensor) -> Tensor:
        x, y = z.unbind(-1)
        return 2 * torch.stack([x.cos() * y.cos(), x.sin() * y.cos(), y.sin()], dim=-1)

    chart, near = Chart(sphere), transformed(torch.tanh, "n 2")

    def first_form(z: Tensor) -> Tensor:
        return torch.diag_embed(4 * torch.stack([z[:, 1].cos().square(), torch.ones_like(z[:, 1])], -1))

    yield Claim(agreement(other=first_form), chart.metric, near, name="Chart.metric of a sphere")
    yield Claim(agreement(other=lambda z: 4 * z[:, 1].cos()), chart.volume, near, name="Chart.volume of a sphere")

    def both(curve: Tensor) -> tuple[Tensor, Tensor]:
        return chart.length(curve), chart.energy(curve)

    yield Claim(length_by_energy(), both, shape("t:2..6 2"), name="Chart")

    def flat(curve: Tensor) -> Tensor:
        """Lengths and energies in a plane that is bent but not stretched, of a meridian and a parallel."""
        bent = Chart(lambda z: torch.stack([z[:, 0], 3 * (z[:, 1] / 3).cos(), 3 * (z[:, 1] / 3).sin()], dim=-1))
        return torch.stack([bent.length(curve), bent.energy(curve)])

    def written_out(curve: Tensor) -> Tensor:
        along, around = curve.diff(dim=0).unbind(-1)
        chord = (along.square() + (6 * (around / 6).sin()).square()).sqrt()
        return torch.stack([chord.sum(), chord.square().sum() * len(along) / 2])

    yield Claim(agreement(other=written_out), flat, shape("t:2..6 2"), name="Chart of a cylinder: length and energy")
