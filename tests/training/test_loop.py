import math
import os
import random
import signal
import threading
from itertools import count

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lawful.data.batches import ShuffledBatches
from lawful.optim import EMA
from lawful.training.distributed import _SingleProcess
from lawful.training.loop import (
    _find_non_finite,
    _handle_signals,
    _non_finite_gradient,
    _non_finite_weight,
    _Progress,
    _split,
    _StopRequest,
    _TrainingLoop,
)
from lawful.training.precision import _Precision
from lawful.training.setup import OptimizerStep, TrainerConfig, TrainingSetup

GENERATOR = torch.Generator().manual_seed(0)
X, Y = torch.randn(14, 3, generator=GENERATOR), torch.randn(14, 1, generator=GENERATOR)


def squares(model, batch):
    return F.mse_loss(model(batch[0]), batch[1])


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Dropout(0.3), nn.ReLU(), nn.Linear(5, 1))


def make_setup(model, *turns, steps=9, **options):
    turns = turns or (OptimizerStep(loss_fn=squares, optimizer=torch.optim.Adam(model.parameters(), lr=0.01)),)
    return TrainingSetup(
        model=model, optimizer_steps=turns, batches=ShuffledBatches(X, Y, batch_size=5, seed=1), steps=steps, **options
    )


def run_loop(setup):
    """Runs the loop without a run folder; returns it, its metrics and the steps at which it saved."""
    ema = EMA(setup.model, decay=setup.ema_decay) if setup.ema_decay else None
    loop = _TrainingLoop(
        setup,
        progress=_Progress(),
        precision=_Precision(TrainerConfig(), print),
        processes=_SingleProcess(),
        ema=ema,
    )
    metrics, saves = [], []
    loop.outcome = loop.run(
        log=lambda step, found: metrics.append(dict(found)),
        save=lambda due: saves.append(loop.progress.step),
        checkpoint_every=4,
        stop=_StopRequest(),
    )
    return loop, metrics, saves


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


