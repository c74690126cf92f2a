import math
import struct

import numpy as np
import pytest
import torch

from lawful.data import Mesh, icosphere, read_mesh, read_points, write_ply

ASCII = """ply
format ascii 1.0
comment a square and a triangle
element vertex 5
property uchar red
property float x
property double y
property float z
element material 1
property list uchar int ids
property int number
element face 2
property list uchar int vertex_index
end_header
255 0 0 0
0 1 0 0
0 1 1 0
0 0 1 0
0 2 2 1
2 7 8 5
4 0 1 2 3
3 2 3 4
"""


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def binary_version(order):
    """The same file in binary numbers, written with struct."""
    kind = "binary_little_endian" if order == "<" else "binary_big_endian"
    header = ASCII[: ASCII.index("end_header")].replace("ascii", kind) + "end_header\n"
    body = b""
    for red, x, y, z in [(255, 0, 0, 0), (0, 1, 0, 0), (0, 1, 1, 0), (0, 0, 1, 0), (0, 2, 2, 1)]:
        body += struct.pack(f"{order}Bfdf", red, x, y, z)
    body += struct.pack(f"{order}Biii", 2, 7, 8, 5)
    return header.encode() + body + struct.pack(f"{order}BiiiiBiii", 4, 0, 1, 2, 3, 3, 2, 3, 4)


