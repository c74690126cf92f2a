"""Blocks of images and the time embedding, as a user meets them."""

import pytest
import torch

from lawful.blocks import (
    ConditionalResBlock,
    Downsample,
    FourierFeatures,
    Patches,
    SpatialAttention,
    TimeEmbedding,
    upsample,
)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_conditioned_convolutions_of_any_number_of_axes(dims):
    block = ConditionalResBlock(3, 6, condition=4, dims=dims)
    x = torch.randn(2, 3, *[4] * dims)
    assert block(x, torch.randn(2, 4)).shape == (2, 6, *[4] * dims)


def test_a_block_hears_of_its_condition_once_it_is_trained():
    torch.manual_seed(0)
    block = ConditionalResBlock(2, 2, condition=3)
    for p in block.parameters():
        torch.nn.init.normal_(p)
    x = torch.randn(1, 2, 3, 3)
    assert not torch.allclose(block(x, torch.zeros(1, 3)), block(x, torch.ones(1, 3)))


@pytest.mark.parametrize("size", [(5,), (4, 7), (1, 1)])
def test_halved_and_doubled_have_the_size_again(size):
    x = torch.randn(1, 2, *size)
    assert upsample(Downsample()(x), size).shape == x.shape


def test_doubled_refuses_a_size_that_is_not_twice():
    with pytest.raises(ValueError, match="halves"):
        upsample(torch.zeros(1, 1, 3), (9,))


def test_patches_are_unfolds():
    x = torch.randn(2, 3, 4, 6)
    wanted = torch.nn.functional.unfold(x, 2, stride=2).mT
    assert torch.equal(Patches((3, 4, 6), patch=2)(x), wanted)
    with pytest.raises(ValueError, match="patches of 3"):
        Patches((1, 8, 8), patch=3)


def test_attention_begins_as_the_identity():
    x = torch.randn(1, 4, 3, 3)
    assert torch.equal(SpatialAttention(4, heads=2)(x), x)


def test_labels_of_a_time_embedding():
    embedding = TimeEmbedding(4, classes=2)
    torch.nn.init.normal_(embedding.labels)
    c = torch.zeros(1)
    null = embedding(c, torch.tensor([2]))
    assert torch.equal(embedding(c), null)
    assert not torch.allclose(embedding(c, torch.tensor([0])), null)
    with pytest.raises(ValueError, match="no labels"):
        TimeEmbedding(4)(c, torch.tensor([0]))


@pytest.mark.parametrize(
    "wrong", [lambda: FourierFeatures(3), lambda: FourierFeatures(2, low=0.0), lambda: TimeEmbedding(2, classes=-1)]
)
def test_wrong_sizes_are_refused(wrong):
    with pytest.raises(ValueError, match="got"):
        wrong()
