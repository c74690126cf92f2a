"""Labels: samples, and second derivations."""

from collections.abc import Iterator

import torch
from torch import Tensor

from lawful.laws import Claim, agreement, shape
from lawful.models.generative import LabelChannels
from lawful.models.generative.protocols import sample_labels


def test_a_label_depends_only_on_seed_and_index():
    frequencies = torch.tensor([0.2, 0.5, 0.3])
    whole = sample_labels(40, frequencies, seed=2)
    assert torch.equal(sample_labels(20, frequencies, seed=2, first=15), whole[15:35])


def claims() -> Iterator[Claim]:
    """Laws of labels beside examples."""
    planes = LabelChannels((2, 3), 2)

    def one_by_one(x: Tensor) -> Tensor:
        rows = [torch.cat([row[:6].reshape(2, 3), row[6:].repeat_interleave(3).reshape(2, 3)]) for row in x]
        return torch.stack(rows)

    yield Claim(agreement(other=one_by_one), planes, shape("n 8"), name="LabelPlanes")
