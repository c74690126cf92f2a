"""The layout of GPT-2's weights, as they were published, and their files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import nn

from lawful.models.transformer.decoder import Decoder
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
    """Reads a decoder from a folder with GPT-2's files, `config.json` and `model.safetensors`.

    Args:
        folder: The folder.
    """
    folder = Path(folder)
    sizes = json.loads((folder / "config.json").read_text())
    if (activation := sizes.get("activation_function", "gelu_new")) != "gelu_new":
        raise ValueError(f"the activation of GPT-2, gelu_new, is wanted: got {activation!r}")
    depth, context = sizes["n_layer"], sizes["n_positions"]
    config = gpt2_config(
        vocab=sizes["vocab_size"], d=sizes["n_embd"], depth=depth, heads=sizes["n_head"], context=context
    )
    eps = sizes.get("layer_norm_epsilon", 1e-5)
    model = Decoder(replace(config, norm=partial(nn.LayerNorm, eps=eps)))
    GPT2.load(model, load_file(folder / "model.safetensors"))
    return model


def write_gpt2(model: Decoder, folder: str | Path) -> None:
    """Writes a decoder, one of `gpt2_config`, as GPT-2's files, which other libraries read.

    Args:
        model: The decoder.
        folder: The folder, which is made if need be.
    """
    folder, state = Path(folder), GPT2.save(model)
    folder.mkdir(parents=True, exist_ok=True)
    config, heads = model.config, model._blocks("s")[0].sets
    sizes = {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "activation_function": "gelu_new",
        "vocab_size": config.vocab,
        "n_embd": config.d,
        "n_layer": len(model.order) // 2,
        "n_head": heads[0].count,
        "n_positions": model.context,
        "layer_norm_epsilon": model.norm.eps,
        "tie_word_embeddings": config.tied,
    }
    (folder / "config.json").write_text(json.dumps(sizes, indent=2) + "\n")
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
