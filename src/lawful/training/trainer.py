"""How many threads to compute with: the number that is fastest here and now.

One sitting of a training, from the first step or the last checkpoint to the report.
Training a recipe, an ensemble of it, or any model of one's own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from statistics import median

import torch

from lawful import _json as config
from lawful.blocks.modes import eval_mode
from lawful.optim.ema import EMA
from lawful.training import checkpoint as state
from lawful.training import storage as files
from lawful.training import storage as journal
from lawful.training.allocation import keep_memory
from lawful.training.checkpoint import seed
from lawful.training.distributed import join
from lawful.training.errors import TrainingFailed, user_message
from lawful.training.loggers import Logger, TensorBoard, Terminal, Trackers
from lawful.training.loop import Loop, Progress, handle_signals
from lawful.training.precision import Precision, compiled
from lawful.training.recipe import (
    Recipe,
    changed_option,
    check_trained_model,
    run_config,
    run_name,
    with_trainer_config,
)
from lawful.training.report import outcome, write_report
from lawful.training.run import RUNS, Run, runs
from lawful.training.setup import TrainerConfig, TrainingSetup
from lawful.training.snapshots import CheckpointWriter, Snapshots
from lawful.training.storage import MetricsLog
from lawful.training.world import SingleProcess

ENOUGH = 2.0
"""Seconds that measuring takes at most, but for the steps that are begun."""


def candidates() -> list[int]:
    """1, 2, 4 and so on up to what the machine has, or the environment allows."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    allowed = os.environ.get("OMP_NUM_THREADS", "")
    most = min(cores, int(allowed)) if allowed.isdigit() and int(allowed) else cores
    return sorted({min(2**k, most) for k in range(most.bit_length() + 1)})


def fastest(step: Callable[[], object], *, among: list[int], steps: int = 5) -> tuple[int, dict[int, float]]:
    """Returns the number of threads with which a step is fastest, and the seconds of a step with each.

    More threads are taken only if they save a tenth.

    Args:
        step: What is timed; it leaves no trace.
        among: The numbers to try.
        steps: How often each is timed, after one that is not.
    """
    took: dict[int, float] = {}
    begun = time.perf_counter()
    for threads in among:
        torch.set_num_threads(threads)
        times = []
        for _ in range(1 + steps):
            start = time.perf_counter()
            step()
            times.append(time.perf_counter() - start)
            if time.perf_counter() - begun > ENOUGH and len(times) > 1:
                break
        took[threads] = median(times[1:])
    best = among[0]
    for threads in among:
        if took[threads] < 0.9 * took[best]:
            best = threads
    torch.set_num_threads(best)
    return best, took


