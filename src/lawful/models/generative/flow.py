"""Normalising flows: data turned into noise by an invertible map, so that their density is known exactly."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks import Standardize
from lawful.blocks.flows import Affine, Autoregressive, Composition, Coupling
from lawful.blocks.modes import in_training
from lawful.functions.estimate import Estimate
from lawful.functions.noise import categorical_noise
from lawful.laws import Claim, agreement, density_integrates_to_one, made, samples_follow_density, shape
from lawful.models.generative.bases import LOGISTIC, NORMAL, Base
from lawful.models.generative.contract import finite, unconditional

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
        >>> flow = Flow(Composition([Autoregressive(2, transform=Affine())]), shape=(2,))
        >>> flow = flow.fit(torch.tensor([[1.0, 5.0], [3.0, 5.5]]))
        >>> flow.log_prob(torch.tensor([[2.0, 5.0]])).value.shape, flow.sample(3).shape
        (torch.Size([1]), torch.Size([3, 2]))
    """

    frequencies: Tensor

    def __init__(self, blocks: Composition, *, shape: tuple[int, ...], base: Base = NORMAL, classes: int = 0) -> None:
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
        with in_training(self):
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
    ) -> Estimate:
        """Returns the log-density of each example, in nats; exact."""
        finite(x)
        parts = [None] * -(-len(x) // _ROWS) if labels is None else labels.split(_ROWS)
        with in_training(self):
            found = [self.log_density(a, labels=b) for a, b in zip(x.split(_ROWS), parts, strict=False) if len(a)]
        value = torch.cat(found) if found else x.new_zeros(0)
        if bool(value.isnan().any()):
            raise ValueError(f"the flow gives NaN for {int(value.isnan().sum())} of {len(x)} examples: it has diverged")
        return Estimate.exact(value, evaluations=self.classes if self.classes and labels is None else 1)

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


def claims() -> Iterator[Claim]:
    """The laws that flows obey."""
    x = torch.tensor([[1.0, -2.0], [3.0, 4.0], [2.0, 0.5]])
    plain = Flow(Composition([Autoregressive(2, transform=Affine(), hidden=[])]), shape=(2,)).fit(x)
    two = Composition([Coupling(2, transform=Affine(bound=1.0), hidden=[4], condition=2, activation=torch.tanh)])
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

    yield Claim(agreement(other=gaussian), lambda y: plain.log_density(y), made(torch.tanh, "n 2"), name="Flow, affine")

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
