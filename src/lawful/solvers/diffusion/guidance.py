"""Guidance: towards what a condition, or a classifier, asks for.

Inpainting: what is known is put in the place of what was denoised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lawful.laws import Claim, agreement, shape
from lawful.solvers.diffusion.parameterization import Denoiser
from lawful.solvers.diffusion.paths import GaussianPath, expand_like, variance_preserving


def classifier_free_guidance(conditional: Denoiser, unconditional: Denoiser, *, scale: float) -> Denoiser:
    r"""Goes from what is denoised without a condition towards, and past, what is denoised with it.

    $$D = D_\text{without} + g \, (D_\text{with} - D_\text{without})$$

    The convention: a scale $g = 1$ is the plain conditional model, 0 the unconditional one, and more than 1 exaggerates
    the condition. The paper's $w$ is $g - 1$: see `scale_of_weight`. With 1 or 0 only one of the two is asked.

    Reference:
        Ho and Salimans, *Classifier-Free Diffusion Guidance*, 2022.

    Args:
        conditional: $D_\text{with}$.
        unconditional: $D_\text{without}$.
        scale: $g$.

    Examples:
        >>> guided = classifier_free_guidance(lambda x, t: x + 1, lambda x, t: x, scale=3.0)
        >>> guided(torch.zeros(1, 2), torch.tensor(1.0))
        tensor([[3., 3.]])
    """
    if not torch.tensor(scale).isfinite():
        raise ValueError(f"a finite scale is wanted: got {scale}")
    if scale in (0, 1):
        return conditional if scale else unconditional

    def denoise(x: Tensor, t: Tensor) -> Tensor:
        without = unconditional(x, t)
        return without + scale * (conditional(x, t) - without)

    return denoise


def scale_of_weight(w: float) -> float:
    r"""Returns the scale $g = 1 + w$ of the weight $w$ of the paper on classifier-free guidance.

    Examples:
        >>> scale_of_weight(0.0)
        1.0
    """
    return 1.0 + w


def classifier_guidance(
    denoise: Denoiser,
    log_prob: Callable[[Tensor, Tensor], Float[Tensor, " n"]],
    path: GaussianPath,
    *,
    scale: float = 1.0,
) -> Denoiser:
    r"""Adds to the score that of a classifier of noisy data.

    $$\nabla \log p_t(x \mid y) = \nabla \log p_t(x) + g \, \nabla \log p_t(y \mid x), \qquad
    D' = D + g \, \frac{\sigma^2}{\alpha} \, \nabla \log p_t(y \mid x)$$

    A scale $g = 1$ is Bayes' rule. The classifier has to know the noise level. Where $\alpha = 0$ nothing is to be seen
    of the class, and nothing is added.

    Reference:
        Dhariwal and Nichol, *Diffusion Models Beat GANs on Image Synthesis*, 2021.

    Args:
        denoise: $D$.
        log_prob: $\log p_t(y \mid x)$ of the wanted $y$, from $x_t$ and $t$: a number for each sample.
        path: The path.
        scale: $g$.

    Examples:
        >>> from lawful.solvers.diffusion.paths import edm
        >>> guided = classifier_guidance(lambda x, t: 0 * x, lambda x, t: x.sum(-1), edm())
        >>> guided(torch.zeros(1, 2), torch.tensor(2.0))
        tensor([[4., 4.]])
    """

    def guided(x: Tensor, t: Tensor) -> Tensor:
        level = path.at(t)
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            found = log_prob(leaf, t)
            if found.shape != x.shape[:1] or not found.requires_grad:
                raise ValueError(
                    f"a log-probability of each of {len(x)} samples that depends on them is wanted of the classifier:"
                    f" got shape {tuple(found.shape)}, {'with' if found.requires_grad else 'without'} a gradient"
                )
            (slope,) = torch.autograd.grad(found.sum(), leaf)
        amount = torch.where(level.alpha > 0, scale * level.sigma.square() / level.alpha, 0.0)
        return denoise(x, t) + expand_like(amount, x) * slope

    return guided


def _guidance_claims() -> Iterator[Claim]:
    """The laws that guidance obeys."""
    path, t = variance_preserving(), torch.tensor(0.4, dtype=torch.float64)

    for scale in (0.0, 1.0, scale_of_weight(1.5)):

        def guided(x: Tensor, scale: float = scale) -> Tensor:
            return classifier_free_guidance(lambda x, t: x.sin(), lambda x, t: x.cos(), scale=scale)(x, t)

        other = agreement(other=lambda x, g=scale: g * x.sin() + (1 - g) * x.cos())
        yield Claim(other, guided, shape("n 2"), name=f"classifier_free, scale {scale:g}")

    def posterior(x: Tensor) -> Tensor:
        """A Gaussian of variance 1 for data, seen with noise of variance 4 at 3 behind the path's noise."""
        a, s = path.alpha(t).to(x), path.sigma(t).to(x)
        mean, left = a * x / (a**2 + s**2), s**2 / (a**2 + s**2)

        def log_prob(x: Tensor, t: Tensor) -> Tensor:
            return -0.5 * ((3 - a * x / (a**2 + s**2)).square() / (4 + left)).sum(-1)

        return classifier_guidance(lambda x, t: mean, log_prob, path)(x, t)

    def conjugate(x: Tensor) -> Tensor:
        a, s = path.alpha(t).to(x), path.sigma(t).to(x)
        return (a * x / s**2 + 3 / 4) / (1 + a**2 / s**2 + 1 / 4)

    yield Claim(agreement(other=conjugate), posterior, shape("n 2"), name="by_classifier, Bayes' rule")


def inpainting_denoiser(denoise: Denoiser, known: Float[Tensor, "*n"], mask: Bool[Tensor, "*m"]) -> Denoiser:
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
        >>> completed = inpainting_denoiser(lambda x, t: 0 * x, torch.tensor([5.0, 6.0]), torch.tensor([True, False]))
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


def _inpainting_claims() -> Iterator[Claim]:
    """The laws that inpainting obeys."""
    mask = torch.tensor([True, False, True])

    def completed(x: Tensor, known: Tensor) -> Tensor:
        return inpainting_denoiser(lambda x, t: x.cos(), known, mask)(x, torch.tensor(1.0))

    def put(x: Tensor, known: Tensor) -> Tensor:
        return torch.stack([known[:, 0], x[:, 1].cos(), known[:, 2]], 1)

    yield Claim(agreement(other=put), completed, (shape("n 3"), shape("n 3")), name="completing")


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _guidance_claims()
    yield from _inpainting_claims()