def test_matches_a_bare_pytorch_loop_bit_by_bit():
    model, bare = network(), network()
    torch.manual_seed(7)
    turn = OptimizerStep(
        loss_fn=squares,
        optimizer=torch.optim.AdamW(model.parameters(), lr=0.1),
        schedule=lambda step: 1 / (step + 1),
        grad_clip_norm=0.5,
    )
    _, metrics, saves = run_loop(make_setup(model, turn, augment=lambda b: (b[0] + torch.randn_like(b[0]), b[1])))
    torch.manual_seed(7)
    optimizer = torch.optim.AdamW(bare.parameters(), lr=0.1)
    batches = ShuffledBatches(X, Y, batch_size=5, seed=1)
    for step in range(9):
        x, y = batches.batch(step)
        optimizer.param_groups[0]["lr"] = 0.1 * (1 / (step + 1))
        loss = F.mse_loss(bare(x + torch.randn_like(x)), y)
        loss.backward()
        nn.utils.clip_grad_norm_(bare.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        assert metrics[step] == {"loss": float(loss.detach()), "learning_rate": 0.1 * (1 / (step + 1))}
    assert same(model, bare)
    assert saves == [4, 8, 9]


@pytest.mark.parametrize("parts", [2, 3, 100])
def test_accumulation_gives_the_same_gradient(parts):
    def made(accumulate):
        torch.manual_seed(0)
        model = nn.Linear(3, 1).double()
        turn = OptimizerStep(loss_fn=squares, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
        data = ShuffledBatches(X.double(), Y.double(), batch_size=5, seed=1)
        training = TrainingSetup(
            model=model, optimizer_steps=[turn], batches=data, steps=6, grad_accumulation_steps=accumulate
        )
        return model, run_loop(training)[1]

    (one, metrics), (many, others) = made(1), made(parts)
    torch.testing.assert_close(one.weight, many.weight)
    assert [f["loss"] for f in metrics] == pytest.approx([f["loss"] for f in others])


def test_split_into_nearly_equal_parts():
    found = _split((torch.arange(5),), 3)
    assert [(part[0].tolist(), share) for part, share in found] == [([0, 1], 0.4), ([2, 3], 0.4), ([4], 0.2)]


def test_each_optimizer_changes_only_its_parameters():
    torch.manual_seed(0)
    model = nn.ModuleDict({"maker": nn.Linear(2, 3), "judge": nn.Linear(3, 1)})
    bare = nn.ModuleDict({"maker": nn.Linear(2, 3), "judge": nn.Linear(3, 1)})
    bare.load_state_dict(model.state_dict())

    def deceive(m, b):
        return F.softplus(-m["judge"](m["maker"](b[0][:, :2]))).mean()

    def tell(m, b):
        return F.softplus(-m["judge"](b[0])).mean() + F.softplus(m["judge"](m["maker"](b[0][:, :2]))).mean()

    def optimizers(m):
        return torch.optim.Adam(m["maker"].parameters()), torch.optim.SGD(m["judge"].parameters(), 0.1, momentum=0.9)

    one, two = optimizers(model)
    turns = (
        OptimizerStep(name="maker", loss_fn=deceive, optimizer=one),
        OptimizerStep(name="judge", loss_fn=tell, optimizer=two),
    )
    _, metrics, _ = run_loop(make_setup(model, *turns))
    one, two = optimizers(bare)
    batches = ShuffledBatches(X, Y, batch_size=5, seed=1)
    for step in range(9):
        for objective, optimizer in ((deceive, one), (tell, two)):
            bare.zero_grad()
            objective(bare, batches.batch(step)).backward()
            optimizer.step()
    assert same(model, bare)
    assert metrics[0].keys() == {"maker/loss", "maker/learning_rate", "judge/loss", "judge/learning_rate"}


def test_earlier_gradients_are_cleared():
    model, other = network(), network()
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    for m in (model, other):
        torch.manual_seed(1)
        run_loop(make_setup(m))
    assert same(model, other)


def test_an_evaluation_has_no_side_effects():
    def draws(model):
        assert not model.training
        assert not torch.is_grad_enabled()
        random.random(), np.random.rand()
        return {"loss": float(model(torch.randn(4, 3)).sum())}

    model, other = network(), network()
    for m, evaluate in ((model, draws), (other, None)):
        torch.manual_seed(1)
        m[1].eval()
        run_loop(make_setup(m, evaluate=evaluate, eval_every=2))
        assert [part.training for part in m] == [True, False, True, True, True]
    assert same(model, other)


def test_the_model_is_switched_to_training_mode():
    model = network().eval()
    run_loop(make_setup(model, steps=1))
    assert all(part.training for part in model.modules())


def test_the_ema_forgets_the_first_weights_in_a_short_training():
    """With a constant decay of 0.999 the average of 60 steps would be the first weights."""
    model = nn.Linear(3, 1, bias=False)
    nn.init.constant_(model.weight, 100.0)
    step = OptimizerStep(loss_fn=squares, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    loop, _, _ = run_loop(make_setup(model, step, steps=60, ema_decay=0.999))
    assert float((loop.ema.tensors["weight"] - model.weight.detach()).abs().max()) < 1.0


def test_the_ema_is_evaluated():
    model, seen = network(), []

    def evaluate(m):
        seen.append(m[0].weight.detach().clone())
        return {"loss": 1.0}

    loop, _, _ = run_loop(make_setup(model, ema_decay=0.5, evaluate=evaluate, eval_every=9))
    assert torch.equal(seen[0], loop.ema.tensors["0.weight"])
    assert not torch.equal(seen[0], model[0].weight)


def test_constrain_is_called_after_every_step():
    model = network()

    def short(m):
        with torch.no_grad():
            m[0].weight.renorm_(2, 0, 0.1)

    run_loop(make_setup(model, constrain=short))
    assert (model[0].weight.norm(dim=1) <= 0.1001).all()


def test_early_stopping_saves_each_best_step():
    metrics = iter([3.0, 1.0, 2.0, 2.0, 0.0])
    loop, _, saves = run_loop(
        make_setup(network(), evaluate=lambda m: {"loss": next(metrics)}, eval_every=1, patience=2)
    )
    assert loop.outcome == "early_stopping"
    assert (loop.progress.step, loop.progress.early_stopping.best, loop.progress.early_stopping.best_step) == (
        4,
        1.0,
        2,
    )
    assert saves == [1, 2, 4]


def test_higher_is_better():
    numbers = count()
    training = make_setup(
        network(), evaluate=lambda m: {"right": next(numbers)}, eval_every=3, monitor="right", higher_is_better=True
    )
    loop, _, _ = run_loop(training)
    assert (loop.outcome, loop.progress.early_stopping.best, loop.progress.early_stopping.best_step) == (
        "finished",
        2,
        9,
    )


def test_an_unknown_monitor_is_named():
    with pytest.raises(KeyError, match="monitor must be a metric of evaluate, got 'loss': it returned"):
        run_loop(make_setup(network(), evaluate=lambda m: {"accuracy": 1.0}, eval_every=1))


def normalized_network():
    return nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 1))


def test_the_first_non_finite_tensor_is_named():
    model = normalized_network()
    assert _non_finite_weight(model) is None
    model[1].running_var[0] = math.nan
    assert _non_finite_weight(model) == "1.running_var"
    model[2].weight.data[0, 1] = -math.inf
    assert _non_finite_weight(model) == "2.weight"
    assert _non_finite_weight(nn.ReLU()) is None


def test_large_values_and_masks_of_infinities_are_finite():
    model = normalized_network().half()
    model[0].weight.data.fill_(60000.0)
    model.register_buffer("mask", torch.full((3,), -math.inf))
    model.register_parameter("turning", nn.Parameter(torch.ones(2, dtype=torch.complex64)))
    assert _non_finite_weight(model) is None
    model.turning.data[0] = complex(0, math.nan)
    assert _non_finite_weight(model) == "turning"


def test_non_finite_gradient():
    model = normalized_network()
    assert _non_finite_gradient(model) is None
    model[2].bias.grad = torch.tensor([math.nan])
    assert _non_finite_gradient(model) == "2.bias"


class Pair(nn.Module):
    def forward(self, x):
        return {"a": (x, [x.log()])}


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.pair, self.last = Pair(), nn.Identity()

    def forward(self, x):
        return self.last(self.pair(x)["a"][1][0])


def test_find_non_finite():
    x = torch.tensor([[1.0, 2.0]])
    model = Outer()
    assert "tensor 1 of the batch is not finite" in _find_non_finite(model, lambda: None, (x, x * math.nan))
    assert _find_non_finite(model, lambda: model(-x), (x,)) == "the first layer with a non-finite output is pair (Pair)"
    assert _find_non_finite(model, lambda: model(x), (x,)) is None
    assert not any(module._forward_hooks for module in model.modules())


def test_a_layer_is_blamed_before_its_running_statistics():
    model = nn.Sequential(Outer(), nn.BatchNorm1d(2))
    x = -torch.ones(3, 2)
    assert (
        _find_non_finite(model, lambda: model(x), (x,)) == "the first layer with a non-finite output is 0.pair (Pair)"
    )
    assert _non_finite_weight(model) == "1.running_mean"


def test_the_first_signal_requests_a_stop_and_the_second_interrupts():
    messages, before = [], signal.getsignal(signal.SIGINT)

    def twice():
        with _handle_signals(messages.append) as stop:
            assert not stop
            os.kill(os.getpid(), signal.SIGINT)
            assert stop
            assert stop.signal_name == "SIGINT"
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        twice()
    assert messages == ["stopping after this step; press Ctrl-C again to stop immediately"]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_signal_during_a_print():
    def say(text):
        raise RuntimeError("reentrant call")

    with _handle_signals(say) as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.signal_name == "SIGTERM"


def test_signals_are_not_handled_in_a_thread():
    found = []

    def body():
        with _handle_signals(found.append) as stop:
            found.append((bool(stop), signal.getsignal(signal.SIGINT)))

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert found == [(False, before)]
