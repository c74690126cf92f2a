"""Figures: plain data in, a matplotlib figure out."""

from lawful.probe.figures.attention import attention_pattern, head_grid, part_bars
from lawful.probe.figures.classification import (
    adversarial_examples,
    class_bars,
    confidence_along_rays,
    confusion,
    dead_unit_bars,
    decision_regions,
    mistakes,
    reliability_diagram,
    robustness_curve,
)
from lawful.probe.figures.generative import (
    bottleneck,
    latent_map,
    point_clouds,
    reconstructions,
    samples_grid,
    score_field,
    trajectories,
)
from lawful.probe.figures.image_grid import Network, laid_out
from lawful.probe.figures.style import as_svg, save
from lawful.probe.figures.training import double_descent, epoch_double_descent, learning_curves, predicted_and_true

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
