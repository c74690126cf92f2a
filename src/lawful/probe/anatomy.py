"""Anatomy: where the parts of a residual model are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.blocks import LayerNorm, RMSNorm
from lawful.laws import Claim, agreement, linearity, shape
from lawful.probe.tape import near


@dataclass(frozen=True, kw_only=True)
class Anatomy:
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
    Anatomy(),
    Anatomy(embedding="transformer.wte", layers="transformer.h", norm="transformer.ln_f", head="lm_head"),
    Anatomy(embedding="model.embed_tokens", layers="model.layers", norm="model.norm", head="lm_head"),
)
"""The models of this library, then GPT-2 and Llama and their kin as Hugging Face writes them."""


def anatomy_of(model: nn.Module) -> Anatomy:
    """Finds the parts of a model of this library, or of one that is laid out as GPT-2 or Llama.

    Args:
        model: The model; for one with other names, write down its `Anatomy`.

    Examples:
        >>> parts = {"embedding": nn.Embedding(5, 3), "layers": nn.ModuleList(), "norm": nn.LayerNorm(3)}
        >>> anatomy_of(nn.ModuleDict(parts | {"head": nn.Linear(3, 5)})).norm
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
    centred = isinstance(norm, nn.LayerNorm | LayerNorm)
    if not centred and not isinstance(norm, nn.RMSNorm | RMSNorm) and not type(norm).__name__.endswith("RMSNorm"):
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


def claims() -> Iterator[Claim]:
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
