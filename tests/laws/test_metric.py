"""Metrics, inner products and orthonormal matrices."""

import pytest
import torch
from torch import nn

from lawful import probabilities, shape, transformed
from lawful.groups import SymmetricGroup
from lawful.laws import (
    cauchy_schwarz,
    identity_of_indiscernibles,
    isometric_action,
    isometry,
    left_invariance,
    metric,
    orthonormality,
    positive_semidefiniteness,
    separation,
    symmetry,
    triangle_inequality,
)
from tests.laws.drivers import test_broken, test_satisfied  # noqa: F401

torch.manual_seed(0)


def euclidean(x, y):
    return (x - y).norm(dim=-1)


def manhattan(x, y):
    return (x - y).abs().sum(-1)


def squared(x, y):
    return (x - y).square().sum(-1)


def cosine(x, y):
    return 1 - nn.functional.cosine_similarity(x, y, dim=-1)


def angle(x, y):
    """Angle between two directions by `atan2`, accurate for small angles."""
    x, y = nn.functional.normalize(x, dim=-1), nn.functional.normalize(y, dim=-1)
    return 2 * torch.atan2((x - y).norm(dim=-1), (x + y).norm(dim=-1))


def first_two(x, y):
    return (x - y)[..., :2].norm(dim=-1)


def smoothed_distance(x, y):
    return ((x - y).square().sum(-1) + 1e-6).sqrt()


def relative_entropy(p, q):
    return (torch.special.xlogy(p, p) - torch.special.xlogy(p, q)).sum(-1)


def inner(x, y):
    return (x * y).sum(-1)


def gaussian_kernel(x, y):
    return (-squared(x, y) / 8).exp()


def lorentzian(x, y):
    """An inner product with a negative weight, as in Minkowski space."""
    return (x * y * torch.tensor([-1.0, 1.0, 1.0, 1.0]).to(x)).sum(-1)


def distance_as_similarity(x, y):
    return 1 + squared(x, y)


def gram(x):
    return x @ x.mT


def covariance(x):
    x = x - x.mean(1, keepdim=True)
    return x.mT @ x / x.shape[1]


def pairwise(x):
    return (x[:, :, None] - x[:, None]).norm(dim=-1)


def attention_weights(x):
    return gram(x).softmax(-1)


def product_of_two(x):
    return gram(x) @ gram(x.flip(-1) * torch.tensor([1.0, 2.0, 3.0, 4.0]).to(x))


class Cayley(nn.Module):
    """A rotation from a skew-symmetric matrix."""

    def forward(self, x):
        skew, one = x - x.mT, torch.eye(x.shape[-1]).to(x)
        return torch.linalg.solve(one + skew, one - skew)


class Learned(nn.Module):
    """A rotation matrix with free entries, after a small step."""

    def __init__(self):
        super().__init__()
        self.rotation = nn.Parameter(torch.linalg.qr(torch.randn(4, 4)).Q + 0.01)

    def forward(self, x):
        return self.rotation.expand(x.shape[0], 4, 4)


def first_of_qr(x):
    return torch.linalg.qr(x).Q


def normalized_columns(x):
    return x / x.norm(dim=-2, keepdim=True)


def whitened(x):
    """Centers samples, and makes the columns uncorrelated and of length 1."""
    x = x - x.mean(-2, keepdim=True)
    return torch.linalg.solve_triangular(torch.linalg.cholesky(x.mT @ x), x.mT, upper=False).mT


def spread(draw):
    return draw.normal(2, 12, 3)


def directions(draw):
    return draw.normal(3, 4), draw.normal(3, 4)


def moved_positions(g, h):
    """A right-invariant distance of permutations, which is not left-invariant."""
    return (g - h).abs().sum(-1)


def sign_difference(g, h):
    return (PERMUTATIONS.sign(g) - PERMUTATIONS.sign(h)).abs()


PERMUTATIONS, PERMUTATION = SymmetricGroup(4), transformed(lambda x: x.argsort(-1), "b 4")
LEFT_INVARIANCE = left_invariance(compose=PERMUTATIONS.compose)
RIGHT_INVARIANCE = left_invariance(compose=lambda g, h: PERMUTATIONS.compose(h, g))
X, PAIR, TALL = shape("b t 4"), (shape("b t 4"), shape("b t 4")), shape("b n:4..6 4")
PROBABILITIES = (probabilities("b 5"), probabilities("b 5"))

