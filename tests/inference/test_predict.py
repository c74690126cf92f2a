import pytest
import torch
from torch import nn

from lawful.blocks import monte_carlo
from lawful.functions import identity
from lawful.inference import class_spread, mc_dropout_predict, predict, value_spread
from lawful.models import MLP, MLPConfig


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 4))


def inputs(n=11):
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(1))


def test_batches_give_what_the_whole_gives():
    model, x = network(), inputs()
    whole = model.eval()(x).softmax(-1).detach()
    for batch in (1, 4, 11, 100):
        torch.testing.assert_close(predict(model, x, batch=batch), whole)
    torch.testing.assert_close(predict(model, x, link=identity), model(x).detach())


def test_the_model_is_left_as_it_was():
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


def test_samples_repeat_themselves_with_their_seed():
    model, x = network(), inputs()
    assert torch.equal(mc_dropout_predict(model, x, seed=3), mc_dropout_predict(model, x, seed=3))
    assert not torch.equal(mc_dropout_predict(model, x, seed=3), mc_dropout_predict(model, x, seed=4))


def test_only_dropout_is_random():
    model, x = network(), inputs()
    found = mc_dropout_predict(model, x, samples=5)
    assert (found.std(0) > 0).any()
    model[3] = nn.Dropout(0.0)
    torch.testing.assert_close(mc_dropout_predict(model, x, samples=3), predict(model, x).expand(3, -1, -1))


def test_samples_have_the_moments_of_monte_carlo():
    model, x = MLP(MLPConfig(d_in=3, d_out=2, hidden=(32,), dropout=0.3)), inputs(4)
    torch.manual_seed(0)
    expected = monte_carlo(model, x, samples=1000)
    found = value_spread(mc_dropout_predict(model, x, samples=1000, link=identity))
    torch.testing.assert_close(found.mean, expected.mean, atol=0.05, rtol=0)
    torch.testing.assert_close(found.std, expected.variance.sqrt(), atol=0.03, rtol=0.1)


def test_certain_members_that_disagree_are_all_information():
    p = torch.eye(4).unsqueeze(1)
    found = class_spread(p)
    torch.testing.assert_close(found.entropy, torch.tensor([4.0]).log())
    torch.testing.assert_close(found.information, found.entropy)
    agreed = class_spread(torch.full((5, 2, 4), 0.25))
    assert (agreed.information == 0).all()


def test_errors_say_what_was_wanted_and_what_came():
    model = network()
    with pytest.raises(ValueError, match="batch is at least 1: got 0"):
        predict(model, inputs(), batch=0)
    with pytest.raises(ValueError, match=r"at least one example was wanted: got shape \(0, 3\)"):
        predict(model, inputs(0))
    with pytest.raises(ValueError, match="samples are at least 1: got 0"):
        mc_dropout_predict(model, inputs(), samples=0)
    with pytest.raises(ValueError, match=r"at least 2 predictions .* got shape \(1, 5\)"):
        value_spread(torch.zeros(1, 5))
    with pytest.raises(ValueError, match=r"at least 1 predictions .* got shape \(5, 3\)"):
        class_spread(torch.zeros(5, 3))
