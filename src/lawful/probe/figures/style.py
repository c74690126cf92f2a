"""How figures look, and how they are saved: the same data always give the same file."""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Numbers = Tensor | np.ndarray | Sequence[Any]
Interval = Mapping[str, float]
"""An estimate as it is written to a file: `value`, `low` and `high`."""

BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, YELLOW, GREY = PALETTE = (
    *("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442", "#777777"),
)
"""The colours of Okabe and Ito, which look different to the colour-blind too."""
MARKERS = "osD^vPX*"
"""One for each colour, so that nothing hangs on colours alone."""
SEQUENTIAL = "cividis"
"""The colours of what has an order, and that look alike to all."""


def drawing(
    rows: int = 1, columns: int = 1, *, size: tuple[float, float] = (8.0, 5.0), heights: tuple[int, ...] | None = None
) -> tuple[Figure, Any]:
    """Makes a figure, 800 pixels wide unless told otherwise, and its axes: one, a row of them, or a grid.

    Rows of different heights share what is along them.

    Examples:
        >>> figure, axes = drawing()
        >>> figure.get_size_inches().tolist()
        [8.0, 5.0]
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=100, layout="constrained")
    grid = figure.subplots(rows, columns, sharex="col" if heights else "none", height_ratios=heights, squeeze=False)
    return figure, grid if rows > 1 and columns > 1 else grid.ravel() if grid.size > 1 else grid[0, 0]


def labelled(axes: Axes, *, x: str, y: str, title: str = "") -> None:
    """Names the axes, and takes away what is not needed around them."""
    axes.set_xlabel(x, fontsize=12)
    axes.set_ylabel(y, fontsize=12)
    axes.set_title(title, fontsize=13)
    axes.tick_params(labelsize=11)
    axes.spines[["top", "right"]].set_visible(False)


def array(x: Numbers) -> np.ndarray:
    """Returns plain numbers, wherever they come from.

    Examples:
        >>> import torch
        >>> array(torch.ones(2, requires_grad=True))
        array([1., 1.])
    """
    return np.asarray(x.detach().cpu() if isinstance(x, Tensor) else x, dtype=float)


def words(name: object, *, most: int = 18) -> str:
    r"""Returns a name as text that is drawn as it stands, and not too long.

    Examples:
        >>> words("costs $5"), words("a" * 30)
        ('costs \\$5', 'aaaaaaaaaaaaaaaaa…')
    """
    text = " ".join(str(name).split())
    return (text if len(text) <= most else text[: most - 1] + "…").replace("$", r"\$")


def names_of(names: Sequence[object] | None, n: int) -> list[str]:
    """Returns the names of classes, or their numbers."""
    if names is not None and len(names) != n:
        raise ValueError(f"{n} names were wanted: got {len(names)}")
    return [words(name) for name in (range(n) if names is None else names)]


def as_svg(figure: Figure) -> str:
    """Returns a figure as SVG text, with no date in it and no name that is drawn at random.

    Examples:
        >>> figure, axes = drawing()
        >>> as_svg(figure) == as_svg(figure), "<svg" in as_svg(figure)
        (True, True)
    """
    return _saved(figure, "svg", {"Date": None, "Creator": None}).decode()


def save(figure: Figure, path: str | Path) -> None:
    """Writes a figure to a file, as `.svg` or `.png`; the same figure gives the same bytes."""
    path = Path(path)
    if path.suffix == ".svg":
        path.write_text(as_svg(figure), encoding="utf-8", newline="\n")
    elif path.suffix == ".png":
        path.write_bytes(_saved(figure, "png", {"Software": None}))
    else:
        raise ValueError(f"a file that ends in .svg or .png was wanted: got {path.name!r}")


def _saved(figure: Figure, form: str, metadata: dict[str, None]) -> bytes:
    from matplotlib import rc_context

    file = io.BytesIO()
    with rc_context({"svg.hashsalt": "lawful", "svg.fonttype": "path"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(file, format=form, metadata=metadata)
    return file.getvalue()
