"""Activations: on each number, on pairs of features, and along an axis."""

from lawful.functions.activations.gates import bilinear, geglu, glu, gtu, halves, reglu, swiglu
from lawful.functions.activations.rectifiers import elu, identity, leaky_relu, relu, relu_squared
from lawful.functions.activations.sigmoids import gelu, gelu_tanh, sigmoid, silu, softplus, tanh
from lawful.functions.activations.softmax import log_softmax, softmax

__all__ = [
    "bilinear",
    "elu",
    "geglu",
    "gelu",
    "gelu_tanh",
    "glu",
    "gtu",
    "halves",
    "identity",
    "leaky_relu",
    "log_softmax",
    "reglu",
    "relu",
    "relu_squared",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "swiglu",
    "tanh",
]
