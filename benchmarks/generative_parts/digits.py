"""Digits: bits per dimension of 8 x 8 images with 17 levels, beside zuko's MAF and independent pixels.

Uniform dequantizing (`Dequantizer`). Each seed has a split of its own, the same for all models: 360 of 1,797 images are
the test, 180 of the others choose the weights (the best of the evaluations, every 5 epochs), the rest are trained on.
There are no labels. Seed 0 is left out: with its split the setting of ours was found. The standard error is that of the
mean over test images.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from importlib.metadata import version

import torch
from torch import Tensor, nn

from lawful.data import Dequantizer
from lawful.data.builtin import digits
from lawful.models.generative import level_flow
from lawful.optim import EMA, adamw, cosine_schedule

PIXELS = Dequantizer(levels=17)
EPOCHS, BATCH, EVERY, DIMS = 60, 64, 5, 64


def parts(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Training, validation and test images, with 17 levels from 0 to 1."""
    images = digits().inputs
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    return images[order[540:]], images[order[360:540]], images[order[:360]]


def bits(log_density: Callable[[Tensor], Tensor], images: Tensor) -> tuple[float, float]:
    """Bits per dimension of dequantized images, and the standard error over images."""
    with torch.no_grad():
        found = PIXELS.bits_per_dimension(log_density(PIXELS.dequantized(images, seed=1)).double(), DIMS)
    return float(found.mean()), float(found.std() / math.sqrt(len(found)))


def trained(
    model: nn.Module, log_density: Callable[[Tensor], Tensor], *, rate: float, seed: int, epochs: int = EPOCHS
) -> tuple[float, float, float]:
    """Validation bits, test bits and their standard error, at the epoch that validation chose."""
    train, validation, test = parts(seed)
    optimizer = adamw(model.parameters(), lr=rate, betas=(0.9, 0.99), weight_decay=1e-2)
    mean = EMA(model, decay=0.98)
    schedule, step, best, kept = cosine_schedule(steps=epochs * (len(train) // BATCH + 1), warmup=50), 0, math.inf, {}
    for epoch in range(epochs):
        model.train()
        images = PIXELS.dequantized(train, seed=100 + epoch)
        shuffled = torch.randperm(len(train), generator=torch.Generator().manual_seed(1000 * seed + epoch))
        for rows in shuffled.split(BATCH):
            for group in optimizer.param_groups:
                group["lr"] = rate * schedule(step)
            loss = -log_density(images[rows]).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            mean.update(model)
            step += 1
        if (epoch + 1) % EVERY == 0:
            model.eval()
            with mean.average_parameters(model):
                found, _ = bits(log_density, validation)
            if found < best:
                best, kept = found, copy.deepcopy(mean.state_dict())
    model.load_state_dict(kept, strict=False)
    model.eval()
    return best, *bits(log_density, test)


def ours(seed: int) -> tuple[float, float, float]:
    """The flow of levels."""
    torch.manual_seed(seed)
    low, high = PIXELS.support
    flow = level_flow((1, 8, 8), levels=17, low=low, high=high)
    return trained(flow, flow.log_density, rate=5e-3, seed=seed)


def zuko_maf(seed: int) -> tuple[float, float, float]:
    """The MAF of zuko, with 5 transforms of 256 hidden units, on standardised images, for twice as many epochs."""
    import zuko

    torch.manual_seed(seed)
    noisy = PIXELS.dequantized(parts(seed)[0], seed=99).flatten(1)
    shift, scale = noisy.mean(0), noisy.std(0)
    flow = zuko.flows.MAF(features=64, transforms=5, hidden_features=(256, 256))

    def log_density(x: Tensor) -> Tensor:
        return flow().log_prob((x.flatten(1) - shift) / scale) - scale.log().sum()

    return trained(flow, log_density, rate=3e-3, seed=seed, epochs=2 * EPOCHS)


def independent(seed: int) -> tuple[float, float, float]:
    """Each pixel's own frequencies of levels, with one count added to each."""
    train, validation, test = parts(seed)
    shown = (16 * train.flatten(1)).round()
    counts = torch.stack([(shown == level).sum(0) for level in range(17)], -1) + 1.0
    logs = (counts / counts.sum(-1, keepdim=True)).log()

    def log_density(x: Tensor) -> Tensor:
        levels = (16 * PIXELS.quantized(x.flatten(1))).round().long()
        masses = logs.expand(len(x), -1, -1).gather(-1, levels[..., None])[..., 0]
        return (masses - math.log(PIXELS.width)).sum(-1)

    return bits(log_density, validation)[0], *bits(log_density, test)


def run(seeds: int = 5) -> None:
    """Prints the table."""
    print("## Digits: bits per dimension, uniform dequantizing, 360 test images, chosen on 180 validation images")
    print(f"zuko {version('zuko')}, torch {torch.__version__}\n")
    print("| model | seed and split | validation | test | standard error |\n|---|---|---|---|---|")
    models = {"independent pixels": independent, "lawful level_flow": ours, "zuko MAF(5 x 256)": zuko_maf}
    for seed in range(1, seeds + 1):
        for name, find in models.items():
            validation, test, error = find(seed)
            print(f"| {name} | {seed} | {validation:.3f} | {test:.3f} | {error:.3f} |", flush=True)
