"""One sitting of a training, from the first step or the last checkpoint to the report."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import torch

from lawful.blocks.modes import in_training
from lawful.optim.averaging import WeightAverage
from lawful.training.allocation import keep_memory
from lawful.training.failures import TrainingFailed, explained
from lawful.training.interrupt import stoppable
from lawful.training.loop import Loop, Progress
from lawful.training.options import Engine
from lawful.training.plan import Training
from lawful.training.precision import Precision, compiled
from lawful.training.processes.distributed import join
from lawful.training.processes.world import Alone
from lawful.training.recipe import Recipe, facts_of, laws_of, name_of, other_option
from lawful.training.run import Run
from lawful.training.shown.report import write_report
from lawful.training.shown.tensorboard import TensorBoard
from lawful.training.shown.terminal import Terminal
from lawful.training.snapshots import Kept, Snapshots
from lawful.training.storage import files, state
from lawful.training.storage.journal import Journal
from lawful.training.storage.state import seed
from lawful.training.threads import candidates, fastest
from lawful.training.trackers import Tracker, Trackers


class Session:
    """One sitting of a training: what `train` does, in order."""

    def __init__(
        self,
        recipe: Recipe | Training,
        engine: Engine,
        folder: Path,
        resume: Run | None,
        trackers: list[Tracker],
        stack: ExitStack,
        outer: Run | None = None,
    ) -> None:
        self.recipe, self.engine, self.folder, self.stack, self.outer = recipe, engine, folder, stack, outer
        self.run, self.world = resume, Alone()
        self.begun, self.progress = False, Progress()
        self.terminal = Terminal()
        self.trackers = Trackers([self.terminal, *trackers], self.say)

    def meet(self) -> None:
        """Joins the processes that train together; the first of them speaks and writes."""
        if self.engine.device != "cpu" and not getattr(torch, self.engine.device).is_available():
            raise ValueError(f"this machine has no device {self.engine.device} that PyTorch can use: take cpu")
        self.world = join(self.engine)
        if self.world.size > 1:
            self.stack.enter_context(stoppable(self.say))
        if self.world.rank:
            self.trackers.told.clear()

    def go(self) -> Run:
        failed = True
        try:
            self.meet()
            seed(self.engine.seed)
            self.training = self.recipe if isinstance(self.recipe, Training) else self.recipe.training()
            self.training.model.to(self.engine.device)
            self.prepare()
            self.begun = True
            ending = self.fit()
            run = self.stopped() if ending == "stopped" else self.finish(ending)
            failed = False
            return run
        except (Exception, KeyboardInterrupt) as error:
            sentence = str(error) if isinstance(error, ValueError) and not self.begun else explained(error)
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
        for turn in self.training.turns:
            state.named(turn.optimizer, names)
        self.precision = Precision(self.engine, self.say)
        self.loop = Loop(
            self.training,
            progress=self.progress,
            precision=self.precision,
            world=self.world,
            device=self.engine.device,
        )
        if self.training.average:
            self.loop.average = WeightAverage(self.training.model, decay=self.training.average)
        self.snapshots = Snapshots(self.loop, seed=self.engine.seed)
        if self.world.rank:
            self.snapshots.begin_stream()
        threads = self.threads()
        if self.run is None:
            self.run = self.made(threads)
            self.hold(self.run)
        else:
            self.hold(self.run)
            self.take_up(self.run)
        if self.engine.compile:
            compiled(self.training.model, self.trial, self.say)
        if self.engine.tensorboard and self.world.rank == 0:
            self.trackers.told.append(TensorBoard())
        self.trackers.start(self.run, self.training)
        for note in self.training.notes:
            self.say(f"note: {note}")
        processes = f"{self.world.size} processes ({self.engine.parallel}), " if self.world.size > 1 else ""
        self.say(f"{self.run.path}: {self.training.steps} steps on {self.engine.device}, {processes}{threads} threads")

    def hold(self, run: Run) -> None:
        """Keeps other trainings from the folder."""
        if self.world.rank == 0:
            self.stack.enter_context(files.held(run.path / "config.json"))

    def made(self, threads: int) -> Run:
        """Makes the folder, in the first process, and opens it in every one."""
        if self.world.rank:
            return Run(str(self.world.first(None)))
        facts = facts_of(self.recipe, self.training, threads=threads, engine=self.engine)
        run = Run.create(self.folder, name_of(self.recipe), facts)
        self.world.first(str(run.path))
        return run

    def threads(self) -> int:
        """Sets the number of threads: that of the run that goes on, the one wanted, or the fastest."""
        chosen = self.run.config.get("threads") if self.run else self.engine.threads
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
        with state.randomness_kept(), state.module_kept(self.training.model):
            self.loop.begin()
            batch, weight = self.world.share(self.training.batches.batch(0))
            batch = tuple(t.to(self.engine.device) for t in batch)
            batch = self.training.augment(batch) if self.training.augment else batch
            for index in range(len(self.training.turns)):
                self.loop.gradient(index, batch, weight)

    def take_up(self, run: Run) -> None:
        """Puts the newest sound checkpoint into the model, the optimizers and the random states."""
        if run.config.get("data", "") != self.training.fingerprint:
            raise ValueError(f"the data of {run.path} has changed since it was begun: it cannot be gone on with")
        if (name := other_option(self.recipe, run)) is not None:
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
            self.journal = Journal(run.path / "metrics.jsonl", step=self.progress.step, seconds=self.progress.seconds)
            self.stack.callback(self.journal.close)
        self.kept = Kept(run.checkpoints, self.loop, keep=self.engine.keep, first=self.flush)
        with stoppable(self.say) as wish:
            ending = self.loop.run(log=self.log, save=self.save, every=self.engine.save, wish=wish)
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
        with in_training(training.model):
            results = {} if isinstance(self.recipe, Training) else self.recipe.finish(run, training)
            verdicts = laws_of(training, self.engine)
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
                state.put_into_module(self.training.model, state.within(kept, found.tensors))
                self.say(f"the weights of step {best} are kept, the best ({self.training.watch} {record.best:.4g})")
                return
            except ValueError as error:
                self.say(f"{error}; the last weights are kept in place of the best")
        if average is not None:
            state.put_into_module(self.training.model, average.tensors)

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
