import copy
import json
from dataclasses import dataclass
from itertools import product

import pytest
import torch
from safetensors.torch import load, save
from torch import nn

from lawful import optim
from lawful.optim import (
    AdamMoments,
    AddDecayedWeights,
    Chain,
    EmaMomentum,
    Momentum,
    NesterovTrace,
    ScaleByLearningRate,
    Sign,
)

BUILDERS = {
    "gradient_descent": lambda m: optim.gradient_descent(m.parameters(), lr=0.1),
    "sgd": lambda m: optim.sgd(m.parameters(), lr=0.1),
    "heavy_ball": lambda m: optim.heavy_ball(m.parameters(), lr=0.1),
    "momentum": lambda m: optim.momentum(m.parameters(), lr=0.1),
    "nesterov": lambda m: optim.nesterov(m.parameters(), lr=0.1),
    "adam": lambda m: optim.adam(m.parameters()),
    "uncorrected_adam": lambda m: optim.uncorrected_adam(m.parameters()),
    "adamw": lambda m: optim.adamw(m.parameters()),
    "lion": lambda m: optim.lion(m.parameters()),
    "muon_with_adamw": optim.muon_with_adamw,
}


def stored(optimizer):
    """The state after a way through safetensors and JSON."""
    state = optimizer.state_dict()
    tensors = {f"{i}.{name}": x.contiguous() for i, kept in state["state"].items() for name, x in kept.items()}
    groups = json.loads(json.dumps(state["param_groups"]))
    found = {i: {} for i in state["state"]}
    for key, x in load(save(tensors)).items():
        i, name = key.split(".", 1)
        found[int(i)][name] = x
    return {"state": found, "param_groups": groups}


def steps(model, optimizer, n):
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(1)).to(next(model.parameters()))
    for _ in range(n):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize("name", BUILDERS)
def test_resuming_is_exact(name, dtype, tools):
    whole, half = tools.network(dtype), tools.network(dtype)
    one, two = BUILDERS[name](whole), BUILDERS[name](half)
    one.param_groups[0]["lr"] = two.param_groups[0]["lr"] = 0.03
    steps(whole, one, 12)
    steps(half, two, 6)
    again = copy.deepcopy(half)
    resumed = BUILDERS[name](again)
    resumed.load_state_dict(stored(two))
    steps(again, resumed, 6)
    tools.close(whole, again, dtype, exact=True)
    assert one.state_dict()["param_groups"] == resumed.state_dict()["param_groups"]
    steps(half, two, 6)
    tools.close(whole, half, dtype, exact=True)


def test_resuming_is_exact_where_weights_are_transposed():
    def made():
        torch.manual_seed(0)
        model = nn.Linear(4, 3)
        model.weight = nn.Parameter(torch.randn(4, 3).T)
        return model

    whole, half = made(), made()
    one, two = optim.adamw(whole.parameters()), optim.adamw(half.parameters())
    steps(whole, one, 6)
    steps(half, two, 3)
    resumed = optim.adamw(half.parameters())
    resumed.load_state_dict(stored(two))
    steps(half, resumed, 3)
    assert torch.equal(whole.weight, half.weight)


@pytest.mark.parametrize("name", BUILDERS)
def test_a_copy_goes_the_same_way(name, tools):
    model = tools.network()
    optimizer = BUILDERS[name](model)
    steps(model, optimizer, 2)
    twin, copied = copy.deepcopy((model, optimizer))
    steps(model, optimizer, 3)
    steps(twin, copied, 3)
    tools.close(model, twin, torch.float32, exact=True)


def test_groups_have_options_of_their_own(tools):
    def groups(model):
        return [{"params": [p for p in model.parameters() if p.ndim == n]} for n in (2, 1)]

    def ours(model):
        first, second = groups(model)
        return optim.adamw([first | {"lr": 0.1}, second | {"decay": 0.0}], lr=0.01, decay=0.5)

    def theirs(model):
        first, second = groups(model)
        return torch.optim.AdamW([first | {"lr": 0.1}, second | {"weight_decay": 0.0}], lr=0.01, weight_decay=0.5)

    tools.close(tools.trained(ours)[0], tools.trained(theirs)[0], torch.float32)


