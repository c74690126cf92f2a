"""Figures of how good a model is, each with the interval that it is known to."""

from lawful.inference.metrics.calibration import Bin, calibration_error, reliability
from lawful.inference.metrics.classification import (
    ClassScores,
    accuracy,
    brier,
    confusion_matrix,
    negative_log_likelihood,
    per_class,
    surprise,
)
from lawful.inference.metrics.coverage import (
    ModeCoverage,
    NeighbourCoverage,
    class_coverage,
    mode_coverage,
    neighbour_coverage,
)
from lawful.inference.metrics.estimate import Estimate, bootstrap, wilson
from lawful.inference.metrics.frechet import frechet_distance, gaussian_frechet
from lawful.inference.metrics.mmd import cubic_kernel, gaussian_kernel, median_width, mmd, mmd_test
from lawful.inference.metrics.regression import mean_absolute_error, r_squared, root_mean_squared_error

__all__ = [
    "Bin",
    "ClassScores",
    "Estimate",
    "ModeCoverage",
    "NeighbourCoverage",
    "accuracy",
    "bootstrap",
    "brier",
    "calibration_error",
    "class_coverage",
    "confusion_matrix",
    "cubic_kernel",
    "frechet_distance",
    "gaussian_frechet",
    "gaussian_kernel",
    "mean_absolute_error",
    "median_width",
    "mmd",
    "mmd_test",
    "mode_coverage",
    "negative_log_likelihood",
    "neighbour_coverage",
    "per_class",
    "r_squared",
    "reliability",
    "root_mean_squared_error",
    "surprise",
    "wilson",
]
