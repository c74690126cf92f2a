"""State-space layers: agreement of their views, resampling, HiPPO's memory, speed and accuracy against public code.

Run `PYTHONPATH=/tmp/peers OMP_NUM_THREADS=1 python benchmarks/state_spaces.py TABLE...`, with tables of these:
`agreement`, `hippo`, `kernel`, `layer`, `selective`, `scaling`, `step`, `mnist1d` (or `mnist1d=MODEL` for one model),
`generation`, `text=FILE` and `ngrams=FILE`. Without arguments it runs all that need no file. The peers come from
`pip install --no-deps --target /tmp/peers s5-pytorch mambapy einops`. Everything is float32 on one thread. Times are
processor time; both sides run in turn in one process. The tables of speed, of MNIST-1D and of text are described in
their files in `state_space_parts`.

- `agreement`: relative L2 difference between the scan, the FFT convolution and the recurrence at length 16,384, and
  of a signal with half of the samples and `rate=2`, in both modes. The signal has 20 harmonics in 2,048 samples.
- `hippo`: relative error of the reconstruction of 1,000 samples with 10 harmonics by 64 coefficients, for each
  discretization.
"""

from __future__ import annotations

import sys
from functools import partial

import torch
from state_space_parts import mnist1d, speed, text
from torch import Tensor, nn

from lawful.blocks import S4, S4D, EMALayer
from lawful.functions import hippo_memory

MODELS = {
    **{f"S4D {init}": partial(S4D, init=init) for init in ("lin", "inv", "legs")},
    "S4D lin, zero-order hold": partial(S4D, discretization="zoh"),
    "S4D lin, bilinear": partial(S4D, discretization="bilinear"),
    "S4": S4,
    "EMALayer": EMALayer,
}


def difference(x: Tensor, y: Tensor) -> float:
    return float(((x - y).norm() / y.norm()).detach())


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


def main() -> None:
    torch.set_num_threads(1)
    parts = (agreement, hippo, speed.kernel, speed.layer, speed.selective, speed.scaling, speed.step, text.generation)
    tables = {**{f.__name__: f for f in parts}, "mnist1d": mnist1d.run}
    with_value = {"mnist1d": mnist1d.run, "text": text.text, "ngrams": text.ngrams}
    for argument in sys.argv[1:] or tables:
        name, _, value = argument.partition("=")
        if name not in (with_value if value else tables):
            sys.exit(f"unknown table {argument!r}, expected one of {', '.join(tables)}, text=FILE, ngrams=FILE")
        print(f"\n{name}\n")
        torch.manual_seed(0)
        if value:
            with_value[name](value)
        else:
            tables[name]()


if __name__ == "__main__":
    main()
