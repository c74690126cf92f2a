"""Well-known flows, built of the blocks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import nn

from lawful.blocks.flows import (
    ActNorm,
    Affine,
    Autoregressive,
    Composition,
    Coupling,
    DiagonalScale,
    Entrywise,
    InvertibleLinear,
    Level,
    LogisticLevels,
    RationalQuadratic,
    Shift,
    Waves,
)
from lawful.laws import Claim, batch_independence, made
from lawful.models.generative.bases import LOGISTIC, UNIFORM
from lawful.models.generative.flow import Flow


def spline_flow(
    shape: tuple[int, ...],
    *,
    classes: int = 0,
    layers: int = 2,
    hidden: Sequence[int] = (64, 64),
    bins: int = 16,
    box: float = 3.0,
    waves: int = 8,
    dropout: float = 0.0,
) -> Flow:
    """Builds an autoregressive flow of splines, each layer in the opposite order of the one before.

    Reference:
        Durkan, Bekasov, Murray and Papamakarios, *Neural Spline Flows*, 2019.

    Args:
        shape: The shape of an example.
        classes: How many classes there are; 0 without labels.
        layers: The number of autoregressive layers.
        hidden: The widths of the hidden layers of each network.
        bins: The pieces of a spline.
        box: Where splines end, in standard deviations.
        waves: The sines and cosines of each entry that networks see.
        dropout: The share of units that is dropped in training.

    Examples:
        >>> spline_flow((2,), hidden=[8]).log_density(torch.zeros(3, 2)).shape
        torch.Size([3])
    """
    d = math.prod(shape)
    blocks = [
        Autoregressive(
            d,
            transform=RationalQuadratic(bins=bins, box=box),
            order=_order(d, i),
            hidden=hidden,
            condition=classes,
            encoding=Waves(count=waves, box=box),
            dropout=dropout,
        )
        for i in range(layers)
    ]
    return Flow(Composition(blocks), shape=shape, classes=classes)


def autoregressive_flow(
    shape: tuple[int, ...],
    *,
    classes: int = 0,
    layers: int = 5,
    hidden: Sequence[int] = (64, 64),
    dropout: float = 0.0,
) -> Flow:
    r"""Builds a masked autoregressive flow (MAF), each layer in the opposite order of the one before.

    $$z_i = e^{s_i} x_i + t_i, \qquad |s_i| \le 2, \qquad
    x_i \mid x_1, \dots, x_{i - 1} \sim N\bigl(-e^{-s_i} t_i, \; e^{-2 s_i}\bigr)$$

    is one layer, with $s_i$ and $t_i$ of the entries before: a chain of Gaussians. Several are more than Gaussians.

    Reference:
        Papamakarios, Pavlakou and Murray, *Masked Autoregressive Flow for Density Estimation*, 2017.

    Args:
        shape: The shape of an example.
        classes: How many classes there are; 0 without labels.
        layers: The number of autoregressive layers.
        hidden: The widths of the hidden layers of each network.
        dropout: The share of units that is dropped in training.

    Examples:
        >>> [block.order for block in autoregressive_flow((3,), layers=2).blocks]
        [(0, 1, 2), (2, 1, 0)]
    """
    d = math.prod(shape)
    blocks = [
        Autoregressive(d, transform=Affine(), order=_order(d, i), hidden=hidden, condition=classes, dropout=dropout)
        for i in range(layers)
    ]
    return Flow(Composition(blocks), shape=shape, classes=classes)


def level_flow(
    shape: tuple[int, ...],
    *,
    levels: int,
    low: float = 0.0,
    high: float = 1.0,
    classes: int = 0,
    hidden: Sequence[int] = (1024,),
    components: int = 10,
    dropout: float = 0.5,
) -> Flow:
    """Builds an autoregressive flow of dequantized levels, whose density is constant on the cell of each level.

    Args:
        shape: The shape of an example.
        levels: How many levels there are.
        low: Where the cells begin, half a cell below the lowest level.
        high: Where they end.
        classes: How many classes there are; 0 without labels.
        hidden: The widths of the hidden layers of the network.
        components: The logistics that the probabilities of levels are mixed of.
        dropout: The share of units that is dropped in training.

    Examples:
        >>> flow = level_flow((8, 8), levels=17, low=-0.5, high=16.5, hidden=[8])
        >>> bool(flow.log_density(torch.full((1, 8, 8), 17.0)).isneginf())
        True
    """
    block = Autoregressive(
        math.prod(shape),
        transform=LogisticLevels(levels=levels, components=components),
        hidden=hidden,
        condition=classes,
        encoding=Level(levels),
        dropout=dropout,
    )
    return Flow(Composition([block]), shape=shape, base=UNIFORM, classes=classes).within(low, high)


def coupling_flow(
    shape: tuple[int, ...],
    *,
    transform: Entrywise | None = None,
    classes: int = 0,
    layers: int = 8,
    hidden: Sequence[int] = (64, 64),
) -> Flow:
    """Builds a flow of couplings, each after a scale fitted to the data and a learnt linear map.

    Reference:
        Dinh, Sohl-Dickstein and Bengio, *Density estimation using Real NVP*, 2017; Kingma and Dhariwal, *Glow:
        Generative Flow with Invertible 1x1 Convolutions*, 2018.

    Args:
        shape: The shape of an example, of 2 numbers or more.
        transform: What couplings apply: `Affine()`, which is bounded, unless given.
        classes: How many classes there are; 0 without labels.
        layers: The number of couplings.
        hidden: The widths of the hidden layers of each network.

    Examples:
        >>> len(coupling_flow((4,), layers=2).blocks)
        6
    """
    d, blocks = math.prod(shape), list[nn.Module]()
    for i in range(layers):
        chosen = Affine() if transform is None else transform
        coupling = Coupling(d, transform=chosen, changed=range(i % 2, d, 2), hidden=hidden, condition=classes)
        blocks += [ActNorm(d), InvertibleLinear(d), coupling]
    return Flow(Composition(blocks), shape=shape, classes=classes)


def nice(shape: tuple[int, ...], *, classes: int = 0, layers: int = 4, hidden: Sequence[int] = (64, 64)) -> Flow:
    """Builds NICE: additive couplings, which keep all volumes, and a scale for each entry at the end.

    Reference:
        Dinh, Krueger and Bengio, *NICE: Non-linear Independent Components Estimation*, 2015.

    Args:
        shape: The shape of an example, of 2 numbers or more.
        classes: How many classes there are; 0 without labels.
        layers: The number of couplings.
        hidden: The widths of the hidden layers of each network.

    Examples:
        >>> nice((2,), layers=1).blocks[1]
        DiagonalScale()
    """
    d = math.prod(shape)
    blocks = [
        Coupling(d, transform=Shift(), changed=range(i % 2, d, 2), hidden=hidden, condition=classes)
        for i in range(layers)
    ]
    return Flow(Composition([*blocks, DiagonalScale(d)]), shape=shape, base=LOGISTIC, classes=classes)


def _order(d: int, layer: int) -> range:
    """The order of d entries in a layer: as they come, and in the next layer back."""
    return range(d)[:: (-1) ** layer]


def claims() -> Iterator[Claim]:
    """The laws that flows obey."""
    for name, flow in (
        ("spline_flow", spline_flow((2,), hidden=[4], bins=2, waves=1)),
        ("autoregressive_flow", autoregressive_flow((2,), layers=2, hidden=[4])),
        ("level_flow", level_flow((3,), levels=3, low=-9.0, high=9.0, hidden=[4], components=2)),
        ("coupling_flow", coupling_flow((2,), layers=1, hidden=[4])),
        ("nice", nice((2,), layers=2, hidden=[4])),
    ):
        near = made(torch.tanh, f"n {flow.shape[0]}")
        yield Claim(replace(batch_independence(), cases=10), flow.eval().log_density, near, name=name)
