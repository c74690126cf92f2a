"""Non-finite values and missing memory: the error names the place, and the last checkpoint stays."""

import math

import pytest
import torch
from torch import nn

from lawful.data.batches import ShuffledBatches
from lawful.training import OptimizerStep, TrainerConfig, TrainingFailed, TrainingSetup, train

TRAINER = TrainerConfig(threads=1, checkpoint_every=2, keep_checkpoints=2, law_cases=0)


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
    turn = OptimizerStep(
        loss_fn=objective, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), grad_clip_norm=grad_clip_norm
    )
    return TrainingSetup(
        model=model, optimizer_steps=[turn], batches=ShuffledBatches(x, batch_size=5, seed=0), steps=steps, **options
    )


def change_loss_after(after, then):
    """A loss function that applies `then` to the loss from call `after` on."""
    calls = []

    def objective(model, batch):
        calls.append(None)
        loss = model(batch[0]).square().mean()
        return then(model, loss) if len(calls) > after else loss

    return objective


def train_until_error(plan, folder, *, match):
    """Trains until an error with this message; returns the step of the newest checkpoint."""
    with pytest.raises(TrainingFailed, match=match) as found:
        train(plan, trainer=TRAINER, output_dir=folder)
    saved = found.value.run.checkpoints.load_newest()
    assert saved is None or all(t.isfinite().all() for t in saved.tensors.values() if t.is_floating_point())
    return saved.step if saved else None


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_non_finite_loss(tmp_path, value):
    plan = training(change_loss_after(5, lambda m, loss: loss * value))
    message = rf"(?s)the loss is {value} at step 6: the outputs of all layers are finite.*checkpoint of step 4 is saved"
    assert train_until_error(plan, tmp_path, match=message) == 4


def test_non_finite_layer_output(tmp_path):
    class Burst(nn.Module):
        calls = 0

        def forward(self, x):
            self.calls += 1
            return x / 0 if self.calls > 3 else x

    plan = training()
    plan.model[1] = Burst()
    message = r"at step 4: the first layer with a non-finite output is 1 \(Burst\)"
    assert train_until_error(plan, tmp_path, match=message) == 2


def test_non_finite_data(tmp_path):
    x = torch.randn(10, 3)
    x[4, 1] = math.nan
    assert train_until_error(training(x=x), tmp_path, match="tensor 0 of the batch is not finite") is None


def test_non_finite_gradient_with_clipping(tmp_path):
    plan = training(change_loss_after(5, lambda m, loss: Root.apply(loss)), grad_clip_norm=1.0)
    message = r"the gradient of 0\.weight is not finite at step 6, but the loss is"
    assert train_until_error(plan, tmp_path, match=message) == 4


@pytest.mark.parametrize(
    ("after", "message"),
    [
        (4, r"at step 6: the last update made the weight 0\.weight non-finite"),
        (5, r"(?s)^(?=.*after step 6).*0\.weight"),
    ],
)
def test_non_finite_gradient_without_clipping(tmp_path, after, message):
    plan = training(change_loss_after(after, lambda m, loss: Root.apply(loss)))
    assert train_until_error(plan, tmp_path, match=message) == 4


def test_resuming_after_the_cause_is_fixed(tmp_path):
    whole = train(training(), trainer=TRAINER, output_dir=tmp_path / "whole")
    with pytest.raises(TrainingFailed, match="the loss is nan at step 6") as found:
        train(training(change_loss_after(5, lambda m, loss: loss * math.nan)), trainer=TRAINER, output_dir=tmp_path)
    resumed = train(training(), trainer=TRAINER, resume=found.value.run)
    assert (resumed.path / "model.safetensors").read_bytes() == (whole.path / "model.safetensors").read_bytes()


def test_a_mask_of_infinities_is_allowed(tmp_path):
    plan = training()
    plan.model.register_buffer("mask", torch.full((2, 2), -math.inf))
    run = train(plan, trainer=TRAINER, output_dir=tmp_path)
    assert run.status == "finished"


@pytest.mark.parametrize("figure", [math.nan, math.inf])
def test_a_non_finite_evaluation_is_never_the_best(tmp_path, figure):
    figures = iter([3.0, figure, 2.0, figure])
    run = train(
        training(evaluate=lambda m: {"loss": next(figures)}, eval_every=2), trainer=TRAINER, output_dir=tmp_path
    )
    assert [line["validation/loss"] for line in run.metrics if "validation/loss" in line] == [3.0, None, 2.0, None]
    assert run.checkpoints.load_newest().metadata["progress"]["early_stopping"]["best"] == 2.0


ERRORS = {
    "accelerator": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB"),
    "processor": RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
    "python": MemoryError(),
}


@pytest.mark.parametrize("kind", ERRORS)
def test_out_of_memory(tmp_path, kind):
    def refuse(model, loss):
        raise ERRORS[kind]

    message = r"^out of memory: lower --batch-size or raise --grad-accumulation-steps\n"
    assert train_until_error(training(change_loss_after(5, refuse)), tmp_path, match=message) == 4


def test_bugs_are_raised_unchanged(tmp_path):
    def refuse(model, loss):
        raise ZeroDivisionError("a mistake")

    with pytest.raises(ZeroDivisionError, match="a mistake"):
        train(training(change_loss_after(5, refuse)), trainer=TRAINER, output_dir=tmp_path)
