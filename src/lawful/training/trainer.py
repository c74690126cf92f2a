"""`train`: trains a recipe, an ensemble of recipes, or any model, in a run folder."""

from __future__ import annotations

import ctypes
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from lawful import _json
from lawful._files import create_folder, lock, refuse_links, remove_unfinished
from lawful._names import quote
from lawful.blocks.modes import eval_mode
from lawful.checking.formatting import format_number
from lawful.optim import EMA
from lawful.training.checkpoint import (
    Checkpoint,
    Checkpoints,
    _add_prefix,
    _is_sharded,
    _load_optimizer_state,
    _load_rng_state,
    _named_parameters,
    _optimizer_state,
    _parameter_names,
    _preserve_module,
    _rng_state,
    _section,
    _strip_prefix,
    load_module_state,
    module_state,
    preserve_rng,
    seed_everything,
)
from lawful.training.distributed import _join, _SingleProcess
from lawful.training.errors import TrainingFailed, user_message
from lawful.training.loggers import ConsoleLogger, Logger, TensorBoardLogger, _evaluation_console, _Loggers
from lawful.training.loop import _handle_signals, _Outcome, _Progress, _TrainingLoop
from lawful.training.precision import _compile, _Precision
from lawful.training.registry import build_recipe, recipe_of
from lawful.training.report import _outcome, write_report
from lawful.training.run import RUNS, Run
from lawful.training.setup import (
    Recipe,
    TrainerConfig,
    TrainingSetup,
    _changed_options,
    _check_trained_model,
    _run_config,
    _run_name,
    _verdict_lines,
    _with_trainer_config,
)
from lawful.training.storage import _average_metrics, _MetricsLog

_OPTIONS_OF_STEPS = (
    *("precision", "compile", "parallel", "checkpoint_every", "checkpoint_minutes", "keep_checkpoints", "tensorboard"),
)
"""Trainer options that need training steps."""


def train(
    recipe: str | Recipe | TrainingSetup | None = None,
    *,
    trainer: TrainerConfig | None = None,
    output_dir: Path | str = RUNS,
    resume: Run | Path | str | None = None,
    override: Mapping[str, Any] | None = None,
    loggers: Iterable[Logger] = (),
    **options: Any,
) -> Run:
    """Trains a recipe or your own model, and returns its run.

    `train("text", data="book.txt", steps=500)` takes the options of the command line as keywords. Ctrl-C stops after
    the current step and saves a checkpoint. A resumed run ends with the same weights as an uninterrupted one, bit for
    bit.

    Args:
        recipe: Name of a recipe, a recipe, or a `TrainingSetup` with your own model, loss, data and optimizer. Defaults
            to the recipe of the run to resume.
        trainer: Trainer options. Defaults to the options of the recipe.
        output_dir: Parent folder of the run.
        resume: Run to resume, or its folder.
        override: Options of the resumed run to change, such as `{"learning_rate": 1e-4}`. All other options must be
            those of the run. `config.json` records the change. For your own setup, the names are `batch_size`,
            `optimizer` (its class), and its options such as `optimizer.lr`; the values are those of the setup.
        loggers: Receive the metrics of every step, besides the console and `metrics.jsonl`.
        options: Options of the recipe, if it is given by name.

    Raises:
        TrainingFailed: If training stopped early. The message says why and how to resume.
        ValueError: If an option is unknown or invalid.
    """
    run = Run(resume) if isinstance(resume, Path | str) else resume
    if options and not isinstance(recipe, str):
        raise TypeError(f"train() takes {', '.join(options)} only with the name of a recipe, such as train('text')")
    if isinstance(recipe, str):
        recipe = build_recipe(recipe, options)
    elif recipe is None:
        if run is None:
            raise TypeError("train() needs a recipe, or the run to resume")
        recipe = recipe_of(run)
    if override and run is None:
        raise TypeError(f"override={dict(override)} needs the run to resume: train(resume=run, override=...)")
    original = recipe
    if override and isinstance(recipe, Recipe):
        recipe = build_recipe(recipe, override)
    if trainer is not None and isinstance(recipe, Recipe):
        recipe = _with_trainer_config(recipe, trainer)
    config = trainer or (recipe if isinstance(recipe, Recipe) else TrainerConfig())
    if isinstance(recipe, Recipe) and recipe.ensemble_members():
        if override:
            raise ValueError("options of an ensemble cannot be overridden: its members are trained in turn")
        return _train_ensemble(recipe, config, Path(output_dir), run, list(loggers))
    overrides = _Overrides(override or {}, original)
    return _train_one(recipe, config, Path(output_dir), run, list(loggers), overrides=overrides)


