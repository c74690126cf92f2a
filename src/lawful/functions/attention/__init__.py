"""Attention: values averaged by how similar their keys are to a query."""

from lawful.functions.attention.dense import (
    Bias,
    Kernel,
    apply_weights,
    attention_scores,
    attention_weights,
    fused_attention,
    masked_softmax,
    reference_attention,
)
from lawful.functions.attention.linear import LinearAttention, LinearAttentionState, elu_features
from lawful.functions.attention.lookup import kernel_regression, look_up, self_attention
from lawful.functions.attention.masks import CAUSAL, NO_MASK, Mask
from lawful.functions.attention.sparse import ChunkedAttention, SlidingWindowAttention, window_attention

__all__ = [
    "CAUSAL",
    "NO_MASK",
    "Bias",
    "ChunkedAttention",
    "Kernel",
    "LinearAttention",
    "LinearAttentionState",
    "Mask",
    "SlidingWindowAttention",
    "apply_weights",
    "attention_scores",
    "attention_weights",
    "elu_features",
    "fused_attention",
    "kernel_regression",
    "look_up",
    "masked_softmax",
    "reference_attention",
    "self_attention",
    "window_attention",
]
