"""Head detectors: previous-token, duplicate-token and induction heads, by where they look."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lawful.laws import Claim, agreement, boundedness, made, shape
from lawful.probe.example import induction_model
from lawful.probe.record import record


def looks_back(pattern: Float[Tensor, "*batch t s"], by: int, *, start: int = 0) -> Float[Tensor, "*batch"]:
    r"""Returns how much attention goes, on average, to the position a number of steps before.

    $$\frac{1}{|\{t\}|} \sum_{t \ge \max(t_0, n)} A_{t, t - n}$$

    Args:
        pattern: $A$, over as many keys as queries.
        by: $n$, the steps.
        start: $t_0$, the first position that counts.

    Examples:
        >>> looks_back(torch.eye(4), 0), looks_back(torch.eye(4), 1)
        (tensor(1.), tensor(0.))
    """
    t, s = pattern.shape[-2:]
    if t != s or not 0 <= by < t or start >= t:
        raise ValueError(f"a pattern of more than {max(by, start)} queries and as many keys was wanted: got {t} x {s}")
    return pattern.diagonal(-by, -2, -1)[..., max(start - by, 0) :].mean(-1)


def previous_token(pattern: Float[Tensor, "*batch t s"], period: int) -> Float[Tensor, "*batch"]:
    """Scores a head by how much it looks at the token before: 1 for a previous-token head.

    Args:
        pattern: Its pattern, on any sequence.
        period: After how many tokens the sequence repeats; it does not matter here.

    Examples:
        >>> previous_token(torch.eye(4).roll(-1, 1), 2)
        tensor(1.)
    """
    return looks_back(pattern, 1)


def duplicate_token(pattern: Float[Tensor, "*batch t s"], period: int) -> Float[Tensor, "*batch"]:
    """Scores a head by how much it looks, in the repetition of a sequence, at the same token before.

    Args:
        pattern: Its pattern on a sequence that repeats.
        period: After how many tokens it repeats.

    Examples:
        >>> duplicate_token(torch.eye(4).roll(-2, 1), 2)
        tensor(1.)
    """
    return looks_back(pattern, period, start=period)


def induction(pattern: Float[Tensor, "*batch t s"], period: int) -> Float[Tensor, "*batch"]:
    """Scores a head by how much it looks, in the repetition of a sequence, at what came after the same token before.

    Reference:
        Olsson et al., *In-context Learning and Induction Heads*, 2022.

    Args:
        pattern: Its pattern on a sequence that repeats.
        period: After how many tokens it repeats.

    Examples:
        >>> induction(torch.eye(6).roll(-2, 1), 3)
        tensor(1.)
    """
    return looks_back(pattern, period - 1, start=period)


Detector = Callable[[Tensor, int], Tensor]
DETECTORS: tuple[Detector, ...] = (previous_token, duplicate_token, induction)


def repeating(*, vocab: int, period: int = 16, batch: int = 8, times: int = 2, seed: int = 0) -> Int[Tensor, "b t"]:
    """Returns random sequences of tokens, each of them repeated.

    No token comes up twice in a period where the vocabulary is large enough.

    Args:
        vocab: The number of tokens.
        period: The length of what is repeated.
        batch: The number of sequences.
        times: How often each is said.
        seed: What they are drawn from.

    Examples:
        >>> x = repeating(vocab=9, period=4, batch=1)
        >>> x.shape, bool((x[:, :4] == x[:, 4:]).all())
        (torch.Size([1, 8]), True)
    """
    generator = torch.Generator().manual_seed(seed)
    orders = torch.rand(batch, max(vocab, period), generator=generator).argsort(-1)[:, :period] % vocab
    return orders.repeat(1, times)


@torch.no_grad()
def head_scores(
    model: nn.Module, tokens: Int[Tensor, "b t"], *, period: int, names: str = "*pattern*"
) -> dict[str, dict[str, Float[Tensor, "h"]]]:
    """Scores every head of a model by every detector, on sequences that repeat.

    Args:
        model: Any model of tokens whose patterns can be recorded.
        tokens: The sequences, such as `repeating` makes.
        period: After how many tokens they repeat.
        names: The names of the patterns.

    Returns:
        For each detector, for each name, a score of each head.

    Examples:
        >>> scores = head_scores(induction_model(vocab=8, context=8), repeating(vocab=8, period=4), period=4)
        >>> scores["previous_token"]["layers.0.block.pattern"][0] > 0.99
        tensor(True)
        >>> scores["induction"]["layers.1.block.pattern"][1] > 0.99
        tensor(True)
    """
    with record(model, names) as tape:
        model(tokens)
    return {
        detector.__name__: {name: _of_heads(detector(tape[name], period)) for name in tape} for detector in DETECTORS
    }


def _of_heads(scores: Float[Tensor, "*batch h"]) -> Float[Tensor, "h"]:
    return scores.reshape(-1, scores.shape[-1]).mean(0)


def claims() -> Iterator[Claim]:
    """The laws that detectors obey."""
    patterns = made(lambda x: x.softmax(-1), "b 6 6")

    def written(a: Tensor, steps: int, first: int) -> Tensor:
        return torch.stack([a[:, t, t - steps] for t in range(first, 6)]).mean(0)

    for f, steps, first in ((previous_token, 1, 1), (duplicate_token, 3, 3), (induction, 2, 3)):

        def of_three(a: Tensor, f: Detector = f) -> Tensor:
            return f(a, 3)

        def by_hand(a: Tensor, steps: int = steps, first: int = first) -> Tensor:
            return written(a, steps, first)

        yield Claim(agreement(other=by_hand), of_three, patterns, name=f.__name__)
    yield Claim(boundedness(low=0.0, high=1.0), lambda a: induction(a, 3), patterns, name="induction")

    def found(x: Tensor) -> Tensor:
        n = len(x)
        model = induction_model(vocab=n, context=2 * n)
        scores = head_scores(model, repeating(vocab=n, period=n, batch=2, seed=n), period=n)
        first, second = (f"layers.{i}.block.pattern" for i in range(2))
        return torch.stack([scores["previous_token"][first][0], scores["induction"][second][1]]).to(x)

    yield Claim(agreement(other=lambda x: x.new_ones(2)), found, shape("n:3..6"), name="a model built to be found")
