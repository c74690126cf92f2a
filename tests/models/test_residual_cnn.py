import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

from lawful.blocks import FULL, NONE, SAME
from lawful.models import ResidualCNN, ResidualCNNConfig


def torch_twin(width, depth):
    def convolution(c):
        return nn.Conv2d(c, width, 3, padding=1, padding_mode="circular", bias=False)

    def half():
        return nn.BatchNorm2d(width), nn.ReLU(), convolution(width)

    blocks = [nn.Sequential(*half(), *half()) for _ in range(depth)]
    return convolution(1), nn.ModuleList(blocks), nn.Linear(width, 10)


def test_equals_torch():
    model, twin = ResidualCNN(ResidualCNNConfig(width=4, depth=2)).double(), nn.ModuleList(torch_twin(4, 2)).double()
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


def test_shifts_matter_with_zeros_around_the_image():
    torch.manual_seed(0)
    x = torch.randn(1, 1, 6, 6)
    model = ResidualCNN(ResidualCNNConfig(width=4)).eval()
    torch.testing.assert_close(model(x.roll((2, 1), (2, 3))), model(x))
    model = ResidualCNN(ResidualCNNConfig(width=4, padding=SAME)).eval()
    assert not torch.allclose(model(x.roll((2, 1), (2, 3))), model(x))


def test_it_learns_digits():
    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images[:200], dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    y = torch.tensor(labels[:200])
    model = ResidualCNN(ResidualCNNConfig(width=8, depth=1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.5 * losses[0]


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match=r"1 channels and 2 space axes was wanted: got shape \(2, 3, 8, 8\)"):
        ResidualCNN(ResidualCNNConfig())(torch.zeros(2, 3, 8, 8))
    with pytest.raises(ValueError, match="depth is at least 0: got -1"):
        ResidualCNN(ResidualCNNConfig(depth=-1))
    with pytest.raises(ValueError, match="channels and groups are at least 1: got channels 0 and 1"):
        ResidualCNN(ResidualCNNConfig(width=0))
    for padding in (NONE, FULL):
        with pytest.raises(ValueError, match="a padding that keeps the size was wanted: got Padding"):
            ResidualCNN(ResidualCNNConfig(padding=padding))
    assert ResidualCNN(ResidualCNNConfig(kernel=1, padding=NONE))(torch.zeros(2, 1, 4, 4)).shape == (2, 10)


def test_its_layers_say_their_sizes():
    assert "BatchNorm(16, eps" in repr(ResidualCNN(ResidualCNNConfig()))


def test_a_series_is_an_image_of_one_row():
    torch.manual_seed(0)
    series, image = (ResidualCNN(ResidualCNNConfig(width=4, dims=d)).eval() for d in (1, 2))
    weights = {
        k: v[:, :, None] * torch.tensor([[0.0], [1], [0]]) if v.dim() == 3 else v
        for k, v in series.state_dict().items()
    }
    image.load_state_dict(weights)
    x = torch.randn(2, 1, 9)
    torch.testing.assert_close(series(x), image(x[:, :, None]))


def test_dropout_is_on_in_training_only():
    torch.manual_seed(0)
    model, x = ResidualCNN(ResidualCNNConfig(width=32, dims=1, dropout=0.5)), torch.randn(4, 1, 9)
    assert not torch.equal(model(x), model(x))
    model.eval()
    assert torch.equal(model(x), model(x))
