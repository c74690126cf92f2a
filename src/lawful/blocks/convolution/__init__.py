"""Convolutions and pooling."""

from lawful.blocks.convolution.convolution import Convolution
from lawful.blocks.convolution.convolve import convolve
from lawful.blocks.convolution.matrix import as_matrix, parameter_count
from lawful.blocks.convolution.padding import CIRCULAR, FULL, NONE, REFLECT, SAME, Padding
from lawful.blocks.convolution.pooling import AveragePool, GlobalPool, MaxPool, global_average, global_max
from lawful.blocks.convolution.recovery import as_convolution
from lawful.blocks.convolution.sizes import output_size
from lawful.blocks.convolution.transposed import TransposedConvolution

__all__ = [
    "CIRCULAR",
    "FULL",
    "NONE",
    "REFLECT",
    "SAME",
    "AveragePool",
    "Convolution",
    "GlobalPool",
    "MaxPool",
    "Padding",
    "TransposedConvolution",
    "as_convolution",
    "as_matrix",
    "convolve",
    "global_average",
    "global_max",
    "output_size",
    "parameter_count",
]
