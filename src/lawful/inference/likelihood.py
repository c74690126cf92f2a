"""Likelihood of a given text under a language model."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn import functional as F

from lawful.blocks.modes import eval_mode
from lawful.data.text.windows import SequentialWindows
from lawful.inference.prediction import device_of
from lawful.models.generation import CausalLM


@torch.no_grad()
def token_log_probs(
    model: CausalLM, tokens: Shaped[Tensor, "n"] | list[int], *, context_length: int | None = None, batch_size: int = 64
) -> Float[Tensor, "_"]:
    r"""Returns the log-probability of each token but the first, given the tokens before it in its window.

    $$\ell_t = \log p(x_t \mid x_{<t})$$

    A text longer than the context is split into non-overlapping windows; a window does not see the previous one. The
    negative mean is the cross-entropy in nats.

    Args:
        model: Language model, or a Hugging Face model whose output has `logits`.
        tokens: At least two tokens; they may be memory-mapped.
        context_length: Length of a window. Defaults to `model.context_length`, or to the whole text.
        batch_size: Number of windows per batch.

    Examples:
        >>> from lawful.models import decoder
        >>> token_log_probs(decoder(vocab_size=5, dim=8), [1, 2, 3, 4], context_length=2).shape
        torch.Size([3])
    """
    ids = torch.as_tensor(tokens)
    device = device_of(model, ids)
    if ids.dim() != 1:
        raise ValueError(f"expected tokens of shape (n,), got {tuple(ids.shape)}")
    if context_length is not None and context_length < 1:
        raise ValueError(f"context_length must be at least 1, got {context_length}")
    context_length = context_length or getattr(model, "context_length", None) or max(len(ids) - 1, 1)
    log_probs, done = torch.empty(0), 0
    with eval_mode(model):
        for inputs, targets in SequentialWindows(ids, context_length=context_length, batch_size=batch_size):
            logits = _logits(model(inputs.to(device))).flatten(0, 1)
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
            batch = -F.cross_entropy(logits, targets.to(device).flatten(), reduction="none")
            if not done:
                log_probs = batch.new_empty(len(ids) - 1)  # one allocation: a list of parts would fragment the heap
            log_probs[done : done + len(batch)] = batch
            done += len(batch)
    return log_probs


def perplexity(
    model: CausalLM, tokens: Shaped[Tensor, "n"] | list[int], *, context_length: int | None = None, batch_size: int = 64
) -> float:
    r"""Returns the perplexity of a text: the exponential of the mean cross-entropy per token.

    $$\exp\Bigl(-\frac{1}{n - 1} \sum_{t=2}^{n} \log p(x_t \mid x_{<t})\Bigr)$$

    Args:
        model: Language model.
        tokens: At least two tokens.
        context_length: Length of a window, as in `token_log_probs`.
        batch_size: Number of windows per batch.

    Examples:
        >>> from lawful.models import decoder
        >>> perplexity(decoder(vocab_size=5, dim=8), [1, 2, 3, 4]) > 1
        True
    """
    log_probs = token_log_probs(model, tokens, context_length=context_length, batch_size=batch_size)
    return float(log_probs.double().mean().neg().exp())


def _logits(output: Any) -> Tensor:
    """Returns the logits of an output: a tensor, or a Hugging Face output."""
    logits = output if isinstance(output, Tensor) else getattr(output, "logits", None)
    if not isinstance(logits, Tensor):
        raise TypeError(f"expected a model that returns logits, got {type(output).__name__}")
    return logits
