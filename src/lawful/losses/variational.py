"""The evidence lower bound: how well a code explains an example, less what the code says.

The importance weighted bound: several codes together say more of an example than one.
Gumbel-softmax: choices out of several, relaxed so that gradients pass.
Gradients of expectations: through samples, or through their probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.functions.estimate import LogProbEstimate
from lawful.laws import (
    AtMost,
    Claim,
    Draw,
    HasMean,
    Map,
    Statement,
    agreement,
    boundedness,
    derivative,
    law,
    reparameterized_gradient,
    shape,
    sums_to_one,
    transformed,
)


def gaussian_kl(
    mean: Float[Tensor, "*batch k"],
    log_variance: Float[Tensor, "*batch k"],
    *,
    prior_mean: Float[Tensor, "*#batch #k"] | float = 0.0,
    prior_log_variance: Float[Tensor, "*#batch #k"] | float = 0.0,
) -> Float[Tensor, "*batch k"]:
    r"""Measures how far a diagonal Gaussian is from another, coordinate by coordinate, in nats.

    $$\mathrm{KL}_j = \frac12 \Bigl(\frac{(\mu_j - m_j)^2}{s_j^2} + \frac{\sigma_j^2}{s_j^2} - 1
    - \log \frac{\sigma_j^2}{s_j^2}\Bigr), \qquad \mathrm{KL} = \sum_j \mathrm{KL}_j$$

    The part of the variances is $e^r - 1 - r$ of $r = \log(\sigma^2 / s^2)$, by `expm1`: no digits are lost where the
    two are close.

    Reference:
        Kingma and Welling, *Auto-Encoding Variational Bayes*, 2014.

    Args:
        mean: $\mu$.
        log_variance: $\log \sigma^2$.
        prior_mean: $m$.
        prior_log_variance: $\log s^2$.

    Examples:
        >>> gaussian_kl(torch.tensor([0.0, 2.0]), torch.zeros(2))
        tensor([0., 2.])
    """
    ratio = log_variance - prior_log_variance
    precision = torch.exp(torch.as_tensor(-prior_log_variance).to(mean))
    return ((mean - prior_mean).square() * precision + ratio.expm1() - ratio) / 2


def negative_elbo(
    log_likelihood: Float[Tensor, " n"], divergence: Float[Tensor, "n k"], *, beta: float = 1.0, free: float = 0.0
) -> Float[Tensor, ""]:
    r"""Adds up what a variational autoencoder is trained on: nats for each example, summed over entries and codes.

    $$\mathcal{L} = - \frac1n \sum_i \log p(x_i \mid z_i) + \beta \sum_j \max \Bigl(\lambda, \;
    \frac1n \sum_i \mathrm{KL}_{ij}\Bigr)$$

    With $\beta = 1$ and $\lambda = 0$ it is the negative lower bound on $\log p(x)$. A larger $\beta$ makes codes say
    less; free bits $\lambda$, nats that each coordinate may say at no cost, keep coordinates from saying nothing.

    Reference:
        Higgins and others, *beta-VAE*, 2017; Kingma and others, *Improved Variational Inference with Inverse
        Autoregressive Flow*, 2016.

    Args:
        log_likelihood: $\log p(x_i \mid z_i)$, of a code drawn for each example.
        divergence: $\mathrm{KL}_{ij}$, of each coordinate.
        beta: $\beta$, at least 0.
        free: $\lambda$, at least 0, in nats.

    Examples:
        >>> negative_elbo(torch.tensor([-3.0, -5.0]), torch.tensor([[1.0, 0.0], [2.0, 0.0]]))
        tensor(5.5000)
        >>> negative_elbo(torch.tensor([-3.0, -5.0]), torch.tensor([[1.0, 0.0], [2.0, 0.0]]), beta=2.0, free=0.25)
        tensor(7.5000)
    """
    if not (0 <= beta < math.inf and 0 <= free < math.inf):
        raise ValueError(f"beta and free are at least 0, and finite: got {beta} and {free}")
    if not len(log_likelihood):
        raise ValueError("at least one example was wanted: got none")
    return beta * divergence.mean(0).clamp_min(free).sum() - log_likelihood.mean()


def _elbo_claims() -> Iterator[Claim]:
    """The laws that the bound obeys."""
    near = transformed(torch.tanh, "n 3")

    def by_torch(mean: Tensor, log_variance: Tensor) -> Tensor:
        q = torch.distributions.Normal(mean, (log_variance / 2).exp())
        return torch.distributions.kl_divergence(
            q, torch.distributions.Normal(mean.new_tensor(0.5), mean.new_tensor(2))
        )

    def to_another(mean: Tensor, log_variance: Tensor) -> Tensor:
        return gaussian_kl(mean, log_variance, prior_mean=0.5, prior_log_variance=math.log(4))

    yield Claim(agreement(other=by_torch), to_another, (near, near), name="gaussian_divergence")
    yield Claim(derivative(formula=lambda m, s: m), gaussian_kl, (near, near))
    yield Claim(boundedness(low=0.0), gaussian_kl, (near, near))

    def to_itself(mean: Tensor, log_variance: Tensor) -> Tensor:
        return gaussian_kl(mean, log_variance, prior_mean=mean, prior_log_variance=log_variance)

    zero = agreement(other=lambda m, s: torch.zeros_like(m))
    yield Claim(zero, to_itself, (near, near), name="gaussian_divergence from itself")

    def one_by_one(x: Tensor, kl: Tensor) -> Tensor:
        total = -x.sum() / len(x)
        for column in kl.T:
            mean = column.sum() / len(kl)
            total = total + 3 * (mean if mean > 0.5 else torch.full_like(mean, 0.5))
        return total

    def loss(x: Tensor, kl: Tensor) -> Tensor:
        return negative_elbo(x, kl, beta=3.0, free=0.5)

    yield Claim(agreement(other=one_by_one), loss, (shape("n"), transformed(torch.abs, "n 3")), name="negative_elbo")


def iwae_bound(log_weights: Float[Tensor, "k *n"]) -> Float[Tensor, "*n"]:
    r"""Bounds a log-likelihood from below by $k$ weighted codes: the log of their mean weight, in nats.

    $$\mathrm{IWAE}_k = \log \frac1k \sum_{i=1}^k w_i, \qquad w_i = \frac{p(x \mid z_i) \, p(z_i)}{q(z_i \mid x)},
    \quad z_i \sim q(z \mid x)$$

    $$\mathrm{ELBO} = \mathbb{E} \, \mathrm{IWAE}_1 \le \mathbb{E} \, \mathrm{IWAE}_k \le
    \mathbb{E} \, \mathrm{IWAE}_{k + 1} \le \log p(x)$$

    It is a log-likelihood, higher for more probable examples; to train by it, make its negative small.

    Reference:
        Burda, Grosse and Salakhutdinov, *Importance Weighted Autoencoders*, 2016.

    Args:
        log_weights: $\log w_i$.

    Examples:
        >>> iwae_bound(torch.tensor([1.0, 3.0]).log())
        tensor(0.6931)
    """
    return log_weights.logsumexp(0) - math.log(_counted(log_weights))


def importance_estimate(log_weights: Float[Tensor, "k *n"], *, evaluations: int) -> LogProbEstimate:
    r"""Returns the bound with its standard error, to first order: $\operatorname{sd}(w) / (\sqrt k \, \bar w)$.

    A single weight does not tell its error, which is then NaN. Where it is not far below 1, few of the weights make up
    the mean, and the bound is loose: take more.

    Args:
        log_weights: $\log w_i$.
        evaluations: How often the model was called.

    Examples:
        >>> importance_estimate(torch.zeros(4), evaluations=4)
        LogProbEstimate(value=tensor(0.), error=tensor(0.), evaluations=4)
    """
    value, k = iwae_bound(log_weights), _counted(log_weights)
    relative = (log_weights - value).exp()
    error = relative.std(0, correction=1) / k**0.5 if k > 1 else value * math.nan
    return LogProbEstimate(value, error, evaluations)


def _counted(log_weights: Tensor) -> int:
    if not log_weights.dim() or len(log_weights) < 1:
        raise ValueError(f"k is at least 1: got log-weights of shape {tuple(log_weights.shape)}")
    return len(log_weights)


@law("mean(x) ≤ f(x) ≤ max(x)")
def between_mean_and_largest(f: Map, x: Tensor) -> Statement:
    """The bound lies between the mean of the log-weights, the ELBO of the same codes, and the largest of them.

    Satisfied by: the log of a mean of exponentials.
    Broken by: the same with its sign turned; a sum for a mean.
    """
    value = f(x)
    return AtMost(torch.stack([x.mean(0), value]), torch.stack([value, x.amax(0)]))


def _iwae_claims() -> Iterator[Claim]:
    """The laws that the bound obeys."""
    near = transformed(lambda x: 3 * x.tanh(), "k:2..6 n")
    yield Claim(agreement(other=lambda x: x.exp().mean(0).log()), iwae_bound, near)
    yield Claim(between_mean_and_largest(), iwae_bound, near)
    yield Claim(derivative(formula=lambda x: x.softmax(0)), iwae_bound, shape("k n"))

    def error(x: Tensor) -> Tensor:
        return importance_estimate(x, evaluations=1).error

    def by_hand(x: Tensor) -> Tensor:
        w, k = x.exp(), len(x)
        mean = w.sum(0) / k
        return ((w - mean).square().sum(0) / (k - 1) / k).sqrt() / mean

    yield Claim(agreement(other=by_hand), error, near, name="importance_estimate, its error")


def gumbel(u: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    r"""Turns even noise between 0 and 1, both left out, into Gumbel noise: $g = -\log(-\log u)$.

    Args:
        u: The noise.

    Examples:
        >>> gumbel(torch.tensor([0.5]))
        tensor([0.3665])
    """
    return -(-u.log()).log()


def gumbel_softmax(
    logits: Float[Tensor, "*batch c"], noise: Float[Tensor, "*batch c"], *, temperature: float
) -> Float[Tensor, "*batch c"]:
    r"""Relaxes a choice among classes: a point of the simplex near one of its corners.

    $$z = \operatorname{softmax} \bigl((\ell + g) / \tau\bigr)$$

    As $\tau \to 0$ it becomes the corner of the largest $\ell + g$, which is class $c$ with probability
    $\operatorname{softmax}(\ell)_c$: the Gumbel-max trick, see `gumbel_max`. Above 0 the choice is another one, and a
    bound that is computed from it is none.

    Reference:
        Jang, Gu and Poole, *Categorical Reparameterization with Gumbel-Softmax*, 2017; Maddison, Mnih and Teh, *The
        Concrete Distribution*, 2017.

    Args:
        logits: $\ell$.
        noise: $g$, of `gumbel`.
        temperature: $\tau$, above 0.

    Examples:
        >>> gumbel_softmax(torch.tensor([0.0, 2.0]), torch.tensor([1.0, 0.0]), temperature=0.1)
        tensor([4.5398e-05, 9.9995e-01])
    """
    if not 0 < temperature < math.inf:
        raise ValueError(f"temperature is above 0, and finite: got {temperature}")
    return ((logits + noise) / temperature).softmax(-1)


def gumbel_max(logits: Float[Tensor, "*batch c"], noise: Float[Tensor, "*batch c"]) -> Float[Tensor, "*batch c"]:
    r"""Chooses a class, as a 1 among 0s: class $c$ with probability $\operatorname{softmax}(\ell)_c$. No gradient.

    Args:
        logits: $\ell$.
        noise: $g$, of `gumbel`.

    Examples:
        >>> gumbel_max(torch.tensor([0.0, 2.0]), torch.tensor([1.0, 0.0]))
        tensor([0., 1.])
    """
    best = (logits + noise).argmax(-1, keepdim=True)
    return torch.zeros_like(logits).scatter(-1, best, 1.0)


def straight_through_gumbel(
    logits: Float[Tensor, "*batch c"], noise: Float[Tensor, "*batch c"], *, temperature: float
) -> Float[Tensor, "*batch c"]:
    r"""Chooses as `gumbel_max`, with the gradient of `gumbel_softmax`: straight through.

    The value is that of a choice, so that a decoder sees what it will see later; the gradient is one of another
    function, and biased.

    Reference:
        Bengio, Léonard and Courville, *Estimating or Propagating Gradients Through Stochastic Neurons*, 2013.

    Args:
        logits: $\ell$.
        noise: $g$, of `gumbel`.
        temperature: $\tau$ of the gradient, above 0.

    Examples:
        >>> straight_through_gumbel(torch.tensor([0.0, 2.0]), torch.tensor([1.0, 0.0]), temperature=0.5)
        tensor([0., 1.])
    """
    soft = gumbel_softmax(logits, noise, temperature=temperature)
    return gumbel_max(logits, noise) + (soft - soft.detach())


def categorical_divergence(logits: Float[Tensor, "*batch c"]) -> Float[Tensor, "*batch"]:
    r"""Measures how far a choice is from an even one, in nats: $\mathrm{KL} = \log C + \sum_c p_c \log p_c$.

    Args:
        logits: The logits of the $p_c$.

    Examples:
        >>> categorical_divergence(torch.tensor([[0.0, 0.0], [0.0, 90.0]]))
        tensor([0.0000, 0.6931])
    """
    logs = logits.log_softmax(-1)
    return (logs.exp() * (logs + math.log(logits.shape[-1]))).sum(-1)


@law("P(f(ℓ) = c) = softmax(ℓ)_c", cases=4)
def chosen_as_often(f: Map, logits: Tensor, *, draw: Draw) -> Statement:
    """Choices are as frequent as their probabilities say.

    Satisfied by: the largest of logits with Gumbel noise.
    Broken by: normal noise; noise of the wrong sign.
    """
    i = draw.integer(0, len(logits) - 1, "c")
    return HasMean(f.with_seed(draw.integer(0, 2**16))(logits)[:, i], logits.softmax(0)[i])


def _gumbel_claims() -> Iterator[Claim]:
    """The laws that relaxed choices obey."""
    both = (transformed(torch.tanh, "n 3"), transformed(lambda x: gumbel(x.sigmoid() * 0.9 + 0.05), "n 3"))

    def cooled(logits: Tensor, noise: Tensor) -> Tensor:
        return gumbel_softmax(logits, noise, temperature=0.5)

    def by_powers(logits: Tensor, noise: Tensor) -> Tensor:
        w = (logits + noise).exp().square()
        return w / w.sum(-1, keepdim=True)

    yield Claim(agreement(other=by_powers), cooled, both, name="gumbel_softmax")
    yield Claim(sums_to_one(axis=-1), cooled, both, name="gumbel_softmax")

    def chosen(logits: Tensor) -> Tensor:
        return gumbel_max(logits.expand(4000, -1), gumbel(torch.rand(4000, len(logits)).to(logits)))

    yield Claim(chosen_as_often(), chosen, transformed(torch.tanh, "3"), name="gumbel_max")

    def first(logits: Tensor, noise: Tensor) -> Tensor:
        return cooled(logits, noise)[:, 0]

    def slope(logits: Tensor, noise: Tensor) -> Tensor:
        z = by_powers(logits, noise)
        return 2 * z[:, :1] * (logits.new_tensor([1.0, 0.0, 0.0]) - z)

    yield Claim(derivative(formula=slope), first, both, name="gumbel_softmax, its first entry")

    def passed(logits: Tensor, noise: Tensor) -> Tensor:
        return straight_through_gumbel(logits, noise, temperature=0.5)[:, 0]

    yield Claim(derivative(formula=slope), passed, both, name="gumbel_straight, its gradient")

    def entropy(x: Tensor) -> Tensor:
        return math.log(4) - torch.distributions.Categorical(logits=x).entropy()

    yield Claim(agreement(other=entropy), categorical_divergence, shape("n 4"))


LOG_2PI = math.log(2 * math.pi)


def reparameterize(
    mean: Float[Tensor, "*batch"], log_variance: Float[Tensor, "*batch"], noise: Float[Tensor, "*more"]
) -> Float[Tensor, "*more"]:
    r"""Draws Gaussian samples through which gradients pass: $z = \mu + \sigma \varepsilon$.

    $$\nabla_\theta \, \mathbb{E}_{z \sim q_\theta} h(z) = \mathbb{E}_\varepsilon \nabla_\theta \,
    h(\mu_\theta + \sigma_\theta \varepsilon)$$

    The noise has no parameters, so the gradient goes inside: an unbiased estimate, of little variance where $h$ is
    smooth.

    Reference:
        Kingma and Welling, *Auto-Encoding Variational Bayes*, 2014.

    Args:
        mean: $\mu$.
        log_variance: $\log \sigma^2$.
        noise: $\varepsilon$, standard normal, of the shape of the mean with any axes in front.

    Examples:
        >>> reparameterize(torch.tensor([1.0]), torch.zeros(1), torch.tensor([[2.0], [-1.0]]))
        tensor([[3.],
                [0.]])
    """
    return mean + (log_variance / 2).exp() * noise


def gaussian_log_density(
    z: Float[Tensor, "*more k"], mean: Float[Tensor, "*batch k"], log_variance: Float[Tensor, "*batch k"]
) -> Float[Tensor, "*more"]:
    r"""Returns the log-density of a diagonal Gaussian, summed over the last axis.

    $$\log q(z) = - \frac12 \sum_j \Bigl(\frac{(z_j - \mu_j)^2}{\sigma_j^2} + \log 2 \pi \sigma_j^2\Bigr)$$

    Args:
        z: Where.
        mean: $\mu$.
        log_variance: $\log \sigma^2$.

    Examples:
        >>> gaussian_log_density(torch.zeros(1), torch.zeros(1), torch.zeros(1))
        tensor(-0.9189)
    """
    return -((z - mean).square() * (-log_variance).exp() + log_variance + LOG_2PI).sum(-1) / 2


def score_function(
    values: Float[Tensor, " n"], log_density: Float[Tensor, " n"], *, baseline: float | Float[Tensor, ""] = 0.0
) -> Float[Tensor, ""]:
    r"""Makes a number whose gradient estimates that of an expectation, without one of $h$ (REINFORCE).

    $$\nabla_\theta \, \mathbb{E} h(z) = \mathbb{E} \bigl(h(z) - b\bigr) \nabla_\theta \log q_\theta(z)$$

    It asks nothing of $h$, which may be a step, and has far more variance than `reparameterize` where both apply.

    Reference:
        Williams, *Simple Statistical Gradient-Following Algorithms for Connectionist Reinforcement Learning*, 1992.

    Args:
        values: $h(z)$ of samples, which pass no gradient.
        log_density: $\log q_\theta(z)$ of the same samples, which does.
        baseline: $b$, independent of the samples: it changes the variance only.

    Examples:
        >>> p = torch.tensor(0.0, requires_grad=True)
        >>> score_function(torch.tensor([1.0, 3.0]), p * torch.tensor([1.0, -1.0])).backward()
        >>> p.grad
        tensor(-1.)
    """
    return ((values.detach() - baseline) * log_density).mean()


class _Gaussian(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.tensor([0.3, -0.5]))
        self.log_variance = nn.Parameter(torch.tensor([-0.4, 0.6]))

    def rsample(self, n: int) -> Tensor:
        return reparameterize(self.mean, self.log_variance, torch.randn(n, 2, dtype=self.mean.dtype))

    def log_prob(self, z: Tensor) -> Tensor:
        return gaussian_log_density(z, self.mean, self.log_variance)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.mean


def _gradient_estimators_claims() -> Iterator[Claim]:
    """The laws that the estimators obey."""
    yield Claim(reparameterized_gradient(), _Gaussian(), shape("n 2"), name="reparameterised")
    near = transformed(torch.tanh, "n 2")

    def by_torch(z: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
        return torch.distributions.Normal(mean, log_variance.exp().sqrt()).log_prob(z).sum(-1)

    yield Claim(agreement(other=by_torch), gaussian_log_density, (near, near, near))

    def of_a_coin(x: Tensor) -> Tensor:
        """The gradient of the mean of h by the logit of a coin, both sides weighted as often as they fall; plus 1."""
        with torch.enable_grad():
            p = x[0].detach().requires_grad_()
            sides = torch.stack([nn.functional.logsigmoid(p), nn.functional.logsigmoid(-p)])
            weighted = 2 * sides.exp().detach() * sides
            return torch.autograd.grad(score_function(x[1:], weighted, baseline=0.7), p)[0] + 1

    def exact(x: Tensor) -> Tensor:
        return 1 + (x[1] - x[2]) * x[0].sigmoid() * (1 - x[0].sigmoid())

    yield Claim(agreement(other=exact), of_a_coin, transformed(torch.tanh, "3"), name="score_function, of a coin")


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _elbo_claims()
    yield from _iwae_claims()
    yield from _gumbel_claims()
    yield from _gradient_estimators_claims()