class TrainingSession:
    """One sitting of a training: what `train` does, in order."""

    def __init__(
        self,
        recipe: Recipe | TrainingSetup,
        trainer: TrainerConfig,
        folder: Path,
        resume: Run | None,
        trackers: list[Logger],
        stack: ExitStack,
        outer: Run | None = None,
    ) -> None:
        self.recipe, self.trainer, self.folder, self.stack, self.outer = recipe, trainer, folder, stack, outer
        self.run, self.world = resume, SingleProcess()
        self.begun, self.progress = False, Progress()
        self.terminal = Terminal()
        self.trackers = Trackers([self.terminal, *trackers], self.say)

    def meet(self) -> None:
        """Joins the processes that train together; the first of them speaks and writes."""
        if self.trainer.device != "cpu" and not getattr(torch, self.trainer.device).is_available():
            raise ValueError(f"this machine has no device {self.trainer.device} that PyTorch can use: take cpu")
        self.world = join(self.trainer)
        if self.world.size > 1:
            self.stack.enter_context(handle_signals(self.say))
        if self.world.rank:
            self.trackers.told.clear()

    def go(self) -> Run:
        failed = True
        try:
            self.meet()
            seed(self.trainer.seed)
            self.training = self.recipe if isinstance(self.recipe, TrainingSetup) else self.recipe.setup()
            self.training.model.to(self.trainer.device)
            self.prepare()
            self.begun = True
            ending = self.fit()
            run = self.stopped() if ending == "stopped" else self.finish(ending)
            failed = False
            return run
        except (Exception, KeyboardInterrupt) as error:
            sentence = str(error) if isinstance(error, ValueError) and not self.begun else user_message(error)
            sentence = self.world.went_wrong(error, sentence, step=self.progress.step + 1)
            self.keep_word_of(error, sentence)
            if sentence is None:
                raise
            raise TrainingFailed(self.with_advice(sentence), run=self.run) from error
        finally:
            self.trackers.close()
            self.world.leave(failed=failed)

    # ------------------------------------------------------------ before the first step

    def prepare(self) -> None:
        """Chooses the threads, makes or reads the folder, and takes up where a checkpoint is."""
        if keep_memory():
            self.terminal.note("the memory of tensors is kept from step to step")
        names = state.names_of(self.training.model)
        for turn in self.training.optimizer_steps:
            state.named(turn.optimizer, names)
        self.precision = Precision(self.trainer, self.say)
        self.loop = Loop(
            self.training,
            progress=self.progress,
            precision=self.precision,
            world=self.world,
            device=self.trainer.device,
        )
        if self.training.ema_decay:
            self.loop.average = EMA(self.training.model, decay=self.training.ema_decay)
        self.snapshots = Snapshots(self.loop, seed=self.trainer.seed)
        if self.world.rank:
            self.snapshots.begin_stream()
        threads = self.threads()
        if self.run is None:
            self.run = self.made(threads)
            self.hold(self.run)
        else:
            self.hold(self.run)
            self.take_up(self.run)
        if self.trainer.compile:
            compiled(self.training.model, self.trial, self.say)
        if self.trainer.tensorboard and self.world.rank == 0:
            self.trackers.told.append(TensorBoard())
        self.trackers.start(self.run, self.training)
        for note in self.training.warnings:
            self.say(f"note: {note}")
        processes = f"{self.world.size} processes ({self.trainer.parallel}), " if self.world.size > 1 else ""
        self.say(f"{self.run.path}: {self.training.steps} steps on {self.trainer.device}, {processes}{threads} threads")

    def hold(self, run: Run) -> None:
        """Keeps other trainings from the folder."""
        if self.world.rank == 0:
            self.stack.enter_context(files.held(run.path / "config.json"))

    def made(self, threads: int) -> Run:
        """Makes the folder, in the first process, and opens it in every one."""
        if self.world.rank:
            return Run(str(self.world.first(None)))
        facts = run_config(self.recipe, self.training, threads=threads, trainer=self.trainer)
        run = Run.create(self.folder, run_name(self.recipe), facts)
        self.world.first(str(run.path))
        return run

    def threads(self) -> int:
        """Sets the number of threads: that of the run that goes on, the one wanted, or the fastest."""
        chosen = self.run.config.get("threads") if self.run else self.trainer.threads
        if chosen and not (type(chosen) is int and 1 <= chosen <= 1024):
            raise ValueError(f"threads in config.json is from 1 to 1024: got {chosen!r}")
        if not chosen and self.world.size > 1:
            chosen = torch.get_num_threads()
        if not chosen:
            among = candidates()
            chosen, took = fastest(self.trial, among=among) if len(among) > 1 else (among[0], {})
            if took:
                times = ", ".join(f"{n}: {1000 * seconds:.2g} ms" for n, seconds in took.items())
                self.say(f"threads measured: {times}; {chosen} is used")
        torch.set_num_threads(chosen)
        return chosen

    def trial(self) -> None:
        """Computes a gradient as a step does, and leaves no trace in weights, buffers, modes or random states."""
        with state.preserve_rng(), state.module_kept(self.training.model):
            self.loop.begin()
            batch, weight = self.world.share(self.training.batches.batch(0))
            batch = tuple(t.to(self.trainer.device) for t in batch)
            batch = self.training.augment(batch) if self.training.augment else batch
            for index in range(len(self.training.optimizer_steps)):
                self.loop.gradient(index, batch, weight)

    def take_up(self, run: Run) -> None:
        """Puts the newest sound checkpoint into the model, the optimizers and the random states."""
        if run.config.get("data", "") != self.training.data_fingerprint:
            raise ValueError(f"the data of {run.path} has changed since it was begun: it cannot be gone on with")
        if (name := changed_option(self.recipe, run)) is not None:
            raise ValueError(f"{run.path} was begun with another {name}: it goes on with the same options only")
        damaged: list[str] = []
        found, like = None, self.world.like
        if self.world.rank == 0:
            files.sweep(run.path)
            files.sweep(run.path / "state")
            found = run.checkpoints.newest(damaged=damaged, like=like)
            run.checkpoints.set_aside(after=found.step if found else -1)
        step = self.world.first(str(found.step) if found else None)
        if self.world.rank and step:
            found = run.checkpoints.read(int(step), like=like)
        for sentence in damaged:
            self.say(f"{sentence}; it is set aside, and the one before is used")
        if found is None:
            self.say(f"{run.path} has no {'sound ' if damaged else ''}checkpoint: it begins at the first step")
            return
        self.snapshots.put_back(found)
        self.say(f"going on after step {self.progress.step}")

    # ------------------------------------------------------------ the steps

    def fit(self) -> str:
        run = self.opened
        if self.world.rank == 0:
            self.journal = MetricsLog(
                run.path / "metrics.jsonl", step=self.progress.step, seconds=self.progress.seconds
            )
            self.stack.callback(self.journal.close)
        self.kept = CheckpointWriter(run.checkpoints, self.loop, keep=self.trainer.keep_checkpoints, first=self.flush)
        with handle_signals(self.say) as wish:
            ending = self.loop.run(log=self.log, save=self.save, every=self.trainer.checkpoint_every, wish=wish)
        self.kept.write_held()
        return ending

    def log(self, step: int, figures: dict[str, float]) -> None:
        if self.world.rank == 0:
            self.journal.log(step, figures)
            self.trackers.log(step, figures)

    def flush(self) -> None:
        if self.world.rank == 0:
            self.journal.flush()

    def save(self, due: bool) -> None:
        """Keeps a checkpoint of everything."""
        self.loop.check()
        self.kept.save(self.snapshots.take(), due=due)

    @property
    def opened(self) -> Run:
        if self.run is None:
            raise RuntimeError("the run's folder is made before its first step")
        return self.run

    # ------------------------------------------------------------ after the last step

    def stopped(self) -> Run:
        """Says how to go on, and writes the report of what there is."""
        self.opened.interrupted = True
        self.say(f"stopped after step {self.progress.step}; go on with: {self.how_to_go_on()}")
        if self.world.rank == 0:
            write_report(self.opened)
        return self.opened

    def finish(self, ending: str) -> Run:
        """Puts the best weights back, keeps them, and writes results and report."""
        run, training = self.opened, self.training
        if ending == "patience":
            self.say(f"no better for {training.patience} evaluations: stopped after step {self.progress.step}")
        self.put_best_back()
        model = self.world.whole()
        if self.world.rank:
            return run
        training = self.training = replace(training, model=model.cpu())
        run.keep_weights(state.plain(training.model.state_dict()))
        with eval_mode(training.model):
            results = {} if isinstance(self.recipe, TrainingSetup) else self.recipe.finish(run, training)
            verdicts = check_trained_model(training, self.trainer)
        run.keep_results({"steps": self.progress.step, "seconds": round(self.progress.seconds, 3), **results})
        write_report(run, verdicts=verdicts)
        self.say(f"report: {run.report}")
        return run

    def put_best_back(self) -> None:
        """Gives the model the weights of the best evaluation, where patience asks for them, or the last average."""
        record, average = self.progress.record, self.loop.average
        best = record.step
        if self.training.patience is not None and best is not None and best != self.progress.step:
            try:
                found = self.opened.checkpoints.read(best, like=self.world.like)
                kept = "average" if average is not None else "model"
                state.load_module_state(self.training.model, state.strip_prefix(kept, found.tensors))
                self.say(f"the weights of step {best} are kept, the best ({self.training.monitor} {record.best:.4g})")
                return
            except ValueError as error:
                self.say(f"{error}; the last weights are kept in place of the best")
        if average is not None:
            state.load_module_state(self.training.model, average.tensors)

    # ------------------------------------------------------------ words

    def say(self, text: str) -> None:
        if self.world.rank == 0:
            self.terminal.say(text)

    def how_to_go_on(self) -> str:
        return f"{self.world.command} train --resume {(self.outer or self.opened).path}"

    def keep_word_of(self, error: BaseException, sentence: str | None) -> None:
        """Writes to the log what went wrong, and the report of what there is; on a full disk neither can be."""
        if self.run is None or self.world.rank or not self.run.path.is_dir():
            return
        with suppress(Exception):
            self.terminal.note(f"failed: {sentence or f'{type(error).__name__}: {error}'}")
            write_report(self.run)

    def with_advice(self, sentence: str) -> str:
        if self.run is None:
            return sentence
        if not self.run.path.is_dir():
            return f"{sentence}\nthe folder {self.run.path} is gone, and its checkpoints with it"
        steps = self.run.checkpoints.steps()
        if not steps:
            return f"{sentence}\nno checkpoint was written yet"
        return f"{sentence}\nthe checkpoint of step {steps[-1]} is kept; go on with: {self.how_to_go_on()}"


