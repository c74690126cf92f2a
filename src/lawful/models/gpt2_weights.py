"""GPT-2 in Hugging Face's files: the weights of GPT-2, minGPT and nanoGPT, and `GPT2.from_pretrained`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from lawful._files import open_file, write_file, written_files
from lawful._json import load
from lawful.blocks.attention import MultiHeadAttention
from lawful.blocks.feed_forward import FeedForward
from lawful.blocks.positions import LearnedPositions
from lawful.blocks.residual import Residual
from lawful.functions.attention import ChunkedAttention, fused_attention, reference_attention
from lawful.laws import Claim, cached_decoding, tokens, weight_sharing
from lawful.models.transformer import GELU_TANH, Decoder, gpt
from lawful.models.weight_mapping import ParameterRule, WeightMapping, _block_path

_MAX_INDEX_BYTES = 1 << 26
_ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "gelu_new": GELU_TANH,
    "gelu_pytorch_tanh": GELU_TANH,
    "gelu": F.gelu,
    "relu": F.relu,
    "silu": F.silu,
}
"""Activations by their names in GPT-2's `config.json`."""
_SAME: dict[Any, Any] = {torch.relu: F.relu}


def _gpt2_rules(model: nn.Module, *, transposed: bool = True) -> Iterator[ParameterRule]:
    """Rules for a decoder that alternates attention and feed-forward blocks."""
    pattern = getattr(model, "layer_pattern", "")
    if not isinstance(model, Decoder) or set(pattern[::2]) != {"s"} or set(pattern[1::2]) != {"f"}:
        raise TypeError(f"expected a Decoder with layer_pattern (sf)*, got {pattern or type(model).__name__}")
    yield ParameterRule("wte.weight", ("embedding.weight",))
    yield ParameterRule("wpe.weight", ("positions.weight",))
    for i in range(len(pattern) // 2):
        attention, feed_forward = f"layers.{2 * i}", f"layers.{2 * i + 1}"
        heads, hidden = (_block_path(model, layer) for layer in (attention, feed_forward))
        for end in ("weight", "bias"):
            turned = transposed and end == "weight"
            projections = tuple(f"{heads}.{name}.{end}" for name in ("query", "key", "value"))
            yield ParameterRule(f"h.{i}.ln_1.{end}", (f"{attention}.norm.{end}",))
            yield ParameterRule(f"h.{i}.attn.c_attn.{end}", projections, turned)
            yield ParameterRule(f"h.{i}.attn.c_proj.{end}", (f"{heads}.out.{end}",), turned)
            yield ParameterRule(f"h.{i}.ln_2.{end}", (f"{feed_forward}.norm.{end}",))
            yield ParameterRule(f"h.{i}.mlp.c_fc.{end}", (f"{hidden}.up.{end}",), turned)
            yield ParameterRule(f"h.{i}.mlp.c_proj.{end}", (f"{hidden}.down.{end}",), turned)
    for end in ("weight", "bias"):
        yield ParameterRule(f"ln_f.{end}", (f"norm.{end}",))
    yield ParameterRule("lm_head.weight", ("head.weight",))


_NOT_WEIGHTS = ".attn.bias", ".attn.masked_bias"
GPT2_WEIGHTS = WeightMapping(
    _gpt2_rules, prefix="transformer.", unprefixed=("lm_head.weight",), ignored=_NOT_WEIGHTS, always_bias=True
)
"""Layout of Hugging Face's GPT-2: transposed matrices, queries, keys and values concatenated; for `gpt`."""
MINGPT_WEIGHTS = WeightMapping(
    partial(_gpt2_rules, transposed=False), prefix="transformer.", unprefixed=("lm_head.weight",), ignored=_NOT_WEIGHTS
)
"""Layout of minGPT and nanoGPT: GPT-2's names with the matrices of `nn.Linear`. Only nanoGPT ties the head."""


class GPT2(Decoder):
    """GPT-2, read from and written to Hugging Face's files. `gpt` builds one with random weights.

    Examples:
        >>> import tempfile
        >>> model = gpt(vocab_size=65, dim=16, num_layers=1, num_heads=2, context_length=8)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_gpt2(model, folder)
        ...     loaded = GPT2.from_pretrained(folder)
        >>> torch.equal(loaded(torch.tensor([[1, 2, 3]])), model(torch.tensor([[1, 2, 3]])))
        True
    """

    @classmethod
    def from_pretrained(cls, source: str | Path | nn.Module) -> GPT2:
        """Loads a model of Hugging Face, or its folder with `config.json` and `model.safetensors`, without dropout.

        Nothing is downloaded.

        Args:
            source: Folder with Hugging Face's files, or a `transformers.GPT2LMHeadModel`.

        Raises:
            FileNotFoundError: If the folder has no configuration or no weights.
            ValueError: If the configuration has options that `gpt` does not support.
        """
        config, weights = _read_module(source) if isinstance(source, nn.Module) else _read_folder(Path(source))
        random = gpt(
            vocab_size=config["vocab_size"],
            dim=config["n_embd"],
            num_layers=config["n_layer"],
            num_heads=config["n_head"],
            context_length=config["n_positions"],
            hidden_dim=config.get("n_inner"),
            activation=_ACTIVATIONS[config.get("activation_function", "gelu_new")],
            norm_eps=config.get("layer_norm_epsilon", 1e-5),
            tie_embeddings=config.get("tie_word_embeddings", True),
        )
        model = cls(
            random.embedding,
            list(random.layers),
            random.norm,
            random.head,
            layer_pattern=random.layer_pattern,
            positions=random.positions,
            mask=random.mask,
        )
        GPT2_WEIGHTS.load_state_dict(model, weights)
        return model

    def save_pretrained(self, folder: str | Path) -> None:
        """Writes `config.json` and `model.safetensors`, which Hugging Face reads.

        Args:
            folder: Folder, created if needed.
        """
        save_gpt2(self, folder)


def save_gpt2(model: Decoder, folder: str | Path) -> None:
    """Writes a decoder built by `gpt` as Hugging Face's files `config.json` and `model.safetensors`.

    Args:
        model: The decoder.
        folder: Folder, created if needed.

    Raises:
        ValueError: If the decoder has a part that GPT-2 lacks.
    """
    _ = [*_gpt2_rules(model)]
    for difference in _differences(model):
        raise ValueError(f"GPT-2's files cannot represent this model: {difference}")
    folder, weights = Path(folder), GPT2_WEIGHTS.state_dict(model)
    folder.mkdir(parents=True, exist_ok=True)
    attention, feed_forward = model.blocks("s")[0], model.blocks("f")[0]
    hidden_dim = feed_forward.up.weight.shape[0]
    activation = _SAME.get(feed_forward.activation, feed_forward.activation)
    config = {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "activation_function": next(name for name, f in _ACTIVATIONS.items() if _is_same(f, activation)),
        "vocab_size": model.vocab_size,
        "n_embd": model.dim,
        "n_layer": len(model.layer_pattern) // 2,
        "n_head": attention.num_heads,
        "n_inner": None if hidden_dim == 4 * model.dim else hidden_dim,
        "n_positions": model.context_length,
        "layer_norm_epsilon": model.norm.eps,
        "tie_word_embeddings": model.get_parameter("head.weight") is model.embedding.weight,
    }
    write_file(folder / "config.json", json.dumps(config, indent=2) + "\n")
    with written_files(folder / "model.safetensors") as path:
        save_file(weights, path, metadata={"format": "pt"})


def _is_same(f: Any, g: Any) -> bool:
    """Whether two activations are the same function; copies of a partial are."""
    if isinstance(f, partial) and isinstance(g, partial):
        return (f.func, f.args, f.keywords) == (g.func, g.args, g.keywords)
    return f is g


def _differences(model: Decoder) -> Iterator[str]:
    """Yields the differences between a decoder and GPT-2."""
    if not model.mask.is_lower_triangular:
        yield f"expected a causal mask, got {model.mask}"
    if not isinstance(model.positions, LearnedPositions):
        yield f"expected LearnedPositions, got {_name(model.positions)}"
    for name in ("ngrams", "embedding_skips", "value_embedding", "softcap"):
        if getattr(model, name) is not None:
            yield f"GPT-2 has no {name}"
    if not isinstance(model.embedding_norm, nn.Dropout | None):
        yield f"expected dropout as embedding_norm, got {_name(model.embedding_norm)}"
    for layer in model.layers:
        if type(layer) is not Residual or layer.branch_norm or layer.output_norm or layer.scale != 1:
            yield f"expected pre_norm residual blocks, got {layer}"
        elif not isinstance(layer.gate, nn.Dropout | None):
            yield f"expected dropout as gate, got {_name(layer.gate)}"
    norms: list[Any] = [model.norm, *(layer.norm for layer in model.layers)]
    for norm in norms:
        if not isinstance(norm, nn.LayerNorm) or norm.weight is None:
            yield f"expected LayerNorm with weights, got {_name(norm)}"
        elif norm.eps != norms[0].eps:
            yield f"expected norms with the same eps, got {norms[0].eps} and {norm.eps}"
    yield from _attention_differences(model)
    yield from _feed_forward_differences(model)


def _attention_differences(model: Decoder) -> Iterator[str]:
    blocks, dim = model.blocks("s"), model.dim
    for block in blocks:
        if type(block) is not MultiHeadAttention:
            yield f"expected MultiHeadAttention, got {_name(block)}"
            return
        for name in ("rotary", "position_bias", "query_norm", "value_residual"):
            if getattr(block, name) is not None:
                yield f"GPT-2 has no {name}, got {_name(getattr(block, name))}"
        if block.kernel not in (fused_attention, reference_attention) and not isinstance(
            block.kernel, ChunkedAttention
        ):
            yield f"expected softmax attention, got {_name(block.kernel)}"
        heads = block.head_groups[0]
        sizes = heads.key_dim, heads.value_dim
        if (
            len(block.head_groups) > 1
            or heads.num_kv_heads != heads.num_heads
            or sizes != (dim // heads.num_heads,) * 2
        ):
            yield f"expected heads of size dim / num_heads, got {block.head_groups}"
        if block.head_groups != blocks[0].head_groups:
            yield "expected the same heads in all layers"


def _feed_forward_differences(model: Decoder) -> Iterator[str]:
    blocks = model.blocks("f")
    for block in blocks:
        if type(block) is not FeedForward:
            yield f"expected FeedForward, got {_name(block)}"
            return
        activation = _SAME.get(block.activation, block.activation)
        if not any(_is_same(f, activation) for f in _ACTIVATIONS.values()):
            yield f"expected one of the activations {', '.join(_ACTIVATIONS)}, got {_name(block.activation)}"
        first = blocks[0]
        if not _is_same(block.activation, first.activation) or block.up.weight.shape != first.up.weight.shape:
            yield "expected the same size and activation in all feed-forward blocks"


def _name(part: object) -> str:
    return "none" if part is None else getattr(part, "__name__", type(part).__name__)


def _check_config(config: object) -> None:
    """Checks that a config is one of GPT-2 without unsupported options."""
    if not isinstance(config, dict):
        raise ValueError(f"config.json must be an object, got {type(config).__name__}")
    if (kind := config.get("model_type", "gpt2")) != "gpt2":
        raise ValueError(f"model_type in config.json must be gpt2, got {kind!r}")
    for name in ("vocab_size", "n_embd", "n_layer", "n_head", "n_positions"):
        if not isinstance(config.get(name), int):
            raise ValueError(f"{name} in config.json must be an integer, got {config.get(name)!r}")
    if (activation := config.get("activation_function", "gelu_new")) not in _ACTIVATIONS:
        raise ValueError(f"activation_function must be one of {', '.join(_ACTIVATIONS)}, got {activation!r}")
    for name, supported in (
        ("scale_attn_weights", True),
        ("scale_attn_by_inverse_layer_idx", False),
        ("add_cross_attention", False),
    ):
        if config.get(name, supported) != supported:
            raise ValueError(f"{name}={config[name]} is not supported: expected {supported}, as in GPT-2")


def _read_module(model: nn.Module) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The configuration and the weights of a model of Hugging Face."""
    config: Any = getattr(model, "config", None)
    if not hasattr(config, "to_dict"):
        name = type(model).__name__
        raise TypeError(f"expected a folder or a transformers.GPT2LMHeadModel, got {name}, which has no configuration")
    config = config.to_dict()
    _check_config(config)
    return config, model.state_dict()


def _read_folder(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The configuration and the weights of a folder with Hugging Face's files."""
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(
            f"there is no config.json in {folder}. Nothing is downloaded: pass a folder, or the model itself, such as "
            f"transformers.GPT2LMHeadModel.from_pretrained({str(folder)!r})"
        )
    config = load(folder / "config.json")
    _check_config(config)
    return config, _read_weights(folder)


def _read_weights(folder: Path) -> dict[str, Tensor]:
    """The tensors of `model.safetensors`, or of the shards that its index lists."""
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").exists() or not index.exists():
        return _load_tensors(folder / "model.safetensors")
    weights: dict[str, Tensor] = {}
    names = load(index, largest=_MAX_INDEX_BYTES)
    names = names.get("weight_map") if isinstance(names, dict) else None
    if not isinstance(names, dict):
        raise ValueError(f"{index.name} must have an object weight_map")
    for name in sorted(set(map(str, names.values()))):
        if Path(name).name != name:
            raise ValueError(f"{index.name} must list files in its own folder, got {name!r}")
        weights |= _load_tensors(folder / name)
    return weights


def _load_tensors(path: Path) -> dict[str, Tensor]:
    open_file(path).close()
    try:
        return load_file(path)
    except SafetensorError as error:
        raise ValueError(f"cannot read {path}: {error}") from None


def claims() -> Iterator[Claim]:
    """The laws of GPT-2."""
    model, ids = gpt(vocab_size=5, dim=4, num_layers=1, num_heads=1, context_length=8), tokens("b t:1..8", vocab_size=5)
    yield Claim(cached_decoding(), model, ids, name="GPT-2")
    yield Claim(weight_sharing(names=("embedding.weight", "head.weight")), model, ids, name="GPT-2")
