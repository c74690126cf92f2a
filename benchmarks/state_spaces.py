"""State-space layers: agreement of their views, resampling, HiPPO's memory, and speed against public code.

Run `PYTHONPATH=/tmp/peers OMP_NUM_THREADS=1 python benchmarks/state_spaces.py`, or name some tables: `agreement`,
`hippo`, `speed`, `selective`, `step`. The peers come from
`pip install --no-deps --target /tmp/peers s5-pytorch mambapy`. Everything runs in float32 on one thread. Times are
processor time; both sides run in turn in one process.

- `agreement`: relative L2 difference between the scan, the FFT convolution and the recurrence at length 16,384, and
  of a signal with half of the samples and `rate=2`.
- `hippo`: relative error of the reconstruction of 1,000 samples with 10 harmonics by 64 coefficients, for each
  discretization.
- `speed`: forward and backward pass of a layer with 64 channels and 64 states, batch 4 (1 beyond 4,096 samples),
  against the plain PyTorch S4D (`PlainS4D`: the kernel as one sum of exponentials, an FFT of twice the length; not at
  65,536 samples, where its kernel takes gigabytes) and s5-pytorch's `S5`.
- `selective`: forward and backward pass of `selective_scan` against mambapy's `selective_scan` (a parallel scan).
- `step`: time of one step of the recurrence after 0 to 65,536 samples.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import partial

import torch
from measure import compare, row, seconds
from torch import Tensor, nn

from lawful.blocks import S4, S4D, EMALayer
from lawful.functions import hippo_memory, selective_scan

LENGTHS = 256, 1024, 4096, 16384, 65536
MODELS = {
    **{f"S4D {init}": partial(S4D, init=init) for init in ("lin", "inv", "legs")},
    "S4D lin, zero-order hold": partial(S4D, discretization="zoh"),
    "S4": S4,
    "EMALayer": EMALayer,
}


class PlainS4D(nn.Module):
    """S4D as published: the whole kernel as a sum of exponentials, then an FFT of twice the length."""

    def __init__(self, dim: int, state_dim: int) -> None:
        super().__init__()
        modes = state_dim // 2
        self.log_dt = nn.Parameter(torch.rand(dim) * math.log(100) + math.log(1e-3))
        self.c = nn.Parameter(torch.randn(dim, modes, 2))
        self.log_decay = nn.Parameter(torch.full((dim, modes), math.log(0.5)))
        self.frequency = nn.Parameter((math.pi * torch.arange(modes)).expand(dim, -1).clone())
        self.skip = nn.Parameter(torch.randn(dim))

    def forward(self, x: Tensor) -> Tensor:
        t = x.shape[1]
        a = -self.log_decay.exp() + 1j * self.frequency
        z = a * self.log_dt.exp().unsqueeze(-1)
        c = torch.view_as_complex(self.c) * (z.exp() - 1) / a
        kernel = 2 * torch.einsum("dn,dnt->dt", c, (z.unsqueeze(-1) * torch.arange(t)).exp()).real
        spectrum = torch.fft.rfft(x.mT, n=2 * t) * torch.fft.rfft(kernel, n=2 * t)
        return torch.fft.irfft(spectrum, n=2 * t)[..., :t].mT + x * self.skip


def difference(x: Tensor, y: Tensor) -> float:
    return float((x - y).norm() / y.norm())


def smooth_signal(samples: int, harmonics: int, channels: int, *, seed: int) -> Tensor:
    """Random Fourier series, the same for all numbers of samples."""
    generator = torch.Generator().manual_seed(seed)
    amplitudes, phases = torch.randn(2, harmonics, channels, generator=generator, dtype=torch.float64)
    times = torch.arange(samples, dtype=torch.float64) / samples
    angles = 2 * torch.pi * times[:, None, None] * torch.arange(1, harmonics + 1)[:, None] + phases
    return (amplitudes * angles.sin()).sum(1)


@torch.no_grad()
def agreement() -> None:
    print("| model | convolution, 16,384 | recurrence, 16,384 | half rate, scan | half rate, recurrence |")
    print("|---|---|---|---|---|")
    for name, make in MODELS.items():
        torch.manual_seed(0)
        layer = make(8)
        x = torch.randn(1, 16384, 8)
        signal = smooth_signal(2048, 20, 8, seed=0).float().unsqueeze(0)
        found = [difference(layer.convolve(x), layer(x)), difference(recurrence(layer, x, 1.0), layer(x))]
        expected = layer(signal)[:, 1::2]
        found += [difference(layer(signal[:, 1::2], rate=2.0), expected)]
        found += [difference(recurrence(layer, signal[:, 1::2], 2.0), expected)]
        print(f"| {name} | " + " | ".join(f"{value:.1e}" for value in found) + " |", flush=True)


def recurrence(layer: nn.Module, x: Tensor, rate: float) -> Tensor:
    state, outputs = layer.initial_state(len(x)), []
    for u in x.unbind(1):
        y, state = layer.step(u, state, rate)
        outputs.append(y)
    return torch.stack(outputs, 1)


def hippo() -> None:
    print("| method | relative error, three seeds |\n|---|---|")
    for method in ("forward_euler", "backward_euler", "bilinear", "zoh", "foh"):
        errors = [
            float(hippo_memory(smooth_signal(1000, 10, 1, seed=s)[:, 0], 64, dt=1e-3, method=method).error)
            for s in range(3)
        ]
        print(f"| {method} | " + ", ".join(f"{e:.1e}" for e in errors) + " |", flush=True)


def training_pass(function: Callable[[Tensor], Tensor], x: Tensor) -> Callable[[], None]:
    return lambda: function(x).sum().backward()


def speed() -> None:
    from s5 import S5

    print("| length, peer | lawful, ms | peer, ms | ratio | middle half |\n|---|---|---|---|---|")
    for t in LENGTHS:
        x = torch.randn(4 if t <= 4096 else 1, t, 64, requires_grad=True)
        ours = S4D(64, state_dim=64)
        for name, peer in (("plain S4D", PlainS4D(64, 64)), ("s5-pytorch", S5(64, 64))):
            if t > 16384 and name == "plain S4D":
                continue  # its kernel alone takes gigabytes
            rounds = 7 if t <= 4096 else 3
            found = compare(training_pass(ours, x), training_pass(peer, x), rounds=rounds, least=0.0)
            print(row(f"{t}, {name}", found), flush=True)


def selective() -> None:
    from mambapy.mamba import MambaBlock, MambaConfig

    print("| length, peer | lawful, ms | peer, ms | ratio | middle half |\n|---|---|---|---|---|")
    d, n = 64, 16
    block = MambaBlock(MambaConfig(d_model=d // 2, n_layers=1, d_state=n, pscan=True))
    for t in LENGTHS:
        b = 4 if t <= 4096 else 1
        a, skip = -torch.rand(d, n).add(0.1).requires_grad_(), torch.zeros(d)
        x, delta = torch.randn(b, t, d, requires_grad=True), torch.rand(b, t, d).mul(0.1).requires_grad_()
        weights = [torch.randn(b, t, n, requires_grad=True) for _ in range(2)]
        expected = block.selective_scan(x, delta, a, *weights, skip)
        if difference(selective_scan(x, delta, a, *weights)[0], expected) > 1e-4:
            raise ValueError("expected the same outputs")
        ours = lambda: selective_scan(x, delta, a, *weights)[0].sum().backward()  # noqa: E731
        peer = lambda: block.selective_scan(x, delta, a, *weights, skip).sum().backward()  # noqa: E731
        found = compare(ours, peer, rounds=7 if t <= 4096 else 3, least=0.0)
        print(row(f"{t}, mambapy", found), flush=True)


@torch.no_grad()
def step() -> None:
    print("| samples before | S4D, microseconds a step | S4 |\n|---|---|---|")
    layers = S4D(64), S4(64)
    for t in (0, 1024, 65536):
        times = []
        for layer in layers:
            cache = layer.cache()
            if t:
                layer(torch.randn(1, t, 64), cache=cache)
            state, x = cache.state[0] if t else layer.initial_state(1), torch.randn(1, 64)
            times.append(1e6 * min(seconds(lambda: layer.step(x, state), 50) for _ in range(5)))
        print(f"| {t} | {times[0]:.0f} | {times[1]:.0f} |", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    tables = {f.__name__: f for f in (agreement, hippo, speed, selective, step)}
    for name in sys.argv[1:] or tables:
        print(f"\n{name}\n")
        tables[name]()


if __name__ == "__main__":
    main()
