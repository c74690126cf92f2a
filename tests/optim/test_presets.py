from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest
import torch

from lawful import optim
from lawful.laws import Claim, agreement, shape
from lawful.optim import AddDecayedWeights, Chain, EmaMomentum, Momentum, ScaleByLearningRate
from lawful.optim.chain import _FUSED
from lawful.optim.presets import _quadratic, _trajectory


def heavy_ball(params, *, lr, momentum):
    return Chain(params, [ScaleByLearningRate(lr), Momentum(momentum)])


def ema_momentum(params, *, lr, momentum, weight_decay=0.0):
    return Chain(params, [AddDecayedWeights(weight_decay), EmaMomentum(momentum), ScaleByLearningRate(lr)])


def claims() -> Iterator[Claim]:
    """Second derivations: the presets against the equations, PyTorch's defaults and each other."""
    x = shape("n 3")

    def steps(build, **options):
        return lambda x: _trajectory(lambda p: build(p, **options), x)

    def adam_equation(x):
        v, s, points = torch.zeros_like(x), torch.zeros_like(x), [x]
        for t in range(1, 7):
            g = torch.func.grad(_quadratic)(x)
            v, s = 0.9 * v + 0.1 * g, 0.999 * s + (1 - 0.999) * g**2
            x = x - 0.1 * (v / (1 - 0.9**t)) / ((s / (1 - 0.999**t)).sqrt() + 0.1)
            points.append(x)
        return torch.stack(points)

    def nesterov_equation(x):
        point, v = x, torch.zeros_like(x)
        points = [point]
        for _ in range(6):
            ahead = point - 0.1 * 0.8 * v
            v = 0.8 * v + torch.func.grad(_quadratic)(ahead)
            point = point - 0.1 * v
            points.append(point - 0.1 * 0.8 * v)
        return torch.stack(points)

    def same(other):
        return replace(agreement(other=other), cases=20)

    yield Claim(same(adam_equation), steps(optim.adam, lr=0.1, eps=0.1), x, name="adam, written out")
    nesterov = steps(optim.sgd, lr=0.1, momentum=0.8, nesterov=True)
    yield Claim(same(nesterov_equation), nesterov, x, name="sgd(nesterov=True), gradient at the point ahead")
    for ours, theirs in ((optim.adam, torch.optim.Adam), (optim.adamw, torch.optim.AdamW)):
        yield Claim(same(steps(theirs)), steps(ours), x, name=f"{ours.__name__}, defaults")
    sums, ball = steps(optim.sgd, lr=0.1, momentum=0.8), steps(heavy_ball, lr=0.1, momentum=0.8)
    yield Claim(same(ball), sums, x, name="sgd(momentum=m) as heavy ball at a constant learning rate")
    average, ball = steps(ema_momentum, lr=0.5, momentum=0.8), steps(heavy_ball, lr=0.5 * (1 - 0.8), momentum=0.8)
    yield Claim(same(ball), average, x, name="EmaMomentum(m) as heavy ball with lr (1 - m)")

    def decayed(x):
        p = torch.nn.Parameter(x.detach().clone())
        optimizer = optim.adamw([p], lr=0.1, weight_decay=0.5)
        for _ in range(6):
            p.grad = torch.zeros_like(p)
            optimizer.step()
        return p.detach()

    yield Claim(same(lambda x: (1 - 0.1 * 0.5) ** 6 * x), decayed, x, name="adamw, decay without a gradient")


def zero_buffers(optimizer):
    """Starts the buffer of `torch.optim.SGD` at 0, as the equation does, instead of at the first gradient."""
    for group in optimizer.param_groups:
        for p in group["params"]:
            optimizer.state[p]["momentum_buffer"] = torch.zeros_like(p)


