"""The classical decoder: that of GPT-2.

What GPT-2 is made of: whether a decoder computes what GPT-2's files can say.
The layout of GPT-2's weights, as they were published, and their files.
The layout of minGPT's and nanoGPT's weights.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks.attention import MultiHeadAttention
from lawful.blocks.dropout import Dropout
from lawful.blocks.feed_forward import FeedForward
from lawful.blocks.normalization import LayerNorm
from lawful.blocks.positions import LearnedPositions
from lawful.blocks.residual import Residual
from lawful.functions.activations import gelu, gelu_tanh, identity, relu, silu
from lawful.functions.attention import ChunkedAttention, fused_attention, reference_attention
from lawful.laws import Claim, agreement, cached_decoding, tokens, weight_sharing
from lawful.models.transformer import Decoder, DecoderConfig, TransformerExtras, gpt2_init
from lawful.models.weight_mapping import ParameterRule, WeightMapping


def gpt2_config(
    *,
    vocab: int = 50257,
    d: int = 768,
    depth: int = 12,
    heads: int = 12,
    context: int = 1024,
    bias: bool = True,
    dropout: float = 0.0,
) -> DecoderConfig:
    """Returns the classical decoder: learned positions, layer norms, a GELU and a tied head.

    Reference:
        Radford et al., *Language Models are Unsupervised Multitask Learners*, 2019.

    Args:
        vocab: The number of tokens.
        d: The width.
        depth: The number of attention sublayers, and of feed-forward ones.
        heads: The number of heads.
        context: The number of positions.
        bias: Whether affine maps and norms have biases.
        dropout: The probability that an entry of what is embedded, or of what is added to the stream, is dropped.

    Examples:
        >>> model = Decoder(gpt2_config(vocab=65, d=128, depth=4, heads=4, context=64, bias=False))
        >>> sum(p.numel() for p in model.parameters())
        804096
    """

    def drop(_: int) -> nn.Module:
        return Dropout(dropout)

    return DecoderConfig(
        vocab=vocab,
        d=d,
        depth=depth,
        attention=partial(MultiHeadAttention, num_heads=heads, bias=bias),
        feed_forward=partial(FeedForward, activation=gelu_tanh, bias=bias),
        norm=partial(nn.LayerNorm, bias=bias),
        positions=partial(LearnedPositions, context),
        tied=True,
        extras=TransformerExtras(initialise=gpt2_init, entry=drop if dropout else None, gate=drop if dropout else None),
    )


def claims() -> Iterator[Claim]:
    """The laws that the classical decoder obeys."""
    model = Decoder(gpt2_config(vocab=5, d=4, depth=1, heads=1, context=8))

    def equation(x: Tensor) -> Tensor:
        w = dict(model.named_parameters())
        y = w["embedding.weight"][x] + w["positions.weight"][: x.shape[1]]

        def normal(y: Tensor, name: str) -> Tensor:
            scaled = (y - y.mean(-1, keepdim=True)) / (y.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
            return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]

        def affine(y: Tensor, name: str) -> Tensor:
            return y @ w[f"{name}.weight"].T + w[f"{name}.bias"]

        q, k, v = (affine(normal(y, "layers.0.norm"), f"layers.0.block.{name}") for name in ("query", "key", "value"))
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        weights = (q @ k.mT / 2).masked_fill(later, -torch.inf).softmax(-1)
        y = y + affine(weights @ v, "layers.0.block.out")
        z = affine(normal(y, "layers.1.norm"), "layers.1.block.up")
        bent = z / 2 * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (z + 0.044715 * z**3)))
        return normal(y + affine(bent, "layers.1.block.down"), "norm") @ w["embedding.weight"].T

    for law in (
        agreement(other=equation),
        cached_decoding(),
        weight_sharing(names=("embedding.weight", "head.weight")),
    ):
        yield Claim(replace(law, cases=20), model, tokens("b t:1..8", vocab_size=5), name="GPT-2")


ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "gelu_new": gelu_tanh,
    "gelu_pytorch_tanh": gelu_tanh,
    "gelu": gelu,
    "relu": relu,
    "silu": silu,
}
"""The activations that both know, by the names in GPT-2's `config.json`."""
_ALSO: dict[Any, Callable[..., Any]] = {torch.relu: relu, F.relu: relu, F.gelu: gelu, F.silu: silu}


def activation_of(model: Decoder) -> str:
    """Returns the name of the activation of a decoder that is GPT-2's."""
    one = model._blocks("f")[0].activation
    return next(name for name, f in ACTIVATIONS.items() if f is _ALSO.get(one, one))


def check_gpt2(model: Decoder) -> None:
    """Refuses a decoder that GPT-2's files cannot say, naming what it has and GPT-2 has not.

    Args:
        model: A decoder whose attention and feed-forward blocks take turns.
    """
    for what in _foreign(model):
        raise ValueError(f"GPT-2's files cannot say what this model computes: GPT-2 has no {what}")


