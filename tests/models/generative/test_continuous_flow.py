"""Second derivations of continuous flows."""

import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.laws import Claim, agreement, density_integrates_to_one, log_determinant, shape
from lawful.models.generative import ContinuousFlow, VelocityField
from lawful.solvers.ode import EULER


class _Linear(nn.Module):
    """The velocity A z, whose flow is known."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.tensor([[-0.5, 0.8], [-0.2, 0.3]]))

    def forward(self, t: Float[Tensor, ""], x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        return x @ self.matrix.T


def test_one_euler_step_adds_the_velocity():
    flow, x = ContinuousFlow(_Linear(), shape=(2,), steps=1, tableau=EULER), torch.randn(3, 2)
    z, log_determinants = flow.encode(x)
    matrix = flow.velocity.get_parameter("matrix")
    torch.testing.assert_close(z, x + x @ matrix.T)
    torch.testing.assert_close(log_determinants, matrix.trace().expand(1, 3))


def test_the_trace_of_many_features_is_estimated_by_probes():
    """Of a diagonal Jacobian, the estimate of every probe is exact."""

    class Scaled(nn.Module):
        def forward(self, t, x):
            return 0.1 * x

    flow, x = ContinuousFlow(Scaled(), shape=(17,), steps=2), torch.randn(3, 17)
    torch.testing.assert_close(flow.encode(x, num_probes=4)[1], torch.full((4, 3), 1.7))


def claims() -> Iterator[Claim]:
    """Laws of continuous flows."""
    straight = ContinuousFlow(_Linear(), shape=(2,), steps=4).fit_normalizer(torch.tensor([[1.0, -2.0], [3.0, 4.0]]))
    bent = ContinuousFlow(VelocityField(2, hidden_dims=[4]), shape=(2,), steps=2)

    def gaussian(x: Tensor) -> Tensor:
        """A linear velocity field maps a Gaussian to a Gaussian."""
        matrix = torch.matrix_exp(straight.velocity.get_parameter("matrix"))
        units = straight.normalizer
        z = (x - units.mean) / units.std @ matrix.T
        return -0.5 * z.square().sum(-1) - math.log(2 * math.pi) + matrix.det().log() - units.std.log().sum()

    near = replace(agreement(other=gaussian, rtol=1e-4), cases=10)
    yield Claim(near, straight.log_prob, shape("n 2"), name="linear field")

    def mapped(x: Tensor) -> tuple[Tensor, Tensor]:
        z, log_det = bent.encode(x)
        return z, log_det[0]

    yield Claim(replace(log_determinant(rtol=1e-3), cases=10), mapped, shape("n 2"), name="ContinuousFlow")

    def again(x: Tensor) -> Tensor:
        return bent.decode(bent.encode(x)[0]) + 2

    same = replace(agreement(other=lambda x: x + 2, rtol=1e-3), cases=10)
    yield Claim(same, again, shape("n 2"), name="there and back")

    def log_prob(x: Tensor) -> Tensor:
        return bent.log_prob_estimate(x.to(bent.normalizer.mean)).value

    def sample(n: int) -> Tensor:
        return bent.sample(n, seed=int(torch.randint(2**31, ())))

    yield Claim(density_integrates_to_one(sample=sample, log_prob=log_prob), log_prob, shape("n 2"), name="its density")
