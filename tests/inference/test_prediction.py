import pytest
import torch
from torch import nn

from lawful.blocks import monte_carlo
from lawful.functions import js_divergence
from lawful.inference import class_uncertainty, mc_dropout_predict, predict, value_uncertainty
from lawful.inference.prediction import device_of
from lawful.laws import Claim, agreement, shape, transformed
from lawful.models import MLP


def test_the_device_of_a_model_is_that_of_its_weights():
    x = torch.zeros(2)
    assert device_of(nn.Linear(2, 2, device="meta"), x) == torch.device("meta")
    for model in (nn.Identity(), torch.sin):
        assert device_of(model, x) == torch.device("cpu")


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 4))


def inputs(n=11):
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(1))


def test_batches_equal_full_input():
    model, x = network(), inputs()
    whole = model.eval()(x).softmax(-1).detach()
    for batch in (1, 4, 11, 100):
        torch.testing.assert_close(predict(model, x, batch_size=batch), whole)
    torch.testing.assert_close(predict(model, x, link=lambda y: y), model(x).detach())


def test_model_is_unchanged():
    model = network()
    model[1].eval()
    modes, state, seed = [m.training for m in model.modules()], model.state_dict(), torch.get_rng_state()
    before = {name: value.clone() for name, value in state.items()}
    for use in (predict, mc_dropout_predict):
        p = use(model, inputs())
        assert not p.requires_grad
        assert [m.training for m in model.modules()] == modes
        assert torch.equal(torch.get_rng_state(), seed)
        assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())


def test_seed():
    model, x = network(), inputs()
    assert torch.equal(mc_dropout_predict(model, x, seed=3), mc_dropout_predict(model, x, seed=3))
    assert not torch.equal(mc_dropout_predict(model, x, seed=3), mc_dropout_predict(model, x, seed=4))


def test_only_dropout_is_random():
    model, x = network(), inputs()
    found = mc_dropout_predict(model, x, num_samples=5)
    assert (found.std(0) > 0).any()
    model[3] = nn.Dropout(0.0)
    torch.testing.assert_close(mc_dropout_predict(model, x, num_samples=3), predict(model, x).expand(3, -1, -1))


def test_moments_equal_monte_carlo():
    model, x = MLP(3, 2, hidden_dims=(32,), dropout=0.3), inputs(4)
    torch.manual_seed(0)
    expected = monte_carlo(model, x, num_samples=1000)
    found = value_uncertainty(mc_dropout_predict(model, x, num_samples=1000, link=lambda y: y))
    torch.testing.assert_close(found.mean, expected.mean, atol=0.05, rtol=0)
    torch.testing.assert_close(found.std, expected.variance.sqrt(), atol=0.03, rtol=0.1)


def test_disagreement_is_mutual_information():
    p = torch.eye(4).unsqueeze(1)
    found = class_uncertainty(p)
    torch.testing.assert_close(found.entropy, torch.tensor([4.0]).log())
    torch.testing.assert_close(found.mutual_information, found.entropy)
    agreed = class_uncertainty(torch.full((5, 2, 4), 0.25))
    assert (agreed.mutual_information == 0).all()


def test_errors():
    model = network()
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        predict(model, inputs(), batch_size=0)
    with pytest.raises(ValueError, match=r"expected at least one example, got shape \(0, 3\)"):
        predict(model, inputs(0))
    with pytest.raises(ValueError, match="num_samples must be at least 1, got 0"):
        mc_dropout_predict(model, inputs(), num_samples=0)
    with pytest.raises(ValueError, match=r"with s >= 2, got \(1, 5\)"):
        value_uncertainty(torch.zeros(1, 5))
    with pytest.raises(ValueError, match=r"expected samples of shape \(s, n, c\) .* got \(5, 3\)"):
        class_uncertainty(torch.zeros(5, 3))


def claims():
    """Second derivations of predictions and their uncertainty."""
    first, norm, last = nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)
    model = nn.Sequential(first, norm, nn.Dropout(), last)

    def equation(x):
        scores = last(nn.functional.batch_norm(first(x), norm.running_mean, norm.running_var, norm.weight, norm.bias))
        return scores.exp() / scores.exp().sum(-1, keepdim=True)

    class Halved(nn.Module):
        """Returns probabilities with sum 1, or randomly 0."""

        def forward(self, x):
            return nn.functional.dropout(torch.ones_like(x), training=self.training) / 2

    def dropped(x):
        values = mc_dropout_predict(Halved(), x, link=lambda y: y, random_classes=(Halved,))
        return torch.stack([values.amin((0, 2)), values.amax((0, 2)), x[:, 0] * 0 + len(values)])

    both = agreement(other=lambda x: x.new_tensor([[0], [1], [32]]).expand(3, len(x)))
    yield Claim(agreement(other=equation), lambda x: predict(model, x, batch_size=2), transformed(torch.tanh, "n 3"))
    yield Claim(both, dropped, shape("n 3"), name="mc_dropout_predict, with dropout on")

    def mean_and_entropy(p):
        return torch.cat([class_uncertainty(p).mean, class_uncertainty(p).entropy[..., None]], -1)

    def entropy_equation(p):
        mean = p.sum(0) / len(p)
        return torch.cat([mean, -(mean * mean.log()).sum(-1, keepdim=True)], -1)

    def information(p):
        return class_uncertainty(p).mutual_information

    def values(y):
        return torch.stack([value_uncertainty(y).mean, value_uncertainty(y).std])

    def moments(y):
        mean = y.sum(0) / 3
        return torch.stack([mean, ((y - mean).square().sum(0) / 2).sqrt()])

    pair, several = (transformed(lambda x: x.tanh().softmax(-1), f"{s} n 3") for s in ("2", "s"))
    yield Claim(agreement(other=lambda p: js_divergence(p[0], p[1])), information, pair, name="two samples")
    yield Claim(agreement(other=entropy_equation), mean_and_entropy, several, name="class_uncertainty")
    yield Claim(agreement(other=moments), values, shape("3 n 2"), name="value_uncertainty")
