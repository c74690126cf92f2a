"""Samples of digits: Fréchet distance in the features of a frozen classifier, against diffusers' DDPM.

The test split has 360 of 1,797 images, with which samples are compared; the rest is the training split. Both sides have
the same network (`TimeMLP`), optimizer, learning rate, EMA and CPU time for training, without labels. The peer's noise
schedule, loss and sampler (1,000 steps) are its defaults. The floor is the distance of the training images.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.data.builtin import digits
from lawful.inference.metrics import frechet_distance
from lawful.models import MLP, DiffusionModel, TimeMLP
from lawful.optim import EMA, adamw

SECONDS, BATCH, LEARNING_RATE, DECAY, SAMPLES = 20.0, 128, 2e-3, 0.99, 720


def splits() -> tuple[Tensor, Tensor, Tensor]:
    """Training images, their labels, and test images, from 0 to 1."""
    data = digits()
    order = torch.randperm(len(data.inputs), generator=torch.Generator().manual_seed(0))
    return data.inputs[order[360:]], data.targets[order[360:]], data.inputs[order[:360]]


def classifier() -> tuple[Callable[[Tensor], Tensor], float]:
    """The 32 features of a frozen classifier, and its accuracy on the training images."""
    torch.manual_seed(0)
    x, y, _ = splits()
    model = MLP(64, 10, hidden_dims=(128, 32))
    optimizer = adamw(model.parameters(), lr=3e-3)
    for _ in range(600):
        rows = torch.randint(len(x), (128,))
        optimizer.zero_grad()
        F.cross_entropy(model(x[rows].flatten(1)), y[rows]).backward()
        optimizer.step()
    accuracy = float((model(x.flatten(1)).argmax(-1) == y).double().mean())
    first, second, _ = model.layers

    @torch.no_grad()
    def features(images: Tensor) -> Tensor:
        return torch.relu(second(torch.relu(first(images.clamp(0, 1).flatten(1))))).double()

    return features, accuracy


def train(model: nn.Module, loss: Callable[[Tensor], Tensor], *, seed: int, seconds: float) -> int:
    """Trains for a given CPU time with a decaying learning rate, and loads the EMA weights; returns the steps."""
    x, _, _ = splits()
    generator = torch.Generator().manual_seed(seed)
    optimizer, ema = (
        adamw(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.99), weight_decay=0.0),
        EMA(model, decay=DECAY),
    )
    start, steps = time.process_time(), 0
    while (progress := (time.process_time() - start) / seconds) < 1:
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * min(1.0, 20 * progress + 0.05) * (1 - progress)
        optimizer.zero_grad()
        loss(x[torch.randint(len(x), (BATCH,), generator=generator)]).backward()
        optimizer.step()
        ema.update(model)
        steps += 1
    model.load_state_dict(ema.state_dict(), strict=False)
    model.eval()
    return steps


def build_network() -> TimeMLP:
    """The network of both sides."""
    return TimeMLP((1, 8, 8), dim=256, num_layers=3)


def ours(seed: int, seconds: float) -> tuple[Tensor, int, float]:
    """Samples of EDM's parameterization in 32 steps."""
    torch.manual_seed(seed)
    model = DiffusionModel(build_network(), shape=(1, 8, 8)).fit_normalizer(splits()[0])
    steps = train(model, model.loss, seed=seed, seconds=seconds)
    start = time.process_time()
    return model.sample(SAMPLES, seed), steps, time.process_time() - start


def ddpm(seed: int, seconds: float) -> tuple[Tensor, int, float]:
    """Samples of diffusers' DDPM in its 1,000 steps; images are scaled to [-1, 1] as in its examples."""
    from diffusers import DDPMScheduler

    torch.manual_seed(seed)
    scheduler: Any = DDPMScheduler(num_train_timesteps=1000)
    network = build_network()

    def noise_level(t: Tensor) -> Tensor:
        return 5 * t.float() / 999 - 2.5

    def loss(x: Tensor) -> Tensor:
        t, noise = torch.randint(1000, (len(x),)), torch.randn_like(x)
        return (network(scheduler.add_noise(2 * x - 1, noise, t), noise_level(t)) - noise).square().mean()

    steps = train(network, loss, seed=seed, seconds=seconds)
    start = time.process_time()
    scheduler.set_timesteps(1000)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(SAMPLES, 1, 8, 8, generator=generator)
    with torch.no_grad():
        for t in scheduler.timesteps:
            prediction = network(x, noise_level(t).expand(SAMPLES))
            x = scheduler.step(prediction, t, x, generator=generator).prev_sample
    return (x + 1) / 2, steps, time.process_time() - start


def run(seeds: int = 5, seconds: float = SECONDS) -> None:
    """Prints the table."""
    features, accuracy = classifier()
    train, _, test = splits()
    print(f"## Samples of digits: Fréchet distance to {len(test)} test images in 32 features of a frozen classifier")
    print(f"diffusers {version('diffusers')}, torch {torch.__version__}; {seconds:g} s of CPU time to train;")
    print(f"{SAMPLES} samples; classifier accuracy {accuracy:.1%} on the training images\n")
    print("| model | seed | training steps | sampling seconds | distance |\n|---|---|---|---|---|")
    floor = frechet_distance(features(train[:SAMPLES]), features(test))
    print(f"| {SAMPLES} training images (floor) | | | | {float(floor):.3f} |")
    gaussian = train.mean(0) + train.std(0) * torch.randn(SAMPLES, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    print(f"| independent Gaussian pixels | | | | {float(frechet_distance(features(gaussian), features(test))):.3f} |")
    for seed in range(seeds):
        for name, sample in (("lawful DiffusionModel", ours), ("diffusers DDPM", ddpm)):
            x, steps, spent = sample(seed, seconds)
            distance = float(frechet_distance(features(x), features(test)))
            print(f"| {name} | {seed} | {steps} | {spent:.1f} | {distance:.3f} |", flush=True)