def _foreign(model: Decoder) -> Iterator[str]:
    """What a decoder has that GPT-2 has not."""
    extras, d = model.config.extras, model.config.d
    if not model.config.mask.is_triangle:
        yield f"mask but a causal one: got {model.config.mask}"
    if not isinstance(model.positions, LearnedPositions):
        yield f"positions but learned ones: got {_named(model.positions)}"
    for name in ("ngrams", "shortcut", "value_embedding", "softcap"):
        if getattr(extras, name):
            yield name
    if not isinstance(model.entry, Dropout | nn.Dropout | None):
        yield f"entry but dropout: got {_named(model.entry)}"
    for layer in model.layers:
        if type(layer) is not Residual or layer.branch_norm is not None or layer.output_norm is not None or layer.scale != 1:
            yield f"residual but pre_norm: got {layer}"
        if not isinstance(layer.gate, Dropout | nn.Dropout | None):
            yield f"gate but dropout: got {_named(layer.gate)}"
    norms: list[Any] = [model.norm, *(layer.norm for layer in model.layers)]
    for norm in norms:
        if not isinstance(norm, LayerNorm | nn.LayerNorm) or norm.weight is None:
            yield f"norm but a layer norm with weights: got {_named(norm)}"
        elif norm.eps != norms[0].eps:
            yield f"norms of different eps: got {norms[0].eps} and {norm.eps}"
    first = model._blocks("s")[0].head_groups if isinstance(model._blocks("s")[0], MultiHeadAttention) else ()
    for block in model._blocks("s"):
        yield from _foreign_attention(block, d)
        if block.head_groups != first:
            yield "layers with different heads"
    ups = [block if type(block) is FeedForward else None for block in model._blocks("f")]
    for block, up in zip(model._blocks("f"), ups, strict=True):
        if up is None:
            yield f"feed-forward block but FeedForward: got {_named(block)}"
        elif _ALSO.get(up.activation, up.activation) not in ACTIVATIONS.values():
            yield f"activation {_named(up.activation)}"
        elif ups[0] is not None and (up.activation is not ups[0].activation or up.up.weight.shape != ups[0].up.weight.shape):
            yield "feed-forward blocks that differ in size or activation"


