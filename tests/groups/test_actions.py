import pytest
import torch
from torch import nn

import lawful
from lawful.groups.euclidean import Euclidean, Scaling, Translation
from lawful.groups.finite import Cyclic, SymmetricGroup
from lawful.groups.orthogonal import Orthogonal
from lawful.groups.product import DirectProduct
from lawful.groups.so2 import Circle
from lawful.groups.so3 import SO3
from lawful.groups.symmetry import under
from lawful.laws import equivariance, invariance


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


def centred(x):
    return x - x.mean(-2, keepdim=True)


def test_a_function_of_the_gram_matrix_is_invariant_and_a_plain_network_is_not():
    torch.manual_seed(0)
    points = lawful.shape("b 5 3")
    plain = nn.Sequential(nn.Flatten(), nn.Linear(15, 8), nn.Tanh(), nn.Linear(8, 1))
    assert status(plain, invariance(**under(Orthogonal(3))), points) == "refuted"
    assert status(OfGram(lambda x: x), invariance(**under(Orthogonal(3))), points) == "held"


def test_subtracting_the_centroid_makes_it_euclidean():
    torch.manual_seed(0)
    points = lawful.shape("b 5 3")
    assert status(OfGram(lambda x: x), invariance(**under(Euclidean(3))), points) == "refuted"
    assert status(OfGram(centred), invariance(**under(Euclidean(3))), points) == "held"


def test_equivariance_of_a_layer_in_one_line():
    points = lawful.shape("b 5 3")
    assert status(nn.Linear(3, 3, bias=False), equivariance(**under(SO3())), points) == "refuted"
    assert status(lambda x: x.norm(dim=-1, keepdim=True) * x, equivariance(**under(SO3())), points) == "held"
    assert status(centred, invariance(**under(Translation(3))), points) == "held"
    assert status(torch.sign, invariance(**under(Scaling())), points) == "held"


def test_a_discrete_group_along_an_axis():
    points = lawful.shape("b 5 3")
    assert status(centred, equivariance(**under(SymmetricGroup(5), axis=1)), points) == "held"
    assert status(lambda x: x.cumsum(1), equivariance(**under(SymmetricGroup(5), axis=1)), points) == "refuted"
    circular = nn.Conv1d(2, 2, 3, padding=1, padding_mode="circular")
    assert status(circular, equivariance(**under(Cyclic(6))), lawful.shape("b 2 6")) == "held"


def test_a_product_goes_factor_by_factor():
    with pytest.raises(TypeError, match="factor by factor"):
        under(DirectProduct(Circle()))
