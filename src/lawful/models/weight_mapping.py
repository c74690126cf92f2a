"""Layouts of weights: what another library calls a model's parameters, and how it lays them out.

The layouts of PyTorch's own transformers, which have neither embedding nor head.
"""

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
    """A tensor of another library, and the parameters that it holds, one below the other."""

    theirs: str
    """Its name there."""
    ours: tuple[str, ...]
    """The names of the parameters."""
    transposed: bool = False
    """Whether it has inputs along its rows."""


@dataclass(frozen=True)
class WeightMapping:
    """Says which tensors of another library are which parameters of a model.

    Names are all that it compares: that the two compute the same is for the model's config to see to. A bias that the
    model lacks is read if it is zero. Nothing is changed by a state dict that does not fit.
    """

    rows: Callable[[nn.Module], Iterable[ParameterRule]]
    """The table, for a model."""
    prefix: str = ""
    """What their names begin with where they are part of a larger model; names without it, or of a compiled model, are
    read as well."""
    outside: tuple[str, ...] = ()
    """Those of their names that it never stands before."""
    ignored: tuple[str, ...] = ()
    """Ends of names of tensors that are no weights."""
    apart: tuple[str, ...] = ()
    """Beginnings of names of parameters of ours that they do not have."""
    biased: bool = False
    """Whether they have a bias everywhere, so that one that the model lacks is written as zeros."""

    def load(self, model: nn.Module, state: Mapping[str, Tensor]) -> None:
        """Copies their weights into a model.

        Args:
            model: The model.
            state: Their state dict.
        """
        plain = ((name.removeprefix("_orig_mod."), x) for name, x in state.items() if not name.endswith(self.ignored))
        given = {name.removeprefix(self.prefix): x for name, x in plain}
        rows, parameters = self._table(model)
        for name in given:
            if name not in rows:
                raise KeyError(f"{name} has no place in the model{_nearest(name, rows)}")
        filled: dict[int, str] = {}
        copies = []
        for name, row in rows.items():
            held = [parameters[ours] for ours in row.ours if ours in parameters]
            before = [filled[id(parameter)] for parameter in held if id(parameter) in filled]
            if name in given:
                if before and not torch.equal(given[name], given[before[0]]):
                    raise ValueError(f"{name} and {before[0]} are one parameter of the model: got different ones")
                copies += _copies(row, given[name], held)
            elif held and not before:
                raise KeyError(f"{name} is missing{_nearest(name, given)}")
            filled |= {id(parameter): name for parameter in held}
        with torch.no_grad():
            for parameter, x in copies:
                parameter.copy_(x)

    def save(self, model: nn.Module) -> dict[str, Tensor]:
        """Returns the weights of a model under their names, as copies.

        Args:
            model: The model.
        """
        rows, parameters = self._table(model)
        state = {}
        for name, row in rows.items():
            held = [parameters[ours].detach() for ours in row.ours if ours in parameters]
            if not held and not self.biased:
                continue
            if not held:
                weights = [parameters[ours.removesuffix("bias") + "weight"].detach() for ours in row.ours]
                held = [weight.new_zeros(len(weight)) for weight in weights]
            x = torch.cat(held)
            state[name if name in self.outside else self.prefix + name] = (x.mT if row.transposed else x).contiguous()
        return state

    def _table(self, model: nn.Module) -> tuple[dict[str, ParameterRule], dict[str, nn.Parameter]]:
        rows = {row.theirs: row for row in self.rows(model)}
        parameters = dict(model.named_parameters(remove_duplicate=False))
        known = {ours for row in rows.values() for ours in row.ours}
        for name in parameters:
            if name not in known and not name.startswith(self.apart):
                raise ValueError(f"the layout has no place for {name}{_nearest(name, known)}")
        for name in known:
            if name not in parameters and not name.endswith("bias"):
                raise ValueError(f"the layout wants a parameter {name}{_nearest(name, parameters)}")
        return rows, parameters


