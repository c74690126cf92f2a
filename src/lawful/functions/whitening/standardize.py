"""Standardising: every feature brought to mean 0 and variance 1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lawful.functions.whitening.moments import Moments, centred, squares
from lawful.functions.whitening.pieces import row_by_row
from lawful.laws import Claim, agreement, made, permutation_equivariance, scale_invariance, shape, shift_invariance


def standardize(x: Float[Tensor, "*shape"], *, axes: Sequence[int] = (0,), eps: float = 0.0) -> Float[Tensor, "*shape"]:
    r"""Takes the mean away and divides by the standard deviation (the z-score).

    $$z_{nd} = \frac{x_{nd} - \mu_d}{\sqrt{\sigma_d^2 + \epsilon}}, \qquad
    \mu_d = \tfrac{1}{N} \sum_n x_{nd}, \quad \sigma_d^2 = \tfrac{1}{N} \sum_n (x_{nd} - \mu_d)^2$$

    Where nothing varies there is no unit to measure in: the result is exactly 0, and so is its gradient. How large
    the numbers are makes no difference: squares are those of parts of the largest one.

    Args:
        x: The data, with samples along the axes and any features along the others.
        axes: The axes that $n$ runs over.
        eps: $\epsilon$, not negative.

    Examples:
        >>> standardize(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
        tensor([[-1.,  0.],
                [ 1.,  0.]])
    """
    if x.numel() == 0 or not axes:
        raise ValueError(f"entries, and an axis to run over, were wanted: got shape {tuple(x.shape)}, axes {axes}")
    _check_eps(eps)
    off, axes = centred(x, axes), tuple(axes)
    size = off.detach().abs().amax(axes, keepdim=True)
    none = size == 0
    size = size.clamp_min(eps**0.5).masked_fill(none, 1.0)
    off = off / size
    variance = off.square().mean(axes, keepdim=True) + eps / size / size
    return off * variance.masked_fill(none, torch.inf).rsqrt()


def _check_eps(eps: float) -> None:
    if not eps >= 0:
        raise ValueError(f"eps is not negative: got {eps}")


def _unit(variance: Tensor, eps: float) -> Tensor:
    """What makes the variance 1: 0 where nothing varies."""
    _check_eps(eps)
    return (variance + eps).masked_fill(variance == 0, torch.inf).rsqrt()


@dataclass(frozen=True, eq=False)
class Standardizer:
    r"""Standardises new data as the data that it was fitted to, and back.

    $$z = (x - \mu) / \sqrt{\sigma^2 + \epsilon}, \qquad x = z \sqrt{\sigma^2 + \epsilon} + \mu$$

    Samples lie along the first axis. A constant feature comes out as exactly 0, whatever it is in new data, and the
    inverse gives the constant. Data so small that their squares vanish are refused, as are huge ones. `fit` and
    `update` let no gradient pass, `transform` and `inverse` do.

    Args:
        moments: Count, mean and squares of the data, from `fit`, or from `Moments.over` a stream.
        eps: $\epsilon$, not negative.

    Examples:
        >>> fitted = Standardizer.fit(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
        >>> fitted.transform(torch.tensor([[4.0, 5.0]])), fitted.constant
        (tensor([[2., 0.]]), tensor([False,  True]))
        >>> fitted.update(torch.tensor([[5.0, 6.0]])).mean
        tensor([3.0000, 5.3333])
    """

    moments: Moments
    eps: float = 0.0

    def __post_init__(self) -> None:
        if self.moments.scatter.shape != self.mean.shape:
            raise ValueError(f"moments with squares were wanted: got {self.moments.scatters.__name__}")
        if self.moments.n < 2:
            raise ValueError(f"a spread wants at least 2 rows: got {self.moments.n}")
        _unit(self.variance, self.eps)

    @classmethod
    def fit(cls, x: Float[Tensor, "n ..."], *, eps: float = 0.0) -> Standardizer:
        """Reads the data, which are to be finite."""
        return cls(Moments.of(x, scatters=squares), eps)

    def update(self, batch: Float[Tensor, "n ..."]) -> Standardizer:
        """Returns the one that has read a further batch too."""
        return replace(self, moments=self.moments.merge(Moments.of(batch, scatters=squares)))

    @property
    def mean(self) -> Float[Tensor, ...]:
        r"""$\mu$."""
        return self.moments.mean

    @property
    def variance(self) -> Float[Tensor, ...]:
        r"""$\sigma^2$."""
        return self.moments.scatter / self.moments.n

    @property
    def constant(self) -> Bool[Tensor, ...]:
        """Which features never varied."""
        return self.moments.scatter == 0

    def transform(self, x: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """Standardises rows, or a single one."""
        self._check(x)
        return row_by_row(lambda x, mean, unit: (x - mean) * unit, x, self.mean, _unit(self.variance, self.eps))

    def inverse(self, z: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """Undoes `transform`."""
        self._check(z)
        root = (self.variance + self.eps).sqrt().masked_fill(self.constant, 0.0)
        return row_by_row(lambda z, mean, root: z * root + mean, z, self.mean, root)

    def _check(self, x: Tensor) -> None:
        if x.shape[max(0, x.dim() - self.mean.dim()) :] != self.mean.shape:
            raise ValueError(f"features of shape {tuple(self.mean.shape)} were wanted: got shape {tuple(x.shape)}")


def claims() -> Iterator[Claim]:
    """The laws that standardising obeys."""
    data = shape("n:2..6 3")
    yield Claim(shift_invariance(axis=0), standardize, data)
    yield Claim(scale_invariance(axis=0), standardize, data)
    yield Claim(permutation_equivariance(axis=0), standardize, data)

    def equation(x: Tensor) -> Tensor:
        z = (x - x.mean(0)) / x.var(0, correction=0).sqrt()
        return torch.where((x == x[0]).all(0), 0.0, z)

    def over_both(x: Tensor) -> Tensor:
        return standardize(x, axes=(0, 1), eps=0.1)

    def lifted_equation(x: Tensor) -> Tensor:
        return (x - x.mean()) / (x.var(correction=0) + 0.1).sqrt()

    yield Claim(agreement(other=equation), standardize, data)
    yield Claim(agreement(other=lifted_equation), over_both, data, name="standardize(axes=(0, 1), eps=0.1)")

    def streamed(x: Tensor) -> Tensor:
        return Standardizer.fit(x[:2], eps=0.1).update(x[2:]).transform(x)

    def and_back(x: Tensor) -> Tensor:
        fitted = Standardizer.fit(x)
        return fitted.inverse(fitted.transform(x))

    yield Claim(agreement(other=partial(standardize, eps=0.1)), streamed, shape("n:3..8 3"), name="Standardizer.update")
    yield Claim(agreement(other=torch.clone), and_back, data, name="Standardizer.inverse")

    def beside_five(x: Tensor) -> Tensor:
        steps = torch.arange(len(x)).to(x)[:, None]
        return torch.cat([x.tanh() + 3 * steps, 5 + 0 * steps], -1)

    def of_new(x: Tensor) -> Tensor:
        fitted, new = Standardizer.fit(x, eps=0.1), x + 1
        return torch.cat(
            [fitted.transform(new), fitted.inverse(new), fitted.constant.to(x)[None], fitted.variance[None]]
        )

    def written_out(x: Tensor) -> Tensor:
        variance, varies, new = x.var(0, correction=0), x.new_tensor([1, 1, 0]), x + 1
        z, y = (new - x.mean(0)) / (variance + 0.1).sqrt(), new * (variance + 0.1).sqrt()
        return torch.cat([varies * z, varies * y + x.mean(0), 1 - varies[None], variance[None]])

    constant = made(beside_five, "n:2..6 2")
    yield Claim(agreement(other=written_out), of_new, constant, name="Standardizer(eps=0.1), a constant feature")
