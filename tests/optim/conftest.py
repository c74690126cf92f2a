from itertools import pairwise

import pytest
import torch
from torch import nn


@pytest.fixture(params=[torch.float32, torch.float64], ids=["float32", "float64"])
def dtype(request):
    return request.param


def network(dtype=torch.float32, *, sizes=(4, 6, 6, 2)):
    torch.manual_seed(0)
    layers = [nn.Linear(*size) for size in pairwise(sizes)]
    return nn.Sequential(*layers).to(dtype)


def train_network(build, dtype=torch.float32, *, steps=50, make=network, before=None):
    """Returns a model after some steps, and its optimizer."""
    model = make(dtype)
    optimizer = build(model)
    if before:
        before(optimizer)
    x = torch.randn(20, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)
    for t in range(steps):
        optimizer.zero_grad()
        (model(x + 0.1 * (t % 5)).tanh() - 0.3).square().mean().backward()
        optimizer.step()
    return model, optimizer


def assert_close(ours, theirs, dtype, *, exact=False):
    rtol, atol = (0, 0) if exact else ((1e-4, 1e-6) if dtype is torch.float32 else (1e-9, 1e-12))
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=rtol, atol=atol)


@pytest.fixture
def tools():
    class Tools:
        pass

    tools = Tools()
    tools.network, tools.train_network, tools.assert_close = network, train_network, assert_close
    return tools