def _copies(row: ParameterRule, x: Tensor, held: list[nn.Parameter]) -> list[tuple[nn.Parameter, Tensor]]:
    """The parts of a tensor, each with the parameter that it belongs to."""
    if not held:
        if x.any():
            raise ValueError(f"{row.theirs} is to be zero, as the model has no {row.ours[0]}")
        return []
    wanted = (sum(map(len, held)), *held[0].shape[1:])
    wanted = wanted[::-1] if row.transposed else wanted
    if x.shape != wanted:
        raise ValueError(f"{row.theirs} is to have the shape {wanted}: got {tuple(x.shape)}")
    return list(zip(held, (x.mT if row.transposed else x).split([*map(len, held)]), strict=True))


def _nearest(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f": the nearest name is {close[0]}" if close else ""


ATTENTIONS = {"s": "self_attn", "c": "multihead_attn"}


def torch_rows(model: nn.Module, *, pattern: str, theirs: str = "", ours: str = "") -> Iterator[ParameterRule]:
    """Returns the table for a stream in a given order, and the names before all of its own."""
    if not isinstance(model, TransformerBackbone) or model.order.replace(pattern, ""):
        raise TypeError(f"a model in the order ({pattern})* is wanted: got {getattr(model, 'order', type(model))}")
    for i, (letter, layer) in enumerate(zip(model.order, model.layers, strict=True)):
        number, place = divmod(i, len(pattern))
        at, here = f"{theirs}layers.{number}", f"{ours}layers.{i}"
        norm = "output_norm" if isinstance(layer, Residual) and layer.norm is None else "norm"
        for kind in ("weight", "bias"):
            yield ParameterRule(f"{at}.norm{place + 1}.{kind}", (f"{here}.{norm}.{kind}",))
            if letter == "f":
                yield ParameterRule(f"{at}.linear1.{kind}", (f"{here}.block.up.{kind}",))
                yield ParameterRule(f"{at}.linear2.{kind}", (f"{here}.block.down.{kind}",))
            else:
                attention = f"{at}.{ATTENTIONS[letter]}"
                projections = tuple(f"{here}.block.{name}.{kind}" for name in ("query", "key", "value"))
                yield ParameterRule(f"{attention}.in_proj_{kind}", projections)
                yield ParameterRule(f"{attention}.out_proj.{kind}", (f"{here}.block.out.{kind}",))
    if not isinstance(model.norm, nn.Identity):
        for kind in ("weight", "bias"):
            yield ParameterRule(f"{theirs}norm.{kind}", (f"{ours}norm.{kind}",))


def encoder_rows(model: nn.Module) -> Iterator[ParameterRule]:
    """Returns the table of `nn.TransformerEncoder`, for an encoder."""
    return torch_rows(model, pattern="sf")


def decoder_rows(model: nn.Module) -> Iterator[ParameterRule]:
    """Returns the table of `nn.TransformerDecoder`, for a decoder that attends to a memory."""
    return torch_rows(model, pattern="scf")


def both_rows(model: nn.Module) -> Iterator[ParameterRule]:
    """Returns the table of `nn.Transformer`, for an encoder-decoder."""
    if not isinstance(model, EncoderDecoder):
        raise TypeError(f"an encoder-decoder is wanted: got {type(model).__name__}")
    yield from torch_rows(model.encoder, pattern="sf", theirs="encoder.", ours="encoder.")
    yield from torch_rows(model.decoder, pattern="scf", theirs="decoder.", ours="decoder.")


_APART = "embedding.", "positions.", "head."
TORCH_ENCODER = WeightMapping(encoder_rows, apart=_APART)
"""That of `nn.TransformerEncoder`."""
TORCH_DECODER = WeightMapping(decoder_rows, apart=_APART)
"""That of `nn.TransformerDecoder`."""
TORCH_TRANSFORMER = WeightMapping(
    both_rows, apart=tuple(f"{half}.{name}" for half in ("encoder", "decoder") for name in _APART)
)
"""That of `nn.Transformer`."""
