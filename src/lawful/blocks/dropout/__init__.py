"""Dropout and its kin: parts of a network that are left out at random while it learns."""

from lawful.blocks.dropout.drop_connect import DropConnect, Moments
from lawful.blocks.dropout.dropout import Dropout, WeightScalingDropout
from lawful.blocks.dropout.expectation import average_over_masks, kept_or_dropped, unbiased
from lawful.blocks.dropout.max_norm import max_norm
from lawful.blocks.dropout.monte_carlo import monte_carlo
from lawful.blocks.dropout.stochastic_depth import StochasticDepth, depth_rates

__all__ = [
    "DropConnect",
    "Dropout",
    "Moments",
    "StochasticDepth",
    "WeightScalingDropout",
    "average_over_masks",
    "depth_rates",
    "kept_or_dropped",
    "max_norm",
    "monte_carlo",
    "unbiased",
]
