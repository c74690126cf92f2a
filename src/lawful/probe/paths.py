"""Path expansion: the logits as a sum over every path through the heads of a model.

A residual network as an ensemble: what every subset of its blocks gives, and what each adds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lawful.blocks.attention import MultiHeadAttention
from lawful.blocks.residual import Residual, residual_paths
from lawful.functions.activations import identity
from lawful.laws import Claim, agreement, shape, tokens
from lawful.probe.attribution import LogitContributions
from lawful.probe.circuits import LinearHeads, linear_heads, pattern_of
from lawful.probe.model_layout import ModelLayout, asked_of, frozen_norm, infer_layout, into_stream, mixed
from lawful.probe.record import ActivationCache, record, zero_ablation
from lawful.probe.toy_models import attention_only


def path_expansion(
    model: nn.Module,
    inputs: Int[Tensor, "*batch t"],
    *,
    position: int = -1,
    most: int = 4096,
    anatomy: ModelLayout | None = None,
) -> LogitContributions:
    r"""Splits the logits at a position into what comes along each path through the heads.

    With its pattern $A$ held as it is, a head is a linear map of the stream, $h(x) = A x \, W_{OV}^\top$, and a layer
    of heads either moves what comes or lets it pass. The product of the layers, written out, is a sum over paths:

    $$\text{logits} = \Bigl(1 + \sum_h h_h^{(L)}\Bigr) \cdots \Bigl(1 + \sum_h h_h^{(1)}\Bigr) x_0 \, W_U^\top
      = \sum_{\text{paths}} h^{(\ell_m)} \cdots h^{(\ell_1)} x_0 \, W_U^\top$$

    There are $\prod_\ell (1 + h_\ell)$ paths from the embedding, named by layer and head: `embedding → 0.1 → 1.0`.
    Norms are held at their scale. What starts in the layers themselves is followed too: what a feed-forward block
    adds, as it is, begins paths of its own; all biases together are one part, `bias`. Gates are part of their heads; a
    shortcut (`Mix`) from the embedding scales all paths so far and adds to the shortest. The sum over all parts is the
    logits; the patterns' own dependence on the stream is what the expansion does not show.

    Reference:
        Elhage et al., *A Mathematical Framework for Transformer Circuits*, 2021.

    Args:
        model: A decoder whose layers add to one stream, with `MultiHeadAttention`.
        inputs: The tokens.
        position: Where the logits are read.
        most: How many paths there may be; `paths_by_length` has no such bound.
        anatomy: Where the parts of the model are.

    Examples:
        >>> model, x = attention_only(vocab=5, d=4, depth=2, heads=2), torch.tensor([1, 2, 3])
        >>> parts = path_expansion(model, x)
        >>> parts.names[:5], len(parts)
        (('embedding', 'embedding → 0.0', 'embedding → 0.1', 'embedding → 1.0', 'embedding → 0.0 → 1.0'), 10)
        >>> torch.allclose(parts.sum(), model(x)[-1], atol=1e-5)
        True
    """
    run = _frozen(model, inputs, anatomy or infer_layout(model))
    count = run.count()
    if count > most:
        raise ValueError(
            f"there are {count:,} paths, more than most={most:,}: "
            "merge those of equal length with paths_by_length, or look at fewer layers"
        )
    names, streams, bias = ["embedding"], run.start[None], torch.zeros_like(run.start)
    for i, layer in enumerate(run.layers):
        streams, bias = run.mixed(i, streams, bias)
        if isinstance(layer, LinearHeads):
            moved = layer.each(streams)
            names += [f"{name} → {i}.{h}" for h in range(layer.count) for name in names]
            streams = torch.cat([streams, moved.flatten(0, 1)])
            bias = bias + layer.together(bias) + layer.constant
        else:
            names, streams = [*names, run.names[i]], torch.cat([streams, layer[None]])
    return run.read(names, *run.mixed(len(run.layers), streams, bias), position)


def paths_by_length(
    model: nn.Module, inputs: Int[Tensor, "*batch t"], *, position: int = -1, anatomy: ModelLayout | None = None
) -> LogitContributions:
    r"""Splits the logits at a position into what comes along the paths through 0, 1, 2, ... heads.

    $$S_m \leftarrow S_m + \sum_h h_h(S_{m - 1})$$

    layer by layer: paths of one length are added up on the way, so that the cost grows with the square of the depth
    and not exponentially.

    Args:
        model: A decoder whose layers add to one stream, with `MultiHeadAttention`.
        inputs: The tokens.
        position: Where the logits are read.
        anatomy: Where the parts of the model are.

    Examples:
        >>> model = attention_only(vocab=5, d=4, depth=3, heads=2)
        >>> paths_by_length(model, torch.tensor([1, 2, 3])).names
        ('0 heads', '1 head', '2 heads', '3 heads', 'bias')
    """
    run = _frozen(model, inputs, anatomy or infer_layout(model))
    sums, bias = run.start[None], torch.zeros_like(run.start)
    for i, layer in enumerate(run.layers):
        sums, bias = run.mixed(i, sums, bias)
        if isinstance(layer, LinearHeads):
            nothing = torch.zeros_like(bias)[None]
            sums = torch.cat([sums, nothing]) + torch.cat([nothing, layer.together(sums)])
            bias = bias + layer.together(bias) + layer.constant
        else:
            sums = torch.cat([sums[:1] + layer, sums[1:]])
    names = [f"{m} head{'' if m == 1 else 's'}" for m in range(len(sums))]
    return run.read(names, *run.mixed(len(run.layers), sums, bias), position)


@dataclass(frozen=True, eq=False)
class _Frozen:
    """A run of a model with its patterns and scales held: a linear map of the embedding, and what else is added."""

    model: nn.Module
    where: ModelLayout
    names: list[str]
    start: Tensor
    layers: list[LinearHeads | Tensor]
    last: Tensor
    mixes: dict[int, tuple[Tensor, Tensor]]

    def mixed(self, i: int, streams: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """The streams, that of the embedding first, and the biases after a shortcut before layer i, if there is one."""
        if i not in self.mixes:
            return streams, bias
        a, b = self.mixes[i]
        return torch.cat([a * streams[:1] + b * self.start, a * streams[1:]]), a * bias

    def count(self) -> int:
        """How many paths there are."""
        paths = 1
        for layer in self.layers:
            paths = paths * (1 + layer.count) if isinstance(layer, LinearHeads) else paths + 1
        return paths

    def read(self, names: list[str], streams: Tensor, bias: Tensor, position: int) -> LogitContributions:
        """What parts of the last stream add to the logits."""
        head = self.model.get_submodule(self.where.head)
        linear, shift = frozen_norm(self.where.norm_of(self.model), self.last[..., position, :])
        constant = head(linear(bias[..., position, :]) + shift)
        zero = head(torch.zeros_like(shift))
        terms = head(linear(streams[..., position, :])) - zero
        return LogitContributions((*names, "bias"), torch.cat([terms, constant[None]]))


def _frozen(model: nn.Module, inputs: Tensor, where: ModelLayout) -> _Frozen:
    names = where.names(model)
    blocks = [_attention(model.get_submodule(name)) for name in names]
    with_heads = [name for name, block in zip(names, blocks, strict=True) if block is not None]
    if not with_heads:
        wanted = "a model with MultiHeadAttention was wanted (read_gpt2 makes one of a GPT-2)"
        raise ValueError(f"{wanted}: none of {where.layers} has it")
    asked = [f"{name}{end}" for name in names for end in ("", ".input")]
    asked += [f"{name}.block{end}" for name in with_heads for end in ("", ".pattern*")]
    with record(model, *asked, *asked_of(model), f"{where.reader}.input") as tape:
        model(inputs)
    layers: list[LinearHeads | Tensor] = []
    mixes: dict[int, tuple[Tensor, Tensor]] = {}
    for i, name in enumerate((*names, where.reader)):
        before = tape[f"{name}.input"]
        if i and before is not (after := tape[names[i - 1]]) and not torch.equal(before, after):
            if (weights := mixed(model, tape, before)) is None:
                raise ValueError(
                    f"something between {names[i - 1]} and {name} changes the stream, which is no sum then"
                )
            mixes[i] = weights
        if i < len(names):
            layers.append(_linear(model.get_submodule(name), blocks[i], tape, name))
    return _Frozen(model, where, names, tape[f"{names[0]}.input"], layers, tape[f"{where.reader}.input"], mixes)


def _linear(
    layer: nn.Module, block: MultiHeadAttention | None, tape: ActivationCache, name: str
) -> LinearHeads | Tensor:
    """The heads of a layer as linear maps of the stream; of a layer without any, what it added."""
    before = tape[f"{name}.input"]
    added = tape[name] - before
    if isinstance(layer, Residual) and layer.output_norm is not None:
        raise ValueError(f"{name} has a norm after the addition, through which the stream is no sum of paths")
    if block is None:
        return added
    norm = layer.norm if isinstance(layer.norm, nn.Module) else nn.Identity()
    heads = linear_heads(block, pattern_of(tape, f"{name}.block"), norm, before)
    way, constant = into_stream(layer, tape[f"{name}.block"], name=name)
    heads = replace(heads, way=way, constant=way(heads.constant) + constant)
    off = (heads.together(before[None])[0] + heads.constant - added).abs().max().item()
    if not off <= 1e-3 * max(tape[name].abs().max().item(), 1e-30):
        why = "its values are mixed with others" if block.value_residual is not None else "something else changes its values"
        raise ValueError(f"{name} is not the sum of its heads (off by {off:.2g}): {why}")
    return heads


def _attention(layer: nn.Module) -> MultiHeadAttention | None:
    block = getattr(layer, "block", None)
    return block if isinstance(block, MultiHeadAttention) else None


def _path_expansion_claims() -> Iterator[Claim]:
    """The laws that path expansion obeys."""
    for norm in (nn.Identity, nn.LayerNorm):
        model = attention_only(vocab=5, d=4, depth=2, heads=2, norm=norm)

        def residual_paths(x: Tensor, model: nn.Module = model) -> Tensor:
            return path_expansion(model, x, position=1).sum()

        def lengths(x: Tensor, model: nn.Module = model) -> Tensor:
            return paths_by_length(model, x, position=1).sum()

        def logits(x: Tensor, model: nn.Module = model) -> Tensor:
            return model(x)[..., 1, :]

        for f in (paths, lengths):
            name = f"sum over {f.__name__}, {norm.__name__}"
            yield Claim(replace(agreement(other=logits), cases=30), f, tokens("b t:2..4", vocab_size=5), name=name)
    model = attention_only(vocab=5, d=4, depth=2, heads=2)

    def grouped(x: Tensor) -> Tensor:
        parts = path_expansion(model, x, position=1)
        lengths = torch.tensor([name.count("→") for name in parts.names[:-1]])
        return torch.stack([parts.logits[:-1][lengths == m].sum(0) for m in range(3)])

    def merged(x: Tensor) -> Tensor:
        return paths_by_length(model, x, position=1).logits[:-1]

    def one_path(x: Tensor) -> Tensor:
        return path_expansion(model, x, position=-1)["embedding → 0.1 → 1.0"]

    def written(x: Tensor) -> Tensor:
        weights = dict(model.named_parameters())
        first, last = (
            weights[f"layers.{i}.block.out.weight"][:, v] @ weights[f"layers.{i}.block.value.weight"][v]
            for i, v in ((0, slice(2, 4)), (1, slice(2)))
        )
        with record(model, "layers.0.input", "layers.?.block.pattern") as tape:
            model(x)
        y = torch.einsum("bts,bsd,ed->bte", tape["layers.0.block.pattern"][:, 1], tape["layers.0.input"], first)
        y = torch.einsum("bts,bsd,ed->bte", tape["layers.1.block.pattern"][:, 0], y, last)
        return y[:, -1] @ model.head.weight.mT

    def counted(x: Tensor) -> Tensor:
        some = attention_only(vocab=5, d=6, depth=len(x), heads=3)
        parts = path_expansion(some, torch.tensor([1, 2]))
        return x.new_tensor([len(parts), len(set(parts.names))])

    yield Claim(
        replace(agreement(other=merged), cases=30), grouped, tokens("b t:2..4", vocab_size=5), name="paths of one length"
    )
    yield Claim(
        replace(agreement(other=written), cases=30), one_path, tokens("b t:1..5", vocab_size=5), name="one path, written out"
    )
    number = agreement(other=lambda x: x.new_tensor([4 ** len(x) + 1] * 2))
    yield Claim(number, counted, shape("n:1..3"), name="number of paths, and the biases")


def subnetworks(
    run: Callable[[], Tensor], model: nn.Module, names: Sequence[str], *, most: int = 1024
) -> Float[Tensor, "n ..."]:
    r"""Returns what a model gives with every subset of its residual blocks, the others adding nothing.

    The subsets $S$ are counted in binary: row 0 is without any of the blocks, row 1 with the first alone, row 3 with
    the first two, the last row with all: the model itself.

    Reference:
        Veit, Wilber and Belongie, *Residual Networks Behave Like Ensembles of Relatively Shallow Networks*, 2016.

    Args:
        run: Calls the model.
        model: The model.
        names: What the blocks add: `layers.0.added`, or the names of modules on branches.
        most: How many subsets there may be, $2^n$ for $n$ names.

    Examples:
        >>> model = nn.Sequential(Residual(nn.Identity()), Residual(nn.Identity()))
        >>> subnetworks(lambda: model(torch.ones(1)), model, ["0.block", "1.block"]).flatten()
        tensor([1., 2., 2., 4.])
    """
    if 2 ** len(names) > most:
        raise ValueError(f"{len(names)} blocks have {2 ** len(names):,} subsets, more than most={most:,}: name fewer")
    outputs = []
    for subset in range(2 ** len(names)):
        off = [name for i, name in enumerate(names) if not subset >> i & 1]
        with record(model, edit=dict.fromkeys(off, zero_ablation)):
            outputs.append(run())
    return torch.stack(outputs)


def path_terms(outputs: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
    r"""Returns what each subset of blocks adds that no smaller one does: the term of the path through just these.

    $$T(S) = \sum_{R \subseteq S} (-1)^{|S| - |R|} F(R), \qquad \sum_S T(S) = F(\text{all})$$

    The sum is exact for any blocks. Where the blocks are linear, $T(S)$ is the path through the blocks of $S$, each
    once: $f_2 f_1 x$. Otherwise it is their interaction, a finite difference of that order.

    Reference:
        Harsanyi, *A Simplified Bargaining Model for the n-Person Cooperative Game*, 1963.

    Args:
        outputs: $F(S)$ for every subset, as `subnetworks` counts them.

    Examples:
        >>> path_terms(torch.tensor([1.0, 2.0, 2.0, 4.0]))
        tensor([1., 1., 1., 1.])
    """
    count = len(outputs)
    if count < 1 or count & (count - 1):
        raise ValueError(f"the outputs of all 2^n subsets were wanted: got {count}")
    terms, step = outputs, 1
    while step < count:
        pairs = terms.unflatten(0, (-1, 2, step))
        terms = torch.stack([pairs[:, 0], pairs[:, 1] - pairs[:, 0]], dim=1).flatten(0, 2)
        step *= 2
    return terms


def _ensemble_claims() -> Iterator[Claim]:
    """The laws that the ensemble of paths obeys."""
    maps = [nn.Linear(3, 3, bias=False) for _ in range(3)]
    curves = [nn.Sequential(nn.Linear(3, 3, bias=False), nn.Tanh()) for _ in range(3)]
    linear, bent = (nn.Sequential(*map(Residual, blocks)) for blocks in (maps, curves))
    names = ["0.block", "1.block", "2.block"]

    def terms(x: Tensor, model: nn.Module) -> Tensor:
        return path_terms(subnetworks(lambda: model(x), model, names))

    def summed(x: Tensor) -> Tensor:
        return terms(x, bent).sum(0)

    def written(x: Tensor) -> Tensor:
        return residual_paths(maps, x)

    def interaction(x: Tensor) -> Tensor:
        return terms(x, bent)[3]

    def difference(x: Tensor) -> Tensor:
        f, g, _ = curves
        return g(x + f(x)) - g(x)

    yield Claim(agreement(other=bent), summed, shape("b 3"), name="the terms add up to the model")
    yield Claim(agreement(other=written), lambda x: terms(x, linear), shape("b 3"), name="linear blocks: paths")
    yield Claim(agreement(other=difference), interaction, shape("b 3"), name="the term of two blocks")


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _path_expansion_claims()
    yield from _ensemble_claims()
