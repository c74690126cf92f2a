"""Losses: from predictions and targets, or from parameters, to a number that training makes small."""

from lawful.objectives.classification import binary_cross_entropy, cross_entropy, focal_loss
from lawful.objectives.locality import affine_layers, lengths, locality, on_a_grid, on_a_line
from lawful.objectives.over_data import each, loss_over, weighted, worst_case
from lawful.objectives.penalties import elastic_net, l1, l2, penalty
from lawful.objectives.regression import absolute_error, huber_loss, lp_error, squared_error

__all__ = [
    "absolute_error",
    "affine_layers",
    "binary_cross_entropy",
    "cross_entropy",
    "each",
    "elastic_net",
    "focal_loss",
    "huber_loss",
    "l1",
    "l2",
    "lengths",
    "locality",
    "loss_over",
    "lp_error",
    "on_a_grid",
    "on_a_line",
    "penalty",
    "squared_error",
    "weighted",
    "worst_case",
]