SATISFIED = {
    "positive semidefinite: a Gram matrix": (positive_semidefiniteness(), shape("b n 4"), lambda x: x @ x.mT),
    "isometry: a permutation": (isometry(), X, lambda x: x.flip(-1)),
    "isometry: a translation": (isometry(), X, lambda x: x + 1),
    "isometry: into more dimensions": (isometry(), X, lambda x: torch.cat([0.6 * x, 0.8 * x], -1)),
    "isometric action: permutations": (isometric_action(), (PERMUTATION, shape("b 4")), PERMUTATIONS.act),
    "left-invariant: the Cayley distance": (LEFT_INVARIANCE, (PERMUTATION, PERMUTATION), PERMUTATIONS.distance),
    "right-invariant: moved positions": (RIGHT_INVARIANCE, (PERMUTATION, PERMUTATION), moved_positions),
    "separation: the Cayley distance": (separation(), (PERMUTATION, PERMUTATION), PERMUTATIONS.distance),
    "triangle: Euclid": (triangle_inequality(), PAIR, euclidean),
    "triangle: Manhattan": (triangle_inequality(), PAIR, manhattan),
    "triangle: an angle": (triangle_inequality(), directions, angle),
    "indiscernibles: Euclid": (identity_of_indiscernibles(), PAIR, euclidean),
    "indiscernibles: a divergence": (identity_of_indiscernibles(), PROBABILITIES, relative_entropy),
    "indiscernibles: a number for each entry": (identity_of_indiscernibles(), PAIR, lambda x, y: (x - y).abs()),
    "Cauchy-Schwarz: an inner product": (cauchy_schwarz(), PAIR, inner),
    "Cauchy-Schwarz: a kernel": (cauchy_schwarz(), PAIR, gaussian_kernel),
    "metric: Euclid": (metric(), PAIR, euclidean),
    "metric: Manhattan": (metric(), PAIR, manhattan),
    "symmetry: a Gram matrix": (symmetry(), X, gram),
    "symmetry: a covariance": (symmetry(), X, covariance),
    "symmetry: distances": (symmetry(), X, pairwise),
    "orthonormal: Q of QR": (orthonormality(), TALL, first_of_qr),
    "orthonormal: a rotation": (orthonormality(), shape("b 3 3"), Cayley()),
    "orthonormal: whitening": (orthonormality(), spread, whitened),
}
BROKEN = {
    "positive semidefinite: distances": (positive_semidefiniteness(), shape("b n:2..4 4"), lambda x: torch.cdist(x, x)),
    "isometry: a scaling": (isometry(), X, lambda x: 1.01 * x),
    "isometry: sorting": (isometry(), X, lambda x: x.sort(-1).values),
    "isometric action: a scaling": (isometric_action(), (PERMUTATION, shape("b 4")), lambda g, x: x * (1 + g)),
    "left-invariant: moved positions": (LEFT_INVARIANCE, (PERMUTATION, PERMUTATION), moved_positions),
    "separation: the sign": (separation(), (PERMUTATION, PERMUTATION), sign_difference),
    "triangle: a squared distance": (triangle_inequality(), PAIR, squared),
    "triangle: one minus the cosine": (triangle_inequality(), directions, cosine),
    "indiscernibles: two coordinates": (identity_of_indiscernibles(), PAIR, first_two),
    "indiscernibles: an eps under the root": (identity_of_indiscernibles(), PAIR, smoothed_distance),
    "Cauchy-Schwarz: a negative weight": (cauchy_schwarz(), PAIR, lorentzian),
    "Cauchy-Schwarz: no kernel": (cauchy_schwarz(), PAIR, distance_as_similarity),
    "metric: squared": (metric(), PAIR, squared),
    "metric: a divergence": (metric(), PROBABILITIES, relative_entropy),
    "symmetry: attention weights": (symmetry(), X, attention_weights),
    "symmetry: a product of two": (symmetry(), X, product_of_two),
    "orthonormal: columns of length 1": (orthonormality(), TALL, normalized_columns),
    "orthonormal: learned entries": (orthonormality(), shape("b 4"), Learned()),
}
INAPPLICABLE = {
    "isometry: a number": (isometry(), X, torch.sum, "expected one output vector per input vector, got () for"),
    "symmetry: a number": (symmetry(), X, torch.sum, "expected a matrix or a batch of matrices, got shape ()"),
    "symmetry: not square": (symmetry(), shape("b 3 4"), torch.relu, "expected a square matrix, got shape"),
    "orthonormal: more columns than rows": (
        orthonormality(),
        shape("b 3 4"),
        torch.relu,
        "at most as many columns as rows",
    ),
}
SCRIPTS = ["triangle: a squared distance", "symmetry: attention weights", "orthonormal: columns of length 1"]


@pytest.mark.parametrize(("law", "inputs", "f", "reason"), INAPPLICABLE.values(), ids=INAPPLICABLE)
def test_inapplicable(law, inputs, f, reason, judge):
    verdict = judge(f, law, inputs, cases=5)
    assert verdict.status == "inapplicable"
    assert reason in verdict.reason


@pytest.mark.parametrize(("f", "part"), [(first_two, "> 0"), (smoothed_distance, "d(x, x)")], ids=["second", "first"])
def test_name_of_the_failing_half(f, part, judge):
    assert judge(f, identity_of_indiscernibles(), PAIR).counterexample.name.endswith(part)


@pytest.mark.parametrize(
    ("f", "part"),
    [(squared, triangle_inequality), (smoothed_distance, identity_of_indiscernibles)],
    ids=["squared", "softened"],
)
def test_name_of_the_failing_part_of_a_metric(f, part, judge):
    verdict = judge(f, metric(), PAIR)
    assert (verdict.status, verdict.law) == ("refuted", "metric()")
    assert (verdict.formula, verdict.reason) == (part.formula, str(part()))
