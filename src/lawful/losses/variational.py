"""Variational inference: ELBO, importance weighted bound, Gumbel-softmax and gradient estimators."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.functions.estimate import LogProbEstimate
from lawful.laws import Claim, agreement, boundedness, shape, sums_to_one, transformed

_LOG_2PI = math.log(2 * math.pi)


def gaussian_kl(
    mean: Float[Tensor, "*batch k"],
    log_variance: Float[Tensor, "*batch k"],
    *,
    prior_mean: Float[Tensor, "*#batch #k"] | float = 0.0,
    prior_log_variance: Float[Tensor, "*#batch #k"] | float = 0.0,
) -> Float[Tensor, "*batch k"]:
    r"""Returns the KL divergence of two diagonal Gaussians, per coordinate, in nats.

    $$\mathrm{KL}_j = \frac12 \Bigl(\frac{(\mu_j - m_j)^2}{s_j^2} + \frac{\sigma_j^2}{s_j^2} - 1
    - \log \frac{\sigma_j^2}{s_j^2}\Bigr), \qquad \mathrm{KL} = \sum_j \mathrm{KL}_j$$

    The variance term is $e^r - 1 - r$ with $r = \log(\sigma^2 / s^2)$, computed by `expm1` for accuracy at small $r$.

    Reference:
        Kingma and Welling, *Auto-Encoding Variational Bayes*, 2014.

    Args:
        mean: Mean $\mu$.
        log_variance: Log-variance $\log \sigma^2$.
        prior_mean: Mean $m$ of the prior.
        prior_log_variance: Log-variance $\log s^2$ of the prior.

    Examples:
        >>> gaussian_kl(torch.tensor([0.0, 2.0]), torch.zeros(2))
        tensor([0., 2.])
    """
    ratio = log_variance - prior_log_variance
    precision = torch.exp(torch.as_tensor(-prior_log_variance).to(mean))
    return ((mean - prior_mean).square() * precision + ratio.expm1() - ratio) / 2


def negative_elbo(
    log_likelihood: Float[Tensor, " n"], kl: Float[Tensor, "n k"], *, beta: float = 1.0, free_bits: float = 0.0
) -> Float[Tensor, ""]:
    r"""Returns the negative ELBO with a weight of the divergence and free bits, in nats per example.

    $$\mathcal{L} = - \frac1n \sum_i \log p(x_i \mid z_i) + \beta \sum_j \max \Bigl(\lambda, \;
    \frac1n \sum_i \mathrm{KL}_{ij}\Bigr)$$

    For $\beta = 1$ and $\lambda = 0$ it is the negative ELBO. A larger $\beta$ regularizes the latents; the free bits
    $\lambda$, in nats per coordinate, prevent posterior collapse.

    Reference:
        Higgins and others, *beta-VAE*, 2017; Kingma and others, *Improved Variational Inference with Inverse
        Autoregressive Flow*, 2016.

    Args:
        log_likelihood: $\log p(x_i \mid z_i)$ of one latent sample per example.
        kl: $\mathrm{KL}_{ij}$ of each coordinate.
        beta: Weight $\beta \ge 0$ of the divergence.
        free_bits: Free bits $\lambda \ge 0$, in nats.

    Examples:
        >>> negative_elbo(torch.tensor([-3.0, -5.0]), torch.tensor([[1.0, 0.0], [2.0, 0.0]]))
        tensor(5.5000)
        >>> negative_elbo(torch.tensor([-3.0, -5.0]), torch.tensor([[1.0, 0.0], [2.0, 0.0]]), beta=2.0, free_bits=0.25)
        tensor(7.5000)
    """
    if not (0 <= beta < math.inf and 0 <= free_bits < math.inf):
        raise ValueError(f"expected finite beta >= 0 and free_bits >= 0, got {beta} and {free_bits}")
    if not len(log_likelihood):
        raise ValueError("expected at least one example, got none")
    return beta * kl.mean(0).clamp_min(free_bits).sum() - log_likelihood.mean()


def iwae_bound(log_weights: Float[Tensor, "k *n"]) -> Float[Tensor, "*n"]:
    r"""Returns the importance weighted lower bound of a log-likelihood, the log of the mean weight, in nats.

    $$\mathrm{IWAE}_k = \log \frac1k \sum_{i=1}^k w_i, \qquad w_i = \frac{p(x \mid z_i) \, p(z_i)}{q(z_i \mid x)},
    \quad z_i \sim q(z \mid x)$$

    $$\mathrm{ELBO} = \mathbb{E} \, \mathrm{IWAE}_1 \le \mathbb{E} \, \mathrm{IWAE}_k \le
    \mathbb{E} \, \mathrm{IWAE}_{k + 1} \le \log p(x)$$

    Reference:
        Burda, Grosse and Salakhutdinov, *Importance Weighted Autoencoders*, 2016.

    Args:
        log_weights: Log-weights $\log w_i$.

    Examples:
        >>> iwae_bound(torch.tensor([1.0, 3.0]).log())
        tensor(0.6931)
    """
    return log_weights.logsumexp(0) - math.log(_num_weights(log_weights))


def iwae_estimate(log_weights: Float[Tensor, "k *n"], *, evaluations: int) -> LogProbEstimate:
    r"""Returns the bound with its first-order standard error $\operatorname{sd}(w) / (\sqrt k \, \bar w)$.

    The error of a single weight is NaN. If the error is not far below 1, few weights dominate the mean and the bound is
    loose: increase $k$.

    Args:
        log_weights: Log-weights $\log w_i$.
        evaluations: Number of calls of the model.

    Examples:
        >>> iwae_estimate(torch.zeros(4), evaluations=4)
        LogProbEstimate(value=tensor(0.), error=tensor(0.), evaluations=4)
    """
    value, k = iwae_bound(log_weights), _num_weights(log_weights)
    relative = (log_weights - value).exp()
    error = relative.std(0, correction=1) / k**0.5 if k > 1 else value * math.nan
    return LogProbEstimate(value, error, evaluations)


def _num_weights(log_weights: Tensor) -> int:
    if not log_weights.dim() or len(log_weights) < 1:
        raise ValueError(f"expected k >= 1 log-weights, got shape {tuple(log_weights.shape)}")
    return len(log_weights)


def gumbel_noise(u: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    r"""Transforms uniform noise in (0, 1) to Gumbel noise, $g = -\log(-\log u)$.

    Args:
        u: Uniform noise.

    Examples:
        >>> gumbel_noise(torch.tensor([0.5]))
        tensor([0.3665])
    """
    return -(-u.log()).log()


def gumbel_softmax(
    logits: Float[Tensor, "*batch c"], noise: Float[Tensor, "*batch c"], *, temperature: float
) -> Float[Tensor, "*batch c"]:
    r"""Returns a relaxed categorical sample with given noise: see also `torch.nn.functional.gumbel_softmax`.

    $$z = \operatorname{softmax} \bigl((\ell + g) / \tau\bigr)$$

    As $\tau \to 0$ it becomes the one-hot vector of `gumbel_max`. For $\tau > 0$ the distribution is another one, so
    that bounds computed from it are not valid.

    Reference:
        Jang, Gu and Poole, *Categorical Reparameterization with Gumbel-Softmax*, 2017; Maddison, Mnih and Teh, *The
        Concrete Distribution*, 2017.

    Args:
        logits: Logits $\ell$.
        noise: Gumbel noise $g$.
        temperature: Temperature $\tau > 0$.

    Examples:
        >>> gumbel_softmax(torch.tensor([0.0, 2.0]), torch.tensor([1.0, 0.0]), temperature=0.1)
        tensor([4.5398e-05, 9.9995e-01])
    """
    if not 0 < temperature < math.inf:
        raise ValueError(f"expected a finite temperature > 0, got {temperature}")
    return ((logits + noise) / temperature).softmax(-1)


def gumbel_max(logits: Float[Tensor, "*batch c"], noise: Float[Tensor, "*batch c"]) -> Float[Tensor, "*batch c"]:
    r"""Returns a one-hot sample: class $c$ with probability $\operatorname{softmax}(\ell)_c$; not differentiable.

    Args:
        logits: Logits $\ell$.
        noise: Gumbel noise $g$.

    Examples:
        >>> gumbel_max(torch.tensor([0.0, 2.0]), torch.tensor([1.0, 0.0]))
        tensor([0., 1.])
    """
    best = (logits + noise).argmax(-1, keepdim=True)
    return torch.zeros_like(logits).scatter(-1, best, 1.0)


def straight_through_gumbel(
    logits: Float[Tensor, "*batch c"], noise: Float[Tensor, "*batch c"], *, temperature: float
) -> Float[Tensor, "*batch c"]:
    r"""Returns the value of `gumbel_max` with the gradient of `gumbel_softmax`.

    The gradient is biased.

    Reference:
        Bengio, Léonard and Courville, *Estimating or Propagating Gradients Through Stochastic Neurons*, 2013.

    Args:
        logits: Logits $\ell$.
        noise: Gumbel noise $g$.
        temperature: Temperature $\tau > 0$ of the gradient.

    Examples:
        >>> straight_through_gumbel(torch.tensor([0.0, 2.0]), torch.tensor([1.0, 0.0]), temperature=0.5)
        tensor([0., 1.])
    """
    soft = gumbel_softmax(logits, noise, temperature=temperature)
    return gumbel_max(logits, noise) + (soft - soft.detach())


def categorical_kl(logits: Float[Tensor, "*batch c"]) -> Float[Tensor, "*batch"]:
    r"""Returns the KL divergence from a uniform categorical, $\log C + \sum_c p_c \log p_c$, in nats.

    Args:
        logits: Logits of $p$.

    Examples:
        >>> categorical_kl(torch.tensor([[0.0, 0.0], [0.0, 90.0]]))
        tensor([0.0000, 0.6931])
    """
    logs = logits.log_softmax(-1)
    return (logs.exp() * (logs + math.log(logits.shape[-1]))).sum(-1)


def reparameterize(
    mean: Float[Tensor, "*batch"], log_variance: Float[Tensor, "*batch"], noise: Float[Tensor, "*more"]
) -> Float[Tensor, "*more"]:
    r"""Returns reparameterized Gaussian samples, $z = \mu + \sigma \varepsilon$.

    $$\nabla_\theta \, \mathbb{E}_{z \sim q_\theta} h(z) = \mathbb{E}_\varepsilon \nabla_\theta \,
    h(\mu_\theta + \sigma_\theta \varepsilon)$$

    The gradient estimate is unbiased, and has low variance for smooth $h$.

    Reference:
        Kingma and Welling, *Auto-Encoding Variational Bayes*, 2014.

    Args:
        mean: Mean $\mu$.
        log_variance: Log-variance $\log \sigma^2$.
        noise: Standard normal noise $\varepsilon$, with any leading axes.

    Examples:
        >>> reparameterize(torch.tensor([1.0]), torch.zeros(1), torch.tensor([[2.0], [-1.0]]))
        tensor([[3.],
                [0.]])
    """
    return mean + (log_variance / 2).exp() * noise


def gaussian_log_prob(
    z: Float[Tensor, "*more k"], mean: Float[Tensor, "*batch k"], log_variance: Float[Tensor, "*batch k"]
) -> Float[Tensor, "*more"]:
    r"""Returns the log-density of a diagonal Gaussian, summed over the last axis.

    $$\log q(z) = - \frac12 \sum_j \Bigl(\frac{(z_j - \mu_j)^2}{\sigma_j^2} + \log 2 \pi \sigma_j^2\Bigr)$$

    Args:
        z: Points.
        mean: Mean $\mu$.
        log_variance: Log-variance $\log \sigma^2$.

    Examples:
        >>> gaussian_log_prob(torch.zeros(1), torch.zeros(1), torch.zeros(1))
        tensor(-0.9189)
    """
    return -((z - mean).square() * (-log_variance).exp() + log_variance + _LOG_2PI).sum(-1) / 2


def score_function_loss(
    values: Float[Tensor, " n"], log_prob: Float[Tensor, " n"], *, baseline: float | Float[Tensor, ""] = 0.0
) -> Float[Tensor, ""]:
    r"""Returns a surrogate loss whose gradient is the score-function estimate (REINFORCE).

    $$\nabla_\theta \, \mathbb{E} h(z) = \mathbb{E} \bigl(h(z) - b\bigr) \nabla_\theta \log q_\theta(z)$$

    $h$ need not be differentiable. The variance is much larger than with `reparameterize`.

    Reference:
        Williams, *Simple Statistical Gradient-Following Algorithms for Connectionist Reinforcement Learning*, 1992.

    Args:
        values: $h(z)$ of samples; their gradient is not used.
        log_prob: Differentiable $\log q_\theta(z)$ of the samples.
        baseline: Baseline $b$, independent of the samples, to reduce the variance.

    Examples:
        >>> p = torch.tensor(0.0, requires_grad=True)
        >>> score_function_loss(torch.tensor([1.0, 3.0]), p * torch.tensor([1.0, -1.0])).backward()
        >>> p.grad
        tensor(-1.)
    """
    return ((values.detach() - baseline) * log_prob).mean()


def claims() -> Iterator[Claim]:
    """Divergences are non-negative; relaxed samples lie on the simplex."""
    inputs = transformed(torch.tanh, "n 3")
    yield Claim(boundedness(low=0.0), gaussian_kl, (inputs, inputs))

    def to_itself(mean: Tensor, log_variance: Tensor) -> Tensor:
        return gaussian_kl(mean, log_variance, prior_mean=mean, prior_log_variance=log_variance)

    zero = agreement(other=lambda mean, log_variance: torch.zeros_like(mean))
    yield Claim(zero, to_itself, (inputs, inputs), name="gaussian_kl of equal Gaussians is 0")

    def relaxed(logits: Tensor, noise: Tensor) -> Tensor:
        return gumbel_softmax(logits, noise, temperature=0.5)

    yield Claim(sums_to_one(axis=-1), relaxed, (shape("n 3"), inputs), name="gumbel_softmax")
