"""Matrices and tensors taken apart."""

from lawful.functions.decompositions.cp import CP, cp
from lawful.functions.decompositions.determinant import determinant, gram_determinant, log_determinant
from lawful.functions.decompositions.eigen import characteristic_polynomial, general_eigen, symmetric_eigen
from lawful.functions.decompositions.lu import lu
from lawful.functions.decompositions.qr import givens_qr, householder_qr, modified_gram_schmidt, qr
from lawful.functions.decompositions.rank import is_pure, rank_bounds, unfolding
from lawful.functions.decompositions.svd import pseudo_inverse, svd

__all__ = [
    "CP",
    "characteristic_polynomial",
    "cp",
    "determinant",
    "general_eigen",
    "givens_qr",
    "gram_determinant",
    "householder_qr",
    "is_pure",
    "log_determinant",
    "lu",
    "modified_gram_schmidt",
    "pseudo_inverse",
    "qr",
    "rank_bounds",
    "svd",
    "symmetric_eigen",
    "unfolding",
]
