"""Optimizers as chains of parts, schedules, and what keeps weights in bounds."""

from lawful.optim.adam import adam, adamw, uncorrected_adam
from lawful.optim.chain import Chain
from lawful.optim.clipping import clip_norm, clip_value
from lawful.optim.early_stopping import EarlyStopping
from lawful.optim.ema import EMA
from lawful.optim.lion import Blend, lion
from lawful.optim.max_norm import clip_row_norms, max_norm
from lawful.optim.muon import (
    Orthogonalise,
    WarmupMomentum,
    adam_matched_scale,
    aspect_ratio_scale,
    muon,
    muon_with_adamw,
    newton_schulz,
)
from lawful.optim.row_swaps import better_order, rearrange
from lawful.optim.schedules import (
    Schedule,
    constant,
    cosine_schedule,
    linear,
    one_cycle,
    warmup_stable_decay,
    with_warmup,
)
from lawful.optim.sgd import gradient_descent, heavy_ball, momentum, nesterov, sgd
from lawful.optim.transforms import (
    AdamMoments,
    AddDecayedWeights,
    EmaMomentum,
    GradientTransform,
    Momentum,
    NesterovAverage,
    NesterovTrace,
    ScaleByLearningRate,
    Sign,
    StepContext,
    UncorrectedMoments,
)

__all__ = [
    "EMA",
    "AdamMoments",
    "AddDecayedWeights",
    "Blend",
    "Chain",
    "EarlyStopping",
    "EmaMomentum",
    "GradientTransform",
    "Momentum",
    "NesterovAverage",
    "NesterovTrace",
    "Orthogonalise",
    "ScaleByLearningRate",
    "Schedule",
    "Sign",
    "StepContext",
    "UncorrectedMoments",
    "WarmupMomentum",
    "adam",
    "adam_matched_scale",
    "adamw",
    "aspect_ratio_scale",
    "better_order",
    "clip_norm",
    "clip_row_norms",
    "clip_value",
    "constant",
    "cosine_schedule",
    "gradient_descent",
    "heavy_ball",
    "linear",
    "lion",
    "max_norm",
    "momentum",
    "muon",
    "muon_with_adamw",
    "nesterov",
    "newton_schulz",
    "one_cycle",
    "rearrange",
    "sgd",
    "uncorrected_adam",
    "warmup_stable_decay",
    "with_warmup",
]
