"""Weight symmetries: changes of the parameters that leave the output unchanged."""

from __future__ import annotations

from torch import Tensor, nn

from lawful._suggest import did_you_mean
from lawful.laws.interfaces import Draw, Map
from lawful.laws.law import Inapplicable, law
from lawful.laws.statements import Equal, Statement

_Names = str | tuple[str, ...]


def _parameters(f: Map, names: _Names) -> dict[str, Tensor]:
    if not isinstance(f.target, nn.Module):
        raise Inapplicable(f"expected a module, got {type(f.target).__name__}")
    known = dict(f.target.named_parameters(remove_duplicate=False))
    selected = (names,) if isinstance(names, str) else names
    for name in selected:
        if name not in known:
            raise ValueError(f"the module has no parameter {name!r}{did_you_mean(name, known)}")
    return {name: known[name].detach() for name in selected}


def _num_hidden_units(into: dict[str, Tensor], out_of: dict[str, Tensor]) -> int:
    """Returns the number of hidden units: rows of incoming weights, columns of outgoing weights."""
    sizes = {p.shape[0] for p in into.values()} | {p.shape[1] if p.dim() > 1 else 0 for p in out_of.values()}
    if len(sizes) != 1:
        shapes = {name: tuple(p.shape) for name, p in (into | out_of).items()}
        raise ValueError(f"the number of rows of `into` must equal the number of columns of `out_of`: got {shapes}")
    return sizes.pop()


@law("f(x; πθ) = f(x; θ)", eval_if_random=True, every_input=True, discover_with=None)
def hidden_unit_permutation(f: Map, *xs: Tensor, into: _Names, out_of: _Names, draw: Draw) -> Statement:
    """Permuting the hidden units of a network changes nothing.

    `into` names the incoming parameters, with one row per unit (a weight and its bias). `out_of` names the outgoing
    parameters, with one column per unit.

    Satisfied by: two linear layers around an elementwise activation.
    Broken by: group normalization; a gate that pairs units.
    """
    rows, columns = _parameters(f, into), _parameters(f, out_of)
    order = draw.permutation(_num_hidden_units(rows, columns))
    moved = {name: p.index_select(0, order) for name, p in rows.items()}
    moved |= {name: p.index_select(1, order) for name, p in columns.items()}
    return Equal(f.with_parameters(moved)(*xs), f(*xs))


@law("f(x; a W, V / a) = f(x; W, V), a > 0", every_input=True, discover_with=None)
def hidden_unit_rescaling(f: Map, *xs: Tensor, into: _Names, out_of: _Names, draw: Draw) -> Statement:
    """Scaling the incoming weights of a hidden unit by a > 0 and the outgoing ones by 1/a changes nothing.

    `into` and `out_of` are as in `hidden_unit_permutation`.

    Satisfied by: ReLU, leaky ReLU and other positively homogeneous activations.
    Broken by: GELU, tanh; a bias that is missing in `into`.
    """
    rows, columns = _parameters(f, into), _parameters(f, out_of)
    a = draw.normal(_num_hidden_units(rows, columns)).exp()
    scaled = {name: p * a.reshape([-1] + [1] * (p.dim() - 1)) for name, p in rows.items()}
    scaled |= {name: p / a.reshape([1, -1] + [1] * (p.dim() - 2)) for name, p in columns.items()}
    return Equal(f.with_parameters(scaled)(*xs), f(*xs))


@law("f(x; a W) = f(x; W), a > 0", every_input=True, discover_with=None)
def scale_free_weights(f: Map, *xs: Tensor, weights: _Names, draw: Draw) -> Statement:
    """The scale of the weights before a normalization layer does not matter.

    `weights` names the parameters that are scaled together: a weight, and its bias if there is one.

    Satisfied by: a linear layer before layer norm with eps = 0, or before batch norm in training mode with a tiny eps.
    Broken by: an activation in between that is not positively homogeneous; a residual around the layer.
    """
    found = _parameters(f, weights)
    a = draw.choice((2.0, 0.5, 10.0, 0.1), "a")
    return Equal(f.with_parameters({name: a * p for name, p in found.items()})(*xs), f(*xs))


@law("W and V are one tensor", every_input=True, discover_with=None)
def weight_sharing(f: Map, *xs: Tensor, names: tuple[str, ...], draw: Draw) -> Statement:
    """Tied parameters are one tensor: changing the first has the same effect as changing another with it.

    Satisfied by: an embedding that shares its weight with the output layer.
    Broken by: a copied weight; a weight that a later initialization replaced.
    """
    found = _parameters(f, names)
    shapes = {tuple(p.shape) for p in found.values()}
    if len(found) < 2 or len(shapes) > 1:
        raise ValueError(f"expected two or more parameters of the same shape, got {', '.join(map(str, found))}")
    value = draw.normal(*shapes.pop())
    first, *others = found
    alone = f.with_parameters({first: value})(*xs)
    together = [f.with_parameters({first: value, other: value})(*xs) for other in others]
    causes = [f"{first} and {other} are not shared" for other in others]
    return Equal([alone] * len(others), together, exact=True, exercised=True, causes=causes)
