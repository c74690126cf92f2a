"""A run: one folder with everything that a training made."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from lawful import _json as config
from lawful.training import storage as files
from lawful.training import storage as journal
from lawful.training.checkpoint import Checkpoints

RUNS = Path("runs")
"""Where runs are unless a place is named."""


class Run:
    """The folder of a training: `config.json`, `model.safetensors`, `state/`, `metrics.jsonl` and what it shows.

    Opening a run reads JSON and tensors, and executes nothing.

    Args:
        path: The folder.

    Raises:
        FileNotFoundError: where there is no run.
        ValueError: where its `config.json` is none.
    """

    def __init__(self, path: Path | str) -> None:
        self.path, self.interrupted = Path(path), False
        if not self.path.is_dir():
            raise FileNotFoundError(f"there is no run at {self.path}: {_others(self.path.parent)}")
        if not (self.path / "config.json").is_file():
            raise FileNotFoundError(f"{self.path} is no run: it has no config.json")
        found = config.load(self.path / "config.json")
        if not isinstance(found, dict):
            raise ValueError(f"config.json of {self.path} is an object: got {type(found).__name__}")
        self.config: dict[str, Any] = found

    @classmethod
    def create(cls, folder: Path | str, name: str, facts: Mapping[str, Any]) -> Run:
        """Makes a new folder `name-001`, or the next number that is free, and writes its configuration."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        numbered = re.compile(re.escape(name) + "-([0-9]{1,9})")
        number = 1 + max((int(m[1]) for p in folder.iterdir() if (m := numbered.fullmatch(p.name))), default=0)
        while True:
            path = folder / f"{name}-{number:03d}"
            try:
                path.mkdir()
                break
            except FileExistsError:
                number += 1
        try:
            for inner in ("state", "figures", "samples"):
                (path / inner).mkdir()
            files.write(path / "config.json", config.dump(facts))
            files.flush_folder(folder)
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise
        return cls(path)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @property
    def figures(self) -> Path:
        return self.path / "figures"

    @property
    def samples(self) -> Path:
        return self.path / "samples"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    @property
    def log(self) -> Path:
        return self.path / "log.txt"

    @property
    def checkpoints(self) -> Checkpoints:
        return Checkpoints(self.path / "state")

    @property
    def results(self) -> dict[str, Any]:
        """The figures of the trained model; empty until the training has ended."""
        path = self.path / "results.json"
        found = config.load(path) if path.is_file() else {}
        if not isinstance(found, dict):
            raise ValueError(f"results.json of {self.path} is an object: got {type(found).__name__}")
        return found

    def metrics(self) -> list[dict[str, Any]]:
        """The figures of every step; a last line that a crash cut off is left out."""
        return list(journal.lines(self.path / "metrics.jsonl"))

    def keep_metrics(self, lines: Iterable[Mapping[str, Any]]) -> None:
        files.write(self.path / "metrics.jsonl", journal.written(lines))

    def keep_results(self, results: Mapping[str, Any]) -> None:
        files.write(self.path / "results.json", config.dump(results))

    def keep_weights(self, tensors: Mapping[str, Tensor]) -> None:
        """Writes `model.safetensors`."""
        files.write(
            self.path / "model.safetensors", save({name: t.detach().cpu().contiguous() for name, t in tensors.items()})
        )

    def weights(self) -> dict[str, Tensor]:
        """Returns the weights of the trained model, or of the newest checkpoint while it is being trained.

        Raises:
            ValueError: where there are none that can be read.
        """
        path = self.path / "model.safetensors"
        if path.is_file():
            try:
                return load_file(path)
            except (SafetensorError, OSError) as error:
                raise ValueError(f"model.safetensors of {self.path} cannot be read: {error}") from None
        found = self.checkpoints.newest()
        if found is None and (members := runs(self.path / "members")):
            done = sum(run.state == "finished" for run in members)
            advice = f"go on with: lawful train --resume {self.path}; {members[0].path} is one of them"
            raise ValueError(f"{self.path} is the average of several models, of which {done} are trained: {advice}")
        if found is None:
            raise ValueError(f"{self.path} has no weights yet")
        kept = "average." if any(name.startswith("average.") for name in found.tensors) else "model."
        return {name.removeprefix(kept): t for name, t in found.tensors.items() if name.startswith(kept)}

    @property
    def summary(self) -> str:
        """Its first results on the test, in a line."""
        test = self.results.get("test")
        found = test.items() if isinstance(test, dict) else ()
        values = {name: value.get("value") for name, value in found if isinstance(value, dict)}
        said = [f"{name} {value:.4g}" for name, value in values.items() if isinstance(value, int | float)]
        while len(", ".join(said)) > 120:
            said.pop()
        return ", ".join(said)

    @property
    def state(self) -> str:
        """What became of it: `finished`, `at step 300`, or `2 members done`."""
        if (self.path / "results.json").is_file():
            return "finished"
        if members := runs(self.path / "members"):
            return f"{sum(run.state == 'finished' for run in members)} members done"
        last = journal.last(self.path / "metrics.jsonl")
        return f"at step {last['step']}" if last else "not begun"


def runs(folder: Path | str = RUNS) -> list[Run]:
    """Lists the runs of a folder, the oldest first."""
    found = list(Path(folder).glob("*/config.json"))
    opened = []
    for path in sorted(found, key=lambda p: (p.stat().st_mtime, p)):
        try:
            opened.append(Run(path.parent))
        except (ValueError, OSError):
            continue
    return opened


def _others(folder: Path) -> str:
    names = [run.path.name for run in runs(folder)] if folder.is_dir() else []
    return f"{folder} holds {', '.join(names[-5:])}" if names else f"{folder} holds no runs"
