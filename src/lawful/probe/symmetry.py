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
    if rows.shape[0] < rows.shape[1]:
        raise ValueError(f"x gives {rows.shape[0]} equations for {rows.shape[1]} unknowns: pass more inputs")
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

    Without a basis, the logarithm of the least-squares transformation is returned. With a basis the coefficients are
    fitted by Levenberg-Marquardt; this works for vectors in a subspace as well, such as smooth images, and finds a
    generator that the logarithm loses, such as that of a rotation of images whose interpolation blurs.

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
    if basis is None:
        transition = torch.linalg.lstsq(x.double(), y.double()).solution.mT
        values, vectors = torch.linalg.eig(transition)
        if any_true(values.abs() < 1e-9):
            raise ValueError("the transformation is singular and has no logarithm: pass a basis")
        return ((vectors * values.log()) @ torch.linalg.inv(vectors)).real.to(x)
    if basis.shape[1:] != (x.shape[1], x.shape[1]):
        raise ValueError(f"expected a basis of shape (k, {x.shape[1]}, {x.shape[1]}), got {tuple(basis.shape)}")
    directions = basis.double()
    moments = torch.linalg.qr(torch.cat([x, y], 1).double()).R.mT / len(x) ** 0.5  # all that matters of the data
    before, after = moments.split(x.shape[1])

    def residual(c: Tensor) -> Tensor:
        generator = torch.einsum("k,kab->ab", c, directions)
        return (torch.linalg.matrix_exp(generator) @ before - after).flatten()

    start = torch.zeros(len(basis), dtype=torch.float64, device=x.device)
    found = levenberg_marquardt(residual, start).x
    return torch.einsum("k,kab->ab", found, directions).to(x)


def image_generators(
    height: int, width: int, *, derivative: Literal["central", "sinc"] = "central"
) -> Float[Tensor, "6 d d"]:
    r"""Returns the generators of affine motions of images: translations, rotation, scaling and shears.

    In order: $\partial_y$, $\partial_x$, $y \partial_y$, $x \partial_y$, $y \partial_x$, $x \partial_x$. The origin is
    at the center. The rotation by $\theta$ is generated by $\theta (x \partial_y - y \partial_x)$. Pixels beyond the
    border are 0.

    Args:
        height: Height of the images.
        width: Width of the images.
        derivative: "central" for central differences, or "sinc" for the derivative of Shannon-Whittaker interpolation,
            which is exact for images without frequencies above the limit of the grid.

    Examples:
        >>> image_generators(5, 7).shape
        torch.Size([6, 35, 35])
    """
    if derivative not in ("central", "sinc"):
        raise ValueError(f"derivative must be 'central' or 'sinc', got {derivative!r}")

    def differentiate(n: int) -> Tensor:
        apart = torch.arange(n)[:, None] - torch.arange(n)
        if derivative == "central":
            return (-apart / 2 * (apart.abs() == 1)).double()
        signs = 1.0 - 2.0 * (apart % 2).double()
        return torch.where(apart == 0, 0.0, signs / apart.double().where(apart != 0, 1.0))

    y, x = (torch.arange(n, dtype=torch.float64) - (n - 1) / 2 for n in (height, width))
    down = torch.kron(differentiate(height), torch.eye(width, dtype=torch.float64))
    right = torch.kron(torch.eye(height, dtype=torch.float64), differentiate(width))
    ys, xs = y.repeat_interleave(width)[:, None], x.repeat(height)[:, None]
    return torch.stack([down, right, ys * down, xs * down, ys * right, xs * right]).to(torch.get_default_dtype())


