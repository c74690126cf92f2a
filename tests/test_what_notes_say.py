"""Statements of the notes that no block claims: laws that some maps break, and laws of a Gaussian."""

import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lawful import check, shape
from lawful.functions import cross_entropy, kl_divergence
from lawful.laws import (
    additivity,
    batch_independence,
    boundedness,
    causality,
    checkpointed_gradient,
    commutativity,
    convexity,
    density_integrates_to_one,
    equivariance,
    every_parameter_receives_a_gradient,
    gradient_accumulation,
    identity_of_indiscernibles,
    linearity,
    locality,
    non_negativity,
    reparameterized_gradient,
    samples_follow_density,
    score,
    symmetry,
    transformed,
    triangle_inequality,
)
from lawful.models import MLP

torch.manual_seed(0)


def pair(described):
    return described, described


def interior(x):
    """Returns distributions without probabilities close to 0."""
    return x.tanh().softmax(-1)


def between_logits(x, y):
    return cross_entropy(interior(x), interior(y))


def loss_of_a_deep_network(weights):
    first, second = weights.reshape(2, 2)
    x = torch.tensor([-1.0, 0.5, 2.0]).to(weights)
    return F.mse_loss((x[:, None] * first).tanh() @ second, x.sin())


def deep_network():
    return MLP(2, 1, hidden_dims=(4,))


def dead_layer():
    """A layer of dead units: the input is not negative, and all weights are."""
    layer = nn.Linear(2, 2)
    nn.init.uniform_(layer.weight, -1.0, -0.5)
    nn.init.uniform_(layer.bias, -1.0, -0.5)
    return nn.Sequential(nn.ReLU(), layer, nn.ReLU())


def half_distance(x, y):
    return (x - y).abs().sqrt().sum(-1) ** 2


BILINEAR = nn.Bilinear(2, 2, 1, bias=False)


def scores(x):
    """Attention scores of all pairs of rows, by a bilinear form."""
    return torch.einsum("...id,de,...je->...ij", x, BILINEAR.weight[0].to(x), x)


def quarter_turns(draw):
    return draw.integer(1, 3, "quarter turns")


def turn(n, x):
    return x.rot90(n, (-2, -1))


VECTORS, DISTRIBUTIONS = pair(shape("b 2")), pair(transformed(interior, "b 3"))
REFUTED = {
    "the tensor product commutes": (commutativity(), partial(torch.tensordot, dims=0), (shape("2"), shape("2"))),
    "the matrix product commutes": (commutativity(), torch.matmul, pair(shape("2 2"))),
    "the divergence is symmetric": (commutativity(), kl_divergence, DISTRIBUTIONS),
    "the divergence obeys the triangle inequality": (triangle_inequality(), kl_divergence, DISTRIBUTIONS),
    "cross-entropy is 0 between equals": (identity_of_indiscernibles(), between_logits, VECTORS),
    "the distance with p = 1/2 is one": (triangle_inequality(), half_distance, VECTORS),
    "the loss of a deep network is convex": (convexity(), loss_of_a_deep_network, shape("4")),
    "ReLU is additive": (additivity(), torch.relu, shape("b 2")),
    "ReLU is bounded": (boundedness(high=1e3), torch.relu, shape("b 2")),
    "an affine map is linear": (linearity(), nn.Linear(2, 2), shape("b 2")),
    "an affine map is additive": (additivity(), nn.Linear(2, 2), shape("b 2")),
    "a network with an activation is linear": (linearity(), deep_network(), shape("b 2")),
    "a dense layer is local": (locality(radius=1, axis=-1), nn.Linear(4, 4), shape("b 4")),
    "softmax acts entry by entry": (locality(radius=0, axis=-1), partial(torch.softmax, dim=-1), shape("b 4")),
    "dead units learn": (every_parameter_receives_a_gradient(), dead_layer(), shape("b 2")),
    "max pooling is linear": (linearity(), nn.MaxPool1d(2), shape("b 1 4")),
    "every convolution is causal": (
        causality(time=2),
        nn.Conv1d(1, 1, 3, padding=1),
        shape("b 1 4"),
    ),
    "convolution is equivariant to rotation": (
        equivariance(sample=quarter_turns, act=turn),
        nn.Conv2d(1, 1, 3, padding=1),
        shape("b 1 3 3"),
    ),
    "a batch norm keeps samples apart": (batch_independence(), nn.BatchNorm1d(2), shape("b:2..3 2")),
    "scores through a matrix are symmetric": (symmetry(), scores, shape("b 3 2")),
    "scores through a matrix are not negative": (non_negativity(), scores, shape("b 3 2")),
}


@pytest.mark.parametrize("statement", REFUTED)
def test_statement_is_refuted(statement):
    law, subject, inputs = REFUTED[statement]
    (verdict,) = check(subject, law, inputs=inputs, cases=30)
    assert verdict.status == "refuted", verdict.reason


class Gaussian(nn.Module):
    """exp(-(x - m)² / 2σ²) / Z, with Z = σ √(2π)."""

    def __init__(self):
        super().__init__()
        self.mean, self.log_scale = nn.Parameter(torch.tensor(0.3)), nn.Parameter(torch.tensor(0.2))

    def exponent(self, x):
        return -(((x - self.mean) / self.log_scale.exp()) ** 2) / 2

    def log_prob(self, x):
        return self.exponent(x) - self.log_scale - math.log(2 * math.pi) / 2

    def rsample(self, n):
        return self.mean + self.log_scale.exp() * torch.randn(n, dtype=self.mean.dtype)

    def sample(self, n):
        return self.rsample(n).detach()

    def score(self, x):
        """By backpropagation through the exponent alone: the constant Z drops out."""
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            return torch.autograd.grad(self.exponent(leaf).sum(), leaf)[0]


class Loss(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = deep_network()

    def forward(self, x):
        return self.network(x).square().mean()


HELD = {
    "a density integrates to one": (density_integrates_to_one(), Gaussian, None),
    "samples follow a density": (samples_follow_density(), Gaussian, None),
    "the gradient goes inside the expectation": (reparameterized_gradient(), Gaussian, None),
    "the constant drops out of the score": (score(), Gaussian, shape("b")),
    "the gradients of batches are averaged": (gradient_accumulation(), Loss, shape("b:2..4 2")),
    "activations may be computed again": (checkpointed_gradient(), deep_network(), shape("b 2")),
}


@pytest.mark.parametrize("statement", HELD)
def test_statement_holds(statement):
    law, subject, inputs = HELD[statement]
    (verdict,) = check(subject, law, inputs=inputs, cases=20)
    assert verdict.status == "held", verdict.reason
