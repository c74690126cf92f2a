"""The training loop."""

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
from lawful.optim import EMA, EarlyStopping
from lawful.training.checkpoint import _full, _local, preserve_rng
from lawful.training.distributed import _SingleProcess
from lawful.training.errors import NonFiniteError
from lawful.training.precision import _Precision
from lawful.training.setup import OptimizerStep, TrainingSetup, _as_metrics, _objective_name

_Outcome = Literal["finished", "early_stopping", "interrupted"]


@dataclass
class _Progress:
    """Progress of a training; saved in its checkpoints."""

    step: int = 0
    """Number of finished steps."""
    early_stopping: EarlyStopping = field(default_factory=EarlyStopping)
    """Best evaluation so far."""
    seconds: float = 0.0
    """Training time, over all sessions."""


class _TrainingLoop:
    """Runs training steps until the end, early stopping or an interruption.

    A step depends only on the model, the optimizers, the random states and its number. A loop that is restored
    from a checkpoint gives bit-identical results.

    Args:
        setup: The training.
        progress: Progress so far.
        precision: Autocast and gradient scaling.
        processes: The processes that train together.
        ema: Exponential moving average of the weights, if used.
        device: Device of the batches.
    """

    def __init__(
        self,
        setup: TrainingSetup,
        *,
        progress: _Progress,
        precision: _Precision,
        processes: _SingleProcess,
        ema: EMA | None = None,
        device: str = "cpu",
    ) -> None:
        self.setup, self.progress, self.precision = setup, progress, precision
        self.processes, self.ema, self.device = processes, ema, device
        progress.early_stopping = replace(
            progress.early_stopping, patience=setup.patience, higher_is_better=setup.higher_is_better
        )
        self.initial_lrs = [[group["lr"] for group in step.optimizer.param_groups] for step in setup.optimizer_steps]
        processes.attach(setup, device=device)

    def run(
        self,
        *,
        log: Callable[[int, dict[str, float]], None],
        save: Callable[[bool], None],
        checkpoint_every: int,
        checkpoint_seconds: float = math.inf,
        stop: _StopRequest,
    ) -> _Outcome:
        """Trains to the end. Learning rates are reset to their initial values afterwards.

        Args:
            log: Called with the step and its metrics.
            save: Called after a step that needs a checkpoint: with True if it is due, with False if it is only the
                best evaluation so far.
            checkpoint_every: Steps between checkpoints.
            checkpoint_seconds: Maximum time between checkpoints.
            stop: Set by a signal.
        """
        try:
            return self._run(log, save, checkpoint_every, checkpoint_seconds, stop)
        finally:
            for step, lrs in zip(self.setup.optimizer_steps, self.initial_lrs, strict=True):
                for group, lr in zip(step.optimizer.param_groups, lrs, strict=True):
                    group["lr"] = lr

    def _run(
        self,
        log: Callable[[int, dict[str, float]], None],
        save: Callable[[bool], None],
        checkpoint_every: int,
        checkpoint_seconds: float,
        stop: _StopRequest,
    ) -> _Outcome:
        progress, setup = self.progress, self.setup
        saved = time.monotonic()
        start = saved - progress.seconds
        self.prepare_model()
        while True:
            if progress.step >= setup.steps:
                return "finished"
            if progress.early_stopping.should_stop:
                return "early_stopping"
            metrics = self.step(progress.step)
            progress.step += 1
            improved = self.evaluate(metrics) if self.is_evaluation_due() else False
            log(progress.step, metrics)
            now = time.monotonic()
            interrupted, wanted = self.processes.any(bool(stop), stop.save or now - saved >= checkpoint_seconds)
            progress.seconds = now - start
            due = interrupted or wanted or progress.step % checkpoint_every == 0 or progress.step == setup.steps
            if improved or due:
                save(due)
            if due:
                saved, stop.save = now, False
            if interrupted:
                return "interrupted"

    def prepare_model(self) -> None:
        """Switches the model to training mode, unless it is already, and clears gradients."""
        if not self.setup.model.training:
            self.setup.model.train()
        self.setup.model.zero_grad()

    def step(self, step: int) -> dict[str, float]:
        """Runs one training step: a batch, and for each optimizer the loss, its gradient and the update."""
        setup, precision, processes = self.setup, self.precision, self.processes
        batch, weight = processes.shard_batch(setup.batches.batch(step))
        batch = tuple(tensor.to(self.device, non_blocking=True) for tensor in batch)
        if setup.augment is not None:
            batch = setup.augment(batch)
        metrics: dict[str, float] = {}
        for index, optimizer_step in enumerate(setup.optimizer_steps):
            lr = self.set_lr(optimizer_step, self.initial_lrs[index], step)
            new = self.compute_gradient(index, batch, weight)
            prefix = f"{optimizer_step.name}/" if optimizer_step.name else ""
            metrics |= {f"{prefix}{name}": value for name, value in new.items()}
            metrics[f"{prefix}learning_rate"] = lr
            minimized = _objective_name(new)
            if not math.isfinite(new[minimized]):
                cause = _find_non_finite(setup.model, lambda: processes.loss(index, batch), batch)
                cause = processes.first_text(cause) or "the outputs of all layers are finite"
                raise NonFiniteError(f"the {minimized} is {new[minimized]} at step {step + 1}: {cause}")
            precision.unscale(optimizer_step.optimizer)
            if optimizer_step.grad_clip_norm is not None:
                self.clip_gradient(optimizer_step, step)
            precision.step(optimizer_step.optimizer)
            setup.model.zero_grad()
        precision.update()
        if setup.constrain is not None:
            setup.constrain(setup.model)
        processes.sync_buffers(weight)
        if self.ema is not None:
            self.ema.update(setup.model, decay=min(self.ema.decay, _max_ema_decay(step)))
        return metrics

    def compute_gradient(self, index: int, batch: Batch, weight: float) -> dict[str, float]:
        """Accumulates the gradient of a loss over microbatches, and returns its metrics."""
        metrics: dict[str, float] = {}
        microbatches = _split(batch, self.processes.num_microbatches(batch))
        for microbatch, fraction in microbatches:
            with self.processes.gradient_sync(last=microbatch is microbatches[-1][0]):
                with self.precision.autocast():
                    new = self.processes.loss(index, microbatch)
                new = _as_metrics(new)
                loss, factor = new[_objective_name(new)], weight * fraction
                self.precision.backward(loss if factor == 1 else loss * factor)
            for name, value in new.items():
                metrics[name] = metrics.get(name, 0.0) + fraction * float(value.detach())
        return self.processes.mean_metrics(metrics, weight)

    def set_lr(self, optimizer_step: OptimizerStep, initial_lrs: Sequence[float], step: int) -> float:
        """Sets the scheduled learning rates, and returns the learning rate of the first parameter group."""
        factor = optimizer_step.schedule(step)
        for group, lr in zip(optimizer_step.optimizer.param_groups, initial_lrs, strict=True):
            group["lr"] = lr * factor
        return initial_lrs[0] * factor

    def clip_gradient(self, optimizer_step: OptimizerStep, step: int) -> None:
        """Clips the norm of the gradient."""
        parameters = [p for group in optimizer_step.optimizer.param_groups for p in group["params"]]
        parameters = [p for p in parameters if p.grad is not None]
        max_norm = optimizer_step.grad_clip_norm or math.inf
        norm = float(_full(nn.utils.clip_grad_norm_(parameters, max_norm)))
        if not math.isfinite(norm) and self.precision.scaler is None:
            name = self.processes.first_text(_non_finite_gradient(self.setup.model)) or "all parameters"
            raise NonFiniteError(f"the gradient of {name} is not finite at step {step + 1}, but the loss is")

    def is_evaluation_due(self) -> bool:
        """Returns whether the model is evaluated after this step."""
        step, setup = self.progress.step, self.setup
        return setup.evaluate is not None and (step % setup.eval_every == 0 or step == setup.steps)

    def evaluate(self, metrics: dict[str, float]) -> bool:
        """Adds validation metrics, and returns whether the model is the best so far."""
        setup, progress = self.setup, self.progress
        weights = self.ema.average_parameters(setup.model) if self.ema is not None else nullcontext()
        with weights, eval_mode(setup.model), torch.no_grad(), preserve_rng():
            new = dict(self.processes.evaluate())
        metrics |= {f"validation/{name}": float(value) for name, value in new.items()}
        if setup.monitor is None:
            return False
        if setup.monitor not in new:
            raise KeyError(f"monitor must be a metric of evaluate, got {setup.monitor!r}: it returned {list(new)}")
        progress.early_stopping = progress.early_stopping.update(float(new[setup.monitor]), progress.step)
        return progress.early_stopping.improved

    def check_weights(self) -> None:
        """Raises a NonFiniteError if a weight is not finite, before it is saved."""
        if name := self.processes.first_text(_non_finite_weight(self.setup.model)):
            raise NonFiniteError(f"the weight {name} is not finite after step {self.progress.step}")


