"""Optimizers as chains of gradient transforms, learning rate schedules, EMA and weight constraints."""

from lawful.optim.chain import Chain
from lawful.optim.early_stopping import EarlyStopping
from lawful.optim.ema import EMA
from lawful.optim.lion import Lion
from lawful.optim.max_norm import max_norm
from lawful.optim.muon import (
    Muon,
    Orthogonalize,
    adam_matched_scale,
    aspect_ratio_scale,
    muon_with_adamw,
    newton_schulz,
)
from lawful.optim.presets import adam, adamw, sgd
from lawful.optim.row_swaps import greedy_row_swaps, permute_units
from lawful.optim.schedules import (
    Schedule,
    constant_schedule,
    cosine_schedule,
    linear_schedule,
    one_cycle_schedule,
    warmup_stable_decay_schedule,
    with_warmup,
)
from lawful.optim.transforms import (
    AddDecayedWeights,
    EmaMomentum,
    GradientTransform,
    Momentum,
    ScaleByAdam,
    ScaleByLearningRate,
    ScaleByLion,
    Sign,
    StepContext,
    WarmupMomentum,
)

__all__ = [
    "EMA",
    "AddDecayedWeights",
    "Chain",
    "EarlyStopping",
    "EmaMomentum",
    "GradientTransform",
    "Lion",
    "Momentum",
    "Muon",
    "Orthogonalize",
    "ScaleByAdam",
    "ScaleByLearningRate",
    "ScaleByLion",
    "Schedule",
    "Sign",
    "StepContext",
    "WarmupMomentum",
    "adam",
    "adam_matched_scale",
    "adamw",
    "aspect_ratio_scale",
    "constant_schedule",
    "cosine_schedule",
    "greedy_row_swaps",
    "linear_schedule",
    "max_norm",
    "muon_with_adamw",
    "newton_schulz",
    "one_cycle_schedule",
    "permute_units",
    "sgd",
    "warmup_stable_decay_schedule",
    "with_warmup",
]
