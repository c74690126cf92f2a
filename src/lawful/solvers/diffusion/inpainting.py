"""Inpainting: what is known is put in the place of what was denoised."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lawful.laws import Claim, agreement, shape
from lawful.solvers.diffusion.parametrisations import Denoiser


def completing(denoise: Denoiser, known: Float[Tensor, "*n"], mask: Bool[Tensor, "*m"]) -> Denoiser:
    r"""Replaces the denoised data by the known ones where these are known.

    $$D' = m \odot y + (1 - m) \odot D$$

    With it every sampler keeps the known part at $\alpha y + \sigma \varepsilon$, noised as the rest is, and ends at
    $y$; the rest is denoised in view of it. Exact are the known values, not the conditional law: the denoiser never
    hears which part is certain, so that the border may not fit as well as it could.

    Reference:
        Song et al., *Score-Based Generative Modeling through Stochastic Differential Equations*, 2021, I.2.

    Args:
        denoise: $D$.
        known: $y$, of the shape of a sample or of several; where the mask is false anything.
        mask: $m$, true where $y$ is known.

    Examples:
        >>> completed = completing(lambda x, t: 0 * x, torch.tensor([5.0, 6.0]), torch.tensor([True, False]))
        >>> completed(torch.ones(1, 2), torch.tensor(1.0))
        tensor([[5., 0.]])
    """
    if mask.dtype != torch.bool:
        raise TypeError(f"a mask that is true where data are known is wanted: got {mask.dtype}")
    if any(a != b and 1 not in (a, b) for a, b in zip(known.shape[::-1], mask.shape[::-1], strict=False)):
        raise ValueError(
            f"a mask of the shape of what is known, {tuple(known.shape)}, is wanted: got {tuple(mask.shape)}"
        )
    if not bool(torch.where(mask, known, 0.0).isfinite().all()):
        raise ValueError("known values are to be finite where the mask is true: got NaN or infinity")

    def denoised(x: Tensor, t: Tensor) -> Tensor:
        found = denoise(x, t)
        return torch.where(mask, known.to(found), found)

    return denoised


def claims() -> Iterator[Claim]:
    """The laws that inpainting obeys."""
    mask = torch.tensor([True, False, True])

    def completed(x: Tensor, known: Tensor) -> Tensor:
        return completing(lambda x, t: x.cos(), known, mask)(x, torch.tensor(1.0))

    def put(x: Tensor, known: Tensor) -> Tensor:
        return torch.stack([known[:, 0], x[:, 1].cos(), known[:, 2]], 1)

    yield Claim(agreement(other=put), completed, (shape("n 3"), shape("n 3")), name="completing")