def _train_one(
    recipe: Recipe | TrainingSetup,
    config: TrainerConfig,
    output_dir: Path,
    resume: Run | None,
    loggers: list[Logger],
    ensemble: Run | None = None,
    overrides: _Overrides | None = None,
) -> Run:
    with ExitStack() as stack:
        stack.enter_context(preserve_rng())
        stack.callback(torch.set_num_threads, torch.get_num_threads())
        session = _TrainingSession(recipe, config, output_dir, resume, loggers, stack, ensemble)
        session.overrides = overrides or session.overrides
        return session.run_to_end()


@dataclass(frozen=True)
class _Overrides:
    """Options of a resumed run that the user changes."""

    values: Mapping[str, Any]
    original: Recipe | TrainingSetup | None
    """The recipe without the changes."""

    def check(self, changed: Mapping[str, tuple[Any, Any]], run: Run) -> None:
        """Raises a ValueError if an option has changed that is not overridden."""
        for name, (old, new) in changed.items():
            if name not in self.values and not (self.values and isinstance(self.original, Recipe)):
                raise ValueError(
                    f"cannot resume {quote(run.path)}: option {name!r} is {new!r}, the run has {old!r}. "
                    f"To change it, override it: --override {name}=VALUE, or override={{{name!r}: ...}} in Python"
                )
        for name, value in self.values.items() if isinstance(self.original, TrainingSetup) else ():
            if name not in changed or _json.to_json(changed[name][1]) != _json.to_json(value):
                raise ValueError(f"override {name}={value!r} is not what the setup has: set it in the setup as well")

    def explains_data_change(self, run: Run, seed: int) -> bool:
        """Returns whether the data have changed only because of the overrides."""
        if not self.values or not isinstance(self.original, Recipe):
            return False
        with preserve_rng():
            seed_everything(seed)
            return self.original.setup().data_fingerprint == run.config.get("data", "")


