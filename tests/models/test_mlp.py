import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor
from torch import nn
from torch.nn import functional as F

import lawful
from lawful.models import MLP, MLPConfig
from lawful.models.mlp import piecewise_affinity


def test_equals_scikit_learn():
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(50, n, generator=generator, dtype=torch.float64) for n in (3, 2))
    fitted = MLPRegressor(hidden_layer_sizes=(6, 5), solver="lbfgs", max_iter=5, random_state=0)
    with pytest.warns(ConvergenceWarning):
        fitted.fit(x.numpy(), y.numpy())
    model = MLP(MLPConfig(d_in=3, d_out=2, hidden=(6, 5))).double()
    for layer, w, b in zip(model.layers, fitted.coefs_, fitted.intercepts_, strict=True):
        layer.weight.data, layer.bias.data = torch.from_numpy(w.T), torch.from_numpy(b)
    torch.testing.assert_close(model(x).detach(), torch.from_numpy(fitted.predict(x.numpy())))


@pytest.mark.parametrize("hidden", [(), (4,), (4, 3), (1, 7, 2, 5)])
def test_any_depth_and_width(hidden):
    config = MLPConfig(d_in=3, d_out=2, hidden=hidden)
    assert (config.depth, config.width) == (len(hidden), max(2, *hidden, 0))
    model = MLP(config)
    assert model(torch.zeros(5, 3)).shape == (5, 2)
    assert model.active(torch.zeros(5, 3)).shape == (5, sum(hidden))


def test_the_output_layer_determines_the_codomain():
    x = 10 * torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
    p = MLP(MLPConfig(d_in=3, d_out=2, output=torch.sigmoid))(x)
    assert ((p > 0) & (p < 1)).all()
    q = MLP(MLPConfig(d_in=3, d_out=2, output=nn.Softmax(-1)))(x)
    torch.testing.assert_close(q.sum(-1), torch.ones(100))


def test_a_network_of_gelu_is_not_piecewise_affine():
    kept, broken = (MLP(MLPConfig(d_in=2, d_out=1, hidden=(4,), activation=a)) for a in (F.leaky_relu, F.gelu))
    for model, status in ((kept, "held"), (broken, "refuted")):
        assert (
            lawful.check(model, piecewise_affinity(), inputs=lawful.shape("b 2"), cases=30).verdicts[0].status == status
        )


def test_it_learns_exclusive_or():
    torch.manual_seed(0)
    model = MLP(MLPConfig(d_in=2, d_out=1, hidden=(8,)))
    x, y = torch.tensor([[0.0, 0], [0, 1], [1, 0], [1, 1]]), torch.tensor([[0.0], [1], [1], [0]])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(300):
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()
    torch.testing.assert_close(model(x).round(), y)


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match=r"size 3: got shape \(5, 2\)"):
        MLP(MLPConfig(d_in=3, d_out=2))(torch.zeros(5, 2))
    with pytest.raises(ValueError, match="d_out=0"):
        MLP(MLPConfig(d_in=3, d_out=2, hidden=(0,)))


def test_each_layer_of_each_model_has_an_activation_of_its_own():
    config = MLPConfig(d_in=2, d_out=1, hidden=(3, 3), activation=nn.PReLU(), output=nn.PReLU())
    modules = [config.activation, config.output]
    modules += [layer.activation for _ in range(2) for layer in MLP(config).layers]
    assert len({id(module) for module in modules}) == 8
    assert MLP(MLPConfig(d_in=2, d_out=1)).layers[0].activation is torch.relu


def test_dropout_is_between_the_layers_and_changes_no_name():
    torch.manual_seed(0)
    config = MLPConfig(d_in=3, d_out=2, hidden=(50, 50), dropout=0.5)
    model, plain = MLP(config), MLP(MLPConfig(d_in=3, d_out=2, hidden=(50, 50)))
    plain.load_state_dict(model.state_dict())
    x = torch.randn(4, 3)
    assert not torch.equal(model(x), model(x))
    assert torch.equal(model.eval()(x), plain(x))
    with pytest.raises(ValueError, match=r"drop.*got 1\.5"):
        MLP(MLPConfig(d_in=3, d_out=2, dropout=1.5))
