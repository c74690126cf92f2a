r"""Enforces a symmetry on any module: averages over a finite group, over a frame, or canonicalizes the input.

$$\bar f(x) = \frac{1}{\lvert F(x) \rvert} \sum_{g \in F(x)} g \cdot f(g^{-1} \cdot x), \qquad F(g \cdot x) = g F(x)$$

The frame $F(x)$ is a set of group elements that moves with the input. All elements of a finite group are a frame; one
element is a canonicalization. Then $\bar f$ is equivariant, whatever $f$ is; without the $g$ in front it is invariant.
If $f$ already is, $\bar f = f$.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Literal, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lawful.functions._validation import any_true
from lawful.groups import SE2, SE3, SO2, SO3, Cyclic, Dihedral, Euclidean, Group, Orthogonal, homogeneous_matrix
from lawful.laws import Claim, equivariance, invariance, shape

_Action = Callable[[Tensor, Tensor], Tensor]


class Frame(Protocol):
    """Maps an input to group elements, along the first axis, that move with the input."""

    def __call__(self, x: Tensor, /) -> Tensor:
        """Returns the elements."""
        ...


def _all_elements(group: Group) -> Frame:
    if not hasattr(group, "elements"):
        raise ValueError(f"{group!r} is not finite: pass a frame, such as PrincipalAxes({group!r})")
    return lambda x: group.elements().to(x.device)  # type: ignore[attr-defined]


class PrincipalAxes:
    r"""Frame of a point cloud: its centroid and principal axes, for rotations and rigid motions.

    The axes are the eigenvectors of the covariance matrix, whose signs are arbitrary. With `signs="all"` the frame has
    an element for each choice: $2^d$ for O(d) and E(d), $2^{d-1}$ for SO(d) and SE(d). With `signs="skewness"` it has
    one element: the third moment along each axis is positive, and the last axis of a rotation follows from the others.

    The axes are not defined if variances are equal, nor the signs of a symmetric point cloud; the map jumps there.

    Reference:
        Puny, Atzmon, Ben-Hamu, Misra, Grover, Smith and Lipman, *Frame Averaging for Invariant and Equivariant Network
        Design*, 2022.

    Args:
        group: `Orthogonal(d)`, `SO2()`, `SO3()`, `Euclidean(d)`, `SE2()` or `SE3()`.
        signs: "all" or "skewness".

    Examples:
        >>> PrincipalAxes(Euclidean(3))(torch.randn(10, 5, 3)).shape
        torch.Size([8, 10, 1, 4, 4])
    """

    def __init__(self, group: Group, *, signs: Literal["all", "skewness"] = "all") -> None:
        if not isinstance(group, Orthogonal | Euclidean | SO2 | SO3 | SE2 | SE3):
            raise ValueError(f"group must be Orthogonal(d), SO2(), SO3(), Euclidean(d), SE2() or SE3(), got {group!r}")
        if signs not in ("all", "skewness"):
            raise ValueError(f"signs must be 'all' or 'skewness', got {signs!r}")
        self.group, self.signs = group, signs
        self.moves = isinstance(group, Euclidean | SE2 | SE3)
        self.proper = not isinstance(group, Orthogonal | Euclidean)
        self.dim = group.identity().shape[-1] - self.moves

    def __call__(self, x: Float[Tensor, "*batch n d"]) -> Float[Tensor, "k *batch 1 e e"]:
        """Returns the elements, for points along the last axis but one.

        Args:
            x: Points.
        """
        if x.dim() < 2 or x.shape[-1] != self.dim or not x.shape[-2]:
            expected = f"(*batch, n, {self.dim}) with n of at least 1"
            raise ValueError(f"expected points of shape {expected}, got {tuple(x.shape)}")
        if any_true(~x.isfinite()):
            raise ValueError("points must be finite, got NaN or infinite values")
        center = x.mean(-2, keepdim=True) if self.moves else torch.zeros_like(x[..., :1, :])
        centered = x - center
        axes = torch.linalg.eigh(centered.mT @ centered).eigenvectors
        elements = axes * self._choose_signs(centered @ axes, axes)
        if self.moves:
            elements = homogeneous_matrix(elements, center[..., 0, :].expand(*elements.shape[:-2], -1))
        return elements[..., None, :, :]

    def _choose_signs(self, along: Tensor, axes: Tensor) -> Tensor:
        """Returns the signs of the axes, of shape (k, *batch, 1, d)."""
        d = axes.shape[-1]
        if self.signs == "skewness":
            third = along.pow(3).sum(-2, keepdim=True)
            signs = torch.where(third < 0, -1.0, 1.0).to(along)[None]
        else:
            choices = torch.tensor(list(itertools.product((1.0, -1.0), repeat=d - self.proper))).to(along)
            choices = torch.nn.functional.pad(choices, (0, d - choices.shape[1]), value=1.0)
            signs = choices.reshape(-1, *[1] * (axes.dim() - 1), d)
        if not self.proper:
            return signs
        last = torch.linalg.det(axes * signs).sign()[..., None, None]
        return torch.cat([signs[..., :-1].expand(*last.shape[:-1], -1), signs[..., -1:] * last], -1)


def lexicographic_order(x: Float[Tensor, "*batch n d"]) -> Int[Tensor, "*batch n"]:
    """Returns the indices that sort rows by the first column, then by the second and so on.

    `x` in this order does not depend on the order of the rows: a canonical form under permutations.

    Args:
        x: Rows.

    Examples:
        >>> lexicographic_order(torch.tensor([[1.0, 2.0], [0.0, 5.0], [1.0, 1.0]]))
        tensor([1, 2, 0])
    """
    order = torch.arange(x.shape[-2], device=x.device).expand(x.shape[:-1])
    for column in reversed(x.unbind(-1)):
        order = order.gather(-1, column.gather(-1, order).argsort(dim=-1, stable=True))
    return order


def rotate_image(g: Tensor, x: Float[Tensor, "*batch height width"]) -> Float[Tensor, "*batch height width"]:
    """Rotates images by quarter turns, and reflects them: the action of `Cyclic(4)` and `Dihedral(4)` on pixels.

    Args:
        g: One element: quarter turns, or a pair of quarter turns and 1 for a reflection before them.
        x: Images.

    Examples:
        >>> rotate_image(torch.tensor(1), torch.tensor([[1, 2], [3, 4]]))
        tensor([[2, 4],
                [1, 3]])
    """
    turns, flip = (g, 0) if g.dim() == 0 else g.unbind(-1)
    return torch.rot90(x.flip(-1) if flip else x, int(turns), (-2, -1))


def symmetrize(
    function: Callable[[Tensor], Tensor],
    group: Group,
    *,
    output: Literal["invariant", "equivariant"] | _Action = "invariant",
    frame: Frame | None = None,
    act: _Action | None = None,
) -> Callable[[Tensor], Tensor]:
    r"""Returns a function that is made invariant or equivariant.

    $$\bar f(x) = \frac{1}{\lvert F(x) \rvert} \sum_{g \in F(x)} g \cdot f(g^{-1} \cdot x)$$

    It calls the function once for each element of the frame: $n$ times for `Cyclic(n)`, $2^d$ times for `PrincipalAxes`
    of E(d), once for a canonicalization.

    Args:
        function: Any function of one input.
        group: Group. Its action on the last axis is the default action.
        output: "invariant", "equivariant" (the output transforms like the input), or the action on the output.
        frame: Frame. Defaults to all elements of a finite group.
        act: Action on the input, such as `rotate_image`.

    Examples:
        >>> largest = symmetrize(lambda x: x[..., 0].square(), Cyclic(3))
        >>> largest(torch.tensor([1.0, 2.0, 3.0])), largest(torch.tensor([3.0, 1.0, 2.0]))
        (tensor(4.6667), tensor(4.6667))
    """
    if isinstance(output, str) and output not in ("invariant", "equivariant"):
        raise ValueError(f"output must be 'invariant', 'equivariant' or an action, got {output!r}")
    elements = _all_elements(group) if frame is None else frame
    act_in = group.act if act is None else act
    act_out = act_in if output == "equivariant" else None if isinstance(output, str) else output

    def average(x: Tensor) -> Tensor:
        outputs = []
        for g in elements(x):
            y = function(act_in(group.inverse(g), x))
            outputs.append(y if act_out is None else act_out(g, y))
        return torch.stack(outputs).mean(0)

    return average


class Symmetrized(nn.Module):
    """A module that is made invariant or equivariant, by `symmetrize`.

    Args:
        module: Any module of one input.
        group: Group. Its action on the last axis is the default action.
        output: "invariant", "equivariant" (the output transforms like the input), or the action on the output.
        frame: Frame. Defaults to all elements of a finite group.
        act: Action on the input, such as `rotate_image`.

    Examples:
        >>> network = nn.Sequential(nn.Flatten(), nn.Linear(15, 8), nn.Tanh(), nn.Linear(8, 1))
        >>> symmetric = Symmetrized(network, Euclidean(3), frame=PrincipalAxes(Euclidean(3)))
        >>> x, g = torch.randn(2, 5, 3), Euclidean(3).sample()
        >>> torch.allclose(symmetric(x), symmetric(Euclidean(3).act(g, x)), atol=1e-4)
        True
    """

    def __init__(
        self,
        module: Callable[[Tensor], Tensor],
        group: Group,
        *,
        output: Literal["invariant", "equivariant"] | _Action = "invariant",
        frame: Frame | None = None,
        act: _Action | None = None,
    ) -> None:
        super().__init__()
        self.module, self.group = module, group
        self.output, self.frame, self.act = output, frame, act
        self._symmetrized()

    def forward(self, x: Tensor) -> Tensor:
        """Returns the average over the frame.

        Args:
            x: Input.
        """
        return self._symmetrized()(x)

    def _symmetrized(self) -> Callable[[Tensor], Tensor]:
        return symmetrize(self.module, self.group, output=self.output, frame=self.frame, act=self.act)

    def extra_repr(self) -> str:
        output = self.output if isinstance(self.output, str) else "acted on"
        return f"{self.group}, output={output!r}"


def claims() -> Iterator[Claim]:
    """Laws of symmetrized modules."""
    network = nn.Sequential(nn.Flatten(-2), nn.Linear(15, 8), nn.Tanh(), nn.Linear(8, 15), nn.Unflatten(-1, (5, 3)))
    points = shape("b 5 3")
    for group in (Orthogonal(3), SO3(), Euclidean(3), SE3()):
        symmetric = Symmetrized(network, group, output="equivariant", frame=PrincipalAxes(group))
        yield Claim(equivariance(group=group, axis=-1), symmetric, points, name=f"Symmetrized({group})")
    mlp = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 6))
    for finite in (Cyclic(6), Dihedral(6)):
        yield Claim(invariance(group=finite), Symmetrized(mlp, finite), shape("b 6"), name=f"Symmetrized({finite})")
        symmetric = Symmetrized(mlp, finite, output="equivariant")
        yield Claim(equivariance(group=finite), symmetric, shape("b 6"), name=f"Symmetrized({finite})")
