"""Reading of user files: what is not a regular file is refused at once, and what is too large before it is read."""

import json
import os
import socket
import struct
import zipfile
from functools import partial
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from lawful import _files, _json
from lawful._files import available_memory, format_bytes, open_file
from lawful.data import (
    _inputs,
    load_dataset,
    read_arrays,
    read_delimited,
    read_graph,
    read_mesh,
    read_parquet,
    read_points,
    read_text,
    read_unlabeled_images,
    read_xyz,
)
from lawful.data._inputs import list_files, open_text, walk_folder
from lawful.data.images import list_images
from lawful.data.text import read_labeled_texts, read_pairs, read_texts
from lawful.models import GPT2

READERS = {
    "data.csv": load_dataset,
    "data.tsv": read_delimited,
    "data.parquet": read_parquet,
    "data.npy": read_arrays,
    "data.npz": read_arrays,
    "edges.csv": read_graph,
    "edges.txt": read_graph,
    "shape.ply": read_mesh,
    "shape.obj": read_mesh,
    "points.xyz": read_points,
    "molecules.xyz": read_xyz,
    "text.txt": read_text,
    "pairs.tsv": read_pairs,
    "labeled.csv": read_labeled_texts,
    "texts.csv": partial(read_texts, classes=("a", "b")),
    "config.json": _json.load,
    "image.png": read_unlabeled_images,
}


def make_special(path, kind):
    """Makes something at the path that is not a regular file."""
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    else:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))


@pytest.mark.parametrize("kind", ["fifo", "device", "socket"])
@pytest.mark.parametrize("name", READERS)
def test_special_files_are_refused_at_once(tmp_path, name, kind):
    path = tmp_path / name
    make_special(path, kind)
    expected = {"fifo": "named pipe", "device": "device", "socket": "socket"}[kind]
    with pytest.raises(ValueError, match=f"is a {expected}.*expected a file|has no images"):
        READERS[name](path)


@pytest.mark.parametrize("name", ["data.csv", "data.npz", "data.parquet", "shape.ply", "points.xyz", "config.json"])
def test_a_folder_in_place_of_a_file(tmp_path, name):
    (tmp_path / name).mkdir()
    with pytest.raises(ValueError, match=r"folder"):
        READERS[name](tmp_path / name)


def test_a_file_replaced_by_a_fifo_after_the_first_look_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "data.csv"
    path.write_text("a\n1\n")
    really_open = os.open

    def swap_and_open(*args, **kwargs):
        path.unlink()
        os.mkfifo(path)
        return really_open(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", swap_and_open)
        with pytest.raises(ValueError, match="is a named pipe"):
            open_file(path)


def test_weights_of_gpt2_are_files(tmp_path):
    config = {"vocab_size": 5, "n_embd": 4, "n_layer": 1, "n_head": 1, "n_positions": 8, "model_type": "gpt2"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    os.mkfifo(tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"model\.safetensors is a named pipe"):
        GPT2.from_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "model.safetensors").write_bytes(b"no tensors")
    with pytest.raises(ValueError, match="cannot read"):
        GPT2.from_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "model.safetensors.index.json").write_text("[]")
    with pytest.raises(ValueError, match="must have an object weight_map"):
        GPT2.from_pretrained(tmp_path)


# ---------------------------------------------------------------- size


@pytest.mark.parametrize("name", ["data.csv", "edges.csv", "shape.ply", "shape.obj", "points.xyz", "molecules.xyz"])
def test_a_file_larger_than_the_memory_is_refused_unread(tmp_path, name, monkeypatch):
    path = tmp_path / name
    with path.open("wb") as file:
        file.truncate(2**40)  # a sparse file, which takes no space on disk
    with pytest.raises(ValueError, match=r"has 1\.1 TB, and reading it needs .* of memory, .* are available: use a"):
        READERS[name](path)


def test_the_available_memory_has_the_limit_of_the_process(monkeypatch):
    monkeypatch.setattr(_files, "_process_memory", lambda: [12_345])
    assert available_memory() == 12_345
    monkeypatch.setattr(_files, "_container_memory", lambda: [-5])
    assert available_memory() == 0


def test_sizes_have_units():
    assert [format_bytes(n) for n in (999, 1000, 10**6, 2 * 10**9)] == ["999 bytes", "1.0 kB", "1.0 MB", "2.0 GB"]


