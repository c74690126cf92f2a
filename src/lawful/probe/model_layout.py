"""Anatomy: where the parts of a residual model are.

Ways into the stream: what stands between a block and the stream, and between layers, while norms are held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.blocks.residual import LayerScale, Residual, WeightedSum, sandwich_norm
from lawful.laws import Claim, agreement, linearity, shape
from lawful.probe.record import ActivationCache, near


@dataclass(frozen=True, kw_only=True)
class ModelLayout:
    """Names the parts of a model in which every layer adds to one stream, which a norm and a head read at the end."""

    embedding: str = "embedding"
    """The table of the tokens."""
    layers: str = "layers"
    """The list of the layers; each takes the stream and returns it."""
    norm: str | None = "norm"
    """The norm before the head; None for a model without one, whose head reads the stream itself."""
    head: str = "head"
    """The linear map to the logits."""

    @property
    def reader(self) -> str:
        """What reads the stream after the last layer."""
        return self.head if self.norm is None else self.norm

    def norm_of(self, model: nn.Module) -> nn.Module:
        """The norm before the head of a model; the identity where there is none."""
        return nn.Identity() if self.norm is None else model.get_submodule(self.norm)

    def names(self, model: nn.Module) -> list[str]:
        """The names of the layers of a model."""
        return [f"{self.layers}.{i}" for i in range(len(list(model.get_submodule(self.layers).children())))]


LAYOUTS = (
    ModelLayout(),
    ModelLayout(embedding="transformer.wte", layers="transformer.h", norm="transformer.ln_f", head="lm_head"),
    ModelLayout(embedding="model.embed_tokens", layers="model.layers", norm="model.norm", head="lm_head"),
)
"""The models of this library, then GPT-2 and Llama and their kin as Hugging Face writes them."""


def infer_layout(model: nn.Module) -> ModelLayout:
    """Finds the parts of a model of this library, or of one that is laid out as GPT-2 or Llama.

    Args:
        model: The model; for one with other names, write down its `ModelLayout`.

    Examples:
        >>> parts = {"embedding": nn.Embedding(5, 3), "layers": nn.ModuleList(), "norm": nn.LayerNorm(3)}
        >>> infer_layout(nn.ModuleDict(parts | {"head": nn.Linear(3, 5)})).norm
        'norm'
    """
    known = {name for name, _ in model.named_modules(remove_duplicate=False)}
    for layout in LAYOUTS:
        if {layout.embedding, layout.layers, layout.reader, layout.head} <= known:
            return layout
    wanted = [name for name in ("embedding", "layers", "norm", "head") if name not in known]
    why = f"the model has no {wanted[0]}{near(wanted[0], known)}"
    raise ValueError(f"{why}: give an Anatomy with its own names, and norm=None if there is no norm before the head")


def frozen_norm(
    norm: nn.Module, x: Float[Tensor, "*batch d"]
) -> tuple[Callable[[Tensor], Tensor], Float[Tensor, "*batch d"]]:
    r"""Turns a norm into the affine map that it is while its scale stays as it is for $x$.

    $$\operatorname{norm}(y) \approx \frac{\gamma \odot P y}{\sigma(x)} + \beta$$

    $P$ takes off the mean for a layer norm, and nothing for an RMS norm. At $y = x$ it is exact. A sum that goes into
    the norm comes out as a sum, which is what attributing to its terms needs.

    Args:
        norm: A layer norm, an RMS norm, or the identity.
        x: $x$.

    Returns:
        The linear part, and $\beta$ in the shape of $x$.

    Examples:
        >>> linear, shift = frozen_norm(nn.LayerNorm(2), torch.tensor([1.0, 5.0]))
        >>> linear(torch.tensor([1.0, 5.0])).detach()
        tensor([-1.0000,  1.0000])
    """
    if isinstance(norm, nn.Identity):
        return lambda y: y, torch.zeros_like(x)
    centred = isinstance(norm, nn.LayerNorm)
    if not centred and not isinstance(norm, nn.RMSNorm) and not type(norm).__name__.endswith("RMSNorm"):
        raise TypeError(f"a layer norm, an RMS norm or the identity can be frozen: got {type(norm).__name__}")
    gain = getattr(norm, "weight", None)
    bias = getattr(norm, "bias", None)
    shift = torch.zeros_like(x) if bias is None else bias.expand_as(x)

    def part(y: Tensor) -> Tensor:
        y = y - y.mean(-1, keepdim=True) if centred else y
        return y if gain is None else gain * y

    whole = part(x)
    size = (whole * whole).sum(-1, keepdim=True)
    scale = torch.where(size > 0, ((norm(x) - shift) * whole).sum(-1, keepdim=True) / size.where(size > 0, 1.0), 0.0)
    return lambda y: scale * part(y), shift


def _anatomy_claims() -> Iterator[Claim]:
    """The laws that frozen norms obey."""
    at = torch.tensor([[0.5, -1.0, 2.0, 0.0]])
    for norm in (nn.LayerNorm(4), LayerNorm(4, affine=False), RMSNorm(4), nn.RMSNorm(4), nn.Identity()):

        def frozen(x: Tensor, norm: nn.Module = norm) -> Tensor:
            linear, shift = frozen_norm(norm, x)
            return linear(x) + shift

        def part(x: Tensor, norm: nn.Module = norm) -> Tensor:
            return frozen_norm(norm, at.to(x))[0](x)

        name = type(norm).__name__
        yield Claim(agreement(other=norm), frozen, shape("b t 4"), name=f"{name}, where it was frozen")
        yield Claim(linearity(), part, shape("b 4"), name=f"{name}, frozen elsewhere")


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
        >>> linear, constant = into_stream(Residual(nn.Identity(), gate=LayerScale(2, init_value=0.5)), torch.ones(1, 2))
        >>> linear(torch.tensor([[2.0, 4.0]])).detach()
        tensor([[1., 2.]])
    """
    if not isinstance(layer, Residual):
        return lambda x: x, torch.zeros_like(y)
    if layer.output_norm is not None:
        raise ValueError(f"{name} has a norm after the addition, through which the stream is no sum of what was added")
    inner, shift = frozen_norm(layer.branch_norm or nn.Identity(), y)
    gate, step = layer.gate or nn.Identity(), layer.scale
    zero = gate(torch.zeros_like(y))

    def linear(x: Tensor) -> Tensor:
        return step * (gate(inner(x)) - zero)

    with torch.no_grad():
        whole, other = linear(y), 0.75 * y.roll(1, -1)
        off = linear(0.25 * y) + linear(other) + linear(0.75 * y - other) - whole
    if not bool((off.abs() <= 1e-3 * whole.abs().max()).all()):
        raise ValueError(f"the gate of {name} is no linear map: got {type(gate).__name__} (is the model in training?)")
    return linear, step * (gate(shift) if layer.branch_norm is not None else zero)


