"""Path expansion: the logits as a sum over paths through heads, and residual networks as ensembles of subnetworks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lawful.blocks.attention import MultiHeadAttention
from lawful.laws import Claim, agreement, tokens
from lawful.probe.attribution import LogitContributions
from lawful.probe.circuits import LinearHeads, layer_pattern, linear_heads
from lawful.probe.model_layout import (
    ModelLayout,
    check_no_output_norm,
    frozen_norm,
    infer_layout,
    linearize_branch,
)
from lawful.probe.record import ActivationCache, patch, record, zero_ablation
from lawful.probe.toy_models import attention_only_model


def path_expansion(
    model: nn.Module,
    inputs: Int[Tensor, "*batch t"],
    *,
    position: int = -1,
    max_paths: int = 4096,
    layout: ModelLayout | None = None,
) -> LogitContributions:
    r"""Splits the logits at a position into contributions of every path through the heads.

    With a frozen attention pattern $A$, a head is a linear map of the residual stream, $h(x) = A x \, W_{OV}^\top$. The
    product of the layers expands into a sum over paths:

    $$\text{logits} = \Bigl(1 + \sum_h h_h^{(L)}\Bigr) \cdots \Bigl(1 + \sum_h h_h^{(1)}\Bigr) x_0 \, W_U^\top
      = \sum_{\text{paths}} h^{(\ell_m)} \cdots h^{(\ell_1)} x_0 \, W_U^\top$$

    There are $\prod_\ell (1 + h_\ell)$ paths from the embedding, named by layer and head: `embedding → 0.1 → 1.0`. The
    scales of norms are frozen. The output of a feed-forward block starts its own paths; all biases together are the
    part `bias`. Gates are part of their heads. A skip connection from the embedding (`WeightedSum`) scales all paths so
    far and adds to the shortest one. The sum is the logits. The expansion does not show how patterns depend on the
    residual stream.

    Reference:
        Elhage et al., *A Mathematical Framework for Transformer Circuits*, 2021.

    Args:
        model: A decoder with `MultiHeadAttention`.
        inputs: Tokens.
        position: Position of the logits.
        max_paths: Maximum number of paths; `paths_by_length` has no such limit.
        layout: Names of the parts of the model.

    Examples:
        >>> model, x = attention_only_model(vocab_size=5, dim=4), torch.tensor([1, 2, 3])
        >>> contributions = path_expansion(model, x)
        >>> contributions.names[:5], len(contributions)
        (('embedding', 'embedding → 0.0', 'embedding → 0.1', 'embedding → 1.0', 'embedding → 0.0 → 1.0'), 10)
        >>> torch.allclose(contributions.sum(), model(x)[-1], atol=1e-5)
        True
    """
    run = _freeze(model, inputs, layout or infer_layout(model))
    count = run.num_paths()
    if count > max_paths:
        raise ValueError(
            f"there are {count:,} paths, more than max_paths={max_paths:,}: use paths_by_length, or raise max_paths"
        )
    names, streams, bias = ["embedding"], run.start[None], torch.zeros_like(run.start)
    for i, layer in enumerate(run.layers):
        streams, bias = run.apply_skip(i, streams, bias)
        if isinstance(layer, LinearHeads):
            outputs = layer.per_head(streams)
            names += [f"{name} → {i}.{h}" for h in range(layer.num_heads) for name in names]
            streams = torch.cat([streams, outputs.flatten(0, 1)])
            bias = bias + layer(bias) + layer.constant
        else:
            names, streams = [*names, run.names[i]], torch.cat([streams, layer[None]])
    return run.read_out(names, *run.apply_skip(len(run.layers), streams, bias), position)


def paths_by_length(
    model: nn.Module, inputs: Int[Tensor, "*batch t"], *, position: int = -1, layout: ModelLayout | None = None
) -> LogitContributions:
    r"""Splits the logits at a position into contributions of paths through 0, 1, 2, ... heads.

    $$S_m \leftarrow S_m + \sum_h h_h(S_{m - 1})$$

    Paths of equal length are summed layer by layer: the cost grows with the square of the depth, not exponentially.

    Args:
        model: A decoder with `MultiHeadAttention`.
        inputs: Tokens.
        position: Position of the logits.
        layout: Names of the parts of the model.

    Examples:
        >>> model = attention_only_model(vocab_size=5, dim=4, num_layers=3)
        >>> paths_by_length(model, torch.tensor([1, 2, 3])).names
        ('0 heads', '1 head', '2 heads', '3 heads', 'bias')
    """
    run = _freeze(model, inputs, layout or infer_layout(model))
    sums, bias = run.start[None], torch.zeros_like(run.start)
    for i, layer in enumerate(run.layers):
        sums, bias = run.apply_skip(i, sums, bias)
        if isinstance(layer, LinearHeads):
            zero = torch.zeros_like(bias)[None]
            sums = torch.cat([sums, zero]) + torch.cat([zero, layer(sums)])
            bias = bias + layer(bias) + layer.constant
        else:
            sums = torch.cat([sums[:1] + layer, sums[1:]])
    names = [f"{m} head{'' if m == 1 else 's'}" for m in range(len(sums))]
    return run.read_out(names, *run.apply_skip(len(run.layers), sums, bias), position)


@dataclass(frozen=True, eq=False)
class _FrozenRun:
    """A forward pass with frozen patterns and scales: a linear map of the embedding, plus constants."""

    model: nn.Module
    layout: ModelLayout
    names: list[str]
    start: Tensor
    layers: list[LinearHeads | Tensor]
    final: Tensor
    skips: dict[int, tuple[Tensor, Tensor]]

    def apply_skip(self, i: int, streams: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """Applies the skip connection from the embedding before layer i, if there is one. The embedding is stream 0."""
        if i not in self.skips:
            return streams, bias
        a, b = self.skips[i]
        return torch.cat([a * streams[:1] + b * self.start, a * streams[1:]]), a * bias

    def num_paths(self) -> int:
        paths = 1
        for layer in self.layers:
            paths = paths * (1 + layer.num_heads) if isinstance(layer, LinearHeads) else paths + 1
        return paths

    def read_out(self, names: list[str], streams: Tensor, bias: Tensor, position: int) -> LogitContributions:
        """Maps terms of the final residual stream to logits."""
        head = self.model.get_submodule(self.layout.head)
        linear, shift = frozen_norm(self.layout.get_norm(self.model), self.final[..., position, :])
        constant = head(linear(bias[..., position, :]) + shift)
        zero = head(torch.zeros_like(shift))
        terms = head(linear(streams[..., position, :])) - zero
        return LogitContributions((*names, "bias"), torch.cat([terms, constant[None]]))


def _freeze(model: nn.Module, inputs: Tensor, layout: ModelLayout) -> _FrozenRun:
    names = layout.layer_names(model)
    blocks = [_attention_block(model.get_submodule(name)) for name in names]
    with_heads = [name for name, block in zip(names, blocks, strict=True) if block is not None]
    if not with_heads:
        raise ValueError(f"path expansion needs lawful.blocks.MultiHeadAttention, and {layout.layers} has none")
    recorded = [f"{name}{end}" for name in names for end in ("", ".input")]
    recorded += [f"{_block_path(model, name)}{end}" for name in with_heads for end in ("", ".pattern*")]
    with record(model, *recorded, *layout.embedding_skip_names(model), f"{layout.final_module}.input") as cache:
        model(inputs)
    layers: list[LinearHeads | Tensor] = []
    skips: dict[int, tuple[Tensor, Tensor]] = {}
    for i, name in enumerate((*names, layout.final_module)):
        before = cache[f"{name}.input"]
        if i and before is not (after := cache[names[i - 1]]) and not torch.equal(before, after):
            if (weights := layout.embedding_skip_weights(model, cache, before)) is None:
                raise ValueError(
                    f"the residual stream changes between {names[i - 1]} and {name}: it is not a sum of paths"
                )
            skips[i] = weights
        if i < len(names):
            path = _block_path(model, name)
            layers.append(_linearize_layer(model.get_submodule(name), blocks[i], cache, name, path))
    start, final = cache[f"{names[0]}.input"], cache[f"{layout.final_module}.input"]
    return _FrozenRun(model, layout, names, start, layers, final, skips)


def _linearize_layer(
    layer: nn.Module, block: MultiHeadAttention | None, cache: ActivationCache, name: str, path: str
) -> LinearHeads | Tensor:
    """Returns the heads of a layer as linear maps of the residual stream; its output if it has no heads."""
    before = cache[f"{name}.input"]
    added = cache[name] - before
    check_no_output_norm(layer, name)
    if block is None:
        return added
    norm = layer.norm if isinstance(layer.norm, nn.Module) else nn.Identity()
    heads = linear_heads(block, layer_pattern(cache, path), norm, before)
    branch, constant = linearize_branch(layer, cache[path], name=name)
    heads = replace(heads, branch=branch, constant=branch(heads.constant) + constant)
    error = (heads(before[None])[0] + heads.constant - added).abs().max().item()
    if not error <= 1e-3 * max(cache[name].abs().max().item(), 1e-30):
        reason = "it has a value residual" if block.value_residual is not None else "something else changes its values"
        raise ValueError(f"{name} is not the sum of its heads (error {error:.2g}): {reason}")
    return heads


def _block_path(model: nn.Module, layer: str) -> str:
    return f"{layer}.{getattr(model.get_submodule(layer), 'block_name', 'block')}"


def _attention_block(layer: nn.Module) -> MultiHeadAttention | None:
    block = getattr(layer, "block", None)
    return block if isinstance(block, MultiHeadAttention) else None


def subnetworks(
    run: Callable[[], Tensor], model: nn.Module, names: Sequence[str], *, max_subsets: int = 1024
) -> Float[Tensor, "n ..."]:
    r"""Returns the outputs of a model with every subset of its residual blocks; the others are zero-ablated.

    Subsets are in binary order: row 0 has no block, row 1 the first, row 3 the first two, the last row all blocks.

    Reference:
        Veit, Wilber and Belongie, *Residual Networks Behave Like Ensembles of Relatively Shallow Networks*, 2016.

    Args:
        run: Function without arguments that calls the model and returns the output.
        model: The model.
        names: Outputs of the blocks, such as `layers.0.added`.
        max_subsets: Maximum number of subsets, $2^n$ for $n$ names.

    Examples:
        >>> from lawful.blocks import Residual
        >>> model = nn.Sequential(Residual(nn.Identity()), Residual(nn.Identity()))
        >>> subnetworks(lambda: model(torch.ones(1)), model, ["0.block", "1.block"]).flatten()
        tensor([1., 2., 2., 4.])
    """
    count = 2 ** len(names)
    if count > max_subsets:
        raise ValueError(f"{len(names)} blocks have {count:,} subsets, more than max_subsets={max_subsets:,}")
    outputs = []
    for subset in range(count):
        ablated = [name for i, name in enumerate(names) if not subset >> i & 1]
        with patch(model, dict.fromkeys(ablated, zero_ablation)):
            outputs.append(run())
    return torch.stack(outputs)


def path_terms(outputs: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
    r"""Returns the interaction terms of subsets of blocks (Möbius transform of the outputs of `subnetworks`).

    $$T(S) = \sum_{R \subseteq S} (-1)^{|S| - |R|} F(R), \qquad \sum_S T(S) = F(\text{all})$$

    For linear blocks, $T(S)$ is the path through the blocks of $S$, such as $f_2 f_1 x$. Otherwise it is their
    interaction, a finite difference of order $|S|$. The sum is exact for any blocks.

    Reference:
        Harsanyi, *A Simplified Bargaining Model for the n-Person Cooperative Game*, 1963.

    Args:
        outputs: Outputs $F(S)$ of all subsets, from `subnetworks`.

    Examples:
        >>> path_terms(torch.tensor([1.0, 2.0, 2.0, 4.0]))
        tensor([1., 1., 1., 1.])
    """
    count = len(outputs)
    if count < 1 or count & (count - 1):
        raise ValueError(f"expected 2^n outputs, one per subset, got {count}")
    terms, step = outputs, 1
    while step < count:
        pairs = terms.unflatten(0, (-1, 2, step))
        terms = torch.stack([pairs[:, 0], pairs[:, 1] - pairs[:, 0]], dim=1).flatten(0, 2)
        step *= 2
    return terms


def claims() -> Iterator[Claim]:
    """Path contributions sum to the logits."""
    model = attention_only_model(vocab_size=5, dim=4, norm=nn.LayerNorm)
    logits = replace(agreement(other=lambda x: model(x)[..., 1, :]), cases=30)
    for function in (path_expansion, paths_by_length):

        def total(x: Tensor, function: Callable[..., LogitContributions] = function) -> Tensor:
            return function(model, x, position=1).sum()

        yield Claim(logits, total, tokens("b t:2..4", vocab_size=5), name=f"sum of {function.__name__}")
