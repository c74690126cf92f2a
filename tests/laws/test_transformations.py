"""Equivariance and invariance."""

import pytest
import torch
from torch import nn

from lawful import shape, tokens
from lawful.laws import (
    equivariance,
    gradient_equivariance,
    invariance,
    permutation_equivariance,
    permutation_invariance,
    reversal_equivariance,
    reversal_invariance,
    translation_equivariance,
    translation_invariance,
)
from tests.laws.drivers import test_broken, test_satisfied  # noqa: F401

torch.manual_seed(0)


def attend(x, hidden=None):
    scores = x @ x.mT
    return (scores if hidden is None else scores.masked_fill(hidden, -torch.inf)).softmax(-1) @ x


def attend_causally(x):
    t = torch.arange(x.shape[1])
    return attend(x, t > t[:, None])


def add_positions(x):
    return x + torch.arange(x.shape[1])[:, None]


def pool(x):
    return (x.sum(-1, keepdim=True).softmax(1) * x).sum(1)


def pool_by_position(x):
    return (x * torch.arange(x.shape[1])[:, None]).sum(1)


def circular(channels=2):
    return nn.Conv1d(channels, channels, 3, padding=1, padding_mode="circular")


class Strided(nn.Module):
    """Keeps every other position, and repeats it."""

    def __init__(self):
        super().__init__()
        self.mix = circular()

    def forward(self, x):
        return self.mix(x)[..., ::2].repeat_interleave(2, dim=-1)[..., : x.shape[-1]]


def rotation(draw):
    q, r = torch.linalg.qr(draw.normal(3, 3))
    q = q * r.diagonal().sign()
    return q * q.det()


def rotate(g, x):
    return x @ g.mT


def lines(x):
    return x.unsqueeze(2) - x.unsqueeze(1)


def pull(x):
    """Moves every point along the lines to the others, by a function of the distance."""
    return x + (lines(x) / (1 + lines(x).square().sum(-1, keepdim=True))).mean(2)


def pull_to_the_origin(x):
    return pull(x) - x.exp()


def distances(x):
    return lines(x).square().sum(-1)


def turn(k, x):
    return x.rot90(k, dims=(-2, -1))


def corner(x):
    return x[..., 0, :].square().sum(-1) * x[..., 0].sum(-1)


def averaged_corner(x):
    return sum(corner(turn(k, x)) for k in range(4)) / 4


def message(coordinates, features):
    return features + distances(coordinates).mean(2, keepdim=True), pull(coordinates)


def project_onto_axis(x):
    return x @ torch.tensor([1.0, 2.0, 3.0]).to(x)


class Symmetric(nn.Conv1d):
    """A convolution with a symmetric kernel."""

    def __init__(self):
        super().__init__(2, 2, 3, padding=1)

    def forward(self, x):
        return nn.functional.conv1d(x, self.weight + self.weight.flip(-1), self.bias, padding=1)


def palindrome(x):
    """Adds entries at equal distances from the middle."""
    return (x + x.flip(1)).cumsum(1)[:, -1].tanh()


def energy(x):
    return (-distances(x)).exp().sum((1, 2))


class HeldFirstCoordinate(nn.Module):
    """An energy of distances; the first coordinate passes no gradient."""

    def forward(self, x):
        return energy(torch.cat([x[..., :1].detach(), x[..., 1:]], dim=-1))


def eighths(draw):
    return draw.integer(1, 7, "eighths of a turn")


def turned_image(g, x):
    """Turns images by eighths of a turn, between pixels by interpolation."""
    if g % 2 == 0:
        return x.rot90(g // 2, dims=(-2, -1))
    angle = torch.tensor(g * torch.pi / 4, dtype=x.dtype)
    matrix = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()]).reshape(2, 2)
    placed = torch.cat([matrix, torch.zeros(2, 1, dtype=x.dtype)], dim=1).expand(x.shape[0], 2, 3)
    grid = nn.functional.affine_grid(placed, [x.shape[0], 1, *x.shape[-2:]], align_corners=False)
    return nn.functional.grid_sample(x[:, None], grid, align_corners=False)[:, 0]


def bell(draw):
    """A smooth image that is zero at the border."""
    i = torch.linspace(-3, 3, 25)
    x, y = torch.meshgrid(i, i, indexing="ij")
    centre = draw.normal(2, 2, 1, 1).tanh()
    return (-((x - centre[:, 0]) ** 2 + (y - centre[:, 1]) ** 2) * 2).exp()


def blur(x):
    """Blurs with an isotropic kernel."""
    near = torch.tensor([[1.0, 2.0, 1.0], [2.0, 4.0, 2.0], [1.0, 2.0, 1.0]]).to(x) / 16
    return nn.functional.conv2d(x[:, None], near[None, None], padding=1)[:, 0]


def sideways(x):
    return x.roll(1, -1) - x


def exact_on_the_grid(g):
    return 0.0 if g % 2 == 0 else 0.1


