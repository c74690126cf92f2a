r"""Piecewise-linear functions as ReLU networks: exact, with the fewest hidden units, and with a proof.

Let $f$ be continuous and piecewise linear on the real line, with breakpoints $t_1 < \dots < t_n$ and slopes
$s_0, \dots, s_n$, where $s_{i-1} \ne s_i$. For any breakpoint $t_k$,

$$f(x) = f(t_k) + s_k (x - t_k)^+ - s_{k-1} (t_k - x)^+
    + \sum_{i > k} (s_i - s_{i-1}) (x - t_i)^+ + \sum_{i < k} (s_i - s_{i-1}) (t_i - x)^+ .$$

This is a network with one hidden layer of $n + 1$ ReLUs, an output bias and no skip connection.

**Theorem.** For $n \ge 1$, the smallest number of hidden units is $n$ if there are $k_0 < k_1 < \dots < k_{2m}$ with
$s_{k_0} - s_{k_1} + s_{k_2} - \dots + s_{k_{2m}} = 0$, for example if one slope is zero, and $n + 1$ otherwise. A
constant needs no unit, and any other affine function needs two.

*Proof.* A unit $a \, (w x + b)^+$ with $a w \ne 0$ has a single kink, so each breakpoint needs a unit: at least $n$.
With exactly $n$, each breakpoint $t_i$ has one unit, which is $(s_i - s_{i-1})(x - t_i)^+$ or, with $i$ in a set $L$,
$(s_i - s_{i-1})(t_i - x)^+$. The slope of their sum at $-\infty$ is $-\sum_{i \in L} (s_i - s_{i-1})$. It must be
$s_0$. In $s_0 + \sum_{i \in L} (s_i - s_{i-1})$ the slopes at the ends of the runs of $\{0\} \cup L$ remain, with
alternating signs, the first and the last positive. Conversely, such slopes give $L$. The equation above shows that
$n + 1$ units are always enough. An affine function that is not constant has no kink, so one unit cannot represent it,
and $s x = s x^+ - s (-x)^+$. $\square$

Whether such slopes exist is the subset-sum problem, which is NP-complete. Zero slopes, signs, denominators and small
cases decide most functions. Otherwise the network has $n + 1$ units, and the proof says that $n$ is the lower bound.

A deep network of width 3 with $n - 1$ hidden layers is equal to $f$ as well: see `PiecewiseLinear.to_network`.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.data import read_table
from lawful.laws import Claim, agreement, convexity, shape
from lawful.theory._rounding import Number, build_sequential
from lawful.theory._subset_sum import Orientation, left_units
from lawful.theory.rational_network import RationalLayer, RationalNetwork

_Numbers = Sequence[Number] | np.ndarray | Tensor
_ZERO, _ONE = Fraction(0), Fraction(1)


def _to_integers(numbers: _Numbers, name: str) -> tuple[list[int], int]:
    """Writes finite numbers exactly as integers over a common denominator."""
    if isinstance(numbers, Tensor | np.ndarray):
        if numbers.ndim != 1:
            raise ValueError(f"{name} must have one dimension: got shape {tuple(numbers.shape)}")
        numbers = numbers.tolist()
    pairs = []
    for i, number in enumerate(numbers):
        try:
            pairs.append(number.as_integer_ratio())
        except (ValueError, OverflowError):
            reason = ": an infinite slope is a jump, and a ReLU network is continuous" if name == "slopes" else ""
            raise ValueError(f"{name} must be finite: {name}[{i}] is {number}{reason}") from None
        except AttributeError:
            raise TypeError(f"{name} must be numbers: {name}[{i}] is {number!r}") from None
    denominator = math.lcm(*{d for _, d in pairs})
    return [n * (denominator // d) for n, d in pairs], denominator


class PiecewiseLinear:
    """A continuous piecewise-linear function of one variable, stored exactly.

    A float stands for the rational number that it is: `0.1` is not one tenth, `fractions.Fraction(1, 10)` is.

    Args:
        knots: Increasing numbers.
        values: Values at the knots.
        left_slope: Slope to the left of the first knot. None continues the first segment.
        right_slope: Slope to the right of the last knot. None continues the last segment.

    Examples:
        >>> tent = PiecewiseLinear([0, 1, 3], [0, 1, 0], left_slope=0, right_slope=0)
        >>> tent.exact(2), tent(torch.tensor([-1.0, 0.5, 2.0])).tolist()
        (Fraction(1, 2), [0.0, 0.5, 0.5])
        >>> [str(t) for t in tent.breakpoints], [str(s) for s in tent.slopes]
        (['0', '1', '3'], ['0', '1', '-1/2', '0'])
    """

    def __init__(
        self, knots: _Numbers, values: _Numbers, *, left_slope: Number | None = None, right_slope: Number | None = None
    ) -> None:
        (self._x, self._x_scale), (self._y, self._y_scale) = (
            _to_integers(knots, "knots"),
            _to_integers(values, "values"),
        )
        if len(self._x) != len(self._y):
            raise ValueError(f"values must have one number per knot: got {len(self._x)} knots, {len(self._y)} values")
        if not self._x or (len(self._x) == 1 and (left_slope is None or right_slope is None)):
            raise ValueError(
                f"expected at least two knots, or one knot and both outer slopes: got {len(self._x)} knots"
            )
        for i, (a, b) in enumerate(pairwise(self._x)):
            if a >= b:
                first, second = knots[i], knots[i + 1]
                hint = "a repeated knot is a jump or redundant" if a == b else "sort the knots and the values with them"
                raise ValueError(f"knots must increase: knots[{i}]={first}, knots[{i + 1}]={second}; {hint}")
        # Slopes as pairs of integers, in units of x_scale / y_scale.
        slopes = [(b - a, d - c) for (a, b), (c, d) in zip(pairwise(self._y), pairwise(self._x), strict=True)]
        unit = Fraction(self._y_scale, self._x_scale)
        ends = []
        for name, slope, default in (("left_slope", left_slope, 0), ("right_slope", right_slope, -1)):
            if slope is None:
                ends.append(slopes[default])
            elif not math.isfinite(slope):
                raise ValueError(f"{name} must be finite: got {slope}")
            else:
                ends.append((Fraction(slope) * unit).as_integer_ratio())
        slopes = [ends[0], *slopes, ends[1]]
        self._breaks: list[int] = []  # indices of the knots where the slope changes
        self._slopes = [slopes[0]]
        for i, (rise, run) in enumerate(slopes[1:]):
            if rise * self._slopes[-1][1] != self._slopes[-1][0] * run:
                self._breaks.append(i)
                self._slopes.append((rise, run))

    @classmethod
    def from_slopes(cls, knots: _Numbers, slopes: _Numbers, *, value: Number = 0) -> PiecewiseLinear:
        """Builds a function from its slopes.

        Args:
            knots: Increasing numbers.
            slopes: Slopes to the left of the first knot, between the knots, and to the right of the last knot.
            value: Value at the first knot.

        Examples:
            >>> absolute = PiecewiseLinear.from_slopes([0], [-1, 1])
            >>> absolute.exact(-2)
            Fraction(2, 1)
        """
        (xs, x_scale), (ss, s_scale) = _to_integers(knots, "knots"), _to_integers(slopes, "slopes")
        if len(ss) != len(xs) + 1:
            raise ValueError(f"slopes must have one number more than knots: got {len(xs)} knots, {len(ss)} slopes")
        values = [Fraction(value)]
        for (a, b), s in zip(pairwise(xs), ss[1:], strict=False):
            values.append(values[-1] + Fraction(s * (b - a), x_scale * s_scale))
        return cls(knots, values, left_slope=Fraction(ss[0], s_scale), right_slope=Fraction(ss[-1], s_scale))

    @classmethod
    def from_csv(
        cls,
        path: str | Path,
        *,
        x: str | None = None,
        y: str | None = None,
        left_slope: Number | None = None,
        right_slope: Number | None = None,
    ) -> PiecewiseLinear:
        """Reads knots and values from two columns of a table: CSV, TSV, Parquet or NumPy.

        Args:
            path: File with increasing knots.
            x: Column of the knots. None for the first column.
            y: Column of the values. None for the second column.
            left_slope: Slope to the left of the first knot. None continues the first segment.
            right_slope: Slope to the right of the last knot. None continues the last segment.
        """
        table = read_table(Path(path))
        columns = []
        for i, (option, name) in enumerate((("x", x), ("y", y))):
            if name is None:
                if len(table.columns) < 2:
                    raise ValueError(f"{table.name} must have two columns: got {', '.join(table.columns) or 'none'}")
                name = list(table.columns)[i]
            if name not in table.columns:
                raise ValueError(f"{option}={name!r} is not a column of {table.name}: got {', '.join(table.columns)}")
            column = table.columns[name]
            if column.numbers is None or not np.isfinite(column.numbers).all():
                bad = 0 if column.numbers is None else int(np.argmin(np.isfinite(column.numbers)))
                raise ValueError(f"expected finite numbers in {table.place(bad, name)}")
            columns.append(column.numbers)
        return cls(columns[0], columns[1], left_slope=left_slope, right_slope=right_slope)

    @cached_property
    def knots(self) -> tuple[Fraction, ...]:
        """The knots."""
        return tuple(Fraction(x, self._x_scale) for x in self._x)

    @cached_property
    def values(self) -> tuple[Fraction, ...]:
        """Values at the knots."""
        return tuple(Fraction(y, self._y_scale) for y in self._y)

    @cached_property
    def breakpoints(self) -> tuple[Fraction, ...]:
        """Knots where the slope changes."""
        return tuple(Fraction(self._x[i], self._x_scale) for i in self._breaks)

    @cached_property
    def slopes(self) -> tuple[Fraction, ...]:
        """Slopes of the pieces, from left to right: one more than breakpoints."""
        return tuple(Fraction(rise * self._x_scale, run * self._y_scale) for rise, run in self._slopes)

    @cached_property
    def _orientation(self) -> Orientation:
        return left_units(self._slopes)

    @property
    def num_pieces(self) -> int:
        """Number of pieces."""
        return len(self._slopes)

    def exact(self, x: Number) -> Fraction:
        """Evaluates the function in rational arithmetic."""
        point = Fraction(x)
        piece = bisect_left(self._x, point * self._x_scale)
        if piece < len(self._x) and self._x[piece] == point * self._x_scale:
            return Fraction(self._y[piece], self._y_scale)
        knot = self._breaks[0] if self._breaks else 0
        region = bisect_right(self.breakpoints, point)
        if region:
            knot = self._breaks[region - 1]
        start = Fraction(self._x[knot], self._x_scale)
        return Fraction(self._y[knot], self._y_scale) + self.slopes[region] * (point - start)

    def __call__(self, x: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """Evaluates the function elementwise, in float64."""
        knots = torch.tensor([a / self._x_scale for a in self._x], dtype=torch.float64, device=x.device)
        values = torch.tensor([a / self._y_scale for a in self._y], dtype=torch.float64, device=x.device)
        unit = Fraction(self._x_scale, self._y_scale)
        ends = [float(Fraction(*self._slopes[i]) * unit) for i in (0, -1)]
        inner = (values.diff() / knots.diff()).tolist()
        slopes = torch.tensor([ends[0], *inner, ends[1]], dtype=torch.float64, device=x.device)
        region = torch.searchsorted(knots, x.double().contiguous(), right=True)
        start = (region - 1).clamp(min=0)
        return (values[start] + slopes[region] * (x.double() - knots[start])).to(x.dtype)

    def __repr__(self) -> str:
        return f"PiecewiseLinear({len(self._x)} knots, {self.num_pieces} pieces)"

    def _units(self) -> tuple[list[tuple[int, bool, int, int]], Fraction]:
        """Returns the units, as knot, whether it faces left, and output weight as two integers, and the output bias."""
        breaks, slopes = self._breaks, self._slopes
        if not breaks:
            rise, run = slopes[0]
            return [(0, True, -rise, run), (0, False, rise, run)] if rise else [], Fraction(self._y[0], self._y_scale)
        faces_left = self._orientation.left
        jumps = [(d * a - b * c, a * c) for (b, a), (d, c) in pairwise(slopes)]
        if faces_left is None:
            middle = len(breaks) // 2
            units = [(knot, i < middle, *jump) for i, (knot, jump) in enumerate(zip(breaks, jumps, strict=True))]
            (before, run_before), (after, run_after) = slopes[middle : middle + 2]
            units[middle : middle + 1] = [
                (breaks[middle], True, -before, run_before),
                (breaks[middle], False, after, run_after),
            ]
            return units, Fraction(self._y[breaks[middle]], self._y_scale)
        units = [(k, side, *jump) for k, side, jump in zip(breaks, faces_left, jumps, strict=True)]
        anchor = next((knot for knot, side in zip(breaks, faces_left, strict=True) if not side), breaks[-1])
        bias = Fraction(self._y[anchor])  # the value there, without the units that are active there
        for knot, side, rise, run in units:
            distance = (self._x[knot] - self._x[anchor]) * (1 if side else -1)
            if distance > 0:
                bias -= Fraction(rise * distance, run)
        return units, bias / self._y_scale

    def to_network(self, *, width: int | None = None) -> RationalNetwork:
        r"""Returns the exact network with rational weights.

        A deep network carries three numbers that are never negative, so that ReLU does not change them: the distance
        $z_i = (x - t_i)^+$ to the last breakpoint, and the sums $P$ and $N$ of the terms with positive and with
        negative weight. Each layer computes the next distance from the last one, for every $x$ on the real line:

        $$z_{i+1} = (z_i - (t_{i+1} - t_i))^+, \qquad f = f(t_1) + P - N .$$

        The first layer also has $(t_1 - x)^+$. A wider network computes `width` - 2 distances per layer.

        Reference: Hanin and Sellke, Approximating Continuous Functions by ReLU Nets of Minimal Width, 2017, for
            approximation with width 2 on a bounded interval.

        Args:
            width: Width of a deep network, at least 3. None for one hidden layer with the fewest units.

        Examples:
            >>> zigzag = PiecewiseLinear(range(6), [0, 1, 0, 1, 0, 1])
            >>> zigzag.to_network().hidden_dims, zigzag.to_network(width=3).hidden_dims
            ((5,), (3, 3, 3))
        """
        if width is not None:
            return self._deep_network(width)
        units, bias = self._units()
        scale, unit = self._x_scale, Fraction(self._x_scale, self._y_scale)
        hidden = RationalLayer(
            tuple((-_ONE if side else _ONE,) for _, side, _, _ in units),
            tuple(Fraction(self._x[k] if side else -self._x[k], scale) for k, side, _, _ in units),
        )
        weights = tuple(Fraction(rise * unit.numerator, run * unit.denominator) for _, _, rise, run in units)
        return RationalNetwork((hidden, RationalLayer((weights,), (bias,))))

    def _deep_network(self, width: int) -> RationalNetwork:
        if width < 3:
            raise ValueError(f"width must be at least 3: got {width}")
        t, s = (self.breakpoints, self.slopes) if self._breaks else (self.knots[:1], self.slopes * 2)
        jumps = [s[1], *(b - a for a, b in pairwise(s[1:]))]
        start = min(width - 1, len(t))
        layers = [RationalLayer(((-_ONE,), *(((_ONE,),) * start)), (t[0], *(-x for x in t[:start])))]
        sums: tuple[tuple[Fraction, ...], ...] = ((), ())  # rows that pass P and N on; the first layer has none
        terms, last, done = [-s[0], *jumps[:start]], t[start - 1], start  # weights of the other units of the last layer
        while done < len(t):
            stop = min(done + width - 2, len(t))
            positive, negative = ((*sums[i], *(max(sign * a, _ZERO) for a in terms)) for i, sign in ((0, 1), (1, -1)))
            distance = (_ZERO,) * (len(positive) - 1) + (_ONE,)
            biases = (_ZERO, _ZERO, *(last - x for x in t[done:stop]))
            layers.append(RationalLayer((positive, negative, *((distance,) * (stop - done))), biases))
            sums, terms, last, done = ((_ONE, _ZERO), (_ZERO, _ONE)), jumps[done:stop], t[stop - 1], stop
        output = (*((_ONE, -_ONE) if sums[0] else ()), *terms)
        anchor = self._breaks[0] if self._breaks else 0
        layers.append(RationalLayer((output,), (Fraction(self._y[anchor], self._y_scale),)))
        return RationalNetwork(tuple(layers))


def compile_piecewise_linear(
    knots: _Numbers | PiecewiseLinear,
    values: _Numbers | None = None,
    *,
    slopes: _Numbers | None = None,
    left_slope: Number | None = None,
    right_slope: Number | None = None,
    width: int | None = None,
    dtype: torch.dtype | None = None,
) -> nn.Sequential:
    """Builds the ReLU network that is equal to a piecewise-linear function on the whole real line.

    With one hidden layer it has the fewest hidden units: as many as breakpoints, or one more. If a bounded search does
    not decide which, it has one more, and `minimal` of `prove_piecewise_linear` is False. The hidden weights are 1 and
    -1, the biases are knots, and the other weights are rounded to `dtype`. The proof bounds the rounding.

    Reference: Arora, Basu, Mianjy and Mukherjee, Understanding Deep Neural Networks with Rectified Linear Units, 2018,
        theorem 2.2.

    Args:
        knots: Increasing numbers, or a `PiecewiseLinear`.
        values: Values at the knots.
        slopes: Instead of `values`: slopes to the left of the first knot, between the knots, and to the right of the
            last knot. The value at the first knot is 0.
        left_slope: Slope to the left of the first knot. None continues the first segment.
        right_slope: Slope to the right of the last knot. None continues the last segment.
        width: Width of a deep network, at least 3. None for one hidden layer.
        dtype: Dtype of the network. None for PyTorch's default dtype.

    Examples:
        >>> compile_piecewise_linear([0, 1, 3], [0, 1, 0], left_slope=0, right_slope=0)
        Sequential(
          (0): Linear(in_features=1, out_features=3, bias=True)
          (1): ReLU()
          (2): Linear(in_features=3, out_features=1, bias=True)
        )
        >>> absolute = compile_piecewise_linear([0], slopes=[-1, 1])
        >>> absolute(torch.tensor([[-2.0], [3.0]])).tolist()
        [[2.0], [3.0]]
    """
    if isinstance(knots, PiecewiseLinear):
        if not (values is slopes is left_slope is right_slope is None):
            raise ValueError("a PiecewiseLinear has its values and slopes: leave out the other arguments")
        function = knots
    elif values is not None and slopes is None:
        function = PiecewiseLinear(knots, values, left_slope=left_slope, right_slope=right_slope)
    elif values is not None or slopes is None:
        raise ValueError(f"expected either values or slopes: got {'neither' if values is None else 'both'}")
    elif left_slope is None and right_slope is None:
        function = PiecewiseLinear.from_slopes(knots, slopes)
    else:
        raise ValueError("slopes contains the outer slopes: leave out left_slope and right_slope")
    if width is not None:
        return function.to_network(width=width).to_module(dtype)
    units, bias = function._units()
    unit = Fraction(function._x_scale, function._y_scale)
    try:
        knots_of_units = np.array([function._x[k] / function._x_scale for k, *_ in units])
        # Division of integers rounds correctly.
        weights = [(rise * unit.numerator) / (run * unit.denominator) for _, _, rise, run in units]
        output = (np.array(weights).reshape(1, -1), np.array([float(bias)]))
    except OverflowError:
        raise ValueError("a weight of the network is larger than any float: scale the function") from None
    signs = np.array([-1.0 if side else 1.0 for _, side, _, _ in units])
    return build_sequential([(signs.reshape(-1, 1), -signs * knots_of_units), output], dtype=dtype)


def claims() -> Iterator[Claim]:
    """Laws that compiled networks satisfy."""
    zigzag = PiecewiseLinear([-2, -1, 0, 1, 2], [1, -1, 2, 0, 0.5])
    convex = PiecewiseLinear.from_slopes([-1, 0, 2], [-2, -0.5, 0.25, 3])
    for function in (zigzag, convex):
        for width in (None, 3):
            network = partial(_compile_and_call, function, width)
            yield Claim(agreement(other=function), network, shape("b 1"), name=f"width={width}")
    yield Claim(convexity(), partial(_compile_and_call, convex, None), shape("b 1"), name="convex function")


def _compile_and_call(function: PiecewiseLinear, width: int | None, x: Tensor) -> Tensor:
    return compile_piecewise_linear(function, width=width, dtype=x.dtype)(x)
