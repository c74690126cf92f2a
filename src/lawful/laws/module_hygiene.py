"""What any layer should keep, whatever it computes: no hidden randomness, no hidden memory, no damage."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from lawful.laws.interfaces import Draw, Map
from lawful.laws.law import Inapplicable, law
from lawful.laws.statements import BitwiseEqual, Equal, Statement


@law("f(x; ω) = f(x; ω') in evaluation, for any random states ω, ω'", every_input=True, every_output=True)
def determinism(f: Map, *xs: Tensor, draw: Draw) -> Statement:
    """In evaluation mode the output does not depend on the random state.

    Satisfied by: dropout and stochastic depth, which are the identity in evaluation.
    Broken by: dropout called as a function without `training=self.training`; noise that is always added.
    """
    seed = draw.integer(1, 2**16, "ω'")
    return Equal(f.eval()(*xs), f.eval().with_seed(seed)(*xs), exact=True)


@law("f(x) = f(x) after f(y) = f(x) after f(x), f(y), in evaluation", every_input=True, every_output=True)
def statelessness(f: Map, *xs: Tensor, draw: Draw) -> Statement:
    """In evaluation mode a call leaves nothing behind that a later call can see.

    Satisfied by: any layer that stores nothing; a batch norm in evaluation.
    Broken by: a cache that is not cleared; a buffer or parameter rewritten by a longer input.
    """
    ys = draw.inputs()
    first, _, last = f.eval().call_sequence(xs, ys, xs)
    _, after = f.eval().call_sequence(ys, xs)
    return Equal((*first, *first), (*last, *after), exact=True)


@law("x is bitwise the same after f(x)", every_input=True)
def no_mutation(f: Map, *xs: Tensor) -> Statement:
    """A call leaves its inputs as they were.

    Satisfied by: any layer that works on new tensors.
    Broken by: `x += ...`, `x.masked_fill_(...)`, or writing into a slice of an argument.
    """
    return BitwiseEqual(xs, f.inputs_after(*xs))


@law("θ is bitwise the same after f(x)", every_input=True)
def no_parameter_change(f: Map, *xs: Tensor) -> Statement:
    """A forward pass changes no parameter, in training or in evaluation.

    Satisfied by: any layer that leaves learning to the optimizer; a batch norm, whose statistics are buffers.
    Broken by: weights that are normalised or extended in place while they are used.
    """
    before = {name: p.detach().clone() for name, p in f.parameters.items()}
    if not before:
        raise Inapplicable("there is no parameter")
    after = f.parameters_after(*xs)
    return BitwiseEqual(list(before.values()), [after[name] for name in before], names=list(before))


def _module(f: Map) -> nn.Module:
    if not isinstance(f.target, nn.Module):
        raise Inapplicable(f"a module was wanted: got {type(f.target).__name__}")
    return f.target


def _switched(f: Map, *modes: bool) -> Map:
    for mode in modes:
        f = f.modified(lambda module, mode=mode: module.train(mode), f"{{f}}.train({mode})")
    return f


@law("f after train(), eval() = f after eval(); likewise the other way round", every_input=True, every_output=True)
def train_eval_round_trip(f: Map, *xs: Tensor) -> Statement:
    """Going to training mode and back leaves evaluation as it was, and the other way round.

    Satisfied by: a layer that only looks at `self.training`; adapters that merge and unmerge exactly once.
    Broken by: a `train` method that merges weights each time it is called, or forgets to take them apart again.
    """
    _module(f)
    once = (*_switched(f, False)(*xs), *_switched(f, True)(*xs))
    twice = (*_switched(f, False, True, False)(*xs), *_switched(f, True, False, True)(*xs))
    return Equal(once, twice)


@law("f = f loaded from its own state dict, in evaluation", every_input=True, every_output=True)
def state_dict_round_trip(f: Map, *xs: Tensor) -> Statement:
    """A module that is saved after use and loaded into another one of its kind gives the same outputs.

    The other one is a copy from before the use, with other parameters and persistent buffers.

    Satisfied by: a module whose learned tensors are parameters or persistent buffers.
    Broken by: layers in a plain list; statistics in an attribute; a learned buffer that is not persistent.
    """
    _module(f)
    args, kwargs = f.arguments_for(*xs)

    def use(module: nn.Module) -> None:
        module.train()
        module(*copy.deepcopy(args), **copy.deepcopy(kwargs))
        module.eval()

    def reload(module: nn.Module) -> None:
        try:
            other = copy.deepcopy(module)
        except RuntimeError as error:
            raise Inapplicable(f"the module cannot be copied: {error}") from error
        use(module)
        saved = copy.deepcopy(module.state_dict())
        stored = {name for name, value in saved.items() if isinstance(value, Tensor)}
        with torch.no_grad():
            for tensor in (*_learned(other), *(b for name, b in other.named_buffers() if name in stored)):
                tensor.add_(1)
        other.load_state_dict(saved)
        vars(module).update(vars(other.eval()))

    run = "{f}.train()\n{f}({0})\n{f}.eval()"
    scramble = (
        "layers = [m for v in vars(other).values() if isinstance(v, list) for m in v] + [other]\n"
        "for t in [t for m in layers for t in [*m.parameters(), *m.buffers()]]:\n    t.data.add_(1)"
    )
    again = f"other = copy.deepcopy({{f}})\n{run}\n{scramble}\nother.load_state_dict({{f}}.state_dict())"
    used = f.eval().modified(use, run, *xs[:1])(*xs)
    loaded = f.eval().modified(reload, f"{again}\n{{f}} = other.eval()", *xs[:1])(*xs)
    return Equal(used, loaded)


def _learned(value: Any, depth: int = 0) -> Iterator[nn.Parameter]:
    """Every parameter that can be reached, registered or not."""
    if isinstance(value, nn.Parameter):
        yield value
    elif isinstance(value, nn.Module):
        for part in vars(value).values():
            yield from _learned(part, depth)
    elif isinstance(value, dict | list | tuple) and depth < 4:
        for part in value.values() if isinstance(value, dict) else value:
            yield from _learned(part, depth + 1)


@law("f(x) = f(x laid out otherwise in memory)", every_input=True, every_output=True)
def layout_independence(f: Map, *xs: Tensor, draw: Draw) -> Statement:
    """How a tensor lies in memory, contiguous or strided, makes no difference.

    Satisfied by: compositions of PyTorch's operations.
    Broken by: a kernel that reads the storage; `as_strided` with strides of a contiguous tensor.
    """
    layout = draw.choice(("transposed", "strided"), "layout")
    return Equal(f.with_layout("contiguous")(*xs), f.with_layout(layout)(*xs))
