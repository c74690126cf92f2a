"""Changes of the parameters that leave the map as it is."""

from __future__ import annotations

from torch import Tensor, nn

from lawful._suggest import did_you_mean
from lawful.laws.interfaces import Draw, Map
from lawful.laws.law import Inapplicable, law
from lawful.laws.statements import Equal, Statement

Names = str | tuple[str, ...]


def _parameters(f: Map, names: Names) -> dict[str, Tensor]:
    if not isinstance(f.target, nn.Module):
        raise Inapplicable(f"a module was wanted: got {type(f.target).__name__}")
    known = dict(f.target.named_parameters(remove_duplicate=False))
    wanted = (names,) if isinstance(names, str) else names
    for name in wanted:
        if name not in known:
            raise ValueError(f"there is no parameter {name!r}{did_you_mean(name, known)}")
    return {name: known[name].detach() for name in wanted}


def _hidden(into: dict[str, Tensor], out_of: dict[str, Tensor]) -> int:
    """The number of hidden units: rows of what leads into them, columns of what leads out of them."""
    sizes = {p.shape[0] for p in into.values()} | {p.shape[1] if p.dim() > 1 else 0 for p in out_of.values()}
    if len(sizes) != 1:
        shapes = {name: tuple(p.shape) for name, p in (into | out_of).items()}
        raise ValueError(f"the rows of `into` and the columns of `out_of` are to be as many: got {shapes}")
    return sizes.pop()


@law("f(x; πθ) = f(x; θ)", every_input=True, discover_with=None)
def hidden_unit_permutation(f: Map, *xs: Tensor, into: Names, out_of: Names, draw: Draw) -> Statement:
    """Renumbering the hidden units of a network changes nothing.

    `into` names the parameters whose rows belong to the units (a weight and its bias), `out_of` those whose
    columns do.

    Satisfied by: two linear layers around any activation that treats all units alike.
    Broken by: a normalisation in groups; a gate that pairs units.
    """
    rows, columns = _parameters(f, into), _parameters(f, out_of)
    order = draw.permutation(_hidden(rows, columns))
    moved = {name: p.index_select(0, order) for name, p in rows.items()}
    moved |= {name: p.index_select(1, order) for name, p in columns.items()}
    return Equal(f.with_parameters(moved)(*xs), f(*xs))


@law("f(x; a W, V / a) = f(x; W, V), a > 0", every_input=True, discover_with=None)
def hidden_unit_rescaling(f: Map, *xs: Tensor, into: Names, out_of: Names, draw: Draw) -> Statement:
    """Scaling what leads into a hidden unit, and what leads out of it by the inverse, changes nothing.

    `into` and `out_of` are as in `hidden_unit_permutation`.

    Satisfied by: ReLU, leaky ReLU and other activations that are homogeneous of degree 1.
    Broken by: GELU, tanh; a bias that is forgotten in `into`.
    """
    rows, columns = _parameters(f, into), _parameters(f, out_of)
    a = draw.normal(_hidden(rows, columns)).exp()
    scaled = {name: p * a.reshape([-1] + [1] * (p.dim() - 1)) for name, p in rows.items()}
    scaled |= {name: p / a.reshape([1, -1] + [1] * (p.dim() - 2)) for name, p in columns.items()}
    return Equal(f.with_parameters(scaled)(*xs), f(*xs))


@law("f(x; a W) = f(x; W), a > 0", every_input=True, discover_with=None)
def scale_free_weights(f: Map, *xs: Tensor, weights: Names, draw: Draw) -> Statement:
    """The scale of a matrix that a normalisation follows makes no difference.

    `weights` names the parameters that are scaled together: a matrix, and its bias if it has one.

    Satisfied by: a linear layer before a layer norm with eps = 0, or before a batch norm in training with a tiny one.
    Broken by: an activation in between that is not homogeneous; a residual around the layer.
    """
    found = _parameters(f, weights)
    a = draw.choice((2.0, 0.5, 10.0, 0.1), "a")
    return Equal(f.with_parameters({name: a * p for name, p in found.items()})(*xs), f(*xs))


@law("W and V are one tensor", every_input=True, discover_with=None)
def weight_sharing(f: Map, *xs: Tensor, names: tuple[str, ...], draw: Draw) -> Statement:
    """Parameters that are said to be shared are one: changing the first changes the map as changing all does.

    Satisfied by: an embedding whose weight is that of the output layer.
    Broken by: a weight that was copied; one that a later initialisation took apart.
    """
    found = _parameters(f, names)
    shapes = {tuple(p.shape) for p in found.values()}
    if len(found) < 2 or len(shapes) > 1:
        raise ValueError(f"two or more parameters of one shape were wanted: got {', '.join(map(str, found))}")
    value = draw.normal(*shapes.pop())
    first = f.with_parameters({names[0]: value})(*xs)
    return Equal(first, f.with_parameters(dict.fromkeys(names, value))(*xs), exact=True, exercised=True)
