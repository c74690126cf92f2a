"""Style and saving of figures. The same data always give the same file."""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from lawful._files import write_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Numbers = Tensor | np.ndarray | Sequence[Any]
Interval = Mapping[str, float]
"""A confidence interval as a mapping with `value`, `low` and `high`."""

BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, YELLOW, GRAY = PALETTE = (
    *("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442", "#777777"),
)
"""The colorblind-safe palette of Okabe and Ito."""
MARKERS = "osD^vPX*"
"""One marker per color, so that colors are never the only distinction."""
SEQUENTIAL = "cividis"
"""Sequential colormap that is perceptually uniform for all."""


def new_figure(
    rows: int = 1, columns: int = 1, *, size: tuple[float, float] = (8.0, 5.0), heights: tuple[int, ...] | None = None
) -> tuple[Figure, Any]:
    """Creates a figure and its axes: a single one, a row, or a grid. The default size is 800 x 500 pixels.

    Rows with height ratios share the x-axis.

    Examples:
        >>> figure, axes = new_figure()
        >>> figure.get_size_inches().tolist()
        [8.0, 5.0]
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=100, layout="constrained")
    grid = figure.subplots(rows, columns, sharex="col" if heights else "none", height_ratios=heights, squeeze=False)
    return figure, grid if rows > 1 and columns > 1 else grid.ravel() if grid.size > 1 else grid[0, 0]


def label_axes(axes: Axes, *, x: str, y: str, title: str = "") -> None:
    """Sets the labels and the title, writes numbers up to a billion out, and removes the top and right spines."""
    from matplotlib.ticker import ScalarFormatter

    axes.set_xlabel(x, fontsize=12)
    axes.set_ylabel(y, fontsize=12)
    axes.set_title(title, fontsize=13)
    axes.tick_params(labelsize=11)
    for axis in (axes.xaxis, axes.yaxis):
        formatter = axis.get_major_formatter()
        if type(formatter) is ScalarFormatter:  # a subclass has its own rules
            formatter.set_powerlimits((-4, 9))
    axes.spines[["top", "right"]].set_visible(False)


def to_numpy(x: Numbers) -> np.ndarray:
    """Converts a tensor or a sequence to a NumPy array of floats.

    Examples:
        >>> import torch
        >>> to_numpy(torch.ones(2, requires_grad=True))
        array([1., 1.])
    """
    return np.asarray(x.detach().cpu() if isinstance(x, Tensor) else x, dtype=float)


def shorten_label(name: object, *, max_length: int = 18) -> str:
    r"""Returns a label without mathtext, cut to a maximum length.

    Examples:
        >>> shorten_label("costs $5"), shorten_label("a" * 30)
        ('costs \\$5', 'aaaaaaaaaaaaaaaaa…')
    """
    text = " ".join(str(name).split())
    return (text if len(text) <= max_length else text[: max_length - 1] + "…").replace("$", r"\$")


def labels_or_indices(names: Sequence[object] | None, n: int) -> list[str]:
    """Returns the names, or the indices if there are none."""
    if names is not None and len(names) != n:
        raise ValueError(f"expected {n} names, got {len(names)}")
    return [shorten_label(name) for name in (range(n) if names is None else names)]


def as_svg(figure: Figure) -> str:
    """Returns a figure as reproducible SVG text, without date and random ids.

    Examples:
        >>> figure, axes = new_figure()
        >>> as_svg(figure) == as_svg(figure), "<svg" in as_svg(figure)
        (True, True)
    """
    return _render(figure, "svg", {"Date": None, "Creator": None}).decode()


def save(figure: Figure, path: str | Path, *, root: Path | None = None) -> None:
    """Saves a figure as `.svg` or `.png`, reproducibly.

    Args:
        figure: The figure.
        path: The file.
        root: Folder below which symbolic links are not followed, such as that of a run.
    """
    path = Path(path)
    if path.suffix not in (".svg", ".png"):
        raise ValueError(f"path must end in .svg or .png, got {path.name!r}")
    data = as_svg(figure) if path.suffix == ".svg" else _render(figure, "png", {"Software": None})
    write_file(path, data, root=root)


def _render(figure: Figure, file_format: str, metadata: dict[str, None]) -> bytes:
    from matplotlib import rc_context

    file = io.BytesIO()
    with rc_context({"svg.hashsalt": "lawful", "svg.fonttype": "path"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(file, format=file_format, metadata=metadata)
    return file.getvalue()
