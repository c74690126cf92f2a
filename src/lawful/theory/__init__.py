"""Theorems that compute: networks from constructions, counts and bounds with certificates."""

from lawful.theory._expressions import Expression, parse_expression, trace_expression
from lawful.theory._propagation import Bounds
from lawful.theory.affine_collapse import Collapsed, CollapsedLayer, CollapseProof, collapse
from lawful.theory.approximation import ApproximationCertificate, approximate
from lawful.theory.depth_separation import area_between, sawtooth_gap, sawtooth_network
from lawful.theory.gradient_descent import ConvergenceRun, gradient_descent
from lawful.theory.linear_regions import LinearRegions, Region, regions_in_box, regions_on_plane, regions_on_segment
from lawful.theory.lipschitz import LipschitzBounds, lipschitz_bounds
from lawful.theory.max_affine import BrokenCrease, MaxAffine, compile_max_affine
from lawful.theory.output_bounds import output_bounds
from lawful.theory.piecewise_linear import PiecewiseLinear, compile_piecewise_linear
from lawful.theory.piecewise_linear_proof import PiecewiseLinearProof, prove_piecewise_linear
from lawful.theory.quadratic_spectrum import (
    OptimalMomentum,
    QuadraticSpectrum,
    adam_spectrum,
    optimal_momentum,
    quadratic_spectrum,
    stability_threshold,
)
from lawful.theory.rational_network import RationalLayer, RationalNetwork, rounding_bound
from lawful.theory.region_bounds import region_lower_bound, region_upper_bound
from lawful.theory.robustness import robustness_radius
from lawful.theory.segmentation import fit_piecewise_linear, interpolate_piecewise_linear

__all__ = [
    "ApproximationCertificate",
    "Bounds",
    "BrokenCrease",
    "CollapseProof",
    "Collapsed",
    "CollapsedLayer",
    "ConvergenceRun",
    "Expression",
    "LinearRegions",
    "LipschitzBounds",
    "MaxAffine",
    "OptimalMomentum",
    "PiecewiseLinear",
    "PiecewiseLinearProof",
    "QuadraticSpectrum",
    "RationalLayer",
    "RationalNetwork",
    "Region",
    "adam_spectrum",
    "approximate",
    "area_between",
    "collapse",
    "compile_max_affine",
    "compile_piecewise_linear",
    "fit_piecewise_linear",
    "gradient_descent",
    "interpolate_piecewise_linear",
    "lipschitz_bounds",
    "optimal_momentum",
    "output_bounds",
    "parse_expression",
    "prove_piecewise_linear",
    "quadratic_spectrum",
    "region_lower_bound",
    "region_upper_bound",
    "regions_in_box",
    "regions_on_plane",
    "regions_on_segment",
    "robustness_radius",
    "rounding_bound",
    "sawtooth_gap",
    "sawtooth_network",
    "stability_threshold",
    "trace_expression",
]
