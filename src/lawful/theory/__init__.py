"""Theorems that compute: networks from constructions, counts and bounds with certificates."""

from lawful.theory.piecewise_linear import PiecewiseLinear, compile_piecewise_linear
from lawful.theory.piecewise_linear_proof import PiecewiseLinearProof, prove_piecewise_linear
from lawful.theory.rational_network import RationalLayer, RationalNetwork, rounding_bound

__all__ = [
    "PiecewiseLinear",
    "PiecewiseLinearProof",
    "RationalLayer",
    "RationalNetwork",
    "compile_piecewise_linear",
    "prove_piecewise_linear",
    "rounding_bound",
]
