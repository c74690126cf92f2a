"""Normalization of densities, distribution of samples, scores and reparameterized gradients."""

import math
import re

import pytest
import torch
from torch import distributions as D
from torch import nn

from lawful import shape
from lawful.laws import density_integrates_to_one, reparameterized_gradient, samples_follow_density, score

torch.manual_seed(0)

follows, whole, moved = samples_follow_density(), density_integrates_to_one(), reparameterized_gradient()
classes = torch.tensor([0.1, 0.2, 0.7])

DISTRIBUTIONS = [
    D.Normal(1e4, 1e-2),
    D.Beta(0.5, 0.5),
    D.Gamma(0.1, 1.0),
    D.Categorical(classes),
    D.Poisson(3.0),
    D.StudentT(2.0),
]
MORE_DISTRIBUTIONS = [
    D.Normal(1.0, 2.0),
    D.Beta(2.0, 3.0),
    D.Gamma(2.0, 3.0),
    D.Bernoulli(0.3),
    D.Uniform(-1.0, 3.0),
    D.MultivariateNormal(torch.zeros(2), torch.tensor([[1.0, 0.8], [0.8, 1.0]])),
]


class Skewed(D.Categorical):
    """`log_prob` is of other classes than `sample` draws."""

    def log_prob(self, value):
        return classes.flip(0).log()[value.long()]


class Heavy(D.Categorical):
    """Its probabilities add up to 1.1."""

    def log_prob(self, value):
        return super().log_prob(value) + math.log(1.1)


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
    pytest.param(ScaleForVariance(1.0, 2.0), marks=pytest.mark.long),
    pytest.param(Truncated(1.0, 2.0), marks=pytest.mark.long),
    Skewed(classes),
    OffByOne(3.0),
]


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=lambda d: str(d).replace("\n", ""))
def test_samples_of_torch_follow_their_density(distribution, judge):
    assert judge(distribution, follows, cases=2).status == "held"


@pytest.mark.parametrize("seed", range(4))
def test_samples_that_their_dtype_rounds_coarsely(seed, judge):
    """The spacing of float32 at 10,000 is a tenth of the scale."""
    assert judge(D.Normal(1e4, 0.01), follows, cases=4, seed=seed).status == "held"


@pytest.mark.long
@pytest.mark.parametrize("distribution", MORE_DISTRIBUTIONS, ids=lambda d: str(d).replace("\n", ""))
def test_samples_of_more_distributions_follow_their_density(distribution, judge):
    assert judge(distribution, follows).status == "held"


@pytest.mark.parametrize("distribution", WRONG, ids=lambda d: type(d).__name__)
def test_samples_of_another_density(distribution, judge):
    assert judge(distribution, follows).status == "refuted"


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


class Unnormalized(nn.Module):
    """Uniform on [0, 1]; the density is 1 everywhere."""

    def sample(self, n):
        return torch.rand(n)

    def log_prob(self, x):
        return torch.zeros_like(x)


class Learned(nn.Module):
    """A normal distribution that learns its mean and the logarithm of its scale."""

    def __init__(self):
        super().__init__()
        self.mean, self.log_scale = nn.Parameter(torch.tensor(0.5)), nn.Parameter(torch.tensor(-0.3))

    def sample(self, n):
        return self.rsample(n).detach()

    def rsample(self, n):
        return self.mean + self.log_scale.exp() * torch.randn(n)

    def log_prob(self, x):
        z = (x - self.mean) * (-self.log_scale).exp()
        return -z.square() / 2 - self.log_scale - math.log(2 * math.pi) / 2

    def score(self, x):
        return (self.mean - x) * (-2 * self.log_scale).exp()

    def score_of_the_energy(self, x):
        return -self.score(x)

    def score_of_the_variance(self, x):
        """Uses the scale as the variance."""
        return (self.mean - x) * (-self.log_scale).exp()


class WithoutItsConstant(Learned):
    def log_prob(self, x):
        return super().log_prob(x) + math.log(2 * math.pi) / 2


class TruncatedWithoutItsFactor(Learned):
    """A truncated distribution whose density is not renormalized."""

    def rsample(self, n):
        return self.mean + self.log_scale.exp() * torch.randn(n).abs()

    def log_prob(self, x):
        return super().log_prob(x).masked_fill(x < self.mean, -torch.inf)


class DetachedScale(Learned):
    def rsample(self, n):
        return self.mean + self.log_scale.exp().detach() * torch.randn(n)