class _TrainingSession:
    """Training in one process: sets up or resumes the run, runs the loop and writes the report."""

    def __init__(
        self,
        recipe: Recipe | TrainingSetup,
        config: TrainerConfig,
        output_dir: Path,
        resume: Run | None,
        loggers: list[Logger],
        stack: ExitStack,
        ensemble: Run | None = None,
    ) -> None:
        self.recipe, self.config, self.output_dir, self.stack = recipe, config, output_dir, stack
        self.run, self.ensemble = resume, ensemble
        self.processes = _SingleProcess()
        self.overrides = _Overrides({}, None)
        self.started, self.progress = False, _Progress()
        self.console = ConsoleLogger()
        self.loggers = _Loggers([self.console, *loggers], self.say)

    def run_to_end(self) -> Run:
        failed = True
        try:
            self.join_processes()
            seed_everything(self.config.seed)
            self.setup = self.recipe if isinstance(self.recipe, TrainingSetup) else self.recipe.setup()
            self.setup.model.to(self.config.device)
            self.prepare()
            self.started = True
            outcome = self.run_loop()
            run = self.interrupt() if outcome == "interrupted" else self.finish(outcome)
            failed = False
            return run
        except (Exception, KeyboardInterrupt) as error:
            is_option_error = isinstance(error, ValueError | ImportError) and not self.started
            message = str(error) if is_option_error else user_message(error)
            message = self.processes.failure_message(error, message, step=self.progress.step + 1)
            self.log_failure(error, message)
            if message is None:
                raise
            raise TrainingFailed(self.with_resume_advice(message), run=self.run) from error
        finally:
            self.loggers.close()
            self.processes.close(failed=failed)

    # ------------------------------------------------------------ before the first step

    def join_processes(self) -> None:
        """Joins the process group. Only rank 0 prints and writes."""
        device = self.config.device
        if device != "cpu" and not getattr(torch, device).is_available():
            raise ValueError(f"PyTorch finds no device {device!r} on this machine: use device='cpu'")
        self.processes = _join(self.config)
        if self.processes.world_size > 1:
            self.stack.enter_context(_handle_signals(self.say))
        if self.processes.rank:
            self.loggers.active.clear()

    def prepare(self) -> None:
        """Chooses the number of threads, creates or opens the run folder, and restores a checkpoint."""
        if _keep_freed_memory():
            self.console.note("glibc keeps freed memory for the next step")
        changed = [name for name in _OPTIONS_OF_STEPS if not _json.is_default(self.config, name)]
        if changed and not self.setup.steps:
            raise ValueError(f"{', '.join(changed)} would be ignored: the model is fitted without training steps")
        if self.processes.world_size == 1 and not _json.is_default(self.config, "parallel"):
            self.say(f"warning: parallel={self.config.parallel} needs several processes: start them with torchrun")
        names = _parameter_names(self.setup.model)
        for step in self.setup.optimizer_steps:
            _named_parameters(step.optimizer, names)
        if self.config.tensorboard and self.processes.rank == 0:
            self.loggers.active.append(TensorBoardLogger())
        self.loop = _TrainingLoop(
            self.setup,
            progress=self.progress,
            precision=_Precision(self.config, self.say),
            processes=self.processes,
            device=self.config.device,
        )
        if self.setup.ema_decay:
            self.loop.ema = EMA(self.setup.model, decay=self.setup.ema_decay)
        self.state = _LoopState(self.loop, seed=self.config.seed)
        if self.processes.rank:
            self.state.seed_process()
        threads = self.choose_threads()
        if self.run is None:
            self.run = self.create_run(threads)
            self.lock_run(self.run)
        else:
            self.lock_run(self.run)
            refuse_links(self.run.path)
            self.restore(self.run)
        if self.processes.rank == 0:
            path, progress = self.run.path / "metrics.jsonl", self.progress
            self.metrics_log = _MetricsLog(path, step=progress.step, seconds=progress.seconds, root=self.run.root)
            self.stack.callback(self.metrics_log.close)
        if self.config.compile:
            _compile(self.setup.model, self.trial_step, self.say)
        self.loggers.start(self.run, self.setup)
        for note in self.setup.notes:
            self.say(note)
        for warning in self.setup.warnings:
            self.say(f"warning: {warning}")
        world_size = self.processes.world_size
        processes = f"{world_size} processes ({self.config.parallel}), " if world_size > 1 else ""
        plural = "" if threads == 1 else "s"
        device = f"{self.config.device}, {processes}{threads} thread{plural}"
        self.say(f"{self.run.path}: {self.setup.steps} steps on {device}")

    def lock_run(self, run: Run) -> None:
        """Keeps other trainings out of the run's folder."""
        if self.processes.rank == 0:
            self.stack.enter_context(lock(run.path / ".lock", root=run.root))

    def create_run(self, threads: int) -> Run:
        """Creates the run's folder on rank 0, and opens it in every process."""
        if self.processes.rank:
            return Run(str(self.processes.first_text(None)))
        config = _run_config(self.recipe, self.setup, threads=threads, trainer=self.config)
        root = None if self.ensemble is None else self.ensemble.root
        run = Run.create(self.output_dir, _run_name(self.recipe), config, root=root)
        self.processes.first_text(str(run.path))
        return run

    def choose_threads(self) -> int:
        """Sets the number of threads: from the resumed run, from the option, or the fastest."""
        threads = self.run.config.get("threads") if self.run else self.config.threads
        if threads and not (type(threads) is int and 1 <= threads <= 1024):
            raise ValueError(f"threads in config.json must be from 1 to 1024, got {threads!r}")
        if not threads and self.processes.world_size > 1:
            threads = torch.get_num_threads()
        if not threads:
            candidates = _thread_counts()
            threads, seconds = _fastest(self.trial_step, candidates) if len(candidates) > 1 else (candidates[0], {})
            if seconds:
                times = ", ".join(f"{n}: {1000 * value:.2g} ms" for n, value in seconds.items())
                self.say(f"time per step by number of threads: {times}; using {threads}")
        torch.set_num_threads(threads)
        return threads

    def trial_step(self) -> None:
        """Computes the gradients of a step without side effects."""
        with preserve_rng(), _preserve_module(self.setup.model):
            self.loop.prepare_model()
            batch, weight = self.processes.shard_batch(self.setup.batches.batch(0))
            batch = tuple(t.to(self.config.device) for t in batch)
            batch = self.setup.augment(batch) if self.setup.augment else batch
            for index in range(len(self.setup.optimizer_steps)):
                self.loop.compute_gradient(index, batch, weight)

    def restore(self, run: Run) -> None:
        """Loads the newest intact checkpoint."""
        run.verify("config.json")
        changed = _changed_options(self.recipe, self.setup, self.config, run)
        self.overrides.check(changed, run)
        if run.config.get("data", "") != self.setup.data_fingerprint and not self.overrides.explains_data_change(
            run, self.config.seed
        ):
            raise ValueError(f"cannot resume {quote(run.path)}: its data, or their split, have changed")
        corrupt: list[str] = []
        checkpoint, sharded_like = None, self.processes.sharded_like
        if self.processes.rank == 0:
            for name in ("state", "figures", "samples"):
                create_folder(run.path / name, root=run.root)
            remove_unfinished(run.path, root=run.root)
            checkpoint = run.checkpoints.load_newest(corrupt=corrupt, sharded_like=sharded_like)
            run.checkpoints.mark_corrupt(after=checkpoint.step if checkpoint else -1)
        step = self.processes.first_text(str(checkpoint.step) if checkpoint else None)
        if self.processes.rank and step:
            checkpoint = run.checkpoints.load(int(step), sharded_like=sharded_like)
        for message in corrupt:
            self.say(f"{message}; using the checkpoint before it")
        if checkpoint is None:
            self.say(f"{run.path} has no {'intact ' if corrupt else ''}checkpoint: starting from the first step")
            self.record_overrides(run, changed)
            return
        self.state.restore(checkpoint, overridden=bool(changed), say=self.say)
        self.record_overrides(run, changed)
        if self.progress.step >= self.setup.steps:
            self.say(f"all {self.setup.steps} steps are done: evaluating the model again")
        else:
            self.say(f"resuming after step {self.progress.step}")

    def record_overrides(self, run: Run, changed: Mapping[str, tuple[Any, Any]]) -> None:
        """Writes changed options to `config.json`."""
        if not changed:
            return
        for name, (old, new) in changed.items():
            self.say(f"overridden: {name} is {new!r}, was {old!r}")
        custom = isinstance(self.recipe, TrainingSetup)
        new = _run_config(self.recipe, self.setup, threads=torch.get_num_threads(), trainer=self.config)
        kept = {key: new[key] for key in ("options", "model", "data", *(["setup"] if custom else []))}
        record = {"after_step": self.progress.step, "options": {name: [*values] for name, values in changed.items()}}
        earlier = run.config.get("overrides")
        run.config |= kept | {"overrides": [*(earlier if isinstance(earlier, list) else []), record]}
        if self.processes.rank == 0:
            run.write("config.json", _json.dump(run.config))

    # ------------------------------------------------------------ the steps

    def run_loop(self) -> _Outcome:
        run = self.opened_run
        self.writer = _CheckpointWriter(
            run.checkpoints, self.loop, keep=self.config.keep_checkpoints, before_save=self.flush, sync=self.sync
        )
        try:
            with _handle_signals(self.say) as stop:
                outcome = self.loop.run(
                    log=self.log,
                    save=self.save,
                    checkpoint_every=self.config.checkpoint_every,
                    checkpoint_seconds=60 * self.config.checkpoint_minutes or math.inf,
                    stop=stop,
                )
            self.writer.save_pending()
        finally:
            self.writer.join()
        self.writer.raise_error()
        if self.processes.rank == 0:  # a crash may have left one more
            best = self.progress.early_stopping.best_step
            run.checkpoints.remove_old(keep=self.config.keep_checkpoints, best=best)
        return outcome

    def log(self, step: int, metrics: dict[str, float]) -> None:
        self.writer.raise_error()
        if self.processes.rank == 0:
            self.metrics_log.log(step, metrics)
            self.loggers.log(step, metrics)

    def flush(self) -> None:
        if self.processes.rank == 0:
            self.metrics_log.flush()

    def sync(self) -> None:
        if self.processes.rank == 0:
            self.metrics_log.sync()

    def save(self, due: bool) -> None:
        self.loop.check_weights()
        self.writer.save(self.state.capture(), due=due)

    @property
    def opened_run(self) -> Run:
        if self.run is None:
            raise RuntimeError("the run has not been created yet")
        return self.run

    # ------------------------------------------------------------ after the last step

    def interrupt(self) -> Run:
        """Prints how to resume, and writes the report."""
        self.opened_run.interrupted = True
        self.say(f"stopped after step {self.progress.step}; resume with: {self.resume_command()}")
        if self.processes.rank == 0:
            write_report(self.opened_run)
        return self.opened_run

    def finish(self, outcome: _Outcome) -> Run:
        """Restores the best weights, and writes weights, results and report."""
        run = self.opened_run
        if outcome == "early_stopping":
            self.say(f"no improvement in {self.setup.patience} evaluations: stopped after step {self.progress.step}")
        self.restore_best_weights()
        model = self.processes.full_model()
        if self.processes.rank:
            return run
        setup = self.setup = replace(self.setup, model=model.cpu())
        run.save_weights(setup.model.state_dict())
        with eval_mode(setup.model), _evaluation_console(self.console), _return_freed_memory():
            if not isinstance(self.recipe, TrainingSetup):
                self.say("evaluating the trained model")
            results = {} if isinstance(self.recipe, TrainingSetup) else self.recipe.finish(run, setup)
            verdicts = _check_trained_model(setup, self.config)
        run.save_results({"steps": self.progress.step, "seconds": round(self.progress.seconds, 3), **results})
        write_report(run, verdicts=verdicts)
        for line in (*_summary_lines(results), *_verdict_lines(verdicts)):
            self.say(line)
        self.say(f"report: {run.report}")
        return run

    def restore_best_weights(self) -> None:
        """Loads the weights of the best evaluation if the setup asks for it, or else the latest EMA weights if any."""
        early_stopping, ema = self.progress.early_stopping, self.loop.ema
        best = early_stopping.best_step
        restore = self.setup.patience is not None or self.setup.restore_best
        if restore and best is not None and best != self.progress.step:
            try:
                checkpoint = self.opened_run.checkpoints.load(best, sharded_like=self.processes.sharded_like)
                prefix = "ema" if ema is not None else "model"
                load_module_state(self.setup.model, _strip_prefix(prefix, checkpoint.tensors))
                score = f"{self.setup.monitor} {format_number(early_stopping.best)}"
                self.say(f"restored the best weights, of step {best} ({score})")
                return
            except ValueError as error:
                self.say(f"{error}; keeping the last weights instead of the best")
        if ema is not None:
            load_module_state(self.setup.model, ema.tensors)

    # ------------------------------------------------------------ messages

    def say(self, text: str) -> None:
        if self.processes.rank == 0:
            self.console.say(text)

    def resume_command(self) -> str:
        return f"{self.processes.command} train --resume {(self.ensemble or self.opened_run).path}"

    def log_failure(self, error: BaseException, message: str | None) -> None:
        """Writes the failure to the log, and writes the report. Errors of writing are ignored."""
        if self.run is None or self.processes.rank or not self.run.path.is_dir():
            return
        with suppress(Exception):
            self.console.note(f"failed: {message or f'{type(error).__name__}: {error}'}")
            write_report(self.run)

    def with_resume_advice(self, message: str) -> str:
        if self.run is None:
            return message
        if not self.run.path.is_dir():
            return f"{message}\nthe folder {self.run.path} with its checkpoints no longer exists"
        steps = self.run.checkpoints.steps()
        if not steps:
            return f"{message}\nno checkpoint has been saved yet"
        return f"{message}\nthe checkpoint of step {steps[-1]} is saved; resume with: {self.resume_command()}"


