"""The layout of GPT-2's weights, as they were published, and their files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from lawful.blocks.feed_forward import FeedForward
from lawful.models.transformer.decoder import Decoder
from lawful.models.transformer.layouts.gpt2_parts import ACTIVATIONS, activation_of, check_gpt2
from lawful.models.transformer.layouts.layout import Layout, Row
from lawful.models.transformer.standard import gpt2_config


def rows(model: nn.Module, *, transposed: bool = True) -> Iterator[Row]:
    """Returns the table for a decoder whose attention and feed-forward blocks take turns."""
    if not isinstance(model, Decoder) or set(model.order[::2]) != {"s"} or set(model.order[1::2]) != {"f"}:
        raise TypeError(f"a decoder in the order (sf)* is wanted: got {getattr(model, 'order', type(model))}")
    yield Row("wte.weight", ("embedding.weight",))
    yield Row("wpe.weight", ("positions.weight",))
    for i in range(len(model.order) // 2):
        attend, feed = f"layers.{2 * i}", f"layers.{2 * i + 1}"
        for kind in ("weight", "bias"):
            turned = transposed and kind == "weight"
            projections = tuple(f"{attend}.block.{name}.{kind}" for name in ("query", "key", "value"))
            yield Row(f"h.{i}.ln_1.{kind}", (f"{attend}.norm.{kind}",))
            yield Row(f"h.{i}.attn.c_attn.{kind}", projections, turned)
            yield Row(f"h.{i}.attn.c_proj.{kind}", (f"{attend}.block.out.{kind}",), turned)
            yield Row(f"h.{i}.ln_2.{kind}", (f"{feed}.norm.{kind}",))
            yield Row(f"h.{i}.mlp.c_fc.{kind}", (f"{feed}.block.up.{kind}",), turned)
            yield Row(f"h.{i}.mlp.c_proj.{kind}", (f"{feed}.block.down.{kind}",), turned)
    for kind in ("weight", "bias"):
        yield Row(f"ln_f.{kind}", (f"norm.{kind}",))
    yield Row("lm_head.weight", ("head.weight",))


IGNORED = ".attn.bias", ".attn.masked_bias"
GPT2 = Layout(rows, prefix="transformer.", outside=("lm_head.weight",), ignored=IGNORED, biased=True)
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
            feed_forward=partial(FeedForward, hidden=sizes.get("n_inner"), activation=activation),
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
    config, heads, hidden = model.config, model._blocks("s")[0].sets, len(model._blocks("f")[0].up.weight)
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
