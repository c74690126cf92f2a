import random
from itertools import count

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lawful.data.batches import ShuffledBatches
from lawful.optim.ema import EMA
from lawful.training.loop import Loop, Progress, StopRequest, split
from lawful.training.precision import Precision
from lawful.training.setup import OptimizerStep, TrainerConfig, TrainingSetup
from lawful.training.world import SingleProcess

GENERATOR = torch.Generator().manual_seed(0)
X, Y = torch.randn(14, 3, generator=GENERATOR), torch.randn(14, 1, generator=GENERATOR)


def squares(model, batch):
    return F.mse_loss(model(batch[0]), batch[1])


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Dropout(0.3), nn.ReLU(), nn.Linear(5, 1))


def plan(model, *turns, steps=9, **options):
    turns = turns or (OptimizerStep(loss_fn=squares, optimizer=torch.optim.Adam(model.parameters(), lr=0.01)),)
    return TrainingSetup(
        model=model, optimizer_steps=turns, batches=ShuffledBatches(X, Y, size=5, seed=1), steps=steps, **options
    )


def looped(training):
    """Runs the loop alone, without a folder; returns it, its figures and the steps at which it saved."""
    average = EMA(training.model, decay=training.average) if training.average else None
    loop = Loop(
        training,
        progress=Progress(),
        precision=Precision(TrainerConfig(), print),
        world=SingleProcess(),
        ema_decay=average,
    )
    figures, saves = [], []
    loop.ending = loop.run(
        log=lambda step, found: figures.append(dict(found)),
        save=lambda due: saves.append(loop.progress.step),
        eval_every=4,
        wish=StopRequest(),
    )
    return loop, figures, saves


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


def test_it_equals_a_bare_loop_bit_by_bit():
    model, bare = network(), network()
    torch.manual_seed(7)
    turn = OptimizerStep(
        loss_fn=squares,
        optimizer=torch.optim.AdamW(model.parameters(), lr=0.1),
        schedule=lambda step: 1 / (step + 1),
        grad_clip_norm=0.5,
    )
    _, figures, saves = looped(plan(model, turn, augment=lambda b: (b[0] + torch.randn_like(b[0]), b[1])))
    torch.manual_seed(7)
    optimizer = torch.optim.AdamW(bare.parameters(), lr=0.1)
    batches = ShuffledBatches(X, Y, size=5, seed=1)
    for step in range(9):
        x, y = batches.batch(step)
        optimizer.param_groups[0]["lr"] = 0.1 * (1 / (step + 1))
        loss = F.mse_loss(bare(x + torch.randn_like(x)), y)
        loss.backward()
        nn.utils.clip_grad_norm_(bare.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        assert figures[step] == {"loss": float(loss.detach()), "learning_rate": 0.1 * (1 / (step + 1))}
    assert same(model, bare)
    assert saves == [4, 8, 9]


@pytest.mark.parametrize("parts", [2, 3, 100])
def test_accumulation_gives_the_same_gradient(parts):
    def made(accumulate):
        torch.manual_seed(0)
        model = nn.Linear(3, 1).double()
        turn = OptimizerStep(loss_fn=squares, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
        data = ShuffledBatches(X.double(), Y.double(), size=5, seed=1)
        training = TrainingSetup(model=model, optimizer_steps=[turn], batches=data, steps=6, grad_accumulation_steps=accumulate)
        return model, looped(training)[1]

    (one, figures), (many, others) = made(1), made(parts)
    torch.testing.assert_close(one.weight, many.weight)
    assert [f["loss"] for f in figures] == pytest.approx([f["loss"] for f in others])


def test_parts_are_nearly_equal_and_weighed():
    found = split((torch.arange(5),), 3)
    assert [(part[0].tolist(), share) for part, share in found] == [([0, 1], 0.4), ([2, 3], 0.4), ([4], 0.2)]


def test_several_players_change_only_their_own():
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
    _, figures, _ = looped(plan(model, *turns))
    one, two = optimizers(bare)
    batches = ShuffledBatches(X, Y, size=5, seed=1)
    for step in range(9):
        for objective, optimizer in ((deceive, one), (tell, two)):
            bare.zero_grad()
            objective(bare, batches.batch(step)).backward()
            optimizer.step()
    assert same(model, bare)
    assert figures[0].keys() == {"maker/loss", "maker/learning_rate", "judge/loss", "judge/learning_rate"}


def test_gradients_from_before_do_not_count():
    model, other = network(), network()
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    for m in (model, other):
        torch.manual_seed(1)
        looped(plan(m))
    assert same(model, other)


def test_an_evaluation_disturbs_nothing():
    def draws(model):
        assert not model.training
        assert not torch.is_grad_enabled()
        random.random(), np.random.rand()
        return {"loss": float(model(torch.randn(4, 3)).sum())}

    model, other = network(), network()
    for m, evaluate in ((model, draws), (other, None)):
        torch.manual_seed(1)
        m[1].eval()
        looped(plan(m, evaluate=evaluate, eval_every=2))
        assert [part.training for part in m] == [True, False, True, True, True]
    assert same(model, other)


def test_a_model_in_evaluation_is_put_in_training():
    model = network().eval()
    looped(plan(model, steps=1))
    assert all(part.training for part in model.modules())


def test_the_average_is_what_is_evaluated():
    model, seen = network(), []

    def evaluate(m):
        seen.append(m[0].weight.detach().clone())
        return {"loss": 1.0}

    loop, _, _ = looped(plan(model, ema_decay=0.5, evaluate=evaluate, eval_every=9))
    assert torch.equal(seen[0], loop.average.tensors["0.weight"])
    assert not torch.equal(seen[0], model[0].weight)


def test_constraints_come_after_every_step():
    model = network()

    def short(m):
        with torch.no_grad():
            m[0].weight.renorm_(2, 0, 0.1)

    looped(plan(model, constrain=short))
    assert (model[0].weight.norm(dim=1) <= 0.1001).all()


def test_patience_ends_it_and_each_best_is_saved():
    figures = iter([3.0, 1.0, 2.0, 2.0, 0.0])
    loop, _, saves = looped(plan(network(), evaluate=lambda m: {"loss": next(figures)}, eval_every=1, patience=2))
    assert loop.ending == "patience"
    assert (loop.progress.step, loop.progress.record.best, loop.progress.record.step) == (4, 1.0, 2)
    assert saves == [1, 2, 4]


def test_the_highest_is_the_best_where_it_is_maximised():
    numbers = count()
    training = plan(
        network(), evaluate=lambda m: {"right": next(numbers)}, eval_every=3, monitor="right", higher_is_better=True
    )
    loop, _, _ = looped(training)
    assert (loop.ending, loop.progress.record.best, loop.progress.record.step) == ("finished", 2, 9)


def test_a_figure_that_is_not_there_is_named():
    with pytest.raises(KeyError, match="watch names no figure of evaluate: got 'loss', there are"):
        looped(plan(network(), evaluate=lambda m: {"accuracy": 1.0}, eval_every=1))
