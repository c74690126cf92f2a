"""The values that inputs are filled with: the styles that hide bugs, and how tensors lie in memory."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from lawful.laws.language.inputs import Bits, Domain, Like, Simplex, Tokens

Shape = tuple[int, ...]


def _normal(shape: Shape, g: Generator) -> Tensor:
    return torch.randn(shape, generator=g, dtype=torch.float64)


def _positive(shape: Shape, g: Generator) -> Tensor:
    return torch.rand(shape, generator=g, dtype=torch.float64)


def _repeated(shape: Shape, g: Generator) -> Tensor:
    """One slice of the last axis, the same everywhere."""
    return _normal(shape[-1:], g).expand(shape).clone()


def _one_hot(shape: Shape, g: Generator) -> Tensor:
    if not shape:
        return torch.ones((), dtype=torch.float64)
    hot = torch.randint(shape[-1], shape[:-1], generator=g)
    return torch.nn.functional.one_hot(hot, shape[-1]).double()


def _peaky(shape: Shape, g: Generator) -> Tensor:
    """One entry thirty times the others."""
    x = _normal(shape, g)
    x.reshape(-1)[int(torch.randint(max(x.numel(), 1), (1,), generator=g))] *= 30
    return x


def _whole(shape: Shape, g: Generator) -> Tensor:
    """Small whole numbers, with many ties."""
    return torch.randint(-3, 4, shape, generator=g).double()


def _far(shape: Shape, g: Generator) -> Tensor:
    """Far from the origin."""
    return _normal(shape, g) + 50


def _zero_slices(shape: Shape, g: Generator) -> Tensor:
    """Some slices of the last axis zero."""
    x = _normal(shape, g)
    return x * torch.randint(0, 2, (*shape[:-1], 1) if shape else (), generator=g)


def _zero(shape: Shape, g: Generator) -> Tensor:
    return torch.zeros(shape, dtype=torch.float64)


def _level(shape: Shape, g: Generator) -> Tensor:
    """Constant along the last axis."""
    return _normal((*shape[:-1], 1) if shape else (), g).expand(shape).clone()


def _tiny(shape: Shape, g: Generator) -> Tensor:
    return _normal(shape, g) * 1e-6


def _huge(shape: Shape, g: Generator) -> Tensor:
    return _normal(shape, g) * 1e6


ORDINARY = (_normal, _normal, _normal, _positive, _repeated, _one_hot, _peaky, _whole, _far)
EXTREME = (_zero_slices, _zero, _level, _tiny, _huge)
STYLES = ORDINARY + EXTREME


def reals(shape: Shape, style: int, g: Generator) -> tuple[Tensor, bool]:
    """Draws real numbers in a style, and says whether the style is extreme; each fits float32 exactly."""
    return STYLES[style](shape, g).float().double(), style >= len(ORDINARY)


SIMPLEX_STYLES = 5


def simplex(shape: Shape, style: int, g: Generator) -> tuple[Tensor, bool]:
    """Draws probabilities: even, uneven, all but certain, the same everywhere, or (extreme) with zeros."""
    x = _normal(shape, g) * (1.0, 3.0, 10.0, 0.0, 1.0)[style]
    if style == 4:
        x = x.masked_fill((x < 0) & (x < x.amax(-1, keepdim=True)), -torch.inf)
    return x.softmax(-1), style == 4


MASK_STYLES = 4


def bits(shape: Shape, style: int, g: Generator) -> tuple[Tensor, bool]:
    """Draws a mask: all there, a prefix there, any, or (extreme) any with an empty row."""
    x = torch.rand(shape, generator=g)
    if not shape or style == 0:
        return torch.ones(shape, dtype=torch.bool), False
    if style == 1:
        count = torch.randint(1, shape[-1] + 1, (*shape[:-1], 1), generator=g)
        return (torch.arange(shape[-1]) < count).expand(shape).clone(), False
    there = x > 0.4
    if style == 2:
        return there | (x == x.amax(-1, keepdim=True)), False
    rows = there.reshape(-1, shape[-1])
    rows[int(torch.randint(rows.shape[0], (1,), generator=g))] = False
    return rows.reshape(shape), True


def like(example: Tensor, shape: Shape, style: int, g: Generator) -> tuple[Tensor, bool]:
    """Draws values as an example has them: itself, cut or repeated to the shape; its entries at random; real
    numbers of its size where it has both signs.
    """
    if example.numel() == 0:
        return example.new_zeros(shape), False
    if example.dtype is torch.bool:
        return bits(shape, style % MASK_STYLES, g)
    flat = example.reshape(-1)
    if style == 0:
        x = example
        for axis, n in enumerate(shape):
            x = x.index_select(axis, torch.arange(n) % x.shape[axis])
        return x.clone(), False
    if not example.is_floating_point() and not example.is_complex():
        low, high = int(flat.min()), int(flat.max())
        return torch.randint(low, high + 1, shape, generator=g).to(example.dtype), False
    if example.is_floating_point() and (flat < 0).any() and (flat > 0).any():
        x, extreme = reals(shape, style, g)
        return x * float(flat.double().std().nan_to_num(1.0) or 1.0), extreme
    return flat[torch.randint(flat.numel(), shape, generator=g)], False


def styles(domain: Domain) -> int:
    """How many styles a domain has."""
    if isinstance(domain, Tokens):
        return 1
    if isinstance(domain, Simplex):
        return SIMPLEX_STYLES
    return MASK_STYLES if isinstance(domain, Bits) else len(STYLES)


def fill(domain: Domain, shape: Shape, style: int, g: Generator) -> tuple[Tensor, bool]:
    """Draws the entries of an input, and says whether they are extreme."""
    if isinstance(domain, Tokens):
        return torch.randint(domain.vocab, shape, generator=g), False
    if isinstance(domain, Bits):
        return bits(shape, style, g)
    if isinstance(domain, Simplex):
        return simplex(shape, style, g)
    if isinstance(domain, Like):
        return like(domain.example, shape, style, g)
    return reals(shape, style, g)


LAYOUTS = ("contiguous", "transposed", "strided")


def lay(x: Tensor, layout: str) -> Tensor:
    """Returns a copy of `x` that lies otherwise in memory; differentiable."""
    if layout == "transposed" and x.dim() >= 2:
        return x.transpose(-1, -2).clone(memory_format=torch.contiguous_format).transpose(-1, -2)
    if layout == "strided" and x.dim() >= 1:
        return torch.stack([x, x], dim=-1)[..., 0]
    return x.clone()