def test_text_is_decoded(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfa\r\nb")
    with open_text(tmp_path / "a.txt", encoding="utf-8-sig") as file:
        assert file.read() == "a\nb"
    assert _inputs.read_text(tmp_path / "a.txt", encoding="utf-8-sig") == "a\nb"
    (tmp_path / "a.txt").write_bytes(b"a\xff")
    with pytest.raises(ValueError, match=r"a\.txt is not UTF-8 text \(byte 1 is 0xff\)"):
        _inputs.read_text(tmp_path / "a.txt")


# ---------------------------------------------------------------- arrays


def header(shape, descr="<f8"):
    text = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def write_archive(path, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name + ".npy", data)
    return path


def test_an_archive_that_unpacks_to_gigabytes_is_refused(tmp_path):
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("x.npy", "w") as file:
        file.write(header((300 * 2**17,)))
        for _ in range(300):
            file.write(bytes(2**20))
    with pytest.raises(ValueError, match=r"unpacks to 314\.6 MB, the limit is 268\.4 MB or 100 times.*np\.savez"):
        read_arrays(path)


@pytest.mark.parametrize("shape", [(10**12,), (10**6, 10**6), (1,), (2**62, 4)])
def test_a_header_with_another_size_allocates_nothing(tmp_path, shape):
    path = write_archive(tmp_path / "data.npz", x=header(shape) + bytes(80))
    with pytest.raises(ValueError, match=r"'x' has .* bytes, which is not the size of its shape"):
        read_arrays(path)
    (tmp_path / "data.npy").write_bytes(header(shape) + bytes(7))
    with pytest.raises(ValueError, match=r"data\.npy cannot be read as NumPy arrays"):
        read_arrays(tmp_path / "data.npy")


def test_a_lying_directory_is_an_error(tmp_path):
    """The directory of the archive says 8 kB, the data unpack to 8 MB."""
    path = write_archive(tmp_path / "data.npz", x=header((10**6,)) + bytes(8 * 10**6))
    data = path.read_bytes()
    true, told = (struct.pack("<I", len(header((n,))) + 8 * n) for n in (10**6, 1000))
    assert data.count(true) >= 1
    path.write_bytes(data.replace(true, told))
    with pytest.raises(ValueError, match=r"data\.npz cannot be read as NumPy arrays"):
        read_arrays(path)


@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_arrays_of_objects_are_refused(tmp_path, suffix):
    path = tmp_path / f"data.{suffix}"
    (np.save if suffix == "npy" else np.savez)(path, np.array([1, "a", None], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"holds Python objects, expected numbers or text: convert it"):
        read_arrays(path)


def test_other_files_in_an_archive_are_refused(tmp_path):
    path = tmp_path / "data.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(ValueError, match=r"'readme\.txt' is not an array in NumPy's format: write it with np\.save"):
        read_arrays(path)


@pytest.mark.parametrize("compressed", [False, True])
def test_arrays_are_equal_to_numpys(tmp_path, compressed):
    arrays = {
        "x": np.arange(6.0).reshape(2, 3),
        "turned": np.arange(6).reshape(2, 3).T,
        "words": np.array(["a", "größe"]),
        "rows": np.array([(1, 2.0)], dtype=[("größe", int), ("b", float)]),
        "empty": np.zeros((0, 4)),
        "days": np.array(["2020-01-01"], dtype="datetime64[D]"),
    }
    (np.savez_compressed if compressed else np.savez)(tmp_path / "a.npz", **arrays)
    found = read_arrays(tmp_path / "a.npz")
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array, strict=True)
        np.save(tmp_path / "a.npy", array)
        (mapped,) = read_arrays(tmp_path / "a.npy").values()
        np.testing.assert_array_equal(mapped, array, strict=True)


def test_parquet_is_limited_by_its_metadata(tmp_path, monkeypatch):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    path = tmp_path / "data.parquet"
    pyarrow.parquet.write_table(pa.table({"x": pa.array(np.zeros(10**6))}), path)
    assert path.stat().st_size < 100_000
    monkeypatch.setattr(_files, "available_memory", lambda: 10**7)
    with pytest.raises(ValueError, match=r"has 1,000,000 rows of 1 columns, and reading it needs 80.* use fewer rows"):
        read_parquet(path)


# ---------------------------------------------------------------- images and folders


def png(width, height):
    """A PNG file that claims a size."""
    out = BytesIO()
    Image.new("L", (1, 1)).save(out, "PNG")
    data = bytearray(out.getvalue())
    data[16:24] = struct.pack(">II", width, height)
    import zlib

    data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    return bytes(data)


@pytest.mark.parametrize("size", [(8000, 8000), (20_000, 20_000), (2**30, 2**30)])
def test_images_are_limited_by_their_header(tmp_path, size):
    (tmp_path / "a.png").write_bytes(png(*size))
    with pytest.raises(ValueError, match=r"cannot read image .*a\.png: .*(at most 50000000|limit of|maximum)"):
        read_unlabeled_images(tmp_path)


def test_all_images_together_are_limited_by_the_memory(tmp_path, monkeypatch):
    Image.new("L", (1000, 1000)).save(tmp_path / "a.png")
    monkeypatch.setattr(_files, "available_memory", lambda: 2**20)
    with pytest.raises(ValueError, match=r"reading 1 images needs 12\.0 MB of memory, 1\.0 MB are available: resize"):
        read_unlabeled_images(tmp_path)


def test_links_out_of_a_folder_are_not_followed(tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside / "deep", outside):
        folder.mkdir(parents=True)
        Image.new("L", (2, 2)).save(folder / "a.png")
    (inside / "again.png").symlink_to("deep/a.png")
    (inside / "loop").symlink_to(".")
    (inside / ".hidden").symlink_to(outside)
    assert list_images(inside) == [inside / "again.png", inside / "deep/a.png"]
    link = inside / "link"
    for target in (outside, outside / "a.png"):
        link = inside / f"link{target.suffix}"
        link.symlink_to(target)
        with pytest.raises(ValueError, match=f"{link} is a link out of {inside}, which is not followed: copy"):
            list_images(inside)
        link.unlink()


def test_a_text_folder_notes_links_out_of_it(tmp_path):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/a.txt").write_text("words")
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "texts/b.txt").symlink_to(tmp_path / "secret.txt")
    corpus = read_text(tmp_path / "texts")
    assert "".join(corpus.chunks()) == "words"
    assert corpus.notes == ("skipped links out of the folder: b.txt",)


def test_the_number_of_files_and_folders_is_limited(tmp_path, monkeypatch):
    for i in range(3):
        (tmp_path / f"{i}.txt").write_text("a")
    monkeypatch.setattr(_inputs, "MAX_FILES", 2)
    with pytest.raises(ValueError, match="has more than 2 files, the maximum: pass a smaller folder"):
        walk_folder(tmp_path)
    monkeypatch.setattr(_inputs, "MAX_FILES", 1000)
    deep = tmp_path.joinpath(*["d"] * 100)
    deep.mkdir(parents=True)
    with pytest.raises(ValueError, match="has folders nested more than 100 deep, the maximum"):
        list_files(tmp_path)
