"""The logit lens: what the head would say after every layer.

Parts: terms with names that add up to the logits.
Direct attribution: what every layer and every head adds to the logits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.blocks.residual import LayerScale, Residual, WeightedSum
from lawful.laws import Claim, agreement, shape, tokens
from lawful.models.transformer import TransformerExtras
from lawful.probe.model_layout import ModelLayout, asked_of, frozen_norm, infer_layout, into_stream, mixed
from lawful.probe.record import ActivationCache, near, only, record, zero_ablation
from lawful.probe.toy_models import attention_only


def logit_lens(
    model: nn.Module, inputs: Tensor | dict[str, Any], *, anatomy: ModelLayout | None = None
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
    where = anatomy or infer_layout(model)
    names = [f"{name}.input" for name in where.names(model)] + [f"{where.reader}.input"]
    with record(model, *names) as tape:
        model(**inputs) if isinstance(inputs, dict) else model(inputs)
    norm, head = where.norm_of(model), model.get_submodule(where.head)
    return head(norm(torch.stack([tape[name] for name in names])))


def _lens_claims() -> Iterator[Claim]:
    """The laws that the logit lens obeys."""
    model = attention_only(vocab=5, d=4, depth=2, norm=nn.LayerNorm)

    def ends(x: Tensor) -> tuple[Tensor, Tensor]:
        lens = logit_lens(model, x)
        return lens[0], lens[-1]

    def written(x: Tensor) -> tuple[Tensor, Tensor]:
        start = model.embedding(x) + model.get_parameter("positions.weight")[: x.shape[1]]
        return model.norm(start) @ model.head.weight.mT, model(x)

    yield Claim(agreement(other=written), ends, tokens("b t:1..5", vocab_size=5), name="first and last line of the lens")


@dataclass(frozen=True, eq=False)
class LogitContributions:
    """Holds what each part of a model adds to the logits; their sum over the first axis is the logits themselves.

    Examples:
        >>> parts = LogitContributions(("embedding", "layers.0"), torch.tensor([[1.0, 0.0], [-3.0, 2.0]]))
        >>> parts["layers.0"]
        tensor([-3.,  2.])
        >>> parts.largest(1, token=0)
        [('layers.0', -3.0)]
    """

    names: tuple[str, ...]
    """The name of each part."""
    logits: Float[Tensor, "n *batch vocab"]
    """What each adds."""

    def __getitem__(self, name: str) -> Float[Tensor, "*batch vocab"]:
        if name not in self.names:
            raise KeyError(f"there is no part {name}{near(name, self.names)}")
        return self.logits[self.names.index(name)]

    def __len__(self) -> int:
        return len(self.names)

    def of(self, token: int, *, over: int | None = None) -> Float[Tensor, "n *batch"]:
        """Returns what each part adds to the logit of a token, or to its lead over another.

        Args:
            token: The token.
            over: The other token.
        """
        found = self.logits[..., token]
        return found if over is None else found - self.logits[..., over]

    def largest(self, count: int, *, token: int, over: int | None = None) -> list[tuple[str, float]]:
        """Returns the parts that add or take most, on average over the batch, with how much.

        Args:
            count: How many.
            token: The token.
            over: The other token, for its lead over that.
        """
        found = self.of(token, over=over).detach().reshape(len(self), -1).mean(1)
        order = found.abs().argsort(descending=True, stable=True)[:count].tolist()
        return [(self.names[i], float(found[i])) for i in order]

    def sum(self) -> Float[Tensor, "*batch vocab"]:
        """Returns the logits."""
        return self.logits.sum(0)


def parts_of(named: Sequence[tuple[str, Tensor]]) -> LogitContributions:
    """Puts terms with names together.

    Args:
        named: The names, and what each adds to the logits.

    Examples:
        >>> parts_of([("a", torch.ones(2)), ("b", torch.zeros(2))]).sum()
        tensor([1., 1.])
    """
    return LogitContributions(tuple(name for name, _ in named), torch.stack([value for _, value in named]))


def _parts_claims() -> Iterator[Claim]:
    """The laws that parts obey."""

    def read(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        parts = parts_of([(str(i), part) for i, part in enumerate(x)])
        (name, value), *_ = parts.largest(2, token=1, over=0)
        return parts.sum(), parts.of(2, over=0), torch.stack([x.new_tensor(value), parts[name].mean(0)[1]])

    def written(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        lead = (x[:, :, 1] - x[:, :, 0]).mean(1)
        best = max(range(len(x)), key=lambda i: float(lead[i].abs()))
        return x.sum(0), x[:, :, 2] - x[:, :, 0], torch.stack([lead[best], x[best, :, 1].mean()])

    yield Claim(agreement(other=written), read, shape("n:2..5 b 3"), name="Parts")


Split = Callable[[str, Tensor], list[tuple[str, Tensor]]]


def layer_attribution(
    model: nn.Module, inputs: Tensor | dict[str, Any], *, position: int = -1, anatomy: ModelLayout | None = None
) -> LogitContributions:
    r"""Splits the logits at a position into what the embedding and each layer add to them directly.

    $$\text{logits} = W_U \operatorname{norm}\Bigl(x_0 + \sum_\ell \Delta_\ell\Bigr)
      = W_U \frac{\gamma \odot P x_0}{\sigma}
      + \sum_\ell W_U \frac{\gamma \odot P \Delta_\ell}{\sigma} + W_U \beta + b$$

    The scale $\sigma$ of the last norm is held as it is. The sum is exact (to the logits before a soft cap). A shortcut
    (`WeightedSum`) from the embedding scales what came before it, and adds to the part of the embedding.

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
    where = anatomy or infer_layout(model)
    tape = _streams(model, inputs, where)
    return _read(model, where, tape, _added(model, where, tape), position)