# ------------------------------------------------------------ checkpoints of the loop

_BEST_SECONDS = 5.0
"""Minimum time between two checkpoints that are saved because an evaluation is the best so far."""


class _CheckpointWriter:
    """Writes checkpoints. If evaluations improve within seconds, only the latest best checkpoint is kept, in memory.

    A single process copies the state and writes the copy in a thread, while training goes on. Several processes write
    together, between two steps.

    Args:
        checkpoints: Where to write.
        loop: The loop.
        keep: Number of checkpoints to keep besides the best.
        before_save: Called before each checkpoint, in the training thread.
        sync: Called before each checkpoint, in the thread that writes it; it may be slow.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        loop: _TrainingLoop,
        *,
        keep: int,
        before_save: Callable[[], None],
        sync: Callable[[], None],
    ) -> None:
        self.checkpoints, self.loop, self.keep = checkpoints, loop, keep
        self.before_save, self.sync = before_save, sync
        self.pending: Checkpoint | None = None
        self.saved_at = -_BEST_SECONDS
        self.thread: threading.Thread | None = None
        self.error: BaseException | None = None

    def save(self, checkpoint: Checkpoint, *, due: bool) -> None:
        """Saves a checkpoint. If it is not due, it may wait in memory."""
        if self.loop.processes.world_size == 1:
            checkpoint = checkpoint.copy_to_cpu()
            if not due and time.monotonic() < self.saved_at + _BEST_SECONDS:
                self.pending = checkpoint
                return
        self.save_pending()
        self._save(checkpoint)

    def save_pending(self) -> None:
        """Writes the checkpoint that waits in memory, if it is still the best."""
        if self.pending is not None and self.pending.step == self.loop.progress.early_stopping.best_step:
            self._save(self.pending)

    def join(self) -> None:
        """Waits until the last checkpoint is written."""
        if self.thread is not None:
            self.thread.join()
            self.thread = None

    def raise_error(self) -> None:
        """Raises the error of a checkpoint that could not be written."""
        if self.error is not None:
            error, self.error = self.error, None
            raise error

    def _save(self, checkpoint: Checkpoint) -> None:
        self.join()
        self.raise_error()
        self.before_save()
        best = self.loop.progress.early_stopping.best_step
        self.pending, self.saved_at = None, time.monotonic()
        if self.loop.processes.world_size > 1:
            self._write(checkpoint, best)
        else:
            self.thread = threading.Thread(target=self._write_or_keep_error, args=(checkpoint, best), name="checkpoint")
            self.thread.start()

    def _write_or_keep_error(self, checkpoint: Checkpoint, best: int | None) -> None:
        try:
            self._write(checkpoint, best)
        except BaseException as error:  # raised between the next two steps
            self.error = error

    def _write(self, checkpoint: Checkpoint, best: int | None) -> None:
        self.sync()
        processes = self.loop.processes
        self.checkpoints.save(
            checkpoint,
            keep=self.keep,
            best=best,
            rank=processes.rank,
            world_size=processes.world_size,
            barrier=processes.barrier,
            share=processes.first_text,
        )


class _LoopState:
    """Captures and restores the state of a loop: weights, EMA, optimizers, scaler, progress and random states.

    Rank 0 saves what all processes share; every process saves its random state and its shards.

    Args:
        loop: The loop.
        seed: Random seed of processes without a saved random state, such as those of a larger world size.
    """

    def __init__(self, loop: _TrainingLoop, *, seed: int) -> None:
        self.loop, self.seed, self.processes = loop, seed, loop.processes
        self.names = _parameter_names(loop.setup.model)

    def capture(self) -> Checkpoint:
        """Returns the current state."""
        loop = self.loop
        tensors = _add_prefix("model", module_state(loop.setup.model))
        metadata: dict[str, Any] = {"progress": asdict(loop.progress)}
        if loop.ema is not None:
            tensors |= _add_prefix("ema", loop.ema.tensors)
        for index, step in enumerate(loop.setup.optimizer_steps):
            key = f"optimizer{index}"
            state, metadata[key] = _optimizer_state(step.optimizer, self.names)
            tensors |= _add_prefix(key, state)
        metadata["scaler"] = loop.precision.scaler.state_dict() if loop.precision.scaler else None
        rng, metadata["rng"] = _rng_state()
        if rank := self.processes.rank:
            tensors = {name: tensor for name, tensor in tensors.items() if _is_sharded(tensor)}
            rng["metadata"] = torch.tensor([*_json.dump(metadata["rng"]).encode()], dtype=torch.uint8)
        tensors |= _add_prefix(f"rng{rank or ''}", rng)
        return Checkpoint(loop.progress.step, tensors, metadata)

    def restore(
        self, checkpoint: Checkpoint, *, overridden: bool = False, say: Callable[[str], None] = lambda text: None
    ) -> None:
        """Restores the state of a checkpoint.

        Args:
            checkpoint: The checkpoint.
            overridden: Whether options of the optimizers may differ from those of the checkpoint.
            say: Prints a message.
        """
        loop, tensors, metadata = self.loop, checkpoint.tensors, checkpoint.metadata
        load_module_state(loop.setup.model, _strip_prefix("model", tensors))
        if loop.ema is not None:
            loop.ema.load_state_dict(_strip_prefix("ema", tensors))
        for index, step in enumerate(loop.setup.optimizer_steps):
            key = f"optimizer{index}"
            state, section = _strip_prefix(key, tensors), _section(metadata, key)
            if overridden and section.get("class") != type(step.optimizer).__name__:
                say(f"{type(step.optimizer).__name__} starts without the state of the optimizer before it")
                continue
            _load_optimizer_state(step.optimizer, self.names, state, section, keep_options=overridden)
        if loop.precision.scaler is not None and metadata.get("scaler"):
            loop.precision.scaler.load_state_dict(_section(metadata, "scaler"))
        setup, progress = loop.setup, _json.from_json(_Progress, metadata.get("progress"), at="progress")
        progress.early_stopping = replace(
            progress.early_stopping, patience=setup.patience, higher_is_better=setup.higher_is_better
        )
        vars(loop.progress).update(vars(progress))
        self._restore_rng(tensors, metadata)

    def _restore_rng(self, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
        rank = self.processes.rank
        own = _strip_prefix(f"rng{rank or ''}", tensors)
        if not own:
            self.seed_process()
            return
        if rank:
            data = bytes(own.pop("metadata", torch.zeros(0)).to(torch.uint8).flatten().tolist())
            metadata = {"rng": _json.parse(data, name=f"the random state of process {rank}")}
        _load_rng_state(own, _section(metadata, "rng"))

    def seed_process(self) -> None:
        """Seeds a process that has no saved random state."""
        seed_everything(hash((self.seed, self.processes.rank, self.loop.progress.step)) % 2**63)


# ------------------------------------------------------------ ensembles


def _train_ensemble(
    recipe: Recipe, config: TrainerConfig, output_dir: Path, resume: Run | None, loggers: list[Logger]
) -> Run:
    """Trains each unfinished member in a run folder of its own inside the ensemble's, and combines the models."""
    run, stack = resume, ExitStack()
    try:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise ValueError("torchrun cannot train an ensemble: train it in one process")
        with preserve_rng():
            seed_everything(config.seed)
            setup = recipe.setup()
        if run is None:
            run = Run.create(output_dir, recipe.name, _run_config(recipe, setup, threads=0, trainer=config))
        stack.enter_context(lock(run.path / ".lock", root=run.root))
        if resume is not None:
            refuse_links(run.path)
            remove_unfinished(run.path, root=run.root)
            run.verify("config.json")
            _Overrides({}, recipe).check(_changed_options(recipe, setup, config, run), run)
        create_folder(run.path / "members", root=run.root)
        console, members = ConsoleLogger(run=run), recipe.ensemble_members()
        console.say(f"{run.path}: {recipe.name}, {len(members)} members")
        models, trained = [], []
        for number, member in enumerate(members, 1):
            console.say(f"member {number} of {len(members)}, seed {member.seed}")
            member_run = _train_member(member, run, loggers)
            console.note(f"{member_run.path}: {_outcome(member_run.metrics, member_run.results)}")
            if member_run.interrupted:
                run.interrupted = True
                return run
            model = member.build_model(member_run.config["model"])
            model.load_state_dict(member_run.weights())
            models.append(model.eval())
            trained.append(member_run)
        setup = replace(setup, model=recipe.combine(models))
        run.save_weights(setup.model.state_dict())
        run.save_metrics(_average_metrics(member.metrics for member in trained))
        console.say("evaluating the ensemble")
        with _evaluation_console(console), _return_freed_memory():
            results = recipe.finish(run, setup)
            verdicts = _check_trained_model(setup, config)
        run.save_results({"members": len(models), **results})
        write_report(run, verdicts=verdicts)
        for line in (*_summary_lines(results), *_verdict_lines(verdicts)):
            console.say(line)
        console.say(f"report: {run.report}")
    except (ValueError, OSError) as error:
        advice = f"\nresume with: lawful train --resume {run.path}" if run else ""
        raise TrainingFailed(f"{user_message(error) or error}{advice}", run=run) from error
    finally:
        stack.close()
    return run


