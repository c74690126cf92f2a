"""Figures: functions from plain data to matplotlib figures."""

from lawful.probe.figures._style import as_svg, save
from lawful.probe.figures.attention import attention_pattern, contribution_bars, head_grid
from lawful.probe.figures.bounds import convergence_bounds, optimizer_spectra, output_intervals
from lawful.probe.figures.classification import (
    adversarial_examples,
    class_scores,
    confidence_along_rays,
    confusion_matrix,
    dead_unit_bars,
    decision_regions,
    mistakes,
    predictions,
    reliability_diagram,
    robustness_curve,
)
from lawful.probe.figures.generative import (
    bottleneck_curve,
    data_and_samples,
    latent_map,
    marginals,
    point_clouds,
    reconstructions,
    sample_grid,
    score_field,
    trajectories,
)
from lawful.probe.figures.geometry import (
    generator_matrices,
    particle_paths,
    point_motions,
    surface_values,
    vector_fields,
)
from lawful.probe.figures.graphs import graph_drawing, graph_grid, graph_layout
from lawful.probe.figures.network import Network, network_diagram
from lawful.probe.figures.state_space import (
    frequency_response,
    hippo_memory,
    impulse_response,
    memory_errors,
    spectrum,
    time_scales,
)
from lawful.probe.figures.theory import approximation_error, piecewise_linear_curves, region_map, unit_contributions
from lawful.probe.figures.training import (
    double_descent,
    epoch_double_descent,
    forecast_band,
    learning_curves,
    predicted_vs_actual,
)

__all__ = [
    "Network",
    "adversarial_examples",
    "approximation_error",
    "as_svg",
    "attention_pattern",
    "bottleneck_curve",
    "class_scores",
    "confidence_along_rays",
    "confusion_matrix",
    "contribution_bars",
    "convergence_bounds",
    "data_and_samples",
    "dead_unit_bars",
    "decision_regions",
    "double_descent",
    "epoch_double_descent",
    "forecast_band",
    "frequency_response",
    "generator_matrices",
    "graph_drawing",
    "graph_grid",
    "graph_layout",
    "head_grid",
    "hippo_memory",
    "impulse_response",
    "latent_map",
    "learning_curves",
    "marginals",
    "memory_errors",
    "mistakes",
    "network_diagram",
    "optimizer_spectra",
    "output_intervals",
    "particle_paths",
    "piecewise_linear_curves",
    "point_clouds",
    "point_motions",
    "predicted_vs_actual",
    "predictions",
    "reconstructions",
    "region_map",
    "reliability_diagram",
    "robustness_curve",
    "sample_grid",
    "save",
    "score_field",
    "spectrum",
    "surface_values",
    "time_scales",
    "trajectories",
    "unit_contributions",
    "vector_fields",
]
