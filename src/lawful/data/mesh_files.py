"""Files of meshes and point clouds: PLY, OBJ and XYZ."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from lawful._files import write_file
from lawful.data._inputs import read_bytes, read_text
from lawful.data.loading import resolve_path
from lawful.data.meshes import Mesh

_TYPES = {
    **{"char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4"},
    **{"float": "f4", "double": "f8", "int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2"},
    **{"int32": "i4", "uint32": "u4", "float32": "f4", "float64": "f8"},
}
_FORMATS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}
_MAX_HEADER = 100_000
"""Largest size of the header of a PLY file, in bytes."""
_MEMORY_FACTOR = 30
"""Memory for reading a file, relative to its size: vertices and faces are Python lists at first."""


def read_mesh(path: str | Path) -> Mesh:
    r"""Reads a mesh from a PLY file (ASCII or binary) or an OBJ file.

    Polygons are divided into triangles. Colors, normals, textures and materials are not read.

    Args:
        path: File that ends in .ply or .obj.

    Raises:
        ValueError: If the file is no mesh: it is truncated, has no faces, a vertex is missing or not finite.

    Examples:
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = Path(folder.name) / "square.obj"
        >>> _ = path.write_text("v 0 0 0\nv 1 0 0\nv 1 1 0\nv 0 1 0\nf 1 2 3 4\n")
        >>> read_mesh(path)
        Mesh(4 vertices, 2 faces)
        >>> folder.cleanup()
    """
    path = resolve_path(path)
    read = {".ply": _read_ply, ".obj": _read_obj}.get(path.suffix.lower())
    if read is None:
        raise ValueError(f"a mesh must be a .ply or .obj file, got {path.name}")
    points, polygons = read(path)
    if not polygons:
        raise ValueError(f"{path.name} has no faces: read its points with read_points")
    faces = []
    for k, polygon in enumerate(polygons):
        if len(polygon) < 3:
            raise ValueError(f"{path.name}: a face needs at least 3 vertices, face {k} has {len(polygon)}")
        faces += [(polygon[0], b, c) for b, c in pairwise(polygon[1:])]
    try:
        return Mesh(torch.from_numpy(points).float(), torch.tensor(faces))
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from None


def read_points(path: str | Path) -> Float[Tensor, "n 3"]:
    r"""Reads a point cloud from an XYZ, PLY or OBJ file.

    An XYZ file has one point per line: x, y and z, separated by spaces, tabs or commas. Further columns, such as
    normals or colors, are not read. Lines that begin with # are comments.

    Args:
        path: File that ends in .xyz, .txt, .ply or .obj.

    Raises:
        ValueError: If the file has no points, or a coordinate is missing or not finite.

    Examples:
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = Path(folder.name) / "points.xyz"
        >>> _ = path.write_text("# scan\n0 0 1\n2 0 0\n")
        >>> read_points(path)
        tensor([[0., 0., 1.],
                [2., 0., 0.]])
        >>> folder.cleanup()
    """
    path = resolve_path(path)
    suffix = path.suffix.lower()
    if suffix in (".ply", ".obj"):
        points = (_read_ply if suffix == ".ply" else _read_obj)(path)[0]
    elif suffix in (".xyz", ".txt"):
        points = _read_xyz(path)
    else:
        raise ValueError(f"a point cloud must be a .xyz, .txt, .ply or .obj file, got {path.name}")
    if not len(points):
        raise ValueError(f"{path.name} has no points")
    wrong = ~np.isfinite(points).all(1)
    if wrong.any():
        raise ValueError(f"{path.name}: points must be finite, got NaN or infinity at point {int(wrong.argmax())}")
    return torch.from_numpy(points).float()


def write_ply(
    path: str | Path,
    shape: Mesh | Float[Tensor, "n 3"],
    *,
    values: Mapping[str, Shaped[Tensor, " n"]] | None = None,
    binary: bool = True,
) -> None:
    """Writes a mesh or a point cloud as a PLY file, which Blender, MeshLab and ParaView open.

    Args:
        path: File.
        shape: Mesh, or points.
        values: Numbers at the vertices by name, such as a curvature. MeshLab colors vertices by the name quality.
        binary: Whether to write binary numbers instead of text.

    Examples:
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = Path(folder.name) / "points.ply"
        >>> write_ply(path, torch.eye(3), values={"quality": torch.arange(3)})
        >>> read_points(path).shape
        torch.Size([3, 3])
        >>> folder.cleanup()
    """
    points = (shape.vertices if isinstance(shape, Mesh) else shape).detach().cpu()
    if points.dim() != 2 or points.shape[1] != 3:
        raise ValueError(f"expected points of shape (n, 3), got {tuple(points.shape)}")
    columns: dict[str, Tensor] = dict(zip("xyz", points.T, strict=True))
    for name, value in (values or {}).items():
        if not name.isidentifier() or name in columns:
            raise ValueError(f"a name of values must be one word other than x, y and z, got {name!r}")
        if value.shape != (len(points),):
            raise ValueError(f"expected {len(points)} values of {name!r}, one per vertex, got {tuple(value.shape)}")
        columns[name] = value.detach().cpu()
    kinds = {name: "f8" if value.dtype == torch.float64 else "f4" for name, value in columns.items()}
    rows = np.empty(len(points), [(name, f"<{kind}") for name, kind in kinds.items()])
    for name, value in columns.items():
        rows[name] = value.numpy()
    header = ["ply", f"format {'binary_little_endian' if binary else 'ascii'} 1.0", f"element vertex {len(points)}"]
    header += [f"property {'double' if kind == 'f8' else 'float'} {name}" for name, kind in kinds.items()]
    faces = shape.faces.detach().cpu().numpy() if isinstance(shape, Mesh) else np.empty((0, 3), int)
    if len(faces):
        header += [f"element face {len(faces)}", "property list uchar int vertex_indices"]
    start = ("\n".join([*header, "end_header"]) + "\n").encode()
    if binary:
        triangles = np.empty(len(faces), [("count", "u1"), ("index", "<i4", 3)])
        triangles["count"], triangles["index"] = 3, faces
        write_file(path, start + rows.tobytes() + triangles.tobytes())
        return
    lines = [" ".join(map(str, row)) for row in rows.tolist()] + [f"3 {a} {b} {c}" for a, b, c in faces.tolist()]
    write_file(path, start + "".join(f"{line}\n" for line in lines).encode())


# ---------------------------------------------------------------- PLY


class _Property(NamedTuple):
    name: str
    kind: str
    count: str | None
    """Type of the length of a list; None for a number."""


class _Element(NamedTuple):
    name: str
    size: int
    properties: list[_Property]


def _read_ply(path: Path) -> tuple[np.ndarray, list[list[int]]]:
    """Returns the vertices and the polygons of a PLY file."""
    data = read_bytes(path, memory_factor=_MEMORY_FACTOR)
    order, elements, start = _ply_header(data, path.name)
    points, polygons = None, []
    read = iter(data[start:].split()) if order == "" else None
    for element in elements:
        if not element.properties:
            continue
        try:
            if read is not None:
                columns = _ascii_rows(read, element)
            else:
                columns, start = _binary_rows(data, start, element, order)
        except (StopIteration, struct.error):
            raise ValueError(
                f"{path.name} is truncated: its header announces {element.size} elements {element.name!r}"
            ) from None
        except (ValueError, OverflowError):
            raise ValueError(f"{path.name}: a {element.name} has other values than its properties") from None
        if element.name == "vertex":
            if not {"x", "y", "z"} <= columns.keys() or any(p.count for p in element.properties if p.name in "xyz"):
                raise ValueError(
                    f"{path.name}: expected vertices with properties x, y and z, got {', '.join(columns) or 'none'}"
                )
            points = np.stack([np.asarray(columns[axis], dtype=np.float64) for axis in "xyz"], 1)
        elif element.name == "face":
            name = next((n for n in ("vertex_indices", "vertex_index") if n in columns), None)
            if name is None or not next(p for p in element.properties if p.name == name).count:
                raise ValueError(f"{path.name}: expected faces with a list vertex_indices, got {', '.join(columns)}")
            polygons = [[*map(int, polygon)] for polygon in columns[name]]
    if points is None:
        raise ValueError(f"{path.name} has no vertices")
    return points, polygons


def _ply_header(data: bytes, name: str) -> tuple[str, list[_Element], int]:
    """Returns the byte order, the elements and where they begin."""
    if not data.startswith(b"ply"):
        raise ValueError(f"{name} is no PLY file: it does not begin with the line ply")
    place = data.find(b"end_header", 0, _MAX_HEADER)
    end = data.find(b"\n", place)
    if place < 0 or end < 0:
        raise ValueError(f"{name} is truncated: its header has no line end_header")
    order, elements = None, []
    for line in data[:place].decode("ascii", "replace").splitlines()[1:]:
        match line.split():
            case ["format", kind, _] if kind in _FORMATS:
                order = _FORMATS[kind]
            case ["element", element, size] if size.isdecimal():
                elements.append(_Element(element, int(size), []))
            case ["property", "list", count, kind, prop] if elements and count in _TYPES and kind in _TYPES:
                elements[-1].properties.append(_Property(prop, _TYPES[kind], _TYPES[count]))
            case ["property", kind, prop] if elements and kind in _TYPES:
                elements[-1].properties.append(_Property(prop, _TYPES[kind], None))
            case [] | ["comment" | "obj_info", *_]:
                pass
            case _:
                raise ValueError(f"{name}: the header has an unknown line {line[:60]!r}")
    if order is None:
        raise ValueError(f"{name}: the header has no line format")
    return order, elements, end + 1


def _ascii_rows(tokens: Iterator[bytes], element: _Element) -> dict[str, list[Any]]:
    """Reads an element of text."""
    columns: dict[str, list[Any]] = {p.name: [] for p in element.properties}
    for _ in range(element.size):
        for p in element.properties:
            read = float if p.kind[0] == "f" else int
            if p.count is None:
                columns[p.name].append(read(next(tokens)))
            else:
                columns[p.name].append([read(next(tokens)) for _ in range(int(next(tokens)))])
    return columns


def _binary_rows(data: bytes, start: int, element: _Element, order: str) -> tuple[dict[str, Any], int]:
    """Reads an element of binary numbers. Returns its columns and where it ends."""
    lists = [p for p in element.properties if p.count]
    size = 0
    if not lists or (len(element.properties) == 1 and element.size):
        fields: list[tuple[Any, ...]] = [(p.name, order + p.kind) for p in element.properties]
        if lists:  # faces are triangles, usually
            count = np.dtype(order + str(lists[0].count))
            if len(data) < start + count.itemsize:
                raise struct.error
            size = int(np.frombuffer(data, count, 1, start)[0])
            if size > len(data):
                raise struct.error
            fields = [("count", count), (lists[0].name, order + lists[0].kind, (max(0, size),))]
        row = np.dtype(fields)
        end = start + row.itemsize * element.size
        if len(data) >= end:
            rows = np.frombuffer(data, row, element.size, start)
            if not lists or bool((rows["count"] == size).all()):
                return {p.name: rows[p.name] for p in element.properties}, end
        elif not lists:
            raise struct.error
    codes = {"i1": "b", "u1": "B", "i2": "h", "u2": "H", "i4": "i", "u4": "I", "f4": "f", "f8": "d"}
    columns: dict[str, Any] = {p.name: [] for p in element.properties}
    for _ in range(element.size):
        for p in element.properties:
            length = 1
            if p.count:
                (length,) = struct.unpack_from(order + codes[p.count], data, start)
                length, start = max(0, int(length)), start + int(p.count[1])
            if start + length * int(p.kind[1]) > len(data):
                raise struct.error
            found = struct.unpack_from(f"{order}{length}{codes[p.kind]}", data, start)
            columns[p.name].append(found if p.count else found[0])
            start += length * int(p.kind[1])
    return columns, start


# ---------------------------------------------------------------- OBJ and XYZ


def _read_obj(path: Path) -> tuple[np.ndarray, list[list[int]]]:
    """Returns the vertices and the polygons of an OBJ file."""
    points: list[list[float]] = []
    polygons: list[list[int]] = []
    lines: list[int] = []
    text = read_text(path, errors="replace", memory_factor=_MEMORY_FACTOR).replace("\\\n", " ")
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split("#")[0].split()
        if not words or words[0] not in ("v", "f"):
            continue
        try:
            if words[0] == "v":
                points.append([float(w) for w in words[1:4]])
            else:
                found = [int(w.split("/")[0]) for w in words[1:]]
                polygons.append([i - 1 if i > 0 else len(points) + i if i < 0 else -1 for i in found])
                lines.append(number)
        except ValueError:
            raise ValueError(f"{path.name}, line {number}: expected numbers, got {line.strip()[:60]!r}") from None
        if words[0] == "v" and len(points[-1]) < 3:
            raise ValueError(f"{path.name}, line {number}: a vertex needs 3 coordinates, got {len(points[-1])}")
    if not points:
        raise ValueError(f"{path.name} has no vertices")
    for number, polygon in zip(lines, polygons, strict=True):
        if not all(0 <= i < len(points) for i in polygon):
            raise ValueError(
                f"{path.name}, line {number}: a face has a vertex that is missing: the file has vertices 1 to "
                f"{len(points)}"
            )
    return np.array(points), polygons


def _read_xyz(path: Path) -> np.ndarray:
    """Returns the points of an XYZ file."""
    points: list[list[float]] = []
    text = read_text(path, errors="replace", memory_factor=_MEMORY_FACTOR)
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split("#")[0].replace(",", " ").replace(";", " ").split()
        if not words:
            continue
        if not points and len(words) == 1 and words[0].isdecimal():
            raise ValueError(
                f"{path.name} begins with a number of atoms: it is a file of molecules, which read_xyz reads"
            )
        if len(words) < 3:
            raise ValueError(f"{path.name}, line {number}: a point needs 3 coordinates, got {len(words)}")
        try:
            points.append([float(w) for w in words[:3]])
        except ValueError:
            raise ValueError(f"{path.name}, line {number}: expected numbers, got {line.strip()[:60]!r}") from None
    return np.array(points).reshape(-1, 3)
