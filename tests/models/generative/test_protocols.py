"""Second derivations of labels."""

from collections.abc import Iterator

import torch
from torch import Tensor

from lawful.laws import Claim, agreement, shape
from lawful.models.generative import LabelChannels


def claims() -> Iterator[Claim]:
    """Laws of labels beside examples."""
    planes = LabelChannels((2, 3), 2)

    def one_by_one(x: Tensor) -> Tensor:
        rows = [torch.cat([row[:6].reshape(2, 3), row[6:].repeat_interleave(3).reshape(2, 3)]) for row in x]
        return torch.stack(rows)

    yield Claim(agreement(other=one_by_one), planes, shape("n 8"), name="LabelPlanes")
