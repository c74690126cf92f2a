import pytest
import torch
from torch import nn

from lawful.models.cnn import StridedCNN, StridedCNNConfig


def test_equals_pytorchs_layers_one_after_another():
    torch.manual_seed(0)
    model = StridedCNN(StridedCNNConfig(width=6))
    ends = [nn.Conv1d(1, 6, 5, stride=2, padding=1), *(nn.Conv1d(6, 6, 3, stride=2, padding=1) for _ in range(2))]
    theirs = nn.Sequential(ends[0], nn.ReLU(), ends[1], nn.ReLU(), ends[2], nn.ReLU(), nn.Flatten(), nn.Linear(30, 10))
    for p, q in zip(theirs.parameters(), model.parameters(), strict=True):
        p.data.copy_(q.data)
    x = torch.randn(7, 1, 40)
    torch.testing.assert_close(model(x), theirs(x))


def test_a_series_that_is_too_short_is_refused():
    with pytest.raises(ValueError, match="length is at least 3: got 2"):
        StridedCNN(StridedCNNConfig(width=1, length=2))
