import pytest
import torch
from torch import nn

from lawful.blocks import Dense, DropConnect, Dropout, StochasticDepth, WeightScalingDropout, monte_carlo


def test_mean_and_variance_are_those_of_the_samples():
    model, x = nn.Sequential(Dense(3, 4), Dropout(0.5), Dense(4, 2)), torch.ones(5, 3)
    torch.manual_seed(0)
    found = monte_carlo(model.eval(), x, samples=6)
    torch.manual_seed(0)
    model.train()
    samples = torch.stack([model(x) for _ in range(6)]).detach().numpy()
    torch.testing.assert_close(found.mean.detach(), torch.from_numpy(samples.mean(0)))
    torch.testing.assert_close(found.variance.detach(), torch.from_numpy(samples.var(0, ddof=1)))


@pytest.mark.parametrize("training", [True, False])
def test_only_dropout_is_in_training_and_the_modes_are_restored(training):
    model = nn.Sequential(Dense(3, 4), nn.BatchNorm1d(4), Dropout(0.5)).train(training)
    model[1].train(not training)
    before = model[1].running_mean.clone()
    monte_carlo(model, torch.ones(5, 3), samples=2)
    assert [m.training for m in model.modules()] == [training, training, not training, training]
    torch.testing.assert_close(model[1].running_mean, before, rtol=0, atol=0)


@pytest.mark.parametrize(
    "random", [nn.Dropout1d(0.5), nn.AlphaDropout(0.5), WeightScalingDropout(), DropConnect(3, 3), StochasticDepth(0.5)]
)
def test_every_kind_of_dropout_counts(random):
    torch.manual_seed(0)
    assert (monte_carlo(random.eval(), torch.randn(5, 3, 3), samples=8).variance > 0).any()


def test_a_module_of_ones_own_can_be_named():
    class Noise(nn.Module):
        def forward(self, x):
            return x + torch.randn_like(x) if self.training else x

    x = torch.ones(2, 3)
    assert (monte_carlo(Noise(), x, samples=4).variance == 0).all()
    assert (monte_carlo(Noise(), x, samples=4, random=(Noise,)).variance > 0).all()


def test_modes_are_restored_when_the_model_raises():
    model = nn.Sequential(Dense(3, 4), Dropout(0.5))
    with pytest.raises(ValueError, match="size 3"):
        monte_carlo(model, torch.ones(5, 2))
    assert all(m.training for m in model.modules())


def test_a_variance_takes_two_samples():
    with pytest.raises(ValueError, match="at least 2 samples: got samples=1"):
        monte_carlo(Dropout(), torch.ones(2), samples=1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.MultiheadAttention(4, 2, dropout=0.5)

    def forward(self, x):
        return self.inner(x, x, x)[0]


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.LSTM(4, 4, num_layers=2, dropout=0.5)

    def forward(self, x):
        return self.inner(x)[0]


@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize("kind", [Attention, Recurrent, "encoder"])
def test_dropout_that_is_an_argument_counts(kind, gradients):
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(4, 2, 8, 0.5, batch_first=True) if kind == "encoder" else kind()
    with torch.set_grad_enabled(gradients):
        variance = monte_carlo(model.eval(), torch.randn(3, 5, 4)).variance
    assert (variance > 0).any()
    assert not any(module.training for module in model.modules())
