"""Guided denoisers: classifier-free and classifier guidance, and inpainting."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lawful.laws import Claim, agreement, shape
from lawful.solvers.diffusion.parameterization import Denoiser
from lawful.solvers.diffusion.paths import GaussianPath, expand_like, variance_preserving


def classifier_free_guidance(conditional: Denoiser, unconditional: Denoiser, *, scale: float) -> Denoiser:
    r"""Extrapolates from the unconditional to the conditional denoiser.

    $$D = D_\text{uncond} + g \, (D_\text{cond} - D_\text{uncond})$$

    $g = 1$ is the conditional model, $g = 0$ the unconditional one; larger values exaggerate the condition. The paper's
    weight is $w = g - 1$. For 0 and 1 only one of the denoisers is called.

    Reference:
        Ho and Salimans, *Classifier-Free Diffusion Guidance*, 2022.

    Args:
        conditional: $D_\text{cond}$.
        unconditional: $D_\text{uncond}$.
        scale: Guidance scale $g$.

    Examples:
        >>> guided = classifier_free_guidance(lambda x, t: x + 1, lambda x, t: x, scale=3.0)
        >>> guided(torch.zeros(1, 2), torch.tensor(1.0))
        tensor([[3., 3.]])
    """
    if not torch.tensor(scale).isfinite():
        raise ValueError(f"expected a finite scale, got {scale}")
    if scale in (0, 1):
        return conditional if scale else unconditional

    def denoise(x: Tensor, t: Tensor) -> Tensor:
        base = unconditional(x, t)
        return base + scale * (conditional(x, t) - base)

    return denoise


def classifier_guidance(
    denoise: Denoiser,
    log_prob: Callable[[Tensor, Tensor], Float[Tensor, " n"]],
    path: GaussianPath,
    *,
    scale: float = 1.0,
) -> Denoiser:
    r"""Adds the score of a classifier of noisy data.

    $$\nabla \log p_t(x \mid y) = \nabla \log p_t(x) + g \, \nabla \log p_t(y \mid x), \qquad
    D' = D + g \, \frac{\sigma^2}{\alpha} \, \nabla \log p_t(y \mid x)$$

    $g = 1$ is Bayes' rule. Where $\alpha = 0$ the data carry no class information and nothing is added.

    Reference:
        Dhariwal and Nichol, *Diffusion Models Beat GANs on Image Synthesis*, 2021.

    Args:
        denoise: Denoiser $D$.
        log_prob: $\log p_t(y \mid x)$ of each sample, a function of $x_t$ and $t$.
        path: Noise path.
        scale: Guidance scale $g$.

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
            log_probs = log_prob(leaf, t)
            if log_probs.shape != x.shape[:1] or not log_probs.requires_grad:
                raise ValueError(
                    f"expected differentiable log-probabilities of shape ({len(x)},) from log_prob, got shape"
                    f" {tuple(log_probs.shape)}, requires_grad={log_probs.requires_grad}"
                )
            (gradient,) = torch.autograd.grad(log_probs.sum(), leaf)
        weight = torch.where(level.alpha > 0, scale * level.sigma.square() / level.alpha, 0.0)
        return denoise(x, t) + expand_like(weight, x) * gradient

    return guided


def inpainting_denoiser(denoise: Denoiser, known: Float[Tensor, "*n"], mask: Bool[Tensor, "*m"]) -> Denoiser:
    r"""Replaces the denoised data by known values.

    $$D' = m \odot y + (1 - m) \odot D$$

    Samplers then keep the known part at $\alpha y + \sigma \varepsilon$ and end at $y$, and denoise the rest
    accordingly. The known values are exact; the conditional distribution is an approximation.

    Reference:
        Song et al., *Score-Based Generative Modeling through Stochastic Differential Equations*, 2021, I.2.

    Args:
        denoise: Denoiser $D$.
        known: Known values $y$, of the shape of a sample or of a batch; ignored where the mask is False.
        mask: Mask $m$, True where $y$ is known.

    Examples:
        >>> inpaint = inpainting_denoiser(lambda x, t: 0 * x, torch.tensor([5.0, 6.0]), torch.tensor([True, False]))
        >>> inpaint(torch.ones(1, 2), torch.tensor(1.0))
        tensor([[5., 0.]])
    """
    if mask.dtype != torch.bool:
        raise TypeError(f"expected a boolean mask, got {mask.dtype}")
    if any(a != b and 1 not in (a, b) for a, b in zip(known.shape[::-1], mask.shape[::-1], strict=False)):
        raise ValueError(
            f"expected a mask broadcastable to the shape of known, {tuple(known.shape)}, got {tuple(mask.shape)}"
        )
    if not bool(torch.where(mask, known, 0.0).isfinite().all()):
        raise ValueError("expected finite known values where the mask is True, got NaN or infinity")

    def inpaint(x: Tensor, t: Tensor) -> Tensor:
        denoised = denoise(x, t)
        return torch.where(mask, known.to(denoised), denoised)

    return inpaint


def claims() -> Iterator[Claim]:
    """Classifier guidance with scale 1 is Bayes' rule."""
    path, t = variance_preserving(), torch.tensor(0.4, dtype=torch.float64)

    def guided(x: Tensor) -> Tensor:
        """Standard normal data, observed as 3 with noise of variance 4."""
        a, s = path.alpha(t).to(x), path.sigma(t).to(x)
        mean, variance = a * x / (a**2 + s**2), s**2 / (a**2 + s**2)

        def log_prob(x: Tensor, t: Tensor) -> Tensor:
            return -0.5 * ((3 - a * x / (a**2 + s**2)).square() / (4 + variance)).sum(-1)

        return classifier_guidance(lambda x, t: mean, log_prob, path)(x, t)

    def conjugate(x: Tensor) -> Tensor:
        a, s = path.alpha(t).to(x), path.sigma(t).to(x)
        return (a * x / s**2 + 3 / 4) / (1 + a**2 / s**2 + 1 / 4)

    yield Claim(agreement(other=conjugate), guided, shape("n 2"), name="classifier_guidance: Bayes' rule")
