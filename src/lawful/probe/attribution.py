"""Direct attribution: what every layer and every head adds to the logits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from lawful.laws import Claim, agreement, tokens
from lawful.probe.anatomy import Anatomy, anatomy_of, frozen_norm
from lawful.probe.example import attention_only
from lawful.probe.parts import Parts
from lawful.probe.record import record
from lawful.probe.tape import Tape


def layer_attribution(
    model: nn.Module, inputs: Tensor | dict[str, Any], *, position: int = -1, anatomy: Anatomy | None = None
) -> Parts:
    r"""Splits the logits at a position into what the embedding and each layer add to them directly.

    $$\text{logits} = W_U \operatorname{norm}\Bigl(x_0 + \sum_\ell \Delta_\ell\Bigr)
      = W_U \frac{\gamma \odot P x_0}{\sigma}
      + \sum_\ell W_U \frac{\gamma \odot P \Delta_\ell}{\sigma} + W_U \beta + b$$

    The scale $\sigma$ of the last norm is held as it is. The sum is exact (to the logits before a soft cap).

    Args:
        model: A model in which every layer adds to one stream.
        inputs: The tokens, or the keyword arguments of the model.
        position: Where the logits are read.
        anatomy: Where the parts of the model are; found for models of this library, GPT-2 and Llama.

    Examples:
        >>> model, x = attention_only(vocab=5, d=4, depth=2), torch.tensor([[1, 2, 3]])
        >>> parts = layer_attribution(model, x)
        >>> parts.names
        ('embedding', 'layers.0', 'layers.1', 'bias')
        >>> torch.allclose(parts.sum(), model(x)[:, -1], atol=1e-5)
        True
    """
    where = anatomy or anatomy_of(model)
    tape = _streams(model, inputs, where)
    return _read(model, where, tape, _added(model, where, tape), position)


def head_attribution(
    model: nn.Module, inputs: Tensor | dict[str, Any], *, position: int = -1, anatomy: Anatomy | None = None
) -> Parts:
    r"""Splits the logits at a position into what each head adds to them directly, and each layer without heads.

    The heads of a layer are `layers.0.head.0`, ...; what their layer adds besides is `layers.0.rest`: the bias of its
    output, or, where the heads are one part of a layer, the other parts. The sum is exact, as for layers.

    Args:
        model: A model in which every layer adds to one stream, whose attention taps `heads`.
        inputs: The tokens, or the keyword arguments of the model.
        position: Where the logits are read.
        anatomy: Where the parts of the model are.

    Examples:
        >>> model, x = attention_only(vocab=5, d=4, depth=1, heads=2), torch.tensor([[1, 2, 3]])
        >>> parts = head_attribution(model, x)
        >>> parts.names
        ('embedding', 'layers.0.head.0', 'layers.0.head.1', 'layers.0.rest', 'bias')
    """
    where = anatomy or anatomy_of(model)
    tape = _streams(model, inputs, where, f"{where.layers}.*.heads")
    found = []
    for name, added in _added(model, where, tape):
        heads = [tape[tapped] for tapped in tape if tapped.startswith(f"{name}.") and tapped.endswith(".heads")]
        each = torch.cat(heads, dim=-3).unbind(-3) if heads else ()
        found += [(f"{name}.head.{i}", head) for i, head in enumerate(each)]
        found.append((f"{name}.rest", added - sum(each)) if each else (name, added))
    return _read(model, where, tape, found, position)


def _streams(model: nn.Module, inputs: Tensor | dict[str, Any], where: Anatomy, *others: str) -> Tape:
    """The stream before and after every layer, and before the last norm."""
    layers = where.names(model)
    with record(model, *layers, *(f"{name}.input" for name in (*layers, where.norm)), *others) as tape:
        model(**inputs) if isinstance(inputs, dict) else model(inputs)
    return tape


def _added(model: nn.Module, where: Anatomy, tape: Tape) -> list[tuple[str, Tensor]]:
    """What the embedding, every layer, and anything between layers add to the stream."""
    names, found, stream = where.names(model), [], None
    for name in (*names, where.norm):
        before = tape[f"{name}.input"]
        if stream is None:
            found.append(("embedding", before))
        elif before is not stream and not torch.equal(before, stream):
            found.append((f"before {name}", before - stream))
        if name != where.norm:
            stream = tape[name][0] if isinstance(tape[name], tuple) else tape[name]
            found.append((name, stream - before))
    return found


def _read(model: nn.Module, where: Anatomy, tape: Tape, added: list[tuple[str, Tensor]], position: int) -> Parts:
    """What terms of the last stream add to the logits at a position."""
    head = model.get_submodule(where.head)
    last = tape[f"{where.norm}.input"][..., position, :]
    linear, shift = frozen_norm(model.get_submodule(where.norm), last)
    zero = head(torch.zeros_like(shift))
    terms = head(torch.stack([linear(term[..., position, :]) for _, term in added])) - zero
    return Parts((*(name for name, _ in added), "bias"), torch.cat([terms, head(shift)[None]]))


def claims() -> Iterator[Claim]:
    """The laws that direct attribution obeys."""
    for norm in (nn.LayerNorm, nn.Identity):
        model = attention_only(vocab=5, d=4, depth=2, heads=2, norm=norm)

        def by_layers(x: Tensor, model: nn.Module = model) -> Tensor:
            return layer_attribution(model, x, position=1).sum()

        def by_heads(x: Tensor, model: nn.Module = model) -> Tensor:
            return head_attribution(model, x, position=1).sum()

        def logits(x: Tensor, model: nn.Module = model) -> Tensor:
            return model(x)[:, 1]

        for f in (by_layers, by_heads):
            name = f"{f.__name__.replace('_', ' ')}, {norm.__name__}"
            yield Claim(agreement(other=logits), f, tokens("b t:2..5", vocab=5), name=name)
