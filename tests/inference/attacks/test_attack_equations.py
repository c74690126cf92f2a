"""Second derivations of the attacks, mostly on linear classifiers."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.inference.attacks import (
    FGSM,
    FREE,
    L2,
    PGD,
    TARGETED,
    UNTARGETED,
    AttackLoss,
    CarliniWagner,
    DeepFool,
    InputBounds,
    log_odds,
    margin,
    robust_accuracy,
)
from lawful.inference.attacks.base import _eval_with_grad, _gradient, _logits
from lawful.inference.attacks.minimal import _INTERIOR
from lawful.laws import Claim, agreement, derivative, shape, tokens, transformed


def claims() -> Iterator[Claim]:
    """Yields the second derivations of all parts."""
    yield from _losses()
    yield from _parts()
    yield from _ball_attacks()
    yield from _minimal_attacks()


def _losses() -> Iterator[Claim]:
    inputs = (shape("b 4"), tokens("b", vocab_size=4))

    def log_odds_of_softmax(z: Tensor, y: Tensor) -> Tensor:
        p = z.softmax(1).gather(1, y[:, None])[:, 0]
        return ((1 - p) / p).log()

    def of_bounded(loss: AttackLoss) -> AttackLoss:
        return lambda z, y: loss(4 * z.tanh(), y)

    other = of_bounded(log_odds_of_softmax)
    yield Claim(agreement(other=other), of_bounded(log_odds), inputs, name="log_odds of the softmax")

    def gradient(z: Tensor, y: Tensor) -> Tensor:
        one_hot = F.one_hot(y, 4).to(z)
        others = z.masked_fill(one_hot > 0, -torch.inf).softmax(1)
        return torch.where(one_hot > 0, 0.0, others) - one_hot

    yield Claim(derivative(formula=gradient), log_odds, inputs, name="gradient of log_odds")

    def margin_by_rows(z: Tensor, y: Tensor) -> Tensor:
        return torch.stack([max(row[k] for k in range(4) if k != i) - row[i] for row, i in zip(z, y, strict=True)])

    yield Claim(agreement(other=margin_by_rows), margin, inputs, name="margin, row by row")

    def spread(x: Tensor) -> Tensor:
        return x + torch.arange(4.0).to(x) * 1e-3

    def success(z: Tensor, y: Tensor) -> Tensor:
        return torch.stack([goal.success(spread(z), y).to(z) for goal in (UNTARGETED, TARGETED)])

    def positive_margin(z: Tensor, y: Tensor) -> Tensor:
        return torch.stack([(goal.margin(spread(z), y) > 0).to(z) for goal in (UNTARGETED, TARGETED)])

    yield Claim(agreement(other=positive_margin), success, inputs, name="Goal: success is a positive margin")


def _parts() -> Iterator[Claim]:
    bounds = InputBounds(-0.5, 2.0)

    def width(x: Tensor) -> Tensor:
        low, high = bounds.perturbation_bounds(x)
        return (x + high - x - low) / bounds.span

    yield Claim(agreement(other=lambda x: 0 * x + 1), width, shape("n 3"), name="width of perturbation_bounds")
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(), nn.Linear(4, 2))

    def gradient(x: Tensor) -> Tensor:
        with _eval_with_grad(model):
            leaf = x.detach().requires_grad_()
            return _gradient(_logits(model, leaf)[:, 1], leaf)

    def product(x: Tensor) -> Tensor:
        first, _, last, _ = model.parameters()
        return (last[1] @ first).expand(len(x), 3)

    yield Claim(agreement(other=product), gradient, shape("n 3"), name="gradient in eval mode")
    line = nn.Linear(1, 2, bias=False)
    with torch.no_grad():
        line.weight.copy_(torch.tensor([[1.0], [-1.0]]))

    def accuracy(x: Tensor) -> Tensor:
        attack = PGD(eps=0.3, steps=2, random_start=0.0, bounds=FREE)
        labels = torch.zeros(len(x), dtype=torch.long)
        return x.new_tensor(robust_accuracy(line.to(x), x, labels, attack=attack, batch_size=2).value)

    def fraction_beyond(x: Tensor) -> Tensor:
        return (x > 0.3).double().mean().to(x)

    yield Claim(agreement(other=fraction_beyond), accuracy, shape("n:1..5 1"), name="robust_accuracy in one dimension")


def _ball_attacks() -> Iterator[Claim]:
    plane, model = nn.Linear(4, 2), nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))

    def fgsm(x: Tensor) -> Tensor:
        return FGSM(eps=0.25, bounds=FREE)(plane, x, torch.ones(len(x), dtype=torch.long))

    def sign_step(x: Tensor) -> Tensor:
        return x + 0.25 * (plane.weight[0] - plane.weight[1]).sign()

    yield Claim(agreement(other=sign_step), fgsm, shape("n 4"), name="FGSM of a linear classifier")

    def pgd(x: Tensor) -> Tensor:
        attack = PGD(eps=0.5, norm=L2(), steps=2, step_size=0.4, random_start=0.0, bounds=FREE, momentum=0.5)
        return attack(plane, x, torch.zeros(len(x), dtype=torch.long))

    def straight(x: Tensor) -> Tensor:
        direction = plane.weight[1] - plane.weight[0]
        return x + 0.5 * direction / direction.norm()

    yield Claim(agreement(other=straight), pgd, shape("n 4"), name="PGD(L2) of a linear classifier")

    def together(x: Tensor) -> Tensor:
        return PGD(eps=0.3, steps=2, bounds=FREE)(model, x, torch.arange(len(x)) % 3)

    def one_by_one(x: Tensor) -> Tensor:
        attack, y = PGD(eps=0.3, steps=2, bounds=FREE), torch.arange(len(x)) % 3
        each = range(len(x))
        return torch.cat([attack(model, x[i : i + 1], y[i : i + 1], indices=torch.tensor([i])) for i in each])

    name = "PGD does not depend on the batch"
    yield Claim(agreement(other=one_by_one), together, shape("n:1..4 4"), name=name)


def _minimal_attacks() -> Iterator[Claim]:
    plane = nn.Linear(3, 4)

    def deep_fool(x: Tensor) -> Tensor:
        return DeepFool(overshoot=0.5, binary_search_steps=0, bounds=FREE)(plane, x, plane(x).argmax(1))

    def nearest_boundary(x: Tensor) -> Tensor:
        rows = []
        for point in x:
            z = plane(point).detach()
            y = int(z.argmax())
            steps = [(z[y] - z[k], plane.weight[k] - plane.weight[y]) for k in range(4) if k != y]
            gap, step = min(steps, key=lambda pair: float((pair[0] / pair[1].norm()).detach()))
            rows.append(point + 1.5 * gap * step / step.square().sum())
        return torch.stack(rows)

    inputs = transformed(torch.tanh, "n 3")
    yield Claim(agreement(other=nearest_boundary), deep_fool, inputs, name="DeepFool of a linear classifier")
    attack = CarliniWagner(bounds=InputBounds(-1.0, 1.0))

    def round_trip(x: Tensor) -> Tensor:
        return attack._from_variable(attack._to_variable(x.tanh()))

    law = replace(agreement(other=lambda x: _INTERIOR * x.tanh()), cases=20)
    yield Claim(law, round_trip, shape("n 3"), name="CarliniWagner: change of variables")
