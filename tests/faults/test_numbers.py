"""Numbers that are not finite, and memory that is not there: where, and what is kept."""

import math

import pytest
import torch
from torch import nn

from lawful.data.batches import ShuffledBatches
from lawful.training.errors import TrainingFailed
from lawful.training.setup import OptimizerStep, TrainerConfig, TrainingSetup
from lawful.training.trainer import train

ENGINE = TrainerConfig(threads=1, checkpoint_every=2, keep_checkpoints=2, law_cases=0)


class Root(torch.autograd.Function):
    """A loss that is finite, with a gradient that is not."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * math.nan


def training(objective=None, *, x=None, grad_clip_norm=None, steps=8, **options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    x = torch.randn(10, 3) if x is None else x
    objective = objective or (lambda m, b: m(b[0]).square().mean())
    turn = OptimizerStep(loss_fn=objective, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), grad_clip_norm=grad_clip_norm)
    return TrainingSetup(model=model, optimizer_steps=[turn], batches=ShuffledBatches(x, size=5, seed=0), steps=steps, **options)


def counted(after, then):
    """An objective that is `then` of the loss from one call on, and the loss before."""
    calls = []

    def objective(model, batch):
        calls.append(None)
        loss = model(batch[0]).square().mean()
        return then(model, loss) if len(calls) > after else loss

    return objective


def failed(plan, folder):
    with pytest.raises(TrainingFailed) as found:
        train(plan, trainer=ENGINE, output_dir=folder)
    kept = found.value.run.checkpoints.newest()
    assert kept is None or all(t.isfinite().all() for t in kept.tensors.values() if t.is_floating_point())
    return str(found.value), kept.step if kept else None


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite(tmp_path, value):
    said, kept = failed(training(counted(5, lambda m, loss: loss * value)), tmp_path)
    assert f"the loss is {math.copysign(value, 1) if value == value else 'nan'}"[:12] in said
    assert "at step 6: every layer's output is finite: it is the loss" in said
    assert "the checkpoint of step 4 is kept" in said
    assert kept == 4


def test_a_layer_whose_output_is_not_finite(tmp_path):
    class Burst(nn.Module):
        calls = 0

        def forward(self, x):
            self.calls += 1
            return x / 0 if self.calls > 3 else x

    plan = training()
    plan.model[1] = Burst()
    said, kept = failed(plan, tmp_path)
    assert "at step 4: the layer 1 (Burst) is the first whose output is not finite" in said
    assert kept == 2


def test_data_that_is_not_finite(tmp_path):
    x = torch.randn(10, 3)
    x[4, 1] = math.nan
    said, kept = failed(training(x=x), tmp_path)
    assert "the batch itself is not finite (tensor 0)" in said
    assert kept is None


def test_a_gradient_that_is_not_finite_with_clipping(tmp_path):
    said, kept = failed(training(counted(5, lambda m, loss: Root.apply(loss)), grad_clip_norm=1.0), tmp_path)
    assert "the gradient of 0.weight is not finite at step 6, with a finite loss" in said
    assert kept == 4


@pytest.mark.parametrize(("after", "wanted"), [(4, "at step 6: the weight 0.weight is not"), (5, "after step 6")])
def test_a_gradient_that_is_not_finite_without(tmp_path, after, wanted):
    said, kept = failed(training(counted(after, lambda m, loss: Root.apply(loss))), tmp_path)
    assert wanted in said
    assert "0.weight is not finite" in said
    assert kept == 4


def test_it_goes_on_once_the_cause_is_mended(tmp_path):
    whole = train(training(), trainer=ENGINE, output_dir=tmp_path / "whole")
    with pytest.raises(TrainingFailed) as found:
        train(training(counted(5, lambda m, loss: loss * math.nan)), trainer=ENGINE, output_dir=tmp_path)
    resumed = train(training(), trainer=ENGINE, resume=found.value.run)
    assert (resumed.path / "model.safetensors").read_bytes() == (whole.path / "model.safetensors").read_bytes()


def test_a_mask_of_infinities_is_no_divergence(tmp_path):
    plan = training()
    plan.model.register_buffer("mask", torch.full((2, 2), -math.inf))
    run = train(plan, trainer=ENGINE, output_dir=tmp_path)
    assert run.state == "finished"


@pytest.mark.parametrize("figure", [math.nan, math.inf])
def test_an_evaluation_that_is_not_finite_is_never_the_best(tmp_path, figure):
    figures = iter([3.0, figure, 2.0, figure])
    run = train(training(evaluate=lambda m: {"loss": next(figures)}, eval_every=2), trainer=ENGINE, output_dir=tmp_path)
    assert [line["validation/loss"] for line in run.metrics() if "validation/loss" in line] == [3.0, None, 2.0, None]
    assert run.checkpoints.newest().facts["progress"]["record"]["best"] == 2.0


ERRORS = {
    "accelerator": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB"),
    "processor": RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
    "python": MemoryError(),
}


@pytest.mark.parametrize("kind", ERRORS)
def test_memory_that_is_not_there(tmp_path, kind):
    def refuse(model, loss):
        raise ERRORS[kind]

    said, kept = failed(training(counted(5, refuse)), tmp_path)
    assert said.startswith("there is not enough memory for a step: a smaller batch, or accumulate, needs less\n")
    assert kept == 4


def test_a_fault_of_the_program_is_shown_as_it_is(tmp_path):
    def refuse(model, loss):
        raise ZeroDivisionError("a mistake")

    with pytest.raises(ZeroDivisionError, match="a mistake"):
        train(training(counted(5, refuse)), trainer=ENGINE, output_dir=tmp_path)
