"""Blocks for images and series, told of a condition such as the noise level."""

from lawful.blocks.images.attention import SpaceAttention
from lawful.blocks.images.conditioned import ConditionedConvolutions, Modulated
from lawful.blocks.images.patches import Patches
from lawful.blocks.images.resize import Halve, doubled

__all__ = ["ConditionedConvolutions", "Halve", "Modulated", "Patches", "SpaceAttention", "doubled"]
