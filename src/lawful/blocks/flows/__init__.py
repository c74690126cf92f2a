"""Invertible blocks, each with its log-determinant: what normalising flows are made of."""

from lawful.blocks.flows.autoregressive import (
    AutoregressiveTransform,
    FeatureEncoding,
    FourierEncoding,
    IdentityEncoding,
    LevelEncoding,
    MaskedDense,
    MaskedNetwork,
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
    "MaskedDense",
    "MaskedNetwork",
    "PermutationTransform",
    "RationalQuadraticSpline",
    "ShiftTransform",
    "UnivariateTransform",
]
