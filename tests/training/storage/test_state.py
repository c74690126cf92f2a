import random

import numpy as np
import pytest
import torch
from torch import nn

from lawful.training import checkpoint as state
from lawful.training.checkpoint import Checkpoint, Checkpoints


def through_disk(folder, tensors, facts=None):
    kept = Checkpoints(folder)
    kept.write(Checkpoint(1, state.plain(tensors), facts or {}), keep=1)
    found = kept.read(1)
    return found.tensors, found.facts


AWKWARD = {
    "number": torch.tensor(3.5),
    "empty": torch.empty(0, 3),
    "half": torch.randn(4, generator=torch.Generator().manual_seed(0)).bfloat16(),
    "complex": torch.complex(torch.ones(2), torch.arange(2.0)),
    "conjugate": torch.complex(torch.ones(2), torch.arange(2.0)).conj(),
    "turned": torch.arange(6.0).view(2, 3).T,
    "view": torch.arange(6.0)[2:4],
    "spread": torch.ones(1).expand(3),
    "flags": torch.tensor([True, False]),
    "whole": torch.tensor([2**62, -1]),
    "channels": torch.randn(1, 2, 3, 3, generator=torch.Generator().manual_seed(0)).to(
        memory_format=torch.channels_last
    ),
    "infinite": torch.tensor([torch.inf, -torch.inf, torch.nan]),
}


@pytest.mark.parametrize("name", AWKWARD)
def test_any_tensor_comes_back(tmp_path, name):
    found, _ = through_disk(tmp_path, {"a": AWKWARD[name], "again": AWKWARD[name], "b": torch.empty(0)})
    for copy in (found["a"], found["again"]):
        assert copy.dtype == AWKWARD[name].dtype
        torch.testing.assert_close(copy, AWKWARD[name], rtol=0, atol=0, equal_nan=True)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 3), nn.Linear(3, 3)
        self.last.weight = self.first.weight
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("passing", torch.zeros(2), persistent=False)

    def forward(self, x):
        self.passing += 1
        return self.last(self.norm(self.first(x)))


def test_a_module_with_shared_weights_and_buffers_comes_back(tmp_path):
    torch.manual_seed(0)
    model, other = Tied(), Tied()
    model(torch.randn(4, 3))
    found, _ = through_disk(tmp_path, state.module_state(model))
    state.load_module_state(other, found)
    assert other.last.weight is other.first.weight
    for a, b in zip(state.module_state(model).values(), state.module_state(other).values(), strict=True):
        assert torch.equal(a, b)


def test_a_module_of_another_kind_is_refused_and_nothing_is_copied():
    model = nn.Linear(2, 1)
    before = model.weight.clone()
    for tensors, sentence in (
        ({"weight": torch.zeros(1, 2)}, "the checkpoint lacks 'bias'"),
        ({"weight": torch.zeros(1, 2), "bias": torch.zeros(1), "more": torch.zeros(1)}, "the model lacks 'more'"),
        ({"weight": torch.zeros(1, 2), "bias": torch.zeros(2)}, r"'bias' is torch.float32 \[1\]: the checkpoint has"),
        ({"weight": torch.zeros(1, 2), "bias": torch.zeros(1).double()}, "has torch.float64"),
    ):
        with pytest.raises(ValueError, match=sentence):
            state.load_module_state(model, tensors)
    assert torch.equal(model.weight, before)


