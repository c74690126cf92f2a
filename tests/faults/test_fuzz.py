"""Fuzzing of files: reading returns a result or raises a `ValueError`, whatever the bytes."""

import importlib.util
import json
import os
import resource
import subprocess
import sys
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lawful import _json as config
from lawful.training.setup import TrainerConfig
from tests.faults.fuzz.strategies import VALUES, insert_value, mutated, some
from tests.faults.fuzz.targets import SEEDS, TARGETS, StoredCheckpoint, parsed_config
from tests.scripts import ROOT

CASES = pytest.mark.parametrize("cases", [80, pytest.param(2000, marks=pytest.mark.long)])

FIELDS = st.sampled_from([*vars(TrainerConfig())]) | st.text(max_size=6)


@pytest.mark.parametrize("name", TARGETS)
def test_fuzz_seeds_are_valid(name):
    """The first seed is valid, so that mutations of it get far. A checkpoint needs more files than one seed."""
    read = []
    for seed in SEEDS[name]:
        with suppress(ValueError):
            TARGETS[name](seed)
            read.append(seed)
    assert (SEEDS[name][0] in read) == (name != "checkpoint")


@CASES
@pytest.mark.parametrize("name", TARGETS)
def test_any_bytes(name, cases):
    @some(cases)
    @given(st.binary(max_size=200) | st.sampled_from(SEEDS[name]).flatmap(mutated))
    def run_case(data):
        with suppress(ValueError):
            TARGETS[name](data)

    run_case()


@CASES
def test_any_json_for_the_options(cases):
    @some(cases)
    @given(st.dictionaries(FIELDS, VALUES, max_size=4))
    def run_case(value):
        with suppress(ValueError):
            parsed_config(json.dumps(value).encode())

    run_case()


@pytest.mark.parametrize(
    "broken", [b'{"seed": 4}', b'{"seed": "3"}', b"{"], ids=["another value", "invalid", "no JSON"]
)
def test_a_broken_round_trip_is_not_suppressed(monkeypatch, broken):
    monkeypatch.setattr(config, "dump", lambda value: broken.decode())
    with pytest.raises(AssertionError, match="round trip"):
        parsed_config(b'{"seed": 3}')


@CASES
def test_any_lines_for_the_metrics(cases):
    @some(cases)
    @given(st.lists(VALUES.map(json.dumps).map(str.encode) | st.binary(max_size=30), max_size=6).map(b"\n".join))
    def run_case(data):
        TARGETS["metrics"](data)

    run_case()


@pytest.fixture(scope="module")
def stored_checkpoint():
    made = StoredCheckpoint()
    yield made
    made.close()


@CASES
@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("number", range(3))
def test_any_file_of_a_checkpoint(stored_checkpoint, number, sealed, cases):
    name = sorted(stored_checkpoint.whole)[number]

    @some(cases)
    @given(mutated(stored_checkpoint.whole[name]))
    def run_case(data):
        with suppress(ValueError):
            stored_checkpoint.read(name, data, sealed=sealed)
            assert sealed or name == "checksums.json" or data == stored_checkpoint.whole[name]

    run_case()


@CASES
def test_arbitrary_metadata_of_a_checkpoint(stored_checkpoint, cases):
    @some(cases)
    @given(VALUES, st.data())
    def run_case(value, data):
        metadata = insert_value(json.loads(stored_checkpoint.whole["metadata.json"]), value, data.draw)
        with suppress(ValueError):
            stored_checkpoint.read("metadata.json", json.dumps(metadata).encode(), sealed=True)

    run_case()


def test_claimed_tensor_sizes_allocate_no_memory(stored_checkpoint):
    header = json.dumps({"a": {"dtype": "F32", "shape": [10**15], "data_offsets": [0, 4 * 10**15]}}).encode()
    claims = (
        len(header).to_bytes(8, "little") + header,
        (10**15).to_bytes(8, "little") + header,
        (2**63).to_bytes(8, "little"),
    )
    (name,) = (name for name in stored_checkpoint.whole if name.endswith("safetensors"))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for data in claims:
        with pytest.raises(ValueError, match="cannot read"):
            stored_checkpoint.read(name, data, sealed=True)
        with pytest.raises(ValueError, match="cannot read"):
            TARGETS["weights"](data)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not installed")
def test_coverage_guided_fuzzing():
    done = subprocess.run(
        [sys.executable, "tests/faults/fuzz/run.py", "--seconds", "24"],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout
