"""The linear autoencoder, which finds the space of the principal axes by another way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.functions import normal_noise, pseudo_inverse
from lawful.laws import Claim, Draw, Map, Same, Statement, agreement, law, made


def linear_autoencoder(
    x: Float[Tensor, "n d"], *, latent: int, rounds: int = 50
) -> tuple[Float[Tensor, "d k"], Float[Tensor, "k d"]]:
    r"""Fits an encoder and a decoder without activations by least squares, each in turn while the other stays.

    $$\min_{E, D} \lVert X - X E D \rVert^2, \qquad D \leftarrow (X E)^+ X, \quad E \leftarrow D^+$$

    $X$ is taken from its mean. All minima have one $E D$, the projection onto the space of the first $k$ principal
    axes; $E$ and $D$ themselves are known up to an invertible matrix between them. The error falls by
    $\lambda_{k + 1} / \lambda_k$ in each round. With $k \ge d$ the pair is the identity and has learned nothing: it is
    the bottleneck that makes it choose.

    Reference:
        Baldi and Hornik, *Neural Networks and Principal Component Analysis*, 1989.

    Args:
        x: The data $X$, a row for each sample.
        latent: $k$, the size of a code.
        rounds: How often both are solved for.

    Returns:
        $E$ and $D$.

    Examples:
        >>> x = torch.tensor([[0.0, 0.0], [2.0, 2.0], [4.0, 4.0]])
        >>> encoder, decoder = linear_autoencoder(x, latent=1)
        >>> encoder @ decoder
        tensor([[0.5000, 0.5000],
                [0.5000, 0.5000]])
    """
    if not 1 <= latent <= x.shape[1]:
        raise ValueError(f"latent is from 1 to the {x.shape[1]} features: got {latent}")
    off = x - x.mean(0)
    encoder = normal_noise(x.shape[1], latent, seed=0, dtype=x.dtype, device=x.device)
    decoder = encoder.mT
    for _ in range(rounds):
        decoder = pseudo_inverse(off @ encoder) @ off
        encoder = pseudo_inverse(decoder)
    return encoder, decoder


def projection(axes: Float[Tensor, "k d"]) -> Float[Tensor, "d d"]:
    """Returns the orthogonal projection onto the space that rows span."""
    return pseudo_inverse(axes) @ axes


@law("rows of f(x) span the space of the first k principal axes of x", tries=None)
def principal_span(f: Map, x: Tensor, *, draw: Draw) -> Statement:
    """The decoder that a map fits to data spans the same space as the principal axes.

    `f(x)` is a matrix with a row for each entry of a code. The domain leaves out data in which the axis that is just
    left out varies nearly as much as the last that is kept: there the space is not known.

    Kept by: a linear autoencoder, fitted to the end; PCA.
    Broken by: an autoencoder that forgets the mean; one of random features; one that stopped early.
    """
    decoder = f(x)
    k = len(decoder)
    _, spread, vt = torch.linalg.svd(x - x.mean(0), full_matrices=False)
    least = torch.finfo(x.dtype).eps ** 0.5 * spread[0]
    beyond = spread[k] if k < len(spread) else torch.zeros_like(spread[0])
    draw.assume((spread[k - 1] > least) & (beyond < 0.5 * spread[k - 1]))
    return Same(projection(decoder), vt[:k].mT @ vt[:k], exercised=True)


def claims() -> Iterator[Claim]:
    """The laws that linear autoencoders obey."""
    turn = torch.tensor([[0.6, 0.8, 0.0], [-0.8, 0.6, 0.0], [0.0, 0.0, 1.0]])

    def spread(x: Tensor) -> Tensor:
        q = torch.linalg.qr(x.tanh() + 2 * torch.eye(len(x), 3).to(x)).Q
        return q * x.new_tensor([9.0, 3.0, 0.5]) @ turn.to(x) + x.new_tensor([1.0, 2.0, 0.0])

    data = made(spread, "n:6..8 3")
    for latent in (1, 2):

        def decoder(x: Tensor, latent: int = latent) -> Tensor:
            return linear_autoencoder(x, latent=latent, rounds=30)[1]

        yield Claim(replace(principal_span(), cases=10), decoder, data, name=f"linear_autoencoder(latent={latent})")

    def through(x: Tensor) -> Tensor:
        encoder, decoder = linear_autoencoder(x, latent=3, rounds=2)
        return encoder @ decoder

    square = made(lambda x: x.tanh() + 3 * torch.eye(6, 3).to(x), "6 3")
    yield Claim(agreement(other=lambda x: torch.eye(3).to(x)), through, square, name="without a bottleneck: E D = 1")
    plane = made(lambda x: x.tanh() + torch.eye(2, 4).to(x) * 3, "2 4")
    twice = agreement(other=lambda a: torch.linalg.qr(a.mT).Q @ torch.linalg.qr(a.mT).Q.mT)
    yield Claim(twice, projection, plane, name="projection")
