import itertools
from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lawful.blocks import (
    DropConnect,
    Residual,
    StochasticDepth,
    WeightScalingDropout,
    average_over_masks,
    linear_drop_rates,
    monte_carlo,
)
from lawful.laws import Claim, Draw, Equal, Map, Statement, agreement, dropout_scaling, law, shape, unbiasedness


def test_the_two_conventions_differ_by_the_probability_of_staying():
    x = torch.randn(5, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(WeightScalingDropout(0.8).eval()(x), 0.8 * nn.Dropout(0.2).eval()(x))
    torch.manual_seed(0)
    kept = WeightScalingDropout(0.8)(torch.ones(10_000))
    assert float(kept.mean()) == pytest.approx(0.8, abs=0.03)
    assert set(kept.tolist()) == {0.0, 1.0}


@pytest.mark.parametrize("layer", [nn.Dropout(0.0), WeightScalingDropout(1.0)])
def test_nothing_is_dropped(layer):
    x = torch.ones(100)
    torch.testing.assert_close(layer(x), x)


@pytest.mark.parametrize("layer", [nn.Dropout(1.0), WeightScalingDropout(0.0)])
def test_everything_is_dropped(layer):
    assert not layer(torch.ones(100)).any()


def test_dropped_entries_have_no_gradient():
    x = torch.ones(100, requires_grad=True)
    torch.manual_seed(0)
    y = WeightScalingDropout(0.5)(x)
    y.sum().backward()
    torch.testing.assert_close(x.grad, y.detach())


@pytest.mark.parametrize("p", [-0.1, 1.1, float("nan")])
def test_invalid_probabilities_are_rejected(p):
    with pytest.raises(ValueError, match=r"keep_prob must be in \[0, 1\]"):
        WeightScalingDropout(p)


def test_mean_and_variance_equal_the_sample_moments():
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2)), torch.ones(5, 3)
    torch.manual_seed(0)
    found = monte_carlo(model.eval(), x, num_samples=6)
    torch.manual_seed(0)
    model.train()
    samples = torch.stack([model(x) for _ in range(6)]).detach().numpy()
    torch.testing.assert_close(found.mean.detach(), torch.from_numpy(samples.mean(0)))
    torch.testing.assert_close(found.variance.detach(), torch.from_numpy(samples.var(0, ddof=1)))


@pytest.mark.parametrize("training", [True, False])
def test_mc_dropout_switches_only_dropout_and_restores_modes(training):
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)).train(training)
    model[1].train(not training)
    before = model[1].running_mean.clone()
    monte_carlo(model, torch.ones(5, 3), num_samples=2)
    assert [m.training for m in model.modules()] == [training, training, not training, training]
    torch.testing.assert_close(model[1].running_mean, before, rtol=0, atol=0)


@pytest.mark.parametrize(
    "module", [nn.Dropout1d(0.5), nn.AlphaDropout(0.5), WeightScalingDropout(), DropConnect(3, 3), StochasticDepth(0.5)]
)
def test_every_kind_of_dropout_is_random(module):
    torch.manual_seed(0)
    assert (monte_carlo(module.eval(), torch.randn(5, 3, 3), num_samples=8).variance > 0).any()


def test_custom_random_modules():
    class Noise(nn.Module):
        def forward(self, x):
            return x + torch.randn_like(x) if self.training else x

    x = torch.ones(2, 3)
    assert (monte_carlo(Noise(), x, num_samples=4).variance == 0).all()
    assert (monte_carlo(Noise(), x, num_samples=4, random_modules=(Noise,)).variance > 0).all()


def test_modes_are_restored_when_the_model_raises():
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        monte_carlo(model, torch.ones(5, 2))
    assert all(m.training for m in model.modules())


def test_a_variance_needs_two_samples():
    with pytest.raises(ValueError, match="num_samples must be at least 2, got 1"):
        monte_carlo(nn.Dropout(), torch.ones(2), num_samples=1)


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
def test_dropout_inside_torch_modules(kind, gradients):
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(4, 2, 8, 0.5, batch_first=True) if kind == "encoder" else kind()
    with torch.set_grad_enabled(gradients):
        variance = monte_carlo(model.eval(), torch.randn(3, 5, 4)).variance
    assert (variance > 0).any()
    assert not any(module.training for module in model.modules())


