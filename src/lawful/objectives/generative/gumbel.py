"""Gumbel-softmax: choices out of several, relaxed so that gradients pass."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.laws import Averages, Claim, Draw, Map, Statement, agreement, derivative, law, made, shape, sums_to_one


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


def gumbel_straight(
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
        >>> gumbel_straight(torch.tensor([0.0, 2.0]), torch.tensor([1.0, 0.0]), temperature=0.5)
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

    Kept by: the largest of logits with Gumbel noise.
    Broken by: normal noise; noise of the wrong sign.
    """
    i = draw.integer(0, len(logits) - 1, "c")
    return Averages(f.seeded(draw.integer(0, 2**16))(logits)[:, i], logits.softmax(0)[i])


def claims() -> Iterator[Claim]:
    """The laws that relaxed choices obey."""
    both = (made(torch.tanh, "n 3"), made(lambda x: gumbel(x.sigmoid() * 0.9 + 0.05), "n 3"))

    def cooled(logits: Tensor, noise: Tensor) -> Tensor:
        return gumbel_softmax(logits, noise, temperature=0.5)

    def by_powers(logits: Tensor, noise: Tensor) -> Tensor:
        w = (logits + noise).exp().square()
        return w / w.sum(-1, keepdim=True)

    yield Claim(agreement(other=by_powers), cooled, both, name="gumbel_softmax")
    yield Claim(sums_to_one(axis=-1), cooled, both, name="gumbel_softmax")

    def chosen(logits: Tensor) -> Tensor:
        return gumbel_max(logits.expand(4000, -1), gumbel(torch.rand(4000, len(logits)).to(logits)))

    yield Claim(chosen_as_often(), chosen, made(torch.tanh, "3"), name="gumbel_max")

    def first(logits: Tensor, noise: Tensor) -> Tensor:
        return cooled(logits, noise)[:, 0]

    def slope(logits: Tensor, noise: Tensor) -> Tensor:
        z = by_powers(logits, noise)
        return 2 * z[:, :1] * (logits.new_tensor([1.0, 0.0, 0.0]) - z)

    yield Claim(derivative(formula=slope), first, both, name="gumbel_softmax, its first entry")

    def passed(logits: Tensor, noise: Tensor) -> Tensor:
        return gumbel_straight(logits, noise, temperature=0.5)[:, 0]

    yield Claim(derivative(formula=slope), passed, both, name="gumbel_straight, its gradient")

    def entropy(x: Tensor) -> Tensor:
        return math.log(4) - torch.distributions.Categorical(logits=x).entropy()

    yield Claim(agreement(other=entropy), categorical_divergence, shape("n 4"))
