"""Training from the first step, or the last checkpoint, to the report."""

from __future__ import annotations

import platform
import random
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from lawful.blocks.modes import in_training
from lawful.checking.check import check_claims
from lawful.checking.verdict import Verdict
from lawful.optim.averaging import WeightAverage
from lawful.training.distributed import join
from lawful.training.failures import TrainingFailed, explained
from lawful.training.interrupt import stoppable
from lawful.training.loop import Loop, Progress
from lawful.training.options import Engine
from lawful.training.plan import Training
from lawful.training.precision import Precision, compiled
from lawful.training.report import write_report
from lawful.training.run import RUNS, Run, runs
from lawful.training.storage import config, files, shards, state
from lawful.training.storage.checkpoints import Checkpoint
from lawful.training.storage.journal import Journal
from lawful.training.tensorboard import TensorBoard
from lawful.training.terminal import Terminal
from lawful.training.threads import candidates, fastest
from lawful.training.trackers import Tracker
from lawful.training.world import Alone


@runtime_checkable
class Recipe(Protocol):
    """A complete training as a frozen dataclass: its fields are the options, and it builds the rest from them."""

    name: ClassVar[str]

    @property
    def engine(self) -> Engine:
        """How it is run."""
        ...

    def training(self) -> Training:
        """Reads the data and builds everything; all that is random comes from PyTorch's, NumPy's or Python's state."""
        ...

    def finish(self, run: Run, training: Training) -> Mapping[str, Any]:
        """Draws figures and samples of the trained model, and returns its results."""
        ...

    def restored(self, facts: Mapping[str, Any]) -> nn.Module:
        """Builds the model of a run from what `Training.described` said, before its weights are put in."""
        ...


def train(
    recipe: Recipe | Training,
    *,
    engine: Engine | None = None,
    folder: Path | str = RUNS,
    resume: Run | None = None,
    trackers: Iterable[Tracker] = (),
) -> Run:
    """Trains a recipe, or any model with its objective and data, and keeps everything in a folder.

    Ctrl-C ends it after the step, with a checkpoint; `resume` goes on from the newest checkpoint and gives the
    weights that an uninterrupted run gives, bit by bit.

    Args:
        recipe: A recipe, or a `Training` with your own model, objective, data and optimizer.
        engine: How it is run; a recipe has its own.
        folder: Where the new run's folder is made.
        resume: The run to go on with, rather than a new one.
        trackers: Whom to tell the figures of every step, besides the terminal and `metrics.jsonl`.

    Raises:
        TrainingFailed: what went wrong, and how to go on.
    """
    own = engine or (Engine() if isinstance(recipe, Training) else recipe.engine)
    if isinstance(recipe, Ensembled) and recipe.members():
        return _train_members(recipe, own, Path(folder), resume, list(trackers))
    with ExitStack() as stack:
        stack.enter_context(state.randomness_kept())
        stack.callback(torch.set_num_threads, torch.get_num_threads())
        return _Session(recipe, own, Path(folder), resume, list(trackers), stack).go()


@runtime_checkable
class Ensembled(Recipe, Protocol):
    """A recipe of which several are trained, and made into one model."""

    def members(self) -> Sequence[Recipe]:
        """The recipes of the members; none where there is one model only."""
        ...

    def combined(self, models: Sequence[nn.Module]) -> nn.Module:
        """Makes one model of the trained members."""
        ...


def _train_members(recipe: Ensembled, engine: Engine, folder: Path, resume: Run | None, trackers: list[Tracker]) -> Run:
    """Trains each member in a run of its own inside the run, those that are not finished, and then their average."""
    with state.randomness_kept():
        seed(engine.seed)
        try:
            training = recipe.training()
        except (ValueError, OSError) as error:
            raise TrainingFailed(explained(error) or str(error)) from error
    members = recipe.members()
    run = resume or Run.create(folder, recipe.name, facts_of(recipe, training, threads=0, engine=engine))
    models = []
    for number, member in enumerate(members):
        place = run.path / "members"
        found = next((r for r in runs(place) if r.config.get("options") == config.to_json(member)), None)
        if found is None or found.state != "finished":
            Terminal().say(f"member {number + 1} of {len(members)}")
            found = train(member, folder=place, resume=found, trackers=trackers)
        if found.state != "finished":
            return run
        model = member.restored(found.config["model"])
        model.load_state_dict(found.weights())
        models.append(model.eval())
    training = replace(training, model=recipe.combined(models))
    run.keep_weights(state.plain(training.model.state_dict()))
    results = {"members": len(members), **recipe.finish(run, training)}
    verdicts = laws_of(training, engine)
    run.keep_results(results)
    write_report(run, verdicts=verdicts)
    Terminal().say(f"report: {run.report}")
    return run


