import json
import math
import os

import pytest

from lawful import _files
from lawful.training.storage import _MetricsLog, _read_metrics


def test_metrics_round_trip_with_null_for_nan(tmp_path):
    path = tmp_path / "metrics.jsonl"
    log = _MetricsLog(path)
    log.log(1, {"loss": 0.1, "odd": math.nan})
    log.flush()
    assert path.read_text().endswith("\n")
    log.log(2, {"loss": math.inf})
    log.close()
    found = list(_read_metrics(path))
    assert [(line["step"], line["loss"]) for line in found] == [(1, 0.1), (2, None)]
    assert found[0]["odd"] is None


def test_the_name_of_a_new_file_is_on_the_disk(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(_files, "fsync_folder", lambda path: synced.append(os.path.realpath(path)))
    _MetricsLog(tmp_path / "metrics.jsonl").close()
    assert synced == [os.path.realpath(tmp_path)]


def test_resuming_removes_later_lines(tmp_path):
    path = tmp_path / "metrics.jsonl"
    kept = [{"step": step, "loss": 1.0, "time": 0.5} for step in range(1, 6)]
    path.write_text("".join(json.dumps(line) + "\n" for line in kept) + '{"step": 6, "lo')
    log = _MetricsLog(path, step=3, seconds=100.0)
    log.log(4, {"loss": 2.0})
    log.close()
    found = list(_read_metrics(path))
    assert found[:3] == kept[:3]
    assert [line["step"] for line in found] == [1, 2, 3, 4]
    assert found[3]["time"] >= 100


def test_only_regular_files_are_read(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.symlink_to("/dev/zero")
    with pytest.raises(ValueError, match=r"metrics\.jsonl is a device, expected a file"):
        list(_read_metrics(path))
