"""Looking inside a model, and figures of what is seen."""

from lawful.probe.anatomy import LAYOUTS, Anatomy, anatomy_of, frozen_norm
from lawful.probe.attribution import head_attribution, layer_attribution
from lawful.probe.circuits import composition, copying, k_composition, q_composition, through_tokens, v_composition
from lawful.probe.detectors import (
    DETECTORS,
    duplicate_token,
    head_scores,
    induction,
    looks_back,
    previous_token,
    repeating,
)
from lawful.probe.edits import averaged, only, replaced, resampled, steered, zeroed
from lawful.probe.ensemble import path_terms, subnetworks
from lawful.probe.example import attention_only, induction_model
from lawful.probe.factored import Factored
from lawful.probe.heads import LinearHeads, linear_heads, ov_circuit, qk_circuit
from lawful.probe.lens import logit_lens
from lawful.probe.parts import Parts
from lawful.probe.patching import activation_patching, attribution_patching, path_patching
from lawful.probe.path_expansion import path_expansion, paths_by_length
from lawful.probe.record import record
from lawful.probe.tape import Tape

__all__ = [
    "DETECTORS",
    "LAYOUTS",
    "Anatomy",
    "Factored",
    "LinearHeads",
    "Parts",
    "Tape",
    "activation_patching",
    "anatomy_of",
    "attention_only",
    "attribution_patching",
    "averaged",
    "composition",
    "copying",
    "duplicate_token",
    "frozen_norm",
    "head_attribution",
    "head_scores",
    "induction",
    "induction_model",
    "k_composition",
    "layer_attribution",
    "linear_heads",
    "logit_lens",
    "looks_back",
    "only",
    "ov_circuit",
    "path_expansion",
    "path_patching",
    "path_terms",
    "paths_by_length",
    "previous_token",
    "q_composition",
    "qk_circuit",
    "record",
    "repeating",
    "replaced",
    "resampled",
    "steered",
    "subnetworks",
    "through_tokens",
    "v_composition",
    "zeroed",
]
