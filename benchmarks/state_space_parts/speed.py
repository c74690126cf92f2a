"""Speed of kernels, layers and the selective scan against public code, in turn in one process.

A round repeats each side for a tenth of a second: right after a side that has returned its memory to the system, the
other one is slower.

- `kernel`: the convolution kernel of 64 channels with 64 states, against the plain PyTorch S4D. At 65,536 samples both
  have 16 channels: the plain kernel would take gigabytes.
- `layer`: `S4D(64, state_dim=64)` against the plain S4D and s5-pytorch's `S5(64, 64)`, and `SelectiveStateSpace(32)`
  against mambapy's `MambaBlock`, both with inner width 64 and 16 states. Batch 4, and 1 beyond 4,096 samples. The plain
  S4D has 16 channels at 65,536 samples, and lawful's in that cell.
- `selective`: `selective_scan` against mambapy's (a parallel scan), 64 channels and 16 states.
- `scaling`: time for a sample of a signal, by the scan (linear in the length) and by the FFT convolution (n log n).
- `step`: time of one more sample with a cache, after 1 to 65,536 samples.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch
from measure import compare, row, seconds
from state_space_parts.plain import PlainS4D
from torch import Tensor, nn

from lawful.blocks import S4, S4D, SelectiveStateSpace
from lawful.functions import selective_scan

LENGTHS = 256, 1024, 4096, 16384, 65536
DIM, STATE_DIM = 64, 64
HEADER = "| {}, peer | lawful, ms | peer, ms | ratio | middle half |\n|---|---|---|---|---|"


def passes(function: Callable[[], Tensor]) -> dict[str, Callable[[], None]]:
    """The forward pass alone, without gradients, and the forward and backward pass."""

    def forward() -> None:
        with torch.no_grad():
            function()

    return {"forward": forward, "forward and backward": lambda: function().sum().backward()}


def compare_passes(name: str, ours: Callable[[], Tensor], peer: Callable[[], Tensor], length: int) -> None:
    for (kind, mine), theirs in zip(passes(ours).items(), passes(peer).values(), strict=True):
        found = compare(mine, theirs, rounds=9 if length <= 4096 else 5, least=0.1)
        print(row(f"{length}, {name}, {kind}", found), flush=True)


def signal(length: int, dim: int) -> Tensor:
    return torch.randn(4 if length <= 4096 else 1, length, dim, requires_grad=True)


def kernel() -> None:
    print(HEADER.format("kernel, length"))
    for t in LENGTHS:
        dim = DIM if t <= 16384 else 16
        ours, plain = S4D(dim, state_dim=STATE_DIM), PlainS4D(dim, STATE_DIM)
        compare_passes("plain S4D", lambda: ours.kernel(t), lambda: plain.kernel(t), t)


def layer() -> None:
    from mambapy.mamba import MambaBlock, MambaConfig
    from s5 import S5

    print(HEADER.format("layer, length"))
    for t in LENGTHS:
        plain_dim = DIM if t <= 16384 else 16
        pairs: dict[str, tuple[nn.Module, nn.Module, Tensor]] = {
            "plain S4D": (S4D(plain_dim, state_dim=STATE_DIM), PlainS4D(plain_dim, STATE_DIM), signal(t, plain_dim)),
            "s5-pytorch": (S4D(DIM, state_dim=STATE_DIM), S5(DIM, STATE_DIM), signal(t, DIM)),
            "mambapy": (
                SelectiveStateSpace(DIM // 2),
                MambaBlock(MambaConfig(d_model=DIM // 2, n_layers=1, d_state=16)),
                signal(t, DIM // 2),
            ),
        }
        for name, (ours, peer, x) in pairs.items():
            compare_passes(name, lambda: ours(x), lambda: peer(x), t)


def selective() -> None:
    from mambapy.mamba import MambaBlock, MambaConfig

    print(HEADER.format("selective scan, length"))
    n = 16
    block = MambaBlock(MambaConfig(d_model=DIM // 2, n_layers=1, d_state=n, pscan=True))
    for t in LENGTHS:
        a, skip = -torch.rand(DIM, n).add(0.1).requires_grad_(), torch.zeros(DIM)
        x, b, c = signal(t, DIM), signal(t, n), signal(t, n)
        delta = torch.rand_like(x).mul(0.1).requires_grad_()
        ours, expected = selective_scan(x, delta, a, b, c)[0], block.selective_scan(x, delta, a, b, c, skip)
        if float((ours - expected).norm().detach() / expected.norm().detach()) > 1e-4:
            raise ValueError("expected the same outputs")
        del ours, expected
        compare_passes(
            "mambapy",
            lambda: selective_scan(x, delta, a, b, c)[0],
            lambda: block.selective_scan(x, delta, a, b, c, skip),
            t,
        )


@torch.no_grad()
def scaling() -> None:
    print("| one signal, 64 channels | scan, µs a sample | FFT convolution, µs a sample |\n|---|---|---|")
    ours = S4D(DIM, state_dim=STATE_DIM)
    for t in LENGTHS:
        x = torch.randn(1, t, DIM)
        times = [
            1e6 / t * statistics.median(seconds(lambda: function(x), max(1, 16384 // t)) for _ in range(7))
            for function in (ours, ours.convolve)
        ]
        print(f"| {t} | {times[0]:.2f} | {times[1]:.2f} |", flush=True)


@torch.no_grad()
def step() -> None:
    print("| samples before | S4D, µs a sample | S4 | SelectiveStateSpace |\n|---|---|---|---|")
    layers = S4D(DIM), S4(DIM), SelectiveStateSpace(DIM)
    for t in (1, 1024, 65536):
        times = []
        for ours in layers:
            cache, x = ours.cache(), torch.randn(1, 1, DIM)
            ours(torch.randn(1, t, DIM), cache=cache)
            times.append(1e6 * statistics.median(seconds(lambda: ours(x, cache=cache), 50) for _ in range(7)))
        print(f"| {t} | " + " | ".join(f"{one:.0f}" for one in times) + " |", flush=True)
