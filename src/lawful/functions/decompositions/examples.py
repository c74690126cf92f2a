"""Matrices that the claims of this folder are checked on."""

from __future__ import annotations

import torch
from torch import Tensor


def well_conditioned(x: Tensor) -> Tensor:
    """Makes matrices of full rank of any: a reflection, moved by less than its smallest singular value.

    The singular values lie between 0.1 and 1.9. The reflection has entries of both signs and a negative determinant.
    """
    m, n = x.shape[-2:]
    v = torch.arange(1, max(m, n) + 1).to(x)
    reflection = torch.eye(len(v)).to(x) - 2 * torch.outer(v, v) / v.square().sum()
    size = torch.linalg.matrix_norm(x, keepdim=True)
    return reflection[:m, :n] + 0.9 * x / (1 + size)


def symmetric(x: Tensor) -> Tensor:
    """Makes symmetric matrices of square ones."""
    return x + x.mT
