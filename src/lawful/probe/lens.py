"""The logit lens: what the head would say after every layer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.laws import Claim, agreement, tokens
from lawful.probe.anatomy import Anatomy, anatomy_of
from lawful.probe.example import attention_only
from lawful.probe.record import record


def logit_lens(
    model: nn.Module, inputs: Tensor | dict[str, Any], *, anatomy: Anatomy | None = None
) -> Float[Tensor, "layers *batch t vocab"]:
    r"""Reads the stream before every layer, and after the last, as if it were the last.

    $$\operatorname{head}(\operatorname{norm}(x_\ell)), \qquad \ell = 0, \dots, L$$

    The last of these are the logits of the model (before a soft cap, if it has one).

    Reference:
        nostalgebraist, *interpreting GPT: the logit lens*, 2020.

    Args:
        model: A model in which every layer adds to one stream.
        inputs: The tokens, or the keyword arguments of the model.
        anatomy: Where the parts of the model are; found for models of this library, GPT-2 and Llama.

    Examples:
        >>> model = attention_only(vocab=5, d=4, depth=2)
        >>> logit_lens(model, torch.tensor([[1, 2, 3]])).shape
        torch.Size([3, 1, 3, 5])
    """
    where = anatomy or anatomy_of(model)
    names = [f"{name}.input" for name in where.names(model)] + [f"{where.reader}.input"]
    with record(model, *names) as tape:
        model(**inputs) if isinstance(inputs, dict) else model(inputs)
    norm, head = where.norm_of(model), model.get_submodule(where.head)
    return head(norm(torch.stack([tape[name] for name in names])))


def claims() -> Iterator[Claim]:
    """The laws that the logit lens obeys."""
    model = attention_only(vocab=5, d=4, depth=2, norm=nn.LayerNorm)

    def ends(x: Tensor) -> tuple[Tensor, Tensor]:
        lens = logit_lens(model, x)
        return lens[0], lens[-1]

    def written(x: Tensor) -> tuple[Tensor, Tensor]:
        start = model.embedding(x) + model.get_parameter("positions.weight")[: x.shape[1]]
        return model.norm(start) @ model.head.weight.mT, model(x)

    yield Claim(agreement(other=written), ends, tokens("b t:1..5", vocab=5), name="first and last line of the lens")
