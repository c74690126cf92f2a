r"""L-conv: convolution along the generators of a Lie group, which are given or learned."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.functions._validation import any_true
from lawful.laws import Claim, agreement, shape, translation_equivariance


class LConv(nn.Module):
    r"""Lie algebra convolution: a linear map of features at each point, and along each generator.

    $$y = f W_0 + \sum_{i=1}^k L_i f W_i + b$$

    The features $f$ have a row for each of $n$ points, such as pixels. A generator $L_i$ is an $n \times n$ matrix:
    $1 + \epsilon L_i$ moves all features a little. With generators of low rank $L_i = U_i V_i^\top$ the layer has
    $2 n r$ instead of $n^2$ parameters per generator. With the generators of translations, `shift_generators`, it is a
    circular convolution.

    Reference:
        Dehmamy, Walters, Liu, Wang and Yu, *Automatic Symmetry Discovery with Lie Algebra Convolutional Network*, 2021.

    Args:
        in_channels: Number of input channels.
        out_channels: Number of output channels.
        num_points: Number of points, to learn the generators.
        num_generators: Number of learned generators.
        rank: Rank of the learned generators. Defaults to full matrices.
        generators: Fixed generators, instead of learned ones.
        bias: Whether to add a bias.

    Examples:
        >>> layer = LConv(3, 8, num_points=49, num_generators=2, rank=5)
        >>> layer(torch.randn(10, 49, 3)).shape, layer.generators().shape
        (torch.Size([10, 49, 8]), torch.Size([2, 49, 49]))
    """

    fixed: Tensor | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        num_points: int | None = None,
        num_generators: int = 1,
        rank: int | None = None,
        generators: Float[Tensor, "k n n"] | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if (num_points is None) == (generators is None):
            raise ValueError("expected either num_points, to learn generators, or generators")
        self.left = self.right = self.full = None
        if generators is not None:
            if generators.dim() != 3 or generators.shape[1] != generators.shape[2]:
                raise ValueError(f"expected generators of shape (k, n, n), got {tuple(generators.shape)}")
            if any_true(~generators.isfinite()):
                raise ValueError("generators must be finite, got NaN or infinite values")
            if rank is not None:
                raise ValueError(f"rank is for learned generators, got rank={rank} with generators")
            k = len(generators)
        else:
            n, k = num_points or 0, num_generators
            if n < 1 or k < 0:
                raise ValueError(f"num_points must be positive and num_generators at least 0, got {n} and {k}")
            if rank is not None and not 1 <= rank <= n:
                raise ValueError(f"rank must be from 1 to num_points={n}, got {rank}")
            if rank is None:
                self.full = nn.Parameter(torch.randn(k, n, n) / n)
            else:
                self.left = nn.Parameter(torch.randn(k, n, rank) / n**0.5)
                self.right = nn.Parameter(torch.randn(k, n, rank) / (n * rank) ** 0.5)
        self.register_buffer("fixed", None if generators is None else generators.to(torch.get_default_dtype()))
        self.weight = nn.Parameter(torch.empty(1 + k, in_channels, out_channels))
        self.bias = nn.Parameter(torch.zeros(out_channels)) if bias else None
        bound = (3 / (in_channels * (1 + k))) ** 0.5
        nn.init.uniform_(self.weight, -bound, bound)

    def generators(self) -> Float[Tensor, "k n n"]:
        """Returns the generators as matrices."""
        if self.fixed is not None:
            return self.fixed
        if self.full is not None:
            return self.full
        return self.left @ self.right.mT  # type: ignore[operator, union-attr]

    def forward(self, f: Float[Tensor, "*batch n c"]) -> Float[Tensor, "*batch n d"]:
        """Applies the layer.

        Args:
            f: Features of the points.
        """
        n = next(t for t in (self.fixed, self.full, self.left) if t is not None).shape[1]
        if f.dim() < 2 or f.shape[-2:] != (n, self.weight.shape[1]):
            raise ValueError(f"expected features of shape (*batch, {n}, {self.weight.shape[1]}), got {tuple(f.shape)}")
        y = f @ self.weight[0]
        if self.left is not None and self.right is not None:
            moved = self.left @ (self.right.mT @ f.unsqueeze(-3))
        else:
            moved = self.generators() @ f.unsqueeze(-3)
        y = y + torch.einsum("...knc,kcd->...nd", moved, self.weight[1:])
        return y if self.bias is None else y + self.bias

    def extra_repr(self) -> str:
        k, c, d = self.weight.shape
        kind = "fixed" if self.fixed is not None else "learned"
        rank = "" if self.left is None else f", rank={self.left.shape[-1]}"
        return f"{c}, {d}, {k - 1} {kind} generators{rank}"


def shift_generators(n: int, kernel_size: int = 3) -> Float[Tensor, "k n n"]:
    r"""Returns $S^j - 1$ for the circular shifts $S^j$ of a kernel, $j \ne 0$: the translations of $n$ points.

    Args:
        n: Number of points.
        kernel_size: Odd number of shifts; 3 has the two shifts by one point.

    Examples:
        >>> shift_generators(3)[1]
        tensor([[-1.,  0.,  1.],
                [ 1., -1.,  0.],
                [ 0.,  1., -1.]])
    """
    if kernel_size < 1 or kernel_size % 2 == 0 or kernel_size > n:
        raise ValueError(f"kernel_size must be odd and from 1 to n={n}, got {kernel_size}")
    identity, reach = torch.eye(n), kernel_size // 2
    shifts = [identity.roll(j, 0) - identity for j in range(-reach, reach + 1) if j]
    return torch.stack(shifts) if shifts else identity.new_zeros(0, n, n)


def conv_to_lconv(conv: nn.Conv1d, num_points: int) -> LConv:
    r"""Returns the `LConv` that equals a circular convolution of $n$ points.

    $$\sum_j S^j f K_j = f \sum_j K_j + \sum_{j \ne 0} (S^j - 1) f K_j$$

    Args:
        conv: Convolution with an odd kernel, circular padding of half its size, stride 1, dilation 1 and one group.
        num_points: Number of points.

    Examples:
        >>> conv = nn.Conv1d(2, 4, 3, padding=1, padding_mode="circular")
        >>> x = torch.randn(5, 2, 10)
        >>> torch.allclose(conv_to_lconv(conv, 10)(x.mT).mT, conv(x), atol=1e-5)
        True
    """
    (size,) = conv.kernel_size
    same = conv.padding == (size // 2,) and conv.stride == conv.dilation == (1,) and conv.groups == 1
    if size % 2 == 0 or not same or (conv.padding_mode != "circular" and size > 1):
        raise ValueError(
            "conv must have an odd kernel, circular padding of half its size, stride 1, dilation 1 and one group, got "
            f"{conv}"
        )
    generators = shift_generators(num_points, size)
    layer = LConv(conv.in_channels, conv.out_channels, generators=generators, bias=conv.bias is not None)
    kernels = conv.weight.detach().permute(2, 1, 0).flip(0)  # a cross-correlation: kernel k reads point k - reach
    with torch.no_grad():
        rest = [j for j in range(size) if j != size // 2]
        layer.weight.copy_(torch.cat([kernels.sum(0, keepdim=True), kernels[rest]]))
        if layer.bias is not None and conv.bias is not None:
            layer.bias.copy_(conv.bias)
    return layer.to(conv.weight.dtype)


def claims() -> Iterator[Claim]:
    """With the generators of translations, L-conv is a circular convolution."""
    conv = nn.Conv1d(2, 3, 5, padding=2, padding_mode="circular")
    layer = conv_to_lconv(conv, 7)

    def convolve(f: Tensor) -> Tensor:
        kernel = conv.weight.to(f)
        padded = F.pad(f.mT, (2, 2), mode="circular")
        return F.conv1d(padded, kernel, None if conv.bias is None else conv.bias.to(f)).mT

    yield Claim(agreement(other=convolve), layer, shape("b 7 2"), name="LConv of shifts")
    shifts = partial(LConv, 2, 3, generators=shift_generators(6))
    yield Claim(translation_equivariance(axis=1), shifts(), shape("b 6 2"), name="LConv of shifts")
