import json
import math

from lawful.training.storage import MetricsLog, lines


def test_lines_come_back_and_what_is_not_finite_is_null(tmp_path):
    path = tmp_path / "metrics.jsonl"
    journal = MetricsLog(path)
    journal.log(1, {"loss": 0.1, "odd": math.nan})
    journal.flush()
    assert path.read_text().endswith("\n")
    journal.log(2, {"loss": math.inf})
    journal.close()
    found = list(lines(path))
    assert [(line["step"], line["loss"]) for line in found] == [(1, 0.1), (2, None)]
    assert found[0]["odd"] is None


def test_it_goes_on_after_a_step(tmp_path):
    path = tmp_path / "metrics.jsonl"
    kept = [{"step": step, "loss": 1.0, "time": 0.5} for step in range(1, 6)]
    path.write_text("".join(json.dumps(line) + "\n" for line in kept) + '{"step": 6, "lo')
    journal = MetricsLog(path, step=3, seconds=100.0)
    journal.log(4, {"loss": 2.0})
    journal.close()
    found = list(lines(path))
    assert found[:3] == kept[:3]
    assert [line["step"] for line in found] == [1, 2, 3, 4]
    assert found[3]["time"] >= 100


def test_only_files_are_read(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.symlink_to("/dev/zero")
    assert list(lines(path)) == []
