"""Logit lens and direct logit attribution: what each layer and head contributes to the logits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful._suggest import did_you_mean
from lawful.blocks.residual import Residual
from lawful.laws import Claim, agreement, tokens
from lawful.probe.model_layout import (
    ModelLayout,
    check_no_output_norm,
    frozen_norm,
    infer_layout,
    linearize_branch,
)
from lawful.probe.record import ActivationCache, record
from lawful.probe.toy_models import attention_only_model


def logit_lens(
    model: nn.Module, inputs: Tensor | dict[str, Any], *, layout: ModelLayout | None = None
) -> Float[Tensor, "layers *batch t vocab"]:
    r"""Applies the final norm and the head to the residual stream before every layer, and after the last.

    $$\operatorname{head}(\operatorname{norm}(x_\ell)), \qquad \ell = 0, \dots, L$$

    The last entry is the logits of the model (before a softcap).

    Reference:
        nostalgebraist, *interpreting GPT: the logit lens*, 2020.

    Args:
        model: A model whose layers add to a residual stream.
        inputs: Tokens, or a dict of keyword arguments of the model.
        layout: Names of the parts of the model. Inferred for models of this library, GPT-2 and Llama.

    Examples:
        >>> model = attention_only_model(vocab_size=5, dim=4, num_layers=2)
        >>> logit_lens(model, torch.tensor([[1, 2, 3]])).shape
        torch.Size([3, 1, 3, 5])
    """
    layout = layout or infer_layout(model)
    names = [f"{name}.input" for name in layout.layer_names(model)] + [f"{layout.final_module}.input"]
    with record(model, *names) as cache:
        _call(model, inputs)
    norm, head = layout.get_norm(model), model.get_submodule(layout.head)
    return head(norm(torch.stack([cache[name] for name in names])))


@dataclass(frozen=True, eq=False)
class LogitContributions:
    """Contributions of named parts of a model to its logits. They sum to the logits.

    Examples:
        >>> logits = torch.tensor([[1.0, 0.0], [-3.0, 2.0]])
        >>> contributions = LogitContributions(("embedding", "layers.0"), logits)
        >>> contributions["layers.0"]
        tensor([-3.,  2.])
        >>> contributions.top(1, token=0)
        [('layers.0', -3.0)]
    """

    names: tuple[str, ...]
    """Name of each part."""
    logits: Float[Tensor, "n *batch vocab"]
    """Contribution of each part."""

    def __getitem__(self, name: str) -> Float[Tensor, "*batch vocab"]:
        if name not in self.names:
            raise KeyError(f"there is no part {name}{did_you_mean(name, self.names)}")
        return self.logits[self.names.index(name)]

    def __len__(self) -> int:
        return len(self.names)

    def logit(self, token: int, *, minus: int | None = None) -> Float[Tensor, "n *batch"]:
        """Returns the contributions to the logit of a token, or to a logit difference.

        Args:
            token: The token.
            minus: Another token, whose logit is subtracted.
        """
        logit = self.logits[..., token]
        return logit if minus is None else logit - self.logits[..., minus]

    def top(self, k: int, *, token: int, minus: int | None = None) -> list[tuple[str, float]]:
        """Returns the `k` largest contributions by absolute value, averaged over the batch.

        Args:
            k: Number of parts.
            token: The token.
            minus: Another token, whose logit is subtracted.
        """
        mean = self.logit(token, minus=minus).detach().reshape(len(self), -1).mean(1)
        order = mean.abs().argsort(descending=True, stable=True)[:k].tolist()
        return [(self.names[i], float(mean[i])) for i in order]

    def sum(self) -> Float[Tensor, "*batch vocab"]:
        """Returns the logits."""
        return self.logits.sum(0)


def layer_attribution(
    model: nn.Module, inputs: Tensor | dict[str, Any], *, position: int = -1, layout: ModelLayout | None = None
) -> LogitContributions:
    r"""Direct logit attribution by layer: splits the logits at a position into contributions of embedding and layers.

    $$\text{logits} = W_U \operatorname{norm}\Bigl(x_0 + \sum_\ell \Delta_\ell\Bigr)
      = W_U \frac{\gamma \odot P x_0}{\sigma}
      + \sum_\ell W_U \frac{\gamma \odot P \Delta_\ell}{\sigma} + W_U \beta + b$$

    The scale $\sigma$ of the final norm is frozen. The sum is exact (before a softcap). A skip connection from the
    embedding (`WeightedSum`) scales earlier contributions and adds to the contribution of the embedding.

    Args:
        model: A model whose layers add to a residual stream.
        inputs: Tokens, or a dict of keyword arguments of the model.
        position: Position of the logits.
        layout: Names of the parts of the model. Inferred for models of this library, GPT-2 and Llama.

    Examples:
        >>> model, x = attention_only_model(vocab_size=5, dim=4, num_layers=2), torch.tensor([[1, 2, 3]])
        >>> contributions = layer_attribution(model, x)
        >>> contributions.names
        ('embedding', 'layers.0', 'layers.1', 'bias')
        >>> torch.allclose(contributions.sum(), model(x)[:, -1], atol=1e-5)
        True
    """
    layout = layout or infer_layout(model)
    cache = _record_stream(model, inputs, layout)
    return _read_out(model, layout, cache, _stream_terms(model, layout, cache), position)


def head_attribution(
    model: nn.Module, inputs: Tensor | dict[str, Any], *, position: int = -1, layout: ModelLayout | None = None
) -> LogitContributions:
    r"""Direct logit attribution by head: splits the logits at a position into contributions of heads and other layers.

    The heads of a layer are `layers.0.head.0`, ...; the rest of the layer, such as the bias of its output, is
    `layers.0.rest`. The sum is exact, as for `layer_attribution`. Gates and skip connections from the embedding are
    included; norms in between are frozen at their scale.

    Args:
        model: A model whose layers add to a residual stream, with `MultiHeadAttention`.
        inputs: Tokens, or a dict of keyword arguments of the model.
        position: Position of the logits.
        layout: Names of the parts of the model.

    Examples:
        >>> model = attention_only_model(vocab_size=5, dim=4, num_layers=1, num_heads=2)
        >>> head_attribution(model, torch.tensor([[1, 2, 3]])).names
        ('embedding', 'layers.0.head.0', 'layers.0.head.1', 'layers.0.rest', 'bias')
    """
    layout = layout or infer_layout(model)
    layers = {name: model.get_submodule(name) for name in layout.layer_names(model)}
    for name, layer in layers.items():
        check_no_output_norm(layer, name)
    blocks = {name: f"{name}.{layer.block_name}" for name, layer in layers.items() if isinstance(layer, Residual)}
    try:
        cache = _record_stream(model, inputs, layout, f"{layout.layers}.*.heads", *blocks.values())
    except LookupError as error:
        hint = "head attribution needs MultiHeadAttention; load a GPT-2 with GPT2.from_pretrained"
        raise LookupError(f"{error} ({hint})") from None

    def by_heads(name: str, added: Tensor) -> list[tuple[str, Tensor]]:
        heads = [cache[tapped] for tapped in cache if tapped.startswith(f"{name}.") and tapped.endswith(".heads")]
        if not heads:
            return [(name, added)]
        linear, _ = linearize_branch(layers[name], cache.get(blocks.get(name, name), added), name=name)
        terms = [linear(head) for head in torch.cat(heads, dim=-3).unbind(-3)]
        return [*((f"{name}.head.{i}", term) for i, term in enumerate(terms)), (f"{name}.rest", added - sum(terms))]

    return _read_out(model, layout, cache, _stream_terms(model, layout, cache, by_heads), position)


def _call(model: nn.Module, inputs: Tensor | dict[str, Any]) -> Any:
    return model(**inputs) if isinstance(inputs, dict) else model(inputs)


def _record_stream(
    model: nn.Module, inputs: Tensor | dict[str, Any], layout: ModelLayout, *others: str
) -> ActivationCache:
    """Records the residual stream before and after every layer, and before the final norm."""
    layers = layout.layer_names(model)
    stream = (*layers, *(f"{name}.input" for name in (*layers, layout.final_module)))
    with record(model, *stream, *layout.embedding_skip_names(model), *others) as cache:
        _call(model, inputs)
    return cache


def _keep_whole(name: str, added: Tensor) -> list[tuple[str, Tensor]]:
    return [(name, added)]


def _stream_terms(
    model: nn.Module,
    layout: ModelLayout,
    cache: ActivationCache,
    split: Callable[[str, Tensor], list[tuple[str, Tensor]]] = _keep_whole,
) -> list[tuple[str, Tensor]]:
    """Returns the terms of the final residual stream: embedding, layers, and changes between layers."""
    names = layout.layer_names(model)
    start = stream = cache[f"{(*names, layout.final_module)[0]}.input"]
    terms = [("embedding", start)]
    for name in (*names, layout.final_module):
        before = cache[f"{name}.input"]
        if before is not stream and not torch.equal(before, stream):
            if (weights := layout.embedding_skip_weights(model, cache, before)) is not None:
                terms = [(term_name, weights[0] * term) for term_name, term in terms]
                terms[0] = ("embedding", terms[0][1] + weights[1] * start)
            else:
                terms.append((f"before {name}", before - stream))
        if name != layout.final_module:
            stream = cache.tensor(name)
            terms += split(name, stream - before)
    return terms


def _read_out(
    model: nn.Module, layout: ModelLayout, cache: ActivationCache, terms: list[tuple[str, Tensor]], position: int
) -> LogitContributions:
    """Maps terms of the final residual stream to logits at a position."""
    head = model.get_submodule(layout.head)
    final = cache[f"{layout.final_module}.input"][..., position, :]
    linear, shift = frozen_norm(layout.get_norm(model), final)
    zero = head(torch.zeros_like(shift))
    logits = head(torch.stack([linear(term[..., position, :]) for _, term in terms])) - zero
    return LogitContributions((*(name for name, _ in terms), "bias"), torch.cat([logits, head(shift)[None]]))


def claims() -> Iterator[Claim]:
    """Contributions sum to the logits, and the last entry of the lens is the logits."""
    model = attention_only_model(vocab_size=5, dim=4, num_heads=2, norm=nn.LayerNorm)
    functions = {
        "logit_lens": lambda x: logit_lens(model, x)[-1, :, 1],
        "layer_attribution": lambda x: layer_attribution(model, x, position=1).sum(),
        "head_attribution": lambda x: head_attribution(model, x, position=1).sum(),
    }
    logits = replace(agreement(other=lambda x: model(x)[:, 1]), cases=30)
    for name, function in functions.items():
        yield Claim(logits, function, tokens("b t:2..5", vocab_size=5), name=name)
