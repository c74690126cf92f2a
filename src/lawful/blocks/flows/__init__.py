"""Invertible blocks, each with its log-determinant: what normalising flows are made of."""

from lawful.blocks.flows.autoregressive import Autoregressive
from lawful.blocks.flows.composition import Composition
from lawful.blocks.flows.coupling import Coupling
from lawful.blocks.flows.encodings import Encoding, Level, Plain, Waves
from lawful.blocks.flows.entrywise import Affine, Entrywise, Shift
from lawful.blocks.flows.levels import LogisticLevels
from lawful.blocks.flows.linear import InvertibleLinear, Permutation
from lawful.blocks.flows.masked import MaskedDense, MaskedNetwork
from lawful.blocks.flows.rational_quadratic import RationalQuadratic
from lawful.blocks.flows.scale import ActNorm, DiagonalScale

__all__ = [
    "ActNorm",
    "Affine",
    "Autoregressive",
    "Composition",
    "Coupling",
    "DiagonalScale",
    "Encoding",
    "Entrywise",
    "InvertibleLinear",
    "Level",
    "LogisticLevels",
    "MaskedDense",
    "MaskedNetwork",
    "Permutation",
    "Plain",
    "RationalQuadratic",
    "Shift",
    "Waves",
]
