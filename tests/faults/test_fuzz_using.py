"""Fuzzing of runs under `lawful.load` and `lawful predict`: a result, or one line with the error."""

import json
from unittest.mock import MagicMock

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lawful
from lawful.cli.train import predict
from lawful.recipes import ClassifyRecipe, MLPSpec
from lawful.recipes import classify as classify_module
from tests.faults.fuzz.strategies import VALUES, insert_value, mutated, some

CASES = pytest.mark.parametrize("cases", [25, pytest.param(1000, marks=pytest.mark.long)])
TABLE = "size,color,kind\n" + "1,red,cat\n2,blue,dog\n3,red,cat\n4,blue,dog\n" * 10


class StoredRun:
    """A run on disk; one file at a time is replaced."""

    def __init__(self, folder):
        self.data = folder / "data.csv"
        self.data.write_text(TABLE)
        model = MLPSpec(hidden_dims=(3,), dropout=0.1)
        recipe = ClassifyRecipe(model=model, data=str(self.data), epochs=1, threads=1, law_cases=0)
        self.path = lawful.train(recipe, output_dir=folder).path
        (self.path / "checksums.json").unlink()  # so that other bytes are read
        self.whole = {name: (self.path / name).read_bytes() for name in ("config.json", "model.safetensors")}

    def load_and_predict(self, name, data, capsys):
        """Loads the run with other bytes in a file, and predicts with it."""
        for file, whole in self.whole.items():
            (self.path / file).write_bytes(data if file == name else whole)
        loads = True
        try:
            lawful.load(self.path)
        except ValueError:
            loads = False
        code = predict(str(self.path), str(self.data))
        shown = capsys.readouterr()
        assert code in ((0, 4) if loads else (4,))
        if code:
            assert shown.err.startswith("lawful: error: ")
            assert shown.err.count("\n") == 1, shown.err


@pytest.fixture(scope="module")
def stored_run(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(classify_module, "figures", MagicMock())
        return StoredRun(tmp_path_factory.mktemp("trained"))


@CASES
@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_any_bytes_in_a_file_of_a_run(stored_run, capsys, name, cases):
    @some(cases)
    @given(st.binary(max_size=200) | mutated(stored_run.whole[name]))
    def run_case(data):
        stored_run.load_and_predict(name, data, capsys)

    run_case()


@CASES
def test_any_value_in_a_configuration(stored_run, capsys, cases):
    @some(cases)
    @given(VALUES, st.data())
    def run_case(value, data):
        forgery = insert_value(json.loads(stored_run.whole["config.json"]), value, data.draw)
        stored_run.load_and_predict("config.json", json.dumps(forgery).encode(), capsys)

    run_case()
