"""Figures: plain data in, a matplotlib figure out."""

from lawful.probe.figures.attacks import adversarial_examples, robustness_curve
from lawful.probe.figures.attention import attention_pattern, head_grid, part_bars
from lawful.probe.figures.classes import class_bars, confusion, reliability_diagram
from lawful.probe.figures.descent import double_descent, epoch_double_descent
from lawful.probe.figures.fields import point_clouds, score_field, trajectories
from lawful.probe.figures.generative import bottleneck, latent_map, reconstructions, samples_grid
from lawful.probe.figures.health import confidence_along_rays, dead_unit_bars
from lawful.probe.figures.layout import Network, laid_out
from lawful.probe.figures.learning import learning_curves
from lawful.probe.figures.mistakes import mistakes
from lawful.probe.figures.regions import decision_regions
from lawful.probe.figures.regression import predicted_and_true
from lawful.probe.figures.style import as_svg, save

__all__ = [
    "Network",
    "adversarial_examples",
    "as_svg",
    "attention_pattern",
    "bottleneck",
    "class_bars",
    "confidence_along_rays",
    "confusion",
    "dead_unit_bars",
    "decision_regions",
    "double_descent",
    "epoch_double_descent",
    "head_grid",
    "laid_out",
    "latent_map",
    "learning_curves",
    "mistakes",
    "part_bars",
    "point_clouds",
    "predicted_and_true",
    "reconstructions",
    "reliability_diagram",
    "robustness_curve",
    "samples_grid",
    "save",
    "score_field",
    "trajectories",
]