X, POINTS, IMAGE = shape("b t 3"), shape("b n 3"), shape("b n n")
CHANNELS = shape("b 2 t")
zero_padded = nn.Conv1d(2, 2, 3, padding=1)
twice_padded = nn.Sequential(nn.Conv1d(2, 2, 3, padding=1), nn.Conv1d(2, 2, 3, padding=1))
rotated = equivariance(sample=rotation, act=rotate)
unmoved = invariance(sample=rotation, act=rotate)
forced = gradient_equivariance(sample=rotation, act=rotate)
by_eighths = {"sample": eighths, "act": turned_image, "error": exact_on_the_grid}
turned = invariance(sample=lambda draw: draw.integer(1, 3, "k"), act=turn)


def renumbering(draw):
    return draw.permutation(5)


def renumber_nodes(g, x):
    return x.index_select(-2, g)


def renumber_pairs(g, a):
    return a.index_select(-1, g).index_select(-2, g)


renumbered = equivariance(sample=renumbering, act=(renumber_nodes, renumber_pairs), input=(0, 1))
GRAPH = (shape("b 5 3"), shape("b 5 5"))

SATISFIED = {
    "renumbered: a graph convolution": (renumbered, GRAPH, lambda x, a: a @ x),
    "permutation equivariance: attention": (permutation_equivariance(), X, attend),
    "permutation equivariance: each token for itself": (permutation_equivariance(), X, nn.Linear(3, 3)),
    "permutation equivariance: channels": (permutation_equivariance(axis=-1), X, torch.relu),
    "permutation: sum": (permutation_invariance(), X, lambda x: x.sum(1)),
    "permutation: mean": (permutation_invariance(), X, lambda x: x.mean(1)),
    "permutation: maximum": (permutation_invariance(), X, lambda x: x.amax(1)),
    "permutation: attention pooling": (permutation_invariance(), X, pool),
    "translation equivariance: circular convolution": (translation_equivariance(), CHANNELS, circular()),
    "translation equivariance: zero padding": (translation_equivariance(border=1), CHANNELS, zero_padded),
    "translation equivariance: zero padding twice": (translation_equivariance(border=2), CHANNELS, twice_padded),
    "rotated: relative vectors": (rotated, POINTS, pull),
    "rotated: coordinates beside features": (
        equivariance(sample=rotation, act=rotate, input="coordinates", output=1),
        (POINTS, shape("b n 4")),
        message,
    ),
    "rotation: distances": (unmoved, POINTS, distances),
    "rotation: by act_out": (
        equivariance(sample=rotation, act=rotate, act_out=lambda g, y: y),
        POINTS,
        distances,
    ),
    "quarter turn: an average over the group": (turned, IMAGE, averaged_corner),
    "reversal equivariance: attention": (reversal_equivariance(), X, attend),
    "reversal equivariance: a symmetric kernel": (reversal_equivariance(axis=-1), CHANNELS, Symmetric()),
    "reversal: mean": (reversal_invariance(), X, lambda x: x.mean(1)),
    "circular shifts: mean": (translation_invariance(axis=1), X, lambda x: x.mean(1)),
    "circular shifts: products of neighbors": (
        translation_invariance(axis=1),
        X,
        lambda x: (x * x.roll(1, dims=1)).sum(1),
    ),
    "reversal: a palindrome's sum": (reversal_invariance(), X, palindrome),
    "gradient equivariance: of distances": (forced, POINTS, energy),
    "gradient equivariance: of an output that turns": (
        gradient_equivariance(sample=rotation, act=rotate, act_out=rotate),
        POINTS,
        pull,
    ),
    "eighth turn: a blur": (equivariance(**by_eighths), bell, blur),
    "eighth turn: a sum": (invariance(**by_eighths), bell, lambda x: x.sum((-2, -1))),
}
BROKEN = {
    "renumbered: only rows": (renumbered, GRAPH, lambda x, a: a.cumsum(-1) @ x),
    "permutation equivariance: positions": (permutation_equivariance(), X, add_positions),
    "permutation equivariance: a recurrence": (permutation_equivariance(), X, nn.GRU(3, 3, batch_first=True)),
    "permutation equivariance: a causal mask": (permutation_equivariance(), X, attend_causally),
    "permutation: the last": (permutation_invariance(), X, lambda x: x[:, -1]),
    "permutation: weights by position": (permutation_invariance(), X, pool_by_position),
    "translation equivariance: positions": (translation_equivariance(axis=1), X, add_positions),
    "translation equivariance: a stride": (translation_equivariance(), CHANNELS, Strided()),
    "translation equivariance: zero padding without a border": (translation_equivariance(), CHANNELS, zero_padded),
    "translation equivariance: a border too small": (translation_equivariance(border=1), CHANNELS, twice_padded),
    "rotated: an absolute coordinate": (rotated, POINTS, pull_to_the_origin),
    "rotated: features and coordinates swapped": (
        equivariance(sample=rotation, act=rotate, input="coordinates", output=0),
        (POINTS, POINTS),
        message,
    ),
    "rotation: a fixed axis": (unmoved, POINTS, project_onto_axis),
    "rotation: a single coordinate": (unmoved, POINTS, lambda x: x[..., 2].square().sum(1)),
    "quarter turn: one corner": (turned, IMAGE, corner),
    "reversal equivariance: a recurrence": (reversal_equivariance(), X, nn.GRU(3, 3, batch_first=True)),
    "reversal equivariance: a causal mask": (reversal_equivariance(), X, attend_causally),
    "reversal equivariance: a kernel": (reversal_equivariance(axis=-1), CHANNELS, zero_padded),
    "circular shifts: the last": (translation_invariance(axis=1), X, lambda x: x[:, -1]),
    "circular shifts: products of neighbors, without the ends": (
        translation_invariance(axis=1),
        X,
        lambda x: (x[:, 1:] * x[:, :-1]).sum(1),
    ),
    "reversal: the last": (reversal_invariance(), X, lambda x: x[:, -1]),
    "reversal: a recurrence": (reversal_invariance(output=1), X, nn.GRU(3, 3, batch_first=True)),
    "gradient equivariance: a coordinate detached": (forced, POINTS, HeldFirstCoordinate()),
    "eighth turn: a direction": (equivariance(**by_eighths), bell, sideways),
    "eighth turn: a row": (invariance(**by_eighths), bell, lambda x: x[..., 3, :].sum(-1)),
    "eighth turn: an error that is not said": (equivariance(sample=eighths, act=turned_image), bell, blur),
}
SCRIPTS = [
    "reversal equivariance: a causal mask",
    "gradient equivariance: a coordinate detached",
    "rotation: a fixed axis",
]
VACUOUS = {
    "one position to permute": (permutation_equivariance(), shape("b 1 4"), attend),
    "a set of one": (permutation_invariance(), shape("b 1 4"), pool),
    "one position to reverse": (reversal_equivariance(), shape("b 1 4"), attend),
    "nothing to shift": (translation_invariance(axis=1), shape("b 1 4"), pool),
    "a sequence of one": (reversal_invariance(), shape("b 1 4"), pool),
    "nothing within the border": (translation_equivariance(border=1), shape("b 2 3"), zero_padded),
    "the group's identity alone": (invariance(sample=lambda draw: 4, act=turn), IMAGE, corner),
}
WRONG = {
    "permuted": (permutation_equivariance(axis=3), "axis=3 is out of range for an input of shape"),
    "permutation": (permutation_invariance(axis=-4), "axis=-4 is out of range for an input of shape"),
    "translated": (translation_equivariance(axis=3), "axis=3 is out of range for an input of shape"),
    "reversed": (reversal_equivariance(axis=3), "axis=3 is out of range for an input of shape"),
    "shifted": (translation_invariance(axis=3), "axis=3 is out of range for an input of shape"),
    "reversal": (reversal_invariance(axis=-4), "axis=-4 is out of range for an input of shape"),
    "border": (translation_equivariance(border=-1), "border must be at least 0, got -1"),
    "no group": (equivariance(), "expected group=, or both sample= and act="),
    "two actions": (equivariance(sample=rotation, act=(rotate, rotate)), "got 2 for 1 inputs"),
    "no forces": (gradient_equivariance(), "expected group=, or both sample= and act="),
    "no action": (invariance(sample=rotation), "expected group=, or both sample= and act="),
}


