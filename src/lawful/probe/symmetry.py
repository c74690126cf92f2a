r"""Symmetry discovery: the generators of the continuous symmetries of a map, or of a transformation of data.

A one-parameter group of affine maps $x \mapsto e^{tA} x$ has the generator $A$, with $x$ in homogeneous coordinates
$(x, 1)$. A map is invariant under the group if its derivative along $A x$ is 0, a linear equation for $A$.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.functions._validation import any_true
from lawful.solvers import levenberg_marquardt


@dataclass(frozen=True)
class Symmetry:
    r"""Generators of the symmetries of a map.

    Args:
        generators: Orthonormal basis of the generators, each a linear part and a translation $[A \; b]$.
        output_generators: The same on the output, for an equivariant map.
        singular_values: Singular values of the equations for a generator, ascending, relative to the largest. Those of
            the symmetries are 0 up to rounding, or up to the error of a trained model.
    """

    generators: Float[Tensor, "k d e"]
    output_generators: Float[Tensor, "k o p"] | None
    singular_values: Float[Tensor, " m"]

    def contains(self, generator: Float[Tensor, "d e"]) -> float:
        """Returns how much of a generator lies in the span of the symmetries, from 0 to 1.

        Args:
            generator: Generator, with or without the column of the translation.
        """
        d, e = self.generators.shape[1:]
        if generator.shape == (d, d):
            generator = torch.nn.functional.pad(generator, (0, 1))
        if generator.shape != (d, e):
            raise ValueError(f"expected a generator of shape ({d}, {d}) or ({d}, {e}), got {tuple(generator.shape)}")
        basis = torch.linalg.svd(self.generators.flatten(1), full_matrices=False).Vh
        return float((basis @ generator.to(basis).flatten()).norm() / generator.norm())

    def names(self, threshold: float = 0.99) -> list[str]:
        """Returns the symmetries among rotations, translations and scaling, and the number of generators beyond them.

        Args:
            threshold: Fraction of a generator that must lie in the span of the symmetries.
        """
        d = self.generators.shape[1]
        unit = torch.eye(d)
        known = {
            "rotations": [torch.outer(a, b) - torch.outer(b, a) for a, b in itertools.combinations(unit, 2)],
            "translations": [torch.cat([torch.zeros(d, d), unit[i][:, None]], 1) for i in range(d)],
            "scaling": [unit],
        }
        found, explained = [], 0
        for name, generators in known.items():
            if len(self.generators) and generators and all(self.contains(g) > threshold for g in generators):
                found.append(name)
                explained += len(generators)
        rest = len(self.generators) - explained
        return [*found, f"{rest} more"] if rest > 0 else found


def discover_symmetry(
    f: Callable[[Tensor], Tensor],
    x: Float[Tensor, "n *points d"],
    *,
    output: Literal["invariant", "equivariant"] = "invariant",
    tolerance: float = 1e-4,
) -> Symmetry:
    r"""Finds all affine one-parameter groups under which a map is invariant or equivariant.

    $$D f(x) \, (A x + b) = B f(x) + c \quad \text{for all } x$$

    with $B = c = 0$ for an invariant map. The equations are linear in $A$, $b$, $B$ and $c$; their null space is the
    Lie algebra of the symmetry group. $A$ acts on the last axis of the input, such as the coordinates of all points of
    a cloud, and $B$ on the last axis of the output. The map is evaluated in the dtype of `x`; float64 separates exact
    symmetries from approximate ones.

    Args:
        f: Differentiable map of a batch.
        x: Inputs, at random: the more the better.
        output: "invariant" or "equivariant".
        tolerance: Largest relative singular value of a symmetry.

    Examples:
        >>> found = discover_symmetry(lambda x: x.square().sum(-1), torch.randn(100, 3, dtype=torch.float64))
        >>> found.names()
        ['rotations']
    """
    if output not in ("invariant", "equivariant"):
        raise ValueError(f"output must be 'invariant' or 'equivariant', got {output!r}")
    if x.dim() < 2 or len(x) < 2:
        raise ValueError(f"expected at least two inputs, of shape (n, ..., d), got {tuple(x.shape)}")
    if any_true(~x.isfinite()):
        raise ValueError("x must be finite, got NaN or infinite values")
    d, size = x.shape[-1], x.shape[1:].numel()
    y = f(x).detach()
    y = y.reshape(len(x), -1, 1) if output == "invariant" or y.dim() < 2 else y.reshape(len(x), -1, y.shape[-1])
    jacobian = torch.func.vmap(torch.func.jacrev(lambda one: f(one.unsqueeze(0)).flatten()), randomness="same")(x)
    jacobian = jacobian.detach().reshape(len(x), -1, size // d, d).double()
    points = torch.nn.functional.pad(x.reshape(len(x), -1, d).double(), (0, 1), value=1.0)
    rows = torch.einsum("nopa,npb->noab", jacobian, points).flatten(2)
    o = y.shape[-1]
    if output == "equivariant":
        moved = torch.nn.functional.pad(y.double(), (0, 1), value=1.0)
        moved = torch.einsum("ac,nqb->nqacb", torch.eye(o, dtype=torch.float64, device=x.device), moved).flatten(3)
        rows = torch.cat([rows, -moved.reshape(len(x), -1, moved.shape[-1])], -1)
    rows = rows.flatten(0, 1)
    values, vectors = torch.linalg.eigh(rows.mT @ rows)
    singular = values.clamp_min(0).sqrt() / values[-1].sqrt().clamp_min(torch.finfo(torch.float64).tiny)
    null = vectors[:, singular <= tolerance].mT
    inputs, outputs = null[:, : d * (d + 1)], null[:, d * (d + 1) :]
    if output == "equivariant" and len(null):  # generators that move the input, orthonormal there
        u, size, _ = torch.linalg.svd(inputs, full_matrices=False)
        combine = u[:, size > 1e-3].mT / size[size > 1e-3, None]
        inputs, outputs = combine @ inputs, combine @ outputs
    found = outputs.reshape(len(outputs), o, o + 1) if output == "equivariant" else None
    return Symmetry(inputs.reshape(len(inputs), d, d + 1), found, singular)


def fit_generator(
    x: Float[Tensor, "n d"], y: Float[Tensor, "n d"], *, basis: Float[Tensor, "k d d"] | None = None
) -> Float[Tensor, "d d"]:
    r"""Fits the generator of a linear transformation from pairs $y \approx e^A x$.

    $$\min_A \sum_i \lVert e^A x_i - y_i \rVert^2, \qquad A = \sum_k c_k B_k$$

    The transformation is estimated by least squares. Without a basis its logarithm is returned. With a basis the
    coefficients are fitted by Levenberg-Marquardt; this finds a generator that the logarithm loses, such as that of a
    rotation of images whose interpolation blurs.

    Args:
        x: Vectors, more than dimensions.
        y: Transformed vectors.
        basis: Basis $B_k$ of possible generators, such as `image_generators(7, 7)`.

    Examples:
        >>> x, turn = torch.randn(100, 2), torch.tensor([[0.0, -0.3], [0.3, 0.0]])
        >>> torch.allclose(fit_generator(x, x @ turn.matrix_exp().T), turn, atol=1e-4)
        True
    """
    if x.shape != y.shape or x.dim() != 2 or len(x) < x.shape[1]:
        raise ValueError(f"expected x and y of shape (n, d) with n >= d, got {tuple(x.shape)} and {tuple(y.shape)}")
    if any_true(~(x.isfinite() & y.isfinite())):
        raise ValueError("x and y must be finite, got NaN or infinite values")
    root = torch.linalg.qr(x.double()).R.mT / len(x) ** 0.5  # the data enter by their second moments only
    transition = torch.linalg.lstsq(x.double(), y.double()).solution.mT
    if basis is None:
        values, vectors = torch.linalg.eig(transition)
        if any_true(values.abs() < 1e-9):
            raise ValueError("the transformation is singular and has no logarithm: pass a basis")
        return ((vectors * values.log()) @ torch.linalg.inv(vectors)).real.to(x)
    if basis.shape[1:] != transition.shape:
        raise ValueError(f"expected a basis of shape (k, {x.shape[1]}, {x.shape[1]}), got {tuple(basis.shape)}")
    directions = basis.double()

    def residual(c: Tensor) -> Tensor:
        generator = torch.einsum("k,kab->ab", c, directions)
        return ((torch.linalg.matrix_exp(generator) - transition) @ root).flatten()

    start = torch.zeros(len(basis), dtype=torch.float64, device=x.device)
    found = levenberg_marquardt(residual, start).x
    return torch.einsum("k,kab->ab", found, directions).to(x)


def image_generators(height: int, width: int) -> Float[Tensor, "6 d d"]:
    r"""Returns the generators of affine motions of images: translations, rotation, scaling and shears.

    In order: $\partial_y$, $\partial_x$, $y \partial_y$, $x \partial_y$, $y \partial_x$, $x \partial_x$. The origin is
    at the center. The rotation by $\theta$ is generated by $\theta (x \partial_y - y \partial_x)$. Derivatives are
    central differences; pixels beyond the border are 0.

    Args:
        height: Height of the images.
        width: Width of the images.

    Examples:
        >>> image_generators(5, 7).shape
        torch.Size([6, 35, 35])
    """

    def derivative(n: int) -> Tensor:
        ones = torch.ones(n - 1, dtype=torch.float64) / 2
        return torch.diag(ones, 1) - torch.diag(ones, -1)

    y, x = (torch.arange(n, dtype=torch.float64) - (n - 1) / 2 for n in (height, width))
    down = torch.kron(derivative(height), torch.eye(width, dtype=torch.float64))
    right = torch.kron(torch.eye(height, dtype=torch.float64), derivative(width))
    ys, xs = y.repeat_interleave(width)[:, None], x.repeat(height)[:, None]
    return torch.stack([down, right, ys * down, xs * down, ys * right, xs * right]).to(torch.get_default_dtype())
