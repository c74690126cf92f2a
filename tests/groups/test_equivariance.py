"""Groups in the laws `equivariance` and `invariance`."""

from collections.abc import Iterator

import torch
from torch import nn

import lawful
from lawful.groups import (
    SO3,
    Circle,
    Cyclic,
    DirectProduct,
    Euclidean,
    Orthogonal,
    Scaling,
    SymmetricGroup,
    Translation,
)
from lawful.laws import Claim, equivariance, invariance


def status(model, law, inputs):
    return lawful.check(model, law, inputs=inputs, cases=30).verdicts[0].status


class OfGram(nn.Module):
    """Any network of the Gram matrix of five points, after `prepare`."""

    def __init__(self, prepare):
        super().__init__()
        self.prepare = prepare
        self.network = nn.Sequential(nn.Linear(25, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, x):
        x = self.prepare(x)
        return self.network((x @ x.mT).flatten(-2))


def centered(x):
    return x - x.mean(-2, keepdim=True)


def test_a_function_of_the_gram_matrix_is_invariant_and_a_plain_network_is_not():
    torch.manual_seed(0)
    points = lawful.shape("b 5 3")
    plain = nn.Sequential(nn.Flatten(), nn.Linear(15, 8), nn.Tanh(), nn.Linear(8, 1))
    assert status(plain, invariance(group=Orthogonal(3)), points) == "refuted"
    assert status(OfGram(lambda x: x), invariance(group=Orthogonal(3)), points) == "held"


def test_subtracting_the_centroid_makes_it_euclidean():
    torch.manual_seed(0)
    points = lawful.shape("b 5 3")
    assert status(OfGram(lambda x: x), invariance(group=Euclidean(3)), points) == "refuted"
    assert status(OfGram(centered), invariance(group=Euclidean(3)), points) == "held"


def test_equivariance_of_a_layer_in_one_line():
    points = lawful.shape("b 5 3")
    assert status(nn.Linear(3, 3, bias=False), equivariance(group=SO3()), points) == "refuted"
    assert status(lambda x: x.norm(dim=-1, keepdim=True) * x, equivariance(group=SO3()), points) == "held"
    assert status(centered, invariance(group=Translation(3)), points) == "held"
    assert status(torch.sign, invariance(group=Scaling()), points) == "held"


def test_a_discrete_group_along_an_axis():
    points = lawful.shape("b 5 3")
    assert status(centered, equivariance(group=SymmetricGroup(5), axis=1), points) == "held"
    assert status(lambda x: x.cumsum(1), equivariance(group=SymmetricGroup(5), axis=1), points) == "refuted"
    circular = nn.Conv1d(2, 2, 3, padding=1, padding_mode="circular")
    assert status(circular, equivariance(group=Cyclic(6)), lawful.shape("b 2 6")) == "held"


def test_a_product_raises():
    verdict = lawful.check(torch.relu, invariance(group=DirectProduct(Circle())), inputs=lawful.shape("b 3")).verdicts[
        0
    ]
    assert verdict.status == "error"
    assert "check its factors one by one" in str(verdict)


def claims() -> Iterator[Claim]:
    """The first fundamental theorem of invariants: maps of points that O(3), E(3) and permutations respect."""

    def gram(x):
        return x @ x.mT

    def weighted_sum(x):
        """A sum of the points with weights from the Gram matrix: the form of every equivariant map."""
        return gram(x).tanh() @ x

    points = lawful.shape("b 4 3")
    yield Claim(invariance(group=Orthogonal(3)), gram, points, name="Gram matrix")
    yield Claim(equivariance(group=Orthogonal(3)), weighted_sum, points, name="weighted sum")
    yield Claim(equivariance(group=SymmetricGroup(4), axis=-2), weighted_sum, points, name="weighted sum")
    yield Claim(invariance(group=Euclidean(3)), lambda x: gram(centered(x)), points, name="centered Gram matrix")
    yield Claim(equivariance(group=Orthogonal(4), axis=-2), lambda x: x.mT.flip(-2).mT, points, name="axis=-2")