def discover_point_symmetry(
    x: Float[Tensor, "n d"], *, num_features: int = 200, threshold: float = 3.0, seed: int = 0
) -> Symmetry:
    r"""Finds the affine one-parameter groups that keep the distribution of points.

    $$\operatorname{E} \bigl[ \nabla \varphi(x)^\top (A x + b) \bigr] = 0 \quad \text{for all } \varphi$$

    Random Fourier features of the whitened points are the test functions $\varphi$. The equations are linear in $A$ and
    $b$. With $n$ points, the squared mean of a quantity of mean 0 is about $1 / n$ of its mean square, the noise. A
    symmetry has a squared violation of at most `threshold` times the noise, and the next generator `threshold` times
    more. So a small sample hides symmetries, and weak violations.

    Args:
        x: Points, at least 500.
        num_features: Number of test functions.
        threshold: Largest squared violation of a symmetry, in units of the noise.
        seed: Seed of the test functions.

    Examples:
        >>> angles = 6.283 * torch.rand(2000)
        >>> ring = torch.stack([angles.cos(), angles.sin()], 1) + 0.1 * torch.randn(2000, 2)
        >>> len(discover_point_symmetry(ring).generators)
        1
    """
    if x.dim() != 2 or len(x) < 500:
        raise ValueError(f"expected at least 500 points, of shape (n, d), got {tuple(x.shape)}")
    if any_true(~x.isfinite()):
        raise ValueError("x must be finite, got NaN or infinite values")
    n, d = x.shape
    x = x.double()
    center, covariance = x.mean(0), x.mT.cov()
    variances, axes = torch.linalg.eigh(covariance if d > 1 else covariance.reshape(1, 1))
    if float(variances[0]) <= 1e-12 * max(float(variances[-1]), 1e-300):
        raise ValueError("the points lie in a subspace: leave out columns that are constant or depend on others")
    root = (axes * variances.sqrt()) @ axes.mT  # z = root^-1 (x - center) is white
    z = (x - center) @ torch.linalg.inv(root)
    generator = torch.Generator().manual_seed(seed)
    frequencies = torch.randn(num_features, d, generator=generator, dtype=torch.float64)
    frequencies *= torch.tensor([0.5, 1.0, 2.0, 3.0], dtype=torch.float64).repeat(num_features)[:num_features, None]
    phases = 2 * torch.pi * torch.rand(num_features, generator=generator, dtype=torch.float64)
    slopes = (z.to(frequencies) @ frequencies.mT + phases).sin()  # of the features, along their frequencies
    points = torch.nn.functional.pad(z, (0, 1), value=1.0)
    means = torch.einsum("nk,kd,nb->kdb", slopes, frequencies, points).flatten(1) / n
    size = d * (d + 1)
    gram = torch.einsum("nk,na,nb->kab", slopes.square(), points, points) / n
    squares = torch.einsum("kc,kd,kab->cadb", frequencies, frequencies, gram).reshape(size, size)
    half = torch.linalg.cholesky(squares + 1e-12 * squares.diagonal().mean() * torch.eye(size, dtype=torch.float64))
    inverse = torch.linalg.inv(half)
    values, vectors = torch.linalg.eigh(inverse @ (means.mT @ means) @ inverse.mT)
    noise = (n * values).clamp_min(1.0).tolist()
    gaps = [k for k in range(1, size) if noise[k - 1] <= threshold and noise[k] > threshold * noise[k - 1]]
    count = max(gaps, default=0)
    found = (inverse.mT @ vectors[:, :count]).mT.reshape(-1, d, d + 1)
    linear = root @ found[:, :, :d] @ torch.linalg.inv(root)  # back to the coordinates of x
    shift = found[:, :, d] @ root.mT - linear @ center
    flat = torch.cat([linear, shift[:, :, None]], 2).flatten(1)
    basis = torch.linalg.svd(flat, full_matrices=False).Vh if len(flat) else flat
    return Symmetry(basis.reshape(-1, d, d + 1), None, values.clamp_min(0).sqrt())


def generator_parts(generator: Float[Tensor, "d e"]) -> dict[str, float]:
    r"""Returns how much of a generator is rotation, scaling, stretch and translation: cosines, whose squares sum to 1.

    A linear part is the sum of a skew-symmetric matrix (rotation), a multiple of the identity (scaling) and a symmetric
    matrix of trace 0 (stretch).

    Args:
        generator: Generator $[A \; b]$, or $A$ alone.

    Examples:
        >>> generator_parts(torch.tensor([[0.0, -1.0], [1.0, 0.0]]))
        {'rotation': 1.0, 'scaling': 0.0, 'stretch': 0.0, 'translation': 0.0}
    """
    d = generator.shape[0]
    if generator.dim() != 2 or generator.shape[1] not in (d, d + 1):
        raise ValueError(f"expected a generator of shape (d, d) or (d, d + 1), got {tuple(generator.shape)}")
    linear, shift = generator[:, :d], generator[:, d:]
    trace = linear.diagonal().mean() * torch.eye(d).to(linear)
    parts = {
        "rotation": (linear - linear.mT) / 2,
        "scaling": trace,
        "stretch": (linear + linear.mT) / 2 - trace,
        "translation": shift,
    }
    size = float(generator.norm()) or 1.0
    return {name: float(part.norm()) / size for name, part in parts.items()}


def name_generator(generator: Float[Tensor, "d e"], *, threshold: float = 0.9) -> str:
    """Returns the name of a generator: rotation, scaling, stretch, shear, translation, or parts joined by "and".

    A rotation or scaling about another center than 0 has its name as well.

    Args:
        generator: Generator, linear or with the column of the translation.
        threshold: Cosine with a part above which it gives the name.

    Examples:
        >>> name_generator(torch.tensor([[0.0, 1.0], [0.0, 0.0]]))
        'shear'
        >>> name_generator(torch.tensor([[0.3, -1.0], [1.0, 0.3]]), threshold=0.99)
        'rotation and scaling'
    """
    d = generator.shape[0]
    parts = generator_parts(generator)
    if parts["translation"] >= threshold:
        return "translation"
    linear = generator[:, :d]
    own = generator_parts(linear)
    for name in ("rotation", "scaling", "stretch"):
        if own[name] >= threshold:
            return name
    if float((linear @ linear).norm()) <= 0.2 * float(linear.norm()) ** 2:
        return "shear"
    return " and ".join(name for name, share in sorted(own.items(), key=lambda item: -item[1]) if share > 0.2)
