"""Splits an interval or a rectangle along the creases of a ReLU network, with exact signs.

Values before the activations are stored at the vertices, with a bound of their error. Where a value is smaller than the
bound, its sign is computed with integers: a vertex is the intersection of two lines whose coefficients are products of
weights, so it is rational, and its numerators grow with the depth only linearly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from lawful.theory._exact_layers import EPSILON, Stage, affine_values, exact_values, two_product, two_sum

ACCURACY = 1e-9  # of the coordinates of vertices, relative to the box


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

    def append(self, count: int, **values: np.ndarray | int) -> slice:
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
            self.cells = _Table(1, root=np.zeros(1, dtype=np.intp))
        else:
            (a, b), (c, d) = low, high
            points = np.array([[a, c, c, a], [b, b, d, d]], dtype=np.float64)
            lines = np.array([[-4, -1, -2, -3], [-1, -2, -3, -4]])
            lines = np.stack([lines[0], 0 * lines[0], lines[1], 0 * lines[1]])
            ends, cells = [[0, 1, 2, 3], [1, 2, 3, 0]], [[1] * 4, [0] * 4]
            self._sides = [_side(1, b, 2), _side(0, c, 2), _side(1, d, 2), _side(0, a, 2)]
            scratch = {name: np.zeros(2, dtype=np.intp) for name in ("entry", "child")}
            self.cells = _Table(2, root=np.zeros(2, dtype=np.intp), below=np.zeros(2, dtype=bool), **scratch)
        self._size = float(np.abs(points).max())
        nothing = np.zeros(points.shape[1])
        self.vertices = _Table(points.shape[1], point=points, line=lines, error=nothing, spread=nothing.copy())
        self.edges = _Table(
            len(ends[0]),
            tail=np.array(ends[0]),
            head=np.array(ends[1]),
            left=np.array(cells[0]),
            right=np.array(cells[1]),
            unit=-1 - np.arange(len(ends[0])),
            cell=np.zeros(len(ends[0]), dtype=np.intp),
            normal=np.array([_normal(side) for side in self._sides[: len(ends[0])]]).T,
            normal_error=np.full(len(ends[0]), 2 * EPSILON * self._size),
        )
        self.patterns = np.zeros((self.cells.count, 0), dtype=bool)
        self._forms: dict[tuple[int, int], np.ndarray] = {}
        self._stage = 0
        values = points
        # Affine map of each cell: its columns, and a bound of their errors.
        self._maps = np.repeat(np.eye(self.dim, self.dim + 1)[:, :, None], self.cells.count, axis=2)
        self._map_errors = np.zeros((self.dim + 1, self.cells.count))
        for i, stage in enumerate(stages[:-1]):
            self._enter(i, values)
            for unit in np.setdiff1d(np.arange(stage.dim), stage.same_kink[0]):
                self._split(int(unit))
            values = self._leave(stage)

    def _apply(self, stage: Stage) -> None:
        """Applies the affine maps of a stage to the maps of all cells."""
        ones = np.repeat(np.eye(self.dim + 1)[-1][:, None], self.cells.count, axis=1)
        columns = self._maps.reshape(len(self._maps), -1)
        columns, error = affine_values(stage.maps, columns, self._map_errors.ravel(), ones.ravel())
        self._maps = columns.reshape(len(columns), self.dim + 1, -1)
        self._map_errors = error.reshape(self.dim + 1, -1)

    def _enter(self, index: int, values: np.ndarray) -> None:
        """Computes the values of a stage at all vertices."""
        self._stage = index
        stage, vertices = self.stages[index], self.vertices
        value, error = affine_values(stage.maps, values, vertices["error"], np.ones(vertices.count))
        sign = np.sign(value).astype(np.int8)
        uncertain = (np.abs(value) <= error) & (error > 0)
        self._set_known_signs(sign, uncertain)
        self._resolve(np.arange(vertices.count), value, sign, uncertain)
        vertices.set(value=value, sign=sign, error=error)
        self._apply(stage)
        gradient = self._maps[:, :-1]
        self._gradient = np.abs(gradient).max(0).sum(0) + self._map_errors[:-1].sum(0)
        self._map_error = self._size * self._map_errors[:-1].sum(0) + self._map_errors[-1]
        cells = np.arange(self.cells.count)
        self.cells.set(root=cells)
        if self.dim == 2:
            self.cells.set(child=cells.copy())

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

    def _resolve(self, vertices: np.ndarray, value: np.ndarray, sign: np.ndarray, uncertain: np.ndarray) -> None:
        """Computes the signs of columns with an uncertain sign exactly."""
        columns = np.flatnonzero(uncertain.any(0))
        if len(columns):
            points, ones = self.exact_points(vertices[columns])
            exact, _ = exact_values(self.stages[: self._stage + 1], points, ones)
            sign[:, columns] = (exact > 0).astype(np.int8) - (exact < 0).astype(np.int8)
        self._copy_known_signs(sign)
        if len(columns):
            part = value[:, columns]
            value[:, columns] = np.where(np.sign(part) == sign[:, columns], part, 0.0)

    def _split(self, unit: int) -> None:
        """Splits the cells in which a unit has both signs."""
        edges, vertices = self.edges, self.vertices
        tail, head = edges["tail"], edges["head"]
        signs = vertices["sign"][unit]
        first, second = signs.take(tail), signs.take(head)
        cut = np.flatnonzero(first * second < 0)
        touching = bool((signs == 0).any()) if self.dim == 2 else False
        if not (len(cut) or touching):
            return
        a, b = tail[cut], head[cut]
        before = first[cut]
        count = vertices.count
        if len(cut):
            self._add_vertices(unit, cut, a, b)
        middle = np.arange(count, vertices.count)
        index = int(self.first_unit[self._stage]) + unit
        if self.dim == 1:
            cells = np.arange(edges.count, edges.count + len(cut))
            self.cells.append(len(cut), root=self.cells["root"][cut])
            edges["head"][cut] = middle
            edges.append(len(cut), tail=middle, head=b, left=cells, right=cells, unit=index, cell=cut)
            return
        total = first + second
        total[cut] = before
        left, right = edges["left"][cut], edges["right"][cut]
        edges["head"][cut] = middle
        edges.append(
            len(cut),
            tail=middle,
            head=b,
            left=left,
            right=right,
            unit=edges["unit"][cut],
            cell=edges["cell"][cut],
            normal=edges["normal"][:, cut],
            normal_error=edges["normal_error"][cut],
        )
        total = np.concatenate([total, -before])
        entry = self.cells["entry"]
        ahead = before > 0
        if touching:
            exits, leaving = self._crossings(unit, total)
        else:
            entry[np.where(ahead, right, left)] = middle
            exits, leaving = np.where(ahead, left, right), middle
            inside = exits != 0
            exits, leaving = exits[inside], leaving[inside]
        if not len(exits):
            return
        # Edges on the negative side of a cut cell belong to its new half.
        new = np.arange(self.cells.count, self.cells.count + len(exits))
        child = self.cells["child"]
        child[exits] = new
        negative = np.flatnonzero(total < 0)
        for name in ("left", "right"):
            side = edges[name]
            side[negative] = child.take(side.take(negative))
        child[exits] = exits
        entering = entry[exits]
        roots = self.cells["root"][exits]
        self.cells.append(len(new), root=roots, child=new, entry=0, below=False)
        line = self._maps[unit][:, roots]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            length = np.hypot(line[0], line[1])
            error = self._map_error[roots] / length + 8 * EPSILON * self._size
        edges.append(
            len(new),
            tail=leaving,
            head=entering,
            left=exits,
            right=new,
            unit=index,
            cell=exits,
            normal=line / length,
            normal_error=np.where(np.isfinite(error), error, np.inf),
        )

    def _crossings(self, unit: int, total: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Finds the cells that a unit cuts, and the vertices at which their positive part ends."""
        edges, signs = self.edges, self.vertices["sign"][unit]
        tail, head = edges["tail"], edges["head"]
        ends_at, starts_at = signs.take(head) == 0, signs.take(tail) == 0
        near = np.flatnonzero(ends_at != starts_at)
        at_head = ends_at[near]
        vertex = np.where(at_head, head[near], tail[near])
        left, right = edges["left"][near], edges["right"][near]
        positive = total[near] > 0
        exit_cells = np.where(at_head, left, right)  # the cell that goes along the edge towards the crease
        entry_cells = np.where(at_head, right, left)
        self.cells["entry"][entry_cells[positive]] = vertex[positive]
        below = self.cells["below"]
        below[left[~positive]] = below[right[~positive]] = True
        chosen = positive & below[exit_cells] & (exit_cells != 0)
        below[left] = below[right] = False
        return exit_cells[chosen], vertex[chosen]

    def _add_vertices(self, unit: int, cut: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
        """Adds the zeros of a unit on edges from `a` to `b`."""
        vertices, edges = self.vertices, self.edges
        cells = cut if self.dim == 1 else np.maximum(edges["left"][cut], edges["right"][cut])
        roots = self.cells["root"][cells]
        maps = self._maps[:, :, roots]
        index = np.full(len(cut), int(self.first_unit[self._stage]) + unit)
        line = np.stack([index, cells] if self.dim == 1 else [edges["unit"][cut], edges["cell"][cut], index, cells])
        point, spread = self._intersect(cut, line, maps[unit], roots)
        middle = maps[:, -1] + maps[:, 0] * point[0]
        if self.dim == 2:
            middle += maps[:, 1] * point[1]
        largest = np.abs(maps).max((0, 1))
        new_error = self._gradient[roots] * spread + self._map_error[roots] + 8 * EPSILON * (1 + self._size) * largest
        new_error *= 1 + 1e-9
        if self.dim == 1:
            known = (spread == 0) & (self._map_error[roots] == 0)
            new_error[known & _is_exact(maps, point)] = 0.0
        before, after = vertices["sign"].take(a, axis=1), vertices["sign"].take(b, axis=1)
        both = before + after
        opposite = before * after < 0
        new_sign = np.where(opposite, np.sign(middle), np.sign(both)).astype(np.int8)
        uncertain = opposite & (np.abs(middle) <= new_error) & (new_error > 0)
        new_sign[unit] = 0
        middle[unit] = 0.0
        uncertain[unit] = False
        uncertain[self.stages[self._stage].same_kink[0]] = False
        new = vertices.append(
            len(cut), point=point, spread=spread, line=line, error=new_error, value=middle, sign=new_sign
        )
        value, sign = vertices["value"][:, new], vertices["sign"][:, new]
        self._resolve(np.arange(new.start, new.stop), value, sign, uncertain)

    def _intersect(
        self, cut: np.ndarray, line: np.ndarray, maps: np.ndarray, roots: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the zeros of affine maps on edges, and a bound of their distance from the exact ones."""
        edges = self.edges
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            if self.dim == 1:
                slope, offset = maps
                point = (-offset / slope + 0.0)[None, :]
                spread = (self._map_error[roots] + 4 * EPSILON * np.abs(offset)) / np.abs(slope) * (1 + 1e-9)
                product, error = two_product(point[0], slope)
                spread[(product == -offset) & (error == 0) & (self._map_error[roots] == 0)] = 0.0
            else:
                length = np.hypot(maps[0], maps[1])
                c, d, f = maps / length
                p, q, r = edges["normal"][:, cut]
                sine = p * d - q * c
                point = np.stack([q * f - r * d, r * c - p * f]) / sine
                error = edges["normal_error"][cut] + self._map_error[roots] / length + 40 * EPSILON * self._size
                spread = error / np.maximum(np.abs(sine) - 8 * EPSILON, 0.0) * (1 + 1e-9)
        lost = np.flatnonzero(~(spread <= ACCURACY * self._size))
        if len(lost):  # nearly parallel lines
            found, ones = self._exact_points(line[:, lost])
            for i, column, one in zip(lost.tolist(), found.T.tolist(), ones.tolist(), strict=True):
                point[:, i] = [value / one for value in column]
            spread[lost] = 2 * EPSILON * self._size
        return point, spread

    def _leave(self, stage: Stage) -> np.ndarray:
        """Applies the activation of a stage to the values at the vertices and to the maps of the cells."""
        signs = self.vertices["sign"]
        tail, head = self.edges["tail"], self.edges["head"]
        if self.dim == 1:
            active = np.maximum(signs[:, tail], signs[:, head])
        else:
            cells = np.concatenate([self.edges["left"], self.edges["right"]])
            order = np.argsort(cells, kind="stable")
            corners = np.concatenate([tail, head])[order]
            start = np.searchsorted(cells[order], np.arange(self.cells.count + 1))
            degree = np.diff(start)
            active = signs[:, corners[start[:-1]]]
            unit, cell = np.nonzero(active == 0)  # the first corner is on a crease: try the next ones
            step = 1
            while len(unit):
                more = step < degree[cell]
                unit, cell = unit[more], cell[more]
                found = signs[unit, corners[start[cell] + step]]
                active[unit, cell] = found
                unit, cell = unit[found == 0], cell[found == 0]
                step += 1
        root = self.cells["root"]
        self.patterns = np.concatenate([self.patterns[root], active.T > 0], axis=1)
        slope, value, error = stage.slope or 0.0, self.vertices["value"], self.vertices["error"]
        factor = np.where(active > 0, 1.0, slope)
        self._maps = self._maps[:, :, root] * factor[:, None]
        self._map_errors = self._map_errors[:, root]
        if slope:
            growth = max(1.0, abs(slope)) * (1 + 1e-9)
            self._map_errors = growth * (self._map_errors + EPSILON * np.abs(self._maps).max(0))
            error[:] = growth * (error + EPSILON * np.abs(value).max(0))
        else:
            error[(signs <= 0).all(0)] = 0.0
            self._map_errors[:, (active <= 0).all(0)] = 0.0
        return np.where(signs > 0, value, slope * value if slope else 0.0)

    def forms(self, stage: int, cell: int) -> np.ndarray:
        """Returns the affine maps of a stage on a cell, times a positive integer: one row per unit."""
        key = (stage, cell if stage else 0)
        if key not in self._forms:
            row = cell if cell < len(self.patterns) else int(self.cells["root"][cell])
            masks = np.split(self.patterns[row], self.first_unit[1:])[:stage]
            basis = np.zeros((self.dim, self.dim + 1), dtype=object)
            basis[range(self.dim), range(self.dim)] = 1
            ones = np.array([0] * self.dim + [1], dtype=object)
            self._forms[key], _ = exact_values(self.stages[: stage + 1], basis, ones, patterns=masks)
        return self._forms[key]

    def output_maps(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the affine map of each cell (outputs, columns, cells), and a bound of the error of each column."""
        maps, errors = self._maps, self._map_errors
        self._apply(self.stages[-1])
        found = self._maps, self._map_errors
        self._maps, self._map_errors = maps, errors
        return found

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
        return self._exact_points(self.vertices["line"][:, vertices])

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
