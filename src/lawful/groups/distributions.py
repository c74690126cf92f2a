r"""Distributions on Lie groups: wrapped normal, Haar and von Mises, with the interface of `torch.distributions`.

Densities are taken with respect to the Haar measure that is the Lebesgue measure of the algebra near the identity. Its
total is $2\pi$ for SO(2) and $8\pi^2$ for SO(3); on SE(2) and SE(3) it is that of the rotations times the Lebesgue
measure of the translations.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Distribution, Normal, constraints

from lawful.groups._helpers import safe_norm
from lawful.groups.group import LieGroup
from lawful.groups.rigid import SE2, SE3
from lawful.groups.so2 import SO2
from lawful.groups.so3 import SO3
from lawful.laws import Claim, agreement, density_integrates_to_one, samples_follow_density, shape


class _Kind(NamedTuple):
    """A case of the density of a wrapped normal distribution."""

    rotation_dim: int
    """Number of coordinates of the rotation: the last ones of the algebra."""
    det_power: int
    r"""Power of $(2 - 2 \cos \theta) / \theta^2$ in the determinant of the left Jacobian."""
    volume: float
    """Haar measure of the rotations."""


_KINDS: dict[type[LieGroup], _Kind] = {
    SO2: _Kind(1, 0, 2 * math.pi),
    SE2: _Kind(1, 1, 2 * math.pi),
    SO3: _Kind(3, 1, 8 * math.pi**2),
    SE3: _Kind(3, 2, 8 * math.pi**2),
}


class WrappedNormal(Distribution):
    r"""Normal distribution on a Lie group: the exponential of a normal distribution on the algebra.

    $$g = \mu \exp(v), \quad v \sim N(0, \operatorname{diag} \sigma^2), \qquad
    p(g) = \sum_{v:\, \exp(v) = \mu^{-1} g} \frac{N(v;\, 0, \operatorname{diag} \sigma^2)}{\lvert \det J(v) \rvert}$$

    with the left Jacobian $J$ of the group. Rotations by $\theta$, $\theta \pm 2\pi$ and so on are the same, so that
    the sum runs over all $v$ along the rotation axis. The density is exact for large scales as well.

    Numerics: values and gradients are finite everywhere, in float32 too. On all groups but SO(2), whole turns in any
    direction map to the identity, where the density has an integrable pole. Its weight is $e^{-2\pi^2/\sigma^2}$, and
    matters for scales above 1 only. For angles below $\sqrt\epsilon$ of the dtype, the pole has its value at
    $\sqrt\epsilon$, about the first axis.

    Reference:
        Falorsi, de Haan, Davidson and Forré, *Reparameterizing Distributions on Lie Groups*, 2019.

    Args:
        group: `SO2()`, `SO3()`, `SE2()` or `SE3()`.
        loc: Location $\mu$, an element of the group. Defaults to the identity.
        scale: Standard deviations $\sigma$ of the coordinates of the algebra: a number, or a tensor whose last axis has
            one entry per coordinate.
        num_wraps: Number of whole turns in each direction in the sum. By default it is chosen from the scale.
        validate_args: Whether `torch.distributions` checks arguments.

    Examples:
        >>> rotations = WrappedNormal(SO3(), scale=torch.tensor([0.1, 0.1, 2.0]))
        >>> r = rotations.rsample((100,))
        >>> r.shape, rotations.log_prob(r).shape
        (torch.Size([100, 3, 3]), torch.Size([100]))
    """

    arg_constraints: dict[str, constraints.Constraint] = {}  # noqa: RUF012
    has_rsample = True

    def __init__(
        self,
        group: LieGroup,
        loc: Float[Tensor, "..."] | None = None,
        scale: Float[Tensor, "..."] | float = 1.0,
        *,
        num_wraps: int | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self._kind = _kind_of(group)
        like = next((x for x in (scale, loc) if isinstance(x, Tensor)), torch.empty(0))
        element = group.identity(dtype=like.dtype, device=like.device)
        loc = element if loc is None else loc
        if loc.shape[-2:] != element.shape:
            raise ValueError(f"expected loc of shape (*batch, {element.shape[0]}, {element.shape[1]}), got {loc.shape}")
        scale = torch.as_tensor(scale, dtype=like.dtype, device=like.device)
        if scale.dim() and scale.shape[-1] not in (1, group.dim):
            raise ValueError(f"expected scale with 1 or {group.dim} entries in its last axis, got {tuple(scale.shape)}")
        if not bool((scale > 0).all()):
            raise ValueError("scale must be positive")
        if num_wraps is not None and num_wraps < 0:
            raise ValueError(f"num_wraps must be at least 0, got {num_wraps}")
        batch = torch.broadcast_shapes(loc.shape[:-2], scale.shape[:-1])
        self.group, self.loc, self.num_wraps = group, loc.expand(*batch, *element.shape), num_wraps
        self.scale = scale.expand(*batch, group.dim)
        super().__init__(batch, element.shape, validate_args=validate_args)

    @property
    def support(self) -> Any:
        """All elements of the group."""
        return constraints.independent(constraints.real, 2)

    def expand(self, batch_shape: Any, _instance: Any = None) -> WrappedNormal:
        """Returns the distribution with its batch shape expanded."""
        loc = self.loc.expand(*batch_shape, *self.event_shape)
        scale = self.scale.expand(*batch_shape, self.group.dim)
        return WrappedNormal(self.group, loc, scale, num_wraps=self.num_wraps)

    def rsample(self, sample_shape: Any = ()) -> Float[Tensor, "..."]:
        """Draws differentiable samples."""
        v = Normal(torch.zeros_like(self.scale), self.scale).rsample(torch.Size(sample_shape))
        return self.group.compose(self.loc, self.group.exp(v))

    def log_prob(self, value: Float[Tensor, "..."]) -> Float[Tensor, "*batch"]:
        """Returns the log-density with respect to the Haar measure."""
        g = self.group.compose(self.group.inverse(self.loc), value)
        v, log_det = _preimages(self.group, self._kind, g, self._wraps())
        return (Normal(0, self.scale[..., None, :]).log_prob(v).sum(-1) - log_det).logsumexp(-1)

    def _wraps(self) -> int:
        if self.num_wraps is not None:
            return self.num_wraps
        largest = float(self.scale[..., -self._kind.rotation_dim :].detach().max())
        return math.ceil((9 * largest + math.pi) / (2 * math.pi))


def _kind_of(group: LieGroup) -> _Kind:
    if type(group) not in _KINDS:
        raise ValueError(f"group must be SO2(), SO3(), SE2() or SE3(), got {group!r}")
    return _KINDS[type(group)]


def _preimages(group: LieGroup, kind: _Kind, g: Tensor, wraps: int) -> tuple[Tensor, Tensor]:
    r"""Returns the $v$ with $\exp(v) = g$ of up to `wraps` turns more or less, and $\log \lvert \det J(v) \rvert$.

    With the unit axis $u$ and $\theta_k = \theta + 2\pi k$, the rotation vectors are $\theta_k u$. The velocities are
    $J^{-1} t = t - \tfrac{\theta_k}{2} u \times t + (1 - \tfrac{\theta_k}{2} \cot \tfrac\theta2) \, u \times (u \times
    t)$, where the cotangent does not depend on $k$.
    """
    v = group.log(g)
    rotation = v[..., -kind.rotation_dim :]
    angle, smallest = safe_norm(rotation)[..., None, None], torch.finfo(v.dtype).eps ** 0.5
    resolved = angle > smallest
    first = torch.eye(kind.rotation_dim, dtype=v.dtype, device=v.device)[0]
    axis = torch.where(resolved, rotation[..., None, :] / torch.where(resolved, angle, 1.0), first)
    turns = [k for k in range(-wraps, wraps + 1) if k]
    k = torch.tensor(turns, dtype=v.dtype, device=v.device)[:, None]
    far = angle.clamp_min(smallest)
    turned = far + 2 * torch.pi * k
    parts = [turned * axis]
    if v.shape[-1] > kind.rotation_dim:
        t = g[..., None, :-1, -1]
        once = _cross(axis, t)
        parts.insert(0, t - turned / 2 * once + (1 - turned / (2 * (far / 2).tan())) * _cross(axis, once))
    log_det = 2 * (2 * (far / 2).sin()).log() - 2 * turned.abs().log()
    principal = 2 * torch.sinc(angle / (2 * torch.pi)).log()
    dets = torch.cat([principal, log_det], -2)[..., 0]
    return torch.cat([v[..., None, :], torch.cat(parts, -1)], -2), kind.det_power * dets


def _cross(axis: Tensor, t: Tensor) -> Tensor:
    """Cross product with the axis; in the plane, the axis is the sign of a quarter turn."""
    if axis.shape[-1] == 3:
        return torch.linalg.cross(*torch.broadcast_tensors(axis, t))
    return axis * torch.stack([-t[..., 1], t[..., 0]], -1)


class Haar(Distribution):
    r"""Uniform distribution on SO(2) or SO(3): no rotation changes it.

    Args:
        group: `SO2()` or `SO3()`.
        batch_shape: Batch shape.
        dtype: Dtype of the samples. Defaults to PyTorch's default dtype.
        device: Device of the samples.

    Examples:
        >>> Haar(SO3()).sample((5,)).shape
        torch.Size([5, 3, 3])
    """

    arg_constraints: dict[str, constraints.Constraint] = {}  # noqa: RUF012
    has_rsample = True

    def __init__(
        self,
        group: LieGroup,
        batch_shape: Any = (),
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        if type(group) not in (SO2, SO3):
            raise ValueError(f"group must be SO2() or SO3(), which are compact, got {group!r}")
        self.group, self._like = group, group.identity(dtype=dtype, device=device)
        super().__init__(torch.Size(batch_shape), self._like.shape, validate_args=False)

    @property
    def support(self) -> Any:
        """All elements of the group."""
        return constraints.independent(constraints.real, 2)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Haar:
        """Returns the distribution with its batch shape expanded."""
        return Haar(self.group, batch_shape, dtype=self._like.dtype, device=self._like.device)

    def rsample(self, sample_shape: Any = ()) -> Float[Tensor, "..."]:
        """Draws samples. They depend on no parameter."""
        shape = (*sample_shape, *self.batch_shape)
        return self.group.sample(*shape, dtype=self._like.dtype, device=self._like.device)

    def log_prob(self, value: Float[Tensor, "..."]) -> Float[Tensor, "*batch"]:
        """Returns minus the logarithm of the volume of the group."""
        shape = torch.broadcast_shapes(value.shape[:-2], self.batch_shape)
        return value.new_full(shape, -math.log(_KINDS[type(self.group)].volume))

    def entropy(self) -> Float[Tensor, "*batch"]:
        """Returns the logarithm of the volume of the group."""
        return -self.log_prob(self._like)


class VonMises(torch.distributions.VonMises):
    r"""PyTorch's von Mises distribution of an angle, with differentiable samples.

    $$p(x) = \frac{e^{\kappa \cos(x - \mu)}}{2\pi I_0(\kappa)}, \qquad
    \frac{\partial x}{\partial \kappa} = -\frac{1}{p(x)} \frac{\partial F(x)}{\partial \kappa}$$

    with the distribution function $F$, whose derivative is an integral from $\mu$ to $x$. It is computed by
    Gauss-Legendre quadrature in float64. Samples have first derivatives.

    Reference:
        Figurnov, Mohamed and Mnih, *Implicit Reparameterization Gradients*, 2018.

    Args:
        loc: Mean angle $\mu$.
        concentration: Concentration $\kappa > 0$, about the inverse of the variance.
        validate_args: Whether `torch.distributions` checks arguments.

    Examples:
        >>> kappa = torch.tensor(2.0, requires_grad=True)
        >>> angles = VonMises(0.0, kappa).rsample((1000,))
        >>> angles.requires_grad, bool((angles.abs() <= torch.pi).all())
        (True, True)
    """

    has_rsample = True

    def rsample(self, sample_shape: Any = ()) -> Float[Tensor, "..."]:
        r"""Draws differentiable samples in $[-\pi, \pi)$."""
        with torch.no_grad():
            x = self.sample(torch.Size(sample_shape)) - self.loc
            x = (x + torch.pi) % (2 * torch.pi) - torch.pi
            slope = _von_mises_slope(x.double(), self.concentration.double()).to(x.dtype)
        x = x + slope * (self.concentration - self.concentration.detach()) + self.loc
        return (x + torch.pi) % (2 * torch.pi) - torch.pi


def _von_mises_slope(x: Tensor, kappa: Tensor) -> Tensor:
    r"""Returns $\partial x / \partial \kappa = -\int_0^x e^{\kappa (\cos s - \cos x)} (\cos s - A(\kappa)) \, ds$."""
    nodes, weights = (torch.from_numpy(a).to(x.device) for a in np.polynomial.legendre.leggauss(64))
    s = x[..., None] * (nodes + 1) / 2
    ratio = torch.special.i1e(kappa) / torch.special.i0e(kappa)
    exponent = kappa[..., None] * (s.cos() - x.cos()[..., None])
    return -(exponent.clamp_max(300.0).exp() * (s.cos() - ratio[..., None])) @ weights * x / 2


def claims() -> Iterator[Claim]:
    """Laws of distributions on groups."""
    for group in (SO2(), SO3(), SE2(), SE3()):
        spread = WrappedNormal(group, scale=torch.tensor(0.7, dtype=torch.float64))

        def at_the_location(v: Tensor, group: LieGroup = group) -> Tensor:
            g, loc = group.exp(v), group.exp(v.flip(0))
            return WrappedNormal(group, loc, v.new_tensor(0.7)).log_prob(group.compose(loc, g))

        def at_the_identity(v: Tensor, group: LieGroup = group, spread: WrappedNormal = spread) -> Tensor:
            return spread.log_prob(group.exp(v).double()).to(v)

        yield Claim(
            agreement(other=at_the_identity), at_the_location, shape(f"b {group.dim}"), name=f"WrappedNormal({group})"
        )
    plane, interval = SO2(), (-math.pi, math.pi)
    for scale in (0.5, 3.0):
        wrapped = WrappedNormal(plane, scale=scale)
        angles = {
            "sample": lambda n, wrapped=wrapped: wrapped.group.log(wrapped.sample((n,))),
            "log_prob": lambda x, wrapped=wrapped: wrapped.log_prob(wrapped.group.exp(x)),
        }
        for law in (samples_follow_density, density_integrates_to_one):
            yield Claim(
                law(**angles, support=interval), wrapped.log_prob, None, name=f"WrappedNormal(SO2, scale={scale})"
            )
