"""Arrangements of creases in convex cells: the pieces of creases and edges, and the parts of cells that they bound."""

from __future__ import annotations

import numpy as np


def divide_segments(
    signs: np.ndarray, place: np.ndarray, ends: np.ndarray, segment: np.ndarray, vertex: np.ndarray, unit: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """Divides segments at vertices.

    Args:
        signs: Signs of units at all vertices, of shape (units, vertices).
        place: Coordinates of all vertices.
        ends: The two vertices of each segment.
        segment: Segments to divide, once for each vertex in them.
        vertex: Vertices in them.
        unit: Unit that changes its sign at each of these vertices.

    Returns:
        Ends of the pieces, and the segment of each piece. None if rounding has changed the order of the vertices.
    """
    x, y = place[:2]
    tail, head = ends
    dx, dy = x[head] - x[tail], y[head] - y[tail]
    squared = dx * dx + dy * dy
    start = tail[segment]
    part = ((x[vertex] - x[start]) * dx[segment] + (y[vertex] - y[start]) * dy[segment]) / squared[segment]
    order = np.argsort(segment + np.clip(part, 0.0, 1.0))
    segment, vertex, unit = segment[order], vertex[order], unit[order]
    same = (segment[1:] == segment[:-1]).nonzero()[0]
    later, start = unit[same + 1], tail[segment[same]]
    # On the way to a vertex, the unit that changes its sign there has the sign of the start.
    if (segment[1:] < segment[:-1]).any() or (signs[later, vertex[same]] != signs[later, start]).any():
        return None
    count = np.bincount(segment, minlength=len(tail)) + 1
    end = np.cumsum(count)
    pieces = np.empty((2, len(tail) + len(vertex)), dtype=np.intp)
    before = np.arange(len(vertex)) + segment
    pieces[0, end - count], pieces[1, end - 1] = tail, head
    pieces[0, before + 1], pieces[1, before] = vertex, vertex
    return pieces, np.repeat(np.arange(len(tail)), count)


def pack_positive(signs: np.ndarray) -> np.ndarray:
    """Returns the bits of the units that are positive at each vertex, in words of 64 bits.

    Args:
        signs: Signs, of shape (units, vertices).
    """
    data = np.packbits(np.ascontiguousarray(signs.T) > 0, axis=1, bitorder="little")
    if missing := -data.shape[1] % 8:
        data = np.pad(data, ((0, 0), (0, missing)))
    return data.view("<u8")


def unpack_bits(words: np.ndarray, units: int) -> np.ndarray:
    """Returns the bits of words, of shape (rows, units)."""
    return np.unpackbits(words.view(np.uint8), axis=1, bitorder="little", count=units).view(bool)


def group_rows(cells: np.ndarray, words: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Groups rows that have the same cell and the same words.

    Returns:
        A row of each group, and the group of each row. Groups are sorted by cell. None if hashes collide.
    """
    key = np.zeros(len(cells), dtype=np.uint64)
    for word in words.T:
        key = (key ^ word) * np.uint64(0x9E3779B97F4A7C15)
        key ^= key >> np.uint64(29)
    bits = int(cells.max()).bit_length()
    key >>= np.uint64(bits)
    key |= cells.astype(np.uint64) << np.uint64(64 - bits)
    order = np.argsort(key)
    key = key[order]
    is_first = np.ones(len(key), dtype=bool)
    np.not_equal(key[1:], key[:-1], out=is_first[1:])
    rows = order[is_first]
    group = np.empty(len(key), dtype=np.intp)
    group[order] = np.cumsum(is_first) - 1
    found = rows[group]
    equal = (cells == cells[found]).all() and (words == words[found]).all()
    return (rows, group) if equal else None