PAIRS = {
    "sgd": (
        partial(optim.sgd, lr=0.1, weight_decay=0.05),
        partial(torch.optim.SGD, lr=0.1, weight_decay=0.05),
    ),
    "sgd with momentum": (
        partial(optim.sgd, lr=0.1, momentum=0.8, weight_decay=0.05),
        partial(torch.optim.SGD, lr=0.1, momentum=0.8, weight_decay=0.05),
    ),
    "sgd with Nesterov momentum": (
        partial(optim.sgd, lr=0.1, momentum=0.8, nesterov=True, weight_decay=0.05),
        partial(torch.optim.SGD, lr=0.1, momentum=0.8, nesterov=True, weight_decay=0.05),
    ),
    "heavy ball": (
        partial(heavy_ball, lr=0.1, momentum=0.8),
        partial(torch.optim.SGD, lr=0.1, momentum=0.8),
    ),
    "EMA momentum": (
        partial(ema_momentum, lr=0.1, momentum=0.8, weight_decay=0.05),
        partial(torch.optim.SGD, lr=0.1, momentum=0.8, dampening=0.8, weight_decay=0.05),
    ),
    "adam": (
        partial(optim.adam, lr=0.01, betas=(0.8, 0.99), eps=1e-6, weight_decay=0.05),
        partial(torch.optim.Adam, lr=0.01, betas=(0.8, 0.99), eps=1e-6, weight_decay=0.05),
    ),
    "adamw": (
        partial(optim.adamw, lr=0.01, betas=(0.8, 0.99), eps=1e-6, weight_decay=0.05),
        partial(torch.optim.AdamW, lr=0.01, betas=(0.8, 0.99), eps=1e-6, weight_decay=0.05),
    ),
}
FUSED = [name for name in PAIRS if name not in ("heavy ball", "EMA momentum")]


@pytest.mark.parametrize("name", PAIRS)
def test_matches_pytorch(name, dtype, tools):
    ours, theirs = PAIRS[name]
    before = zero_buffers if name == "EMA momentum" else None
    mine, _ = tools.train_network(lambda m: ours(m.parameters()), dtype)
    other, _ = tools.train_network(lambda m: theirs(m.parameters(), foreach=False), dtype, before=before)
    tools.assert_close(mine, other, dtype)
    fused, _ = tools.train_network(lambda m: theirs(m.parameters(), fused=True), dtype, before=before)
    tools.assert_close(mine, fused, dtype, exact=name in FUSED)


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_default_options_are_pytorchs(name):
    gradient, steps = torch.tensor([1e-8, 1e-3, 1.0]), []
    for make in (getattr(optim, name), {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[name]):
        p = torch.nn.Parameter(torch.ones(3))
        optimizer = make([p])
        for factor in (1.0, -0.5, 2.0):
            p.grad = factor * gradient
            optimizer.step()
        steps.append(p.detach() - 1)
    torch.testing.assert_close(*steps)


@pytest.mark.parametrize("name", FUSED)
def test_the_transforms_define_what_the_fused_kernel_computes(name, dtype, tools):
    def not_fused(model):
        optimizer = PAIRS[name][0](model.parameters())
        assert tuple(map(type, optimizer.transforms["chain"])) in _FUSED
        optimizer.fused = False
        return optimizer

    fused, _ = tools.train_network(lambda m: PAIRS[name][0](m.parameters()), dtype)
    plain, _ = tools.train_network(not_fused, dtype)
    tools.assert_close(fused, plain, dtype)


def test_sgd_and_heavy_ball_differ_when_the_learning_rate_changes(tools):
    def halved(build):
        def make(model):
            optimizer = build(model.parameters(), lr=0.1, momentum=0.9)
            t = iter(range(100))
            optimizer.register_step_pre_hook(
                lambda *_: optimizer.param_groups[0].update(lr=0.1 if next(t) < 10 else 0.05)
            )
            return optimizer

        return make

    sums, _ = tools.train_network(halved(optim.sgd), torch.float64)
    ball, _ = tools.train_network(halved(heavy_ball), torch.float64)
    assert not torch.allclose(sums[0].weight, ball[0].weight, rtol=1e-6)


def test_the_first_step_moves_by_the_new_momentum():
    for build in (heavy_ball, optim.sgd):
        x = torch.nn.Parameter(torch.ones(1))
        x.grad = torch.ones(1)
        build([x], lr=0.5, momentum=0.9).step()
        assert x.item() == 0.5
