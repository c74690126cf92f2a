"""Invertible transforms with log-determinants: the building blocks of normalizing flows."""

from lawful.blocks.flows.autoregressive import (
    AutoregressiveTransform,
    FeatureEncoding,
    FourierEncoding,
    IdentityEncoding,
    LevelEncoding,
    MaskedLinear,
    MaskedNetwork,
    append_condition,
)
from lawful.blocks.flows.coupling import CouplingTransform
from lawful.blocks.flows.discretized import DiscretizedLogistic
from lawful.blocks.flows.spline import RationalQuadraticSpline
from lawful.blocks.flows.transforms import (
    ActNorm,
    AffineTransform,
    ComposedTransform,
    DiagonalScale,
    InvertibleLinear,
    PermutationTransform,
    ShiftTransform,
    UnivariateTransform,
)

__all__ = [
    "ActNorm",
    "AffineTransform",
    "AutoregressiveTransform",
    "ComposedTransform",
    "CouplingTransform",
    "DiagonalScale",
    "DiscretizedLogistic",
    "FeatureEncoding",
    "FourierEncoding",
    "IdentityEncoding",
    "InvertibleLinear",
    "LevelEncoding",
    "MaskedLinear",
    "MaskedNetwork",
    "PermutationTransform",
    "RationalQuadraticSpline",
    "ShiftTransform",
    "UnivariateTransform",
    "append_condition",
]
