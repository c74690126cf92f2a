"""Whether a block costs more than PyTorch's own: forward and backward, wherever PyTorch has the piece.

Run `python benchmarks/blocks.py`, or name some of the rows: `python benchmarks/blocks.py Dense LSTM`. Each row takes
the output's sum back to the input and the parameters. Ours and PyTorch's run in turn, on the same input, in float32,
on one thread, and what counts is processor time; the sizes are such that an operation takes 100 µs or more. The
ratio is the median over the rounds, its spread the middle half of them; below 1 means faster than PyTorch's.
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

from lawful import blocks, functions, objectives

ROUNDS = 41
X = torch.randn(16, 64, 256)
IMAGE = torch.randn(16, 16, 32, 32)
SIGNAL = torch.randn(32, 16, 512)
VOLUME = torch.randn(2, 8, 16, 16, 16)
TOKENS = torch.randint(1000, (16, 64))
SERIES = torch.randn(16, 32, 64)
PROBABILITIES = torch.randn(4096, 64).softmax(-1)
SQUARE, TALL = torch.randn(32, 48, 48), torch.randn(64, 64, 16)
LABELS = torch.randint(64, (4096,))
ROWS = torch.randn(4096, 64)

Pair = tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]

PAIRS: dict[str, Pair] = {
    "Dense": (blocks.Dense(256, 256), nn.Linear(256, 256), (X,)),
    "Dense, GELU": (
        blocks.Dense(256, 256, activation=functions.gelu),
        nn.Sequential(nn.Linear(256, 256), nn.GELU()),
        (X,),
    ),
    "Embedding": (blocks.Embedding(1000, 256), nn.Embedding(1000, 256), (TOKENS,)),
    "Bilinear": (blocks.Bilinear((64, 64), 32), nn.Bilinear(64, 64, 32), (ROWS[:256], ROWS[256:512])),
    "Convolution, 1-D": (blocks.Convolution(16, 16, kernel=(5,)), nn.Conv1d(16, 16, 5), (SIGNAL,)),
    "Convolution, 2-D": (
        blocks.Convolution(16, 32, kernel=(3, 3), padding=blocks.SAME),
        nn.Conv2d(16, 32, 3, padding=1),
        (IMAGE,),
    ),
    "Convolution, 2-D circular": (
        blocks.Convolution(16, 32, kernel=(3, 3), padding=blocks.CIRCULAR),
        nn.Conv2d(16, 32, 3, padding=1, padding_mode="circular"),
        (IMAGE,),
    ),
    "Convolution, 2-D strided": (
        blocks.Convolution(16, 32, kernel=(3, 3), stride=2),
        nn.Conv2d(16, 32, 3, stride=2),
        (IMAGE,),
    ),
    "Convolution, 3-D": (blocks.Convolution(8, 8, kernel=(3, 3, 3)), nn.Conv3d(8, 8, 3), (VOLUME,)),
    "TransposedConvolution": (
        blocks.TransposedConvolution(16, 16, kernel=(3, 3), stride=2),
        nn.ConvTranspose2d(16, 16, 3, stride=2),
        (IMAGE,),
    ),
    "MaxPool": (blocks.MaxPool((2, 2)), nn.MaxPool2d(2), (IMAGE,)),
    "AveragePool": (blocks.AveragePool((2, 2)), nn.AvgPool2d(2), (IMAGE,)),
    "GlobalPool": (
        blocks.GlobalPool(),
        nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        (IMAGE,),
    ),
    "BatchNorm": (blocks.BatchNorm(16), nn.BatchNorm2d(16), (IMAGE,)),
    "LayerNorm": (blocks.LayerNorm(256), nn.LayerNorm(256), (X,)),
    "InstanceNorm": (blocks.InstanceNorm(16), nn.InstanceNorm2d(16), (IMAGE,)),
    "GroupNorm": (blocks.GroupNorm(4, 16), nn.GroupNorm(4, 16), (IMAGE,)),
    "RMSNorm": (blocks.RMSNorm(256), nn.RMSNorm(256, eps=1e-6), (X,)),
    "Elman": (blocks.Elman(64, 64), nn.RNN(64, 64, batch_first=True), (SERIES,)),
    "GRU": (blocks.GRU(64, 64), nn.GRU(64, 64, batch_first=True), (SERIES,)),
    "LSTM": (blocks.LSTM(64, 64), nn.LSTM(64, 64, batch_first=True), (SERIES,)),
    "Dropout": (blocks.Dropout(0.5), nn.Dropout(0.5), (X,)),
    "FeedForward": (
        blocks.FeedForward(64),
        nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)),
        (SERIES,),
    ),
    **{
        f"{name}": (getattr(functions, name), peer, (X,))
        for name, peer in {
            "relu": F.relu,
            "leaky_relu": F.leaky_relu,
            "elu": F.elu,
            "gelu": F.gelu,
            "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
            "silu": F.silu,
            "sigmoid": torch.sigmoid,
            "tanh": torch.tanh,
            "softplus": F.softplus,
            "softmax": lambda x: F.softmax(x, -1),
            "log_softmax": lambda x: F.log_softmax(x, -1),
            "norm": lambda x: torch.linalg.vector_norm(x, dim=-1),
            "frobenius": lambda x: torch.linalg.matrix_norm(x),
        }.items()
    },
    "norm, p=1": (lambda x: functions.norm(x, p=1), lambda x: torch.linalg.vector_norm(x, 1, -1), (X,)),
    "norm, p=3": (lambda x: functions.norm(x, p=3), lambda x: torch.linalg.vector_norm(x, 3, -1), (X,)),
    "cosine": (functions.cosine_similarity, lambda x, y: F.cosine_similarity(x, y, -1), (X, X.flip(0))),
    "dot": (functions.dot, lambda x, y: torch.linalg.vecdot(x, y), (X, X.flip(0))),
    "outer": (functions.outer, lambda x, y: x[..., :, None] * y[..., None, :], (ROWS[:512], ROWS[512:1024])),
    "gram": (functions.gram, lambda x: x @ x.mT, (X,)),
    "kl_divergence": (
        functions.kl_divergence,
        lambda p, q: kl_divergence(Categorical(probs=p), Categorical(probs=q)),
        (PROBABILITIES, PROBABILITIES.flip(0)),
    ),
    "lu": (lambda a: functions.lu(a)[2], lambda a: torch.linalg.lu(a)[2], (SQUARE,)),
    "qr": (lambda a: functions.qr(a)[0], lambda a: torch.linalg.qr(a)[0], (TALL,)),
    "svd": (lambda a: functions.svd(a)[1], lambda a: torch.linalg.svd(a, full_matrices=False)[1], (SQUARE,)),
    "symmetric_eigen": (
        lambda a: functions.symmetric_eigen(a @ a.mT)[0],
        lambda a: torch.linalg.eigh(a @ a.mT)[0],
        (SQUARE,),
    ),
    "determinant": (functions.determinant, torch.linalg.det, (SQUARE,)),
    "pseudo_inverse": (functions.pinv, torch.linalg.pinv, (TALL,)),
    "cross_entropy": (objectives.cross_entropy, F.cross_entropy, (ROWS, LABELS)),
    "squared_error": (objectives.squared_error, F.mse_loss, (X, X.flip(0))),
    "absolute_error": (objectives.absolute_error, F.l1_loss, (X, X.flip(0))),
    "huber_loss": (objectives.huber_loss, F.huber_loss, (X, X.flip(0))),
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


def main(wanted: list[str]) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"torch {torch.__version__}, one thread, {ROUNDS} rounds\n")
    print("| piece | ours, ms | PyTorch's, ms | ratio | middle half |")
    print("|---|---|---|---|---|")
    for name, (ours, theirs, inputs) in PAIRS.items():
        if not wanted or any(name.startswith(w) for w in wanted):
            found = compare(
                forward_and_backward(ours, inputs), forward_and_backward(theirs, inputs), rounds=ROUNDS, least=5e-3
            )
            print(row(name, found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
