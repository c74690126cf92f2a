"""Training a recipe, an ensemble of it, or any model of one's own."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import is_dataclass, replace
from pathlib import Path

import torch

from lawful.training.failures import TrainingFailed, explained
from lawful.training.options import Engine
from lawful.training.plan import Training
from lawful.training.recipe import Ensembled, Recipe, facts_of, laws_of, other_option
from lawful.training.run import RUNS, Run, runs
from lawful.training.session import Session
from lawful.training.shown.report import outcome, write_report
from lawful.training.shown.terminal import Terminal
from lawful.training.storage import config, journal, state
from lawful.training.trackers import Tracker


def train(
    recipe: Recipe | Training,
    *,
    engine: Engine | None = None,
    folder: Path | str = RUNS,
    resume: Run | Path | str | None = None,
    trackers: Iterable[Tracker] = (),
) -> Run:
    """Trains a recipe, or any model with its objective and data, and keeps everything in a folder.

    Ctrl-C ends it after the step, with a checkpoint; `resume` goes on from the newest checkpoint and gives the
    weights that an uninterrupted run gives, bit by bit.

    Args:
        recipe: A recipe, or a `Training` with your own model, objective, data and optimizer.
        engine: How it is run; a recipe has its own.
        folder: Where the new run's folder is made.
        resume: The run to go on with, or its folder, rather than a new one.
        trackers: Whom to tell the figures of every step, besides the terminal and `metrics.jsonl`.

    Raises:
        TrainingFailed: what went wrong, and how to go on.
    """
    if engine is not None and is_dataclass(recipe) and not isinstance(recipe, Training):
        recipe = replace(recipe, engine=engine)  # so that the run says what it was run with
    run = Run(resume) if isinstance(resume, Path | str) else resume
    own = engine or (Engine() if isinstance(recipe, Training) else recipe.engine)
    if isinstance(recipe, Ensembled) and recipe.members():
        return _train_members(recipe, own, Path(folder), run, list(trackers))
    return _train(recipe, own, Path(folder), run, list(trackers))


def _train(
    recipe: Recipe | Training,
    engine: Engine,
    folder: Path,
    resume: Run | None,
    trackers: list[Tracker],
    outer: Run | None = None,
) -> Run:
    with ExitStack() as stack:
        stack.enter_context(state.randomness_kept())
        stack.callback(torch.set_num_threads, torch.get_num_threads())
        return Session(recipe, engine, folder, resume, trackers, stack, outer).go()


def _train_members(recipe: Ensembled, engine: Engine, folder: Path, resume: Run | None, trackers: list[Tracker]) -> Run:
    """Trains each member in a run of its own inside the run, those that are not finished, and then their average."""
    run = resume
    try:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise ValueError("an ensemble is trained by one process: each member may have several, one after the other")
        with state.randomness_kept():
            state.seed(engine.seed)
            training = recipe.training()
        if run is None:
            run = Run.create(folder, recipe.name, facts_of(recipe, training, threads=0, engine=engine))
        elif (name := other_option(recipe, run)) is not None:
            raise ValueError(f"{run.path} was begun with another {name}: it goes on with the same options only")
        terminal, members = Terminal(run=run), recipe.members()
        terminal.say(f"{run.path}: {recipe.name}, {len(members)} members")
        models, done = [], []
        for number, member in enumerate(members, 1):
            terminal.say(f"member {number} of {len(members)}, with seed {member.engine.seed}")
            found = _member(member, run, trackers)
            terminal.note(f"{found.path}: {outcome(found.metrics(), found.results)}")
            if found.interrupted:
                run.interrupted = True
                return run
            model = member.restored(found.config["model"])
            model.load_state_dict(found.weights())
            models.append(model.eval())
            done.append(found)
        training = replace(training, model=recipe.combined(models))
        run.keep_weights(state.plain(training.model.state_dict()))
        run.keep_metrics(journal.averaged(member.metrics() for member in done))
        results = recipe.finish(run, training)
        verdicts = laws_of(training, engine)
        run.keep_results({"members": len(models), **results})
        write_report(run, verdicts=verdicts)
        terminal.say(f"report: {run.report}")
    except (ValueError, OSError) as error:
        advice = f"\ngo on with: lawful train --resume {run.path}" if run else ""
        raise TrainingFailed(f"{explained(error) or error}{advice}", run=run) from error
    return run


def _member(member: Recipe, run: Run, trackers: list[Tracker]) -> Run:
    """Trains a member, or goes on with it, unless it is finished."""
    place = run.path / "members"
    found = next((other for other in runs(place) if other.config.get("options") == config.to_json(member)), None)
    if found is not None and found.state == "finished":
        return found
    return _train(member, member.engine, place, found, trackers, run)