def _summary_lines(results: Mapping[str, Any]) -> list[str]:
    """Returns the sentence of a recipe's results, if there is one."""
    return [str(results["summary"])] if results.get("summary") else []


def _train_member(member: Recipe, ensemble: Run, loggers: list[Logger]) -> Run:
    """Trains or resumes a member, unless it is finished."""
    folder, options = ensemble.path / "members", _json.to_json(member)
    run = next((run for run in ensemble.members if run.config.get("options") == options), None)
    if run is not None and run.status == "finished":
        return run
    return _train_one(member, member, folder, run, loggers, ensemble)


# ------------------------------------------------------------ threads and memory

_MEASURE_SECONDS = 2.0
"""Time limit for measuring the number of threads."""


def _thread_counts() -> list[int]:
    """Returns 1, 2, 4, ... up to the number of cores, or OMP_NUM_THREADS."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = os.environ.get("OMP_NUM_THREADS", "")
    largest = min(cores, int(limit)) if limit.isdigit() and int(limit) else cores
    return sorted({min(2**k, largest) for k in range(largest.bit_length() + 1)})


def _fastest(step: Callable[[], object], counts: Sequence[int], *, steps: int = 5) -> tuple[int, dict[int, float]]:
    """Returns the fastest number of threads, and the seconds per step with each. More threads must be 10 % faster.

    Args:
        step: A step without side effects.
        counts: Numbers of threads to try.
        steps: Number of timed steps for each, after one that is not timed.
    """
    seconds: dict[int, float] = {}
    start = time.perf_counter()
    for count in counts:
        torch.set_num_threads(count)
        times = []
        for _ in range(1 + steps):
            begin = time.perf_counter()
            step()
            times.append(time.perf_counter() - begin)
            if time.perf_counter() - start > _MEASURE_SECONDS and len(times) > 1:
                break
        seconds[count] = median(times[1:])
    best = counts[0]
    for count in counts:
        if seconds[count] < 0.9 * seconds[best]:
            best = count
    torch.set_num_threads(best)
    return best, seconds


def _keep_freed_memory() -> bool:
    """Makes glibc keep freed memory, and returns whether it does.

    A step frees and allocates the same sizes over and over. By default glibc returns large blocks to the system, which
    then clears every page again. Results do not change. Memory freed before the call is returned to the system.
    """
    return _set_malloc_thresholds(mmap=2**30, trim=2**31 - 1)


@contextmanager
def _return_freed_memory() -> Iterator[None]:
    """Makes glibc return large freed blocks to the system, as by default.

    An evaluation allocates many different sizes. Kept memory is then split into pieces that do not fit the next block,
    and the process grows. Afterwards the thresholds are the largest that glibc chooses by itself.
    """
    _set_malloc_thresholds(mmap=2**20, trim=2**20)
    try:
        yield
    finally:
        _set_malloc_thresholds(mmap=2**25, trim=2**26)


def _set_malloc_thresholds(*, mmap: int, trim: int) -> bool:
    """Sets glibc's thresholds in bytes, after it has returned all freed memory, and returns whether it was possible.

    Args:
        mmap: From this size on, a block is mapped for itself, and returned when it is freed.
        trim: Size of the freed memory at the top of the heap from which on it is returned.
    """
    try:
        library = ctypes.CDLL(None)
        mallopt, malloc_trim = library.mallopt, library.malloc_trim
    except (OSError, AttributeError, TypeError):  # another C library
        return False
    malloc_trim(0)
    trim_threshold, mmap_threshold = -1, -3
    return bool(mallopt(mmap_threshold, mmap)) and bool(mallopt(trim_threshold, trim))
