"""Figures: plain data in, a matplotlib figure out."""

from lawful.probe.figures.attention import attention_pattern, head_grid, part_bars
from lawful.probe.figures.classes import class_bars, confusion, reliability_diagram
from lawful.probe.figures.descent import double_descent, epoch_double_descent
from lawful.probe.figures.health import confidence_along_rays, dead_unit_bars
from lawful.probe.figures.layout import Network, laid_out
from lawful.probe.figures.learning import learning_curves
from lawful.probe.figures.mistakes import mistakes
from lawful.probe.figures.regions import decision_regions
from lawful.probe.figures.regression import predicted_and_true
from lawful.probe.figures.style import as_svg, save

__all__ = [
    "Network",
    "as_svg",
    "attention_pattern",
    "class_bars",
    "confidence_along_rays",
    "confusion",
    "dead_unit_bars",
    "decision_regions",
    "double_descent",
    "epoch_double_descent",
    "head_grid",
    "laid_out",
    "learning_curves",
    "mistakes",
    "part_bars",
    "predicted_and_true",
    "reliability_diagram",
    "save",
]