class _Session:
    """One sitting of a training: what `train` does, in order."""

    def __init__(
        self,
        recipe: Recipe | Training,
        engine: Engine,
        folder: Path,
        resume: Run | None,
        trackers: list[Tracker],
        stack: ExitStack,
    ) -> None:
        self.recipe, self.engine, self.folder, self.stack = recipe, engine, folder, stack
        self.run, self.world = resume, Alone()
        self.begun, self.progress = False, Progress()
        self.terminal = Terminal()
        self.trackers: list[Tracker] = [self.terminal, *trackers]

    def meet(self) -> None:
        """Joins the processes that train together; the first of them speaks and writes."""
        if self.engine.device != "cpu" and not getattr(torch, self.engine.device).is_available():
            raise ValueError(f"this machine has no device {self.engine.device} that PyTorch can use: take cpu")
        self.world = join(self.engine)
        if self.world.size > 1:
            self.stack.enter_context(stoppable(self.say))
        if self.world.rank:
            self.trackers.clear()

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
            if sentence is None:
                raise
            raise TrainingFailed(self.with_advice(sentence), run=self.run) from error
        finally:
            for tracker in self.trackers:
                with suppress(Exception):  # one that cannot close is not to keep others from it
                    tracker.close()
            self.world.leave(failed=failed)

    # ------------------------------------------------------------ before the first step

    def prepare(self) -> None:
        """Chooses the threads, makes or reads the folder, and takes up where a checkpoint is."""
        self.names = {id(p): name for name, p in self.training.model.named_parameters()}
        for turn in self.training.turns:
            state.named(turn.optimizer, self.names)
        self.precision = Precision(self.engine, self.say)
        self.loop = Loop(
            self.training,
            progress=self.progress,
            precision=self.precision,
            world=self.world,
            device=self.engine.device,
        )
        self.names = {id(p): name for name, p in self.training.model.named_parameters()}
        if self.training.average:
            self.loop.average = WeightAverage(self.training.model, decay=self.training.average)
        self.average = self.loop.average
        if self.world.rank:
            seed(self.own_seed())
        threads = self.threads()
        if self.run is None:
            self.run = self.made(threads)
        else:
            self.take_up(self.run)
        if self.engine.compile:
            compiled(self.training.model, self.trial, self.say)
        if self.engine.tensorboard and self.world.rank == 0:
            self.trackers.append(TensorBoard())
        for tracker in self.trackers:
            tracker.start(self.run, self.training)
        for note in self.training.notes:
            self.say(f"note: {note}")
        processes = f"{self.world.size} processes ({self.engine.parallel}), " if self.world.size > 1 else ""
        self.say(f"{self.run.path}: {self.training.steps} steps on {self.engine.device}, {processes}{threads} threads")

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
        self.restore(found)
        self.say(f"going on after step {self.progress.step}")

    def restore(self, found: Checkpoint) -> None:
        tensors, facts = found.tensors, found.facts
        state.put_into_module(self.training.model, state.within("model", tensors))
        if self.average is not None:
            self.average.load_state_dict(state.within("average", tensors))
        for index, turn in enumerate(self.training.turns):
            key = f"optimizer{index}"
            state.put_into_optimizer(turn.optimizer, self.names, state.within(key, tensors), state.part(facts, key))
        if self.precision.scaler is not None and facts.get("scaler"):
            self.precision.scaler.load_state_dict(state.part(facts, "scaler"))
        vars(self.progress).update(vars(config.from_json(Progress, facts.get("progress"), at="progress")))
        self.restore_randomness(tensors, facts)

    def restore_randomness(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Puts back the random state that this process had; one that is new has a stream of its own."""
        rank = self.world.rank
        own = state.within(f"random{rank}", tensors) if rank else state.within("random", tensors)
        if not own:
            seed(self.own_seed())
            return
        if rank:
            text = bytes(own.pop("facts", torch.zeros(0)).to(torch.uint8).flatten().tolist())
            facts = {"random": config.parse(text, name=f"the random state of process {rank}")}
        state.put_into_randomness(own, state.part(facts, "random"))

    def own_seed(self) -> int:
        """The seed of a process after the first, from where the training stands on."""
        return hash((self.engine.seed, self.world.rank, self.progress.step)) % 2**63

    # ------------------------------------------------------------ the steps

    def fit(self) -> str:
        run = self.opened
        if self.world.rank == 0:
            self.journal = Journal(run.path / "metrics.jsonl", step=self.progress.step, seconds=self.progress.seconds)
            self.stack.callback(self.journal.close)
        with stoppable(self.say) as wish:
            return self.loop.run(log=self.log, save=self.save, every=self.engine.save, wish=wish)

    def log(self, step: int, figures: dict[str, float]) -> None:
        if self.world.rank:
            return
        self.journal.log(step, figures)
        for tracker in self.trackers:
            tracker.log(step, figures)

    def save(self) -> None:
        """Keeps a checkpoint of everything."""
        self.loop.check()
        if self.world.rank == 0:
            self.journal.flush()
        tensors = state.under("model", state.of_module(self.training.model))
        facts: dict[str, Any] = {"progress": asdict(self.progress)}
        if self.average is not None:
            tensors |= state.under("average", self.average.tensors)
        for index, turn in enumerate(self.training.turns):
            key = f"optimizer{index}"
            memory, facts[key] = state.of_optimizer(turn.optimizer, self.names)
            tensors |= state.under(key, memory)
        facts["scaler"] = self.precision.scaler.state_dict() if self.precision.scaler else None
        randomness, facts["random"] = state.of_randomness()
        if rank := self.world.rank:
            tensors = {name: tensor for name, tensor in tensors.items() if shards.is_shared(tensor)}
            randomness["facts"] = torch.tensor([*config.dump(facts["random"]).encode()], dtype=torch.uint8)
        tensors |= state.under(f"random{rank or ''}", randomness)
        checkpoint = Checkpoint(self.progress.step, tensors, facts)
        best = self.progress.best_step
        self.opened.checkpoints.write(checkpoint, keep=self.engine.keep, best=best, world=self.world)

    @property
    def opened(self) -> Run:
        if self.run is None:
            raise RuntimeError("the run's folder is made before its first step")
        return self.run

    # ------------------------------------------------------------ after the last step

    def stopped(self) -> Run:
        self.say(f"stopped after step {self.progress.step}; go on with: {self.how_to_go_on()}")
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
        training = self.training = replace(training, model=model)
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
        best, progress = self.progress.best_step, self.progress
        if self.training.patience is not None and best is not None and best != progress.step:
            try:
                found = self.opened.checkpoints.read(best, like=self.world.like)
                kept = "average" if self.average is not None else "model"
                weights = state.within(kept, found.tensors)
                state.put_into_module(self.training.model, weights)
                self.say(f"the weights of step {best} are kept, the best ({self.training.watch} {progress.best:.4g})")
                return
            except ValueError as error:
                self.say(f"{error}; the last weights are kept in place of the best")
        if self.average is not None:
            state.put_into_module(self.training.model, self.average.tensors)

    # ------------------------------------------------------------ words

    def say(self, text: str) -> None:
        if self.world.rank == 0:
            self.terminal.say(text)

    def how_to_go_on(self) -> str:
        return f"{self.world.command} train --resume {self.opened.path}"

    def with_advice(self, sentence: str) -> str:
        if self.run is None:
            return sentence
        if not self.run.path.is_dir():
            return f"{sentence}\nthe folder {self.run.path} is gone, and its checkpoints with it"
        steps = self.run.checkpoints.steps()
        kept = f"the checkpoint of step {steps[-1]} is kept; go on with: {self.how_to_go_on()}" if steps else "no checkpoint was written yet"
        return f"{sentence}\n{kept}"


def seed(number: int) -> None:
    """Sets every random state."""
    torch.manual_seed(number)
    np.random.seed(number % 2**32)
    random.seed(number)


def name_of(recipe: Recipe | Training) -> str:
    """What a run is called: by its recipe, or by its model."""
    return type(recipe.model).__name__.lower() if isinstance(recipe, Training) else recipe.name


def facts_of(recipe: Recipe | Training, training: Training, *, threads: int, engine: Engine) -> dict[str, Any]:
    """What stands in `config.json`."""
    made = isinstance(recipe, Training)
    return {
        "recipe": None if made else recipe.name,
        "options": config.to_json(engine if made else recipe),
        "defaults": config.to_json(Engine() if made else type(recipe)()),
        "model": config.to_json(dict(training.described)),
        "data": training.fingerprint,
        "threads": threads,
        "device": engine.device,
        "platform": platform.platform(terse=True),
        "lawful": version("lawful"),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def laws_of(training: Training, engine: Engine) -> list[Verdict]:
    """Judges the laws of the trained model."""
    if training.claims is None or not engine.laws:
        return []
    return list(check_claims(training.claims(training.model), cases=engine.laws))
