"""Predicting: a model on many examples, batch by batch, left as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from lawful.blocks.dropout import RANDOM
from lawful.blocks.modes import eval_mode
from lawful.functions.activations import identity
from lawful.laws import Claim, agreement, batch_independence, shape, sums_to_one, transformed

Link = Callable[[Tensor], Tensor]
probabilities: Link = partial(torch.softmax, dim=-1)
"""What makes probabilities of the scores of classes."""


@torch.no_grad()
def predict(
    model: nn.Module, x: Shaped[Tensor, "n ..."], *, batch: int = 1024, link: Link = probabilities
) -> Float[Tensor, "n ..."]:
    r"""Predicts in evaluation mode and without gradients; afterwards each module is in the mode that it was in.

    $$p = \mathrm{softmax}(f(x))$$

    Args:
        model: $f$, which gives scores of classes, or a regression.
        x: The examples, along the first axis.
        batch: How many go through the model at once.
        link: What makes predictions of its outputs: `probabilities`, or `identity` for a regression.

    Examples:
        >>> predict(nn.Linear(3, 2), torch.zeros(5, 3), batch=2).shape
        torch.Size([5, 2])
    """
    with eval_mode(model):
        return torch.cat([link(model(part.to(device_of(model, x)))).to(x.device) for part in parts(x, batch)])


@torch.no_grad()
def mc_dropout_predict(
    model: nn.Module,
    x: Shaped[Tensor, "n ..."],
    *,
    samples: int = 32,
    seed: int = 0,
    batch: int = 1024,
    link: Link = probabilities,
    random: tuple[type[nn.Module], ...] = RANDOM,
) -> Float[Tensor, "samples n ..."]:
    """Predicts many times with dropout on (Monte Carlo dropout), all else in evaluation mode.

    `spread` says what the samples amount to. The modes of the modules and the random state are as before afterwards,
    and the same seed gives the same samples.

    Reference:
        Gal and Ghahramani, *Dropout as a Bayesian Approximation: Representing Model Uncertainty in Deep
        Learning*, 2016.

    Args:
        model: The model, with dropout in it.
        x: The examples, along the first axis.
        samples: How often each is predicted.
        seed: What the random numbers begin from.
        batch: How many go through the model at once.
        link: What makes predictions of its outputs.
        random: The classes of the modules whose randomness stays on.

    Examples:
        >>> model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(), nn.Linear(8, 2))
        >>> mc_dropout_predict(model, torch.ones(5, 3), samples=4).shape
        torch.Size([4, 5, 2])
    """
    if samples < 1:
        raise ValueError(f"samples are at least 1: got {samples}")
    with torch.random.fork_rng([x.device] if x.is_cuda else []), eval_mode(model, random):
        torch.default_generator.manual_seed(seed)
        if x.is_cuda:
            torch.cuda.manual_seed(seed)
        placed = (part.to(device_of(model, x)) for part in parts(x, batch))
        drawn = [torch.stack([link(model(part)) for _ in range(samples)]).to(x.device) for part in placed]
    return torch.cat(drawn, dim=1)


def device_of(model: nn.Module, x: Tensor) -> torch.device:
    """Where a model is; one without weights is where its input is."""
    return next((t.device for t in (*model.parameters(), *model.buffers())), x.device)


def parts(x: Tensor, batch: int) -> tuple[Tensor, ...]:
    """Splits examples into batches.

    Examples:
        >>> [len(part) for part in parts(torch.zeros(5, 3), 2)]
        [2, 2, 1]
    """
    if batch < 1:
        raise ValueError(f"batch is at least 1: got {batch}")
    if x.dim() == 0 or len(x) == 0:
        raise ValueError(f"at least one example was wanted: got shape {tuple(x.shape)}")
    return x.split(batch)


def claims() -> Iterator[Claim]:
    """The laws that predictions obey."""
    first, norm, last = nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)
    model = nn.Sequential(first, norm, nn.Dropout(), last)

    def predicted(x: Tensor) -> Tensor:
        return predict(model, x, batch=2)

    def drawn(x: Tensor) -> Tensor:
        return mc_dropout_predict(model, x, samples=2, batch=2)

    yield Claim(sums_to_one(), predicted, shape("n 3"), name="predict")

    def equation(x: Tensor) -> Tensor:
        mean, variance = norm.running_mean, norm.running_var
        scores = last(nn.functional.batch_norm(first(x), mean, variance, norm.weight, norm.bias))
        return scores.exp() / scores.exp().sum(-1, keepdim=True)

    yield Claim(batch_independence(), predicted, shape("n 3"), name="predict")
    yield Claim(agreement(other=equation), predicted, transformed(torch.tanh, "n 3"), name="predict")
    yield Claim(sums_to_one(), drawn, shape("n 3"), name="sampled")

    class Halved(nn.Module):
        """Adds up to one, or to nothing at random."""

        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.dropout(torch.ones_like(x), training=self.training) / 2

    def dropped(x: Tensor) -> Tensor:
        values = mc_dropout_predict(Halved(), x, link=identity, random=(Halved,))
        return torch.stack([values.amin((0, 2)), values.amax((0, 2)), x[:, 0] * 0 + len(values)])

    both = agreement(other=lambda x: x.new_tensor([[0], [1], [32]]).expand(3, len(x)))
    yield Claim(both, dropped, shape("n 3"), name="sampled, with dropout on")
