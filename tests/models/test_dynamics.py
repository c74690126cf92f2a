import torch

from lawful.models import LinearDynamics


def test_least_squares_finds_the_coefficients():
    x, v = torch.randn(2, 50, 4, 3)
    mean_v, mean_x = v.mean(-2, keepdim=True), x.mean(-2, keepdim=True)
    target = x + 0.5 * v - 0.2 * mean_v + 0.3 * (x - mean_x)
    model = LinearDynamics().fit(x, v, target)
    torch.testing.assert_close(model.weight, torch.tensor([0.5, -0.2, 0.3]), atol=1e-5, rtol=0)
    torch.testing.assert_close(model(x, v), target, atol=1e-4, rtol=0)
