"""`Run`: the folder of one training."""

from __future__ import annotations

import html
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from safetensors import SafetensorError
from safetensors.torch import load_file, save

from lawful import _json
from lawful.checking.formatting import format_number
from lawful.training.checkpoint import Checkpoints, _contiguous_copies
from lawful.training.storage import (
    _fsync_folder,
    _read_last_metrics,
    _read_metrics,
    _to_json_lines,
    _write_file,
)

if TYPE_CHECKING:
    from torch import Tensor

RUNS = Path("runs")
"""Default folder of runs."""


class Run:
    """The folder of a training: configuration, weights, checkpoints, metrics, results and report.

    Opening a run reads JSON and safetensors files only; no code is executed.

    Args:
        path: The folder.

    Raises:
        FileNotFoundError: If there is no run.
        ValueError: If `config.json` is invalid.
    """

    def __init__(self, path: Path | str) -> None:
        self.path, self.interrupted = Path(path), False
        if not self.path.is_dir():
            raise FileNotFoundError(f"there is no run at {self.path}: {_list_names(self.path.parent)}")
        if not (self.path / "config.json").is_file():
            raise FileNotFoundError(f"{self.path} is not a run: it has no config.json. {_list_names(self.path)}")
        self.config: dict[str, Any] = self._load_object("config.json")

    @classmethod
    def create(cls, folder: Path | str, name: str, config: Mapping[str, Any]) -> Run:
        """Creates the folder `name-001`, or the next free number, and writes `config.json`."""
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
            _write_file(path / "config.json", _json.dump(config))
            _fsync_folder(folder)
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise
        return cls(path)

    def __repr__(self) -> str:
        return f"<Run {self.path}: {', '.join(self._facts())}>"

    def _repr_html_(self) -> str:
        facts = html.escape(", ".join(self._facts()))
        link = ""
        if self.report.is_file():
            link = f' (<a href="{html.escape(quote(self.report.as_posix()))}" target="_blank">report</a>)'
        return f"<p><b>{html.escape(str(self.path))}</b>: {facts}{link}</p>"

    def _facts(self) -> list[str]:
        """The recipe, the status and the first test results; a file that cannot be read is reported."""
        facts = [str(self.config.get("recipe") or "custom training")]
        try:
            return [*facts, self.status, *filter(None, [self.summary])]
        except (ValueError, OSError) as error:
            return [*facts, str(error)]

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """Metrics of every step, from `metrics.jsonl`."""
        return list(_read_metrics(self.path / "metrics.jsonl"))

    @property
    def results(self) -> dict[str, Any]:
        """Results of the trained model; empty until training has finished."""
        return self._load_object("results.json") if (self.path / "results.json").is_file() else {}

    @property
    def report(self) -> Path:
        """Path of the HTML report."""
        return self.path / "report.html"

    @property
    def figures(self) -> Path:
        """Folder of the figures."""
        return self.path / "figures"

    @property
    def samples(self) -> Path:
        """Folder of the samples."""
        return self.path / "samples"

    @property
    def log(self) -> Path:
        """Path of the log file."""
        return self.path / "log.txt"

    @property
    def checkpoints(self) -> Checkpoints:
        """Checkpoints of the run."""
        return Checkpoints(self.path / "state")

    @property
    def status(self) -> str:
        """Progress of the run: `finished`, `at step 300`, `2 members trained` or `not started`."""
        if (self.path / "results.json").is_file():
            return "finished"
        if members := runs(self.path / "members"):
            return f"{sum(run.status == 'finished' for run in members)} members trained"
        last = _read_last_metrics(self.path / "metrics.jsonl")
        return f"at step {last['step']}" if last else "not started"

    @property
    def summary(self) -> str:
        """The first test results in one line, or validation results, or else the first sentence of the summary."""
        results = self.results
        split = next((name for name in ("test", "validation") if isinstance(results.get(name), dict)), None)
        if split is None:
            sentence = str(results.get("summary", "")).partition(". ")[0]
            return sentence if len(sentence) <= 120 else f"{sentence[:119]}…"
        values = {name: r.get("value") if isinstance(r, dict) else r for name, r in results[split].items()}
        texts = [f"{name} {format_number(value)}" for name, value in values.items() if isinstance(value, int | float)]
        while len("; ".join(texts)) > 120:
            texts.pop()
        return ("validation " if split == "validation" and texts else "") + "; ".join(texts)

    def weights(self) -> dict[str, Tensor]:
        """Returns the weights of the trained model, or of the newest checkpoint if training has not finished.

        Raises:
            ValueError: If there are no readable weights.
        """
        path = self.path / "model.safetensors"
        if path.is_file():
            try:
                return load_file(path)
            except (SafetensorError, OSError) as error:
                raise ValueError(f"cannot read model.safetensors of {self.path}: {error}") from None
        checkpoint = self.checkpoints.load_newest()
        if checkpoint is None and (members := runs(self.path / "members")):
            raise ValueError(
                f"{self.path} is an ensemble with {self.status}, and has no weights yet. "
                f"Resume it with: lawful train --resume {self.path}, or use a member such as {members[0].path}"
            )
        if checkpoint is None:
            raise ValueError(f"{self.path} has no weights yet")
        prefix = "ema." if any(name.startswith("ema.") for name in checkpoint.tensors) else "model."
        return {name.removeprefix(prefix): t for name, t in checkpoint.tensors.items() if name.startswith(prefix)}

    def save_metrics(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Writes `metrics.jsonl`."""
        _write_file(self.path / "metrics.jsonl", _to_json_lines(lines))

    def save_results(self, results: Mapping[str, Any]) -> None:
        """Writes `results.json`."""
        _write_file(self.path / "results.json", _json.dump(results))

    def save_weights(self, tensors: Mapping[str, Tensor]) -> None:
        """Writes `model.safetensors`."""
        _write_file(self.path / "model.safetensors", save(_contiguous_copies(tensors)))

    def _load_object(self, name: str) -> dict[str, Any]:
        value = _json.load(self.path / name)
        if not isinstance(value, dict):
            raise ValueError(f"{name} of {self.path} must be a JSON object, got {type(value).__name__}")
        return value


def runs(folder: Path | str = RUNS) -> list[Run]:
    """Returns the runs of a folder, oldest first."""
    opened = []
    for path in sorted(Path(folder).glob("*/config.json"), key=lambda p: (p.stat().st_mtime, p)):
        try:
            opened.append(Run(path.parent))
        except (ValueError, OSError):
            continue
    return opened


def _list_names(folder: Path) -> str:
    names = [run.path.name for run in runs(folder)] if folder.is_dir() else []
    more = ", ..." if len(names) > 10 else ""
    return f"{folder} has {', '.join(names[:10])}{more}" if names else f"{folder} has no runs"
