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
    AddDecayedWeights,
    Chain,
    EmaMomentum,
    Momentum,
    ScaleByAdam,
    ScaleByLearningRate,
    Sign,
)

BUILDERS = {
    "sgd": lambda m: optim.sgd(m.parameters(), lr=0.1),
    "sgd with momentum": lambda m: optim.sgd(m.parameters(), lr=0.1, momentum=0.9),
    "sgd with Nesterov momentum": lambda m: optim.sgd(m.parameters(), lr=0.1, momentum=0.9, nesterov=True),
    "heavy ball": lambda m: Chain(m.parameters(), [ScaleByLearningRate(0.1), Momentum(0.9)]),
    "EMA momentum": lambda m: Chain(m.parameters(), [EmaMomentum(0.9), ScaleByLearningRate(0.1)]),
    "adam": lambda m: optim.adam(m.parameters()),
    "adam without bias correction": lambda m: Chain(
        m.parameters(), [ScaleByAdam(bias_correction=False), ScaleByLearningRate(1e-3)]
    ),
    "adamw": lambda m: optim.adamw(m.parameters()),
    "Lion": lambda m: optim.Lion(m.parameters()),
    "muon_with_adamw": optim.muon_with_adamw,
}


def round_trip_state(optimizer):
    """Returns the state after a round trip through safetensors and JSON."""
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
    resumed.load_state_dict(round_trip_state(two))
    steps(again, resumed, 6)
    tools.assert_close(whole, again, dtype, exact=True)
    assert one.state_dict()["param_groups"] == resumed.state_dict()["param_groups"]
    steps(half, two, 6)
    tools.assert_close(whole, half, dtype, exact=True)


def test_resuming_is_exact_for_transposed_weights():
    def build():
        torch.manual_seed(0)
        model = nn.Linear(4, 3)
        model.weight = nn.Parameter(torch.randn(4, 3).T)
        return model

    whole, half = build(), build()
    one, two = optim.adamw(whole.parameters()), optim.adamw(half.parameters())
    steps(whole, one, 6)
    steps(half, two, 3)
    resumed = optim.adamw(half.parameters())
    resumed.load_state_dict(round_trip_state(two))
    steps(half, resumed, 3)
    assert torch.equal(whole.weight, half.weight)


@pytest.mark.parametrize("name", BUILDERS)
def test_a_deepcopy_takes_the_same_steps(name, tools):
    model = tools.network()
    optimizer = BUILDERS[name](model)
    steps(model, optimizer, 2)
    twin, copied = copy.deepcopy((model, optimizer))
    steps(model, optimizer, 3)
    steps(twin, copied, 3)
    tools.assert_close(model, twin, torch.float32, exact=True)


def test_parameter_groups_override_options(tools):
    def groups(model):
        return [{"params": [p for p in model.parameters() if p.ndim == n]} for n in (2, 1)]

    def ours(model):
        first, second = groups(model)
        return optim.adamw([first | {"lr": 0.1}, second | {"weight_decay": 0.0}], lr=0.01, weight_decay=0.5)

    def theirs(model):
        first, second = groups(model)
        return torch.optim.AdamW([first | {"lr": 0.1}, second | {"weight_decay": 0.0}], lr=0.01, weight_decay=0.5)

    tools.assert_close(tools.train_network(ours)[0], tools.train_network(theirs)[0], torch.float32)


