import subprocess
import sys

import pytest
import torch
from torch import nn

from lawful.functions import is_recorded, open_recorder, tap

COMPILED = """
import torch
from torch import nn
from lawful.functions import tap, tapped

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.map = nn.Linear(3, 3)
    def forward(self, x):
        y = tap("mapped", self.map(x))
        return tap("sum", x + y) if not tapped("scores") else x

block, x = Block(), torch.randn(2, 3)
compiled = torch.compile(block, fullgraph=True, backend="eager")
assert torch.equal(compiled(x), block(x))
assert list(block.state_dict()) == ["map.weight", "map.bias"]

from lawful.probe import record
with record(compiled, "mapped", edit={"map": torch.zeros_like}) as tape:
    assert torch.equal(compiled(x), x)
assert torch.equal(tape["mapped"], torch.zeros(2, 3)), tape
assert torch.equal(compiled(x), block(x))
"""


class Hears:
    def __init__(self, *names):
        self.names, self.asked, self.found = names, [], {}

    def wants(self, name):
        self.asked.append(name)
        return name in self.names

    def on_value(self, name, x):
        self.found[name] = x
        return x


def test_a_tap_is_the_very_same_tensor_and_keeps_its_gradient():
    x = torch.ones(2, requires_grad=True)
    assert tap("x", x) is x
    with open_recorder(Hears()):
        assert tap("x", x) is x


def test_every_open_recorder_is_asked_for_every_name():
    one, other = Hears("a"), Hears("b")
    with open_recorder(one), open_recorder(other):
        assert is_recorded("a", "b")
        assert not is_recorded("c")
    assert one.asked == other.asked == ["a", "b", "c"]
    assert not is_recorded("a")


def test_a_recorder_is_closed_when_the_block_raises():
    hears = Hears("a")
    with pytest.raises(ZeroDivisionError), open_recorder(hears):
        1 / 0  # noqa: B018
    tap("a", torch.ones(1))
    assert not hears.found


def test_recorders_may_close_in_any_order():
    one, other = Hears(), Hears()
    first, second = open_recorder(one), open_recorder(other)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    tap("x", torch.ones(1))
    second.__exit__(None, None, None)
    assert not one.found
    assert list(other.found) == ["x"]


def test_it_leaves_no_trace_in_the_state_dict():
    class Block(nn.Linear):
        def forward(self, x):
            return tap("y", super().forward(x))

    assert list(Block(2, 2).state_dict()) == list(nn.Linear(2, 2).state_dict())


@pytest.mark.long
def test_it_compiles_whole_and_a_compiled_model_can_be_recorded():
    subprocess.run([sys.executable, "-W", "error::UserWarning", "-c", COMPILED], check=True, timeout=300)
