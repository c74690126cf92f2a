"""Hygiene of any layer: no hidden randomness or state, no in-place changes, a complete state dict."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from lawful.laws.interfaces import Draw, Map
from lawful.laws.law import Inapplicable, law
from lawful.laws.statements import BitwiseEqual, Equal, Statement


@law("f(x; ω) = f(x; ω') in eval mode, for any random states ω, ω'", every_input=True, every_output=True)
def determinism(f: Map, *xs: Tensor, draw: Draw) -> Statement:
    """In eval mode the output does not depend on the random state.

    Satisfied by: dropout and stochastic depth, which are the identity in eval mode.
    Broken by: `F.dropout` without `training=self.training`; noise that is always added.
    """
    seed = draw.integer(1, 2**16, "ω'")
    return Equal(f.eval()(*xs), f.eval().with_seed(seed)(*xs), exact=True)


@law("f(x) = f(x) after f(y) = f(x) after f(x), f(y), in eval mode", every_input=True, every_output=True)
def statelessness(f: Map, *xs: Tensor, draw: Draw) -> Statement:
    """In eval mode a call does not affect later calls.

    Satisfied by: any layer without state; batch norm in eval mode.
    Broken by: a cache that is not cleared; a buffer or parameter that a longer input overwrites.
    """
    ys = draw.inputs()
    first, _, last = f.eval().call_sequence(xs, ys, xs)
    _, after = f.eval().call_sequence(ys, xs)
    return Equal((*first, *first), (*last, *after), exact=True)


@law("x is bitwise the same after f(x)", every_input=True)
def no_mutation(f: Map, *xs: Tensor) -> Statement:
    """A call does not change its inputs.

    Satisfied by: any layer that writes to new tensors only.
    Broken by: `x += ...`, `x.masked_fill_(...)`, or writing into a slice of an argument.
    """
    return BitwiseEqual(xs, f.inputs_after(*xs))


@law("θ is bitwise the same after f(x)", every_input=True)
def no_parameter_change(f: Map, *xs: Tensor) -> Statement:
    """A forward pass changes no parameter, in training or eval mode.

    Satisfied by: any layer that leaves updates to the optimizer; batch norm, whose statistics are buffers.
    Broken by: weights that are normalized or extended in place in the forward pass.
    """
    before = {name: p.detach().clone() for name, p in f.parameters.items()}
    if not before:
        raise Inapplicable("the map has no parameters")
    after = f.parameters_after(*xs)
    return BitwiseEqual(list(before.values()), [after[name] for name in before], names=list(before))


@law("buffers are bitwise the same after f(x), in eval mode", every_input=True)
def no_buffer_change(f: Map, *xs: Tensor) -> Statement:
    """In eval mode a forward pass changes no buffer.

    Satisfied by: batch norm, which only updates its statistics in training mode; a buffer of constants.
    Broken by: running statistics that ignore `self.training`; a cache or a counter in a buffer.
    """
    before = {name: buffer.detach().clone() for name, buffer in f.buffers.items()}
    if not before:
        raise Inapplicable("the map has no buffers")
    after = f.eval().buffers_after(*xs)
    removed = torch.empty(0)
    return BitwiseEqual(list(before.values()), [after.get(name, removed) for name in before], names=list(before))


def _require_module(f: Map) -> nn.Module:
    if not isinstance(f.target, nn.Module):
        raise Inapplicable(f"expected a module, got {type(f.target).__name__}")
    return f.target


def _train_mode(f: Map, *modes: bool) -> Map:
    """Returns the map after `module.train(mode)` for one mode after another."""
    for mode in modes:
        f = f.modified(lambda module, mode=mode: module.train(mode))
    return f


@law("f after train(), eval() = f after eval(), and vice versa", every_input=True, every_output=True)
def train_eval_round_trip(f: Map, *xs: Tensor) -> Statement:
    """Switching to training mode and back does not change the output in eval mode, and vice versa.

    Satisfied by: a layer that only reads `self.training`; adapters that merge and unmerge exactly once.
    Broken by: a `train` method that merges weights on every call, or never unmerges them.
    """
    _require_module(f)
    once = (*_train_mode(f, False)(*xs), *_train_mode(f, True)(*xs))
    twice = (*_train_mode(f, False, True, False)(*xs), *_train_mode(f, True, False, True)(*xs))
    return Equal(once, twice)


@law("f = f loaded from its own state dict, in eval mode", every_input=True, every_output=True)
def state_dict_round_trip(f: Map, *xs: Tensor) -> Statement:
    """A module that is saved after a call and loaded into another instance returns the same outputs.

    The other instance is a copy from before the call, with other parameters and persistent buffers.

    Satisfied by: a module whose learned tensors are parameters or persistent buffers.
    Broken by: layers in a plain list; statistics in an attribute; a learned buffer that is not persistent.
    """
    try:
        copy.deepcopy(_require_module(f))
    except RuntimeError as error:
        raise Inapplicable(f"the module cannot be copied: {error}") from error
    args, kwargs = f.arguments_for(*xs)
    used = f.eval().modified(partial(_call_in_training_mode, args=args, kwargs=kwargs))
    reloaded = f.eval().modified(partial(_save_and_load, args=args, kwargs=kwargs))
    return Equal(used(*xs), reloaded(*xs))


def _call_in_training_mode(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    module.train()
    module(*copy.deepcopy(args), **copy.deepcopy(kwargs))
    module.eval()


def _save_and_load(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Calls a module, loads its state dict into a scrambled copy from before the call, and puts that in its place."""
    other = copy.deepcopy(module)
    _call_in_training_mode(module, args, kwargs)
    saved = copy.deepcopy(module.state_dict())
    persistent = [buffer for name, buffer in other.named_buffers() if isinstance(saved.get(name), Tensor)]
    with torch.no_grad():
        for tensor in (*_all_parameters(other), *persistent):
            tensor.add_(1)
    other.load_state_dict(saved)
    vars(module).update(vars(other.eval()))


def _all_parameters(value: Any, depth: int = 0) -> Iterator[nn.Parameter]:
    """Yields every parameter that a module holds, registered or not."""
    if isinstance(value, nn.Parameter):
        yield value
    elif isinstance(value, nn.Module):
        for part in vars(value).values():
            yield from _all_parameters(part, depth)
    elif isinstance(value, dict | list | tuple) and depth < 4:
        for part in value.values() if isinstance(value, dict) else value:
            yield from _all_parameters(part, depth + 1)


@law("f(x) does not depend on the memory layout of x", eval_if_random=True, every_input=True, every_output=True)
def layout_independence(f: Map, *xs: Tensor, draw: Draw) -> Statement:
    """The output does not depend on the memory layout of the inputs, contiguous or strided.

    Satisfied by: compositions of PyTorch's operations.
    Broken by: a kernel that reads the storage directly; `as_strided` with the strides of a contiguous tensor.
    """
    layout = draw.choice(("transposed", "strided"), "layout")
    return Equal(f.with_layout("contiguous")(*xs), f.with_layout(layout)(*xs))
