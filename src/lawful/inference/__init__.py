"""Using a model: predicting, writing, how sure it is, and how good."""

from lawful.inference.beam_search import beam_search, beam_searches
from lawful.inference.diagnostics import Rays, activity, dead_units, ood_confidence
from lawful.inference.ensemble import Ensemble, mean, mean_log_probabilities, mean_probabilities
from lawful.inference.likelihood import perplexity, token_log_probs
from lawful.inference.predict import mc_dropout_predict, predict, probabilities
from lawful.inference.text import generate_text, stream_text
from lawful.inference.uncertainty import ClassUncertainty, ValueSpread, class_spread, value_spread
from lawful.models.generation import GREEDY, SamplingConfig, generate, stream

__all__ = [
    "GREEDY",
    "ClassUncertainty",
    "Ensemble",
    "Rays",
    "SamplingConfig",
    "ValueSpread",
    "activity",
    "beam_search",
    "beam_searches",
    "class_spread",
    "dead_units",
    "generate",
    "generate_text",
    "mc_dropout_predict",
    "mean",
    "mean_log_probabilities",
    "mean_probabilities",
    "ood_confidence",
    "perplexity",
    "predict",
    "probabilities",
    "stream",
    "stream_text",
    "token_log_probs",
    "value_spread",
]