def test_moments_equal_the_sum_over_all_masks():
    layer = DropConnect(2, 2, p=0.3).double()
    x = torch.tensor([1.5, -2.0], dtype=torch.float64)
    outputs, weights = [], []
    for bits in itertools.product((0.0, 1.0), repeat=4):
        mask = torch.tensor(bits, dtype=torch.float64).reshape(2, 2)
        outputs.append((mask * layer.weight / 0.7) @ x + layer.bias)
        weights.append(0.7 ** sum(bits) * 0.3 ** (4 - sum(bits)))
    outputs, weights = torch.stack(outputs), torch.tensor(weights, dtype=torch.float64)[:, None]
    mean = (weights * outputs).sum(0)
    torch.testing.assert_close(layer.moments(x).mean, mean)
    torch.testing.assert_close(layer.moments(x).variance, (weights * (outputs - mean) ** 2).sum(0))


@pytest.mark.parametrize("bias", [True, False])
def test_eval_mode_is_a_linear_layer(bias):
    ours, theirs = DropConnect(4, 3, p=0.9, bias=bias).eval(), nn.Linear(4, 3, bias=bias)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(ours(x), theirs(x))


def test_each_sample_has_its_own_mask():
    torch.manual_seed(0)
    y = DropConnect(8, 8, p=0.5)(torch.ones(2, 8))
    assert not torch.equal(y[0], y[1])


def test_all_weights_dropped():
    layer = DropConnect(4, 3, p=1.0)
    torch.testing.assert_close(layer(torch.ones(2, 4)), layer.bias.expand(2, 3))
    with pytest.raises(ValueError, match="undefined for p=1"):
        layer.moments(torch.ones(4))


def test_invalid_drop_connect_is_rejected():
    with pytest.raises(ValueError, match=r"p must be in \[0, 1\], got -1"):
        DropConnect(4, 3, p=-1.0)
    with pytest.raises(ValueError, match=r"expected x of shape \(\*batch, 4\), got \(2, 5\)"):
        DropConnect(4, 3)(torch.zeros(2, 5))
    with pytest.raises(ValueError, match=r"expected x of shape \(\*batch, 4\), got \(2, 5\)"):
        DropConnect(4, 3).moments(torch.zeros(2, 5))


def test_samples_are_dropped_as_a_whole():
    torch.manual_seed(0)
    y = StochasticDepth(0.25)(torch.ones(4000, 2, 3)).flatten(1)
    assert (y == y[:, :1]).all()
    assert float((y[:, 0] == 0).double().mean()) == pytest.approx(0.25, abs=0.04)
    torch.testing.assert_close(y.max(), torch.tensor(1 / 0.75))


def test_a_residual_branch_is_skipped_for_some_samples():
    torch.manual_seed(0)
    block = Residual(nn.Sequential(nn.Linear(3, 3), StochasticDepth(0.5)))
    x = torch.randn(100, 3)
    same = (block(x) == x).all(1)
    assert 0 < int(same.sum()) < 100


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_stochastic_depth_with_probability_0_and_1(p):
    x = torch.ones(5, 2)
    torch.testing.assert_close(StochasticDepth(p)(x), (1 - p) * x)
    torch.testing.assert_close(StochasticDepth(p).eval()(x), x)


def test_drop_rates_rise_to_the_last():
    assert linear_drop_rates(2, last=0.5) == [0.25, 0.5]
    assert linear_drop_rates(0) == []


def test_invalid_stochastic_depth_is_rejected():
    with pytest.raises(ValueError, match=r"p must be in \[0, 1\], got 2"):
        StochasticDepth(2.0)
    with pytest.raises(ValueError, match="last must be in"):
        linear_drop_rates(3, last=-0.1)
    with pytest.raises(ValueError, match="num_layers must be non-negative, got -1"):
        linear_drop_rates(-1)


def test_equals_a_loop_over_all_masks():
    f, p = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)).double(), 0.3
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = torch.zeros(3, 2, dtype=torch.float64)
    for mask in itertools.product((0, 1), repeat=4):
        m = torch.tensor(mask, dtype=torch.float64)
        expected += p ** sum(mask) * (1 - p) ** (4 - sum(mask)) * f(m * x)
    torch.testing.assert_close(average_over_masks(f, x, keep_prob=p), expected, rtol=1e-12, atol=1e-12)


def test_weight_scaling_is_not_the_average_of_a_network_with_an_activation():
    x = torch.tensor([1.0, -1.0])
    average = average_over_masks(lambda z: z.sum(-1, keepdim=True).relu(), x, keep_prob=0.5)
    torch.testing.assert_close(average, torch.tensor([0.25]))


