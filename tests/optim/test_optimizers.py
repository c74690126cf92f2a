from functools import partial

import pytest
import torch

from lawful import optim


def zero_buffers(optimizer):
    """Makes PyTorch's SGD start its velocity at 0, as the formula does, and not at the first gradient."""
    for group in optimizer.param_groups:
        for p in group["params"]:
            optimizer.state[p]["momentum_buffer"] = torch.zeros_like(p)


PAIRS = {
    "gradient_descent": (
        partial(optim.gradient_descent, lr=0.1, decay=0.05),
        partial(torch.optim.SGD, lr=0.1, weight_decay=0.05),
    ),
    "sgd": (
        partial(optim.sgd, lr=0.1, momentum=0.8, decay=0.05),
        partial(torch.optim.SGD, lr=0.1, momentum=0.8, weight_decay=0.05),
    ),
    "sgd without momentum": (partial(optim.sgd, lr=0.1, momentum=0.0), partial(torch.optim.SGD, lr=0.1)),
    "heavy_ball": (
        partial(optim.heavy_ball, lr=0.1, momentum=0.8),
        partial(torch.optim.SGD, lr=0.1, momentum=0.8),
    ),
    "heavy_ball without momentum": (
        partial(optim.heavy_ball, lr=0.1, momentum=0.0),
        partial(torch.optim.SGD, lr=0.1),
    ),
    "momentum": (
        partial(optim.momentum, lr=0.1, beta=0.8, decay=0.05),
        partial(torch.optim.SGD, lr=0.1, momentum=0.8, dampening=0.8, weight_decay=0.05),
    ),
    "nesterov": (
        partial(optim.nesterov, lr=0.1, momentum=0.8, decay=0.05),
        partial(torch.optim.SGD, lr=0.1, momentum=0.8, nesterov=True, weight_decay=0.05),
    ),
    "adam": (
        partial(optim.adam, lr=0.01, beta1=0.8, beta2=0.99, eps=1e-6, decay=0.05),
        partial(torch.optim.Adam, lr=0.01, betas=(0.8, 0.99), eps=1e-6, weight_decay=0.05),
    ),
    "adamw": (
        partial(optim.adamw, lr=0.01, beta1=0.8, beta2=0.99, eps=1e-6, decay=0.05),
        partial(torch.optim.AdamW, lr=0.01, betas=(0.8, 0.99), eps=1e-6, weight_decay=0.05),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_equals_pytorchs(name, dtype, tools):
    ours, theirs = PAIRS[name]
    before = zero_buffers if name == "momentum" else None
    mine, _ = tools.trained(lambda m: ours(m.parameters()), dtype)
    other, _ = tools.trained(lambda m: theirs(m.parameters(), foreach=False), dtype, before=before)
    tools.close(mine, other, dtype)
    fused, _ = tools.trained(lambda m: theirs(m.parameters(), fused=True), dtype, before=before)
    tools.close(mine, fused, dtype, exact=not name.startswith("heavy_ball"))


@pytest.mark.parametrize("name", PAIRS)
def test_the_parts_say_what_the_kernel_does(name, dtype, tools):
    def written_out(model):
        optimizer = PAIRS[name][0](model.parameters())
        assert tuple(map(type, optimizer.kinds["chain"])) in optimizer.kernels
        optimizer.kernels = {}
        return optimizer

    fused, _ = tools.trained(lambda m: PAIRS[name][0](m.parameters()), dtype)
    plain, _ = tools.trained(written_out, dtype)
    tools.close(fused, plain, dtype)


def test_the_uncorrected_is_the_corrected_at_other_rates(dtype, tools):
    def rescaled(model):
        optimizer = optim.adam(model.parameters(), eps=0.0)
        t = iter(range(1, 100))

        def set_rate(*_):
            n = next(t)
            optimizer.param_groups[0]["lr"] = 0.01 * (1 - 0.9**n) / (1 - 0.999**n) ** 0.5

        optimizer.register_step_pre_hook(set_rate)
        return optimizer

    ours, _ = tools.trained(lambda m: optim.uncorrected_adam(m.parameters(), lr=0.01, eps=0.0), dtype, steps=20)
    other, _ = tools.trained(rescaled, dtype, steps=20)
    tools.close(ours, other, dtype)


def test_momentum_and_heavy_ball_part_when_the_rate_changes(tools):
    def halved(build):
        def make(model):
            optimizer = build(model)
            t = iter(range(100))
            rate = optimizer.param_groups[0]["lr"]
            optimizer.register_step_pre_hook(
                lambda *_: optimizer.param_groups[0].update(lr=rate if next(t) < 10 else rate / 2)
            )
            return optimizer

        return make

    summed, _ = tools.trained(halved(lambda m: optim.sgd(m.parameters(), lr=0.1)), torch.float64)
    ball, _ = tools.trained(halved(lambda m: optim.heavy_ball(m.parameters(), lr=0.1)), torch.float64)
    assert not torch.allclose(summed[0].weight, ball[0].weight, rtol=1e-6)


def test_lion_is_its_formula(dtype, tools):
    class Lion(torch.optim.Optimizer):
        @torch.no_grad()
        def step(self):
            for p in self.param_groups[0]["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                sign = (0.9 * m + 0.1 * p.grad).sign()
                self.state[p]["m"] = 0.99 * m + 0.01 * p.grad
                p.mul_(1 - 0.01 * 0.1).sub_(0.01 * sign)

    ours, _ = tools.trained(lambda m: optim.lion(m.parameters(), lr=0.01, decay=0.1), dtype)
    other, _ = tools.trained(lambda m: Lion(m.parameters(), {}), dtype)
    tools.close(ours, other, dtype)


def test_the_first_step_moves_by_the_new_velocity():
    for build in (optim.heavy_ball, optim.sgd):
        x = torch.nn.Parameter(torch.ones(1))
        x.grad = torch.ones(1)
        build([x], lr=0.5).step()
        assert x.item() == 0.5
