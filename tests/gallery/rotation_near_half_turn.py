"""The logarithm of a rotation close to a half turn is computed as for a half turn (geomstats, e3nn)."""

import torch
from torch import Tensor, nn

from lawful.laws import Draw, invertibility

law = invertibility(inverse="log")
max_sizes = {"b": 1}


def inputs(draw: Draw) -> Tensor:
    """Rotation vectors shorter than a half turn, most of them slightly."""
    axis = draw.normal(draw.integer(1, 3, "b"), 3)
    draw.assume(axis.norm(dim=-1) > 0.1)
    short = draw.choice((0.01, 0.1, 1.0, 3.0), "short")
    return axis / axis.norm(dim=-1, keepdim=True) * (torch.pi - short)


class Fixed(nn.Module):
    """Converts rotation vectors to matrices and back."""

    def forward(self, v: Tensor) -> Tensor:
        zero = torch.zeros_like(v[..., 0])
        x, y, z = v.unbind(-1)
        k = torch.stack([zero, -z, y, z, zero, -x, -y, x, zero], dim=-1).unflatten(-1, (3, 3))
        return torch.linalg.matrix_exp(k)

    def log(self, r: Tensor) -> Tensor:
        """Takes the angle from the sine and the cosine, and the axis from the longest column."""
        skew = torch.stack([r[:, 2, 1] - r[:, 1, 2], r[:, 0, 2] - r[:, 2, 0], r[:, 1, 0] - r[:, 0, 1]], dim=-1) / 2
        cosine = (r.diagonal(dim1=-2, dim2=-1).sum(-1) - 1) / 2
        angle = torch.atan2(skew.norm(dim=-1), cosine)
        square = (r + r.mT) / 2 - self.rest(cosine)[:, None, None] * torch.eye(3, dtype=r.dtype, device=r.device)
        column = square.norm(dim=-2).argmax(-1)
        axis = square[torch.arange(len(r), device=r.device), :, column]
        axis = axis * torch.where((axis * skew).sum(-1, keepdim=True) < 0, -1, 1)
        near = axis / axis.norm(dim=-1, keepdim=True) * angle[:, None]
        far = skew / torch.sinc(angle / torch.pi)[:, None]
        return torch.where(cosine[:, None] < 0, near, far)

    def rest(self, cosine: Tensor) -> Tensor:
        """The part of the symmetric part that is not the square of the axis."""
        return cosine


class Broken(Fixed):
    """Uses the value of this part at a half turn."""

    def rest(self, cosine: Tensor) -> Tensor:
        return -torch.ones_like(cosine)