def _foreign_attention(block: nn.Module, d: int) -> Iterator[str]:
    """What an attention block has that GPT-2's has not."""
    if type(block) is not MultiHeadAttention:
        yield f"attention but MultiHeadAttention: got {_named(block)}"
        return
    for name in ("rotary", "position_bias", "query_norm", "value_residual"):
        if getattr(block, name) is not None:
            yield f"{name}: got {_named(getattr(block, name))}"
    kernel = block.kernel
    if kernel not in (fused_attention, reference_attention) and not isinstance(kernel, ChunkedAttention):
        yield f"kernel but a softmax over all keys: got {_named(kernel)}"
    one = block.head_groups[0]
    if len(block.head_groups) > 1 or one.num_kv_heads != one.num_heads or (one.key_dim, one.value_dim) != (d // one.num_heads,) * 2:
        yield f"heads but alike ones of size d / heads: got {block.head_groups}"


def _named(part: object) -> str:
    return "none" if part is None else getattr(part, "__name__", type(part).__name__)


def rows(model: nn.Module, *, transposed: bool = True) -> Iterator[ParameterRule]:
    """Returns the table for a decoder whose attention and feed-forward blocks take turns."""
    if not isinstance(model, Decoder) or set(model.order[::2]) != {"s"} or set(model.order[1::2]) != {"f"}:
        raise TypeError(f"a decoder in the order (sf)* is wanted: got {getattr(model, 'order', type(model))}")
    yield ParameterRule("wte.weight", ("embedding.weight",))
    yield ParameterRule("wpe.weight", ("positions.weight",))
    for i in range(len(model.order) // 2):
        attend, feed = f"layers.{2 * i}", f"layers.{2 * i + 1}"
        for kind in ("weight", "bias"):
            turned = transposed and kind == "weight"
            projections = tuple(f"{attend}.block.{name}.{kind}" for name in ("query", "key", "value"))
            yield ParameterRule(f"h.{i}.ln_1.{kind}", (f"{attend}.norm.{kind}",))
            yield ParameterRule(f"h.{i}.attn.c_attn.{kind}", projections, turned)
            yield ParameterRule(f"h.{i}.attn.c_proj.{kind}", (f"{attend}.block.out.{kind}",), turned)
            yield ParameterRule(f"h.{i}.ln_2.{kind}", (f"{feed}.norm.{kind}",))
            yield ParameterRule(f"h.{i}.mlp.c_fc.{kind}", (f"{feed}.block.up.{kind}",), turned)
            yield ParameterRule(f"h.{i}.mlp.c_proj.{kind}", (f"{feed}.block.down.{kind}",), turned)
    for kind in ("weight", "bias"):
        yield ParameterRule(f"ln_f.{kind}", (f"norm.{kind}",))
    yield ParameterRule("lm_head.weight", ("head.weight",))


IGNORED = ".attn.bias", ".attn.masked_bias"
GPT2 = WeightMapping(rows, prefix="transformer.", outside=("lm_head.weight",), ignored=IGNORED, biased=True)
"""GPT-2's: matrices with inputs along their rows, queries, keys and values side by side; for `gpt2_config`."""


def read_gpt2(folder: str | Path) -> Decoder:
    """Reads a decoder from a folder with GPT-2's files, `config.json` and `model.safetensors` (or its shards).

    Dropout, which is for training, is left out.

    Args:
        folder: The folder.

    Raises:
        ValueError: where the config asks for what a decoder of `gpt2_config` does not do.
    """
    folder = Path(folder)
    sizes = json.loads((folder / "config.json").read_text())
    _check(sizes)
    d, depth, heads = sizes["n_embd"], sizes["n_layer"], sizes["n_head"]
    config = gpt2_config(vocab=sizes["vocab_size"], d=d, depth=depth, heads=heads, context=sizes["n_positions"])
    activation = ACTIVATIONS[sizes.get("activation_function", "gelu_new")]
    model = Decoder(
        replace(
            config,
            norm=partial(nn.LayerNorm, eps=sizes.get("layer_norm_epsilon", 1e-5)),
            feed_forward=partial(FeedForward, hidden_dim=sizes.get("n_inner"), activation=activation),
            tied=sizes.get("tie_word_embeddings", True),
        )
    )
    GPT2.load(model, _weights(folder))
    return model


def _check(sizes: object) -> None:
    """Refuses a config that is not one of GPT-2, or that asks for another function."""
    if not isinstance(sizes, dict):
        raise ValueError(f"config.json is to be an object: got {type(sizes).__name__}")
    if (kind := sizes.get("model_type", "gpt2")) != "gpt2":
        raise ValueError(f"config.json is to be of the model_type gpt2: got {kind!r}")
    for name in ("vocab_size", "n_embd", "n_layer", "n_head", "n_positions"):
        if not isinstance(sizes.get(name), int):
            raise ValueError(f"config.json is to have a whole number {name}: got {sizes.get(name)!r}")
    if (activation := sizes.get("activation_function", "gelu_new")) not in ACTIVATIONS:
        raise ValueError(f"activation_function is to be one of {', '.join(ACTIVATIONS)}: got {activation!r}")
    for name, known in (
        ("scale_attn_weights", True),
        ("scale_attn_by_inverse_layer_idx", False),
        ("add_cross_attention", False),
    ):
        if sizes.get(name, known) != known:
            raise ValueError(f"{name} is to be {known}, as in GPT-2: got {sizes[name]}")


def _weights(folder: Path) -> dict[str, Tensor]:
    """The tensors of a folder, in one file or in several that an index lists."""
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").exists() or not index.exists():
        return load_file(folder / "model.safetensors")
    found: dict[str, Tensor] = {}
    for name in sorted(set(json.loads(index.read_text())["weight_map"].values())):
        if Path(name).name != name:
            raise ValueError(f"{index.name} is to list files of its own folder: got {name!r}")
        found |= load_file(folder / name)
    return found


def write_gpt2(model: Decoder, folder: str | Path) -> None:
    """Writes a decoder, one of `gpt2_config`, as GPT-2's files, which other libraries read.

    Args:
        model: The decoder.
        folder: The folder, which is made if need be.

    Raises:
        ValueError: where the decoder has a part that GPT-2 has not.
    """
    _ = [*rows(model)]
    check_gpt2(model)
    folder, state = Path(folder), GPT2.save(model)
    folder.mkdir(parents=True, exist_ok=True)
    config, heads, hidden = model.config, model._blocks("s")[0].head_groups, len(model._blocks("f")[0].up.weight)
    sizes = {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "activation_function": activation_of(model),
        "vocab_size": config.vocab,
        "n_embd": config.d,
        "n_layer": len(model.order) // 2,
        "n_head": heads[0].count,
        "n_inner": None if hidden == 4 * config.d else hidden,
        "n_positions": model.context,
        "layer_norm_epsilon": model.norm.eps,
        "tie_word_embeddings": config.tied,
    }
    (folder / "config.json").write_text(json.dumps(sizes, indent=2) + "\n")
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})


_ROWS = partial(rows, transposed=False)
MINGPT = WeightMapping(_ROWS, prefix="transformer.", outside=("lm_head.weight",), ignored=IGNORED)
"""The names of GPT-2 with the matrices of `nn.Linear`; minGPT's head is not tied, nanoGPT's is."""
