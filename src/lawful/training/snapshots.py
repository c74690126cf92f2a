"""Everything that the rest of a training depends on, taken and put back."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor

from lawful import _json as config
from lawful.training import checkpoint as shards
from lawful.training import checkpoint as state
from lawful.training.checkpoint import Checkpoint, Checkpoints
from lawful.training.loop import Loop, Progress

APART = 5.0
"""Seconds from one checkpoint to the next of a better evaluation, so that many of them cost little."""


class CheckpointWriter:
    """Writes checkpoints; a best one that follows another closely is held in memory for a while.

    Args:
        checkpoints: Where they are written.
        loop: The loop that they are of.
        keep: How many to keep besides the best.
        first: What is done before each.
    """

    def __init__(self, checkpoints: Checkpoints, loop: Loop, *, keep: int, first: Callable[[], None]) -> None:
        self.checkpoints, self.loop, self.keep, self.first = checkpoints, loop, keep, first
        self.held: Checkpoint | None = None
        self.written = -APART

    def save(self, checkpoint: Checkpoint, *, due: bool) -> None:
        """Writes a checkpoint, at once if it is due."""
        if not due and self.loop.world.size == 1 and time.monotonic() < self.written + APART:
            self.held = checkpoint.copied()
            return
        self.write_held()
        self.write(checkpoint)

    def write_held(self) -> None:
        """Writes the checkpoint that is held, if it is still the best."""
        if self.held is not None and self.held.step == self.loop.progress.record.step:
            self.write(self.held)

    def write(self, checkpoint: Checkpoint) -> None:
        self.first()
        best = self.loop.progress.record.step
        self.checkpoints.write(checkpoint, keep=self.keep, best=best, world=self.loop.world)
        self.held, self.written = None, time.monotonic()


class Snapshots:
    """Makes checkpoints of a loop: weights, their average, optimizers, scaler, progress and every random state.

    Of several processes the first keeps what all share, and each its own random state and share of the weights.

    Args:
        loop: The loop.
        seed: What the random state of a process begins from where no checkpoint has it.
    """

    def __init__(self, loop: Loop, *, seed: int) -> None:
        self.loop, self.seed, self.world = loop, seed, loop.world
        self.names = state.names_of(loop.training.model)

    def take(self) -> Checkpoint:
        """Returns the state after the steps that are done."""
        loop = self.loop
        tensors = state.add_prefix("model", state.module_state(loop.training.model))
        facts: dict[str, Any] = {"progress": asdict(loop.progress)}
        if loop.average is not None:
            tensors |= state.add_prefix("average", loop.average.tensors)
        for index, turn in enumerate(loop.training.optimizer_steps):
            key = f"optimizer{index}"
            memory, facts[key] = state.of_optimizer(turn.optimizer, self.names)
            tensors |= state.add_prefix(key, memory)
        facts["scaler"] = loop.precision.scaler.state_dict() if loop.precision.scaler else None
        randomness, facts["random"] = state.of_randomness()
        if rank := self.world.rank:
            tensors = {name: tensor for name, tensor in tensors.items() if shards.is_shared(tensor)}
            randomness["facts"] = torch.tensor([*config.dump(facts["random"]).encode()], dtype=torch.uint8)
        tensors |= state.add_prefix(f"random{rank or ''}", randomness)
        return Checkpoint(loop.progress.step, tensors, facts)

    def put_back(self, found: Checkpoint) -> None:
        """Gives everything the state that it had."""
        loop, tensors, facts = self.loop, found.tensors, found.facts
        state.load_module_state(loop.training.model, state.strip_prefix("model", tensors))
        if loop.average is not None:
            loop.average.load_state_dict(state.strip_prefix("average", tensors))
        for index, turn in enumerate(loop.training.optimizer_steps):
            key = f"optimizer{index}"
            state.put_into_optimizer(
                turn.optimizer, self.names, state.strip_prefix(key, tensors), state.part(facts, key)
            )
        if loop.precision.scaler is not None and facts.get("scaler"):
            loop.precision.scaler.load_state_dict(state.part(facts, "scaler"))
        training, progress = loop.training, config.from_json(Progress, facts.get("progress"), at="progress")
        progress.record = replace(
            progress.record, patience=training.patience, higher_is_better=training.higher_is_better
        )
        vars(loop.progress).update(vars(progress))
        self._put_back_randomness(tensors, facts)

    def _put_back_randomness(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Puts back the random state that this process had; one that is new has a stream of its own."""
        rank = self.world.rank
        own = state.strip_prefix(f"random{rank}", tensors) if rank else state.strip_prefix("random", tensors)
        if not own:
            self.begin_stream()
            return
        if rank:
            text = bytes(own.pop("facts", torch.zeros(0)).to(torch.uint8).flatten().tolist())
            facts = {"random": config.parse(text, name=f"the random state of process {rank}")}
        state.put_into_randomness(own, state.part(facts, "random"))

    def begin_stream(self) -> None:
        """Gives a process after the first random numbers of its own, from where the training stands on."""
        state.seed(hash((self.seed, self.world.rank, self.loop.progress.step)) % 2**63)
