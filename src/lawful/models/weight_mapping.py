"""Weight mappings: load and save weights in the layouts of other libraries."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lawful.blocks.residual import Residual
from lawful.models.transformer import EncoderDecoder, TransformerBackbone


@dataclass(frozen=True)
class ParameterRule:
    """A tensor of another library and the parameters of a model that it holds, concatenated along dim 0."""

    theirs: str
    """Name of the tensor in the other library."""
    ours: tuple[str, ...]
    """Names of the parameters."""
    transposed: bool = False
    """Whether the tensor has inputs along its rows."""


@dataclass(frozen=True)
class WeightMapping:
    """Maps the state dict of another library to the parameters of a model.

    Only names and shapes are compared; the model must compute the same function. A bias that the model lacks may be
    loaded if it is zero. A state dict that does not fit changes nothing.
    """

    rules: Callable[[nn.Module], Iterable[ParameterRule]]
    """Returns the rules for a model."""
    prefix: str = ""
    """Prefix of their names in a larger model. Names without it, or of a compiled model, are accepted too."""
    unprefixed: tuple[str, ...] = ()
    """Their names that never have the prefix."""
    ignored: tuple[str, ...] = ()
    """Suffixes of the names of tensors that are not weights."""
    ours_only: tuple[str, ...] = ()
    """Prefixes of the names of parameters that only our model has."""
    always_bias: bool = False
    """Whether they have a bias everywhere: a bias that the model lacks is saved as zeros."""

    def load_state_dict(self, model: nn.Module, state_dict: Mapping[str, Tensor]) -> None:
        """Copies their weights into a model.

        Args:
            model: The model.
            state_dict: Their state dict.

        Raises:
            KeyError: If a name is unknown or missing.
            ValueError: If a shape does not fit.
        """
        plain = {
            name.removeprefix("_orig_mod."): x for name, x in state_dict.items() if not name.endswith(self.ignored)
        }
        given = {name.removeprefix(self.prefix): x for name, x in plain.items()}
        rules, parameters = self._table(model)
        for name in given:
            if name not in rules:
                raise KeyError(f"unexpected weight {name}{_nearest(name, rules)}")
        filled: dict[int, str] = {}
        copies = []
        for name, rule in rules.items():
            held = [parameters[ours] for ours in rule.ours if ours in parameters]
            before = [filled[id(parameter)] for parameter in held if id(parameter) in filled]
            if name in given:
                if before and not torch.equal(given[name], given[before[0]]):
                    raise ValueError(f"{name} and {before[0]} are tied in the model, got different weights")
                copies += _copies(rule, given[name], held)
            elif held and not before:
                raise KeyError(f"missing weight {name}{_nearest(name, given)}")
            filled |= {id(parameter): name for parameter in held}
        with torch.no_grad():
            for parameter, x in copies:
                parameter.copy_(x)

    def state_dict(self, model: nn.Module) -> dict[str, Tensor]:
        """Returns the weights of a model under their names, as copies.

        Args:
            model: The model.
        """
        rules, parameters = self._table(model)
        state = {}
        for name, rule in rules.items():
            held = [parameters[ours].detach() for ours in rule.ours if ours in parameters]
            if not held and not self.always_bias:
                continue
            if not held:
                weights = [parameters[ours.removesuffix("bias") + "weight"].detach() for ours in rule.ours]
                held = [weight.new_zeros(len(weight)) for weight in weights]
            x = torch.cat(held)
            full_name = name if name in self.unprefixed else self.prefix + name
            state[full_name] = (x.mT if rule.transposed else x).contiguous()
        return state

    def _table(self, model: nn.Module) -> tuple[dict[str, ParameterRule], dict[str, nn.Parameter]]:
        rules = {rule.theirs: rule for rule in self.rules(model)}
        parameters = dict(model.named_parameters(remove_duplicate=False))
        known = {ours for rule in rules.values() for ours in rule.ours}
        for name in parameters:
            if name not in known and not name.startswith(self.ours_only):
                raise ValueError(f"the layout has no weight for parameter {name}{_nearest(name, known)}")
        for name in known:
            if name not in parameters and not name.endswith("bias"):
                raise ValueError(f"the layout needs a parameter {name}{_nearest(name, parameters)}")
        return rules, parameters


def _copies(rule: ParameterRule, x: Tensor, held: list[nn.Parameter]) -> list[tuple[nn.Parameter, Tensor]]:
    """Splits a tensor into the values of its parameters."""
    if not held:
        if x.any():
            raise ValueError(f"{rule.theirs} must be zero: the model has no {rule.ours[0]}")
        return []
    expected = (sum(map(len, held)), *held[0].shape[1:])
    expected = expected[::-1] if rule.transposed else expected
    if x.shape != expected:
        raise ValueError(f"expected {rule.theirs} of shape {expected}, got {tuple(x.shape)}")
    return list(zip(held, (x.mT if rule.transposed else x).split([*map(len, held)]), strict=True))


def _nearest(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" (nearest name: {close[0]})" if close else ""


def _block_path(model: nn.Module, layer: str) -> str:
    """Returns the path of the block of a layer, such as "layers.0.attention"."""
    return f"{layer}.{getattr(model.get_submodule(layer), 'block_name', 'block')}"


_ATTENTION = {"s": "self_attn", "c": "multihead_attn"}


def _torch_rules(model: nn.Module, *, pattern: str, theirs: str = "", ours: str = "") -> Iterator[ParameterRule]:
    """Rules of torch's transformer layers, for a model whose layer pattern repeats `pattern`."""
    if not isinstance(model, TransformerBackbone) or model.layer_pattern.replace(pattern, ""):
        found = getattr(model, "layer_pattern", type(model).__name__)
        raise TypeError(f"expected a model with layer_pattern ({pattern})*, got {found}")
    for i, (kind, layer) in enumerate(zip(model.layer_pattern, model.layers, strict=True)):
        number, place = divmod(i, len(pattern))
        there, here = f"{theirs}layers.{number}", f"{ours}layers.{i}"
        block = f"{ours}{_block_path(model, f'layers.{i}')}"
        norm = "output_norm" if isinstance(layer, Residual) and layer.norm is None else "norm"
        for end in ("weight", "bias"):
            yield ParameterRule(f"{there}.norm{place + 1}.{end}", (f"{here}.{norm}.{end}",))
            if kind == "f":
                yield ParameterRule(f"{there}.linear1.{end}", (f"{block}.up.{end}",))
                yield ParameterRule(f"{there}.linear2.{end}", (f"{block}.down.{end}",))
            else:
                attention = f"{there}.{_ATTENTION[kind]}"
                projections = tuple(f"{block}.{name}.{end}" for name in ("query", "key", "value"))
                yield ParameterRule(f"{attention}.in_proj_{end}", projections)
                yield ParameterRule(f"{attention}.out_proj.{end}", (f"{block}.out.{end}",))
    if not isinstance(model.norm, nn.Identity):
        for end in ("weight", "bias"):
            yield ParameterRule(f"{theirs}norm.{end}", (f"{ours}norm.{end}",))


