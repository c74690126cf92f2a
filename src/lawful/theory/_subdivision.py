"""Splits an interval or a rectangle along the creases of a ReLU network, with exact signs.

Values before the activations are stored at the vertices, with a bound of their error. Where a value is smaller than the
bound, its sign is computed with integers: a vertex is the intersection of two lines whose coefficients are products of
weights, so it is rational, and its numerators grow with the depth only linearly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from lawful.theory._arrangement import divide_segments, group_rows, pack_positive, unpack_bits
from lawful.theory._exact_layers import (
    EPSILON,
    Stage,
    affine_values,
    exact_values,
    largest_entries,
    two_product,
    two_sum,
)

ACCURACY = 1e-6  # of the coordinates of vertices, relative to the box
_MAX_PAIRS = 2**20
"""Maximum number of zeros and other units whose signs are computed at once."""


class _Table:
    """Arrays that grow together along their last axis."""

    def __init__(self, count: int, **arrays: np.ndarray) -> None:
        self.count = count
        self.arrays = arrays

    def __getitem__(self, name: str) -> np.ndarray:
        return self.arrays[name][..., : self.count]

    def set(self, **values: np.ndarray) -> None:
        """Replaces arrays."""
        for name, array in values.items():
            if array.shape[-1] != self.count:
                raise ValueError(f"{name} must have {self.count} entries: got {array.shape[-1]}")
            self.arrays[name] = array

    def append(self, count: int, **values: np.ndarray) -> slice:
        """Appends entries, and returns where."""
        end = self.count + count
        for name, added in values.items():
            array = self.arrays[name]
            if end > array.shape[-1]:
                larger = np.empty((*array.shape[:-1], 2 * end), dtype=array.dtype)
                larger[..., : self.count] = array[..., : self.count]
                self.arrays[name] = array = larger
            array[..., self.count : end] = added
        new = slice(self.count, end)
        self.count = end
        return new


class Subdivision:
    """Cells of an interval (one dimension) or of a rectangle (two).

    In the plane, an edge has its left and its right cell, and cell 0 is outside. In one dimension cells are edges.

    Args:
        stages: Stages of the network, from the coordinates on.
        low: Lower corner.
        high: Upper corner.
    """

    def __init__(self, stages: Sequence[Stage], low: Sequence[float], high: Sequence[float]) -> None:
        self.stages, self.dim = stages, len(low)
        self.first_unit = np.cumsum([0, *(stage.dim for stage in stages if stage.slope is not None)])
        self.stage_of_unit = np.repeat(np.arange(len(stages) - 1), np.diff(self.first_unit))
        if self.dim == 1:
            (a,), (b,) = low, high
            points, lines = np.array([[a, b]], dtype=np.float64), np.array([[-1, -2], [0, 0]])
            ends, cells = [[0], [1]], [[0], [0]]
            self._sides = [_side(0, a, 1), _side(0, b, 1)]
        else:
            (a, b), (c, d) = low, high
            points = np.array([[a, c, c, a], [b, b, d, d]], dtype=np.float64)
            lines = np.array([[-4, -1, -2, -3], [-1, -2, -3, -4]])
            lines = np.stack([lines[0], 0 * lines[0], lines[1], 0 * lines[1]])
            ends, cells = [[0, 1, 2, 3], [1, 2, 3, 0]], [[1] * 4, [0] * 4]
            self._sides = [_side(1, b, 2), _side(0, c, 2), _side(1, d, 2), _side(0, a, 2)]
        self._size = float(np.abs(points).max())
        count, sides = points.shape[1], len(ends[0])
        # Coordinates, their error and the error of the values; the two lines that meet.
        self.vertices = _Table(count, place=np.concatenate([points, np.zeros((2, count))]), lines=lines)
        unit, cell = -1 - np.arange(sides), np.zeros(sides, dtype=np.intp)
        self.edges = _Table(
            sides,
            index=np.stack([*map(np.array, (*ends, *cells)), unit, cell]),  # tail, head, left, right, unit, its cell
            line=np.array([[*_normal(side), 2 * EPSILON * self._size] for side in self._sides[:sides]]).T,
        )
        # The cell before the stage, the cell itself or its negative part, the vertex where its positive part begins.
        self.cells = _Table(self.dim, index=np.zeros((3, self.dim), dtype=np.intp))
        self.patterns = np.zeros((self.cells.count, 0), dtype=bool)
        self._forms: dict[tuple[int, int], np.ndarray] = {}
        self._stage = 0
        # Affine map of each cell, in rows (cells, columns, units), and a bound of the errors of its columns.
        self._maps = np.repeat(np.eye(self.dim + 1, self.dim)[None], self.cells.count, axis=0)
        self._map_errors = np.zeros((self.cells.count, self.dim + 1))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # of lines that are not certain
            for i in range(len(stages) - 1):
                self._enter(i, points if i == 0 else self._activate_vertices(stages[i - 1]))
                if not self._split_all():
                    sign = self.vertices["sign"]
                    both = (sign.min(1) < 0) & (sign.max(1) > 0)
                    both[stages[i].same_kink[0]] = False
                    for unit in np.flatnonzero(both).tolist():
                        self._split(unit)
                    self._store_patterns(self._read_patterns())

    def _apply(self, stage: Stage) -> None:
        """Applies the affine maps of a stage to the maps of all cells."""
        columns = self._maps.reshape(-1, self._maps.shape[-1]).T
        offsets = slice(self.dim, None, self.dim + 1)  # the last column of each map
        columns, error = affine_values(stage.maps, columns, self._map_errors.ravel(), ones=offsets)
        self._maps = columns.T.reshape(-1, self.dim + 1, len(columns))
        self._map_errors = error.reshape(-1, self.dim + 1)

    def _enter(self, index: int, values: np.ndarray) -> None:
        """Computes the values of a stage at all vertices."""
        self._stage = index
        stage, vertices = self.stages[index], self.vertices
        value, error = affine_values(stage.maps, values, vertices["place"][-1])
        sign = (value > 0).view(np.int8) - (value < 0).view(np.int8)
        uncertain = (value < error) & (value > -error)
        self._set_known_signs(sign, uncertain)
        vertices["place"][-1] = error
        self._touching = np.zeros(len(sign), dtype=bool)
        self._resolve(vertices["lines"], value, sign, uncertain)
        self._copy_known_signs(sign)
        self._touching |= (sign == 0).any(1)
        # The next stage needs the values of all units. In the last one, those of later units decide signs.
        self._is_last = index == len(self.stages) - 2
        vertices.arrays.pop("value", None)
        vertices.set(sign=sign) if self._is_last else vertices.set(value=value, sign=sign)
        self._apply(stage)
        largest = largest_entries(self._maps.reshape(-1, self._maps.shape[-1]).T).reshape(-1, self.dim + 1).T
        map_errors = self._map_errors.T
        self._gradient = largest[:-1].sum(0) + map_errors[:-1].sum(0)
        self._map_error = self._size * map_errors[:-1].sum(0) + map_errors[-1]
        rounding = 8 * EPSILON * (1 + self._size) * largest.max(0)  # of a value in the box
        slack = 1 + 1e-9
        self._errors = np.stack([slack * self._gradient, slack * (self._map_error + rounding), self._map_error])
        self.cells["index"][:2] = np.arange(self.cells.count)

    def _set_known_signs(self, sign: np.ndarray, uncertain: np.ndarray) -> None:
        stage = self.stages[self._stage]
        unit, _, factor = stage.same_kink
        if len(unit):
            bias = stage.maps[-1][1]
            signs = np.where(factor == 0, np.sign(bias[unit]), 0).astype(np.int8)
            uncertain[unit] = False
            sign[unit[factor == 0]] = signs[factor == 0, None]

    def _copy_known_signs(self, sign: np.ndarray) -> None:
        unit, other, factor = self.stages[self._stage].same_kink
        if len(unit):
            copies = factor != 0
            sign[unit[copies]] = sign[other[copies]] * factor[copies, None]

    def _resolve(self, lines: np.ndarray, value: np.ndarray, sign: np.ndarray, uncertain: np.ndarray) -> None:
        """Computes the signs of columns with an uncertain sign exactly."""
        if not uncertain.any():
            return
        columns = np.flatnonzero(uncertain.any(0))
        points, ones = self._exact_points(lines[:, columns])
        exact, _ = exact_values(self.stages[: self._stage + 1], points, ones)
        signs = (exact > 0).astype(np.int8) - (exact < 0).astype(np.int8)
        part = value[:, columns]
        sign[:, columns] = signs
        value[:, columns] = np.where(np.sign(part) == signs[-len(part) :], part, 0.0)
        self._touching |= (signs == 0).any(1)

    def _split_all(self) -> bool:
        """Splits all cells by all units at once, and returns whether it did.

        It does if rounding leaves no sign open, so that no three creases meet in a point, and the signs fit in memory.
        """
        signs, edges, first_unit = self.vertices["sign"], self.edges, self.first_unit[self._stage]
        if self.dim == 1 or len(self.stages[self._stage].same_kink[0]) or not signs.all():
            return False
        index, line = edges["index"], edges["line"]
        ends, (left, right) = index[:2], index[2:4]
        found = self._find_zeros(signs, ends, np.maximum(left, right), line, index[4:])
        if found is None:
            return False
        unit, edge, outer = found
        vertex = signs.shape[1] + np.arange(len(unit))
        positive = signs[unit, ends[0][edge]] > 0
        signs, place = self._join(self.vertices["sign"], self.vertices["place"], outer)
        divided = divide_segments(signs, place, ends, edge, vertex, unit)
        if divided is None:
            return False
        pieces, edge_of_piece = divided
        # A crease goes from one side of a cell to another one, and has the positive part of the cell to its left.
        cell = np.concatenate([left[edge], right[edge]])
        key, vertex = cell * len(signs) + np.tile(unit, 2), np.tile(vertex, 2)
        starts = np.concatenate([positive, ~positive])
        tails, heads = (np.flatnonzero(chosen & (cell > 0)) for chosen in (starts, ~starts))
        tails, heads = tails[np.argsort(key[tails])], heads[np.argsort(key[heads])]
        key, ends = key[tails], np.stack([vertex[tails], vertex[heads]])
        root, own = np.divmod(key, len(signs))
        described, crease_line = np.stack([first_unit + own, root]), self._crease(own, root)
        found = self._find_zeros(signs, ends, root, crease_line, described, own)
        if found is None:
            return False
        unit, crease, inner = found
        vertex = signs.shape[1] + np.arange(len(unit))
        signs, place = self._join(signs, place, inner)
        other = np.searchsorted(key, root[crease] * len(signs) + unit)
        units = np.concatenate([unit, own[crease]])
        divided = divide_segments(signs, place, ends, np.concatenate([crease, other]), np.tile(vertex, 2), units)
        if divided is None:
            return False
        inner_pieces, crease_of_piece = divided
        ends = np.concatenate([pieces, inner_pieces], axis=1)
        crease_index = np.concatenate([root, root, *described]).reshape(4, -1)
        parts = [index[2:].take(edge_of_piece, axis=1), crease_index.take(crease_of_piece, axis=1)]
        index = np.concatenate([ends, np.concatenate(parts, axis=1)])
        line = np.concatenate([line.take(edge_of_piece, axis=1), crease_line.take(crease_of_piece, axis=1)], axis=1)
        # A part of a cell is known by its active units: those that are positive at an end of a piece of its boundary.
        words = pack_positive(signs)
        words = words.take(ends[0], axis=0) | words.take(ends[1], axis=0)
        words = np.concatenate([words, words])
        own = own[crease_of_piece]
        to_left = len(edge_of_piece) + np.arange(len(own))
        words[to_left, own // 64] |= np.uint64(1) << (own % 64).astype(np.uint64)
        sides = index[2:4].ravel()
        words[sides == 0] = 0
        grouped = group_rows(sides, words)
        if grouped is None:
            return False
        rows, group = grouped
        root, is_new = sides[rows], np.zeros(len(rows), dtype=bool)
        is_new[1:] = root[1:] == root[:-1]  # the first part of a cell keeps its number
        number = np.where(is_new, self.cells.count - 1 + np.cumsum(is_new), root)
        index[2:4] = number[group].reshape(2, -1)
        self._add_with_values(outer)
        self._add_with_values(inner)
        self.edges = _Table(index.shape[1], index=index, line=line)
        new = number[is_new]
        self.cells.append(len(new), index=np.stack([root[is_new], new, new]))
        patterns = np.zeros((self.cells.count, len(signs)), dtype=bool)
        patterns[number] = unpack_bits(words[rows], len(signs))
        self._store_patterns(patterns)
        return True

    @staticmethod
    def _join(signs: np.ndarray, place: np.ndarray, added: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        return np.concatenate([signs, added["sign"]], axis=1), np.concatenate([place, added["place"]], axis=1)

    def _find_zeros(
        self,
        signs: np.ndarray,
        ends: np.ndarray,
        roots: np.ndarray,
        line: np.ndarray,
        described: np.ndarray,
        own: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]] | None:
        """Finds the zeros of units on segments in cells.

        Args:
            signs: Signs at all vertices. At the ends of a segment, only the unit whose crease it is may be zero.
            ends: The two vertices of each segment.
            roots: The cell of each segment.
            line: The line of each segment.
            described: The unit whose crease it is, and its cell.
            own: The same unit in the stage, for creases of the stage. Each of their meeting points is found once.

        Returns:
            Unit and segment of each zero, and the new vertices. None if rounding leaves a sign open, or there are too
            many signs to compute.
        """
        before, after = signs.take(ends[0], axis=1), signs.take(ends[1], axis=1)
        changes = before * after < 0
        unit, segment = np.divmod(np.flatnonzero(changes), len(roots))
        if own is not None:
            later = unit > own[segment]
            unit, segment = unit[later], segment[later]
        roots = roots[segment]
        lines = np.concatenate([described.take(segment, axis=1), [self.first_unit[self._stage] + unit, roots]])
        place = self._intersect(line.take(segment, axis=1), lines, self._maps[roots, :, unit].T, self._map_error[roots])
        gradient, rounding, _ = self._errors.take(roots, axis=1)
        place[-1] = gradient * place[-2] + rounding
        sign = np.sign(before.take(segment, axis=1) + after.take(segment, axis=1))
        opposite = changes.take(segment, axis=1)
        opposite[unit, np.arange(len(unit))] = False
        if np.count_nonzero(opposite) > max(_MAX_PAIRS, 32 * len(unit)):
            return None  # in wide layers, one unit after the other takes less memory
        other, vertex = np.divmod(np.flatnonzero(opposite), len(unit))
        maps = self._maps[roots[vertex], :, other]
        value = maps[:, 0] * place[0][vertex] + maps[:, 1] * place[1][vertex] + maps[:, 2]
        if not (np.abs(value) > place[-1][vertex]).all():
            return None
        sign[other, vertex] = np.sign(value)
        return unit, segment, {"place": place, "lines": lines, "sign": sign, "root": roots}

    def _add_with_values(self, added: dict[str, np.ndarray]) -> None:
        """Adds vertices, with the values of all units where the next stage needs them."""
        roots = added.pop("root")
        if not self._is_last:
            value, (x, y) = np.empty((len(roots), self._maps.shape[-1])), added["place"][:2, :, None]
            for start in range(0, len(roots), 512):  # small enough for the cache
                part = slice(start, start + 512)
                maps = self._maps.take(roots[part], axis=0)
                np.multiply(maps[:, 0], x[part], out=value[part])
                value[part] += maps[:, 1] * y[part]
                value[part] += maps[:, 2]
            added["value"] = value.T
        self.vertices.append(len(roots), **added)

    def _crease(self, unit: int | np.ndarray, roots: np.ndarray) -> np.ndarray:
        """Returns the lines on which units are zero in cells, with normal vectors of length 1, and their errors."""
        line = np.empty((4, len(roots)))
        line[:3] = self._maps[roots, :, unit].T
        length = np.hypot(line[0], line[1])
        line[3] = self._map_error[roots]
        line /= length
        line[3] += 8 * EPSILON * self._size
        return line

    def _split(self, unit: int) -> None:
        """Splits the cells in which a unit has both signs."""
        edges, signs = self.edges, self.vertices["sign"][unit]
        index = edges["index"]
        first, second = signs.take(index[0]), signs.take(index[1])
        cut = (first * second < 0).nonzero()[0]
        touching = self.dim == 2 and self._touching[unit]
        if not (len(cut) or touching):
            return
        parts, before, count = index.take(cut, axis=1), first[cut], self.vertices.count
        if len(cut):
            self._add_vertices(unit, cut, parts)
        middle = np.arange(count, self.vertices.count)
        left, right = parts[2], parts[3]
        index[1, cut] = middle
        parts[0] = middle
        number = int(self.first_unit[self._stage]) + unit
        if self.dim == 1:
            parts[2:4] = np.arange(edges.count, edges.count + len(cut))
            parts[4], parts[5] = number, cut
            self.cells.append(len(cut), index=self.cells["index"].take(cut, axis=1))
            edges.append(len(cut), index=parts, line=edges["line"].take(cut, axis=1))
            return
        edges.append(len(cut), index=parts, line=edges["line"].take(cut, axis=1))
        total = np.empty(edges.count, dtype=np.int8)
        np.add(first, second, out=total[: len(first)])
        total[cut] = before
        total[len(first) :] = -before
        if touching:
            exits, leaving = self._crossings(unit, total)
        else:
            ahead = before > 0
            self.cells["index"][2][np.where(ahead, right, left)] = middle
            exits, leaving = np.where(ahead, left, right), middle
            if not exits.all():
                inside = exits != 0
                exits, leaving = exits[inside], leaving[inside]
        if not len(exits):
            return
        # Edges on the negative side of a cut cell belong to its new half.
        count = self.cells.count
        new = np.arange(count, count + len(exits))
        kept = self.cells["index"].take(exits, axis=1)
        roots, entering = kept[0], kept[2].copy()
        child = self.cells["index"][1]
        child[exits] = new
        halved = np.zeros(count, dtype=bool)
        halved[exits] = True
        below = total < 0
        for side in edges["index"][2:4]:
            moved = (halved.take(side) & below).nonzero()[0]
            side[moved] = child.take(side.take(moved))
        child[exits] = exits
        kept[1] = new
        self.cells.append(len(new), index=kept)
        added = np.empty((6, len(new)), dtype=np.intp)
        added[0], added[1], added[2], added[3], added[4], added[5] = leaving, entering, exits, new, number, exits
        edges.append(len(new), index=added, line=self._crease(unit, roots))

    def _crossings(self, unit: int, total: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Finds the cells that a unit cuts, and the vertices at which their positive part ends."""
        signs = self.vertices["sign"][unit]
        tail, head, left, right, _, _ = self.edges["index"]
        ends_at, starts_at = signs.take(head) == 0, signs.take(tail) == 0
        near = (ends_at != starts_at).nonzero()[0]
        at_head, left, right = ends_at[near], left[near], right[near]
        vertex = np.where(at_head, head[near], tail[near])
        positive = total[near] > 0
        exit_cells = np.where(at_head, left, right)  # the cell that goes along the edge towards the crease
        entry_cells = np.where(at_head, right, left)
        self.cells["index"][2][entry_cells[positive]] = vertex[positive]
        below = np.zeros(self.cells.count, dtype=bool)
        below[left[~positive]] = below[right[~positive]] = True
        chosen = positive & below[exit_cells] & (exit_cells != 0)
        return exit_cells[chosen], vertex[chosen]

    def _add_vertices(self, unit: int, cut: np.ndarray, parts: np.ndarray) -> None:
        """Adds the zeros of a unit on edges."""
        a, b, left, right, edge_unit, edge_cell = parts
        number = int(self.first_unit[self._stage]) + unit
        cells = cut if self.dim == 1 else np.maximum(left, right)
        roots = self.cells["index"][0][cells]
        lines = np.empty((4 if self.dim == 2 else 2, len(cut)), dtype=np.intp)
        lines[-2], lines[-1] = number, cells
        if self.dim == 2:
            lines[0], lines[1] = edge_unit, edge_cell
        skip = unit if self._is_last else 0
        maps, errors = self._maps.take(roots, axis=0).T[skip:], self._errors.take(roots, axis=1)
        line = self.edges["line"].take(cut, axis=1)
        place = self._intersect(line, lines, maps[unit - skip], errors[2])
        value = maps[:, 0] * place[0]
        value += maps[:, -1]
        if self.dim == 2:
            value += maps[:, 1] * place[1]
        spread = place[-2]
        error = errors[0] * spread
        error += errors[1]
        if self.dim == 1:
            error[(spread == 0) & (errors[2] == 0) & _is_exact(maps, place[:1])] = 0.0
        place[-1] = error
        signs = self.vertices["sign"]
        before, after = signs.take(a, axis=1), signs.take(b, axis=1)
        sign = np.sign(before + after)
        value[unit - skip] = 0.0
        first = unit + 1  # on a split edge, earlier units do not change their sign
        rest = value[first - skip :]
        opposite = np.zeros(sign.shape, dtype=bool)
        later = np.less(before[first:] * after[first:], 0, out=opposite[first:])
        np.copyto(sign[first:], np.sign(rest), where=later, casting="unsafe")
        if len(known := self.stages[self._stage].same_kink[0]):
            opposite[known] = False
        later &= np.abs(rest) < error
        self._resolve(lines, value, sign, opposite)
        self._copy_known_signs(sign)
        values = {} if self._is_last else {"value": value}
        self.vertices.append(len(cut), place=place, lines=lines, sign=sign, **values)

    def _intersect(self, line: np.ndarray, lines: np.ndarray, maps: np.ndarray, map_error: np.ndarray) -> np.ndarray:
        """Returns the zeros of affine maps on lines, and a bound of their distance from the exact ones."""
        place = np.empty((self.dim + 2, lines.shape[1]))
        point, spread = place[:-2], place[-2]
        if self.dim == 1:
            slope, offset = maps
            point[0] = -offset / slope + 0.0
            spread[:] = (map_error + 4 * EPSILON * np.abs(offset)) / np.abs(slope) * (1 + 1e-9)
            product, error = two_product(point[0], slope)
            spread[(product == -offset) & (error == 0) & (map_error == 0)] = 0.0
        else:
            length = np.hypot(maps[0], maps[1])
            c, d, f = maps / length
            p, q, r, error = line
            sine = p * d - q * c
            point[0], point[1] = q * f - r * d, r * c - p * f
            point /= sine
            error = error + map_error / length + 40 * EPSILON * self._size
            spread[:] = error / np.maximum(np.abs(sine) - 8 * EPSILON, 0.0) * (1 + 1e-9)
        lost = (~(spread <= ACCURACY * self._size)).nonzero()[0]
        if len(lost):  # nearly parallel lines
            found, ones = self._exact_points(lines[:, lost])
            for i, column, one in zip(lost.tolist(), found.T.tolist(), ones.tolist(), strict=True):
                point[:, i] = [value / one for value in column]
            spread[lost] = 2 * EPSILON * self._size
        return place

    def _store_patterns(self, patterns: np.ndarray) -> None:
        """Stores which units of the stage are active in each cell."""
        self._active = patterns.T
        self.patterns = np.concatenate([self.patterns.take(self.cells["index"][0], axis=0), patterns], axis=1)

    def _read_patterns(self) -> np.ndarray:
        """Returns which units of the stage are active in each cell, from the signs at its corners."""
        signs = self.vertices["sign"]
        tail, head, left, right, _, _ = self.edges["index"]
        if self.dim == 1:
            active = np.maximum(signs[:, tail], signs[:, head])
        else:
            cells = np.concatenate([left, right])
            order = np.argsort(cells)
            corners = np.concatenate([tail, head])[order]
            degree = np.bincount(cells, minlength=self.cells.count)
            start = np.cumsum(degree) - degree
            active = signs.take(corners[start], axis=1)
            # The first corner is on a crease: try the next ones.
            unit, cell = np.divmod(np.flatnonzero(active == 0), active.shape[1])
            step = 1
            while len(unit):
                more = step < degree[cell]
                unit, cell = unit[more], cell[more]
                found = signs[unit, corners[start[cell] + step]]
                active[unit, cell] = found
                unit, cell = unit[found == 0], cell[found == 0]
                step += 1
        return (active > 0).T

    def _activate_vertices(self, stage: Stage) -> np.ndarray:
        """Applies the activation of a stage to the cells. Returns the values at the vertices after it."""
        self._activate(stage)
        signs, value, error = self.vertices["sign"], self.vertices["value"], self.vertices["place"][-1]
        if slope := stage.slope:
            error[:] = max(1.0, abs(slope)) * (1 + 1e-9) * (error + EPSILON * np.abs(value).max(0))
            return value * np.where(signs > 0, 1.0, slope)
        error[(signs <= 0).all(0)] = 0.0
        return value * (signs > 0)

    def _activate(self, stage: Stage) -> None:
        """Applies the activation of a stage to the maps of the cells."""
        root, active = self.cells["index"][0], self._active.T[:, None]
        self._maps, self._map_errors = self._maps.take(root, axis=0), self._map_errors.take(root, axis=0)
        if slope := stage.slope:
            self._maps *= np.where(active, 1.0, slope)
            growth = max(1.0, abs(slope)) * (1 + 1e-9)
            self._map_errors = growth * (self._map_errors + EPSILON * np.abs(self._maps).max(-1))
        else:
            self._maps *= active
            self._map_errors[~self._active.any(0)] = 0.0

    def forms(self, stage: int, cell: int) -> np.ndarray:
        """Returns the affine maps of a stage on a cell, times a positive integer: one row per unit."""
        key = (stage, cell if stage else 0)
        if key not in self._forms:
            row = cell if cell < len(self.patterns) else int(self.cells["index"][0, cell])
            masks = np.split(self.patterns[row], self.first_unit[1:])[:stage]
            basis = np.zeros((self.dim, self.dim + 1), dtype=object)
            basis[range(self.dim), range(self.dim)] = 1
            ones = np.array([0] * self.dim + [1], dtype=object)
            self._forms[key], _ = exact_values(self.stages[: stage + 1], basis, ones, patterns=masks)
        return self._forms[key]

    def output_maps(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the affine map of each cell (outputs, columns, cells), and a bound of the error of each column.

        It can be called once.
        """
        if len(self.stages) > 1:
            self._activate(self.stages[-2])
        self._apply(self.stages[-1])
        return self._maps.T, self._map_errors.T

    @property
    def output_scale(self) -> int:
        """The integer that divides `forms` of the last stage."""
        scale = 1
        for stage in self.stages:
            scale <<= sum(shift for _, _, shift in stage.integer_maps)
            scale *= stage.slope.as_integer_ratio()[1] if stage.slope else 1
        return scale

    def _line(self, unit: int, cell: int) -> Sequence[int]:
        if unit < 0:
            return self._sides[-1 - unit]
        stage = int(self.stage_of_unit[unit])
        return self.forms(stage, cell)[unit - int(self.first_unit[stage])].tolist()

    def exact_points(self, vertices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns integer homogeneous coordinates of vertices: numerators, one row per coordinate, and denominators."""
        return self._exact_points(self.vertices["lines"][:, vertices])

    def _exact_points(self, lines: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = np.empty((self.dim + 1, lines.shape[1]), dtype=object)
        for i, row in enumerate(lines.T.tolist()):
            if self.dim == 1:
                slope, offset = self._line(*row)
                point = [-offset, slope]
            else:
                (a, b, c), (d, e, f) = self._line(*row[:2]), self._line(*row[2:])
                point = [b * f - c * e, c * d - a * f, a * e - b * d]
            divisor = math.gcd(*point) * (1 if point[-1] > 0 else -1)
            found[:, i] = [value // divisor for value in point]
        return found[:-1], found[-1]


def _side(axis: int, place: float, dim: int) -> list[int]:
    numerator, denominator = float(place).as_integer_ratio()
    return [denominator if i == axis else 0 for i in range(dim)] + [-numerator]


def _normal(line: Sequence[int]) -> list[float]:
    """Scales the coefficients of a line so that its normal vector has length 1."""
    length = max(abs(value) for value in line[:-1])  # sides of a box
    return [value / length for value in line]


def _is_exact(maps: np.ndarray, point: np.ndarray) -> np.ndarray:
    """Returns where affine maps of one variable have no rounding error."""
    product, product_error = two_product(maps[:, 0], point)
    _, sum_error = two_sum(maps[:, 1], product)
    return ((product_error == 0) & (sum_error == 0)).all(0)
