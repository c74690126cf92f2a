import io
import pickle
import zipfile
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lawful.data import load_dataset, read_arrays, read_parquet, table_of

pa = pytest.importorskip("pyarrow")
import pyarrow.parquet as pq  # noqa: E402


def parquet(folder, **columns):
    path = folder / "data.parquet"
    pq.write_table(pa.table(columns), path)
    return path


def test_parquet_columns_of_every_plain_type(tmp_path):
    path = parquet(
        tmp_path,
        whole=pa.array([1, None, 3], pa.int32()),
        real=pa.array([0.5, 1.5, None]),
        exact=pa.array([1, 2, 3], pa.int64()).cast(pa.decimal128(30, 2)),
        word=["a", "b", None],
        category=pa.array(["x", "y", "x"]).dictionary_encode(),
        truth=[True, False, None],
        code=pa.array([7, 8, 7]).dictionary_encode(),
        nothing=pa.nulls(3),
    )
    read = read_parquet(path).columns
    np.testing.assert_equal(read["whole"].numbers, [1, np.nan, 3])
    np.testing.assert_equal(read["real"].numbers, [0.5, 1.5, np.nan])
    assert read["exact"].numbers.tolist() == [1, 2, 3]
    assert read["word"].words == ["a", "b", None]
    assert read["category"].words == ["x", "y", "x"]
    assert read["truth"].words == ["True", "False", None]
    assert read["code"].numbers.tolist() == [7, 8, 7]
    assert read["nothing"].missing.all()


def test_unsupported_or_broken_parquet_raises(tmp_path):
    with pytest.raises(
        ValueError, match=r"column 'd' of data.parquet has type binary, expected numbers, text or dates"
    ):
        read_parquet(parquet(tmp_path, d=pa.array([b"0"], pa.binary())))
    with pytest.raises(ValueError, match="lengths"):
        read_parquet(parquet(tmp_path, a=pa.array([], pa.int32())))
    path = tmp_path / "broken.parquet"
    whole = parquet(tmp_path, a=[1, 2, 3]).read_bytes()
    for content in (b"", b"PAR1", whole[:-10], whole[:20] + whole[40:], b"x" * 100):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"broken\.parquet cannot be read as Parquet"):
            read_parquet(path)


def test_dates_of_parquet_and_numpy_files_are_dates(tmp_path):
    days = np.array(["2024-01-31", "2024-02-01", "NaT"], dtype="datetime64[s]")
    kinds = [pa.array(days, kind) for kind in (pa.timestamp("s"), pa.timestamp("ns", "UTC"), pa.date32())]
    for values in (*(read_parquet(parquet(tmp_path, d=kind)).columns["d"] for kind in kinds),):
        assert values.missing.tolist() == [False, False, True]
        assert [word[:10] for word in values.words[:2]] == ["2024-01-31", "2024-02-01"]
    assert table_of({"d": days}, name="data.npz").columns["d"].words == [
        "2024-01-31T00:00:00",
        "2024-02-01T00:00:00",
        None,
    ]


def test_one_table_in_csv_parquet_and_numpy(tmp_path):
    (tmp_path / "data.csv").write_text("a,b,y\n1,2,0.5\n3,4,1.5\n")
    parquet(tmp_path, a=[1, 3], b=[2.0, 4.0], y=[0.5, 1.5])
    rows = np.array([(1, 2, 0.5), (3, 4, 1.5)], dtype=[("a", "i4"), ("b", "f4"), ("y", "f8")])
    np.save(tmp_path / "data.npy", rows)
    np.savez(tmp_path / "data.npz", a=rows["a"], b=rows["b"], y=rows["y"])
    made = [load_dataset(tmp_path / f"data.{ending}") for ending in ("csv", "parquet", "npy", "npz")]
    assert len({data.examples.fingerprint() for data in made}) == 1
    assert len({data.encoding for data in made}) == 1


def test_matrix_has_the_target_in_its_last_column_and_npz_in_y(tmp_path):
    matrix = np.arange(12.0).reshape(4, 3)
    np.save(tmp_path / "m.npy", matrix)
    data = load_dataset(tmp_path / "m.npy")
    assert data.encoding.names == ("x1", "x2")
    assert data.examples.targets.flatten().tolist() == [2, 5, 8, 11]
    np.savez(tmp_path / "p.npz", y=np.array(["a", "b", "a", "b"]), X=matrix)
    data = load_dataset(tmp_path / "p.npz", target="y")
    assert data.examples.classes == ("a", "b")
    assert data.examples.columns == ("x1", "x2", "x3")


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"": np.zeros(3)}, r"data.npy has shape \(3,\), expected columns or one matrix"),
        (
            {"": np.zeros((3, 2), dtype=complex)},
            r"'x1' of data\.npy has dtype complex128, expected numbers, text or dates",
        ),
        ({"a": np.zeros(3), "b": np.zeros(2)}, r"lengths \[2, 3\]"),
        ({"": np.zeros((0, 2))}, r"lengths \[0\]"),
        ({"a": np.zeros((2, 2)), "b": np.zeros(2)}, r"'a' of data.npy has shape \(2, 2\)"),
    ],
)
def test_arrays_that_do_not_form_a_table_raise(arrays, said):
    with pytest.raises(ValueError, match=said):
        table_of(arrays, name="data.npy")


class Bomb:
    def __reduce__(self):
        return (exec, ("raise SystemExit('unpickled')",))


def test_nothing_is_unpickled(tmp_path):
    array = np.array([Bomb()], dtype=object)
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    np.savez(tmp_path / "a.npz", x=array)
    (tmp_path / "b.npz").write_bytes(pickle.dumps(Bomb()))
    (tmp_path / "b.npy").write_bytes(pickle.dumps(Bomb()))
    for name in ("a.npy", "a.npz", "b.npz", "b.npy"):
        with pytest.raises(ValueError, match=f"{name} cannot be read as NumPy arrays"):
            read_arrays(tmp_path / name)


def test_corrupted_files_and_huge_claimed_shapes_raise(tmp_path):
    header = b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999, 9), }"
    content = header.ljust(127) + b"\n"
    (tmp_path / "a.npy").write_bytes(content)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", content)
    for name in ("a.npy", "a.npz"):
        with pytest.raises(ValueError, match=f"{name} cannot be read"):
            read_arrays(tmp_path / name)


@settings(max_examples=150, deadline=None)
@given(data=st.data(), ending=st.sampled_from(["npy", "npz"]))
def test_corrupted_files_load_or_raise_value_error(tmp_path_factory, data, ending):
    whole = io.BytesIO()
    (np.save if ending == "npy" else np.savez)(whole, np.arange(6.0).reshape(3, 2))
    content = bytearray(whole.getvalue())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / f"any.{ending}"
    path.write_bytes(bytes(content[: data.draw(st.integers(0, len(content)))]))
    with suppress(ValueError):
        assert len(table_of(read_arrays(path), name=path.name)) > 0


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_corrupted_parquet_loads_or_raises_value_error(tmp_path_factory, data):
    whole = io.BytesIO()
    pq.write_table(pa.table({"a": [1.5, 2.5], "b": ["x", None]}), whole)
    content = bytearray(whole.getvalue())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "any.parquet"
    path.write_bytes(bytes(content))
    with suppress(ValueError):
        assert len(read_parquet(path)) > 0
