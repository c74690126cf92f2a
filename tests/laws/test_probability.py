"""Numbers that add up, none of them negative, and samples that follow them."""

import math

import pytest
import torch
from torch import distributions as D
from torch import nn

from lawful import shape
from lawful.laws import non_negativity, samples_follow_density, sums_to_one

torch.manual_seed(0)

X = shape("b t 4")


class Weights(nn.Module):
    """Attends, and returns the weights of the keys as well."""

    def __init__(self, over=-1, dropout=0.0):
        super().__init__()
        self.over, self.dropout = over, nn.Dropout(dropout)

    def forward(self, x):
        weights = self.dropout((x @ x.mT).softmax(self.over))
        return weights @ x, weights


def divergence(x, y):
    p, q = x.log_softmax(-1), y.log_softmax(-1)
    return (p.exp() * (p - q)).sum(-1)


def divergence_swapped(x, y):
    p, q = x.log_softmax(-1), y.log_softmax(-1)
    return (q.exp() * (p - q)).sum(-1)


KEPT = {
    "sum: softmax": (sums_to_one(), X, lambda x: x.softmax(-1)),
    "sum: over another axis": (sums_to_one(axis=1), X, lambda x: x.softmax(1)),
    "sum: attention weights": (sums_to_one(output=1), X, Weights()),
    "sum: dropout in evaluation": (sums_to_one(output=1), X, Weights(dropout=0.5).eval()),
    "sign: softmax": (non_negativity(), X, lambda x: x.softmax(-1)),
    "sign: ReLU": (non_negativity(), X, torch.relu),
    "sign: a divergence": (non_negativity(), (X, X), divergence),
    "sign: a norm": (non_negativity(), X, lambda x: x.norm(dim=-1)),
}
BROKEN = {
    "sum: softmax over another axis": (sums_to_one(), X, lambda x: x.softmax(1)),
    "sum: attention weights over the queries": (sums_to_one(output=1), X, Weights(over=-2)),
    "sum: dropout on the weights": (sums_to_one(output=1), X, Weights(dropout=0.5)),
    "sum: a sigmoid": (sums_to_one(), X, torch.sigmoid),
    "sign: a divergence swapped": (non_negativity(), (X, X), divergence_swapped),
    "sign: rounded squares": (
        non_negativity(),
        X,
        lambda x: x.square().round().mean(-1) - x.mean(-1).square(),
    ),
}


@pytest.mark.parametrize(("law", "inputs", "f"), KEPT.values(), ids=KEPT)
def test_kept(law, inputs, f, judge):
    assert judge(f, law, inputs, cases=20).grade == "held"


@pytest.mark.parametrize(("law", "inputs", "f"), BROKEN.values(), ids=BROKEN)
def test_broken(law, inputs, f, judge):
    assert judge(f, law, inputs).grade == "refuted"


def test_rounding_makes_nothing_negative(judge):
    assert judge(lambda x: x.square().mean(-1) - x.mean(-1).square(), non_negativity(), X).grade == "held"


def test_an_axis_that_the_output_has_not(judge):
    verdict = judge(lambda x: x.softmax(-1).sum(1), sums_to_one(axis=2), X)
    assert (verdict.grade, verdict.usage) == ("error", True)
    assert "axis=2 is out of range: the output has shape" in verdict.reason


follows = samples_follow_density()
probabilities = torch.tensor([0.1, 0.2, 0.7])

DISTRIBUTIONS = [
    D.Normal(1.0, 2.0),
    D.Normal(1e4, 1e-2),
    D.Beta(2.0, 3.0),
    D.Beta(0.5, 0.5),
    D.Gamma(2.0, 3.0),
    D.Gamma(0.1, 1.0),
    D.Categorical(probabilities),
    D.Bernoulli(0.3),
    D.Poisson(3.0),
    D.Uniform(-1.0, 3.0),
    D.StudentT(2.0),
    D.MultivariateNormal(torch.zeros(2), torch.tensor([[1.0, 0.8], [0.8, 1.0]])),
]


class Skewed(D.Categorical):
    """Reports other probabilities than it samples from."""

    def log_prob(self, value):
        return probabilities.flip(0).log()[value.long()]


class ScaleForVariance(D.Normal):
    def sample(self, shape=()):
        return super().sample(shape).sub(self.loc).div(self.scale).mul(self.scale.sqrt()).add(self.loc)


class Truncated(D.Normal):
    def sample(self, shape=()):
        return super().sample(shape).clamp(self.loc - self.scale, self.loc + 3 * self.scale)


class OffByOne(D.Poisson):
    def sample(self, shape=()):
        return super().sample(shape) + 1


WRONG = [
    ScaleForVariance(1.0, 2.0),
    pytest.param(Truncated(1.0, 2.0), marks=pytest.mark.long),
    Skewed(probabilities),
    OffByOne(3.0),
]


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=lambda d: str(d).replace("\n", ""))
def test_samples_of_torch_follow_their_density(distribution, judge):
    assert judge(distribution, follows).grade == "held"


@pytest.mark.parametrize("distribution", WRONG, ids=lambda d: type(d).__name__)
def test_samples_of_another_density(distribution, judge):
    assert judge(distribution, follows).grade == "refuted"


class Plane(nn.Module):
    """Two coordinates, the second normal around a function of the first; samples are scaled by `factor`."""

    def __init__(self, factor=1.0):
        super().__init__()
        self.factor = factor
        self.log_scale = nn.Parameter(torch.tensor([0.5, -0.5]))

    def sample(self, n):
        e = torch.randn(n, 2) * self.log_scale.exp() * self.factor
        return torch.stack([e[:, 0], e[:, 1] + e[:, 0].sin()], dim=-1)

    def log_prob(self, x):
        e = torch.stack([x[:, 0], x[:, 1] - x[:, 0].sin()], dim=-1)
        return -(e * (-self.log_scale).exp()).square().sum(-1) / 2 - self.log_scale.sum()


class Uncorrelated(Plane):
    """Samples the second coordinate as if the first were 0."""

    def sample(self, n):
        return torch.randn(n, 2) * self.log_scale.exp()


class Conditional(nn.Module):
    """Normal around the mean of its input, or (wrongly) around its sum."""

    def __init__(self, pool):
        super().__init__()
        self.pool = pool

    def draw(self, n, x):
        return torch.randn(n) + self.pool(x)

    def density(self, z, x):
        return -(z - x.mean()).square() / 2


class Unnormalised(nn.Module):
    """Uniform on [0, 1]; the density does not say where it ends."""

    def sample(self, n):
        return torch.rand(n)

    def log_prob(self, x):
        return torch.zeros_like(x)


conditional = samples_follow_density(sample="draw", log_prob="density")

FOLLOWS = {
    "a plane": (follows, None, Plane()),
    "given its input": (conditional, shape("5"), Conditional(torch.mean)),
    "on a circle": (samples_follow_density(support=(-math.pi, math.pi)), None, D.VonMises(1.0, 2.0)),
    "on its support": (samples_follow_density(support=(0.0, 1.0)), None, Unnormalised()),
    "functions": (
        samples_follow_density(sample=torch.randn, log_prob=lambda x: -x.square() / 2),
        None,
        nn.Identity(),
    ),
}
FOLLOWS_NOT = {
    "a scale": (follows, None, Plane(factor=1.2)),
    "a correlation": (follows, None, Uncorrelated()),
    "given its input": (conditional, shape("5"), Conditional(torch.sum)),
    "a truncation": (follows, None, Unnormalised()),
    "functions": (
        samples_follow_density(sample=torch.rand, log_prob=lambda x: -x.square() / 2),
        None,
        nn.Identity(),
    ),
}


@pytest.mark.parametrize(("law", "inputs", "f"), FOLLOWS.values(), ids=FOLLOWS)
def test_samples_follow(law, inputs, f, judge):
    assert judge(f, law, inputs).grade == "held"


@pytest.mark.long
@pytest.mark.parametrize(("law", "inputs", "f"), FOLLOWS_NOT.values(), ids=FOLLOWS_NOT)
def test_samples_do_not_follow(law, inputs, f, judge):
    assert judge(f, law, inputs).grade == "refuted"


def test_a_map_without_samples(judge):
    verdict = judge(nn.Linear(4, 4), follows)
    assert verdict.grade == "inapplicable"
    assert verdict.reason == "Linear has no method 'sample'"


NOT_SPOKEN_OF = [
    pytest.param(D.Normal(torch.zeros(3), torch.ones(3)), marks=pytest.mark.long),
    D.Normal(torch.zeros(3, 2), torch.ones(3, 2)),
    D.Dirichlet(torch.ones(3)),
    D.OneHotCategorical(probabilities),
]


@pytest.mark.parametrize("distribution", NOT_SPOKEN_OF, ids=str)
def test_several_densities_or_coordinates_that_move_only_together(distribution, judge):
    assert judge(distribution, follows).grade == "inapplicable"


ROUGH = [
    D.Weibull(2.0, 0.3),
    pytest.param(
        D.MixtureSameFamily(
            D.Categorical(torch.tensor([0.3, 0.7])),
            D.Normal(torch.tensor([-500.0, 5.0]), torch.tensor([0.01, 1.0])),
        ),
        marks=pytest.mark.long,
    ),
]


@pytest.mark.parametrize("distribution", ROUGH, ids=lambda d: type(d).__name__)
def test_a_density_too_rough_to_integrate_is_no_breach(distribution, judge):
    assert judge(distribution, follows).grade != "refuted"