class Listed(torch.optim.Optimizer):
    """Remembers in lists, as preconditioners do."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1, "factors": (0.5, 0.25)})

    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            memory = self.state[p]
            memory.setdefault("past", []).append(p.grad.clone())
            memory.setdefault("mixed", [1, None, "a", [torch.ones(2)]])
            memory["count"] = memory.get("count", 0) + 1
            for gradient in memory["past"]:
                p.sub_(self.param_groups[0]["lr"] / memory["count"] * gradient)


OPTIMIZERS = {
    "plain": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.1),
    "fused": lambda p: torch.optim.AdamW(p, lr=0.1, fused=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.1, centered=True, momentum=0.5),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "rprop": lambda p: torch.optim.Rprop(p, lr=0.1),
    "averaged": lambda p: torch.optim.ASGD(p, lr=0.1),
    "groups": lambda p: torch.optim.Adam([{"params": [q], "lr": 0.1 / (i + 1)} for i, q in enumerate(p)]),
    "lists": Listed,
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_comes_back_and_goes_on_alike(tmp_path, name):
    def made():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(3, 1)).to(memory_format=torch.channels_last)
        return model, OPTIMIZERS[name](model.parameters()), {id(p): n for n, p in model.named_parameters()}

    def steps(model, optimizer, n):
        for i in range(n):
            optimizer.zero_grad()
            model(torch.full((2, 2, 3, 3), 0.1 * (i + 1))).square().sum().backward()
            optimizer.step()

    model, optimizer, names = made()
    steps(model, optimizer, 3)
    memory, facts = state.of_optimizer(optimizer, names)
    tensors, facts = through_disk(
        tmp_path, state.add_prefix("m", state.module_state(model)) | state.add_prefix("o", memory), facts
    )
    other, second, second_names = made()
    state.load_module_state(other, state.strip_prefix("m", tensors))
    state.put_into_optimizer(second, second_names, state.strip_prefix("o", tensors), facts)
    assert second.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        for key, value in optimizer.state.get(a, {}).items():
            assert type(second.state[b][key]) is type(value)
            if isinstance(value, torch.Tensor):
                assert second.state[b][key].stride() == value.stride()
    steps(model, optimizer, 3)
    steps(other, second, 3)
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)


def test_an_optimizer_of_another_kind_is_refused():
    model = nn.Linear(2, 1)
    names = {id(p): name for name, p in model.named_parameters()}
    _, facts = state.of_optimizer(torch.optim.SGD(model.parameters(), lr=0.1), names)
    with pytest.raises(ValueError, match="the optimizer is Adam: the checkpoint has 'SGD'"):
        state.put_into_optimizer(torch.optim.Adam(model.parameters()), names, {}, facts)
    sgd = torch.optim.SGD([{"params": [p]} for p in model.parameters()], lr=0.1)
    with pytest.raises(ValueError, match="2 groups of parameters were wanted: got 1"):
        state.put_into_optimizer(sgd, names, {}, facts)
    one = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="no parameter 'other'"):
        state.put_into_optimizer(one, names, {"other.momentum_buffer": torch.ones(1)}, facts)
    with pytest.raises(ValueError, match=r"the optimizer's lr is 0.1: the checkpoint has 'high'"):
        state.put_into_optimizer(one, names, {}, {**facts, "groups": [{"lr": "high"}]})


def test_a_parameter_that_is_not_of_the_model_is_refused():
    stranger = nn.Parameter(torch.ones(3))
    with pytest.raises(ValueError, match=r"got another, of shape \[3\]"):
        state.of_optimizer(torch.optim.SGD([stranger], lr=0.1), {})


def drawn():
    return [torch.rand(2).tolist(), random.gauss(0, 1), random.random(), np.random.normal(), np.random.rand()]


def test_every_random_state_comes_back(tmp_path):
    random.gauss(0, 1), np.random.normal(), torch.randn(3)
    tensors, facts = through_disk(tmp_path, *state.of_randomness())
    first = drawn()
    drawn()
    state.put_into_randomness(tensors, facts)
    assert drawn() == first
    before = state.of_randomness()[0]
    with state.preserve_rng():
        drawn()
    assert all(torch.equal(a, b) for a, b in zip(before.values(), state.of_randomness()[0].values(), strict=True))


def test_random_states_that_are_none_are_refused():
    tensors, facts = state.of_randomness()
    for wrong in ({}, {**tensors, "torch": torch.zeros(3)}, {**tensors, "python": torch.zeros(2, dtype=torch.int64)}):
        with state.preserve_rng(), pytest.raises(ValueError, match="no random states that can be used"):
            state.put_into_randomness(wrong, facts)


def test_a_module_is_kept_also_after_an_error():
    model = Tied()
    model.norm.eval()
    buffers = [buffer.clone() for buffer in model.buffers()]

    def disturb():
        with state.module_kept(model):
            model.train()
            model(torch.randn(4, 3)).sum().backward()
            raise KeyError

    with pytest.raises(KeyError):
        disturb()
    assert (model.training, model.norm.training) == (True, False)
    assert all(p.grad is None for p in model.parameters())
    assert all(torch.equal(a, b) for a, b in zip(buffers, model.buffers(), strict=True))
