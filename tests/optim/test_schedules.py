import math

import pytest
import torch
from torch.optim import lr_scheduler

from lawful.optim import constant, cosine_schedule, linear, one_cycle, warmup_stable_decay, with_warmup


def rates(make, steps):
    """What a scheduler of PyTorch makes of the rate 1."""
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
        cosine_schedule(steps=20, floor=0.1),
        lambda o: lr_scheduler.CosineAnnealingLR(o, 20, eta_min=0.1),
        21,
    ),
    "linear": (
        linear(steps=20, floor=0.1),
        lambda o: lr_scheduler.LinearLR(o, start_factor=1.0, end_factor=0.1, total_iters=20),
        30,
    ),
    "warm_up": (
        with_warmup(constant, steps=9),
        lambda o: lr_scheduler.LinearLR(o, start_factor=0.1, end_factor=1.0, total_iters=9),
        30,
    ),
    "one_cycle": (
        one_cycle(steps=20),
        lambda o: lr_scheduler.OneCycleLR(o, 1.0, total_steps=20, cycle_momentum=False),
        20,
    ),
    "one_cycle, otherwise": (
        one_cycle(steps=33, rise=0.5, start=0.1, floor=0.01),
        lambda o: lr_scheduler.OneCycleLR(
            o, 1.0, total_steps=33, pct_start=0.5, div_factor=10, final_div_factor=10, cycle_momentum=False
        ),
        33,
    ),
    "cosine after a warm-up": (
        cosine_schedule(steps=25, warmup=4),
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
def test_equals_pytorchs(name):
    schedule, make, steps = CASES[name]
    for step, rate in enumerate(rates(make, steps)):
        assert schedule(step) == pytest.approx(rate, abs=1e-12)


def test_after_the_end_it_stays():
    for schedule in (cosine_schedule(steps=5, floor=0.2), linear(steps=5, floor=0.2), one_cycle(steps=5, floor=0.2)):
        assert schedule(5) == schedule(500) == pytest.approx(0.2)


def test_warms_up_stays_and_cools_down():
    found = [warmup_stable_decay(steps=10, warmup=3, cooldown=4, floor=0.2)(t) for t in range(12)]
    assert found[:3] == [0.25, 0.5, 0.75]
    assert found[3:7] == [1.0] * 4
    assert found[7:] == pytest.approx([0.8, 0.6, 0.4, 0.2, 0.2])
    assert [warmup_stable_decay(steps=3, cooldown=0)(t) for t in range(4)] == [1.0] * 4


def test_one_cycle_without_a_rise_falls_from_one():
    schedule = one_cycle(steps=5, rise=0.0)
    assert schedule(0) == 1.0
    assert all(schedule(t) > schedule(t + 1) for t in range(4))
    assert one_cycle(steps=5, rise=1.0)(4) == 1.0


def test_no_step_is_wasted_at_a_rate_of_zero():
    for schedule in (
        cosine_schedule(steps=10, warmup=3),
        linear(steps=10, warmup=3),
        warmup_stable_decay(steps=10, cooldown=5),
    ):
        assert all(schedule(t) > 0 and math.isfinite(schedule(t)) for t in range(10))


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match="steps after the warm-up: at least 1 wanted, got 0"):
        cosine_schedule(steps=5, warmup=5)
    with pytest.raises(ValueError, match=r"floor is from 0 to 1: got 1\.5"):
        linear(steps=5, floor=1.5)
    with pytest.raises(ValueError, match="cooldown is from 0 to steps - warmup: got 5 of 6 - 2"):
        warmup_stable_decay(steps=6, warmup=2, cooldown=5)
    with pytest.raises(ValueError, match="steps of the warm-up: at least 0 wanted, got -1"):
        with_warmup(constant, steps=-1)
    with pytest.raises(ValueError, match="steps: at least 2 wanted, got 1"):
        one_cycle(steps=1)
