import math
from collections.abc import Iterator

import pytest
import torch
from torch.optim import lr_scheduler

from lawful.laws import Claim, agreement, transformed
from lawful.optim import (
    constant_schedule,
    cosine_schedule,
    linear_schedule,
    one_cycle_schedule,
    warmup_stable_decay_schedule,
    with_warmup,
)


def claims() -> Iterator[Claim]:
    """The schedules, written out."""
    steps = transformed(lambda x: (10 * x.abs()).clamp(max=1e6).floor(), "n")
    written_out = {
        "constant_schedule": (constant_schedule(), torch.ones_like),
        "warmup_stable_decay_schedule": (
            warmup_stable_decay_schedule(steps=20, warmup_steps=5, decay_steps=5, min_lr_ratio=0.2),
            lambda t: torch.minimum((t + 1) / 6, 1 - 0.8 * ((t - 15) / 5).clamp(0, 1)).clamp(max=1),
        ),
        "one_cycle_schedule": (
            one_cycle_schedule(steps=21, pct_start=11 / 21, div_factor=5.0, final_div_factor=1e30),
            lambda t: torch.where(
                t <= 10,
                1 - 0.8 * (1 + (math.pi * t / 10).cos()) / 2,
                (1 + (math.pi * (t.clamp(max=20) - 10) / 10).cos()) / 2,
            ),
        ),
    }

    def over_steps(schedule):
        return lambda t: torch.tensor([schedule(int(step)) for step in t]).to(t)

    for name, (schedule, equation) in written_out.items():
        yield Claim(agreement(other=equation), over_steps(schedule), steps, name=f"{name}, written out")


def rates(make, steps):
    """Returns the learning rates of a PyTorch scheduler that starts at 1."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler, found = make(optimizer), []
    for step in range(steps):
        if step:
            optimizer.step()
            scheduler.step()
        found.append(optimizer.param_groups[0]["lr"])
    return found


CASES = {
    "cosine": (
        cosine_schedule(steps=20, min_lr_ratio=0.1),
        lambda o: lr_scheduler.CosineAnnealingLR(o, 20, eta_min=0.1),
        21,
    ),
    "linear": (
        linear_schedule(steps=20, min_lr_ratio=0.1),
        lambda o: lr_scheduler.LinearLR(o, start_factor=1.0, end_factor=0.1, total_iters=20),
        30,
    ),
    "with_warmup": (
        with_warmup(constant_schedule(), warmup_steps=9),
        lambda o: lr_scheduler.LinearLR(o, start_factor=0.1, end_factor=1.0, total_iters=9),
        30,
    ),
    "one_cycle": (
        one_cycle_schedule(steps=20),
        lambda o: lr_scheduler.OneCycleLR(o, 1.0, total_steps=20, cycle_momentum=False),
        20,
    ),
    "one_cycle, other options": (
        one_cycle_schedule(steps=33, pct_start=0.5, div_factor=10, final_div_factor=10),
        lambda o: lr_scheduler.OneCycleLR(
            o, 1.0, total_steps=33, pct_start=0.5, div_factor=10, final_div_factor=10, cycle_momentum=False
        ),
        33,
    ),
    "cosine after a warmup": (
        cosine_schedule(steps=25, warmup_steps=4),
        lambda o: lr_scheduler.SequentialLR(
            o,
            [lr_scheduler.LinearLR(o, 0.2, 1.0, total_iters=4), lr_scheduler.CosineAnnealingLR(o, 21)],
            milestones=[4],
        ),
        25,
    ),
}


@pytest.mark.filterwarnings("ignore:The epoch parameter in:UserWarning")
@pytest.mark.parametrize("name", CASES)
def test_matches_pytorch(name):
    schedule, make, steps = CASES[name]
    for step, rate in enumerate(rates(make, steps)):
        assert schedule(step) == pytest.approx(rate, abs=1e-12)


def test_constant_after_the_last_step():
    for schedule in (
        cosine_schedule(steps=5, min_lr_ratio=0.2),
        linear_schedule(steps=5, min_lr_ratio=0.2),
        one_cycle_schedule(steps=5, div_factor=5, final_div_factor=1),
    ):
        assert schedule(5) == schedule(500) == pytest.approx(0.2)


def test_warmup_stable_decay():
    found = [
        warmup_stable_decay_schedule(steps=10, warmup_steps=3, decay_steps=4, min_lr_ratio=0.2)(t) for t in range(12)
    ]
    assert found[:3] == [0.25, 0.5, 0.75]
    assert found[3:7] == [1.0] * 4
    assert found[7:] == pytest.approx([0.8, 0.6, 0.4, 0.2, 0.2])
    assert [warmup_stable_decay_schedule(steps=3, decay_steps=0)(t) for t in range(4)] == [1.0] * 4


def test_one_cycle_without_a_rise_starts_at_one():
    schedule = one_cycle_schedule(steps=5, pct_start=0.0)
    assert schedule(0) == 1.0
    assert all(schedule(t) > schedule(t + 1) for t in range(4))
    assert one_cycle_schedule(steps=5, pct_start=1.0)(4) == 1.0


def test_no_step_has_a_learning_rate_of_zero():
    for schedule in (
        cosine_schedule(steps=10, warmup_steps=3),
        linear_schedule(steps=10, warmup_steps=3),
        warmup_stable_decay_schedule(steps=10, decay_steps=5),
    ):
        assert all(schedule(t) > 0 and math.isfinite(schedule(t)) for t in range(10))


def test_errors_name_what_was_expected():
    with pytest.raises(ValueError, match="steps must be greater than warmup_steps, got steps=5, warmup_steps=5"):
        cosine_schedule(steps=5, warmup_steps=5)
    with pytest.raises(ValueError, match=r"min_lr_ratio must be in \[0, 1\], got 1\.5"):
        linear_schedule(steps=5, min_lr_ratio=1.5)
    with pytest.raises(ValueError, match=r"decay_steps must be in .* got 5 with steps=6 and warmup_steps=2"):
        warmup_stable_decay_schedule(steps=6, warmup_steps=2, decay_steps=5)
    with pytest.raises(ValueError, match="warmup_steps must be at least 0, got -1"):
        with_warmup(constant_schedule(), warmup_steps=-1)
    with pytest.raises(ValueError, match="steps must be at least 2, got 1"):
        one_cycle_schedule(steps=1)
