import json
import os
import random

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from lawful._files import write_file
from lawful.training import checkpoint as state
from lawful.training.checkpoint import (
    _MAX_METADATA_BYTES,
    Checkpoint,
    Checkpoints,
    CorruptCheckpointError,
    _unsharded,
    _write_checksums,
)


def checkpoint(step):
    return Checkpoint(step, {"a": torch.full((2,), float(step))}, {"step": step})


def test_the_last_and_the_best_are_kept(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for step in range(1, 8):
        checkpoints.save(checkpoint(step), keep=2, best=3 if step >= 3 else None)
    assert checkpoints.steps() == [3, 6, 7]
    assert checkpoints.load_newest().step == 7
    assert torch.equal(checkpoints.load(3).tensors["a"], torch.tensor([3.0, 3.0]))
    assert checkpoints.load(6).metadata == {"step": 6}


def test_a_checkpoint_of_the_same_step_is_replaced(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(checkpoint(1), keep=1)
    checkpoints.save(Checkpoint(1, {"a": torch.zeros(1)}, {"new": True}), keep=1)
    assert checkpoints.load_newest().metadata == {"new": True}
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


def test_a_failed_save_leaves_nothing(tmp_path, monkeypatch):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(checkpoint(1), keep=1)

    def interrupted(*_):
        raise KeyboardInterrupt("in fsync")

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt, match="in fsync"):
        checkpoints.save(checkpoint(2), keep=1)
    assert checkpoints.steps() == [1]
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


def test_other_folders_are_ignored(tmp_path):
    for name in ("step-1", "step-000000010", "step-00000003.unfinished", "step-00000004.corrupt", "step-xyz"):
        (tmp_path / name).mkdir()
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.steps() == []
    assert checkpoints.load_newest() is None
    assert Checkpoints(tmp_path / "none").load_newest() is None


def test_error_names_a_file_without_a_checksum(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(checkpoint(1), keep=1)
    (checkpoints.path(1) / "more.safetensors").write_bytes(b"")
    with pytest.raises(CorruptCheckpointError, match=r"'more\.safetensors' is not listed in checksums\.json"):
        checkpoints.load(1)


def test_metadata_over_the_size_limit(tmp_path):
    with pytest.raises(ValueError, match=f"the limit is {_MAX_METADATA_BYTES}"):
        Checkpoints(tmp_path).save(Checkpoint(1, {}, {"a": "x" * _MAX_METADATA_BYTES}), keep=1)
    assert not list(tmp_path.iterdir())


def test_large_metadata_round_trip(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    metadata = {"groups": [{"lr": 0.1, "betas": [0.9, 0.999]}] * 50_000}
    checkpoints.save(Checkpoint(1, {"a": torch.ones(1)}, metadata), keep=1)
    assert checkpoints.load(1).metadata == metadata


def test_files_are_written_atomically(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    write_file(path, "old")

    def full(*_):
        raise OSError(28, "full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="full"):
        write_file(path, b"new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def save_and_load(folder, tensors, metadata=None):
    checkpoints = Checkpoints(folder)
    checkpoints.save(Checkpoint(1, state._contiguous_copies(tensors), metadata or {}), keep=1)
    found = checkpoints.load(1)
    return found.tensors, found.metadata


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
def test_tensors_round_trip(tmp_path, name):
    found, _ = save_and_load(tmp_path, {"a": AWKWARD[name], "again": AWKWARD[name], "b": torch.empty(0)})
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


def test_modules_with_shared_weights_round_trip(tmp_path):
    torch.manual_seed(0)
    model, other = Tied(), Tied()
    model(torch.randn(4, 3))
    found, _ = save_and_load(tmp_path, state.module_state(model))
    state.load_module_state(other, found)
    assert other.last.weight is other.first.weight
    for a, b in zip(state.module_state(model).values(), state.module_state(other).values(), strict=True):
        assert torch.equal(a, b)


def test_the_state_of_another_module_is_refused():
    model = nn.Linear(2, 1)
    before = model.weight.clone()
    for tensors, message in (
        ({"weight": torch.zeros(1, 2)}, "'bias' is missing in the checkpoint"),
        ({"weight": torch.zeros(1, 2), "bias": torch.zeros(1), "more": torch.zeros(1)}, "'more' is not in the model"),
        ({"weight": torch.zeros(1, 2), "bias": torch.zeros(2)}, r"'bias' must be torch.float32 \[1\], got"),
        ({"weight": torch.zeros(1, 2), "bias": torch.zeros(1).double()}, "got torch.float64"),
    ):
        with pytest.raises(ValueError, match=message):
            state.load_module_state(model, tensors)
    assert torch.equal(model.weight, before)


class Listed(torch.optim.Optimizer):
    """Keeps lists as state, as optimizers with preconditioners do."""

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
def test_optimizers_round_trip_and_take_the_same_steps(tmp_path, name):
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
    memory, metadata = state._optimizer_state(optimizer, names)
    tensors, metadata = save_and_load(
        tmp_path, state._add_prefix("m", state.module_state(model)) | state._add_prefix("o", memory), metadata
    )
    other, second, second_names = made()
    state.load_module_state(other, state._strip_prefix("m", tensors))
    state._load_optimizer_state(second, second_names, state._strip_prefix("o", tensors), metadata)
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


def test_the_state_of_another_optimizer_is_refused():
    model = nn.Linear(2, 1)
    names = {id(p): name for name, p in model.named_parameters()}
    _, metadata = state._optimizer_state(torch.optim.SGD(model.parameters(), lr=0.1), names)
    with pytest.raises(ValueError, match="expected Adam, got 'SGD'"):
        state._load_optimizer_state(torch.optim.Adam(model.parameters()), names, {}, metadata)
    sgd = torch.optim.SGD([{"params": [p]} for p in model.parameters()], lr=0.1)
    with pytest.raises(ValueError, match="expected 2 parameter groups, got 1"):
        state._load_optimizer_state(sgd, names, {}, metadata)
    one = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="no parameter 'other'"):
        state._load_optimizer_state(one, names, {"other.momentum_buffer": torch.ones(1)}, metadata)
    with pytest.raises(ValueError, match=r"the optimizer has lr=0.1, the checkpoint lr='high'"):
        state._load_optimizer_state(one, names, {}, {**metadata, "groups": [{"lr": "high"}]})


def test_a_foreign_parameter_is_refused():
    stranger = nn.Parameter(torch.ones(3))
    with pytest.raises(ValueError, match=r"a parameter of shape \[3\] that is not in the model"):
        state._optimizer_state(torch.optim.SGD([stranger], lr=0.1), {})


def random_numbers():
    return [torch.rand(2).tolist(), random.gauss(0, 1), random.random(), np.random.normal(), np.random.rand()]


def test_random_states_round_trip(tmp_path):
    random.gauss(0, 1), np.random.normal(), torch.randn(3)
    tensors, metadata = save_and_load(tmp_path, *state._rng_state())
    first = random_numbers()
    random_numbers()
    state._load_rng_state(tensors, metadata)
    assert random_numbers() == first
    before = state._rng_state()[0]
    with state.preserve_rng():
        random_numbers()
    assert all(torch.equal(a, b) for a, b in zip(before.values(), state._rng_state()[0].values(), strict=True))


def test_invalid_random_states_are_refused():
    tensors, metadata = state._rng_state()
    for wrong in ({}, {**tensors, "torch": torch.zeros(3)}, {**tensors, "python": torch.zeros(2, dtype=torch.int64)}):
        with state.preserve_rng(), pytest.raises(ValueError, match="no valid random states"):
            state._load_rng_state(wrong, metadata)


def test_preserve_module_after_an_error():
    model = Tied()
    model.norm.eval()
    buffers = [buffer.clone() for buffer in model.buffers()]

    def disturb():
        with state._preserve_module(model):
            model.train()
            model(torch.randn(4, 3)).sum().backward()
            raise KeyError("inside the block")

    with pytest.raises(KeyError, match="inside the block"):
        disturb()
    assert (model.training, model.norm.training) == (True, False)
    assert all(p.grad is None for p in model.parameters())
    assert all(torch.equal(a, b) for a, b in zip(buffers, model.buffers(), strict=True))


def write_shards(folder, *files):
    """Writes tensor files with the given headers."""
    paths = []
    for rank, (tensors, parts) in enumerate(files):
        paths.append(folder / state._file_name(rank, len(files)))
        save_file(tensors, paths[-1], metadata={"shards": parts if isinstance(parts, str) else json.dumps(parts)})
    return paths


def part(shape, *offsets):
    return {"x": {"shape": list(shape), "offsets": list(offsets)}}


def test_shards_in_any_order_make_the_tensor(tmp_path):
    x = torch.arange(21.0).reshape(7, 3)
    files = [
        ({"x": x[4:].clone()}, part((7, 3), 4, 0)),
        ({"x": x[:4].clone(), "y": torch.tensor(2)}, part((7, 3), 0, 0)),
    ]
    found = state._load_tensors(write_shards(tmp_path, *files), _unsharded)
    assert torch.equal(found["x"], x)
    assert found["y"] == 2


@pytest.mark.parametrize("x", [torch.zeros(()), torch.zeros(0), torch.zeros(0, 3), torch.zeros(2, 0), torch.ones(1)])
def test_tensors_of_any_shape_round_trip(tmp_path, x):
    shards, metadata = state._to_shards({"x": x})
    save_file(shards, tmp_path / "file", metadata=metadata)
    assert torch.equal(state._load_tensors([tmp_path / "file"], _unsharded)["x"], x)


HOSTILE = {
    "a gap": (
        [part((7, 3), 0, 0), part((7, 3), 5, 0)],
        r"the shard of 'x' of shape \(3, 3\) at \(5, 0\) is not inside",
    ),
    "an overlap": ([part((6, 3), 0, 0), part((6, 3), 2, 0)], "expected a shard of 'x' at row 4, got row 2"),
    "a missing end": ([part((9, 3), 0, 0), part((9, 3), 4, 0)], "the shards of 'x' have 7 of 9 rows"),
    "a huge whole": ([part((2**60, 3), 0, 0), part((2**60, 3), 4, 0)], "have 7 of 1152921504606846976 rows"),
    "a part outside": ([part((7, 3), 0, 0), part((7, 3), 6, 0)], r"at \(6, 0\) is not inside the shape \(7, 3\)"),
    "another width": (
        [part((7, 4), 0, 0), part((7, 4), 4, 0)],
        r"of shape \(4, 3\) at \(0, 0\) is not inside the shape \(7, 4\)",
    ),
    "another offset": ([part((7, 3), 0, 1), part((7, 3), 4, 0)], r"at \(0, 1\) is not inside"),
    "two wholes": ([part((7, 3), 0, 0), part((8, 3), 4, 0)], "different shapes or dtypes"),
    "twice": ([{}, {}], "different shapes or dtypes"),
    "too few axes": ([part((7,), 0), part((7,), 4)], r"at \(0,\) is not inside the shape \(7,\)"),
    "a negative offset": (
        [part((7, 3), 0, 0), part((7, 3), -4, 0)],
        r"offsets .* must be a list of sizes, got \[-4, 0\]",
    ),
    "a number too many": (
        [part((7, 3), 0, 0), part((7, 3), 10**30, 0)],
        r"offsets .* must be a list of sizes, got \[10{30}, 0\]",
    ),
    "words": (
        [part((7, 3), 0, 0), {"x": {"shape": "large", "offsets": None}}],
        "shape .* must be a list of sizes, got large",
    ),
    "true": ([part((7, 3), 0, 0), part((7, 3), True, 0)], r"offsets .* must be a list of sizes, got \[True, 0\]"),
    "no mapping": ([part((7, 3), 0, 0), {"x": 3}], "shape .* must be a list of sizes, got None"),
    "a list": ([part((7, 3), 0, 0), []], "is not a JSON object"),
    "no JSON": ([part((7, 3), 0, 0), "{"], "is not JSON"),
    "too deep": ([part((7, 3), 0, 0), "[" * 10**5], "is nested too deeply"),
    "an unknown name": (
        [part((7, 3), 0, 0), {**part((7, 3), 4, 0), "z": {"shape": [1], "offsets": [0]}}],
        "names the unknown tensor 'z'",
    ),
}


@pytest.mark.parametrize(("headers", "message"), HOSTILE.values(), ids=HOSTILE)
def test_invalid_headers_are_refused(tmp_path, headers, message):
    paths = write_shards(
        tmp_path, *(({"x": torch.zeros(n, 3)}, parts) for n, parts in zip((4, 3), headers, strict=True))
    )
    with pytest.raises(ValueError, match=message):
        state._load_tensors(paths, _unsharded)


@pytest.mark.parametrize("change", ["lost", "renamed"])
def test_a_missing_tensor_file(tmp_path, change):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(Checkpoint(1, {"x": torch.zeros(2)}, {}), keep=2)
    folder = checkpoints.path(1)
    file = folder / "tensors-1-of-1.safetensors"
    if change == "lost":
        file.unlink()
    else:
        file.rename(folder / "tensors-2-of-2.safetensors")
    (folder / "checksums.json").unlink()
    _write_checksums(folder)
    with pytest.raises(CorruptCheckpointError, match="one tensor file per process"):
        checkpoints.load(1)
