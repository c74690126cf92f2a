r"""The linear regions of a ReLU network on a segment, a rectangle or a slice, enumerated exactly.

A unit is *active* at a point if its value before the ReLU is positive. On a cell, where each unit is either active
everywhere inside or nowhere, the network is an affine map. Two things are counted:

- *Activation regions*: the cells. Each has its own activation pattern, and is convex.
- *Linear regions*: cells that share an edge and have the same affine map are merged. A dead unit, two units that cancel
  or a unit that the next layer ignores change the pattern, and not the map.

The weights are floats, so they are rational numbers, and the regions of the network with these rational weights are
what is counted. Values are computed in float64 with a bound of their error. If a sign or an equality is not certain, it
is decided in integer arithmetic. Creases that coincide, meet in a point or are parallel are therefore treated exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lawful.theory._exact_layers import Stage, read_stages
from lawful.theory._subdivision import Subdivision
from lawful.theory.rational_network import RationalLayer

_Vector = Sequence[float] | np.ndarray | Tensor


@dataclass(frozen=True)
class Region:
    """An activation region."""

    vertices: Float[Tensor, "v d"]
    """Ends of the interval, or corners of the polygon, counterclockwise."""
    pattern: Bool[Tensor, "units"]
    """Which hidden units are active, from the first layer to the last one."""
    weight: Float[Tensor, "out d"]
    """Weight of the network on the region."""
    bias: Float[Tensor, "out"]
    """Bias of the network on the region."""
    linear_region: int
    """Index of the linear region that contains it."""


class LinearRegions:
    """Activation regions of a network in one or two coordinates, and the linear regions that they make up.

    Functions that build it: `regions_on_segment`, `regions_in_box` and `regions_on_plane`.

    Examples:
        >>> network = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1)).double()
        >>> for parameter, values in zip(network.parameters(), ([[1.0], [1.0]], [0.0, -1.0], [[1.0, 0.0]], [0.0])):
        ...     parameter.data = torch.tensor(values).double()
        >>> regions = regions_on_segment(network, -1, 3)  # relu(x) + 0 relu(x - 1)
        >>> [region.vertices.flatten().tolist() for region in regions]
        [[-1.0, 0.0], [0.0, 1.0], [1.0, 3.0]]
        >>> regions.num_activation_regions, regions.num_linear_regions
        (3, 2)
    """

    def __init__(self, stages: Sequence[Stage], low: Sequence[float], high: Sequence[float]) -> None:
        self._stages = stages
        self._grid = Subdivision(stages, low, high)
        self._first = self._grid.dim - 1  # in the plane, cell 0 is outside
        self._tail, self._head = self._grid.edges["index"][:2]
        self._order = _order_intervals(self._grid) if self._grid.dim == 1 else np.arange(1, self._grid.cells.count)

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return self._grid.dim

    @property
    def num_activation_regions(self) -> int:
        """Number of activation regions."""
        return len(self._order)

    @property
    def num_linear_regions(self) -> int:
        """Number of linear regions."""
        return int(self.linear_regions.max()) + 1

    @cached_property
    def vertices(self) -> Float[Tensor, "v d"]:
        """All vertices. The bound of their error is at most 1e-6 times the largest coordinate of the box."""
        return torch.from_numpy(np.ascontiguousarray(self._grid.vertices["place"][: self.dim].T))

    @cached_property
    def patterns(self) -> Bool[Tensor, "regions units"]:
        """Activation pattern of each region."""
        return torch.from_numpy(self._grid.patterns[self._order])

    @cached_property
    def unit_layers(self) -> Int[Tensor, "units"]:
        """Hidden layer of each unit, from 0."""
        return torch.from_numpy(self._grid.stage_of_unit)

    @cached_property
    def edges(self) -> Int[Tensor, "edges 2"]:
        """Indices of the two vertices of each edge. On a segment, the edges are the regions."""
        ends = np.stack([self._tail, self._head], axis=1)
        return torch.from_numpy(ends[self._order] if self.dim == 1 else ends)

    @cached_property
    def edge_units(self) -> Int[Tensor, "edges"]:
        """The unit on whose crease each edge of a polygon is; -1 for the boundary."""
        if self.dim == 1:
            raise ValueError("edges of regions on a segment are no creases: use vertices")
        return torch.from_numpy(np.maximum(self._grid.edges["index"][4], -1))

    @cached_property
    def edge_regions(self) -> Int[Tensor, "edges 2"]:
        """The regions to the left and to the right of each edge of a polygon; -1 is outside."""
        if self.dim == 1:
            raise ValueError("edges of regions on a segment are the regions")
        return torch.from_numpy(self._grid.edges["index"][2:4].T - 1)

    @cached_property
    def corners(self) -> list[np.ndarray]:
        """Indices of the vertices of each region: both ends, or the corners counterclockwise."""
        if self.dim == 1:
            return list(self.edges.numpy())
        return _polygons(self._grid)

    @cached_property
    def sizes(self) -> Float[Tensor, "regions"]:
        """Lengths of the intervals or areas of the polygons."""
        points, edges = self.vertices.numpy(), self.edges.numpy()
        if self.dim == 1:
            return torch.from_numpy(np.diff(points[edges, 0], axis=1)[:, 0])
        (x, y), (u, v) = (points[ends].T - points[:1].T for ends in edges.T)
        areas = np.zeros(self._grid.cells.count)
        for cells, sign in zip(self._grid.edges["index"][2:4], (0.5, -0.5), strict=True):
            areas += np.bincount(cells, sign * (x * v - u * y), len(areas))
        return torch.from_numpy(areas[1:])

    @cached_property
    def _affine_maps(self) -> tuple[np.ndarray, np.ndarray]:
        """Affine maps of all cells, and bounds of the errors of their entries."""
        return self._grid.output_maps()

    @cached_property
    def weight(self) -> Float[Tensor, "regions out d"]:
        """Weight of the network on each region, in the coordinates of the regions."""
        return torch.from_numpy(self._affine_maps[0][:, :-1, self._order].transpose(2, 0, 1).copy())

    @cached_property
    def bias(self) -> Float[Tensor, "regions out"]:
        """Bias of the network on each region, in the coordinates of the regions."""
        return torch.from_numpy(self._affine_maps[0][:, -1, self._order].T.copy())

    @cached_property
    def linear_regions(self) -> Int[Tensor, "regions"]:
        """Index of the linear region that contains each activation region."""
        if self.dim == 1:
            first, second = self._order[:-1], self._order[1:]
        else:
            first, second = self._grid.edges["index"][2:4]
            inner = (first > 0) & (second > 0)
            first, second = first[inner], second[inner]
        maps, errors = self._affine_maps
        slack = errors[:, first] + errors[:, second]
        same = np.ones(len(first), dtype=bool)
        for row in maps:
            same &= (np.abs(row[:, first] - row[:, second]) <= slack).all(0)
        parent = np.arange(self._grid.cells.count)
        last = len(self._stages) - 1
        for a, b in zip(first[same].tolist(), second[same].tolist(), strict=True):
            a, b = _root(parent, a), _root(parent, b)
            if a != b and (self._grid.forms(last, a) == self._grid.forms(last, b)).all():
                parent[max(a, b)] = min(a, b)
        while (parent[parent] != parent).any():
            parent = parent[parent]
        roots, places, labels = np.unique(parent[self._order], return_index=True, return_inverse=True)
        rank = np.empty(len(roots), dtype=np.int64)
        rank[np.argsort(places)] = np.arange(len(roots))
        return torch.from_numpy(rank[labels])

    def exact_vertex(self, index: int) -> tuple[Fraction, ...]:
        """Returns the coordinates of a vertex as rational numbers.

        Args:
            index: Index in `vertices`.
        """
        points, ones = self._grid.exact_points(np.array([range(len(self.vertices))[index]]))
        return tuple(Fraction(value, ones[0]) for value in points[:, 0])

    def exact_map(self, index: int) -> RationalLayer:
        """Returns the affine map of a region with rational entries.

        Args:
            index: Index of the region.
        """
        rows = self._grid.forms(len(self._stages) - 1, int(self._order[index]))
        scale = self._grid.output_scale
        return RationalLayer(
            tuple(tuple(Fraction(value, scale) for value in row[:-1]) for row in rows.tolist()),
            tuple(Fraction(value, scale) for value in rows[:, -1].tolist()),
        )

    def __len__(self) -> int:
        return self.num_activation_regions

    def __getitem__(self, index: int) -> Region:
        index = range(len(self))[index]
        return Region(
            self.vertices[self.corners[index]],
            self.patterns[index],
            self.weight[index],
            self.bias[index],
            int(self.linear_regions[index]),
        )

    def __iter__(self) -> Iterator[Region]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return (
            f"LinearRegions({self.num_activation_regions} activation regions, {self.num_linear_regions} linear regions)"
        )


def _root(parent: np.ndarray, cell: int) -> int:
    while parent[cell] != cell:
        cell = int(parent[cell])
    return cell


def _order_intervals(grid: Subdivision) -> np.ndarray:
    """Sorts intervals from left to right."""
    tail, head = grid.edges["index"][:2]
    order = np.argsort(grid.vertices["place"][0, tail], kind="stable")
    if (head[order[:-1]] == tail[order[1:]]).all():
        return order
    follower = dict(zip(tail.tolist(), range(len(tail)), strict=True))  # some ends have the same rounding
    chain = [follower[0]]
    while (end := int(head[chain[-1]])) in follower:
        chain.append(follower[end])
    return np.array(chain)


def _polygons(grid: Subdivision) -> list[np.ndarray]:
    """Returns the corners of each cell but the outside, counterclockwise."""
    tail, head, left, right, _, _ = grid.edges["index"]
    cells, starts, ends = (np.concatenate(pair) for pair in ((left, right), (tail, head), (head, tail)))
    by_start, by_end = np.lexsort((starts, cells)), np.lexsort((ends, cells))
    follower = np.empty(len(cells), dtype=np.intp)
    follower[by_end] = by_start  # the side that starts where a side of the same cell ends
    _, current, degree = np.unique(cells, return_index=True, return_counts=True)
    found = np.zeros((len(degree), int(degree[1:].max())), dtype=np.intp)
    for step in range(found.shape[1]):
        found[:, step] = starts[current]
        current = follower[current]
    return [row[:count] for row, count in zip(found[1:], degree[1:].tolist(), strict=True)]


def regions_on_segment(network: nn.Module, start: float | _Vector, end: float | _Vector) -> LinearRegions:
    r"""Enumerates the regions of a network on a segment.

    The coordinate is $x$ if the network has one input, and $t \in [0, 1]$ on $(1 - t) \, a + t \, b$ otherwise.

    Args:
        network: `Sequential` of `Linear`, `ReLU`, `LeakyReLU`, `Identity`, `Flatten` and `Dropout` in eval mode.
        start: First point $a$: a number if the network has one input.
        end: Last point $b$.

    Examples:
        >>> from lawful.theory import compile_piecewise_linear
        >>> network = compile_piecewise_linear([0, 1, 3], [0, 1, 0], left_slope=0, right_slope=0)
        >>> regions = regions_on_segment(network, -1, 4)
        >>> [tuple(str(x) for x in regions.exact_vertex(i)) for i in regions.edges[:, 0]]
        [('-1',), ('0',), ('1',), ('3',)]
        >>> regions.weight.flatten().tolist()
        [0.0, 1.0, -0.5, 0.0]
    """
    stages = read_stages(network)
    size = _in_features(stages)
    a, b = _to_vector(start, size, "start"), _to_vector(end, size, "end")
    if (a == b).all():
        raise ValueError("start and end must differ: the segment is a point")
    if size == 1:
        if a[0] > b[0]:
            raise ValueError(f"start must be less than end: got {a[0]} and {b[0]}")
        return LinearRegions(stages, a.tolist(), b.tolist())
    split = (np.array([[-1.0], [1.0]]), np.array([1.0, 0.0]))  # t to (1 - t, t) has no rounding
    return LinearRegions(_after([split, (np.stack([a, b], axis=1), np.zeros(size))], stages), [0.0], [1.0])


def regions_in_box(network: nn.Module, low: _Vector = (-1.0, -1.0), high: _Vector = (1.0, 1.0)) -> LinearRegions:
    """Enumerates the regions of a network of two inputs in a box.

    Args:
        network: `Sequential` of `Linear`, `ReLU`, `LeakyReLU`, `Identity`, `Flatten` and `Dropout` in eval mode.
        low: Lower corner.
        high: Upper corner.

    Examples:
        >>> from lawful.theory import compile_max_affine
        >>> network = compile_max_affine([[1, 0], [0, 1], [0, 0]], [0, 0, 0])  # max(x, y, 0)
        >>> regions = regions_in_box(network)
        >>> regions.num_activation_regions, regions.num_linear_regions
        (5, 3)
        >>> round(float(regions.sizes.sum()), 6)
        4.0
    """
    stages = read_stages(network)
    if (size := _in_features(stages)) != 2:
        raise ValueError(f"network must have 2 inputs: got {size}; regions_on_plane takes a slice of its inputs")
    return LinearRegions(stages, *_to_box(low, high))


def regions_on_plane(
    network: nn.Module,
    origin: _Vector,
    directions: Sequence[_Vector] | Tensor | np.ndarray,
    *,
    low: _Vector = (-1.0, -1.0),
    high: _Vector = (1.0, 1.0),
) -> LinearRegions:
    r"""Enumerates the regions of a network on a rectangle of a plane.

    The coordinates are $(s, t)$ of the points $o + s u + t v$.

    Args:
        network: `Sequential` of `Linear`, `ReLU`, `LeakyReLU`, `Identity`, `Flatten` and `Dropout` in eval mode.
        origin: Point $o$, of any shape with as many entries as the network has inputs.
        directions: Vectors $u$ and $v$.
        low: Lower corner in the coordinates.
        high: Upper corner in the coordinates.

    Examples:
        >>> from lawful.theory import compile_max_affine
        >>> network = compile_max_affine([[1, 0, 0], [0, 1, 0], [0, 0, 1]], [0, 0, 0])  # max(x, y, z)
        >>> regions = regions_on_plane(network, [0, 0, 0], [[1, 0, -1], [0, 1, -1]])
        >>> regions.num_linear_regions
        3
    """
    stages = read_stages(network)
    size = _in_features(stages)
    center = _to_vector(origin, size, "origin")
    if len(directions) != 2:
        raise ValueError(f"directions must have two vectors: got {len(directions)}")
    plane = np.stack([_to_vector(vector, size, f"directions[{i}]") for i, vector in enumerate(directions)], axis=1)
    if not _independent(plane):
        raise ValueError("directions must be linearly independent: they span a line or a point")
    return LinearRegions(_after([(plane, center)], stages), *_to_box(low, high))


def _independent(columns: np.ndarray) -> bool:
    """Returns whether two columns are linearly independent, exactly."""
    u, v = ([Fraction(value) for value in column] for column in columns.T.tolist())
    pivot = next((i for i, value in enumerate(u) if value), None)
    return pivot is not None and any(a * v[pivot] != b * u[pivot] for a, b in zip(u, v, strict=True))


def _in_features(stages: Sequence[Stage]) -> int:
    return stages[0].maps[0][0].shape[1]


def _after(maps: list[tuple[np.ndarray, np.ndarray]], stages: Sequence[Stage]) -> list[Stage]:
    first, *others = stages
    return [Stage((*maps, *first.maps), first.slope, first.dim), *others]


def _to_vector(values: float | _Vector, size: int, name: str) -> np.ndarray:
    tensor = values.detach().cpu() if isinstance(values, Tensor) else values
    vector = np.atleast_1d(np.asarray(tensor, dtype=np.float64)).ravel()
    if len(vector) != size:
        raise ValueError(f"{name} must have {size} entries, as many as the network has inputs: got {len(vector)}")
    if not np.isfinite(vector).all():
        raise ValueError(f"{name} must be finite: got {vector.tolist() if size < 5 else 'an entry that is not'}")
    return vector


def _to_box(low: _Vector, high: _Vector) -> tuple[list[float], list[float]]:
    corners = []
    for name, values in (("low", low), ("high", high)):
        vector = np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values, dtype=np.float64)
        if vector.shape != (2,):
            raise ValueError(f"{name} must have 2 entries: got shape {vector.shape}")
        if not np.isfinite(vector).all():
            raise ValueError(f"{name} must be finite, since only bounded boxes are enumerated: got {vector.tolist()}")
        corners.append(vector.tolist())
    if not all(a < b for a, b in zip(*corners, strict=True)):
        raise ValueError(f"low must be less than high: got {corners[0]} and {corners[1]}")
    return corners[0], corners[1]
