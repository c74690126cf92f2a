"""Functions with branches on values compile without graph breaks.

This runs in a subprocess: the shape checks that other tests enable do not compile.
"""

import subprocess
import sys

import pytest

PROGRAM = """
import torch
from lawful import functions

x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
p, q = x.softmax(-1), x.flip(0).softmax(-1)
calls = [
    (functions.norm, (x,)),
    (functions.kl_divergence, (p, q)),
    (functions.js_distance, (p, q)),
]
for function, inputs in calls:
    gradients = []
    for called in (function, torch.compile(function, backend="eager", fullgraph=True)):
        leaves = [y.detach().requires_grad_() for y in inputs]
        called(*leaves).sum().backward()
        gradients.append([leaf.grad for leaf in leaves])
    torch.testing.assert_close(*gradients)
"""


@pytest.mark.long
def test_functions_compile_without_graph_breaks():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