def _max_ema_decay(step: int) -> float:
    """Returns the largest EMA decay at a step, so that a short training also forgets its first weights.

    The average is over the last quarter of the steps so far: polynomial-decay averaging with exponent 3.

    Reference:
        Shamir and Zhang, *Stochastic Gradient Descent for Non-smooth Optimization*, 2013.
    """
    return step / (step + 4)


def _split(batch: Batch, parts: int) -> list[tuple[Batch, float]]:
    """Splits a batch into parts of nearly equal size, each with its fraction of the examples.

    If there are more parts than examples, the first example fills the empty ones with a fraction of 0.
    """
    if parts == 1:
        return [(batch, 1.0)]
    size = len(batch[0])
    chunks = [*zip(*(tensor.tensor_split(min(parts, size)) for tensor in batch), strict=True)]
    empty = [(tuple(tensor[:1] for tensor in batch), 0.0) for _ in range(parts - size)]
    return [*empty, *((chunk, len(chunk[0]) / size) for chunk in chunks)]


# ------------------------------------------------------------ values that are not finite


def _non_finite_weight(module: nn.Module) -> str | None:
    """Returns the name of the first non-finite parameter, or buffer with NaN (a mask may hold infinities)."""
    buffers = ((name, t) for name, t in module.named_buffers() if t.is_floating_point())
    without_infinities = [(name, t.nan_to_num(nan=torch.nan, posinf=0, neginf=0)) for name, t in buffers]
    return _first_non_finite([*module.named_parameters(), *without_infinities])


