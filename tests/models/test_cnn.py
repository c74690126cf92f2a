from dataclasses import replace

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

from lawful.blocks import Residual, residual_contributions
from lawful.laws import Claim, agreement, shape
from lawful.models import CNN, StridedCNN


def torch_twin(width, depth):
    def convolution(c):
        return nn.Conv2d(c, width, 3, padding=1, padding_mode="circular", bias=False)

    def half():
        return nn.BatchNorm2d(width), nn.ReLU(), convolution(width)

    blocks = [nn.Sequential(*half(), *half()) for _ in range(depth)]
    return convolution(1), nn.ModuleList(blocks), nn.Linear(width, 10)


def test_equals_torch():
    model, twin = CNN(channels=4, num_blocks=2).double(), nn.ModuleList(torch_twin(4, 2)).double()
    twin.load_state_dict(dict(zip(twin.state_dict(), model.state_dict().values(), strict=True)))
    stem, blocks, head = twin
    x = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for training in (True, False):
        model.train(training)
        twin.train(training)
        h = stem(x)
        for block in blocks:
            h = h + block(h)
        torch.testing.assert_close(model(x), head(F.adaptive_avg_pool2d(h, 1).flatten(1)))


def test_shift_invariant_only_with_circular_padding():
    torch.manual_seed(0)
    x = torch.randn(1, 1, 6, 6)
    model = CNN(channels=4).eval()
    torch.testing.assert_close(model(x.roll((2, 1), (2, 3))), model(x))
    model = CNN(channels=4, padding_mode="zeros").eval()
    assert not torch.allclose(model(x.roll((2, 1), (2, 3))), model(x))


def test_learns_digits():
    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images[:200], dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    y = torch.tensor(labels[:200])
    model = CNN(channels=8, num_blocks=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.5 * losses[0]


def test_errors():
    with pytest.raises(ValueError, match=r"expected x of shape \(b, 1, ...\) with 2 spatial axes, got \(2, 3, 8, 8\)"):
        CNN()(torch.zeros(2, 3, 8, 8))
    with pytest.raises(ValueError, match="num_blocks=-1"):
        CNN(num_blocks=-1)
    with pytest.raises(ValueError, match="channels=0"):
        CNN(channels=0)
    with pytest.raises(ValueError, match="spatial_dims must be 1, 2 or 3, got 4"):
        CNN(spatial_dims=4)


def test_series_equals_image_of_one_row():
    torch.manual_seed(0)
    series, image = (CNN(channels=4, spatial_dims=d).eval() for d in (1, 2))
    weights = {
        k: v[:, :, None] * torch.tensor([[0.0], [1], [0]]) if v.dim() == 3 else v
        for k, v in series.state_dict().items()
    }
    image.load_state_dict(weights)
    x = torch.randn(2, 1, 9)
    torch.testing.assert_close(series(x), image(x[:, :, None]))


def test_dropout_only_in_training():
    torch.manual_seed(0)
    model, x = CNN(channels=32, spatial_dims=1, dropout=0.5), torch.randn(4, 1, 9)
    assert not torch.equal(model(x), model(x))
    model.eval()
    assert torch.equal(model(x), model(x))


def test_strided_cnn_equals_torch():
    torch.manual_seed(0)
    model = StridedCNN(6)
    ends = [nn.Conv1d(1, 6, 5, stride=2, padding=1), *(nn.Conv1d(6, 6, 3, stride=2, padding=1) for _ in range(2))]
    theirs = nn.Sequential(ends[0], nn.ReLU(), ends[1], nn.ReLU(), ends[2], nn.ReLU(), nn.Flatten(), nn.Linear(30, 10))
    for p, q in zip(theirs.parameters(), model.parameters(), strict=True):
        p.data.copy_(q.data)
    x = torch.randn(7, 1, 40)
    torch.testing.assert_close(model(x), theirs(x))


def test_strided_cnn_rejects_short_series():
    with pytest.raises(ValueError, match="length must be at least 3, got 2"):
        StridedCNN(1, length=2)


def claims():
    """Second derivation of the residual network: the sum of its contributions."""
    model = CNN(1, 3, channels=2).eval()

    def summed(x):
        blocks = [block.block for block in model.blocks if isinstance(block, Residual)]
        return model.head(residual_contributions(blocks, model.stem(x)).mean((-2, -1)).sum(0))

    yield Claim(replace(agreement(other=summed), cases=20), model, shape("b 1 4 5"), name="CNN, contributions")
