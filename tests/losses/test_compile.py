"""Losses compile without graph breaks; checks of values are skipped.

In a subprocess, since the runtime checks of the other tests do not compile.
"""

import subprocess
import sys

import pytest

PROGRAM = """
import torch
from lawful.losses import focal_loss

x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
classes = torch.tensor([0, 2, 1, 2])
for reduction in ("mean", "none"):
    results = []
    loss = lambda x, target: focal_loss(x, target, reduction=reduction)
    for call in (loss, torch.compile(loss, backend="eager", fullgraph=True)):
        leaf = x.detach().requires_grad_()
        value = call(leaf, classes)
        value.sum().backward()
        results.append((value, leaf.grad))
    torch.testing.assert_close(*results)
"""


@pytest.mark.long
def test_full_graph():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
