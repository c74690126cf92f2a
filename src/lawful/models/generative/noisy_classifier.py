"""A classifier of noisy data, which guides samples towards a class."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lawful.laws import Claim, agreement, made
from lawful.objectives.classification import cross_entropy
from lawful.objectives.over_data import Reduce
from lawful.solvers.diffusion.gaussian_path import GaussianPath, beside
from lawful.solvers.diffusion.parametrisations import input_scale
from lawful.solvers.diffusion.paths import variance_preserving

CLOSEST = 10.0
r"""The largest $|\log \rho|$ that a network is told of."""


def condition_of(path: GaussianPath, t: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    r"""Returns what a network is told of a noise level, $\tfrac14 \log \rho$ with $\rho = \sigma / \alpha$, bounded.

    Reference:
        Karras, Aittala, Aila and Laine, *Elucidating the Design Space of Diffusion-Based Generative Models*, 2022.

    Args:
        path: The path.
        t: $t$.

    Examples:
        >>> from lawful.solvers.diffusion.paths import edm
        >>> condition_of(edm(), torch.tensor([0.0, 1.0]))
        tensor([-2.5000,  0.0000], dtype=torch.float64)
    """
    return path.ratio(t).log().clamp(-CLOSEST, CLOSEST) / 4


class NoisyClassifier(nn.Module):
    r"""Says which class data belong to that are seen through noise, at every noise level.

    $$\log p_t(y \mid x) = \operatorname{log\,softmax}_y \, f\bigl(c_\text{in}(t) \, x, \; \tfrac14 \log \rho(t)\bigr)$$

    Where there is only noise it is to say how frequent classes are. It lives where the denoiser does, in standard
    units.

    Reference:
        Dhariwal and Nichol, *Diffusion Models Beat GANs on Image Synthesis*, 2021.

    Args:
        network: $f$, from examples and noise levels to a score for each class.
        path: The path from data to noise.
        sigma_data: The standard deviation of the data, a buffer; a score model that it guides sets it.

    Examples:
        >>> from lawful.models.generative.networks import TimeMLP, TimeMLPConfig
        >>> network = TimeMLP(TimeMLPConfig(shape=(2,), width=8, outputs=3))
        >>> classifier = NoisyClassifier(network, path=variance_preserving())
        >>> classifier(torch.zeros(4, 2), torch.tensor(0.5)).exp().sum(-1).round(decimals=4).tolist()
        [1.0, 1.0, 1.0, 1.0]
    """

    sigma_data: Tensor

    def __init__(self, network: nn.Module, *, path: GaussianPath, sigma_data: float = 1.0) -> None:
        super().__init__()
        self.network, self.path = network, path
        self.register_buffer("sigma_data", torch.tensor(sigma_data))

    def forward(self, x: Float[Tensor, "n *shape"], t: Float[Tensor, "*n"]) -> Float[Tensor, "n classes"]:
        """The log-probabilities of all classes."""
        inward = beside(input_scale(self.path, t, sigma_data=float(self.sigma_data)), x)
        like = next(self.network.parameters(), x)
        scores = self.network((inward * x).to(like.dtype), condition_of(self.path, t).to(like).expand(len(x)))
        return scores.to(x.dtype).log_softmax(-1)

    def towards(self, labels: Int[Tensor, " n"]) -> Callable[[Tensor, Tensor], Tensor]:
        """The log-probability of a label for each example: what `by_classifier` takes."""
        return lambda x, t: self(x, t).gather(1, labels[:, None])[:, 0]

    def loss(
        self,
        x: Float[Tensor, "n *shape"],
        labels: Int[Tensor, " n"],
        t: Float[Tensor, " n"],
        *,
        noise: Float[Tensor, "n *shape"],
        reduce: Reduce = torch.mean,
    ) -> Float[Tensor, "*reduced"]:
        """The surprise at the labels of noisy data."""
        return cross_entropy(self(self.path.noised(x, noise, t), t), labels, reduce=reduce)


class _Bayes(nn.Module):
    """The exact classifier of two Gaussians of variance 1 at 2 and -2, on the VP path, for sigma_data = 1."""

    def forward(self, x: Float[Tensor, "n 1"], c: Float[Tensor, " n"]) -> Float[Tensor, "n 2"]:
        alpha = 1 / (1 + (8 * c).exp()).sqrt()
        return torch.cat([2 * alpha[:, None] * x, -2 * alpha[:, None] * x], 1)


def claims() -> Iterator[Claim]:
    """The laws that the classifier of noisy data obeys."""
    path = variance_preserving()
    classifier = NoisyClassifier(_Bayes(), path=path)

    def odds(x: Tensor, t: Tensor) -> Tensor:
        """Of noisy data, whose variance is 1: log N(x; 2 a, 1) - log N(x; -2 a, 1)."""
        a = path.alpha(t).to(x)[:, None]
        return ((x + 2 * a).square() - (x - 2 * a).square()) / 2

    def found(x: Tensor, t: Tensor) -> Tensor:
        both = classifier(x, t)
        return both[:, :1] - both[:, 1:]

    inputs = (made(torch.tanh, "n 1"), made(lambda u: 0.1 + 0.6 * torch.sigmoid(u), "n"))
    yield Claim(agreement(other=odds), found, inputs, name="NoisyClassifier of two Gaussians")
