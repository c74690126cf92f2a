"""Theorems that compute: networks from constructions, counts and bounds with certificates."""

from lawful.theory.linear_regions import (
    LinearRegions,
    Region,
    regions_in_box,
    regions_on_plane,
    regions_on_segment,
)
from lawful.theory.max_affine import BrokenCrease, MaxAffine, compile_max_affine
from lawful.theory.output_bounds import Bounds, output_bounds
from lawful.theory.piecewise_linear import PiecewiseLinear, compile_piecewise_linear
from lawful.theory.piecewise_linear_proof import PiecewiseLinearProof, prove_piecewise_linear
from lawful.theory.rational_network import RationalLayer, RationalNetwork, rounding_bound
from lawful.theory.segmentation import fit_piecewise_linear, interpolate_piecewise_linear

__all__ = [
    "Bounds",
    "BrokenCrease",
    "LinearRegions",
    "MaxAffine",
    "PiecewiseLinear",
    "PiecewiseLinearProof",
    "RationalLayer",
    "RationalNetwork",
    "Region",
    "compile_max_affine",
    "compile_piecewise_linear",
    "fit_piecewise_linear",
    "interpolate_piecewise_linear",
    "output_bounds",
    "prove_piecewise_linear",
    "regions_in_box",
    "regions_on_plane",
    "regions_on_segment",
    "rounding_bound",
]
