"""Samples of digits: Fréchet distance in a frozen classifier's features, beside diffusers' DDPM.

One split for all: 360 of 1,797 images are the test, which samples are compared with; the rest are trained on. Both
sides have the same network (this library's `TimeMLP`), optimizer, rate, average of the weights and processor time for
training; no labels. The peer's noise schedule, loss and sampler (1,000 steps) are its defaults. The floor is what the
training images themselves have.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor, nn

from lawful.data.builtin import digits
from lawful.inference.metrics import frechet_distance
from lawful.losses.classification import cross_entropy
from lawful.models import MLP, MLPConfig
from lawful.models.generative import DiffusionModel, TimeMLP, TimeMLPConfig
from lawful.optim import EMA, adamw

SECONDS, BATCH, RATE, DECAY, SAMPLES = 20.0, 128, 2e-3, 0.99, 720


def parts() -> tuple[Tensor, Tensor, Tensor]:
    """Training images, their labels, and test images, from 0 to 1."""
    read = digits()
    order = torch.randperm(len(read.inputs), generator=torch.Generator().manual_seed(0))
    return read.inputs[order[360:]], read.targets[order[360:]], read.inputs[order[:360]]


def classifier() -> tuple[Callable[[Tensor], Tensor], float]:
    """The 32 features of a frozen classifier, and its accuracy on the training images."""
    torch.manual_seed(0)
    x, y, _ = parts()
    model = MLP(MLPConfig(d_in=64, d_out=10, hidden=(128, 32)))
    optimizer = adamw(model.parameters(), lr=3e-3)
    for _ in range(600):
        rows = torch.randint(len(x), (128,))
        optimizer.zero_grad()
        cross_entropy(model(x[rows].flatten(1)), y[rows]).backward()
        optimizer.step()
    right = float((model(x.flatten(1)).argmax(-1) == y).double().mean())
    hidden = nn.Sequential(*list(model.layers)[:-1])

    @torch.no_grad()
    def features(images: Tensor) -> Tensor:
        return hidden(images.clamp(0, 1).flatten(1)).double()

    return features, right


def trained(model: nn.Module, loss: Callable[[Tensor], Tensor], *, seed: int, seconds: float) -> int:
    """Trains for so much processor time, the rate falling with it, and puts the average of the weights in."""
    x, _, _ = parts()
    chance = torch.Generator().manual_seed(seed)
    optimizer, mean = adamw(model.parameters(), lr=RATE, betas=(0.9, 0.99), weight_decay=0.0), EMA(model, decay=DECAY)
    begin, steps = time.process_time(), 0
    while (spent := (time.process_time() - begin) / seconds) < 1:
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, 20 * spent + 0.05) * (1 - spent)
        optimizer.zero_grad()
        loss(x[torch.randint(len(x), (BATCH,), generator=chance)]).backward()
        optimizer.step()
        mean.update(model)
        steps += 1
    model.load_state_dict(mean.state_dict(), strict=False)
    model.eval()
    return steps


def network() -> TimeMLP:
    """The network of both."""
    return TimeMLP(TimeMLPConfig(shape=(1, 8, 8), width=256, depth=3))


def ours(seed: int, seconds: float) -> tuple[Tensor, int, float]:
    """Samples of EDM's parametrisation, drawn in 32 steps."""
    torch.manual_seed(seed)
    model = DiffusionModel(network(), shape=(1, 8, 8)).fit(parts()[0])
    steps = trained(model, model.loss, seed=seed, seconds=seconds)
    begin = time.process_time()
    return model.sample(SAMPLES, seed), steps, time.process_time() - begin


def ddpm(seed: int, seconds: float) -> tuple[Tensor, int, float]:
    """Samples of diffusers' DDPM, drawn in its 1,000 steps; images are from -1 to 1, as its examples have them."""
    from diffusers import DDPMScheduler

    torch.manual_seed(seed)
    chain: Any = DDPMScheduler(num_train_timesteps=1000)
    core = network()

    def told(t: Tensor) -> Tensor:
        return 5 * t.float() / 999 - 2.5

    def loss(x: Tensor) -> Tensor:
        t, noise = torch.randint(1000, (len(x),)), torch.randn_like(x)
        return (core(chain.add_noise(2 * x - 1, noise, t), told(t)) - noise).square().mean()

    steps = trained(core, loss, seed=seed, seconds=seconds)
    begin = time.process_time()
    chain.set_timesteps(1000)
    chance = torch.Generator().manual_seed(seed)
    x = torch.randn(SAMPLES, 1, 8, 8, generator=chance)
    with torch.no_grad():
        for t in chain.timesteps:
            x = chain.step(core(x, told(t).expand(SAMPLES)), t, x, generator=chance).prev_sample
    return (x + 1) / 2, steps, time.process_time() - begin


def run(seeds: int = 5, seconds: float = SECONDS) -> None:
    """Prints the table."""
    features, right = classifier()
    train, _, test = parts()
    print(f"## Samples of digits: Fréchet distance to {len(test)} test images in 32 features of a frozen classifier")
    print(f"diffusers {version('diffusers')}, torch {torch.__version__}; {seconds:g} s of processor time to train;")
    print(f"{SAMPLES} samples; the classifier is right on {right:.1%} of the training images\n")
    print("| what | seed | steps trained | seconds to draw | distance |\n|---|---|---|---|---|")
    floor = frechet_distance(features(train[:SAMPLES]), features(test))
    print(f"| {SAMPLES} training images (floor) | | | | {float(floor):.3f} |")
    blurred = train.mean(0) + train.std(0) * torch.randn(SAMPLES, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    print(f"| independent Gaussian pixels | | | | {float(frechet_distance(features(blurred), features(test))):.3f} |")
    for seed in range(seeds):
        for name, draw in (("lawful ScoreModel", ours), ("diffusers DDPM", ddpm)):
            x, steps, spent = draw(seed, seconds)
            far = float(frechet_distance(features(x), features(test)))
            print(f"| {name} | {seed} | {steps} | {spent:.1f} | {far:.3f} |", flush=True)
