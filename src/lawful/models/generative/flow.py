"""Normalizing flows: base distributions, the model and factories of common architectures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks import Standardize
from lawful.blocks.flows import (
    ActNorm,
    AffineTransform,
    AutoregressiveTransform,
    ComposedTransform,
    CouplingTransform,
    DiagonalScale,
    DiscretizedLogistic,
    FourierEncoding,
    InvertibleLinear,
    LevelEncoding,
    RationalQuadraticSpline,
    ShiftTransform,
    UnivariateTransform,
)
from lawful.blocks.modes import eval_mode
from lawful.functions.random import normal_noise, resolve_seed, uniform_noise
from lawful.laws import (
    Claim,
    batch_independence,
    density_integrates_to_one,
    samples_follow_density,
    shape,
    transformed,
)
from lawful.models.generative.protocols import (
    _check_finite,
    _check_shape,
    _check_sizes,
    _class_frequencies,
    _one_hot_labels,
    _sample_shape,
    sample_labels,
)

_MAX_ROWS = 2048  # samples that pass through the inverse at once


class BaseDistribution(NamedTuple):
    """Base distribution of a flow, with independent entries.

    Examples:
        >>> NORMAL.log_prob(torch.zeros(1, 2)).exp(), 1 / (2 * math.pi)
        (tensor([0.1592]), 0.15915494309189535)
    """

    log_prob: Callable[[Float[Tensor, "n d"]], Float[Tensor, " n"]]
    """Log-density of each row."""
    sample: Callable[..., Tensor]
    """Draws rows with the arguments of `normal_noise`: `sample(n, d, seed=..., first=..., dtype=..., device=...)`."""


def _normal_log_prob(z: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    return -0.5 * z.square().sum(-1) - 0.5 * math.log(2 * math.pi) * z.shape[-1]


def _uniform_log_prob(z: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    inside = (z.abs() <= 1).all(-1)
    return torch.where(inside, -math.log(2) * z.shape[-1], -math.inf).to(z.dtype)


def _logistic_log_prob(z: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    return -(z + 2 * F.softplus(-z)).sum(-1)


def _uniform_sample(n: int, d: int, **options: object) -> Tensor:
    return 2 * uniform_noise(n, d, **options) - 1  # pyrefly: ignore [bad-argument-type]


def _logistic_sample(n: int, d: int, **options: object) -> Tensor:
    return torch.logit(uniform_noise(n, d, **options))  # pyrefly: ignore [bad-argument-type]


NORMAL = BaseDistribution(_normal_log_prob, normal_noise)
r"""Standard normal distribution $N(0, 1)$."""
LOGISTIC = BaseDistribution(_logistic_log_prob, _logistic_sample)
r"""Logistic distribution $e^{-z} / (1 + e^{-z})^2$: heavier tails and bounded gradients."""
UNIFORM = BaseDistribution(_uniform_log_prob, _uniform_sample)
"""Uniform distribution on [-1, 1]."""


class Flow(nn.Module):
    r"""Normalizing flow: an invertible transform of the data to a base distribution.

    $$\log p(x) = \log p_0\bigl(f(z)\bigr) + \log \Bigl|\det \frac{\partial f}{\partial z}\Bigr| - \sum_i \log \sigma_i,
    \qquad z = \frac{x - \mu}{\sigma}$$

    The normalizer is part of the flow: densities are in the units of the data. Examples of any shape are flattened. A
    conditional flow passes one-hot labels to its transform; without labels its density is the mixture of the classes,
    weighted by their training frequencies.

    Reference:
        Papamakarios, Nalisnick, Rezende, Mohamed and Lakshminarayanan, *Normalizing Flows for Probabilistic Modeling
        and Inference*, 2021.

    Args:
        transform: Invertible transform $f$; a conditional one takes `num_classes` condition features.
        base: Base distribution $p_0$.
        shape: Shape of an example.
        num_classes: Number of classes; 0 for an unconditional flow.

    Examples:
        >>> flow = Flow(ComposedTransform([AutoregressiveTransform(2, transform=AffineTransform())]), shape=(2,))
        >>> flow = flow.fit_normalizer(torch.tensor([[1.0, 5.0], [3.0, 5.5]]))
        >>> flow.log_prob(torch.tensor([[2.0, 5.0]])).shape, flow.sample(3).shape
        (torch.Size([1]), torch.Size([3, 2]))
    """

    frequencies: Tensor

    def __init__(
        self,
        transform: ComposedTransform,
        base: BaseDistribution = NORMAL,
        *,
        shape: tuple[int, ...],
        num_classes: int = 0,
    ) -> None:
        _check_sizes(shape, num_classes)
        super().__init__()
        self.shape, self.base, self.num_classes = tuple(shape), base, num_classes
        self.normalizer, self.transform = Standardize(math.prod(shape)), transform
        self.register_buffer("frequencies", torch.full((num_classes,), 1 / max(1, num_classes)))

    @torch.no_grad()
    def fit_normalizer(self, x: Float[Tensor, "n *shape"], *, labels: Int[Tensor, " n"] | None = None) -> Flow:
        """Fits the normalizer, the class frequencies and data-dependent initializations such as `ActNorm`'s."""
        condition = self._condition(labels, x.shape[0])
        if labels is not None:
            self.frequencies.copy_(_class_frequencies(labels, self.num_classes))
        rows = self._rows(x)
        self.normalizer.fit(rows)
        self.transform.fit(self.normalizer(rows), condition)
        return self

    @torch.no_grad()
    def set_normalizer_range(self, low: float, high: float) -> Flow:
        """Normalizes the interval [low, high] to [-1, 1], without data."""
        if not -math.inf < low < high < math.inf:
            raise ValueError(f"expected finite low < high, got low={low}, high={high}")
        self.normalizer.mean.fill_((low + high) / 2)
        self.normalizer.std.fill_((high - low) / 2)
        return self

    def encode(
        self, x: Float[Tensor, "n *shape"], *, labels: Int[Tensor, " n"] | None = None
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Maps examples to the base distribution; returns latents and log-determinants."""
        z, log_det = self.transform(self.normalizer(self._rows(x)), self._condition(labels, x.shape[0]))
        return z, log_det - self.normalizer.std.log().sum()

    @torch.no_grad()
    def decode(self, z: Float[Tensor, "n d"], *, labels: Int[Tensor, " n"] | None = None) -> Float[Tensor, "n *shape"]:
        """Maps latents to examples, without gradients; see `rsample`."""
        return self._decode(z, labels)

    def _decode(self, z: Tensor, labels: Tensor | None) -> Tensor:
        condition = self._condition(labels, z.shape[0])
        with eval_mode(self):
            x, _ = self.transform.inverse(z, condition)
        return self.normalizer.inverse(x).reshape(z.shape[0], *self.shape)

    def log_prob(self, x: Float[Tensor, "n *shape"], *, labels: Int[Tensor, " n"] | None = None) -> Float[Tensor, " n"]:
        r"""Returns $\log p(x)$ or $\log p(x \mid \text{label})$ of each example, in nats; differentiable."""
        _check_finite(x)
        if self.num_classes and labels is None:
            classes = [torch.full((x.shape[0],), c, device=x.device) for c in range(self.num_classes)]
            joint = torch.stack([self.log_prob(x, labels=c) for c in classes], -1) + self.frequencies.log()
            return joint.logsumexp(-1)
        z, log_det = self.encode(x, labels=labels)
        return self.base.log_prob(z) + log_det

    @torch.no_grad()
    def sample(
        self,
        n: int | Sequence[int],
        seed: int | None = None,
        *,
        first: int = 0,
        labels: Int[Tensor, "*n"] | None = None,
    ) -> Float[Tensor, "*n *shape"]:
        """Draws samples without gradients: `sample(100)` or `sample((100,))`.

        Args:
            n: Number of samples, or a shape.
            seed: Random seed. None draws one from torch's generator.
            first: Index of the first sample of the seed.
            labels: Class of each sample. Defaults to classes drawn by their training frequencies.
        """
        return self.rsample(n, seed, first=first, labels=labels)

    def rsample(
        self,
        n: int | Sequence[int],
        seed: int | None = None,
        *,
        first: int = 0,
        labels: Int[Tensor, "*n"] | None = None,
    ) -> Float[Tensor, "*n *shape"]:
        r"""Draws samples that are differentiable in the parameters: $x = f_\theta^{-1}(z)$ with $z \sim p_0$.

        Equal to `sample` with the same seed. Dropout is off.

        Args:
            n: Number of samples, or a shape.
            seed: Random seed. None draws one from torch's generator.
            first: Index of the first sample of the seed.
            labels: Class of each sample. Defaults to classes drawn by their training frequencies.
        """
        mean, seed, sample_shape = self.normalizer.mean, resolve_seed(seed), _sample_shape(n)
        n = math.prod(sample_shape)
        z = self.base.sample(n, len(mean), seed=seed, first=first, dtype=mean.dtype, device=mean.device)
        if labels is None:
            labels = sample_labels(n, self.frequencies, seed=seed, stream=1, first=first)
        elif labels.dim() > 1:
            labels = labels.flatten()
        if not n:
            return z.reshape(*sample_shape, *self.shape)
        parts = [None] * -(-n // _MAX_ROWS) if labels is None else labels.split(_MAX_ROWS)
        x = torch.cat([self._decode(a, b) for a, b in zip(z.split(_MAX_ROWS), parts, strict=True)])
        if not bool(x.isfinite().all()):
            raise ValueError("samples are NaN or infinite: the flow has diverged")
        return x.reshape(*sample_shape, *self.shape)

    def _condition(self, labels: Tensor | None, n: int) -> Tensor | None:
        return _one_hot_labels(labels, n, num_classes=self.num_classes, dtype=self.normalizer.mean.dtype)

    def _rows(self, x: Tensor) -> Tensor:
        _check_shape(x, self.shape)
        return x.reshape(x.shape[0], math.prod(self.shape))


def spline_flow(
    dim: int | tuple[int, ...],
    *,
    num_classes: int = 0,
    num_layers: int = 2,
    hidden_dims: Sequence[int] = (64, 64),
    num_bins: int = 16,
    bound: float = 3.0,
    num_frequencies: int = 8,
    dropout: float = 0.0,
) -> Flow:
    """Builds an autoregressive neural spline flow; layers alternate the order of the features.

    Reference:
        Durkan, Bekasov, Murray and Papamakarios, *Neural Spline Flows*, 2019.

    Args:
        dim: Number of features, or the shape of an example.
        num_classes: Number of classes; 0 for an unconditional flow.
        num_layers: Number of autoregressive layers.
        hidden_dims: Hidden widths of each network.
        num_bins: Number of bins of a spline.
        bound: Splines act on [-bound, bound], in standard deviations.
        num_frequencies: Number of Fourier features of each input of a network.
        dropout: Dropout probability.

    Examples:
        >>> flow = spline_flow(dim=2, hidden_dims=[8])
        >>> flow.log_prob(torch.zeros(3, 2)).shape
        torch.Size([3])
    """
    shape = _as_shape(dim)
    d = math.prod(shape)
    layers = [
        AutoregressiveTransform(
            d,
            transform=RationalQuadraticSpline(num_bins=num_bins, bound=bound),
            order=_feature_order(d, i),
            hidden_dims=hidden_dims,
            condition_dim=num_classes,
            encoding=FourierEncoding(num_frequencies=num_frequencies, bound=bound),
            dropout=dropout,
        )
        for i in range(num_layers)
    ]
    return Flow(ComposedTransform(layers), shape=shape, num_classes=num_classes)


def maf(
    dim: int | tuple[int, ...],
    *,
    num_classes: int = 0,
    num_layers: int = 5,
    hidden_dims: Sequence[int] = (64, 64),
    dropout: float = 0.0,
) -> Flow:
    r"""Builds a masked autoregressive flow; layers alternate the order of the features.

    $$z_i = e^{s_i} x_i + t_i, \qquad |s_i| \le 2, \qquad
    x_i \mid x_1, \dots, x_{i - 1} \sim N\bigl(-e^{-s_i} t_i, \; e^{-2 s_i}\bigr)$$

    is one layer, where $s_i$ and $t_i$ depend on the earlier features.

    Reference:
        Papamakarios, Pavlakou and Murray, *Masked Autoregressive Flow for Density Estimation*, 2017.

    Args:
        dim: Number of features, or the shape of an example.
        num_classes: Number of classes; 0 for an unconditional flow.
        num_layers: Number of autoregressive layers.
        hidden_dims: Hidden widths of each network.
        dropout: Dropout probability.

    Examples:
        >>> [layer.order for layer in maf(dim=3, num_layers=2).transform]
        [(0, 1, 2), (2, 1, 0)]
    """
    shape = _as_shape(dim)
    d = math.prod(shape)
    layers = [
        AutoregressiveTransform(
            d,
            transform=AffineTransform(),
            order=_feature_order(d, i),
            hidden_dims=hidden_dims,
            condition_dim=num_classes,
            dropout=dropout,
        )
        for i in range(num_layers)
    ]
    return Flow(ComposedTransform(layers), shape=shape, num_classes=num_classes)


def discretized_flow(
    dim: int | tuple[int, ...],
    *,
    num_levels: int,
    low: float = 0.0,
    high: float = 1.0,
    num_classes: int = 0,
    hidden_dims: Sequence[int] = (1024,),
    num_components: int = 10,
    dropout: float = 0.5,
) -> Flow:
    """Builds an autoregressive flow of dequantized levels; its density is constant on the cell of each level.

    Args:
        dim: Number of features, or the shape of an example.
        num_levels: Number of levels.
        low: Lower end of the cells, half a cell below the lowest level.
        high: Upper end of the cells.
        num_classes: Number of classes; 0 for an unconditional flow.
        hidden_dims: Hidden widths of the network.
        num_components: Number of logistic mixture components.
        dropout: Dropout probability.

    Examples:
        >>> flow = discretized_flow((8, 8), num_levels=17, low=-0.5, high=16.5, hidden_dims=[8])
        >>> bool(flow.log_prob(torch.full((1, 8, 8), 17.0)).isneginf())
        True
    """
    shape = _as_shape(dim)
    layer = AutoregressiveTransform(
        math.prod(shape),
        transform=DiscretizedLogistic(num_levels=num_levels, num_components=num_components),
        hidden_dims=hidden_dims,
        condition_dim=num_classes,
        encoding=LevelEncoding(num_levels),
        dropout=dropout,
    )
    flow = Flow(ComposedTransform([layer]), UNIFORM, shape=shape, num_classes=num_classes)
    return flow.set_normalizer_range(low, high)


def real_nvp(
    dim: int | tuple[int, ...],
    *,
    transform: UnivariateTransform | None = None,
    num_classes: int = 0,
    num_layers: int = 8,
    hidden_dims: Sequence[int] = (64, 64),
) -> Flow:
    """Builds a RealNVP: affine couplings, each after an `ActNorm` and a learned linear map as in Glow.

    Reference:
        Dinh, Sohl-Dickstein and Bengio, *Density estimation using Real NVP*, 2017; Kingma and Dhariwal, *Glow:
        Generative Flow with Invertible 1x1 Convolutions*, 2018.

    Args:
        dim: Number of features, at least 2, or the shape of an example.
        transform: Transform of the couplings. Defaults to the bounded `AffineTransform()`.
        num_classes: Number of classes; 0 for an unconditional flow.
        num_layers: Number of couplings.
        hidden_dims: Hidden widths of each network.

    Examples:
        >>> len(real_nvp(dim=4, num_layers=2).transform)
        6
    """
    shape = _as_shape(dim)
    d, layers = math.prod(shape), list[nn.Module]()
    transform = AffineTransform() if transform is None else transform
    for i in range(num_layers):
        coupling = CouplingTransform(
            d, transform=transform, transformed=range(i % 2, d, 2), hidden_dims=hidden_dims, condition_dim=num_classes
        )
        layers += [ActNorm(d), InvertibleLinear(d), coupling]
    return Flow(ComposedTransform(layers), shape=shape, num_classes=num_classes)


def nice(
    dim: int | tuple[int, ...], *, num_classes: int = 0, num_layers: int = 4, hidden_dims: Sequence[int] = (64, 64)
) -> Flow:
    """Builds a NICE flow: volume-preserving additive couplings and a final diagonal scale.

    Reference:
        Dinh, Krueger and Bengio, *NICE: Non-linear Independent Components Estimation*, 2015.

    Args:
        dim: Number of features, at least 2, or the shape of an example.
        num_classes: Number of classes; 0 for an unconditional flow.
        num_layers: Number of couplings.
        hidden_dims: Hidden widths of each network.

    Examples:
        >>> nice(dim=2, num_layers=1).transform[1]
        DiagonalScale()
    """
    shape = _as_shape(dim)
    d = math.prod(shape)
    couplings = [
        CouplingTransform(
            d,
            transform=ShiftTransform(),
            transformed=range(i % 2, d, 2),
            hidden_dims=hidden_dims,
            condition_dim=num_classes,
        )
        for i in range(num_layers)
    ]
    transform = ComposedTransform([*couplings, DiagonalScale(d)])
    return Flow(transform, LOGISTIC, shape=shape, num_classes=num_classes)


def _as_shape(dim: int | tuple[int, ...]) -> tuple[int, ...]:
    return (dim,) if isinstance(dim, int) else tuple(dim)


def _feature_order(d: int, layer: int) -> range:
    """The order of the features: ascending in even layers, descending in odd ones."""
    return range(d)[:: (-1) ** layer]


def claims() -> Iterator[Claim]:
    """Base distributions and flows are densities; examples do not mix."""
    for name, base in (("NORMAL", NORMAL), ("LOGISTIC", LOGISTIC), ("UNIFORM", UNIFORM)):

        def sample(n: int, *, base: BaseDistribution = base) -> Tensor:
            return base.sample(n, 2, seed=resolve_seed(None))

        support = (-1.0, 1.0) if base is UNIFORM else None
        for law in (samples_follow_density, density_integrates_to_one):
            density = law(sample=sample, log_prob=base.log_prob, support=support)
            yield Claim(density, base.log_prob, shape("n 2"), name=name)
    for name, flow in (
        ("spline_flow", spline_flow(2, hidden_dims=[4], num_bins=2, num_frequencies=1)),
        ("maf", maf(2, num_layers=2, hidden_dims=[4])),
        (
            "discretized_flow",
            discretized_flow(3, num_levels=3, low=-9.0, high=9.0, hidden_dims=[4], num_components=2),
        ),
        ("real_nvp", real_nvp(2, num_layers=1, hidden_dims=[4])),
        ("nice", nice(2, num_layers=2, hidden_dims=[4])),
    ):
        inputs = transformed(torch.tanh, f"n {flow.shape[0]}")
        yield Claim(replace(batch_independence(), cases=10), flow.eval().log_prob, inputs, name=name)
    for name, flow in (
        ("spline_flow", spline_flow(2, hidden_dims=[4], num_bins=2, num_frequencies=1)),
        ("nice", nice(2, hidden_dims=[8])),
    ):

        def log_prob(x: Tensor, *, flow: Flow = flow) -> Tensor:
            return flow.eval().log_prob(x.to(flow.normalizer.mean)).detach()

        def draw(n: int, *, flow: Flow = flow) -> Tensor:
            return flow.sample(n)

        density = replace(samples_follow_density(sample=draw, log_prob=log_prob), cases=2)
        yield Claim(density, log_prob, shape("n 2"), name=name)
