"""What any layer should keep, whatever it computes: no hidden randomness, no hidden memory, no damage."""

from __future__ import annotations

from torch import Tensor

from lawful.laws.language import Draw, Map, Same, Statement, Unchanged, law


@law("f(x; ω) = f(x; ω') in evaluation, for any random states ω, ω'", every_input=True, every_output=True)
def determinism(f: Map, *xs: Tensor, draw: Draw) -> Statement:
    """In evaluation mode the output does not depend on the random state.

    Kept by: dropout and stochastic depth, which are the identity in evaluation.
    Broken by: dropout called as a function without `training=self.training`; noise that is always added.
    """
    seed = draw.integer(1, 2**16, "ω'")
    return Same(f.eval()(*xs), f.eval().seeded(seed)(*xs), exact=True)


@law("f(x) = f(x) after f(y) = f(x) after f(x), f(y), in evaluation", every_input=True, every_output=True)
def purity(f: Map, *xs: Tensor, draw: Draw) -> Statement:
    """In evaluation mode a call leaves nothing behind that a later call can see.

    Kept by: any layer that stores nothing; a batch norm in evaluation.
    Broken by: a cache that is not cleared; a buffer or parameter rewritten by a longer input.
    """
    ys = draw.another()
    first, _, last = f.eval().in_turn(xs, ys, xs)
    _, after = f.eval().in_turn(ys, xs)
    return Same((*first, *first), (*last, *after), exact=True)


@law("x is bitwise the same after f(x)", every_input=True)
def no_mutation(f: Map, *xs: Tensor) -> Statement:
    """A call leaves its inputs as they were.

    Kept by: any layer that works on new tensors.
    Broken by: `x += ...`, `x.masked_fill_(...)`, or writing into a slice of an argument.
    """
    return Unchanged(xs, f.inputs_after(*xs))
