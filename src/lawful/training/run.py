"""`Run`: the folder of one training."""

from __future__ import annotations

import hashlib
import html
import io
import math
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote as url_quote

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load_file, save

from lawful import _json
from lawful._files import (
    create_folder,
    fsync_folder,
    list_folder,
    open_file,
    open_path,
    refuse_links,
    write_file,
)
from lawful._names import csv_text, quote
from lawful.checking.formatting import format_number
from lawful.training.checkpoint import Checkpoints, _contiguous_copies
from lawful.training.storage import _format_lines, _read_last_metrics, _read_metrics

if TYPE_CHECKING:
    from torch import Tensor

RUNS = Path("runs")
"""Default folder of runs."""
_CHECKSUMS, _CHECKED, _MAX_VERSIONS = "checksums.json", ("config.json", "model.safetensors", "results.json"), 16
"""File of the SHA-256 checksums, the files that it covers, and the maximum number of versions of a file in it."""


class Run:
    """The folder of a training: configuration, weights, checkpoints, metrics, results and report.

    Opening a run reads JSON and safetensors files only; no code is executed. Links inside the folder are not followed.

    Args:
        path: The folder.
        root: Folder of the ensemble that the run is a member of; links inside it are not followed either.

    Raises:
        FileNotFoundError: If there is no run.
        ValueError: If `config.json` is invalid.
    """

    def __init__(self, path: Path | str, *, root: Path | None = None) -> None:
        self.path, self.interrupted = Path(path), False
        self.root = self.path if root is None else root
        if not self.path.is_dir():
            raise FileNotFoundError(f"there is no run at {quote(self.path)}: {_list_names(self.path.parent)}")
        if "config.json" not in list_folder(self.path, root=self.root):
            names = _list_names(self.path)
            raise FileNotFoundError(f"{quote(self.path)} is not a run: it has no config.json. {names}")
        self.config: dict[str, Any] = self._load_object("config.json")

    @classmethod
    def create(cls, folder: Path | str, name: str, config: Mapping[str, Any], *, root: Path | None = None) -> Run:
        """Creates the folder `name-001`, or the next free number, and writes `config.json`."""
        folder = Path(folder)
        create_folder(folder, root=root)
        numbered = re.compile(re.escape(name) + "-([0-9]{1,9})")
        number = 1 + max((int(m[1]) for n in list_folder(folder, root=root) if (m := numbered.fullmatch(n))), default=0)
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
            data = _json.dump(config).encode()
            write_file(path / _CHECKSUMS, _json.dump({"config.json": [_sha256(data)]}).encode(), root=path)
            write_file(path / "config.json", data, root=path)
            fsync_folder(folder)
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise
        return cls(path, root=root)

    def __repr__(self) -> str:
        return f"<Run {self.path}: {', '.join(self._facts())}>"

    def _repr_html_(self) -> str:
        facts = html.escape(", ".join(self._facts()))
        link = ""
        if self.report.is_file():
            link = f' (<a href="{html.escape(url_quote(self.report.as_posix()))}" target="_blank">report</a>)'
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
        return list(_read_metrics(self.path / "metrics.jsonl", root=self.root))

    @property
    def results(self) -> dict[str, Any]:
        """Results of the trained model; empty until training has finished."""
        if not os.path.lexists(self.path / "results.json"):
            return {}
        self.verify("results.json")
        return self._load_object("results.json")

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
        return Checkpoints(self.path / "state", root=self.root)

    @property
    def members(self) -> list[Run]:
        """Members of an ensemble, oldest first."""
        return runs(self.path / "members", root=self.root)

    @property
    def status(self) -> str:
        """Progress of the run: `finished`, `at step 300`, `2 members trained` or `not started`."""
        if (self.path / "results.json").is_file():
            return "finished"
        if members := self.members:
            return f"{sum(run.status == 'finished' for run in members)} members trained"
        last = _read_last_metrics(self.path / "metrics.jsonl", root=self.root)
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
        if os.path.lexists(path):
            self.verify("model.safetensors")
            try:
                with open_path(path, root=self.root) as name:
                    return load_file(name)
            except (SafetensorError, OSError) as error:
                raise ValueError(f"cannot read model.safetensors of {self.path}: {error}") from None
        checkpoint = self.checkpoints.load_newest()
        if checkpoint is None and (members := self.members):
            raise ValueError(
                f"{self.path} is an ensemble with {self.status}, and has no weights yet. "
                f"Resume it with: lawful train --resume {self.path}, or use a member such as {members[0].path}"
            )
        if checkpoint is None:
            raise ValueError(f"{self.path} has no weights yet")
        prefix = "ema." if any(name.startswith("ema.") for name in checkpoint.tensors) else "model."
        return {name.removeprefix(prefix): t for name, t in checkpoint.tensors.items() if name.startswith(prefix)}

    def verify(self, name: str) -> None:
        """Raises a ValueError if a file does not match its checksum.

        Args:
            name: `config.json`, `model.safetensors` or `results.json`. A file without a checksum is accepted.
        """
        versions = self._checksums().get(name)
        if versions is None:
            return
        with open_file(self.path / name, root=self.root) as file:
            checksum = hashlib.file_digest(file, "sha256").hexdigest()
        if checksum not in versions:
            remedy = ""
            if name == "config.json":
                remedy = f", and change options with: lawful train --resume {quote(self.path)} --override NAME=VALUE"
            raise ValueError(
                f"{name} of {quote(self.path)} does not match its checksum: it was edited or damaged. "
                f"Restore it{remedy}"
            )

    def problems(self) -> list[str]:
        """Checks every file that has a checksum, and returns what is damaged, edited or missing."""
        found: list[str] = []

        def attempt(check: Callable[[], object]) -> Any:
            try:
                return check()
            except (ValueError, OSError) as error:
                found.append(str(error))

        attempt(lambda: refuse_links(self.path))
        checksums = attempt(self._checksums) or {}
        for name in _CHECKED:
            if os.path.lexists(self.path / name):
                attempt(lambda name=name: self.verify(name))
                found += [] if name in checksums else [f"{name} of {quote(self.path)} has no checksum"]
            elif name == "config.json":
                found.append(f"{name} of {quote(self.path)} is missing")
        results = attempt(lambda: self.results) or {}
        lines = attempt(lambda: self.metrics) or []
        if lines and results.get("steps", lines[-1]["step"]) != lines[-1]["step"]:
            last = lines[-1]["step"]
            found.append(f"metrics.jsonl of {quote(self.path)} ends at step {last}, expected {results['steps']}")
        if results and not os.path.lexists(self.path / "model.safetensors"):
            found.append(f"model.safetensors of {quote(self.path)} is missing")
        found += attempt(lambda: self.checkpoints.problems()) or []
        return [*found, *(text for member in attempt(lambda: self.members) or [] for text in member.problems())]

    def write(self, name: str, data: bytes | str) -> Path:
        """Writes a file of the run atomically, such as `samples/text.txt`, and returns its path."""
        path = self.path / name
        if path.parent != self.path:
            create_folder(path.parent, root=self.root)
        if name in _CHECKED:
            self._record(name, data.encode() if isinstance(data, str) else data)
        write_file(path, data, root=self.root)
        return path

    def _record(self, name: str, data: bytes) -> None:
        """Adds a checksum before the file is written, so that a crash leaves the old or the new file with its own."""
        checksums = self._checksums()
        versions = [_sha256(data), *checksums.get(name, [])][:_MAX_VERSIONS]
        if name in checksums or not os.path.lexists(self.path / name):
            write_file(self.path / _CHECKSUMS, _json.dump({**checksums, name: versions}).encode(), root=self.root)

    def _checksums(self) -> dict[str, list[str]]:
        """Returns the checksums of the versions of each file, newest first."""
        if not os.path.lexists(self.path / _CHECKSUMS):
            return {}
        found = self._load_object(_CHECKSUMS)
        if not all(isinstance(versions, list) for versions in found.values()):
            raise ValueError(f"{_CHECKSUMS} of {quote(self.path)} is damaged: delete it to use the run without it")
        return found

    def write_array(self, name: str, array: np.ndarray) -> Path:
        """Writes an array as a `.npy` file of the run."""
        data = io.BytesIO()
        np.save(data, array, allow_pickle=False)
        return self.write(name, data.getvalue())

    def write_csv(self, name: str, rows: Iterable[Sequence[object]]) -> Path:
        """Writes rows as a `.csv` file of the run, safe to open in a spreadsheet."""
        return self.write(name, csv_text(rows))

    def save_metrics(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Writes `metrics.jsonl`."""
        self.write("metrics.jsonl", _format_lines(lines))

    def save_results(self, results: Mapping[str, Any]) -> None:
        """Writes `results.json`. Numbers that are not finite become null."""
        self.write("results.json", _json.dump(_finite(_json.to_json(results))).encode())

    def save_weights(self, tensors: Mapping[str, Tensor]) -> None:
        """Writes `model.safetensors`."""
        self.write("model.safetensors", save(_contiguous_copies(tensors)))

    def _load_object(self, name: str) -> dict[str, Any]:
        value = _json.load(self.path / name, root=self.root)
        if not isinstance(value, dict):
            raise ValueError(f"{name} of {self.path} must be a JSON object, got {type(value).__name__}")
        return value


def _finite(value: Any) -> Any:
    """Replaces numbers that JSON does not have by None."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def runs(folder: Path | str = RUNS, *, root: Path | None = None) -> list[Run]:
    """Returns the runs of a folder, oldest first.

    Args:
        folder: The folder.
        root: Folder below which symbolic links are not followed.
    """
    opened = []
    for name in list_folder(Path(folder), root=root):
        with suppress(ValueError, OSError):
            path = Path(folder) / name
            opened.append(((path / "config.json").lstat().st_mtime, path, Run(path, root=root)))
    return [run for *_, run in sorted(opened, key=lambda found: found[:2])]


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _list_names(folder: Path) -> str:
    names = [quote(run.path.name) for run in runs(folder)] if folder.is_dir() else []
    more = ", ..." if len(names) > 10 else ""
    return f"{quote(folder)} has {', '.join(names[:10])}{more}" if names else f"{quote(folder)} has no runs"
