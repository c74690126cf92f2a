import pytest
import torch
from torch import nn
from torch.nn import functional as F

import lawful
from lawful.blocks import LConv, conv_to_lconv, shift_generators
from lawful.laws import translation_equivariance
from lawful.probe import image_generators


@pytest.mark.parametrize(("size", "bias"), [(1, True), (3, False), (5, True)])
def test_on_translations_it_is_a_circular_convolution(size, bias):
    conv = nn.Conv1d(3, 4, size, padding=size // 2, padding_mode="circular", bias=bias)
    x = torch.randn(2, 3, 9)
    torch.testing.assert_close(conv_to_lconv(conv, 9)(x.mT).mT, conv(x))
    assert (conv_to_lconv(conv, 9).bias is not None) == bias


def test_every_lconv_of_shifts_is_a_circular_convolution():
    layer = LConv(2, 3, generators=shift_generators(7), bias=False)
    w0, back, ahead = layer.weight.detach()
    kernel = torch.stack([ahead, w0 - back - ahead, back]).permute(2, 1, 0)  # reads the point before, itself, the next
    x = torch.randn(4, 7, 2)
    expected = F.conv1d(F.pad(x.mT, (1, 1), mode="circular"), kernel).mT
    torch.testing.assert_close(layer(x), expected)


def test_equals_the_formula_with_loops():
    layer, f = LConv(2, 3, num_points=5, num_generators=4, rank=2), torch.randn(6, 5, 2)
    expected = f @ layer.weight[0] + layer.bias
    for i in range(4):
        expected = expected + layer.generators()[i] @ f @ layer.weight[i + 1]
    torch.testing.assert_close(layer(f), expected)
    assert torch.linalg.matrix_rank(layer.generators()[0]) == 2
    torch.testing.assert_close(layer(f[0]), expected[0])


def test_a_low_rank_has_fewer_parameters():
    def count(**options):
        return sum(p.numel() for p in LConv(1, 1, num_points=100, bias=False, **options).parameters())

    assert count() == 100 * 100 + 2
    assert count(rank=3) == 2 * 100 * 3 + 2


def test_generators_are_learned():
    """A layer with one generator learns a small rotation of images."""
    torch.manual_seed(0)
    turn = 0.1 * (image_generators(4, 4)[3] - image_generators(4, 4)[4])
    x = torch.randn(256, 16, 1)
    y = x + turn @ x
    layer = LConv(1, 1, num_points=16, bias=False)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.02)
    for _ in range(300):
        optimizer.zero_grad()
        F.mse_loss(layer(x), y).backward()
        optimizer.step()
    moved = layer.weight[0, 0, 0] * torch.eye(16) + layer.weight[1, 0, 0] * layer.generators()[0]
    torch.testing.assert_close(moved, torch.eye(16) + turn, rtol=0, atol=0.02)


def test_learned_generators_are_not_translations():
    report = lawful.check(LConv(1, 1, num_points=6), translation_equivariance(axis=1), inputs=lawful.shape("b 6 1"))
    assert report["translation_equivariance"].status == "refuted"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LConv(1, 1), "either num_points, to learn generators, or generators"),
        (lambda: LConv(1, 1, num_points=4, generators=torch.eye(4)[None]), "either num_points"),
        (lambda: LConv(1, 1, generators=torch.ones(4, 4)), r"shape \(k, n, n\), got \(4, 4\)"),
        (lambda: LConv(1, 1, generators=torch.full((1, 2, 2), torch.nan)), "must be finite"),
        (lambda: LConv(1, 1, generators=torch.eye(4)[None], rank=2), "rank is for learned generators"),
        (lambda: LConv(1, 1, num_points=4, rank=5), "rank must be from 1 to num_points=4, got 5"),
        (lambda: LConv(1, 1, num_points=0), "num_points must be positive"),
        (lambda: LConv(2, 1, num_points=4)(torch.randn(3, 5, 2)), r"features of shape \(\*batch, 4, 2\), got"),
        (lambda: shift_generators(4, 2), "kernel_size must be odd and from 1 to n=4, got 2"),
        (lambda: conv_to_lconv(nn.Conv1d(1, 1, 3, padding=1), 5), "conv must have an odd kernel, circular padding"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("rank", [None, 2])
def test_the_scale_at_the_start_does_not_depend_on_the_number_of_points(rank):
    scales = []
    for n in (16, 256):
        layer = LConv(1, 1, num_points=n, num_generators=20, rank=rank)
        full = layer.full if rank is None else layer.left @ layer.right.mT
        scales.append(float(full.detach().std() * n))
    assert scales == pytest.approx([1, 1], rel=0.2)


def test_the_weights_at_the_start_are_centered_and_keep_the_variance():
    weight = LConv(40, 50, num_points=5, num_generators=3).weight.detach()
    assert float(weight.mean().abs()) < 0.01
    assert float(weight.square().sum((0, 1)).mean()) == pytest.approx(1, rel=0.1)
