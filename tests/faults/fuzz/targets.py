"""Fuzz targets: each returns a result or raises a `ValueError`, whatever the bytes."""

import io
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pyarrow
import torch
from PIL import Image
from pyarrow import parquet
from safetensors.torch import save

from lawful import _json as config
from lawful.data.images import read_images
from lawful.data.tables import read_delimited, read_parquet
from lawful.training import checkpoint as state
from lawful.training.checkpoint import Checkpoint, Checkpoints, _write_checksums
from lawful.training.loop import _Progress
from lawful.training.run import Run
from lawful.training.setup import TrainerConfig
from lawful.training.storage import _MetricsLog, _read_metrics


@contextmanager
def unexpected_error(what):
    """Turns a `ValueError` into an `AssertionError`: callers of a target suppress errors of untrusted bytes only."""
    try:
        yield
    except ValueError as error:
        raise AssertionError(f"{what}: {error}") from error


def parsed_config(data):
    """The options of a run, from the text of a file."""
    found = config.from_json(TrainerConfig, config.parse(data))
    with unexpected_error("round trip"):
        again = config.from_json(TrainerConfig, config.parse(config.dump(found).encode()))
    assert again == found, f"round trip: {again} is not {found}"


def opened_run(data):
    """A run whose `config.json` and `results.json` are these bytes."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("config.json", "results.json"):
            (Path(folder) / name).write_bytes(data)
        run = Run(folder)
        assert isinstance(run.config, dict)
        assert isinstance(run.results, dict)


def read_metrics(data):
    """Reads `metrics.jsonl`, and appends to it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "metrics.jsonl"
        path.write_bytes(data)
        before = [line for line in _read_metrics(path) if line["step"] <= 5]
        with unexpected_error("metrics"):
            journal = _MetricsLog(path, step=5)
            journal.log(6, {"loss": 1.0})
            journal.close()
            steps = [line["step"] for line in _read_metrics(path)]
        assert steps == [line["step"] for line in before] + [6]


def small():
    model = torch.nn.Linear(2, 1)
    return model, torch.optim.Adam(model.parameters()), {id(p): name for name, p in model.named_parameters()}


def checkpoint():
    """Returns an intact checkpoint, as `train` saves it."""
    model, optimizer, names = small()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    memory, metadata = state._optimizer_state(optimizer, names)
    randomness, numbers = state._rng_state()
    tensors = state._add_prefix("model", state.module_state(model)) | state._add_prefix("optimizer0", memory)
    tensors |= state._add_prefix("rng", randomness)
    return Checkpoint(
        1, state._contiguous_copies(tensors), {"optimizer0": metadata, "rng": numbers, "progress": {"step": 1}}
    )


def restore(found):
    """Restores a checkpoint as `train` does."""
    model, optimizer, names = small()
    with state.preserve_rng():
        state.load_module_state(model, state._strip_prefix("model", found.tensors))
        memory = state._strip_prefix("optimizer0", found.tensors)
        state._load_optimizer_state(optimizer, names, memory, state._section(found.metadata, "optimizer0"))
        config.from_json(_Progress, found.metadata.get("progress"))
        state._load_rng_state(state._strip_prefix("rng", found.tensors), state._section(found.metadata, "rng"))


class StoredCheckpoint:
    """A checkpoint on disk with one file replaced at a time."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp())
        self.checkpoints = Checkpoints(self.folder)
        self.checkpoints.save(checkpoint(), keep=1)
        self.path = self.checkpoints.path(1)
        self.whole = {path.name: path.read_bytes() for path in self.path.iterdir()}

    def read(self, name, data, *, sealed):
        """Reads and restores the checkpoint with other bytes in a file; `sealed` also updates the checksums."""
        for file, whole in self.whole.items():
            (self.path / file).write_bytes(data if file == name else whole)
        if sealed and name != "checksums.json":
            (self.path / "checksums.json").unlink()
            _write_checksums(self.path)
        restore(self.checkpoints.load(1))

    def close(self):
        shutil.rmtree(self.folder)


_kept = []


def read_checkpoint(data):
    """Reads tensors, metadata or checksums, depending on the first byte."""
    if not _kept:
        _kept.append(StoredCheckpoint())
    name = sorted(_kept[0].whole)[data[0] % 3 if data else 0]
    _kept[0].read(name, data[1:], sealed=bool(data) and data[0] >= 128)


def read_weights(data):
    """The tensors of a trained model."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text("{}")
        (Path(folder) / "model.safetensors").write_bytes(data)
        Run(folder).weights()


def read_table(data):
    """A table of comma-separated values."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        path.write_bytes(data)
        read_delimited(path)


def read_picture(data):
    """Reads a folder of images; one has these bytes."""
    with tempfile.TemporaryDirectory() as folder:
        for name, picture in (("cat", PICTURE), ("dog", data)):
            (Path(folder) / name).mkdir()
            (Path(folder) / name / "1.png").write_bytes(picture)
        examples, _ = read_images(folder)
        assert examples.inputs.isfinite().all()


def read_columns(data):
    """A Parquet file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.parquet"
        path.write_bytes(data)
        read_parquet(path)


def picture(kind):
    """The bytes of a small image."""
    whole = io.BytesIO()
    Image.new("L", (8, 8), 100).save(whole, kind)
    return whole.getvalue()


def columns(compression):
    """The bytes of a small Parquet file."""
    whole = io.BytesIO()
    parquet.write_table(pyarrow.table({"a": [1.5, 2.5], "b": ["x", None]}), whole, compression=compression)
    return whole.getvalue()


PICTURE = picture("png")

TARGETS = {
    "config": parsed_config,
    "run": opened_run,
    "metrics": read_metrics,
    "checkpoint": read_checkpoint,
    "weights": read_weights,
    "table": read_table,
    "picture": read_picture,
    "columns": read_columns,
}

SEEDS = {
    "config": [
        b'{"seed": 3, "device": "cpu"}',
        b'{"sede": 3}',
        b'{"seed": 1e999}',
        b'{"checkpoint_every": 0}',
        b"[" * 3000,
    ],
    "run": [b'{"recipe": null, "threads": 1}', b"[]", b'{"a": 1, "a": 2}', b"\xff"],
    "metrics": [b'{"step": 1, "loss": 2.0}\n{"step": 2, "lo', b'{"step": NaN}\n', b'{"step": 1' + b"0" * 5000 + b"}\n"],
    "checkpoint": [bytes([kind]) + b'{"metadata.json": "0"}' for kind in (0, 1, 2, 129, 130, 131)],
    "weights": [save({"a": torch.ones(2)}), b"\xff" * 8 + b"{}", (60).to_bytes(8, "little") + b'{"a":{"dtype":"F32"}}'],
    "table": [b"a,b\n1,2\n3,4\n", b'"a\n', b"a;b\n1;2", b"\xef\xbb\xbfa\n1\n", b"a,a\n1\n1,2,3\n"],
    "picture": [PICTURE, picture("jpeg"), PICTURE[:40], b"\x89PNG\r\n\x1a\n"],
    "columns": [columns("none"), columns("snappy"), columns("none")[:60], b"PAR1" * 3],
}
