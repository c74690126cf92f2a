import pytest
import torch

from lawful.training.report import write_report
from lawful.training.run import Run, runs


def test_runs_are_numbered_and_listed(tmp_path):
    created = [Run.create(tmp_path / "a", "mlp", {"threads": 1}) for _ in range(2)]
    assert [run.path.name for run in created] == ["mlp-001", "mlp-002"]
    (tmp_path / "a" / "mlp-041").mkdir()
    assert Run.create(tmp_path / "a", "mlp", {}).path.name == "mlp-042"
    (tmp_path / "a" / "mlp-001" / "config.json").write_text("[]")
    assert [run.path.name for run in runs(tmp_path / "a")] == ["mlp-002", "mlp-042"]
    assert (created[0].status, created[0].metrics, created[0].results) == ("not started", [], {})


def test_weights_and_results_round_trip(tmp_path):
    run = Run.create(tmp_path, "mlp", {"threads": 2})
    run.save_weights({"a": torch.ones(2), "turned": torch.arange(6.0).view(2, 3).T})
    run.save_results({"accuracy": {"value": 0.5, "low": 0.4, "high": 0.6}})
    again = Run(run.path)
    assert again.config == {"threads": 2}
    assert torch.equal(again.weights()["turned"], torch.arange(6.0).view(2, 3).T)
    assert again.results["accuracy"]["low"] == 0.4
    assert again.status == "finished"


def test_repr_tells_recipe_status_and_results(tmp_path):
    run = Run.create(tmp_path / "a&b", "mlp", {"recipe": "mlp"})
    assert repr(run) == f"<Run {run.path}: mlp, not started>"
    run.save_results({"test": {"<accuracy>": {"value": 0.5}}})
    assert repr(run) == f"<Run {run.path}: mlp, finished, <accuracy> 0.5>"
    run.report.write_text("")
    shown = run._repr_html_()
    assert "a&amp;b/mlp-001</b>: mlp, finished, &lt;accuracy&gt; 0.5" in shown
    assert 'a%26b/mlp-001/report.html"' in shown
    (run.path / "results.json").write_text("3")
    assert "does not match its checksum" in repr(run)


def test_summary_has_validation_results_without_a_test(tmp_path):
    run = Run.create(tmp_path, "text", {})
    assert run.summary == ""
    run.save_results({"validation": {"loss": 1.25, "perplexity": 3.49}, "tokens": {"train": 9}})
    assert run.summary == "validation loss 1.25; perplexity 3.49"
    run.save_results({"test": {"accuracy": {"value": 0.5}, "rows": [1]}, "validation": {"loss": 1.25}})
    assert run.summary == "accuracy 0.5"
    run.save_results({"summary": "The forecast wins. The season has 7 steps.", "coverage": 0.8})
    assert run.summary == "The forecast wins"
    run.save_results({"summary": "long " * 30})
    assert len(run.summary) == 120


def test_errors_name_the_run(tmp_path):
    run = Run.create(tmp_path, "mlp", {})
    (run.path / "checksums.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"there is no run at .*mlp-009: .* has mlp-001"):
        Run(tmp_path / "mlp-009")
    with pytest.raises(FileNotFoundError, match="has no runs"):
        Run(tmp_path / "none" / "x")
    with pytest.raises(FileNotFoundError, match=r"is not a run: it has no config\.json\. \S+ has"):
        Run(tmp_path)
    with pytest.raises(ValueError, match="has no weights yet"):
        run.weights()
    (run.path / "model.safetensors").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"cannot read model.safetensors of"):
        run.weights()
    (run.path / "results.json").write_text("3")
    with pytest.raises(ValueError, match=r"must be a JSON object, got int"):
        _ = run.results
    (run.path / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"config.json is not JSON"):
        Run(run.path)


def test_results_that_are_not_finite_are_null(tmp_path):
    run = Run.create(tmp_path, "a", {"recipe": None})
    run.save_results({"test": {"loss": float("nan"), "bits": [float("inf"), 1.5]}, "steps": 3})
    assert run.results == {"test": {"loss": None, "bits": [None, 1.5]}, "steps": 3}
    assert run.summary == ""
    assert write_report(run).is_file()
