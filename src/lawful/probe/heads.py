"""Heads as linear maps: what attention does to the stream while its pattern is held."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.blocks.attention import MultiHeadAttention
from lawful.blocks.attention.views import ov_factors, qk_factors
from lawful.functions.activations import identity
from lawful.functions.attention import Mask
from lawful.laws import Claim, agreement, linearity, shape
from lawful.probe.anatomy import frozen_norm
from lawful.probe.factored import Factored
from lawful.probe.record import record
from lawful.probe.tape import Tape


def _own(attention: nn.Module) -> MultiHeadAttention:
    if not isinstance(attention, MultiHeadAttention):
        came = type(attention).__name__
        raise TypeError(f"a MultiHeadAttention was wanted (read_gpt2 makes them of a GPT-2): got {came}")
    return attention


def qk_circuit(attention: MultiHeadAttention, head: int) -> Factored:
    r"""Returns what a head looks for, $M_{QK} = (W^Q)^\top W^K$: queries on the left, keys on the right.

    Args:
        attention: The layer.
        head: The number of the head.

    Examples:
        >>> qk_circuit(MultiHeadAttention(8, heads=2), 1).left.shape
        torch.Size([8, 4])
    """
    return Factored(*qk_factors(_own(attention), head))


def ov_circuit(attention: MultiHeadAttention, head: int) -> Factored:
    r"""Returns what a head moves, $M_{OV} = W^O W^V$: from where it looks, on the right, to the stream, on the left.

    Args:
        attention: The layer.
        head: The number of the head.

    Examples:
        >>> ov_circuit(MultiHeadAttention(8, heads=2), 1).right.shape
        torch.Size([4, 8])
    """
    return Factored(*ov_factors(_own(attention), head))


@dataclass(frozen=True, eq=False)
class LinearHeads:
    r"""Holds the heads of a layer with their patterns, as linear maps of the stream.

    $$h(x) = A_h \, n(x) \, (W^O_h W^V_h)^\top, \qquad n(x) = \gamma \odot P x / \sigma$$
    """

    pattern: Float[Tensor, "*batch h t s"]
    """$A$."""
    circuits: tuple[Factored, ...]
    """$W^O_h W^V_h$."""
    constant: Float[Tensor, "*batch t d"]
    """What the layer adds whatever the stream is: its biases."""
    scaled: Callable[[Tensor], Tensor]
    """$n$, the linear part of the norm before the heads."""
    way: Callable[[Tensor], Tensor] = identity
    """The linear map that what the heads find passes into the stream, such as a gate."""

    @property
    def count(self) -> int:
        """The number of heads."""
        return len(self.circuits)

    def each(self, x: Float[Tensor, "n *batch t d"]) -> Float[Tensor, "h n *batch t d"]:
        """What each head makes of each of several streams."""
        x = self.scaled(x)
        patterns = self.pattern.unbind(-3)
        found = [self.way(a @ (x @ m.right.mT) @ m.left.mT) for a, m in zip(patterns, self.circuits, strict=True)]
        return torch.stack(found)

    def together(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """What all heads make of a stream, or of several."""
        return self.each(x).sum(0)


def linear_heads(
    attention: MultiHeadAttention,
    pattern: Float[Tensor, "*batch h t s"],
    norm: nn.Module,
    x: Float[Tensor, "*batch t d"],
) -> LinearHeads:
    """Turns the heads of a layer into linear maps, with their patterns and the norm before them held.

    Args:
        attention: The layer.
        pattern: Its pattern in some run.
        norm: The norm before it.
        x: The stream before that, in the same run.
    """
    linear, shift = frozen_norm(norm, x)
    circuits = tuple(ov_circuit(attention, head) for head in range(pattern.shape[-3]))
    constant = torch.zeros_like(x) if attention.out.bias is None else attention.out.bias.expand_as(x)
    for head, (weights, circuit) in enumerate(zip(pattern.unbind(-3), circuits, strict=True)):
        moved = shift @ circuit.right.mT + _value_bias(attention, head, x)
        constant = constant + weights @ moved @ circuit.left.mT
    return LinearHeads(pattern, circuits, constant, linear)


def _value_bias(attention: MultiHeadAttention, head: int, x: Tensor) -> Tensor:
    """The bias of the values of a head."""
    if attention.value.bias is None:
        return x.new_zeros(())
    for one, part in zip(attention.sets, attention.value.bias.split(attention.sizes["value"]), strict=True):
        if head < one.count:
            return part.unflatten(0, (one.groups, -1))[head * one.groups // one.count]
        head -= one.count
    raise IndexError(f"there is no head {head}")


def pattern_of(tape: Tape, name: str) -> Float[Tensor, "*batch h t s"]:
    """Returns the pattern of all heads of a layer, also where heads of different sizes are in several sets.

    Args:
        tape: What was recorded: `pattern*` of the layer.
        name: The name of the layer.
    """
    found = [tape[key] for key in tape if key.startswith(f"{name}.pattern")]
    if not found:
        raise KeyError(f"no pattern of {name} was recorded: ask for {name}.pattern*")
    return torch.cat(found, dim=-3)


def claims() -> Iterator[Claim]:
    """The laws that heads obey as linear maps."""
    for heads, norm in ((2, nn.LayerNorm(4)), (1, nn.RMSNorm(4)), (4, nn.Identity())):
        attention = MultiHeadAttention(4, heads=heads)

        def frozen(x: Tensor, attention: MultiHeadAttention, norm: nn.Module) -> LinearHeads:
            with record(attention, "pattern") as tape:
                attention(norm(x), mask=_some(x))
            return linear_heads(attention, tape["pattern"], norm, x)

        def rebuilt(x: Tensor, attention: MultiHeadAttention = attention, norm: nn.Module = norm) -> Tensor:
            held = frozen(x, attention, norm)
            return held.together(x) + held.constant

        def direct(x: Tensor, attention: MultiHeadAttention = attention, norm: nn.Module = norm) -> Tensor:
            return attention(norm(x), mask=_some(x))

        def elsewhere(x: Tensor, attention: MultiHeadAttention = attention, norm: nn.Module = norm) -> Tensor:
            return frozen(torch.linspace(-1, 1, x[0].numel()).to(x).view_as(x[0]), attention, norm).together(x)

        name = f"{heads} heads after {type(norm).__name__}"
        yield Claim(replace(agreement(other=direct), cases=40), rebuilt, shape("b t 4"), name=name)
        yield Claim(replace(linearity(), cases=40), elsewhere, shape("b t 4"), name=name)


def _some(x: Tensor) -> Mask:
    """A causal mask without the first key, so that the first query sees nothing."""
    there = torch.arange(x.shape[-2], device=x.device) > 0
    return Mask(causal=True, padding=there.expand(x.shape[:-1]))
