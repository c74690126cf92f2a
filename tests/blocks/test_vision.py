"""Blocks for images and series."""

from collections.abc import Iterator

import pytest
import torch
from torch.nn import functional as F

from lawful.blocks import (
    ConditionalResBlock,
    Downsample,
    FourierFeatures,
    Patches,
    SpatialAttention,
    TimeEmbedding,
    upsample,
)
from lawful.laws import Claim, agreement, shape


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_conditional_res_block_in_any_number_of_dimensions(dims):
    block = ConditionalResBlock(3, 6, condition_dim=4, num_dims=dims)
    x = torch.randn(2, 3, *[4] * dims)
    assert block(x, torch.randn(2, 4)).shape == (2, 6, *[4] * dims)


def test_a_trained_block_depends_on_its_condition():
    torch.manual_seed(0)
    block = ConditionalResBlock(2, 2, condition_dim=3)
    for p in block.parameters():
        torch.nn.init.normal_(p)
    x = torch.randn(1, 2, 3, 3)
    assert not torch.allclose(block(x, torch.zeros(1, 3)), block(x, torch.ones(1, 3)))


@pytest.mark.parametrize("size", [(5,), (4, 7), (1, 1)])
def test_upsample_restores_the_size(size):
    x = torch.randn(1, 2, *size)
    assert upsample(Downsample()(x), size).shape == x.shape


def test_upsample_rejects_other_sizes():
    with pytest.raises(ValueError, match="halves"):
        upsample(torch.zeros(1, 1, 3), (9,))


def test_patches_are_unfolds():
    x = torch.randn(2, 3, 4, 6)
    expected = torch.nn.functional.unfold(x, 2, stride=2).mT
    assert torch.equal(Patches((3, 4, 6), patch_size=2)(x), expected)
    with pytest.raises(ValueError, match="patch_size must divide the spatial axes"):
        Patches((1, 8, 8), patch_size=3)


def test_spatial_attention_is_the_identity_at_first():
    x = torch.randn(1, 4, 3, 3)
    assert torch.equal(SpatialAttention(4, num_heads=2)(x), x)


def test_labels_of_a_time_embedding():
    embedding = TimeEmbedding(4, num_classes=2)
    torch.nn.init.normal_(embedding.labels)
    c = torch.zeros(1)
    null = embedding(c, torch.tensor([2]))
    assert torch.equal(embedding(c), null)
    assert not torch.allclose(embedding(c, torch.tensor([0])), null)
    with pytest.raises(ValueError, match="labels need num_classes"):
        TimeEmbedding(4)(c, torch.tensor([0]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FourierFeatures(3), "dim must be even and at least 2, got 3"),
        (lambda: FourierFeatures(2, min_frequency=0.0), r"0 < min_frequency <= max_frequency: got min_frequency=0\.0"),
        (lambda: TimeEmbedding(2, num_classes=-1), "num_classes must be non-negative, got -1"),
    ],
)
def test_invalid_sizes_are_rejected(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def claims() -> Iterator[Claim]:
    """Second derivations of blocks for images and series."""
    block = ConditionalResBlock(2, 4, condition_dim=3, num_dims=1)
    with torch.no_grad():
        for i, p in enumerate(block.parameters()):
            p.copy_(0.5 * torch.sin(torch.arange(p.numel()).reshape(p.shape) + i))

    def equation(x, e):
        norm = F.group_norm(x, 2, block.norm1.weight, block.norm1.bias)
        h = F.conv1d(norm * norm.sigmoid(), block.conv1.weight, block.conv1.bias, padding=1)
        scale_shift = e @ block.adaptive.linear.weight.T + block.adaptive.linear.bias
        h = F.group_norm(h, 4) * (1 + scale_shift[:, :4, None]) + scale_shift[:, 4:, None]
        h = F.conv1d(h * h.sigmoid(), block.conv2.weight, block.conv2.bias, padding=1)
        skip = torch.einsum("oc,nct->not", block.skip.weight[..., 0], x) + block.skip.bias[:, None]
        return h + skip

    yield Claim(agreement(other=equation), block, (shape("n 2 4"), shape("n 3")), name="ConditionalResBlock")

    def fresh(x, e):
        return ConditionalResBlock(2, 2, condition_dim=3).to(x)(x, e)

    identity = agreement(other=lambda x, e: 1 * x)
    yield Claim(identity, fresh, (shape("n 2 3 3"), shape("n 3")), name="identity at first")
    attention = SpatialAttention(2)
    with torch.no_grad():
        attention.attention.out.weight.copy_(torch.tensor([[0.5, -1.0], [2.0, 0.3]]))

    def attended(x):
        z, a = F.group_norm(x, 2, attention.norm.weight, attention.norm.bias).flatten(2).mT, attention.attention
        q, k, v = (z @ m.weight.T + m.bias for m in (a.query, a.key, a.value))
        y = torch.softmax(q @ k.mT / 2**0.5, -1) @ v @ a.out.weight.T + a.out.bias
        return x + y.mT.reshape(x.shape)

    yield Claim(agreement(other=attended), attention, shape("n 2 2 3"))

    def cut(x):
        return torch.stack([x[:, :, i : i + 2, j : j + 2].flatten(1) for i in (0, 2) for j in (0, 2, 4)], 1)

    yield Claim(agreement(other=cut), Patches((2, 4, 6), patch_size=2), shape("n 2 4 6"))
    halves = agreement(other=lambda x: torch.stack([x[:, :, :2].flatten(1), x[:, :, 2:].flatten(1)], 1))
    yield Claim(halves, Patches((3, 4), patch_size=2), shape("n 3 4"))
    yield Claim(agreement(other=lambda x: (x[..., ::2] + x[..., 1::2]) / 2), Downsample(), shape("n 2 6"))
    repeated = agreement(other=lambda x: torch.stack([x, x], -1).flatten(-2))
    yield Claim(repeated, lambda x: upsample(x, (6,)), shape("n 1 3"), name="upsample")
