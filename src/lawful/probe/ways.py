"""Ways into the stream: what stands between a block and the stream, and between layers, while norms are held."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.blocks.residual import Residual, sandwich_norm
from lawful.blocks.transformer import LayerScale, Mix
from lawful.laws import Claim, agreement, shape
from lawful.probe.anatomy import frozen_norm
from lawful.probe.tape import Tape

Way = Callable[[Tensor], Tensor]


def into_stream(
    layer: nn.Module, y: Float[Tensor, "*batch t d"], *, name: str = "the layer"
) -> tuple[Way, Float[Tensor, "*batch t d"]]:
    r"""Returns the affine map by which a residual layer adds what its block gives, its inner norm held as at $y$.

    $$x + h \, g(\operatorname{norm}'(y)) \approx x + L y + c$$

    A layer that is no `Residual` is taken to add it as it is.

    Args:
        layer: The layer.
        y: What its block gave.
        name: What to call it in messages.

    Returns:
        $L$, and $c$ in the shape of $y$.

    Raises:
        ValueError: where the gate is no linear map (dropout in training is none), or a norm comes after the addition.

    Examples:
        >>> linear, constant = into_stream(Residual(nn.Identity(), gate=LayerScale(2, start=0.5)), torch.ones(1, 2))
        >>> linear(torch.tensor([[2.0, 4.0]])).detach()
        tensor([[1., 2.]])
    """
    if not isinstance(layer, Residual):
        return lambda x: x, torch.zeros_like(y)
    if layer.after is not None:
        raise ValueError(f"{name} has a norm after the addition, through which the stream is no sum of what was added")
    inner, shift = frozen_norm(layer.inner or nn.Identity(), y)
    gate, step = layer.gate or nn.Identity(), layer.step
    zero = gate(torch.zeros_like(y))

    def linear(x: Tensor) -> Tensor:
        return step * (gate(inner(x)) - zero)

    with torch.no_grad():
        whole, other = linear(y), 0.75 * y.roll(1, -1)
        off = linear(0.25 * y) + linear(other) + linear(0.75 * y - other) - whole
    if not bool((off.abs() <= 1e-3 * whole.abs().max()).all()):
        raise ValueError(f"the gate of {name} is no linear map: got {type(gate).__name__} (is the model in training?)")
    return linear, step * (gate(shift) if layer.inner is not None else zero)


def mixed(model: nn.Module, tape: Tape, before: Float[Tensor, "*batch t d"]) -> tuple[Tensor, Tensor] | None:
    """Returns the weights of the shortcut of the model that gave a stream: of the stream so far, and of the first.

    Args:
        model: The model.
        tape: What was recorded, `shortcuts.*` among it where the model has any.
        before: The stream.
    """
    for name, module in model.named_children():
        if name == "shortcuts":
            for number, mix in module.named_children():
                if isinstance(mix, Mix) and tape.get(f"{name}.{number}") is before:
                    a, b = mix.weight.unbind()
                    return a, b
    return None


def asked_of(model: nn.Module) -> tuple[str, ...]:
    """The names of the shortcuts of a model, to be recorded."""
    return ("shortcuts.?*",) if getattr(model, "shortcuts", None) is not None else ()


def claims() -> Iterator[Claim]:
    """The laws that ways into the stream obey."""
    block = nn.Linear(4, 4)
    scaled = partial(LayerScale, 4, start=0.3)
    for name, layer in {
        "a gate": Residual(block, gate=scaled(), step=0.5),
        "a sandwich": sandwich_norm(block, nn.LayerNorm(4), gate=scaled()),
    }.items():

        def by_parts(x: Tensor, layer: Residual = layer) -> Tensor:
            y = block(x if layer.norm is None else layer.norm(x))
            linear, constant = into_stream(layer, y)
            return x + linear(0.3 * y) + linear(0.7 * y) + constant

        yield Claim(agreement(other=layer), by_parts, shape("b t 4"), name=f"into_stream, {name}")
