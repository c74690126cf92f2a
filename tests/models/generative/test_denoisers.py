"""Denoising networks."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.laws import Claim, agreement, batch_independence, shape
from lawful.models.generative.denoisers import (
    ConditionalNetwork,
    PatchTransformer,
    TimeMLP,
    UNet,
    _MLPBlock,
    _TransformerBlock,
)

NETWORKS = {
    "mlp": lambda shape: TimeMLP(shape, dim=8, num_layers=1, num_classes=3),
    "unet": lambda shape: UNet(shape, channels=8, num_heads=1, num_classes=3),
    "transformer": lambda shape: PatchTransformer(shape, dim=8, num_layers=1, num_heads=2, num_classes=3),
}


@pytest.mark.parametrize("shape", [(1, 8, 8), (2, 6)], ids=str)
@pytest.mark.parametrize("name", NETWORKS)
def test_all_parameters_learn_and_labels_matter(name, shape):
    torch.manual_seed(0)
    network = NETWORKS[name](shape)
    assert isinstance(network, ConditionalNetwork)
    x, c, labels = torch.randn(4, *shape), torch.randn(4), torch.tensor([0, 1, 2, 3])
    assert torch.equal(network(x, c), torch.zeros_like(x))
    for p in network.parameters():
        torch.nn.init.normal_(p, std=0.3)
    y = network(x, c, labels)
    y.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in network.parameters())
    assert not torch.allclose(y[0], network(x, c)[0])
    assert not torch.allclose(y, network(x, c + 1, labels))
    torch.testing.assert_close(y[3], network(x, c)[3])


def test_odd_sizes_and_depths_of_unets():
    network = UNet((3, 5, 7), channels=4, channel_multipliers=(1, 2, 3), num_blocks=2, num_heads=0)
    assert network(torch.zeros(1, 3, 5, 7), torch.zeros(1)).shape == (1, 3, 5, 7)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: UNet((3,)), r"a shape \(c, t\), .* got \(3,\)"),
        (lambda: UNet((1, 4), channel_multipliers=()), r"channel_multipliers, .* got .*channel_multipliers=\(\)"),
        (lambda: TimeMLP(()), r"a shape of sizes >= 1, got \(\)"),
        (lambda: PatchTransformer((1, 5, 5)), r"patch_size must divide .* got shape=\(1, 5, 5\), patch_size=2"),
        (
            lambda: PatchTransformer((1, 4), dim=4)(torch.zeros(1, 1, 6), torch.zeros(1)),
            r"x of shape \(n, 1, 4\), got \(1, 1, 6\)",
        ),
    ],
)
def test_invalid_sizes(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def _time_mlp_claims() -> Iterator[Claim]:
    """Laws of the perceptron with a noise level."""
    network = TimeMLP((2,), dim=4, num_layers=1)
    with torch.no_grad():
        for i, p in enumerate(network.parameters()):
            p.copy_(0.6 * torch.sin(torch.arange(p.numel()).reshape(p.shape) + i))
    inputs = (shape("n 2"), shape("n"))

    def equation(x: Tensor, c: Tensor) -> Tensor:
        def dense(layer: nn.Linear, x: Tensor) -> Tensor:
            return torch.einsum("oi,ni->no", layer.weight, x) + layer.bias

        def norm(layer: nn.Module, x: Tensor) -> Tensor:
            z = (x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True, correction=0) + 1e-5).sqrt()
            return z * layer.get_parameter("weight") + layer.get_parameter("bias")

        def silu(x: Tensor) -> Tensor:
            return x / (1 + (-x).exp())

        (block,) = (layer for layer in network.layers if isinstance(layer, _MLPBlock))
        e = silu(network.embedding(c))
        h = dense(network.stem, x)
        scale, shift = dense(block.modulated.linear, e).chunk(2, 1)
        h = h + dense(block.down, silu((1 + scale) * dense(block.up, norm(block.norm, h)) + shift))
        return dense(network.head, silu(norm(network.norm, h)))

    yield Claim(agreement(other=equation), network, inputs)
    yield Claim(batch_independence(), network, inputs)


def _unet_claims() -> Iterator[Claim]:
    """Laws of the U-Net."""
    image = UNet((1, 3, 4), channels=2, num_heads=1, num_classes=2)
    series = UNet((2, 5), channels=2, num_heads=0)
    with torch.no_grad():
        for network in (image, series):
            for i, p in enumerate(network.parameters()):
                p.copy_(0.5 * torch.sin(torch.arange(p.numel()).reshape(p.shape) + i))
    yield Claim(replace(batch_independence(), cases=20), image, (shape("n:2..3 1 3 4"), shape("n:2..3")))

    def written(x: Tensor, c: Tensor) -> Tensor:
        """Without loops: two sizes, a block each."""
        e = F.silu(series.embedding(c))
        (down_1,), (down_2,) = series.down  # pyrefly: ignore [not-iterable]
        (up_2,), (up_1, up_0) = series.up  # pyrefly: ignore [not-iterable]
        a = series.stem(x)
        b = down_1(a, e)
        small = down_2(torch.cat([(b[..., [0, 2]] + b[..., [1, 3]]) / 2, b[..., 4:]], -1), e)
        h = series.middle[1](series.middle[0](small, e), e)
        h = up_2(torch.cat([h, small], 1), e)[..., [0, 0, 1, 1, 2]]
        h = up_0(torch.cat([up_1(torch.cat([h, b], 1), e), a], 1), e)
        return series.head(F.silu(series.norm(h)))

    yield Claim(
        replace(agreement(other=written), cases=20), series, (shape("n 2 5"), shape("n")), name="UNet of series"
    )


def _patch_transformer_claims() -> Iterator[Claim]:
    """Laws of the transformer of patches."""
    network = PatchTransformer((1, 4), dim=2, num_heads=1, num_layers=1)
    with torch.no_grad():
        for i, p in enumerate(network.parameters()):
            p.copy_(0.5 * torch.sin(torch.arange(p.numel()).reshape(p.shape) + i))
    inputs = (shape("n 1 4"), shape("n"))
    yield Claim(replace(batch_independence(), cases=20), network, inputs)

    def written(x: Tensor, c: Tensor) -> Tensor:
        e = F.silu(network.embedding(c))
        (layer,) = (one for one in network.layers if isinstance(one, _TransformerBlock))
        a, b, g, a_2, b_2, g_2 = layer.modulation(e)[:, None].unflatten(-1, (6, 2)).unbind(-2)
        h = x.reshape(-1, 2, 2) @ network.stem.weight.T + network.stem.bias + network.positions

        def norm(h: Tensor) -> Tensor:
            return (h - h.mean(-1, keepdim=True)) / (h.var(-1, keepdim=True, correction=0) + 1e-5).sqrt()

        h = h + g * layer.attention(norm(h) * (1 + a) + b)
        h = h + g_2 * layer.feed_forward(norm(h) * (1 + a_2) + b_2)
        scale, shift = network.modulation(e)[:, None].chunk(2, -1)
        return network.head(norm(h) * (1 + scale) + shift).reshape(x.shape)

    yield Claim(replace(agreement(other=written), cases=20), network, inputs)


def claims() -> Iterator[Claim]:
    """Second derivations of denoising networks."""
    yield from _time_mlp_claims()
    yield from _unet_claims()
    yield from _patch_transformer_claims()
