"""Attention layers: heads of any sizes, their cache, their matrices, and similarities of any kind."""

from lawful.blocks.attention.cache import Caches, KeyValues
from lawful.blocks.attention.forms import BilinearForm, SemidefiniteForm, SymmetricForm
from lawful.blocks.attention.heads import Heads
from lawful.blocks.attention.multi_head import MultiHeadAttention
from lawful.blocks.attention.similarity import SimilarityAttention
from lawful.blocks.attention.views import ov_factors, qk_factors

__all__ = [
    "BilinearForm",
    "Caches",
    "Heads",
    "KeyValues",
    "MultiHeadAttention",
    "SemidefiniteForm",
    "SimilarityAttention",
    "SymmetricForm",
    "ov_factors",
    "qk_factors",
]
