"""Taps and recorders."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from lawful.functions import is_recorded, open_recorder, tap
from lawful.laws import Claim, agreement, shape

COMPILED = """
import torch
from torch import nn
from lawful.functions import is_recorded, tap

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.map = nn.Linear(3, 3)
    def forward(self, x):
        y = tap("mapped", self.map(x))
        return tap("sum", x + y) if not is_recorded("scores") else x

block, x = Block(), torch.randn(2, 3)
compiled = torch.compile(block, fullgraph=True, backend="eager")
assert torch.equal(compiled(x), block(x))
assert list(block.state_dict()) == ["map.weight", "map.bias"]

from lawful.probe import record
with record(compiled, "mapped", edits={"map": torch.zeros_like}) as cache:
    assert torch.equal(compiled(x), x)
assert torch.equal(cache["mapped"], torch.zeros(2, 3)), cache
assert torch.equal(compiled(x), block(x))
"""


class RecordAll:
    def __init__(self, *names):
        self.names, self.calls, self.found = names, [], {}

    def wants(self, name):
        self.calls.append(name)
        return name in self.names

    def on_value(self, name, x):
        self.found[name] = x
        return x


def test_a_tap_returns_the_same_tensor():
    x = torch.ones(2, requires_grad=True)
    assert tap("x", x) is x
    with open_recorder(RecordAll()):
        assert tap("x", x) is x


def test_every_recorder_is_asked_for_every_name():
    one, other = RecordAll("a"), RecordAll("b")
    with open_recorder(one), open_recorder(other):
        assert is_recorded("a", "b") is True
        assert is_recorded("c") is False
    assert one.calls == other.calls == ["a", "b", "c"]
    assert is_recorded("a") is False


def test_a_recorder_closes_when_the_block_raises():
    recorder = RecordAll("a")
    with pytest.raises(ZeroDivisionError, match="division by zero"), open_recorder(recorder):
        1 / 0  # noqa: B018
    tap("a", torch.ones(1))
    assert not recorder.found


def test_recorders_close_in_any_order():
    one, other = RecordAll(), RecordAll()
    first, second = open_recorder(one), open_recorder(other)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    tap("x", torch.ones(1))
    second.__exit__(None, None, None)
    assert not one.found
    assert list(other.found) == ["x"]


def test_a_tap_leaves_no_trace_in_the_state_dict():
    class Block(nn.Linear):
        def forward(self, x):
            return tap("y", super().forward(x))

    assert list(Block(2, 2).state_dict()) == list(nn.Linear(2, 2).state_dict())


@pytest.mark.long
def test_a_tap_compiles_and_a_compiled_model_can_be_recorded():
    subprocess.run([sys.executable, "-W", "error::UserWarning", "-c", COMPILED], check=True, timeout=300)


class AffineEdit:
    """Replaces the values of one name by a x + b."""

    def __init__(self, name, a, b):
        self.name, self.a, self.b = name, a, b

    def wants(self, name):
        return name == self.name

    def on_value(self, name, x):
        return self.a * x + self.b if self.wants(name) else x


def claims():
    """Edits of nested recorders."""

    def block(x):
        y = tap("square", x * x)
        return tap("sum", x + y) + (100 if is_recorded("sum", "difference") else 0)

    def edited(x):
        with (
            open_recorder(AffineEdit("square", 2.0, 0.0)),
            open_recorder(AffineEdit("square", 1.0, 3.0)),
            open_recorder(AffineEdit("sum", -1.0, 0.0)),
        ):
            return block(x)

    def after_editing(x):
        edited(x)
        return block(x)

    plain = agreement(other=lambda x: x + x * x)
    yield Claim(plain, block, shape("b 4"), name="no recorder open")
    yield Claim(agreement(other=lambda x: 100 - (x + 2 * x**2 + 3)), edited, shape("b 4"), name="three recorders open")
    yield Claim(plain, after_editing, shape("b 4"), name="recorders closed again")
