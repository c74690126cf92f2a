"""Norms, distances and products of vectors, matrices and tensors."""

from lawful.functions.products.dot import angle, cosine, dot
from lawful.functions.products.einstein import einsum
from lawful.functions.products.generalised import amount_of_similarity, generalised_product, rectified_dot
from lawful.functions.products.matmul import gram, matmul_by_blocks, matmul_by_outer_products
from lawful.functions.products.norms import distance, frobenius, norm
from lawful.functions.products.projection import project, project_onto_columns
from lawful.functions.products.tensors import outer, pure_tensor, tensor_product

__all__ = [
    "amount_of_similarity",
    "angle",
    "cosine",
    "distance",
    "dot",
    "einsum",
    "frobenius",
    "generalised_product",
    "gram",
    "matmul_by_blocks",
    "matmul_by_outer_products",
    "norm",
    "outer",
    "project",
    "project_onto_columns",
    "pure_tensor",
    "rectified_dot",
    "tensor_product",
]
