"""Training a recipe, an ensemble of it, or any model of one's own."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import torch

from lawful.training.failures import TrainingFailed, explained
from lawful.training.options import Engine
from lawful.training.plan import Training
from lawful.training.recipe import Ensembled, Recipe, facts_of, laws_of
from lawful.training.run import RUNS, Run, runs
from lawful.training.session import Session
from lawful.training.shown.report import write_report
from lawful.training.shown.terminal import Terminal
from lawful.training.storage import config, state
from lawful.training.trackers import Tracker


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
        return Session(recipe, own, Path(folder), resume, list(trackers), stack).go()


def _train_members(recipe: Ensembled, engine: Engine, folder: Path, resume: Run | None, trackers: list[Tracker]) -> Run:
    """Trains each member in a run of its own inside the run, those that are not finished, and then their average."""
    with state.randomness_kept():
        state.seed(engine.seed)
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
