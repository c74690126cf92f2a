"""What decoding asks of a model, and what a model has read so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lawful.inference.decoding.unrolled import unrolled
from lawful.models.transformer import Decoder


class Cached(Protocol):
    """What a model keeps of the tokens that it has read."""

    def select(self, rows: Int[Tensor, "k"]) -> Any:
        """What is kept of these rows of the batch, in this order; one may come twice."""
        ...


class Decodes(Protocol):
    """Gives the scores of the next token at every place, and remembers in a cache what it has read."""

    def __call__(self, tokens: Int[Tensor, "b t"], *, cache: Any = None) -> Float[Tensor, "b t vocab"]:
        """The scores after each of these tokens, which come after those of the cache."""
        ...

    def cache(self, padding: Bool[Tensor, "b t"] | None = None) -> Any:
        """An empty cache; `padding` is True where the first tokens to be read are there."""
        ...


Prompts = Int[Tensor, "t"] | Int[Tensor, "b t"] | Sequence[int] | Sequence[Sequence[int]] | Sequence[Tensor]
"""One row of tokens, or several, of any lengths."""


class Reader:
    r"""Lets a model read rows of unequal lengths, token by token, and slides where its context ends.

    Short rows are padded at the front. A model with a context of $c$ tokens sees at most that many: where a row would
    be longer, all but its last $\lceil c / 2 \rceil$ tokens are forgotten, and these are read anew. So a row is read
    in the same way whatever else is in the batch.

    Args:
        model: The model.
        prompts: The rows, none of them empty.
        context: $c$; by default the `context` of the model, if it has one, and otherwise no limit.
    """

    def __init__(self, model: Decodes, prompts: Prompts, *, context: int | None = None) -> None:
        self.context = getattr(model, "context", None) if context is None else context
        if self.context is not None and self.context < 1:
            raise ValueError(f"context is at least 1: got {self.context}")
        if not hasattr(model, "cache"):
            wanted = "a model with a method cache(), called with cache=, was wanted (read_gpt2 makes one of a GPT-2)"
            raise TypeError(f"{wanted}: got {type(model).__name__}")
        self.model, self.device = model, device_of(model)
        self.rows = self.prompts = rows_of(prompts, self.device)
        self._new: list[Tensor] = []
        self._step = unrolled(model)
        self.logits = self._read()

    def feed(self, tokens: Int[Tensor, "b"]) -> Float[Tensor, "b vocab"]:
        """Reads one more token in each row, and returns the scores of the next."""
        self._new.append(tokens)
        if len(self._new) > self._room:
            self.logits = self._read()
        elif self._step is not None:
            self.logits = self._step(tokens[:, None], self.cache)
        else:
            self.logits = self.model(tokens[:, None], cache=self.cache)[:, -1]
        return self.logits

    def select(self, rows: Int[Tensor, "k"]) -> None:
        """Goes on with these rows."""
        self.cache = self.cache.select(rows)
        self.rows = [self.rows[row] for row in rows.tolist()]
        self._new = [tokens[rows] for tokens in self._new]

    def _read(self) -> Tensor:
        """Reads all rows from an empty cache."""
        if self._new:
            new = torch.stack(self._new, dim=1)
            self.rows, self._new = [torch.cat(pair) for pair in zip(self.rows, new, strict=True)], []
        if self.context is not None:
            kept = -(-self.context // 2)
            self.rows = [row[-kept:] if len(row) > self.context else row for row in self.rows]
        lengths = [len(row) for row in self.rows]
        width = max(lengths)
        self._room = float("inf") if self.context is None else self.context - width
        if min(lengths) == width:
            tokens, padding = torch.stack(self.rows), None
        else:
            tokens = torch.stack([torch.nn.functional.pad(row, (width - len(row), 0)) for row in self.rows])
            starts = torch.tensor([width - n for n in lengths], device=self.device)
            padding = torch.arange(width, device=self.device) >= starts[:, None]
        self.cache = self.model.cache(padding)
        logits = _last(self.model, tokens, self.cache)
        if not logits.isfinite().all():
            raise ValueError("the scores of the model are not all finite: it may have diverged in training")
        return logits


def _last(model: Decodes, tokens: Int[Tensor, "b t"], cache: Any) -> Float[Tensor, "b vocab"]:
    """The scores after the last token; a decoder is spared the head at all others."""
    if isinstance(model, Decoder):
        return model.logits(model.run(tokens, mask=model.config.mask, cache=cache)[:, -1:])[:, -1]
    return model(tokens, cache=cache)[:, -1]


def rows_of(prompts: Prompts, device: torch.device) -> list[Int[Tensor, "_"]]:
    """Makes rows of tokens of what a user gives; an empty one is refused.

    Examples:
        >>> rows_of([1, 2], torch.device("cpu"))
        [tensor([1, 2])]
    """
    listed = list(prompts)
    if any(isinstance(row, str) for row in listed):
        raise TypeError("rows of tokens were wanted, such as tokenizer.encode(text): got text")
    given: list[Any] = [prompts] if not listed or np.ndim(listed[0]) == 0 else listed
    rows = [torch.as_tensor(row, device=device) if len(row) else torch.empty(0, device=device) for row in given]
    for i, row in enumerate(rows):
        if row.dim() != 1 or not len(row):
            raise ValueError(f"a prompt is a row of at least one token: prompt {i} has shape {tuple(row.shape)}")
        if row.is_floating_point() or row.dtype == torch.bool:
            raise TypeError(f"tokens are whole numbers: prompt {i} has {row.dtype}")
    return [row.long() for row in rows]


def scores_of(output: Any) -> Tensor:
    """The scores in what a model gave: a tensor, or the `logits` of an output of Hugging Face."""
    found = output if isinstance(output, Tensor) else getattr(output, "logits", None)
    if not isinstance(found, Tensor):
        raise TypeError(f"scores of the next token were wanted, a tensor: got {type(output).__name__}")
    return found


def device_of(model: Decodes) -> torch.device:
    """Where a model is."""
    if isinstance(model, torch.nn.Module):
        return next((t.device for t in (*model.parameters(), *model.buffers())), torch.device("cpu"))
    return torch.device("cpu")