def test_pytorch_schedulers_work(tools):
    optimizer = optim.sgd(tools.network().parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    optimizer.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.5


def test_several_dtypes_in_one_group():
    params = [nn.Parameter(torch.ones(2, dtype=d)) for d in (torch.float32, torch.float64, torch.float32)]
    for p in params:
        p.grad = torch.ones_like(p)
    optim.adamw(params, lr=0.5, weight_decay=0.0).step()
    for p in params:
        torch.testing.assert_close(p.detach(), torch.full_like(p, 0.5))


def test_parameters_without_a_gradient_are_skipped():
    x, y = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    optimizer = optim.adamw([x, y], weight_decay=0.5)
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
        for fused in (True, False):
            optimizer.fused = fused
            for p in model.parameters():
                p.grad = torch.ones_like(p)
            optimizer.step()
            assert all((p.grad == 1).all() for p in model.parameters())


HEADS = [
    [AddDecayedWeights(0.1), Momentum(0.5)],
    [AddDecayedWeights(0.1), EmaMomentum(0.5)],
    [AddDecayedWeights(0.1), Momentum(0.5, nesterov=True)],
    [ScaleByAdam()],
    [],
]


@pytest.mark.parametrize(("layout", "transforms"), list(product(["transposed", "expanded", "sliced"], HEADS)))
def test_the_memory_layout_of_a_gradient_does_not_matter(layout, transforms):
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
            optimizer = Chain([x], [*transforms, ScaleByLearningRate(0.1)])
            for _ in range(3):
                x.grad = g
                optimizer.step()
            found.append(x.detach().clone())
        torch.testing.assert_close(*found)


def test_custom_transform():
    @dataclass(frozen=True)
    class Center:
        shift: float = 1.0

        def init(self, p):
            return {}

        def __call__(self, updates, context):
            return [u - context.options["shift"] * u.mean() for u in updates]

    x, y = (nn.Parameter(torch.tensor([1.0, 3.0])) for _ in range(2))
    optimizer = Chain([{"params": [x]}, {"params": [y], "shift": 0.0}], [Center(), ScaleByLearningRate(1.0)])
    for p in (x, y):
        p.grad = p.detach().clone()
    optimizer.step()
    assert x.tolist() == [2.0, 2.0]
    assert y.tolist() == [0.0, 0.0]


def test_step_returns_the_loss_of_the_closure():
    x = nn.Parameter(torch.ones(1))
    optimizer = optim.sgd([x], lr=0.25)

    def closure():
        optimizer.zero_grad()
        loss = x.square().sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 1
    assert x.item() == 0.5


def test_errors_name_what_was_expected():
    x = nn.Parameter(torch.ones(2))
    for lr in (-1.0, float("nan")):
        with pytest.raises(ValueError, match=r"lr must be in \[0, inf\), got"):
            optim.sgd([x], lr=lr)
    with pytest.raises(ValueError, match=r"lr must be in \[0, inf\), got -0\.1"):
        optim.sgd([{"params": [x], "lr": -0.1}], lr=0.1)
    with pytest.raises(ValueError, match="weight_decay must be in"):
        optim.adamw([x], weight_decay=-1.0)
    with pytest.raises(ValueError, match=r"betas\[1\] must be in \[0, 1\), got 1"):
        optim.adam([x], betas=(0.9, 1.0))
    with pytest.raises(ValueError, match=r"unknown options \['decay'\] in a parameter group, expected \['betas', .*\]"):
        optim.adamw([{"params": [x], "decay": 0.1}])
    with pytest.raises(ValueError, match=r"must belong to one transform, got \['lr', 'lr'\]"):
        Chain([x], [ScaleByLearningRate(0.1), ScaleByLearningRate(0.1)])
    with pytest.raises(ValueError, match=r"must be one of \['chain'\], got 'muon'"):
        optim.sgd([{"params": [x], "optimizer": "muon"}], lr=0.1)
    with pytest.raises(ValueError, match="nesterov needs momentum"):
        optim.sgd([x], lr=0.1, nesterov=True)
    x.grad = torch.ones(2)

    @dataclass(frozen=True)
    class Other:
        def init(self, p):
            return {"momentum_buffer": p}

        def __call__(self, updates, context):
            return updates

    with pytest.raises(ValueError, match=r"two transforms of a chain have the state \['momentum_buffer'\]"):
        Chain([x], [Momentum(0.9), Other(), ScaleByLearningRate(0.1)]).step()
    x.grad = torch.ones(2).to_sparse()
    with pytest.raises(TypeError, match=r"expected dense real gradients, got torch\.sparse_coo"):
        optim.sgd([x], lr=0.1).step()
    z = nn.Parameter(torch.ones(2, dtype=torch.complex64))
    z.grad = torch.ones_like(z)
    with pytest.raises(TypeError, match=r"expected dense real gradients, got torch\.strided of torch\.complex64"):
        Chain([z], [Sign(), ScaleByLearningRate(0.1)]).step()