def _encoder_rules(model: nn.Module) -> Iterator[ParameterRule]:
    return _torch_rules(model, pattern="sf")


def _decoder_rules(model: nn.Module) -> Iterator[ParameterRule]:
    return _torch_rules(model, pattern="scf")


def _transformer_rules(model: nn.Module) -> Iterator[ParameterRule]:
    if not isinstance(model, EncoderDecoder):
        raise TypeError(f"expected an EncoderDecoder, got {type(model).__name__}")
    yield from _torch_rules(model.encoder, pattern="sf", theirs="encoder.", ours="encoder.")
    yield from _torch_rules(model.decoder, pattern="scf", theirs="decoder.", ours="decoder.")


_OURS_ONLY = "embedding.", "positions.", "head."
TORCH_ENCODER_WEIGHTS = WeightMapping(_encoder_rules, ours_only=_OURS_ONLY)
"""Layout of `nn.TransformerEncoder`, for an `Encoder`."""
TORCH_DECODER_WEIGHTS = WeightMapping(_decoder_rules, ours_only=_OURS_ONLY)
"""Layout of `nn.TransformerDecoder`, for a `Decoder` with cross-attention."""
TORCH_TRANSFORMER_WEIGHTS = WeightMapping(
    _transformer_rules, ours_only=tuple(f"{half}.{name}" for half in ("encoder", "decoder") for name in _OURS_ONLY)
)
"""Layout of `nn.Transformer`, for an `EncoderDecoder`."""