class Mixture(nn.Module):
    """A mixture of two normal distributions."""

    def __init__(self):
        super().__init__()
        self.logits, self.means = nn.Parameter(torch.tensor([0.0, 1.0])), nn.Parameter(torch.tensor([-2.0, 1.0]))

    def sample(self, n):
        return self.rsample(n).detach()

    def rsample(self, n):
        """Straight through: the choice passes no gradient to the logits."""
        return self.means[torch.multinomial(self.logits.softmax(-1), n, replacement=True)] + torch.randn(n)

    def log_prob(self, x):
        each = -(x[..., None] - self.means).square() / 2 - math.log(2 * math.pi) / 2
        return (self.logits.log_softmax(-1) + each).logsumexp(-1)

    def score(self, x):
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            return torch.autograd.grad(self.log_prob(leaf).sum(), leaf)[0]


class Flow(nn.Module):
    """A coupling layer on the plane: the second coordinate is scaled and shifted by functions of the first."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 2))

    def log_scale_and_shift(self, first):
        log_scale, shift = self.net(first).chunk(2, dim=-1)
        return 0.5 + 0.5 * log_scale.tanh(), shift

    def sample(self, n):
        return self.rsample(n).detach()

    def rsample(self, n):
        first, second = torch.randn(n, 2).chunk(2, dim=-1)
        log_scale, shift = self.log_scale_and_shift(first)
        return torch.cat([first, second * log_scale.exp() + shift], dim=-1)

    def log_prob(self, x, sign=-1):
        first, second = x.chunk(2, dim=-1)
        log_scale, shift = self.log_scale_and_shift(first)
        z = torch.cat([first, (second - shift) * (-log_scale).exp()], dim=-1)
        return -z.square().sum(-1) / 2 - math.log(2 * math.pi) + sign * log_scale.sum(-1)


class WrongSign(Flow):
    def log_prob(self, x, sign=1):
        return super().log_prob(x, sign)


conditional = samples_follow_density(sample="draw", log_prob="density")
energies = score(score=lambda x: -2 * x, log_prob=lambda x: -x.square().sum(-1))

two_modes = D.MixtureSameFamily(D.Categorical(torch.ones(2)), D.Normal(torch.tensor([-1e3, 1e3]), torch.ones(2)))

SATISFIED = {
    "a map whose sampler takes no input": (follows, shape("b 2"), Plane()),
    "normalization: four dimensions": (
        density_integrates_to_one(),
        None,
        D.Independent(D.Normal(torch.zeros(4), 1.0), 1),
    ),
    "normalization: positive numbers": (
        density_integrates_to_one(),
        None,
        D.Independent(D.Gamma(torch.ones(2), 1.0), 1),
    ),
    "normalization: two modes": (density_integrates_to_one(), None, two_modes),
    "normalization: a heavy tail": (density_integrates_to_one(), None, D.LogNormal(0.0, 3.0)),
    "a plane": (follows, None, Plane()),
    "given its input": (conditional, shape("5"), Conditional(torch.mean)),
    "on a circle": (samples_follow_density(support=(-math.pi, math.pi)), None, D.VonMises(1.0, 2.0)),
    "on its support": (samples_follow_density(support=(0.0, 1.0)), None, Unnormalized()),
    "functions": (
        samples_follow_density(sample=torch.randn, log_prob=lambda x: -x.square() / 2),
        None,
        nn.Identity(),
    ),
    "normalization: a normal distribution": (whole, None, D.Normal(1.0, 2.0)),
    "normalization: a small scale": (whole, None, D.Normal(1e4, 1e-2)),
    "normalization: on an interval": (whole, None, D.Beta(0.5, 0.5)),
    "normalization: on an interval of another length": (whole, None, D.Uniform(-3.0, 2.0)),
    "normalization: on a circle": (density_integrates_to_one(support=(-math.pi, math.pi)), None, D.VonMises(1.0, 2.0)),
    "normalization: on a half line": (whole, None, D.Gamma(2.0, 3.0)),
    "normalization: classes": (whole, None, D.Categorical(classes)),
    "normalization: counts": (whole, None, D.Poisson(3.0)),
    "normalization: correlated": (
        whole,
        None,
        D.MultivariateNormal(torch.zeros(2), torch.tensor([[1.0, 0.8], [0.8, 1.0]])),
    ),
    "normalization: a mixture": (whole, None, Mixture()),
    "normalization: a flow": (whole, None, Flow()),
    "score: by differentiation": (score(), shape("b"), Mixture()),
    "score: a Gaussian": (score(), shape("b"), Learned()),
    "score: functions": (energies, shape("b 3"), nn.Identity()),
    "reparameterization: a location and a scale": (moved, None, Learned()),
    "reparameterization: a flow": (moved, None, Flow()),
}
BROKEN = {
    "a scale": (follows, None, Plane(factor=1.2)),
    "a correlation": (follows, None, Uncorrelated()),
    "given its input": (conditional, shape("5"), Conditional(torch.sum)),
    "a truncation": (follows, None, Unnormalized()),
    "functions": (
        samples_follow_density(sample=torch.rand, log_prob=lambda x: -x.square() / 2),
        None,
        nn.Identity(),
    ),
    "normalization: a forgotten constant": (whole, None, WithoutItsConstant()),
    "normalization: a truncation without its factor": (whole, None, TruncatedWithoutItsFactor()),
    "normalization: a wrong sign": (whole, None, WrongSign()),
    "normalization: classes that do not add up": (whole, None, Heavy(classes)),
    "score: of the energy": (score(score="score_of_the_energy"), shape("b"), Learned()),
    "score: of the variance": (score(score="score_of_the_variance"), shape("b"), Learned()),
    "reparameterization: a scale detached": (moved, None, DetachedScale()),
    "reparameterization: straight through": (moved, None, Mixture()),
}
SCRIPTS = ["normalization: a forgotten constant", "score: of the energy"]
INAPPLICABLE = {
    "normalization: no samples": (whole, None, nn.Linear(4, 4), "Linear has no method 'sample'"),
    "normalization: a simplex": (whole, None, D.Dirichlet(torch.ones(3)), "the coordinates of a sample are not free"),
    "normalization: several densities": (whole, None, D.Normal(torch.zeros(3), torch.ones(3)), "one number per sample"),
    "score: none": (score(), shape("b"), D.Normal(0.0, 1.0), "Normal has no method 'score'"),
    "score: no gradient": (
        score(score="score", log_prob=lambda x: x.detach().square()),
        shape("b"),
        Learned(),
        "the log-density does not require a gradient",
    ),
    "reparameterization: no parameter": (moved, None, nn.Identity(), "no parameter requires a gradient"),
    "reparameterization: no gradient": (
        reparameterized_gradient(sample="sample"),
        None,
        Learned(),
        "the samples do not require a gradient",
    ),
    "reparameterization: no samples": (moved, None, nn.Linear(4, 4), "Linear has no method 'rsample'"),
}


def slow(table, *names):
    return [pytest.param(name, marks=pytest.mark.long) if name in names else name for name in table]


@pytest.mark.parametrize("name", slow(SATISFIED, "normalization: a small scale"))
def test_satisfied(name, judge):
    law, inputs, f = SATISFIED[name]
    assert judge(f, law, inputs, cases=2).status == "held"


SAMPLES = [name for name, row in BROKEN.items() if row[0].name == follows.name]


@pytest.mark.parametrize("name", slow(BROKEN, *SAMPLES))
def test_broken(name, judge, script_differs):
    law, inputs, f = BROKEN[name]
    verdict = judge(f, law, inputs)
    assert verdict.status == "refuted"
    assert name not in SCRIPTS or script_differs(verdict)
    if verdict.counterexample.kind == "wrong mean":
        assert re.search(r"mean of the samples .*, expected [01] ±", str(verdict))


@pytest.mark.parametrize(("law", "inputs", "f", "reason"), INAPPLICABLE.values(), ids=INAPPLICABLE)
def test_inapplicable(law, inputs, f, reason, judge):
    verdict = judge(f, law, inputs, cases=5)
    assert verdict.status == "inapplicable"
    assert reason in verdict.reason


def test_a_map_without_samples(judge):
    verdict = judge(nn.Linear(4, 4), follows)
    assert verdict.status == "inapplicable"
    assert verdict.reason == "Linear has no method 'sample'"


NOT_SPOKEN_OF = [
    pytest.param(D.Normal(torch.zeros(3), torch.ones(3)), marks=pytest.mark.long),
    D.Normal(torch.zeros(3, 2), torch.ones(3, 2)),
    D.Dirichlet(torch.ones(3)),
    D.OneHotCategorical(classes),
]


@pytest.mark.parametrize("distribution", NOT_SPOKEN_OF, ids=str)
def test_unsupported_distributions(distribution, judge):
    assert judge(distribution, follows).status == "inapplicable"


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
def test_a_rough_density_is_not_refuted(distribution, judge):
    assert judge(distribution, follows).status != "refuted"
