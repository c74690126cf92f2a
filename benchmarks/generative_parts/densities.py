"""Density estimation: KL(data || model) in nats after 10 seconds of CPU time, against zuko and normflows.

The targets have a known entropy $H$: a ring of 8 Gaussians and a checkerboard. KL is the negative log-likelihood of
100,000 test points minus $H$. All models train on the same fresh samples (a pool of 2^20, drawn before the clock starts
and repeated if it runs out), on standardized inputs, with the same Adam and a cosine schedule over the whole time. The
learning rate of each peer is the best of three on seed 0, by a validation set; the RealNVP has the learning rate of
normflows' README. The test points have a seed that no tuning has seen.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version

import torch
from torch import Tensor, nn

from lawful.data import checkerboard, ring
from lawful.models.generative import spline_flow
from lawful.optim import EMA, adam

SECONDS, BATCH, POOL = 10.0, 512, 2**20
TARGETS = {"ring": ring(), "checkerboard": checkerboard()}


@dataclass(frozen=True)
class Contestant:
    """Density estimator: a module of standardized data with its log-density, and its training options."""

    build: Callable[[], tuple[nn.Module, Callable[[Tensor], Tensor]]]
    learning_rates: tuple[float, ...]
    ema_decay: float = 0.0


def ours() -> tuple[nn.Module, Callable[[Tensor], Tensor]]:
    """The default flow of `lawful train flow`."""
    flow = spline_flow(dim=2)
    return flow, flow.log_prob


def zuko_spline() -> tuple[nn.Module, Callable[[Tensor], Tensor]]:
    """The NSF of zuko with 3 transforms, its default."""
    import zuko

    flow = zuko.flows.NSF(features=2, transforms=3)
    return flow, lambda x: flow().log_prob(x)


def normflows_spline() -> tuple[nn.Module, Callable[[Tensor], Tensor]]:
    """The autoregressive spline flow of normflows with 4 layers."""
    import normflows as nf

    layers: list[nn.Module] = []
    for _ in range(4):
        layers += [nf.flows.AutoregressiveRationalQuadraticSpline(2, 2, 64), nf.flows.LULinearPermute(2)]
    flow = nf.NormalizingFlow(nf.distributions.DiagGaussian(2, trainable=False), layers)
    return flow, flow.log_prob


def normflows_coupling() -> tuple[nn.Module, Callable[[Tensor], Tensor]]:
    """The RealNVP of normflows' README: 32 affine couplings, each after a swap."""
    import normflows as nf

    layers: list[nn.Module] = []
    for _ in range(32):
        layers += [
            nf.flows.AffineCouplingBlock(nf.nets.MLP([1, 64, 64, 2], init_zeros=True)),
            nf.flows.Permute(2, mode="swap"),
        ]
    flow = nf.NormalizingFlow(nf.distributions.DiagGaussian(2), layers)
    return flow, flow.log_prob


CONTESTANTS = {
    "lawful spline_flow": Contestant(ours, (1e-2,), ema_decay=0.99),
    "zuko NSF(3)": Contestant(zuko_spline, (1e-3, 3e-3, 1e-2)),
    "normflows NSF-AR(4)": Contestant(normflows_spline, (1e-3, 3e-3, 1e-2)),
    "normflows RealNVP(32), its README's": Contestant(normflows_coupling, (5e-4,)),
}


def train_and_test(
    name: str, target: str, learning_rate: float, seed: int, seconds: float = SECONDS
) -> tuple[float, float, int]:
    """The KL divergence on validation and on test points, and the number of steps."""
    contestant, density = CONTESTANTS[name], TARGETS[target]
    pool = density.sample(POOL, seed=seed).float()
    mean, std = pool.mean(0), pool.std(0)
    pool = (pool - mean) / std
    torch.manual_seed(seed)
    model, log_prob = contestant.build()
    optimizer, ema = adam(model.parameters(), lr=learning_rate), EMA(model, decay=contestant.ema_decay)
    start, step = time.process_time(), 0
    while (share := (time.process_time() - start) / seconds) < 1:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * min(1.0, 0.01 + share / 0.02) * (1 + math.cos(math.pi * share)) / 2
        begin = step * BATCH % POOL
        loss = -log_prob(pool[begin : begin + BATCH]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if contestant.ema_decay:
            ema.update(model)
        step += 1
    if contestant.ema_decay:
        model.load_state_dict(ema.state_dict(), strict=False)
    divergences = []
    with torch.no_grad():
        for other in (10**6, 10**7):
            x = (density.sample(100_000, seed=other).float() - mean) / std
            divergences.append(-float(log_prob(x).mean()) + float(std.log().sum()) - density.entropy)
    return divergences[0], divergences[1], step


def run(seeds: int = 5, ours_seeds: int = 20) -> None:
    """Prints the table."""
    print(f"## Density estimation: KL(data || model) in nats, {SECONDS:g} s of one core, batch {BATCH}, fresh samples")
    print(f"zuko {version('zuko')}, normflows {version('normflows')}, torch {torch.__version__}\n")
    print(
        "| model | target | learning rate | seeds | mean KL | worst | not finite | steps |\n"
        "|---|---|---|---|---|---|---|---|"
    )
    for target in TARGETS:
        for name, contestant in CONTESTANTS.items():
            tried = {rate: train_and_test(name, target, rate, 0) for rate in contestant.learning_rates}
            rate = min(tried, key=lambda r: tried[r][0] if math.isfinite(tried[r][0]) else math.inf)
            n = ours_seeds if name.startswith("lawful") else seeds
            results = [tried[rate], *(train_and_test(name, target, rate, seed) for seed in range(1, n))]
            kl = [test for _, test, _ in results if math.isfinite(test)]
            steps = statistics.median(steps for _, _, steps in results)
            print(
                f"| {name} | {target} | {rate:g} | {n} | {statistics.mean(kl or [math.nan]):.4f} "
                f"| {max(kl, default=math.nan):.4f} | {n - len(kl)} | {steps:.0f} |",
                flush=True,
            )
