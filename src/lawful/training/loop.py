"""Where numbers stopped being finite: the step, and the layer.

Ctrl-C: once to finish the step, save and stop; twice to stop at once.
The one loop: every training of every recipe goes through it.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Literal

import torch
from torch import Tensor, nn

from lawful.blocks.modes import eval_mode
from lawful.data.batches import Batch
from lawful.optim.early_stopping import EarlyStopping
from lawful.optim.ema import EMA
from lawful.training.checkpoint import full, local, preserve_rng
from lawful.training.precision import Precision
from lawful.training.setup import OptimizerStep, TrainingSetup
from lawful.training.world import SingleProcess


class NonFiniteError(ArithmeticError):
    """A training whose loss, gradient or weights are not finite."""


def not_finite(module: nn.Module) -> str | None:
    """Names the first parameter that is not finite, or buffer that holds NaN; a mask may hold infinities."""
    buffers = ((name, t) for name, t in module.named_buffers() if t.is_floating_point())
    held = [(name, t.nan_to_num(nan=torch.nan, posinf=0, neginf=0)) for name, t in buffers]
    return _first([*module.named_parameters(), *held])


def _first(named: Iterable[tuple[str, Tensor]]) -> str | None:
    named = [(name, local(t.detach())) for name, t in named if _real(t)]
    sums = [t.abs().sum().double().cpu() for _, t in named]
    if not sums or bool(torch.stack(sums).isfinite().all()):
        return None
    return next((name for name, t in named if not bool(t.isfinite().all())), None)


def bad_gradient(module: nn.Module) -> str | None:
    """Names the first parameter whose gradient is not finite."""
    found = ((name, p.grad) for name, p in module.named_parameters() if p.grad is not None)
    return next((name for name, gradient in found if not bool(local(gradient).isfinite().all())), None)


def where(model: nn.Module, call: Callable[[], object], batch: tuple[Tensor, ...]) -> str | None:
    """Says where a forward pass stops being finite: in the batch, a weight or a layer; nothing if in neither.

    The pass is done in any case, since processes that train together make the same calls.
    """
    found: list[str] = []

    def look(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: object, output: object) -> None:
            if not found and not all(bool(t.isfinite().all()) for t in _tensors(output)):
                found.append(f"{name} ({type(module).__name__})")

        return hook

    with ExitStack() as stack, torch.no_grad():
        for name, module in model.named_modules():
            if name:
                stack.callback(module.register_forward_hook(look(name)).remove)
        call()
    for i, tensor in enumerate(batch):
        if _real(tensor) and not bool(tensor.isfinite().all()):
            return f"the batch itself is not finite (tensor {i})"
    if name := _first(model.named_parameters()):
        return (
            f"the weight {name} is not finite: the update before made it so; a lower learning rate or clipping may help"
        )
    return f"the layer {found[0]} is the first whose output is not finite" if found else None


def _real(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _tensors(value: object) -> Iterator[Tensor]:
    """The tensors of an output, which may be a tuple, a list or a dict of outputs."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _tensors(item)


class StopRequest:
    """Whether somebody wants the training to stop."""

    def __init__(self) -> None:
        self.by: str | None = None

    def __bool__(self) -> bool:
        return self.by is not None


@contextmanager
def handle_signals(say: Callable[[str], None]) -> Iterator[StopRequest]:
    """Turns the first Ctrl-C, or a request to terminate, into a wish; a second Ctrl-C interrupts as always."""
    wish = StopRequest()

    def heard(number: int, frame: FrameType | None) -> None:
        if wish:
            raise KeyboardInterrupt
        wish.by = signal.Signals(number).name
        with suppress(Exception):  # a signal may come in the middle of a print, which cannot be begun twice
            say("stopping after this step; once more to stop at once")

    if threading.current_thread() is not threading.main_thread():
        yield wish
        return
    before = {number: signal.signal(number, heard) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield wish
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


Ending = Literal["finished", "patience", "stopped"]


@dataclass
class Progress:
    """How far a training is."""

    step: int = 0
    """Steps done."""
    record: EarlyStopping = field(default_factory=EarlyStopping)
    """The best figure so far, and how long ago it was."""
    seconds: float = 0.0
    """Time spent, over all sessions."""


class Loop:
    """Takes a training from where it is to its end.

    A step draws a batch, and for every turn computes the loss, its gradient and the update. Figures go to `log`, and
    `save` is called after a step that is to survive: with True if that is due, with False if it is the best so far.
    Everything that a step depends on is in the model, the optimizers, the random states and the number of the step, so
    that a loop that goes on from a checkpoint does what it would have done.

    Args:
        training: What is trained.
        progress: Where it is.
        precision: The numbers that it computes with.
        world: The processes that train together.
        average: The moving average of the weights, if it is wanted.
        device: Where batches go.
    """

    def __init__(
        self,
        training: TrainingSetup,
        *,
        progress: Progress,
        precision: Precision,
        world: SingleProcess,
        average: EMA | None = None,
        device: str = "cpu",
    ) -> None:
        self.training, self.progress, self.precision = training, progress, precision
        self.world, self.average, self.device = world, average, device
        progress.record = replace(
            progress.record, patience=training.patience, higher_is_better=training.higher_is_better
        )
        self.rates = [[group["lr"] for group in turn.optimizer.param_groups] for turn in training.optimizer_steps]
        world.setup(training, device=device)

    def run(
        self,
        *,
        log: Callable[[int, dict[str, float]], None],
        save: Callable[[bool], None],
        every: int,
        wish: StopRequest,
    ) -> Ending:
        """Trains to the end, and says which: all steps done, patience lost, or somebody's wish.

        Afterwards learning rates are as they were before, without the schedule.
        """
        try:
            return self._run(log, save, every, wish)
        finally:
            for turn, rates in zip(self.training.optimizer_steps, self.rates, strict=True):
                for group, rate in zip(turn.optimizer.param_groups, rates, strict=True):
                    group["lr"] = rate

    def _run(
        self, log: Callable[[int, dict[str, float]], None], save: Callable[[bool], None], every: int, wish: StopRequest
    ) -> Ending:
        progress, training = self.progress, self.training
        begun = time.monotonic() - progress.seconds
        self.begin()
        while True:
            if progress.step >= training.steps:
                return "finished"
            if progress.record.stop:
                return "patience"
            figures = self.step(progress.step)
            progress.step += 1
            improved = self.judge(figures) if self.evaluation_is_due() else False
            log(progress.step, figures)
            stop = self.world.any(bool(wish))
            progress.seconds = time.monotonic() - begun
            due = stop or progress.step % every == 0 or progress.step == training.steps
            if improved or due:
                save(due)
            if stop:
                return "stopped"

    def begin(self) -> None:
        """Puts the model in training mode; parts of one that is in it already stay as they are."""
        if not self.training.model.training:
            self.training.model.train()
        self.training.model.zero_grad()

    def step(self, step: int) -> dict[str, float]:
        """Does one step: each turn's gradient over the batch, and its update."""
        training, precision, world = self.training, self.precision, self.world
        batch, weight = world.share(training.batches.batch(step))
        batch = tuple(tensor.to(self.device, non_blocking=True) for tensor in batch)
        if training.augment is not None:
            batch = training.augment(batch)
        figures: dict[str, float] = {}
        for index, turn in enumerate(training.optimizer_steps):
            rate = self.set_rate(turn, self.rates[index], step)
            found = self.gradient(index, batch, weight)
            figures |= {f"{turn.name}/{name}" if turn.name else name: value for name, value in found.items()}
            figures[f"{turn.name}/learning_rate" if turn.name else "learning_rate"] = rate
            if not math.isfinite(found["loss"]):
                place = where(training.model, lambda: world.call(index, batch), batch)
                place = world.first(place) or "every layer's output is finite: it is the loss"
                raise NonFiniteError(f"the loss is {found['loss']} at step {step + 1}: {place}")
            precision.unscale(turn.optimizer)
            if turn.grad_clip_norm is not None:
                self.clip(turn, step)
            precision.step(turn.optimizer)
            training.model.zero_grad()
        precision.end_of_step()
        if training.constrain is not None:
            training.constrain(training.model)
        world.settle(weight)
        if self.average is not None:
            self.average.update(training.model)
        return figures

    def gradient(self, index: int, batch: Batch, weight: float) -> dict[str, float]:
        """Adds up the gradient of a turn over the parts of a batch, and returns its figures."""
        figures: dict[str, float] = {}
        parts = split(batch, self.world.parts(batch))
        for part, share in parts:
            with self.world.together(last=part is parts[-1][0]):
                with self.precision.autocast():
                    found = self.world.call(index, part)
                found = {"loss": found} if isinstance(found, Tensor) else found
                loss = found["loss"]
                factor = weight * share
                self.precision.backward(loss if factor == 1 else loss * factor)
            for name, value in found.items():
                figures[name] = figures.get(name, 0.0) + share * float(value.detach())
        return self.world.mean(figures, weight)

    def set_rate(self, turn: OptimizerStep, rates: Sequence[float], step: int) -> float:
        """Sets the learning rate of a step, and returns it."""
        factor = turn.schedule(step)
        for group, rate in zip(turn.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * factor
        return rates[0] * factor

    def clip(self, turn: OptimizerStep, step: int) -> None:
        """Shortens a gradient that is too long."""
        parameters = [p for group in turn.optimizer.param_groups for p in group["params"] if p.grad is not None]
        norm = float(full(nn.utils.clip_grad_norm_(parameters, turn.grad_clip_norm or math.inf)))
        if not math.isfinite(norm) and self.precision.scaler is None:
            bad = self.world.first(bad_gradient(self.training.model)) or "all parameters together"
            raise NonFiniteError(f"the gradient of {bad} is not finite at step {step + 1}, with a finite loss")

    def evaluation_is_due(self) -> bool:
        step, training = self.progress.step, self.training
        return training.evaluate is not None and (step % training.eval_every == 0 or step == training.steps)

    def judge(self, figures: dict[str, float]) -> bool:
        """Evaluates the model, and says whether it is the best so far."""
        training, progress = self.training, self.progress
        with self.as_kept(), eval_mode(training.model), torch.no_grad(), preserve_rng():
            found = dict(self.world.evaluate())
        figures |= {f"validation/{name}": float(value) for name, value in found.items()}
        if training.monitor is None:
            return False
        if training.monitor not in found:
            raise KeyError(f"monitor must be a metric of evaluate, got {training.monitor!r}: it returned {list(found)}")
        progress.record = progress.record.seen(float(found[training.monitor]), progress.step)
        return progress.record.improved

    @contextmanager
    def as_kept(self) -> Iterator[None]:
        """Within it the model has the weights that a run keeps: their moving average, where there is one."""
        with self.average.swapped_in(self.training.model) if self.average is not None else nullcontext():
            yield

    def check(self) -> None:
        """Refuses to keep weights that are not finite."""
        if name := self.world.first(not_finite(self.training.model)):
            raise NonFiniteError(f"the weight {name} is not finite after step {self.progress.step}")


def split(batch: Batch, parts: int) -> list[tuple[Batch, float]]:
    """Cuts a batch into parts of nearly equal size, each with its share of the examples.

    Where there are more parts than examples, the first example fills those that would be empty, with a share of 0.
    """
    if parts == 1:
        return [(batch, 1.0)]
    size = len(batch[0])
    chunks = [*zip(*(tensor.tensor_split(min(parts, size)) for tensor in batch), strict=True)]
    empty = [(tuple(tensor[:1] for tensor in batch), 0.0) for _ in range(parts - size)]
    return [*empty, *((chunk, len(chunk[0]) / size) for chunk in chunks)]