@pytest.mark.parametrize(("law", "inputs", "f"), VACUOUS.values(), ids=VACUOUS)
def test_vacuous(law, inputs, f, judge):
    assert judge(f, law, inputs, cases=11).status == "vacuous"


@pytest.mark.parametrize(("law", "reason"), WRONG.values(), ids=WRONG)
def test_parameters_out_of_range(law, reason, judge):
    verdict = judge(attend, law, X)
    assert (verdict.status, verdict.usage_error) == ("error", True)
    assert reason in verdict.reason


POSITIONS = [permutation_equivariance(), reversal_equivariance(), translation_equivariance(axis=1)]


@pytest.mark.parametrize("law", POSITIONS, ids=str)
def test_equivariance_of_a_pooled_output_is_inapplicable(law, judge):
    assert judge(lambda x: x.sum((1, 2)), law, X, cases=5).status == "inapplicable"


INAPPLICABLE = {
    "no gradient": (lambda x: x.detach().sum((1, 2)), POINTS, "the output does not require a gradient"),
    "integers": (lambda x: x, tokens("b n 3", vocab_size=5), "expected a floating-point input"),
}


@pytest.mark.parametrize(("f", "inputs", "reason"), INAPPLICABLE.values(), ids=INAPPLICABLE)
def test_gradient_equivariance_is_inapplicable(f, inputs, reason, judge):
    verdict = judge(f, forced, inputs, cases=5)
    assert verdict.status == "inapplicable"
    assert reason in verdict.reason
