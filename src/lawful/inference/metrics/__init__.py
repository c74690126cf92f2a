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
from lawful.inference.metrics.estimate import Estimate, bootstrap, wilson
from lawful.inference.metrics.regression import mean_absolute_error, r_squared, root_mean_squared_error

__all__ = [
    "Bin",
    "ClassScores",
    "Estimate",
    "accuracy",
    "bootstrap",
    "brier",
    "calibration_error",
    "confusion_matrix",
    "mean_absolute_error",
    "negative_log_likelihood",
    "per_class",
    "r_squared",
    "reliability",
    "root_mean_squared_error",
    "surprise",
    "wilson",
]