def head_attribution(
    model: nn.Module, inputs: Tensor | dict[str, Any], *, position: int = -1, anatomy: ModelLayout | None = None
) -> LogitContributions:
    r"""Splits the logits at a position into what each head adds to them directly, and each layer without heads.

    The heads of a layer are `layers.0.head.0`, ...; what their layer adds besides is `layers.0.rest`: the bias of its
    output, or, where the heads are one part of a layer, the other parts. The sum is exact, as for layers. A gate on
    what a layer adds, and a shortcut from the embedding, count as they are; a norm that is between is held at its
    scale.

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
    where = anatomy or infer_layout(model)
    layers = {name: model.get_submodule(name) for name in where.names(model)}
    for name, layer in layers.items():
        if isinstance(layer, Residual) and layer.output_norm is not None:
            raise ValueError(f"{name} has a norm after the addition, through which the stream is no sum of heads")
    blocks = [f"{name}.block" for name, layer in layers.items() if isinstance(layer, Residual)]
    try:
        tape = _streams(model, inputs, where, f"{where.layers}.*.heads", *blocks)
    except LookupError as error:
        raise LookupError(f"{error}; heads are those of MultiHeadAttention (read_gpt2 reads a GPT-2 so)") from None

    def by_heads(name: str, added: Tensor) -> list[tuple[str, Tensor]]:
        heads = [tape[tapped] for tapped in tape if tapped.startswith(f"{name}.") and tapped.endswith(".heads")]
        if not heads:
            return [(name, added)]
        way, _ = into_stream(layers[name], tape.get(f"{name}.block", added), name=name)
        each = [way(head) for head in torch.cat(heads, dim=-3).unbind(-3)]
        return [*((f"{name}.head.{i}", head) for i, head in enumerate(each)), (f"{name}.rest", added - sum(each))]

    return _read(model, where, tape, _added(model, where, tape, by_heads), position)


def _streams(model: nn.Module, inputs: Tensor | dict[str, Any], where: ModelLayout, *others: str) -> ActivationCache:
    """The stream before and after every layer, and before the last norm."""
    layers = where.names(model)
    names = *layers, *(f"{name}.input" for name in (*layers, where.reader)), *asked_of(model), *others
    with record(model, *names) as tape:
        model(**inputs) if isinstance(inputs, dict) else model(inputs)
    return tape


def _whole(name: str, added: Tensor) -> list[tuple[str, Tensor]]:
    return [(name, added)]


def _added(
    model: nn.Module, where: ModelLayout, tape: ActivationCache, split: Split = _whole
) -> list[tuple[str, Tensor]]:
    """What the embedding, every layer, and anything between layers add to the stream, as it is at the end."""
    names = where.names(model)
    start = stream = tape[f"{(*names, where.reader)[0]}.input"]
    found = [("embedding", start)]
    for name in (*names, where.reader):
        before = tape[f"{name}.input"]
        if before is not stream and not torch.equal(before, stream):
            if (weights := mixed(model, tape, before)) is not None:
                found = [(named, weights[0] * term) for named, term in found]
                found[0] = ("embedding", found[0][1] + weights[1] * start)
            else:
                found.append((f"before {name}", before - stream))
        if name != where.reader:
            stream = tape.tensor(name)
            found += split(name, stream - before)
    return found


def _read(
    model: nn.Module, where: ModelLayout, tape: ActivationCache, added: list[tuple[str, Tensor]], position: int
) -> LogitContributions:
    """What terms of the last stream add to the logits at a position."""
    head = model.get_submodule(where.head)
    last = tape[f"{where.reader}.input"][..., position, :]
    linear, shift = frozen_norm(where.norm_of(model), last)
    zero = head(torch.zeros_like(shift))
    terms = head(torch.stack([linear(term[..., position, :]) for _, term in added])) - zero
    return LogitContributions((*(name for name, _ in added), "bias"), torch.cat([terms, head(shift)[None]]))


def _attribution_claims() -> Iterator[Claim]:
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
            yield Claim(replace(agreement(other=logits), cases=30), f, tokens("b t:2..5", vocab_size=5), name=name)
    extras = TransformerExtras(
        gate=partial(LayerScale, init_value=0.3), embedding_skip=partial(WeightedSum, init_value=(0.5, 2.0))
    )
    gated = attention_only(vocab=5, d=4, depth=2, heads=2, extras=extras)

    def attributed(x: Tensor) -> Tensor:
        parts = head_attribution(gated, x)
        return torch.stack([parts[f"layers.1.head.{head}"] for head in range(2)])

    def ablated(x: Tensor) -> Tensor:
        found = []
        for head in range(2):
            with record(
                gated, edit={"layers.1.block.heads": only((..., head, slice(None), slice(None)), zero_ablation)}
            ):
                found.append(gated(x)[:, -1])
        return gated(x)[:, -1] - torch.stack(found)

    def of_embedding(x: Tensor) -> Tensor:
        return layer_attribution(gated, x)["embedding"]

    def carried(x: Tensor) -> Tensor:
        start = gated.embedding(x) + gated.get_parameter("positions.weight")[: x.shape[1]]
        weight = 0.5 * (0.5 + 2.0) + 2.0
        return weight * start[:, -1] @ gated.head.weight.mT

    for f, other, name in (
        (attributed, ablated, "a head, against ablation"),
        (of_embedding, carried, "the embedding, with shortcuts"),
    ):
        yield Claim(replace(agreement(other=other), cases=15), f, tokens("b t:1..5", vocab_size=5), name=name)


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _lens_claims()
    yield from _parts_claims()
    yield from _attribution_claims()
