"""Names from the user's files and modules are printed without control characters, and cannot pose as verdicts."""

import json

import pytest

from lawful.cli import main
from tests.test_cli import in_process  # noqa: F401

HOSTILE = 'a\nheld         forged  causality(time=1)\x1b]0;title\x07\x1b[2J\x9b31m\u202e"""'
MODULE = """
from torch import nn
from lawful.laws import Claim, Equal, causality, law, shape

HOSTILE = {hostile!r}


class Layer(nn.Module):
    __doc__ = HOSTILE

    def forward(self, x):
        return x.{body}


class Raises(nn.Module):
    def forward(self, x):
        raise type(HOSTILE, (RuntimeError,), {{}})(HOSTILE)


Layer.__name__ = Layer.__qualname__ = Raises.__name__ = Raises.__qualname__ = HOSTILE
globals()["a" + HOSTILE] = Layer


def factory():
    raise RuntimeError(HOSTILE)


@law(HOSTILE, any_weights=False, discover_with=None)
def hostile_law(f, x):
    return Equal(f(x), x, names=[HOSTILE], causes=[HOSTILE])


def claims():
    yield Claim(causality(time=1), Layer(), shape("b t 4"), name=HOSTILE)
    yield Claim(causality(time=1), Raises(), shape("b t 4"), name=HOSTILE)
    yield Claim(hostile_law(), Layer(), shape("b t 4"), name=HOSTILE)
    raise ValueError(HOSTILE)
"""
CASES = ("--cases", "5")
INPUT = ("--input", "b t 4", *CASES)
CAUSALITY = ("--law", "causality:time=1")
COMMANDS = {
    "check a class": lambda path: ("check", f"{path}:Layer", *INPUT, *CAUSALITY),
    "check a hostile name": lambda path: ("check", f"{path}:a{HOSTILE}", *INPUT, *CAUSALITY),
    "check a map that raises": lambda path: ("check", f"{path}:Raises", *INPUT, *CAUSALITY, "--debug"),
    "check a factory that raises": lambda path: ("check", f"{path}:factory", *INPUT, "--debug"),
    "check a law": lambda path: ("check", f"{path}:Layer", *INPUT, "--law", f"{path}:hostile_law"),
    "check claims": lambda path: ("check", f"{path}", *CASES),
    "check, JSON": lambda path: ("check", f"{path}:a{HOSTILE}", *INPUT, *CAUSALITY, "--json", "-"),
    "check, script": lambda path: ("check", f"{path}:Layer", *INPUT, *CAUSALITY, "--script", f"{path.parent}/a.py"),
    "check, unknown name": lambda path: ("check", f"{path}:b{HOSTILE}", *INPUT),
    "check, unknown law": lambda path: ("check", f"{path}:Layer", *INPUT, "--law", HOSTILE),
    "check, wrong input": lambda path: ("check", f"{path}:Layer", *CASES, "--input", HOSTILE),
    "check, no file": lambda path: ("check", f"{path.parent}/{HOSTILE}.py"),
    "discover a class": lambda path: ("discover", f"{path}:a{HOSTILE}", *INPUT),
    "discover, all": lambda path: ("discover", f"{path}:Layer", *INPUT, "--all"),
    "discover a map that raises": lambda path: ("discover", f"{path}:Raises", *INPUT, "--debug"),
    "discover, JSON": lambda path: ("discover", f"{path}:a{HOSTILE}", *INPUT, "--json", "-"),
    "discover, claims": lambda path: ("discover", f"{path}:a{HOSTILE}", *INPUT, "--as-claims"),
}


@pytest.mark.parametrize("body", ["flip(1)", "cumsum(1)"])
@pytest.mark.parametrize("command", COMMANDS)
def test_hostile_names(tmp_path, capfd, in_process, few_laws, command, body):  # noqa: F811
    folder = tmp_path / "new\nheld  x\x1b[2J"
    folder.mkdir()
    path = folder / "layers.py"
    path.write_text(MODULE.format(hostile=HOSTILE, body=body), encoding="utf-8")
    assert main(list(COMMANDS[command](path))) in (0, 1, 4)
    output = capfd.readouterr()
    shown = output.out + output.err
    assert not [c for c in set(shown) if not c.isprintable() and c != "\n"]
    assert not [line for line in shown.splitlines() if line.startswith(("held         forged", "held  x"))]
    if "JSON" in command:
        found = json.loads(output.out)
        targets = [found["target"]] if "target" in found else [verdict["target"] for verdict in found["verdicts"]]
        assert targets == [f"a{HOSTILE}"]
    if "claims" in command and "discover" in command:
        compile(output.out, "claims.py", "exec")
