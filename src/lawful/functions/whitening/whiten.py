"""Whitening: data turned and stretched until no two features are correlated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.functions.whitening.moments import Moments, centred, products
from lawful.functions.whitening.pieces import row_by_row
from lawful.functions.whitening.rotations import cholesky, pca, zca
from lawful.laws import AtMost, Claim, Draw, Map, Same, Statement, agreement, law, made, shape

Rotation = Callable[[Tensor], Tensor]
r"""From a covariance $\Sigma$ to a $W$ with $W^\mathsf{T} \Sigma W = 1$: `pca`, `zca`, `cholesky` or another."""


def _lifted(covariance: Tensor, eps: float) -> Tensor:
    if not eps >= 0:
        raise ValueError(f"eps is not negative: got {eps}")
    return covariance + eps * torch.eye(covariance.shape[-1]).to(covariance)


def whiten(
    x: Float[Tensor, "*batch n d"], *, rotation: Rotation = zca, eps: float = 0.0
) -> Float[Tensor, "*batch n d"]:
    r"""Makes the covariance of the data the identity.

    $$Z = (X - \mu) \, W, \qquad W^\mathsf{T} (\Sigma + \epsilon) \, W = 1, \qquad
    \Sigma = \tfrac{1}{N} (X - \mu)^\mathsf{T} (X - \mu)$$

    Any $W$ times an orthogonal matrix is another: `rotation` says which one is meant. Directions without variance
    come out as 0. The gradient of `pca` is that of an eigendecomposition, with no value where eigenvalues coincide;
    `zca` has one there too, and `cholesky` wherever the data have full rank.

    Reference:
        Kessy, Lewin and Strimmer, *Optimal Whitening and Decorrelation*, 2018.

    Args:
        x: The data $X$, a row for each sample.
        rotation: From the covariance to $W$: `pca`, `zca` or `cholesky`.
        eps: $\epsilon$, not negative: small directions are stretched less.

    Examples:
        >>> x = torch.tensor([[0.0, 0.0], [2.0, 2.0], [4.0, 0.0], [2.0, -2.0]])
        >>> z = whiten(x)
        >>> (z.mT @ z / 4).round(decimals=4)
        tensor([[1., 0.],
                [0., 1.]])
    """
    if x.dim() < 2 or x.shape[-2] < 2 or x.numel() == 0:
        raise ValueError(f"at least 2 rows and 1 feature were wanted: got shape {tuple(x.shape)}")
    if not x.isfinite().all():
        raise ValueError("finite numbers were wanted: got NaN or infinite ones")
    off = centred(x, (-2,))
    return off @ rotation(_lifted(off.mT @ off / x.shape[-2], eps))


@dataclass(frozen=True, eq=False)
class Whitening:
    r"""Whitens new data as the data that it was fitted to, and back.

    $$z = (x - \mu) \, W, \qquad x = z \, W^\mathsf{T} (\Sigma + \epsilon) + \mu$$

    The second is the inverse since $W^\mathsf{T} (\Sigma + \epsilon) \, W = 1$. Where the data have no variance,
    `transform` gives 0 and `inverse` gives the mean, so that the data come back all the same; `rank` says how many
    directions there are besides. An $\epsilon$ above 0 keeps every direction. $\Sigma$ divides by $N$ (scikit-learn's
    PCA by $N - 1$). `fit` and `update` let no gradient pass, `transform` and `inverse` do.

    Args:
        moments: Count, mean and products of the data, from `fit`, or from `Moments.over` a stream.
        rotation: From the covariance to $W$: `pca`, `zca` or `cholesky`.
        eps: $\epsilon$, not negative.

    Examples:
        >>> fitted = Whitening.fit(torch.tensor([[0.0, 0.0], [2.0, 2.0]]))
        >>> fitted.rank, fitted.inverse(fitted.transform(torch.tensor([[4.0, 4.0]]))).round(decimals=4)
        (1, tensor([[4., 4.]]))
        >>> fitted.update(torch.tensor([[0.0, 1.0]])).rank
        2
    """

    moments: Moments
    rotation: Rotation = zca
    eps: float = 0.0

    def __post_init__(self) -> None:
        if self.moments.scatter.shape != (*self.moments.mean.shape, *self.moments.mean.shape):
            raise ValueError(f"moments with products were wanted: got {self.moments.scatters.__name__}")
        if self.moments.n < 2:
            raise ValueError(f"a covariance wants at least 2 rows: got {self.moments.n}")
        _lifted(self.covariance, self.eps)

    @classmethod
    def fit(cls, x: Float[Tensor, "n d"], *, rotation: Rotation = zca, eps: float = 0.0) -> Whitening:
        """Reads the data, which are to be finite."""
        if x.dim() != 2:
            raise ValueError(f"a row for each sample was wanted: got shape {tuple(x.shape)}")
        return cls(Moments.of(x, scatters=products), rotation, eps)

    def update(self, batch: Float[Tensor, "n d"]) -> Whitening:
        """Returns the one that has read a further batch too."""
        return replace(self, moments=self.moments.merge(Moments.of(batch, scatters=products)))

    @property
    def mean(self) -> Float[Tensor, " d"]:
        r"""$\mu$."""
        return self.moments.mean

    @property
    def covariance(self) -> Float[Tensor, "d d"]:
        r"""$\Sigma$."""
        return self.moments.scatter / self.moments.n

    @cached_property
    def weight(self) -> Float[Tensor, "d d"]:
        r"""$W$."""
        return self.rotation(_lifted(self.covariance, self.eps))

    @cached_property
    def weight_back(self) -> Float[Tensor, "d d"]:
        r"""$W^\mathsf{T} (\Sigma + \epsilon)$, the inverse of $W$ on what it keeps."""
        return self.weight.mT @ _lifted(self.covariance, self.eps)

    @cached_property
    def rank(self) -> int:
        """How many directions are kept: the trace of the projection onto them."""
        return round(float((self.weight @ self.weight_back).trace()))

    def transform(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        """Whitens rows, or a single one."""
        self._check(x)
        return row_by_row(lambda x, mean, weight: (x - mean) @ weight, x, self.mean, self.weight)

    def inverse(self, z: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        """Undoes `transform`."""
        self._check(z)
        return row_by_row(lambda z, mean, weight: z @ weight + mean, z, self.mean, self.weight_back)

    def _check(self, x: Tensor) -> None:
        if x.shape[-1:] != self.mean.shape:
            raise ValueError(f"{self.mean.numel()} features were wanted: got shape {tuple(x.shape)}")


def _flatness(x: Tensor) -> Tensor:
    """The least standard deviation along a principal axis, as a part of the largest: 0 for data of lower rank."""
    spread = torch.linalg.svdvals(x - x.mean(-2, keepdim=True))
    return spread[-1:] / spread[:1].clamp_min(torch.finfo(x.dtype).tiny)


@law("[1 f(x)]ᵀ [1 f(x)] / n = 1", tries=None)
def whiteness(f: Map, x: Tensor, *, draw: Draw) -> Statement:
    """The columns of the output have mean 0, variance 1 and no correlation.

    The domain leaves out data that are, or almost are, of lower rank.

    Kept by: whitening.
    Broken by: standardising; whitening with an eps.
    """
    draw.assume(_flatness(x) > 0.1)
    y = f(x)
    beside = torch.cat([torch.ones_like(y[:, :1]), y], -1)
    moments = beside.mT @ beside / len(y)
    return Same(moments, torch.eye(len(moments)).to(y), exercised=True)


@law("‖f(x) - x‖ ≤ ‖f(x) R - x‖, R orthogonal", tries=None)
def least_change(f: Map, x: Tensor, *, draw: Draw) -> Statement:
    """No rotation or reflection of the output is closer to the input, taken from its mean.

    Kept by: ZCA-whitening; the orthogonal factor of a polar decomposition.
    Broken by: PCA- and Cholesky-whitening.
    """
    y, off = f(x), x - x.mean(-2, keepdim=True)
    turn = torch.linalg.qr(draw.normal(y.shape[-1], y.shape[-1])).Q
    return AtMost((y - off).square().sum(), (y @ turn - off).square().sum())


def claims() -> Iterator[Claim]:
    """The laws that whitening obeys."""

    def flattened(x: Tensor) -> Tensor:
        return torch.cat([x, 2 * x[..., :1] - x[..., 1:] + 1], -1)

    data, flat = shape("n:4..7 3"), made(flattened, "n:4..7 2")
    for rotation in (pca, zca, cholesky):
        subject = partial(whiten, rotation=rotation)
        yield Claim(whiteness(), subject, data, name=f"whiten(rotation={rotation.__name__})")

        def and_back(x: Tensor, rotation: Rotation = rotation) -> Tensor:
            fitted = Whitening.fit(x, rotation=rotation)
            return fitted.inverse(fitted.transform(x))

        name = f"Whitening.inverse, rotation={rotation.__name__}"
        yield Claim(agreement(other=torch.clone), and_back, flat, name=f"{name}, rank 2 of 3")
    yield Claim(least_change(), whiten, data, name="whiten(rotation=zca)")

    def orthonormal(x: Tensor) -> Tensor:
        q, r = torch.linalg.qr(x - x.mean(0))
        return q * r.diagonal().sign() * len(x) ** 0.5

    def gram_schmidt(x: Tensor) -> Tensor:
        return whiten(x, rotation=cholesky)

    far = agreement(other=orthonormal).except_near(_flatness, radius=0.1)
    yield Claim(far, gram_schmidt, data, name="whiten(rotation=cholesky)")

    def lifted(x: Tensor) -> Tensor:
        return whiten(x, eps=0.5)

    def streamed(x: Tensor) -> Tensor:
        return Whitening.fit(x[:2], eps=0.5).update(x[2:]).transform(x)

    def equation(x: Tensor) -> Tensor:
        u, s, v = torch.linalg.svd(x - x.mean(0), full_matrices=False)
        return u * (s / (s.square() / len(x) + 0.5).sqrt()) @ v

    yield Claim(agreement(other=equation), lifted, data, name="whiten(eps=0.5)")
    yield Claim(agreement(other=equation), streamed, data, name="Whitening.update(eps=0.5)")

    def known(x: Tensor) -> Tensor:
        fitted, lifted = Whitening.fit(x), Whitening.fit(x, eps=0.5)
        ranks = x.new_tensor([[fitted.rank, lifted.rank, 0]])
        return torch.cat([ranks, fitted.covariance, fitted.transform(x), lifted.inverse(lifted.transform(x + 1))])

    def expected(x: Tensor) -> Tensor:
        return torch.cat([x.new_tensor([[2, 3, 0]]), x.mT.cov(correction=0), whiten(x), x + 1])

    def plane(x: Tensor) -> Tensor:
        return flattened(x.tanh() + x.new_tensor([[3.0, 0.0], [0.0, 3.0], [-3.0, 0.0], [0.0, -3.0]]))

    yield Claim(agreement(other=expected), known, made(plane, "4 2"), name="Whitening, rank 2 of 3")
