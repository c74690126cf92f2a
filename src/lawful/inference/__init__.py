"""Inference: prediction, generation, uncertainty and diagnostics of trained models; inpainting without a model."""

from lawful.inference.beam_search import BeamHypothesis, beam_search, beam_search_batch
from lawful.inference.diagnostics import RayConfidence, activation_frequency, dead_units, ood_confidence
from lawful.inference.ensemble import Average, Ensemble, mean_log_probabilities, mean_probabilities, mean_values
from lawful.inference.likelihood import perplexity, token_log_probs
from lawful.inference.patch_match import NearestNeighborField, PatchCompletion, PatchMatch, mean_fill, smooth_fill
from lawful.inference.prediction import Link, batches_of, device_of, mc_dropout_predict, predict, probabilities
from lawful.inference.text import StreamingDetokenizer, as_tuple, generate_text, stream_text
from lawful.inference.uncertainty import ClassUncertainty, ValueUncertainty, class_uncertainty, value_uncertainty
from lawful.models.generation import GREEDY, SamplingConfig, generate, stream

__all__ = [
    "GREEDY",
    "Average",
    "BeamHypothesis",
    "ClassUncertainty",
    "Ensemble",
    "Link",
    "NearestNeighborField",
    "PatchCompletion",
    "PatchMatch",
    "RayConfidence",
    "SamplingConfig",
    "StreamingDetokenizer",
    "ValueUncertainty",
    "activation_frequency",
    "as_tuple",
    "batches_of",
    "beam_search",
    "beam_search_batch",
    "class_uncertainty",
    "dead_units",
    "device_of",
    "generate",
    "generate_text",
    "mc_dropout_predict",
    "mean_fill",
    "mean_log_probabilities",
    "mean_probabilities",
    "mean_values",
    "ood_confidence",
    "perplexity",
    "predict",
    "probabilities",
    "smooth_fill",
    "stream",
    "stream_text",
    "token_log_probs",
    "value_uncertainty",
]
