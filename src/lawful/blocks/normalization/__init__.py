"""Normalisation: which axes each runs over is a line of `normalize.OVER`."""

from lawful.blocks.normalization.ada_norm import AdaNorm
from lawful.blocks.normalization.batch_norm import BatchNorm
from lawful.blocks.normalization.group_norm import GroupNorm
from lawful.blocks.normalization.instance_norm import InstanceNorm
from lawful.blocks.normalization.layer_norm import LayerNorm
from lawful.blocks.normalization.normalize import normalize
from lawful.blocks.normalization.rms_norm import RMSNorm
from lawful.blocks.normalization.spectral_norm import SpectralNorm
from lawful.blocks.normalization.weight_norm import WeightNorm
from lawful.blocks.normalization.whitening_norm import WhiteningNorm

__all__ = [
    "AdaNorm",
    "BatchNorm",
    "GroupNorm",
    "InstanceNorm",
    "LayerNorm",
    "RMSNorm",
    "SpectralNorm",
    "WeightNorm",
    "WhiteningNorm",
    "normalize",
]
