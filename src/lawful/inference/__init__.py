"""Using a model: predicting, writing, how sure it is, and how good."""

from lawful.inference.confidence import Rays, far_confidence
from lawful.inference.dead_units import activity, dead_units
from lawful.inference.decoding import (
    GREEDY,
    Sampling,
    beam_search,
    beam_searches,
    complete,
    generate,
    log_probabilities,
    perplexity,
    stream,
    write,
)
from lawful.inference.ensemble import Ensemble, arithmetic, geometric, mean
from lawful.inference.predict import predict, probabilities, sampled
from lawful.inference.spread import ClassSpread, ValueSpread, class_spread, value_spread

__all__ = [
    "GREEDY",
    "ClassSpread",
    "Ensemble",
    "Rays",
    "Sampling",
    "ValueSpread",
    "activity",
    "arithmetic",
    "beam_search",
    "beam_searches",
    "class_spread",
    "complete",
    "dead_units",
    "far_confidence",
    "generate",
    "geometric",
    "log_probabilities",
    "mean",
    "perplexity",
    "predict",
    "probabilities",
    "sampled",
    "stream",
    "value_spread",
    "write",
]
