"""Positions: added to the embedding, turning queries and keys, or biasing scores."""

from lawful.blocks.positions.alibi import ALiBi
from lawful.blocks.positions.learned import Learned
from lawful.blocks.positions.relative import RelativeBuckets, RelativeClipped, differences
from lawful.blocks.positions.rotary import HALVES, PAIRS, Layout, Rotary, stretched_base
from lawful.blocks.positions.sinusoidal import Sinusoidal

__all__ = [
    "HALVES",
    "PAIRS",
    "ALiBi",
    "Layout",
    "Learned",
    "RelativeBuckets",
    "RelativeClipped",
    "Rotary",
    "Sinusoidal",
    "differences",
    "stretched_base",
]
