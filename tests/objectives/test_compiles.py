"""Losses compile in one piece, the checks of their values left out.

In a process of its own: the checks of every call that the other tests have do not compile.
"""

import subprocess
import sys

import pytest

PROGRAM = """
import torch
from lawful.losses import binary_cross_entropy, cross_entropy, each, focal_loss

x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
classes, truth = torch.tensor([0, 2, 1, 2]), x.flip(0) > 0
calls = [
    (cross_entropy, classes),
    (cross_entropy, x.flip(0).softmax(-1)),
    (focal_loss, classes),
    (binary_cross_entropy, truth),
]
for loss, target in calls:
    for reduce in (torch.mean, each):
        found = []
        whole = lambda x, target: loss(x, target, reduce=reduce)
        for called in (whole, torch.compile(whole, backend="eager", fullgraph=True)):
            leaf = x.detach().requires_grad_()
            value = called(leaf, target)
            value.sum().backward()
            found.append((value, leaf.grad))
        torch.testing.assert_close(*found)
"""


@pytest.mark.long
def test_in_one_piece():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