def mixed(model: nn.Module, tape: ActivationCache, before: Float[Tensor, "*batch t d"]) -> tuple[Tensor, Tensor] | None:
    """Returns the weights of the shortcut of the model that gave a stream: of the stream so far, and of the first.

    Args:
        model: The model.
        tape: What was recorded, `embedding_skips.*` among it where the model has any.
        before: The stream.
    """
    for name, module in model.named_children():
        if name == "embedding_skips":
            for number, mix in module.named_children():
                if isinstance(mix, WeightedSum) and tape.get(f"{name}.{number}") is before:
                    a, b = mix.weight.unbind()
                    return a, b
    return None


def asked_of(model: nn.Module) -> tuple[str, ...]:
    """The names of the shortcuts of a model, to be recorded."""
    return ("embedding_skips.?*",) if getattr(model, "embedding_skips", None) is not None else ()


def _ways_claims() -> Iterator[Claim]:
    """The laws that ways into the stream obey."""
    block = nn.Linear(4, 4)
    scaled = partial(LayerScale, 4, init_value=0.3)
    for name, layer in {
        "a gate": Residual(block, gate=scaled(), scale=0.5),
        "a sandwich": sandwich_norm(block, nn.LayerNorm(4), gate=scaled()),
    }.items():

        def by_parts(x: Tensor, layer: Residual = layer) -> Tensor:
            y = block(x if layer.norm is None else layer.norm(x))
            linear, constant = into_stream(layer, y)
            return x + linear(0.3 * y) + linear(0.7 * y) + constant

        yield Claim(agreement(other=layer), by_parts, shape("b t 4"), name=f"into_stream, {name}")


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _anatomy_claims()
    yield from _ways_claims()
