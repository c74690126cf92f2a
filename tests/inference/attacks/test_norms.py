"""Second derivations of the norms of attacks."""

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from lawful.inference.attacks import L1, L2, LInf, Norm
from lawful.inference.attacks.norms import _projection
from lawful.laws import Claim, Equal, Map, Statement, agreement, law, samples_follow_density, shape


@law("⟨g, v⟩ = ‖g‖*, ‖v‖ ≤ 1")
def attains_dual_norm(f: Map, g: Tensor, *, norm: Norm, dual: Map) -> Statement:
    """The direction has norm at most 1, and its inner product with the gradient is the dual norm.

    Satisfied by: the sign for the maximum norm, the normalized gradient for the Euclidean norm.
    Broken by: a gradient divided by its norm and a constant.
    """
    v = f(g)
    attained = torch.stack([(g * v).flatten(1).sum(1), norm.length(v).clamp_min(1)])
    return Equal(attained, torch.stack([dual(g), torch.ones_like(g[:, 0])]), exercised=True)


def _sample(sample_ball: Callable[..., Tensor], n: int) -> Tensor:
    return sample_ball(n, 1, seed=int(torch.randint(2**31, ())))


def claims() -> Iterator[Claim]:
    """Yields second derivations of `project`, `steepest_direction` and `sample_ball`."""
    duals = {
        LInf(): lambda g: g.abs().sum(1),
        L2(): lambda g: g.square().sum(1).sqrt(),
        L1(fraction=0.4): lambda g: g.abs().sort(1, descending=True).values[:, :2].mean(1),
    }
    for norm, dual in duals.items():
        name = f"{norm}.steepest_direction"
        yield Claim(attains_dual_norm(norm=norm, dual=dual), norm.steepest_direction, shape("n 5"), name=name)

        def project(delta: Tensor, norm: Norm = norm) -> Tensor:
            bound = torch.full_like(delta, torch.inf)
            return norm.project(delta, 1.1, -bound, bound)

        free = _projection(norm=norm, radius=1.1, low=-torch.inf, high=torch.inf)
        yield Claim(free, project, shape("n 4"), name=f"{norm}.project without bounds")

        def one_by_one(x: Tensor, norm: Norm = norm) -> Tensor:
            return torch.cat([norm.sample_ball(1, 2, 2, seed=3, first=i) for i in range(len(x))]).to(x)

        def together(x: Tensor, norm: Norm = norm) -> Tensor:
            return norm.sample_ball(len(x), 2, 2, seed=3).to(x)

        name = f"{norm}.sample_ball: sample i does not depend on n"
        yield Claim(agreement(other=one_by_one), together, shape("n:1..5"), name=name)
        uniform = samples_follow_density(
            sample=partial(_sample, norm.sample_ball),
            log_prob=lambda x: 0 * x[:, 0] - math.log(2),
            support=(-1.0, 1.0),
        )
        yield Claim(uniform, norm.steepest_direction, shape("1 1"), name=f"{norm}.sample_ball is uniform")


def test_tiny_gradients_have_a_direction():
    g = torch.tensor([[3e-38, -4e-38], [0.0, 0.0]])
    torch.testing.assert_close(L2().steepest_direction(g), torch.tensor([[0.6, -0.8], [0.0, 0.0]]))
    assert L2().steepest_direction(g.double() * 1e-270).isfinite().all()
