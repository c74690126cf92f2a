"""Using a model: predicting, how sure it is, and how good."""

from lawful.inference.confidence import Rays, far_confidence
from lawful.inference.dead_units import activity, dead_units
from lawful.inference.ensemble import Ensemble, arithmetic, geometric, mean
from lawful.inference.predict import predict, probabilities, sampled
from lawful.inference.spread import ClassSpread, ValueSpread, class_spread, value_spread

__all__ = [
    "ClassSpread",
    "Ensemble",
    "Rays",
    "ValueSpread",
    "activity",
    "arithmetic",
    "class_spread",
    "dead_units",
    "far_confidence",
    "geometric",
    "mean",
    "predict",
    "probabilities",
    "sampled",
    "value_spread",
]
