import math

import pytest
import torch
from torch.func import jacrev, vmap

from lawful.models.generative import Chart, CNNAutoencoderConfig, MLPAutoencoderConfig, cnn_autoencoder, mlp_autoencoder


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
    curve = chart.geodesic(a, b, points=100)
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


def test_the_shortest_way_in_a_flat_space_is_straight():
    matrix = torch.randn(2, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    chart = Chart(lambda z: z @ matrix)
    a, b = torch.tensor([0.0, 1.0]).double(), torch.tensor([2.0, -1.0]).double()
    assert chart.distance(a, b) == pytest.approx(float(((b - a) @ matrix).norm()))
    straight = a + torch.linspace(0, 1, 64).double()[:, None] * (b - a)
    torch.testing.assert_close(chart.geodesic(a, b), straight, rtol=0, atol=1e-6)
    torch.testing.assert_close(chart.metric(torch.zeros(1, 2).double())[0], matrix @ matrix.mT)


def test_it_goes_round_a_hill():
    """Over the top of a steep hill a way is longer than round it."""
    chart = Chart(lambda z: torch.cat([z, 3 * (-z.square().sum(-1, keepdim=True)).exp()], dim=-1))
    a, b = torch.tensor([-2.0, 0.1]), torch.tensor([2.0, 0.1])
    curve = chart.geodesic(a, b)
    assert curve[:, 1].max() > 0.8
    straight = a + torch.linspace(0, 1, 64)[:, None] * (b - a)
    assert chart.length(curve) < 0.85 * chart.length(straight)


@pytest.mark.parametrize("kind", ["dense", "convolutions"])
def test_the_metric_of_a_decoder_is_that_of_its_jacobian(kind):
    torch.manual_seed(0)
    if kind == "dense":
        model = mlp_autoencoder(MLPAutoencoderConfig(shape=(1, 4, 4), latent=3, hidden=(8,)))
    else:
        model = cnn_autoencoder(CNNAutoencoderConfig(shape=(1, 4, 4), latent=3, width=2))
    chart, z = Chart(model.double().decode), torch.randn(4, 3, dtype=torch.float64)
    j = vmap(jacrev(lambda code: model.decode(code[None]).flatten()))(z)
    torch.testing.assert_close(chart.jacobian(z), j.detach())
    torch.testing.assert_close(chart.metric(z), (j.mT @ j).detach())
    torch.testing.assert_close(chart.volume(z), torch.linalg.det(j.mT @ j).sqrt().detach())
    assert chart.distance(z[0], z[1]) >= float((model.decode(z[:1]) - model.decode(z[1:2])).detach().norm()) - 1e-9
    assert all(p.grad is None for p in model.parameters())


def test_a_code_is_at_no_distance_from_itself():
    here = torch.tensor([0.3, 0.2])
    assert Chart(sphere).distance(here, here) == 0


def test_a_decoder_that_forgets_an_entry_has_no_volume():
    assert Chart(lambda z: z[:, :1]).volume(torch.ones(2, 2)).tolist() == [0.0, 0.0]


def test_impossible_arguments():
    chart, a = Chart(sphere), torch.zeros(2)
    with pytest.raises(ValueError, match="at least 2 points"):
        chart.geodesic(a, a, points=1)
    with pytest.raises(ValueError, match="a curve of at least 2 points was wanted: got 1"):
        chart.length(torch.zeros(1, 2))
    with pytest.raises(ValueError, match="NaN or infinite"):
        chart.geodesic(a, torch.tensor([float("nan"), 0.0]))


def test_codes_of_two_sizes(unchecked):
    with pytest.raises(ValueError, match="two codes of one size"):
        Chart(sphere).geodesic(torch.zeros(2), torch.zeros(3))
