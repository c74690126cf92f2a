"""Base densities of flows: what the data are turned into, with a formula and a sampler each.

Normalising flows: data turned into noise by an invertible map, so that their density is known exactly.
Well-known flows, built of the blocks.
"""

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
from lawful.functions.estimate import LogProbEstimate
from lawful.functions.random import categorical_noise, normal_noise, uniform_noise
from lawful.laws import (
    Claim,
    agreement,
    batch_independence,
    density_integrates_to_one,
    samples_follow_density,
    shape,
    transformed,
)
from lawful.models.generative.protocols import finite, unconditional

Noise = Callable[..., Tensor]


class Base(NamedTuple):
    """Holds a density of vectors with independent entries.

    Examples:
        >>> NORMAL.log_density(torch.zeros(1, 2)).exp(), 1 / (2 * math.pi)
        (tensor([0.1592]), 0.15915494309189535)
    """

    log_density: Callable[[Float[Tensor, "n d"]], Float[Tensor, " n"]]
    """The log-density of each row."""
    noise: Noise
    """Draws rows, as `normal_noise` does: `noise(n, d, seed=..., first=..., dtype=..., device=...)`."""


def _normal(z: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    return -0.5 * z.square().sum(-1) - 0.5 * math.log(2 * math.pi) * z.shape[-1]


def _uniform(z: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    inside = (z.abs() <= 1).all(-1)
    return torch.where(inside, -math.log(2) * z.shape[-1], -math.inf).to(z.dtype)


def _logistic(z: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    return -(z + 2 * F.softplus(-z)).sum(-1)


def _uniform_noise(n: int, d: int, **kept: object) -> Tensor:
    return 2 * uniform_noise(n, d, **kept) - 1  # pyrefly: ignore [bad-argument-type]


def _logistic_noise(n: int, d: int, **kept: object) -> Tensor:
    return torch.logit(uniform_noise(n, d, **kept))  # pyrefly: ignore [bad-argument-type]


NORMAL = Base(_normal, normal_noise)
r"""$N(0, 1)$ in each entry."""
LOGISTIC = Base(_logistic, _logistic_noise)
r"""$e^{-z} / (1 + e^{-z})^2$ in each entry; its tails are heavier, and its gradients bounded."""
UNIFORM = Base(_uniform, _uniform_noise)
"""Even on the box from -1 to 1, and 0 outside."""


def _bases_claims() -> Iterator[Claim]:
    """The laws that base densities obey."""

    def of(base: Base) -> Callable[[int], Tensor]:
        return lambda n: base.noise(n, 2, seed=int(torch.randint(2**31, ())))

    for name, base in (("NORMAL", NORMAL), ("LOGISTIC", LOGISTIC), ("UNIFORM", UNIFORM)):
        support = (-1.0, 1.0) if base is UNIFORM else None
        for law in (samples_follow_density, density_integrates_to_one):
            kept = law(sample=of(base), log_prob=base.log_density, support=support)
            yield Claim(kept, base.log_density, shape("n 2"), name=name)


_ROWS = 2048


class Flow(nn.Module):
    r"""Turns examples into noise of a known density, by invertible blocks.

    $$\log p(x) = \log p_0\bigl(f(z)\bigr) + \log \Bigl|\det \frac{\partial f}{\partial z}\Bigr| - \sum_i \log \sigma_i,
    \qquad z = \frac{x - \mu}{\sigma}$$

    The standardising layer (`units`) is part of the flow, so that densities are those of the data in their own units.
    Examples of any shape are flattened. A flow of several classes is conditional: the blocks see which class it is.
    Where no labels are given its density is that of the mixture of its classes, as frequent as in the data.

    Reference:
        Papamakarios, Nalisnick, Rezende, Mohamed and Lakshminarayanan, *Normalizing Flows for Probabilistic Modeling
        and Inference*, 2021.

    Args:
        blocks: $f$; of a conditional flow, with a condition of as many entries as there are classes.
        shape: The shape of an example.
        base: $p_0$.
        classes: How many classes there are; 0 without labels.

    Examples:
        >>> flow = Flow(ComposedTransform([AutoregressiveTransform(2, transform=AffineTransform())]), shape=(2,))
        >>> flow = flow.fit(torch.tensor([[1.0, 5.0], [3.0, 5.5]]))
        >>> flow.log_prob(torch.tensor([[2.0, 5.0]])).value.shape, flow.sample(3).shape
        (torch.Size([1]), torch.Size([3, 2]))
    """

    frequencies: Tensor

    def __init__(
        self, blocks: ComposedTransform, *, shape: tuple[int, ...], base: Base = NORMAL, classes: int = 0
    ) -> None:
        if not shape or min(shape) < 1 or classes < 0:
            raise ValueError(f"sizes of at least 1 and no fewer than 0 classes were wanted: got {shape} and {classes}")
        super().__init__()
        self.shape, self.base, self.classes = tuple(shape), base, classes
        self.units, self.blocks = Standardize(math.prod(shape)), blocks
        self.register_buffer("frequencies", torch.full((classes,), 1 / max(1, classes)))

    @torch.no_grad()
    def fit(self, x: Float[Tensor, "n *shape"], *, labels: Int[Tensor, " n"] | None = None) -> Flow:
        """Reads the data's moments, how frequent classes are, and what blocks begin with; it trains nothing."""
        condition = self._condition(labels, len(x))
        if self.classes and labels is not None:
            self.frequencies.copy_(torch.bincount(labels, minlength=self.classes) / len(labels))
        rows = self._rows(x)
        self.units.fit(rows)
        self.blocks.fit(self.units(rows), condition)
        return self

    @torch.no_grad()
    def within(self, low: float, high: float) -> Flow:
        """Takes the data's units from a range instead: it becomes the interval from -1 to 1."""
        if not -math.inf < low < high < math.inf:
            raise ValueError(f"low is below high, both finite: got {low} and {high}")
        self.units.mean.fill_((low + high) / 2)
        self.units.std.fill_((high - low) / 2)
        return self

    def encode(
        self, x: Float[Tensor, "n *shape"], *, labels: Int[Tensor, " n"] | None = None
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Turns examples into noise, and returns the log-determinants."""
        z, log_det = self.blocks(self.units(self._rows(x)), self._condition(labels, len(x)))
        return z, log_det - self.units.std.log().sum()

    @torch.no_grad()
    def decode(self, z: Float[Tensor, "n d"], *, labels: Int[Tensor, " n"] | None = None) -> Float[Tensor, "n *shape"]:
        """Turns noise into examples."""
        condition = self._condition(labels, len(z))
        with eval_mode(self):
            x, _ = self.blocks.inverse(z, condition)
        return self.units.inverse(x).reshape(len(z), *self.shape)

    def log_density(
        self, x: Float[Tensor, "n *shape"], *, labels: Int[Tensor, " n"] | None = None
    ) -> Float[Tensor, " n"]:
        r"""$\log p(x)$, or $\log p(x \mid \text{label})$, which lets gradients pass."""
        if self.classes and labels is None:
            each = [self.log_density(x, labels=torch.full((len(x),), c, device=x.device)) for c in range(self.classes)]
            return torch.logsumexp(torch.stack(each, -1) + self.frequencies.log(), -1)
        z, log_det = self.encode(x, labels=labels)
        return self.base.log_density(z) + log_det

    @torch.no_grad()
    def log_prob(
        self, x: Float[Tensor, "n *shape"], *, labels: Int[Tensor, " n"] | None = None, seed: int = 0
    ) -> LogProbEstimate:
        """Returns the log-density of each example, in nats; exact."""
        finite(x)
        parts = [None] * -(-len(x) // _ROWS) if labels is None else labels.split(_ROWS)
        with eval_mode(self):
            found = [self.log_density(a, labels=b) for a, b in zip(x.split(_ROWS), parts, strict=False) if len(a)]
        value = torch.cat(found) if found else x.new_zeros(0)
        if bool(value.isnan().any()):
            raise ValueError(f"the flow gives NaN for {int(value.isnan().sum())} of {len(x)} examples: it has diverged")
        return LogProbEstimate.exact(value, evaluations=self.classes if self.classes and labels is None else 1)

    @torch.no_grad()
    def sample(
        self, n: int, seed: int = 0, *, first: int = 0, labels: Int[Tensor, " n"] | None = None
    ) -> Float[Tensor, "n *shape"]:
        """Draws examples; without labels those of a conditional flow have classes as frequent as in the data."""
        mean = self.units.mean
        z = self.base.noise(n, len(mean), seed=seed, first=first, dtype=mean.dtype, device=mean.device)
        if self.classes and labels is None:
            labels = categorical_noise(n, self.frequencies.double(), seed=seed, stream=1, first=first).to(mean.device)
        if not n:
            return z.reshape(0, *self.shape)
        given = [None] * -(-n // _ROWS) if labels is None else labels.split(_ROWS)
        drawn = torch.cat([self.decode(a, labels=b) for a, b in zip(z.split(_ROWS), given, strict=True)])
        if not bool(drawn.isfinite().all()):
            raise ValueError("the flow draws NaN or infinite numbers: it has diverged")
        return drawn

    def _condition(self, labels: Tensor | None, n: int) -> Tensor | None:
        if not self.classes:
            return unconditional(labels)
        if labels is None:
            raise ValueError(f"labels were wanted: the flow is of {self.classes} classes")
        if tuple(labels.shape) != (n,):
            raise ValueError(f"a label for each of {n} examples was wanted: got shape {tuple(labels.shape)}")
        if labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < self.classes:
            raise ValueError(f"labels are from 0 to {self.classes - 1}: got {int(labels.min())} to {int(labels.max())}")
        return F.one_hot(labels.long(), self.classes).to(self.units.mean.dtype)

    def _rows(self, x: Tensor) -> Tensor:
        if tuple(x.shape[1:]) != self.shape:
            raise ValueError(f"examples of shape {self.shape} were wanted: got shape {tuple(x.shape)}")
        return x.reshape(len(x), math.prod(self.shape))


def _flow_claims() -> Iterator[Claim]:
    """The laws that flows obey."""
    x = torch.tensor([[1.0, -2.0], [3.0, 4.0], [2.0, 0.5]])
    plain = Flow(
        ComposedTransform([AutoregressiveTransform(2, transform=AffineTransform(), hidden_dims=[])]), shape=(2,)
    ).fit(x)
    two = ComposedTransform(
        [CouplingTransform(2, transform=AffineTransform(bound=1.0), hidden_dims=[4], condition_dim=2, activation=torch.tanh)]
    )
    classes = Flow(two, shape=(2,), base=LOGISTIC, classes=2).fit(x, labels=torch.tensor([0, 1, 1]))
    with torch.no_grad():
        for i, p in enumerate([*plain.blocks.parameters(), *classes.blocks.parameters()]):
            p.copy_(0.7 * torch.sin(torch.arange(p.numel()).reshape(p.shape) + i + 1.0))

    def gaussian(y: Tensor) -> Tensor:
        """An affine autoregressive flow of one layer without hidden units is conditionally Gaussian."""
        z = (y - x.mean(0).to(y)) / x.std(0, correction=0).to(y)
        u = plain.get_submodule("blocks.0.network")(z)
        scale, shift = torch.exp(2 * torch.tanh(u[..., 0] / 2)), u[..., 1]
        spread = x.std(0, correction=0).to(y) / scale
        centre = x.mean(0).to(y) - spread * shift
        return torch.distributions.Normal(centre, spread).log_prob(y).sum(-1)

    yield Claim(
        agreement(other=gaussian), lambda y: plain.log_density(y), transformed(torch.tanh, "n 2"), name="Flow, affine"
    )

    def sampled(flow: Flow) -> Callable[[int], Tensor]:
        return lambda n: flow.sample(n, seed=int(torch.randint(2**31, ())))

    def scored(flow: Flow) -> Callable[[Tensor], Tensor]:
        return lambda y: flow.log_prob(y.to(flow.units.mean)).value

    for law, flow, name in (
        (samples_follow_density, plain, "Flow"),
        (density_integrates_to_one, plain, "Flow"),
        (density_integrates_to_one, classes, "Flow of two classes"),
    ):
        yield Claim(law(sample=sampled(flow), log_prob=scored(flow)), scored(flow), shape("n 2"), name=name)


def spline_flow(
    shape: tuple[int, ...],
    *,
    classes: int = 0,
    layers: int = 2,
    hidden: Sequence[int] = (64, 64),
    bins: int = 16,
    box: float = 3.0,
    waves: int = 8,
    dropout: float = 0.0,
) -> Flow:
    """Builds an autoregressive flow of splines, each layer in the opposite order of the one before.

    Reference:
        Durkan, Bekasov, Murray and Papamakarios, *Neural Spline Flows*, 2019.

    Args:
        shape: The shape of an example.
        classes: How many classes there are; 0 without labels.
        layers: The number of autoregressive layers.
        hidden: The widths of the hidden layers of each network.
        bins: The pieces of a spline.
        box: Where splines end, in standard deviations.
        waves: The sines and cosines of each entry that networks see.
        dropout: The share of units that is dropped in training.

    Examples:
        >>> spline_flow((2,), hidden=[8]).log_density(torch.zeros(3, 2)).shape
        torch.Size([3])
    """
    d = math.prod(shape)
    blocks = [
        AutoregressiveTransform(
            d,
            transform=RationalQuadraticSpline(num_bins=bins, bound=box),
            order=_order(d, i),
            hidden_dims=hidden,
            condition_dim=classes,
            encoding=FourierEncoding(num_frequencies=waves, bound=box),
            dropout=dropout,
        )
        for i in range(layers)
    ]
    return Flow(ComposedTransform(blocks), shape=shape, classes=classes)


def autoregressive_flow(
    shape: tuple[int, ...],
    *,
    classes: int = 0,
    layers: int = 5,
    hidden: Sequence[int] = (64, 64),
    dropout: float = 0.0,
) -> Flow:
    r"""Builds a masked autoregressive flow (MAF), each layer in the opposite order of the one before.

    $$z_i = e^{s_i} x_i + t_i, \qquad |s_i| \le 2, \qquad
    x_i \mid x_1, \dots, x_{i - 1} \sim N\bigl(-e^{-s_i} t_i, \; e^{-2 s_i}\bigr)$$

    is one layer, with $s_i$ and $t_i$ of the entries before: a chain of Gaussians. Several are more than Gaussians.

    Reference:
        Papamakarios, Pavlakou and Murray, *Masked AutoregressiveTransform Flow for Density Estimation*, 2017.

    Args:
        shape: The shape of an example.
        classes: How many classes there are; 0 without labels.
        layers: The number of autoregressive layers.
        hidden: The widths of the hidden layers of each network.
        dropout: The share of units that is dropped in training.

    Examples:
        >>> [block.order for block in autoregressive_flow((3,), layers=2).blocks]
        [(0, 1, 2), (2, 1, 0)]
    """
    d = math.prod(shape)
    blocks = [
        AutoregressiveTransform(
            d, transform=AffineTransform(), order=_order(d, i), hidden_dims=hidden, condition_dim=classes, dropout=dropout
        )
        for i in range(layers)
    ]
    return Flow(ComposedTransform(blocks), shape=shape, classes=classes)


def level_flow(
    shape: tuple[int, ...],
    *,
    levels: int,
    low: float = 0.0,
    high: float = 1.0,
    classes: int = 0,
    hidden: Sequence[int] = (1024,),
    components: int = 10,
    dropout: float = 0.5,
) -> Flow:
    """Builds an autoregressive flow of dequantized levels, whose density is constant on the cell of each level.

    Args:
        shape: The shape of an example.
        levels: How many levels there are.
        low: Where the cells begin, half a cell below the lowest level.
        high: Where they end.
        classes: How many classes there are; 0 without labels.
        hidden: The widths of the hidden layers of the network.
        components: The logistics that the probabilities of levels are mixed of.
        dropout: The share of units that is dropped in training.

    Examples:
        >>> flow = level_flow((8, 8), levels=17, low=-0.5, high=16.5, hidden=[8])
        >>> bool(flow.log_density(torch.full((1, 8, 8), 17.0)).isneginf())
        True
    """
    block = AutoregressiveTransform(
        math.prod(shape),
        transform=DiscretizedLogistic(num_levels=levels, num_components=components),
        hidden_dims=hidden,
        condition_dim=classes,
        encoding=LevelEncoding(levels),
        dropout=dropout,
    )
    return Flow(ComposedTransform([block]), shape=shape, base=UNIFORM, classes=classes).within(low, high)


def coupling_flow(
    shape: tuple[int, ...],
    *,
    transform: UnivariateTransform | None = None,
    classes: int = 0,
    layers: int = 8,
    hidden: Sequence[int] = (64, 64),
) -> Flow:
    """Builds a flow of couplings, each after a scale fitted to the data and a learnt linear map.

    Reference:
        Dinh, Sohl-Dickstein and Bengio, *Density estimation using Real NVP*, 2017; Kingma and Dhariwal, *Glow:
        Generative Flow with Invertible 1x1 Convolutions*, 2018.

    Args:
        shape: The shape of an example, of 2 numbers or more.
        transform: What couplings apply: `AffineTransform()`, which is bounded, unless given.
        classes: How many classes there are; 0 without labels.
        layers: The number of couplings.
        hidden: The widths of the hidden layers of each network.

    Examples:
        >>> len(coupling_flow((4,), layers=2).blocks)
        6
    """
    d, blocks = math.prod(shape), list[nn.Module]()
    for i in range(layers):
        chosen = AffineTransform() if transform is None else transform
        coupling = CouplingTransform(d, transform=chosen, transformed=range(i % 2, d, 2), hidden_dims=hidden, condition_dim=classes)
        blocks += [ActNorm(d), InvertibleLinear(d), coupling]
    return Flow(ComposedTransform(blocks), shape=shape, classes=classes)


def nice(shape: tuple[int, ...], *, classes: int = 0, layers: int = 4, hidden: Sequence[int] = (64, 64)) -> Flow:
    """Builds NICE: additive couplings, which keep all volumes, and a scale for each entry at the end.

    Reference:
        Dinh, Krueger and Bengio, *NICE: Non-linear Independent Components Estimation*, 2015.

    Args:
        shape: The shape of an example, of 2 numbers or more.
        classes: How many classes there are; 0 without labels.
        layers: The number of couplings.
        hidden: The widths of the hidden layers of each network.

    Examples:
        >>> nice((2,), layers=1).blocks[1]
        DiagonalScale()
    """
    d = math.prod(shape)
    blocks = [
        CouplingTransform(d, transform=ShiftTransform(), transformed=range(i % 2, d, 2), hidden_dims=hidden, condition_dim=classes)
        for i in range(layers)
    ]
    return Flow(ComposedTransform([*blocks, DiagonalScale(d)]), shape=shape, base=LOGISTIC, classes=classes)


def _order(d: int, layer: int) -> range:
    """The order of d entries in a layer: as they come, and in the next layer back."""
    return range(d)[:: (-1) ** layer]


def _flows_claims() -> Iterator[Claim]:
    """The laws that flows obey."""
    for name, flow in (
        ("spline_flow", spline_flow((2,), hidden=[4], bins=2, waves=1)),
        ("autoregressive_flow", autoregressive_flow((2,), layers=2, hidden=[4])),
        ("level_flow", level_flow((3,), levels=3, low=-9.0, high=9.0, hidden=[4], components=2)),
        ("coupling_flow", coupling_flow((2,), layers=1, hidden=[4])),
        ("nice", nice((2,), layers=2, hidden=[4])),
    ):
        near = transformed(torch.tanh, f"n {flow.shape[0]}")
        yield Claim(replace(batch_independence(), cases=10), flow.eval().log_density, near, name=name)


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _bases_claims()
    yield from _flow_claims()
    yield from _flows_claims()
