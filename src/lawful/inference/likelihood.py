"""How probable a model finds a given text."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn.functional import cross_entropy

from lawful.data.text.windows import SequentialWindows
from lawful.laws import Claim, agreement, transformed
from lawful.models.generation import Bigrams, CausalLM, device_of, evaluating, rows_of, scores_of


@torch.no_grad()
def token_log_probs(
    model: CausalLM, tokens: Shaped[Tensor, "n"] | list[int], *, context: int | None = None, batch: int = 64
) -> Float[Tensor, "_"]:
    r"""Says of each token but the first how probable it was, given those before it in its window.

    $$\ell_t = \log p(x_t \mid x_{<t})$$

    A text longer than the context is read in windows that do not overlap: each reads on where the one before it ends,
    and knows nothing of it. Their mean, with the sign changed, is the cross-entropy in nats.

    Args:
        model: The model; also one of Hugging Face, whose output has `logits`.
        tokens: The text, at least two tokens; it may be mapped from a file.
        context: The length of a window; by default the limit of the model, and without one the text as a whole.
        batch: How many windows go through the model at once.

    Examples:
        >>> from lawful.models.transformer import Decoder, DecoderConfig
        >>> token_log_probs(Decoder(DecoderConfig(vocab=5, d=8)), [1, 2, 3, 4], context=2).shape
        torch.Size([3])
    """
    device = device_of(model)
    ids = tokens if isinstance(tokens, Tensor) else rows_of(tokens, device)[0]
    if ids.dim() != 1:
        raise ValueError(f"one row of tokens was wanted: got shape {tuple(ids.shape)}")
    if context is not None and context < 1:
        raise ValueError(f"context is at least 1: got {context}")
    context = context or getattr(model, "context", None) or max(len(ids) - 1, 1)
    found, done = torch.empty(0), 0
    with evaluating(model):
        for inputs, targets in SequentialWindows(ids, context=context, size=batch):
            logits = scores_of(model(inputs.to(device))).flatten(0, 1)
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
            part = -cross_entropy(logits, targets.to(device).flatten(), reduction="none")
            found = found if done else part.new_empty(len(ids) - 1)  # once: parts that are kept would split the heap
            found[done : done + len(part)] = part
            done += len(part)
    return found


def perplexity(
    model: CausalLM, tokens: Shaped[Tensor, "n"] | list[int], *, context: int | None = None, batch: int = 64
) -> float:
    r"""Says among how many equally probable tokens a model hesitates, on average.

    $$\exp\Bigl(-\frac{1}{n - 1} \sum_{t=2}^{n} \log p(x_t \mid x_{<t})\Bigr)$$

    Args:
        model: The model.
        tokens: The text, at least two tokens.
        context: The length of a window, as in `token_log_probs`.
        batch: How many windows go through the model at once.

    Examples:
        >>> from lawful.models.transformer import Decoder, DecoderConfig
        >>> perplexity(Decoder(DecoderConfig(vocab=5, d=8)), [1, 2, 3, 4]) > 1
        True
    """
    return float(token_log_probs(model, tokens, context=context, batch=batch).double().mean().neg().exp())


def claims() -> Iterator[Claim]:
    """The laws that probabilities of texts obey."""
    text = [2, 0, 1, 1, 2, 0]

    def each(x: Tensor) -> Tensor:
        return token_log_probs(Bigrams(x), text, context=2, batch=2)

    def looked_up(x: Tensor) -> Tensor:
        p = x.exp() / x.exp().sum(-1, keepdim=True)
        return torch.stack([p[a, b].log() for a, b in pairwise(text)])

    def geometric(x: Tensor) -> Tensor:
        return x.new_tensor(perplexity(Bigrams(x), text))

    def inverse(x: Tensor) -> Tensor:
        return looked_up(x).exp().prod() ** (-1 / 5)

    yield Claim(agreement(other=looked_up), each, transformed(torch.tanh, "3 3"), name="log_probabilities")
    yield Claim(agreement(other=inverse), geometric, transformed(torch.tanh, "3 3"), name="perplexity")