@pytest.mark.parametrize("keep_prob", [0.0, 1.0])
def test_probabilities_0_and_1(keep_prob):
    x = torch.tensor([1.0, 2.0])
    torch.testing.assert_close(average_over_masks(torch.exp, x, keep_prob=keep_prob), torch.exp(keep_prob * x))


def test_it_is_differentiable():
    x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z: average_over_masks(torch.sin, z, keep_prob=0.3), x)


def test_invalid_averages_are_rejected():
    with pytest.raises(ValueError, match="expected at most 20 units, got 21"):
        average_over_masks(torch.sin, torch.zeros(21), keep_prob=0.5)
    with pytest.raises(ValueError, match=r"keep_prob must be in \[0, 1\], got -1"):
        average_over_masks(torch.sin, torch.zeros(2), keep_prob=-1.0)
    with pytest.raises(ValueError, match=r"map the last axis of \(5, 4, 2\), got output \(5, 4\)"):
        average_over_masks(lambda x: x.sum(-1), torch.zeros(5, 2), keep_prob=0.5)


def test_a_single_number_has_no_masks(unchecked):
    with pytest.raises(ValueError, match=r"expected x of shape \(\*batch, n\), got \(\)"):
        average_over_masks(torch.sin, torch.tensor(1.0), keep_prob=0.5)


@law("f(x)[i] = s_i x[i]", discover_with=None)
def one_factor_per_sample(f: Map, x: torch.Tensor, *, draw: Draw) -> Statement:
    """Each sample is multiplied by one number.

    Satisfied by: stochastic depth.
    Broken by: dropout, which has one mask per entry.
    """
    y, z = f(x).flatten(1), x.flatten(1)
    order = draw.permutation(z.shape[1])
    return Equal(y * z[:, order], y[:, order] * z, exercised=z.shape[1] > 1)


def claims() -> Iterator[Claim]:
    """Second derivations of dropout variants."""
    linear, connect = nn.Linear(4, 3), DropConnect(4, 3, p=0.3)
    inputs = shape("b 4")
    yield Claim(dropout_scaling(scale=1.0, eval_scale=0.5), WeightScalingDropout(), inputs)
    yield Claim(dropout_scaling(scale=2.0), StochasticDepth(), inputs)
    yield Claim(one_factor_per_sample(), StochasticDepth(0.2), shape("b 2 3"))

    def squared_error(x):
        return (connect.train()(x) - x @ connect.weight.T - connect.bias).square()

    variance = unbiasedness(expected=lambda x: connect.moments(x).variance)
    yield Claim(variance, squared_error, inputs, name="DropConnect, variance")
    by_hand = agreement(other=lambda x: 0.3 / 0.7 * (x[:, None] * connect.weight).square().sum(-1))
    yield Claim(by_hand, lambda x: connect.moments(x).variance, inputs, name="DropConnect.moments")

    def geometric(x):
        return average_over_masks(lambda z: linear(z).log_softmax(-1), x, keep_prob=0.7).softmax(-1)

    scaled = agreement(other=lambda x: F.linear(x, 0.7 * linear.weight, linear.bias).softmax(-1))
    yield Claim(scaled, geometric, inputs, name="geometric mean over all masks")
    squares = agreement(other=lambda x: 0.7 * x**2)
    yield Claim(
        squares, lambda x: average_over_masks(torch.square, x, keep_prob=0.7), shape("b n:1..5"), name="squares"
    )
    layer, norm = nn.Linear(4, 2), nn.BatchNorm1d(2, affine=False)
    model, plain = nn.Sequential(nn.Dropout(0.3), layer), nn.Sequential(layer, norm)
    for name, exact in (
        ("mean", lambda x: x @ layer.weight.T + layer.bias),
        ("variance", lambda x: 0.3 / 0.7 * x.square() @ layer.weight.T.square()),
    ):

        def moment(x, name=name):
            return getattr(monte_carlo(model, x, num_samples=2), name)

        yield Claim(unbiasedness(expected=exact), moment, inputs, name=f"monte_carlo, {name}")

    def evaluated(x):
        y = F.batch_norm(layer(x), norm.running_mean, norm.running_var)
        return torch.stack([y, torch.zeros_like(y)])

    certain = agreement(other=evaluated)
    yield Claim(certain, lambda x: torch.stack(monte_carlo(plain, x, num_samples=2)), inputs, name="without dropout")


def test_the_default_number_of_samples():
    calls, model = [], nn.Linear(4, 1)
    model.register_forward_hook(lambda *_: calls.append(1))
    monte_carlo(model, torch.zeros(2, 4))
    assert len(calls) == 32
