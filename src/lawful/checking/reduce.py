"""Making the values of a counterexample simple: fewer entries that differ, zeros, whole numbers."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from lawful.checking.arguments import MapRaised
from lawful.checking.case import Drawn, replay
from lawful.checking.numerics import MARGIN
from lawful.checking.outcome import Outcome
from lawful.checking.shrink import Failure
from lawful.checking.trial import Trial
from lawful.laws.language import Discard
from lawful.laws.language.inputs import Like, Simplex

STEPS, SECONDS = 300, 20.0
"""How many simpler values are tried, and for how long; of fewer values, for less."""

SAFE = 10 * MARGIN
"""A simpler case has to fail by this many times the noise, so that the counterexample is not a close call."""


class Reducer:
    """Simplifies the drawn tensors of a failing case one after another, as long as the same failure remains."""

    def __init__(self, trial: Trial, failure: Failure, steps: int = STEPS) -> None:
        if failure.outcome is None:
            raise ValueError("a case in which the map raised has no values to reduce")
        self.trial, self.kind, self.best = trial, failure.kind, failure.outcome
        self.steps, self.end = steps, time.monotonic() + SECONDS * steps / STEPS

    def reduce(self) -> Outcome:
        """Returns the simplest outcome found."""
        order = sorted(range(len(self.tensors)), key=lambda n: not self.tensors[n].replaces)
        for n in order:
            drawn = self.tensors[n]
            if isinstance(drawn.domain, Like | Simplex) or drawn.value.dtype is torch.bool or not drawn.value.numel():
                continue
            self._clear(n)
            if drawn.value.is_floating_point():
                self._round(n)
        return self.best

    @property
    def tensors(self) -> list[Drawn]:
        return self.best.run.record.tensors

    def _try(self, n: int, value: Tensor) -> bool:
        old = self.tensors[n].value
        if self.steps <= 0 or time.monotonic() > self.end or _identical(old, value):
            return False
        if self.kind == "not finite" and value.is_floating_point() and not (value.nan_to_num() != 0).any():
            return False  # all zero may fail in another way
        self.steps -= 1
        record = self.best.run.record
        given = list(self.tensors)
        given[n] = Drawn(value, given[n].domain, given[n].replaces)
        try:
            outcome = self.trial.examine(replay(record), given)
        except (Discard, MapRaised):
            return False
        if outcome.finding.kind != self.kind or not self._clear_of_noise(outcome):
            return False
        self.best = outcome
        return True

    def _clear_of_noise(self, outcome: Outcome) -> bool:
        finding = outcome.finding
        return self.kind not in ("differs", "exceeds") or finding.residual > SAFE * finding.noise

    def _clear(self, n: int) -> None:
        """Sets as many entries as possible to zero (or to what they replace), in halves, quarters, ... of them."""
        value = self.tensors[n].value
        plain = float("nan") if self.tensors[n].replaces and value.is_floating_point() else 0
        chunk = value.numel()
        while chunk >= 1:
            for start in range(0, value.numel(), chunk):
                candidate = self.tensors[n].value.clone()
                candidate.reshape(-1)[start : start + chunk] = plain
                self._try(n, candidate)
            chunk //= 2

    def _round(self, n: int) -> None:
        """Makes all entries whole numbers, or ones, or rounds them to a digit; then one by one."""
        value = self.tensors[n].value
        for simpler in (torch.sign(value), value.round(), (value * 10).round() / 10):
            if self._try(n, simpler):
                return
        for i in range(value.numel()):
            for simpler in (torch.sign(value), value.round(), (value * 10).round() / 10):
                candidate = self.tensors[n].value.clone()
                candidate.reshape(-1)[i] = simpler.reshape(-1)[i]
                if self._try(n, candidate):
                    break


def _identical(a: Tensor, b: Tensor) -> bool:
    return bool(((a == b) | (a.isnan() & b.isnan())).all()) if a.is_floating_point() else torch.equal(a, b)


def reduced(trial: Trial, failure: Failure, steps: int = STEPS) -> Outcome:
    """Returns the failure with its values made as simple as they get in a number of steps."""
    return Reducer(trial, failure, steps).reduce()
