"""Attention: values averaged by how similar their keys are to a query."""

from lawful.functions.attention.chunked import Chunked
from lawful.functions.attention.fused import fused_attention
from lawful.functions.attention.linear import Linear, LinearState, elu_features
from lawful.functions.attention.masks import CAUSAL, EVERYTHING, Mask
from lawful.functions.attention.plain import Kernel, plain_attention
from lawful.functions.attention.pooling import kernel_regression, look_up, self_attention
from lawful.functions.attention.scores import Bias, apply_weights, attention_scores, attention_weights, masked_softmax
from lawful.functions.attention.window import Window, window_attention

__all__ = [
    "CAUSAL",
    "EVERYTHING",
    "Bias",
    "Chunked",
    "Kernel",
    "Linear",
    "LinearState",
    "Mask",
    "Window",
    "apply_weights",
    "attention_scores",
    "attention_weights",
    "elu_features",
    "fused_attention",
    "kernel_regression",
    "look_up",
    "masked_softmax",
    "plain_attention",
    "self_attention",
    "window_attention",
]
