"""Means over samples and unmasked positions, and padding of the batch."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lawful import mask, shape, tokens
from lawful.laws import (
    batch_padding_invariance,
    masked_loss_ignores_masked_positions,
    mean_over_samples,
    mean_over_unmasked_positions,
    ragged_batches,
)
from tests.laws.drivers import test_broken, test_satisfied  # noqa: F401

torch.manual_seed(0)


def masked_mean(x, m):
    return (x.square().sum(-1) * m).sum() / m.sum()


def mean_over_padded_length(x, m):
    return (x.square().sum(-1) * m).mean()


def mean_of_sequence_means(x, m):
    return ((x.square().sum(-1) * m).sum(1) / m.sum(1)).mean()


def masked_sum(x, m):
    return (x.square().sum(-1) * m).sum()


def masked_in_one_place_only(x, m):
    """Counts the unmasked positions, and sums all."""
    return x.square().sum() / m.sum()


def masked_cross_entropy(logits, labels, m):
    return F.cross_entropy(logits.mT, labels.masked_fill(~m, -100))


def weighted_by_all_labels(logits, labels, m):
    """The weights of the labels are summed over masked positions, too."""
    weights = 1.0 + labels
    losses = F.cross_entropy(logits.mT, labels, reduction="none")
    return (losses * weights * m).sum() / weights.sum()


def mean_per_padded_batch(logits, labels, m):
    return F.cross_entropy(logits.mT, labels.masked_fill(~m, -100), reduction="sum") / labels.numel()


def in_batch_negatives(x, y):
    return F.cross_entropy(x @ y.mT, torch.arange(len(x)))


def batch_norm_loss(x):
    return ((x - x.mean(0)) / (x.var(0, correction=0) + 1).sqrt()).pow(3).mean()


CLASS_WEIGHTS = torch.tensor([0.2, 1.0, 3.0])


def weighted_cross_entropy(logits, labels):
    return F.cross_entropy(logits, labels, CLASS_WEIGHTS.to(logits))


samples, positions, padding = mean_over_samples(), mean_over_unmasked_positions(), batch_padding_invariance()
ignored, longer = masked_loss_ignores_masked_positions(), batch_padding_invariance(axis=1)
by_length = mean_over_samples(weights=lambda x, m: m.sum(1))
by_class = mean_over_samples(weights=lambda logits, labels: CLASS_WEIGHTS[labels])
PAIR, CLASSES = (shape("b 4"), shape("b 4")), (shape("b 3"), tokens("b", vocab_size=3))
SEQUENCES = (shape("b t 2"), mask("b t"))
LABELED = (shape("b t 3"), tokens("b t", vocab_size=3), mask("b t"))

SATISFIED = {
    "samples: a mean": (samples, PAIR, nn.MSELoss()),
    "samples: cross-entropy": (samples, CLASSES, F.cross_entropy),
    "samples: class weights": (by_class, CLASSES, weighted_cross_entropy),
    "samples: a masked mean, weighted by length": (by_length, SEQUENCES, masked_mean),
    "samples: a mean of means": (samples, SEQUENCES, mean_of_sequence_means),
    "samples: another batch axis": (mean_over_samples(batch=1), shape("3 b"), torch.mean),
    "samples: class weights as an input": (
        mean_over_samples(weights=lambda logits, labels: CLASS_WEIGHTS[labels]),
        (*CLASSES, CLASS_WEIGHTS),
        lambda logits, labels, weights: F.cross_entropy(logits, labels, CLASS_WEIGHTS.to(logits)),
    ),
    "ignored: a masked mean": (ignored, SEQUENCES, masked_mean),
    "ignored: ignore_index": (ignored, LABELED, masked_cross_entropy),
    "ignored: a mean over the padded length": (ignored, SEQUENCES, mean_over_padded_length),
    "ignored: the other polarity": (
        masked_loss_ignores_masked_positions(keep=False),
        SEQUENCES,
        lambda x, hidden: masked_mean(x, ~hidden),
    ),
    "positions: a masked mean": (positions, SEQUENCES, masked_mean),
    "positions: ignore_index": (positions, LABELED, masked_cross_entropy),
    "positions: one mask per sample": (positions, (shape("b"), mask("b")), lambda x, m: (x * m).sum() / m.sum()),
    "positions: the other polarity": (
        mean_over_unmasked_positions(keep=False),
        SEQUENCES,
        lambda x, hidden: masked_mean(x, ~hidden),
    ),
    "padding: a masked mean": (padding, SEQUENCES, masked_mean),
    "padding: ignore_index": (padding, LABELED, masked_cross_entropy),
    "padding: an output per sample": (padding, SEQUENCES, lambda x, m: (x * m[..., None]).sum((1, 2))),
    "padding: longer sequences": (longer, LABELED, masked_cross_entropy),
    "padding: longer sequences, an output per position": (longer, SEQUENCES, lambda x, m: x.tanh()),
    "padding: the other polarity": (
        batch_padding_invariance(keep=False),
        SEQUENCES,
        lambda x, hidden: masked_mean(x, ~hidden),
    ),
}
BROKEN = {
    "samples: a sum": (samples, PAIR, nn.MSELoss(reduction="sum")),
    "samples: class weights ignored": (samples, CLASSES, weighted_cross_entropy),
    "samples: a masked mean without weights": (samples, SEQUENCES, masked_mean),
    "samples: in-batch negatives": (samples, PAIR, in_batch_negatives),
    "samples: statistics of the batch": (samples, shape("b 4"), batch_norm_loss),
    "ignored: the other polarity": (ignored, SEQUENCES, lambda x, m: masked_mean(x, ~m)),
    "ignored: masked in one place only": (ignored, SEQUENCES, masked_in_one_place_only),
    "ignored: labels summed over all positions": (ignored, LABELED, weighted_by_all_labels),
    "positions: a mean over the padded length": (positions, SEQUENCES, mean_over_padded_length),
    "positions: a mean of means": (positions, SEQUENCES, mean_of_sequence_means),
    "positions: a sum": (positions, SEQUENCES, masked_sum),
    "positions: masked in one place only": (positions, SEQUENCES, masked_in_one_place_only),
    "positions: the other polarity": (positions, SEQUENCES, lambda x, m: masked_mean(x, ~m)),
    "padding: a mean over the padded batch": (padding, LABELED, mean_per_padded_batch),
    "padding: statistics of the batch": (padding, SEQUENCES, lambda x, m: x - x.mean(0)),
    "padding: longer sequences": (longer, LABELED, mean_per_padded_batch),
    "padding: masked in one place only": (padding, SEQUENCES, masked_in_one_place_only),
}
SCRIPTS = [
    "samples: a masked mean without weights",
    "ignored: labels summed over all positions",
    "positions: a mean over the padded length",
    "padding: a mean over the padded batch",
]
INAPPLICABLE = {
    "samples: an output per sample": (samples, shape("b 4"), lambda x: x.sum(1), "expected a scalar loss, got shape"),
    "ignored: no mask": (ignored, PAIR, F.mse_loss, "expected a boolean mask among the inputs"),
    "ignored: not a loss": (ignored, SEQUENCES, lambda x, m: x, "expected a scalar loss"),
    "ignored: a mask of pairs": (
        ignored,
        (shape("b t 2"), mask("b t t")),
        lambda x, m: x.sum(),
        "expected an input whose shape begins with that of the mask",
    ),
    "positions: no mask": (positions, PAIR, F.mse_loss, "expected a boolean mask among the inputs"),
    "positions: not a loss": (positions, SEQUENCES, lambda x, m: x, "expected a scalar loss"),
    "padding: no mask": (padding, PAIR, F.mse_loss, "expected a boolean mask among the inputs"),
    "padding: pooled over the batch": (
        padding,
        SEQUENCES,
        lambda x, m: x.sum((0, 1)),
        "expected a scalar loss, or an output of size",
    ),
    "ragged batches: a masked mean": (
        ragged_batches(),
        SEQUENCES,
        masked_mean,
        "expected an output per sample, got shape (): for a loss, check mean_over_samples",
    ),
}


@pytest.mark.parametrize(("law", "inputs", "f", "reason"), INAPPLICABLE.values(), ids=INAPPLICABLE)
def test_inapplicable(law, inputs, f, reason, judge):
    verdict = judge(f, law, inputs, cases=20)
    assert verdict.status == "inapplicable", verdict
    assert reason in verdict.reason


def test_weights_of_another_shape(judge):
    verdict = judge(F.mse_loss, mean_over_samples(weights=lambda x, y: x), PAIR, cases=5)
    assert (verdict.status, verdict.usage_error) == ("error", True)
    assert "weights must return one weight per sample" in verdict.reason


def test_one_sample_is_vacuous(judge):
    assert judge(nn.MSELoss(), samples, (shape("1 4"), shape("1 4")), cases=5).status == "vacuous"
