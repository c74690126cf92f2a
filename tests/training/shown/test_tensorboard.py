import math
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lawful.training.loggers import TensorBoard, crc32c, event, record, varint


def trained(path, steps, **figures):
    tracker = TensorBoard()
    tracker.start(SimpleNamespace(path=path), SimpleNamespace(steps=10))
    for step in steps:
        tracker.log(step, {"loss": 1 / (step + 1), **figures})
    tracker.close()
    return tracker.folder


def read(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return {tag: [(value.step, value.value) for value in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def test_tensorboard_reads_it(tmp_path):
    folder = trained(tmp_path, range(1, 300), learning_rate=0.5, **{"validation/genauigkeit ü": 0.25})
    assert folder == tmp_path / "tensorboard"
    found = read(folder)
    assert set(found) == {"loss", "learning_rate", "validation/genauigkeit ü"}
    assert found["loss"] == [(step, pytest.approx(1 / (step + 1), rel=1e-6)) for step in range(1, 300)]
    assert found["validation/genauigkeit ü"][-1] == (299, 0.25)


def test_the_file_is_sound_and_says_its_version_first(tmp_path):
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event

    (path,) = trained(tmp_path, [7]).iterdir()
    first, start, last = (Event.FromString(raw) for raw in RawEventFileLoader(str(path)).Load())
    assert first.file_version == "brain.Event:2"
    assert start.session_log.status == start.session_log.START
    assert (last.step, last.summary.value[0].tag, last.summary.value[0].simple_value) == (7, "loss", 0.125)
    assert 0 <= last.wall_time - first.wall_time < 60


def test_a_resumed_run_writes_another_file_and_takes_the_place_of_what_was_lost(tmp_path):
    trained(tmp_path, range(1, 8))
    folder = trained(tmp_path, range(5, 11))
    assert len(list(folder.iterdir())) == 2
    assert [step for step, _ in read(folder)["loss"]] == list(range(1, 11))


def test_a_file_that_a_crash_cut_off_is_read_up_to_there(tmp_path):
    (path,) = trained(tmp_path, range(1, 8)).iterdir()
    path.write_bytes(path.read_bytes()[:-5])
    assert [step for step, _ in read(path.parent)["loss"]] == list(range(1, 7))


def test_figures_are_on_disk_while_the_run_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr("lawful.training.loggers.FLUSH_SECONDS", 0.0)
    tracker = TensorBoard(tmp_path)
    tracker.start(SimpleNamespace(), SimpleNamespace())
    tracker.log(1, {"loss": 0.5})
    assert read(tmp_path)["loss"] == [(1, 0.5)]
    tracker.close()
    tracker.close()


@pytest.mark.parametrize(("value", "wanted"), [(math.nan, math.nan), (1e300, math.inf), (-1e300, -math.inf), (0, 0)])
def test_any_number_is_written(tmp_path, value, wanted):
    ((_, found),) = read(trained(tmp_path, [1], odd=value))["odd"]
    assert found == pytest.approx(wanted, nan_ok=True)


def test_the_checksum_has_the_values_of_the_standard():
    ascending, descending = bytes(range(32)), bytes(range(31, -1, -1))
    assert crc32c(b"") == 0
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert (crc32c(ascending), crc32c(descending)) == (0x46DD794E, 0x113FDB5C)


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=300))
def test_records_equal_tensorboards(data):
    from io import BytesIO

    from tensorboard.summary.writer.record_writer import RecordWriter

    file = BytesIO()
    RecordWriter(file).write(data)
    assert record(data) == file.getvalue()


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**63 - 1), st.dictionaries(st.text(min_size=1), st.floats(width=32, allow_nan=False)))
def test_events_decode_as_they_were(step, figures):
    from tensorboard.compat.proto.event_pb2 import Event

    found = Event.FromString(event(12.5, step=step, figures=figures))
    assert (found.wall_time, found.step) == (12.5, step)
    wanted = {tag.encode("utf-8", "replace").decode(): value for tag, value in figures.items()}
    assert {value.tag: value.simple_value for value in found.summary.value} == wanted


def test_errors_say_what_was_wanted():
    with pytest.raises(ValueError, match="start comes before log"):
        TensorBoard().log(1, {"loss": 0.0})
    with pytest.raises(ValueError, match="at least 0: got -1"):
        varint(-1)