def _first_non_finite(named: Iterable[tuple[str, Tensor]]) -> str | None:
    named = [(name, _local(t.detach())) for name, t in named if _is_float(t)]
    sums = [t.abs().sum().double().cpu() for _, t in named]
    if not sums or bool(torch.stack(sums).isfinite().all()):
        return None
    return next((name for name, t in named if not bool(t.isfinite().all())), None)


def _non_finite_gradient(module: nn.Module) -> str | None:
    """Returns the name of the first parameter whose gradient is not finite."""
    gradients = ((name, p.grad) for name, p in module.named_parameters() if p.grad is not None)
    return next((name for name, gradient in gradients if not bool(_local(gradient).isfinite().all())), None)


def _find_non_finite(model: nn.Module, forward: Callable[[], object], batch: tuple[Tensor, ...]) -> str | None:
    """Repeats a forward pass and returns which batch tensor, weight or layer is not finite, if any."""
    layers: list[str] = []

    def hook_for(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: object, output: object) -> None:
            if not layers and not all(bool(t.isfinite().all()) for t in _tensors(output)):
                layers.append(f"{name} ({type(module).__name__})")

        return hook

    with ExitStack() as stack, torch.no_grad():
        for name, module in model.named_modules():
            if name:
                stack.callback(module.register_forward_hook(hook_for(name)).remove)
        forward()  # in every process, since it may be collective
    for i, tensor in enumerate(batch):
        if _is_float(tensor) and not bool(tensor.isfinite().all()):
            return f"tensor {i} of the batch is not finite"
    if name := _first_non_finite(model.named_parameters()):
        return f"the last update made the weight {name} non-finite; lower the learning rate or clip the gradient"
    return f"the first layer with a non-finite output is {layers[0]}" if layers else None


def _is_float(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _tensors(value: object) -> Iterator[Tensor]:
    """Yields the tensors of a nested output."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _tensors(item)


# ------------------------------------------------------------ interruptions


class _StopRequest:
    """A request to stop after the current step; true once a signal has arrived."""

    def __init__(self) -> None:
        self.signal_name: str | None = None
        self.save = False
        """Whether a checkpoint is requested after the current step."""

    def __bool__(self) -> bool:
        return self.signal_name is not None


_STOPPING, _SAVING = ("SIGINT", "SIGTERM", "SIGHUP"), "SIGUSR1"


@contextmanager
def _handle_signals(say: Callable[[str], None]) -> Iterator[_StopRequest]:
    """Turns the first SIGINT, SIGTERM or SIGHUP into a stop request; a second one raises KeyboardInterrupt.

    SIGUSR1 requests a checkpoint. A SIGHUP that is ignored, as under nohup, stays ignored.
    """
    stop = _StopRequest()

    def handler(number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if name == _SAVING:
            stop.save = True
            text = "saving a checkpoint after this step"
        elif stop:
            raise KeyboardInterrupt
        else:
            stop.signal_name = name
            text = "stopping after this step; press Ctrl-C again to stop immediately"
        with suppress(Exception):  # the signal may arrive during a print, which is not reentrant
            say(text)

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    numbers = [getattr(signal, name) for name in (*_STOPPING, _SAVING) if hasattr(signal, name)]
    hangup = getattr(signal, "SIGHUP", None)
    numbers = [n for n in numbers if n != hangup or signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield stop
    finally:
        for number, previous in before.items():
            signal.signal(number, signal.SIG_DFL if previous is None else previous)