@pytest.mark.parametrize("content", [ASCII, ASCII.replace("\n", "\r\n"), binary_version("<"), binary_version(">")])
def test_ply_with_polygons_and_other_elements(write, content):
    path = write("shape.ply", content)
    mesh = read_mesh(path)
    assert mesh.faces.tolist() == [[0, 1, 2], [0, 2, 3], [2, 3, 4]]
    assert mesh.vertices.tolist() == [[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [2, 2, 1]]
    assert torch.equal(read_points(path), mesh.vertices)


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ply_round_trip(tmp_path, binary, dtype):
    mesh = icosphere(1)
    mesh = Mesh(mesh.vertices.to(dtype), mesh.faces)
    path = tmp_path / "sphere.ply"
    write_ply(path, mesh, values={"quality": torch.arange(42)}, binary=binary)
    found = read_mesh(path)
    assert torch.equal(found.vertices, mesh.vertices.float())
    assert torch.equal(found.faces, mesh.faces)
    assert b"property float quality" in path.read_bytes()
    write_ply(path, mesh.vertices, binary=binary)
    assert torch.equal(read_points(path), mesh.vertices.float())
    with pytest.raises(ValueError, match="has no faces: read its points with read_points"):
        read_mesh(path)


def test_truncations_are_found(write):
    for content in (ASCII.encode(), binary_version("<")):
        for size in range(1, len(content) - 1, 7):
            with pytest.raises(ValueError, match=r"shape\.ply"):
                read_mesh(write("shape.ply", content[:size]))


def test_obj(write):
    text = """# comment
mtllib x.mtl
v 0 0 0
v 1 0 0 1.0
v 1 1 0 0.5 0.5 0.5
v 0 1 0
vn 0 0 1
f 1/1/1 2//1 3/1 \\
  4
f -4 -3 -1
"""
    mesh = read_mesh(write("a.obj", text))
    assert mesh.faces.tolist() == [[0, 1, 2], [0, 2, 3], [0, 1, 3]]
    assert mesh.vertices[2].tolist() == [1, 1, 0]


@pytest.mark.parametrize("text", ["0 0 1\n1 2 3\n", "# scan\n0,0,1\n\n1,2,3", "0\t0\t1\t9\t9\t9\n1e0\t2\t3\t0\t0\t0\n"])
def test_xyz(write, text):
    assert read_points(write("p.xyz", text)).tolist() == [[0, 0, 1], [1, 2, 3]]


VERTICES = "v 0 0 0\nv 1 0 0\nv 0 1 0\n"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.stl", "", r"must be a \.ply or \.obj file, got a\.stl"),
        ("a.ply", "solid", "is no PLY file"),
        ("a.ply", ASCII.replace("format ascii 1.0\n", ""), "no line format"),
        ("a.ply", ASCII.replace("uchar red", "color red"), "unknown line 'property color red'"),
        ("a.ply", ASCII.replace("float z", "float w"), "properties x, y and z, got red, x, y, w"),
        ("a.ply", ASCII.replace("vertex_index", "corners"), "a list vertex_indices, got corners"),
        ("a.ply", ASCII.replace("255 0 0 0", "255 a 0 0"), "a vertex has other values than its properties"),
        (
            "a.ply",
            ASCII.replace("0 2 2 1", "0 2 nan 1"),
            "a.ply: vertices must be finite, got NaN or infinity at vertex 4",
        ),
        ("a.ply", ASCII.replace("3 2 3 4", "3 2 3 9"), "face 2 has vertex 9, but there are 5 vertices"),
        ("a.ply", ASCII.replace("3 2 3 4", "2 2 3"), "at least 3 vertices, face 1 has 2"),
        ("a.ply", ASCII.replace("3 2 3 4", "3 2 3 3"), r"three different vertices, got \[2, 3, 3\]"),
        ("a.ply", ASCII.replace("element vertex 5", "element vertex 99999999999"), "truncated|other values"),
        ("a.obj", VERTICES, "a.obj has no faces"),
        ("a.obj", "f 1 2 3\n", "a.obj has no vertices"),
        ("a.obj", VERTICES + "f 1 2 4\n", "line 4: a face has a vertex that is missing: the file has vertices 1 to 3"),
        ("a.obj", VERTICES + "f 0 1 2\n", "line 4: a face has a vertex that is missing"),
        ("a.obj", VERTICES + "f 1 2 x\n", "line 4: expected numbers, got 'f 1 2 x'"),
        ("a.obj", "v 0 0\n", "line 1: a vertex needs 3 coordinates, got 2"),
        ("a.obj", VERTICES.replace("1 0 0", "inf 0 0") + "f 1 2 3\n", "NaN or infinity at vertex 1"),
    ],
)
def test_bad_mesh_files(write, name, content, message):
    with pytest.raises(ValueError, match=message):
        read_mesh(write(name, content))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.csv", "", r"must be a \.xyz, \.txt, \.ply or \.obj file, got p\.csv"),
        ("p.xyz", "# empty\n", "p.xyz has no points"),
        ("p.xyz", "0 0 1\n1 2\n", "line 2: a point needs 3 coordinates, got 2"),
        ("p.xyz", "0 0 1\n1 2 z\n", "line 2: expected numbers, got '1 2 z'"),
        ("p.xyz", "0 0 1\n1 2 nan\n", "NaN or infinity at point 1"),
        ("p.xyz", "2\nwater\nO 0 0 0\nH 0 0 1\n", "a file of molecules, which read_xyz reads"),
    ],
)
def test_bad_point_files(write, name, content, message):
    with pytest.raises(ValueError, match=message):
        read_points(write(name, content))


def test_missing_file(tmp_path):
    with pytest.raises((FileNotFoundError, ValueError), match="nowhere"):
        read_mesh(tmp_path / "nowhere.ply")


def test_bad_values(tmp_path):
    for values, message in (
        ({"x": torch.zeros(3)}, "one word other than x, y and z, got 'x'"),
        ({"two words": torch.zeros(3)}, "got 'two words'"),
        ({"q": torch.zeros(2)}, "expected 3 values of 'q'"),
    ):
        with pytest.raises(ValueError, match=message):
            write_ply(tmp_path / "p.ply", torch.eye(3), values=values)
    with pytest.raises(ValueError, match=r"shape \(n, 3\), got \(3, 2\)"):
        write_ply(tmp_path / "p.ply", torch.zeros(3, 2))


def test_large_binary_files_are_read_in_one_piece(tmp_path):
    mesh = icosphere(5)
    write_ply(tmp_path / "s.ply", mesh)
    assert np.array_equal(read_mesh(tmp_path / "s.ply").faces.numpy(), mesh.faces.numpy())
    assert math.isfinite(float(read_points(tmp_path / "s.ply").sum()))
