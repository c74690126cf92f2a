"""Optimizers as chains of parts, schedules, and what keeps weights in bounds."""

from lawful.optim.adam import adam, adamw, uncorrected_adam
from lawful.optim.averaging import WeightAverage
from lawful.optim.chain import Chain
from lawful.optim.clipping import clip_norm, clip_value
from lawful.optim.descent import gradient_descent, heavy_ball, momentum, nesterov, sgd
from lawful.optim.early_stopping import EarlyStopping
from lawful.optim.lion import Blend, lion
from lawful.optim.max_norm import limited, max_norm
from lawful.optim.moments import AdamMoments, UncorrectedMoments
from lawful.optim.muon import Orthogonalise, by_aspect, like_adam, muon, muon_with_adamw, orthogonalise
from lawful.optim.part import Part, Point
from lawful.optim.parts import Average, Decay, Descend, NesterovAverage, NesterovTrace, Sign, Trace
from lawful.optim.rising import RisingAverage
from lawful.optim.row_swaps import better_order, rearrange
from lawful.optim.schedules import Schedule, constant, cosine, linear, one_cycle, warm_up, warmup_stable_decay

__all__ = [
    "AdamMoments",
    "Average",
    "Blend",
    "Chain",
    "Decay",
    "Descend",
    "EarlyStopping",
    "NesterovAverage",
    "NesterovTrace",
    "Orthogonalise",
    "Part",
    "Point",
    "RisingAverage",
    "Schedule",
    "Sign",
    "Trace",
    "UncorrectedMoments",
    "WeightAverage",
    "adam",
    "adamw",
    "better_order",
    "by_aspect",
    "clip_norm",
    "clip_value",
    "constant",
    "cosine",
    "gradient_descent",
    "heavy_ball",
    "like_adam",
    "limited",
    "linear",
    "lion",
    "max_norm",
    "momentum",
    "muon",
    "muon_with_adamw",
    "nesterov",
    "one_cycle",
    "orthogonalise",
    "rearrange",
    "sgd",
    "uncorrected_adam",
    "warm_up",
    "warmup_stable_decay",
]
