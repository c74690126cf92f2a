"""A latent rotation: wrapped normal posteriors on SO(3) with a uniform prior."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.groups import SO3, Haar, WrappedNormal, quaternion_to_matrix
from lawful.laws import Claim, agreement, shape

_MAX_SCALE = 1.6
"""Largest standard deviation: its distribution is uniform up to 0.01 nats."""
_MIN_SCALE = 1e-3
_INITIAL_SCALE = 0.3
_TINY = 1e-6
"""Added to the parameters, so that zeros give the identity."""
_TURNS = 2
"""Whole turns in each direction in the density."""
_NODES = 8
"""Quadrature nodes of each coordinate. Their number is even, so that none is at the pole of the density."""


class SO3Latent(nn.Module):
    r"""Rotation as the latent variable: a wrapped normal posterior with the uniform (Haar) prior on SO(3).

    $$z = R \exp(\sigma \odot \varepsilon), \quad \varepsilon \sim N(0, I), \qquad (a_1, a_2, s) = \text{params}$$

    The columns of $R$ are $a_1$ and $a_2$ after Gram-Schmidt, and their cross product. Every rotation is reached
    continuously, as is not possible with three or four numbers. The scales $\sigma$ are between 0.001 and 1.6, where
    the posterior is uniform up to 0.01 nats. The latent vector has the nine entries of the matrix $z$, so that the
    group acts linearly on what the decoder receives.

    Numerics: `kl` is the expectation of the log-density by Gauss-Hermite quadrature with 8 nodes per coordinate. It
    does not depend on $R$. Its error is at most 0.02 nats, and 0.002 for scales below 1.

    Reference:
        Falorsi, de Haan, Davidson, De Cao, Weiler, Forré and Cohen, *Explorations in Homeomorphic Variational
        Auto-Encoding*, 2018. Zhou, Barnes, Lu, Yang and Li, *On the Continuity of Rotation Representations in Neural
        Networks*, 2019.

    Examples:
        >>> latent = SO3Latent()
        >>> latent.mean(torch.zeros(1, 9))
        tensor([[1., 0., 0., 0., 1., 0., 0., 0., 1.]])
        >>> bool(latent.kl(torch.zeros(1, 9)) > 0)
        True
    """

    nodes: Tensor
    weights: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.dim = self.num_params = 9
        x, w = (torch.from_numpy(a[_NODES // 2 :]) for a in np.polynomial.hermite_e.hermegauss(_NODES))
        weights = torch.einsum("i,j,k->ijk", w, w, w).flatten()  # the density is even: the octant x > 0 suffices
        self.register_buffer("nodes", torch.cartesian_prod(x, x, x), persistent=False)
        self.register_buffer("weights", weights / weights.sum(), persistent=False)

    def noise(self, u: Float[Tensor, "*m k"]) -> Float[Tensor, "*m k"]:
        """Returns standard normal noise."""
        return torch.special.ndtri(u)

    def rsample(self, params: Float[Tensor, "n p"], noise: Float[Tensor, "*m n k"]) -> Float[Tensor, "*m n k"]:
        r"""Returns $R \exp(\sigma \odot \varepsilon)$. It uses three of the nine coordinates of the noise."""
        return (self._rotation(params) @ SO3().exp(self._scale(params) * noise[..., :3])).flatten(-2)

    def sample_prior(self, noise: Float[Tensor, "*m k"]) -> Float[Tensor, "*m k"]:
        """Returns uniformly distributed rotations, from normally distributed quaternions."""
        return quaternion_to_matrix(noise[..., :4]).flatten(-2)

    def mean(self, params: Float[Tensor, "n p"]) -> Float[Tensor, "n k"]:
        r"""Returns the location $R$."""
        return self._rotation(params).flatten(-2)

    def kl(self, params: Float[Tensor, "n p"]) -> Float[Tensor, "n 1"]:
        """Returns the divergence from the uniform distribution."""
        scale = self._scale(params)
        nodes, weights = self.nodes.to(scale), self.weights.to(scale)
        angle = torch.linalg.vector_norm(scale[:, None] * nodes, dim=-1)[..., None]
        turned = angle + 2 * math.pi * torch.arange(-_TURNS, _TURNS + 1, dtype=scale.dtype, device=scale.device)
        squared = nodes.square().sum(-1)[:, None] * (turned / angle).square()
        log_det = (2 * (angle / 2).sin()).square().clamp_min(1e-6).log() - 2 * turned.abs().clamp_min(1e-6).log()
        log_density = (-squared / 2 - log_det).logsumexp(-1) @ weights
        normalizer = scale.log().sum(-1) + 1.5 * math.log(2 * math.pi)
        return (log_density - normalizer + math.log(8 * math.pi**2))[:, None]

    def log_ratio(self, params: Float[Tensor, "n p"], z: Float[Tensor, "*m n k"]) -> Float[Tensor, "*m n"]:
        r"""Returns $\log p(z) - \log q(z \mid x)$."""
        g = z.unflatten(-1, (3, 3))
        posterior = WrappedNormal(SO3(), self._rotation(params), self._scale(params))
        return Haar(SO3(), dtype=z.dtype, device=z.device).log_prob(g) - posterior.log_prob(g)

    def mean_variance(self, params: Float[Tensor, "n p"]) -> Float[Tensor, " 1"]:
        """Returns the variance over examples of the location: the sum over the entries of the matrix."""
        return self.mean(params).var(0, correction=0).sum(-1, keepdim=True)

    def _rotation(self, params: Tensor) -> Tensor:
        params = params.to(torch.promote_types(params.dtype, torch.float32))  # half precision is not orthogonal
        first, second = params[..., :6].unflatten(-1, (2, 3)).unbind(-2)
        identity = _TINY * torch.eye(3, dtype=params.dtype, device=params.device)
        x = F.normalize(identity[0] + first, dim=-1)
        y = identity[1] + second
        y = F.normalize(y - (x * y).sum(-1, keepdim=True) * x, dim=-1)
        return torch.stack([x, y, torch.linalg.cross(x, y)], -1)

    def _scale(self, params: Tensor) -> Tensor:
        params = params.to(torch.promote_types(params.dtype, torch.float32))
        start = math.log(_INITIAL_SCALE / (_MAX_SCALE - _INITIAL_SCALE))
        return _MIN_SCALE + (_MAX_SCALE - _MIN_SCALE) * (params[..., 6:] + start).sigmoid()


def claims() -> Iterator[Claim]:
    """The divergence from the uniform distribution does not depend on the location."""
    latent = SO3Latent()

    def at_the_identity(params: Tensor) -> Tensor:
        return latent.kl(torch.cat([torch.zeros_like(params[:, :6]), params[:, 6:]], -1))

    yield Claim(agreement(other=at_the_identity), latent.kl, shape("n 9"), name="SO3Latent.kl")
