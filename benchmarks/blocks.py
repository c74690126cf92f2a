"""Time of blocks and functions against the same computation written with PyTorch: forward and backward.

Run `python benchmarks/blocks.py`, or name some rows: `python benchmarks/blocks.py FeedForward qr`. Each row
differentiates the sum of the output with respect to inputs and parameters. Ours and PyTorch's run in turn on the same
input, in float32, on one thread; the measure is processor time. The ratio is the median over the rounds, with its
interquartile range; below 1 is faster than PyTorch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from measure import compare, row
from torch import Tensor, nn
from torch.distributions import Categorical, kl_divergence
from torch.nn import functional as F

from lawful import blocks, functions

ROUNDS = 41
X = torch.randn(16, 64, 256)
IMAGE = torch.randn(16, 16, 32, 32)
SEQUENCE = torch.randn(16, 64, 64)
ROWS = torch.randn(4096, 64)
PROBABILITIES = torch.randn(4096, 64).softmax(-1)
TALL = torch.randn(64, 64, 16)

Pair = tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]


class TorchAttention(nn.Module):
    """`nn.MultiheadAttention` as a function of one input."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(64, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


class TorchSwiGLU(nn.Module):
    """A SwiGLU feed-forward block."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.gate = nn.Linear(64, 171, bias=False), nn.Linear(64, 171, bias=False)
        self.down = nn.Linear(171, 64, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.up(x) * F.silu(self.gate(x)))


PAIRS: dict[str, Pair] = {
    "MultiHeadAttention": (blocks.MultiHeadAttention(64), TorchAttention(), (SEQUENCE,)),
    "FeedForward": (
        blocks.FeedForward(64),
        nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)),
        (SEQUENCE,),
    ),
    "GatedFeedForward": (blocks.GatedFeedForward(64), TorchSwiGLU(), (SEQUENCE,)),
    "pre_norm": (
        blocks.pre_norm(nn.Linear(64, 64), nn.LayerNorm(64)),
        nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 64)),
        (SEQUENCE,),
    ),
    "AdaNorm": (blocks.AdaNorm(), nn.LayerNorm(256, elementwise_affine=False), (X,)),
    "WhiteningNorm": (blocks.WhiteningNorm(16), nn.BatchNorm2d(16), (IMAGE,)),
    "WeightScalingDropout": (blocks.WeightScalingDropout(0.5), nn.Dropout(0.5), (X,)),
    "StochasticDepth": (blocks.StochasticDepth(0.5), nn.Dropout(0.5), (X,)),
    "MaskedLinear": (blocks.MaskedLinear(torch.ones(256, 256).tril().bool()), nn.Linear(256, 256), (X,)),
    "squared_relu": (functions.squared_relu, lambda x: F.relu(x).square(), (X,)),
    "norm": (functions.norm, lambda x: torch.linalg.vector_norm(x, dim=-1), (X,)),
    "norm, p=3": (lambda x: functions.norm(x, p=3), lambda x: torch.linalg.vector_norm(x, 3, -1), (X,)),
    "kl_divergence": (
        functions.kl_divergence,
        lambda p, q: kl_divergence(Categorical(probs=p), Categorical(probs=q)),
        (PROBABILITIES, PROBABILITIES.flip(0)),
    ),
    "qr": (lambda a: functions.qr(a)[0], lambda a: torch.linalg.qr(a)[0], (TALL,)),
}


def forward_and_backward(f: Callable[..., Any], inputs: tuple[Any, ...]) -> Callable[[], object]:
    leaves = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
    sources = [x for x in leaves if x.requires_grad]
    sources += f.parameters() if isinstance(f, nn.Module) else []

    def work() -> object:
        y = f(*leaves)
        y = y if isinstance(y, Tensor) else y[0]
        return torch.autograd.grad(y.sum(), sources)

    return work


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"torch {torch.__version__}, one thread, {ROUNDS} rounds\n")
    print("| block | ours, ms | PyTorch, ms | ratio | interquartile range |")
    print("|---|---|---|---|---|")
    for name, (ours, theirs, inputs) in PAIRS.items():
        if not names or any(name.startswith(start) for start in names):
            found = compare(
                forward_and_backward(ours, inputs), forward_and_backward(theirs, inputs), rounds=ROUNDS, least=5e-3
            )
            print(row(name, found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