def train(
    recipe: Recipe | TrainingSetup,
    *,
    trainer: TrainerConfig | None = None,
    output_dir: Path | str = RUNS,
    resume: Run | Path | str | None = None,
    trackers: Iterable[Logger] = (),
) -> Run:
    """Trains a recipe, or any model with its objective and data, and keeps everything in a folder.

    Ctrl-C ends it after the step, with a checkpoint; `resume` goes on from the newest checkpoint and gives the
    weights that an uninterrupted run gives, bit by bit.

    Args:
        recipe: A recipe, or a `TrainingSetup` with your own model, objective, data and optimizer.
        trainer: How it is run; a recipe has its own.
        output_dir: Folder in which the run's folder is created.
        resume: The run to go on with, or its folder, rather than a new one.
        trackers: Whom to tell the figures of every step, besides the terminal and `metrics.jsonl`.

    Raises:
        TrainingFailed: what went wrong, and how to go on.
    """
    if trainer is not None and isinstance(recipe, Recipe):
        recipe = with_trainer_config(recipe, trainer)
    run = Run(resume) if isinstance(resume, Path | str) else resume
    own = trainer or (recipe if isinstance(recipe, Recipe) else TrainerConfig())
    if isinstance(recipe, Recipe) and recipe.ensemble_members():
        return _train_members(recipe, own, Path(output_dir), run, list(trackers))
    return _train(recipe, own, Path(output_dir), run, list(trackers))


