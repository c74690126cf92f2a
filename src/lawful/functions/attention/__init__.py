"""Attention functions and masks."""

from lawful.functions.attention.dense import (
    Bias,
    Kernel,
    apply_weights,
    attention_scores,
    attention_weights,
    check_kv_heads,
    fused_attention,
    masked_softmax,
    reference_attention,
    single_head,
)
from lawful.functions.attention.linear import LinearAttention, LinearAttentionState, elu_features, linear_attention
from lawful.functions.attention.lookup import kernel_regression, self_attention, soft_lookup
from lawful.functions.attention.masks import CAUSAL, NO_MASK, Mask, query_key_positions
from lawful.functions.attention.sparse import (
    ChunkedAttention,
    SlidingWindowAttention,
    chunked_attention,
    sliding_window_attention,
)

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
    "check_kv_heads",
    "chunked_attention",
    "elu_features",
    "fused_attention",
    "kernel_regression",
    "linear_attention",
    "masked_softmax",
    "query_key_positions",
    "reference_attention",
    "self_attention",
    "single_head",
    "sliding_window_attention",
    "soft_lookup",
]