def test_pytorchs_schedulers_change_the_rate(tools):
    optimizer = optim.sgd(tools.network().parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    optimizer.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.5


def test_several_types_in_one_group():
    params = [nn.Parameter(torch.ones(2, dtype=d)) for d in (torch.float32, torch.float64, torch.float32)]
    for p in params:
        p.grad = torch.ones_like(p)
    optim.adamw(params, lr=0.5, decay=0.0).step()
    for p in params:
        torch.testing.assert_close(p.detach(), torch.full_like(p, 0.5))


def test_parameters_without_a_gradient_are_left_alone():
    x, y = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    optimizer = optim.adamw([x, y], decay=0.5)
    x.grad = torch.ones(2)
    optimizer.step()
    assert (y == 1).all()
    assert y not in optimizer.state
    y.grad = torch.ones(2)
    optimizer.step()
    assert [optimizer.state[p]["step"].item() for p in (x, y)] == [2, 1]


def test_gradients_are_not_changed(tools):
    for build in BUILDERS.values():
        model = tools.network()
        optimizer = build(model)
        for kernels in (optimizer.kernels, {}):
            optimizer.kernels = kernels
            for p in model.parameters():
                p.grad = torch.ones_like(p)
            optimizer.step()
            assert all((p.grad == 1).all() for p in model.parameters())


HEADS = [
    [AddDecayedWeights(0.1), Momentum(0.5)],
    [AddDecayedWeights(0.1), EmaMomentum(0.5)],
    [AddDecayedWeights(0.1), NesterovTrace(0.5)],
    [AdamMoments()],
    [],
]


@pytest.mark.parametrize(("layout", "parts"), list(product(["transposed", "expanded", "sliced"], HEADS)))
def test_how_a_gradient_lies_in_memory_makes_no_difference(layout, parts):
    base = torch.arange(12.0).reshape(3, 4)
    grad = {
        "transposed": base.T.contiguous().T,
        "expanded": base[:, :1].expand(3, 4),
        "sliced": base.repeat(1, 2)[:, ::2],
    }
    for weight in (torch.ones(3, 4), torch.ones(4, 3).T, torch.ones(3, 8)[:, ::2]):
        found = []
        for g, w in ((grad[layout], weight), (grad[layout].contiguous(), torch.ones(3, 4))):
            x = nn.Parameter(w.detach())
            x.data = w
            optimizer = Chain([x], [*parts, ScaleByLearningRate(0.1)])
            for _ in range(3):
                x.grad = g
                optimizer.step()
            found.append(x.detach().clone())
        torch.testing.assert_close(*found)


def test_a_new_optimizer_is_a_few_lines():
    @dataclass(frozen=True)
    class Centred:
        shift: float = 1.0

        def start(self, p):
            return {}

        def __call__(self, updates, at):
            return [u - at.options["shift"] * u.mean() for u in updates]

    x, y = (nn.Parameter(torch.tensor([1.0, 3.0])) for _ in range(2))
    optimizer = Chain([{"params": [x]}, {"params": [y], "shift": 0.0}], [Centred(), ScaleByLearningRate(1.0)])
    for p in (x, y):
        p.grad = p.detach().clone()
    optimizer.step()
    assert x.tolist() == [2.0, 2.0]
    assert y.tolist() == [0.0, 0.0]


def test_a_closure_gives_the_loss():
    x = nn.Parameter(torch.ones(1))
    optimizer = optim.gradient_descent([x], lr=0.25)

    def closure():
        optimizer.zero_grad()
        loss = x.square().sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 1
    assert x.item() == 0.5


def test_errors_say_what_was_wanted_and_what_came():
    x = nn.Parameter(torch.ones(2))
    for lr in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="lr is at least 0 and below inf: got"):
            optim.sgd([x], lr=lr)
    with pytest.raises(ValueError, match=r"lr is at least 0 and below inf: got -0\.1"):
        optim.sgd([{"params": [x], "lr": -0.1}], lr=0.1)
    with pytest.raises(ValueError, match="decay is at least 0"):
        optim.adamw([x], decay=-1.0)
    with pytest.raises(ValueError, match="beta2 is at least 0 and below 1: got 1"):
        optim.adam([x], beta2=1.0)
    with pytest.raises(ValueError, match=r"options of a group are \['beta1', .*\]: got \['weight_decay'\]"):
        optim.adamw([{"params": [x], "weight_decay": 0.1}])
    with pytest.raises(ValueError, match=r"one part: got \['lr', 'lr'\]"):
        Chain([x], [ScaleByLearningRate(0.1), ScaleByLearningRate(0.1)])
    with pytest.raises(ValueError, match=r"kind is one of \['chain'\]: got 'muon'"):
        optim.sgd([{"params": [x], "kind": "muon"}], lr=0.1)
    x.grad = torch.ones(2)
    with pytest.raises(ValueError, match=r"one part: got \['momentum_buffer'\] of two"):
        Chain([x], [Momentum(0.9), EmaMomentum(0.9), ScaleByLearningRate(0.1)]).step()
    x.grad = torch.ones(2).to_sparse()
    with pytest.raises(TypeError, match=r"dense and real: got torch\.sparse_coo"):
        optim.sgd([x], lr=0.1).step()
    z = nn.Parameter(torch.ones(2, dtype=torch.complex64))
    z.grad = torch.ones_like(z)
    with pytest.raises(TypeError, match=r"dense and real: got torch\.strided of torch\.complex64"):
        Chain([z], [Sign(), ScaleByLearningRate(0.1)]).step()