def _train(
    recipe: Recipe | TrainingSetup,
    trainer: TrainerConfig,
    folder: Path,
    resume: Run | None,
    trackers: list[Logger],
    outer: Run | None = None,
) -> Run:
    with ExitStack() as stack:
        stack.enter_context(state.preserve_rng())
        stack.callback(torch.set_num_threads, torch.get_num_threads())
        return TrainingSession(recipe, trainer, folder, resume, trackers, stack, outer).go()


def _train_members(
    recipe: Recipe, trainer: TrainerConfig, folder: Path, resume: Run | None, trackers: list[Logger]
) -> Run:
    """Trains each member in a run of its own inside the run, those that are not finished, and then their average."""
    run = resume
    try:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise ValueError("an ensemble is trained by one process: each member may have several, one after the other")
        with state.preserve_rng():
            state.seed(trainer.seed)
            training = recipe.setup()
        if run is None:
            run = Run.create(folder, recipe.name, run_config(recipe, training, threads=0, trainer=trainer))
        elif (name := changed_option(recipe, run)) is not None:
            raise ValueError(f"{run.path} was begun with another {name}: it goes on with the same options only")
        terminal, members = Terminal(run=run), recipe.ensemble_members()
        terminal.say(f"{run.path}: {recipe.name}, {len(members)} members")
        models, done = [], []
        for number, member in enumerate(members, 1):
            terminal.say(f"member {number} of {len(members)}, with seed {member.seed}")
            found = _member(member, run, trackers)
            terminal.note(f"{found.path}: {outcome(found.metrics(), found.results)}")
            if found.interrupted:
                run.interrupted = True
                return run
            model = member.build_model(found.config["model"])
            model.load_state_dict(found.weights())
            models.append(model.eval())
            done.append(found)
        training = replace(training, model=recipe.combine(models))
        run.keep_weights(state.plain(training.model.state_dict()))
        run.keep_metrics(journal.averaged(member.metrics() for member in done))
        results = recipe.finish(run, training)
        verdicts = check_trained_model(training, trainer)
        run.keep_results({"members": len(models), **results})
        write_report(run, verdicts=verdicts)
        terminal.say(f"report: {run.report}")
    except (ValueError, OSError) as error:
        advice = f"\ngo on with: lawful train --resume {run.path}" if run else ""
        raise TrainingFailed(f"{user_message(error) or error}{advice}", run=run) from error
    return run


def _member(member: Recipe, run: Run, trackers: list[Logger]) -> Run:
    """Trains a member, or goes on with it, unless it is finished."""
    place = run.path / "members"
    found = next((other for other in runs(place) if other.config.get("options") == config.to_json(member)), None)
    if found is not None and found.state == "finished":
        return found
    return _train(member, member, place, found, trackers, run)
