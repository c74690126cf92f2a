"""Standardising and whitening: data brought to mean 0, variance 1 and, whitened, no correlation."""

from lawful.functions.whitening.inverse_root import inverse_root
from lawful.functions.whitening.moments import Moments, products, squares
from lawful.functions.whitening.rotations import cholesky, pca, zca
from lawful.functions.whitening.standardize import Standardizer, standardize
from lawful.functions.whitening.whiten import Whitening, whiten

__all__ = [
    "Moments",
    "Standardizer",
    "Whitening",
    "cholesky",
    "inverse_root",
    "pca",
    "products",
    "squares",
    "standardize",
    "whiten",
    "zca",
]
