"""Spectral normalisation: a layer whose matrix stretches nothing by more than a given factor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from jaxtyping import Shaped
from torch import Tensor, nn
from torch.func import functional_call

from lawful.laws import Claim, agreement, lipschitz, shape


class SpectralNorm(nn.Module):
    r"""Divides the weight of a layer by its largest singular value.

    $$\bar W = c \, \frac{W}{\sigma_1(W)}, \qquad \sigma_1(W) = \frac{u^\top W v}{\|u\| \, \|v\|}$$

    The layer then stretches distances by at most $c$: a Lipschitz constant. The singular vectors $u$ and $v$ are found
    exactly at the beginning, and follow the weight by a step of the power method at each pass in training; their error
    enters $\sigma_1$ only squared. A convolution's weight is taken as a matrix with a row for each channel that comes
    out, as the reference does: that bounds what one place of its output does, not the whole map.

    Reference:
        Miyato, Kataoka, Koyama and Yoshida, *Spectral Normalization for Generative Adversarial Networks*, 2018.

    Args:
        layer: Any module with a parameter `weight`: a dense layer, a convolution.
        constant: $c$.
        steps: How many steps of the power method a pass in training takes.

    Examples:
        >>> block = SpectralNorm(nn.Linear(3, 2))
        >>> round(torch.linalg.matrix_norm(block.weight, 2).item(), 4)
        1.0
    """

    u: Tensor
    v: Tensor

    def __init__(self, layer: nn.Module, *, constant: float = 1.0, steps: int = 1) -> None:
        super().__init__()
        if not isinstance(getattr(layer, "weight", None), nn.Parameter) or layer.get_parameter("weight").dim() < 2:
            raise TypeError(f"a layer with a matrix `weight` was wanted: got {type(layer).__name__}")
        if not constant > 0 or steps < 1:
            raise ValueError(f"constant is above 0 and steps at least 1: got {constant} and {steps}")
        self.layer, self.constant, self.steps = layer, constant, steps
        u, _, v = torch.linalg.svd(self.matrix.detach(), full_matrices=False)
        self.register_buffer("u", u[:, 0].clone())
        self.register_buffer("v", v[0].clone())

    @property
    def matrix(self) -> Tensor:
        """$W$, with a row for each output."""
        return self.layer.get_parameter("weight").flatten(1)

    @property
    def weight(self) -> Tensor:
        r"""$\bar W$, as the layer has it."""
        largest = torch.einsum("i,ij,j->", self.u, self.matrix, self.v) / (self.u.norm() * self.v.norm())
        return self.layer.get_parameter("weight") * (self.constant / largest)

    @torch.no_grad()
    def follow(self) -> None:
        """Takes steps of the power method; a matrix of zeros leaves the vectors as they are."""
        u, v = self.u, self.v
        for _ in range(self.steps):
            ahead = self.matrix.T @ u
            v = ahead / ahead.norm() if ahead.norm() > 0 else v
            back = self.matrix @ v
            u = back / back.norm() if back.norm() > 0 else u
        self.u, self.v = u, v

    def forward(self, x: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
        """Applies the layer with the normalised weight."""
        if self.training:
            self.follow()
        return functional_call(self.layer, {"weight": self.weight}, x)


def claims() -> Iterator[Claim]:
    """The laws that spectral normalisation obeys."""
    block = SpectralNorm(nn.Linear(4, 3)).eval()
    wide = SpectralNorm(nn.Conv1d(2, 3, 2), constant=0.5).eval()
    yield Claim(lipschitz(constant=1.0), block, shape("b 4"), name="SpectralNorm(Linear)")

    def equation(x: Tensor) -> Tensor:
        weight, bias = block.layer.parameters()
        return x @ (weight / torch.linalg.svdvals(weight)[0]).T + bias

    yield Claim(agreement(other=equation), block, shape("b 4"), name="SpectralNorm(Linear)")

    def largest(x: Tensor) -> Tensor:
        moved = SpectralNorm(nn.Linear(3, 3), steps=60).to(x)
        with torch.no_grad():
            moved.layer.get_parameter("weight").copy_(x.tanh() + torch.diag(x.new_tensor([9.0, 0.0, 0.0])))
        moved.train()(x)
        return torch.linalg.matrix_norm(moved.weight, 2)

    one = replace(agreement(other=lambda x: x.new_ones(())), cases=20)
    yield Claim(one, largest, shape("3 3"), name="SpectralNorm, after the weight has moved")

    def of_kernel(x: Tensor) -> Tensor:
        return torch.linalg.matrix_norm(wide.to(x).weight.flatten(1), 2)

    half = agreement(other=lambda x: x.new_tensor(0.5))
    yield Claim(half, of_kernel, shape("2"), name="SpectralNorm(Conv1d, constant=0.5)")
