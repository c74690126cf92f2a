"""Distances and divergences between distributions, from probabilities and from logits."""

from lawful.functions.divergences.entropies import (
    cross_entropy,
    cross_entropy_from_logits,
    entropy,
    entropy_from_logits,
    information,
)
from lawful.functions.divergences.jensen_shannon import (
    jensen_shannon,
    jensen_shannon_distance,
    jensen_shannon_distance_from_logits,
    jensen_shannon_from_logits,
)
from lawful.functions.divergences.kullback_leibler import (
    kl_divergence,
    kl_divergence_from_logits,
    reverse_kl_divergence,
    reverse_kl_divergence_from_logits,
)
from lawful.functions.divergences.lp_distance import lp_distance, lp_distance_from_logits
from lawful.functions.divergences.total_variation import (
    total_variation,
    total_variation_from_logits,
    total_variation_over_events,
)

__all__ = [
    "cross_entropy",
    "cross_entropy_from_logits",
    "entropy",
    "entropy_from_logits",
    "information",
    "jensen_shannon",
    "jensen_shannon_distance",
    "jensen_shannon_distance_from_logits",
    "jensen_shannon_from_logits",
    "kl_divergence",
    "kl_divergence_from_logits",
    "lp_distance",
    "lp_distance_from_logits",
    "reverse_kl_divergence",
    "reverse_kl_divergence_from_logits",
    "total_variation",
    "total_variation_from_logits",
    "total_variation_over_events",
]
