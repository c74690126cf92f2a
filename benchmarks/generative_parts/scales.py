"""Samplers and likelihoods at several scales of the data, against diffusers and flow_matching.

Targets are Gaussian mixtures in 2 and 5 dimensions with mean 0 and a known denoiser, scaled to a standard deviation
(root mean square over coordinates) of 0.15 to 4. There are two sets of mixtures: defaults were tuned on "tuned" only;
"unseen" has another family of means, widths and numbers of components. Every sampler starts at the same points with
noise 80.

Samplers: the error of a mixture is the root mean squared distance of 64 samples to SciPy's solution of the probability
flow (DOP853, tolerance 1e-11), divided by the standard deviation of the data. A row is the median over 8 mixtures.
"diffusers" is the setting with the smallest median in that cell, of all settings below, each with the default smallest
noise 0.002 and with 0.004 standard deviations of the data. "Paired" is the median over the mixtures of our error
divided by that of the best setting for that mixture.

Likelihoods: the error is the root mean square over 64 points of a mixture, in nats: median and largest of 8 mixtures.
"Covered" is the fraction of points whose true error is at most the reported error.

`python benchmarks/generative.py scales` prints both sets; `SCALES_SET=tuned` prints one.
"""

from __future__ import annotations

import logging
import math
import os
import warnings
from collections.abc import Callable, Iterator
from functools import cache

import torch
from torch import Tensor

from lawful.functions.random import normal_noise
from lawful.solvers.diffusion import (
    ExponentialMultistep,
    ProbabilityFlowLikelihood,
    edm,
    initial_noise,
    rectified,
    saturating_log_grid,
)

EVALUATIONS = (9, 18, 36, 71)
STDS = (0.15, 0.4, 1.0, 2.5, 4.0)
DIMS = (2, 5)
NUM_MIXTURES, NUM_POINTS = 8, 64
HIGH, LOW = 80.0, 0.002
FIRST_SEED = {"tuned": 100, "unseen": 900}


class Mixtures:
    """A batch of mixtures in float64: samples, log-density, and the denoiser on a path with x = alpha x_0 + sigma e.

    Rows of x belong to the mixtures in turn: the first n to the first.
    """

    def __init__(self, name: str, dim: int, std: float) -> None:
        parts = [_mixture(name, dim, FIRST_SEED[name] + i) for i in range(NUM_MIXTURES)]
        most = max(len(weights) for weights, *_ in parts)
        padded = [[torch.nn.functional.pad(a, (0, 0) * (a.dim() - 1) + (0, most - len(a))) for a in p] for p in parts]
        self.weights, means, widths, self.axes = (torch.stack(arrays) for arrays in zip(*padded, strict=True))
        self.means, self.variances = std * means, (std * widths).square()
        self.variances = torch.where(self.variances > 0, self.variances, std**2)
        self.dim, self.std, self.calls = dim, std, 0

    def sample(self, n: int) -> Tensor:
        """Returns n points of each mixture."""
        z = normal_noise(NUM_MIXTURES * n, self.dim, seed=5, dtype=torch.float64).reshape(NUM_MIXTURES, n, self.dim)
        order = (torch.arange(n) + 0.5) / n  # components in proportion to their weights
        which = torch.searchsorted(self.weights.cumsum(1), order.double().expand(NUM_MIXTURES, n).contiguous())
        rows = torch.arange(NUM_MIXTURES)[:, None]
        x = z * self.variances[rows, which].sqrt()
        x = self.means[rows, which] + torch.einsum("mnj,mnij->mni", x, self.axes[rows, which])
        return x.reshape(-1, self.dim)

    def _logs(self, x: Tensor, alpha: Tensor | float, sigma: Tensor | float) -> tuple[Tensor, Tensor, Tensor]:
        off = x.reshape(NUM_MIXTURES, -1, 1, self.dim) - alpha * self.means[:, None]
        off = torch.einsum("mnki,mkij->mnkj", off, self.axes)
        variances = (alpha**2 * self.variances + sigma**2)[:, None]
        logs = -0.5 * (off.square() / variances + (2 * math.pi * variances).log()).sum(-1)
        return self.weights.log()[:, None] + logs, off, variances

    def log_prob(self, x: Tensor) -> Tensor:
        """Returns the log-density of each row, in nats."""
        return self._logs(x, 1.0, 0.0)[0].logsumexp(-1).reshape(-1)

    def denoise(self, x: Tensor, alpha: Tensor | float, sigma: Tensor | float) -> Tensor:
        """Returns E[x_0 | x]."""
        self.calls += 1
        logs, off, variances = self._logs(x, alpha, sigma)
        r = logs.softmax(-1)
        values = r[..., None] * off * (alpha * self.variances[:, None] / variances)
        back = torch.einsum("mnkj,mkij->mni", values, self.axes)
        return (back + torch.einsum("mnk,mki->mni", r, self.means)).reshape(x.shape)


@cache
def _mixture(name: str, dim: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Weights, means, widths and axes of a mixture with mean 0 and standard deviation 1."""
    g = torch.Generator().manual_seed(1000 * dim + seed)

    def uniform(*size: int) -> Tensor:
        return torch.rand(*size, generator=g, dtype=torch.float64)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=g, dtype=torch.float64)

    if name == "tuned":
        k = 3 + int(6 * uniform(1))
        weights, means = (0.7 * normal(k)).softmax(0), normal(k, dim)
        widths = 0.1 * 6 ** uniform(k, dim)  # 0.1 to 0.6
    else:
        k = 2 + int(9 * uniform(1))
        weights, means = (0.5 + uniform(k)) / (0.5 + uniform(k)), 2 * uniform(k, dim) - 1
        if seed % 2:
            means = means / means.norm(dim=1, keepdim=True)  # on a sphere
        weights, widths = weights / weights.sum(), 0.06 * 8 ** uniform(k, 1) * (0.7 + 0.6 * uniform(k, dim))
    axes = torch.linalg.qr(normal(k, dim, dim))[0]
    means = means - weights @ means
    std = ((weights @ (means.square() + widths.square())).mean()).sqrt()
    return weights, means / std, widths / std, axes


def true_end(target: Mixtures, x: Tensor) -> Tensor:
    """The end of the probability flow, in the logarithm of the noise by DOP853."""
    from scipy.integrate import solve_ivp

    low = 1e-6 * target.std

    def slope(log_sigma, flat):
        z = torch.from_numpy(flat).reshape(x.shape)
        return (z - target.denoise(z, 1.0, math.exp(log_sigma))).reshape(-1).numpy()

    span = (math.log(HIGH), math.log(low))
    found = solve_ivp(slope, span, x.reshape(-1).numpy(), method="DOP853", rtol=1e-11, atol=1e-12 * target.std)
    return target.denoise(torch.from_numpy(found.y[:, -1].copy()).reshape(x.shape), 1.0, low)


Runner = Callable[[Mixtures, Tensor, int], Tensor]


def diffusers_settings(std: float) -> Iterator[tuple[str, Runner]]:
    """Deterministic schedulers of diffusers that take any noise levels; the number of steps is that of evaluations.

    Left out: stochastic schedulers; PNDM, which fails on vectors; IPNDM, which has its own table; Euler, DDIM and
    flow-matching Euler, which equal EDMEuler on the same noise levels; LMS and KDPM2, which are far behind and slow.
    """
    import diffusers as d

    spacing = {s: {f"use_{s}_sigmas": True} for s in ("karras", "exponential", "beta")}
    for low in (LOW, 0.004 * std):
        end = f"from {low:g}"
        for schedule in ("karras", "exponential"):
            shared = {"sigma_schedule": schedule}
            yield f"EDMEuler, {schedule}, {end}", _edm(d.EDMEulerScheduler, low, shared)
            for order, kind in ((2, "midpoint"), (2, "heun"), (3, "midpoint")):
                options = shared | {"solver_order": order, "solver_type": kind}
                name = f"EDM DPM++{order}M, {kind}, {schedule}, {end}"
                yield name, _edm(d.EDMDPMSolverMultistepScheduler, low, options)
                if order == 3:
                    options = options | {"lower_order_final": False}
                    yield f"{name}, high order to the end", _edm(d.EDMDPMSolverMultistepScheduler, low, options)
            sigmas = spacing[schedule]
            yield f"Heun, {schedule}, {end}", _heun(d.HeunDiscreteScheduler, low, sigmas)
            options = sigmas | {"solver_order": 3}
            yield f"DPM++3S, {schedule}, {end}", _table(d.DPMSolverSinglestepScheduler, low, options)
            bh1 = options | {"solver_type": "bh1", "final_sigmas_type": "sigma_min"}  # it cannot step to zero noise
            yield f"UniPC-3, bh1, {schedule}, {end}", _table(d.UniPCMultistepScheduler, low, bh1)
            options = sigmas | {"predictor_order": 3, "corrector_order": 3, "tau_func": lambda t: 0}
            yield f"SA-Solver-3, {schedule}, {end}", _table(d.SASolverScheduler, low, options)
            for order in (2, 3):
                options = sigmas | {"solver_order": order}
                yield f"UniPC-{order}, {schedule}, {end}", _table(d.UniPCMultistepScheduler, low, options)
                yield f"DEIS-{order}, {schedule}, {end}", _table(d.DEISMultistepScheduler, low, options)
        beta = spacing["beta"] | {"solver_order": 3}
        yield f"UniPC-3, beta, {end}", _table(d.UniPCMultistepScheduler, low, beta)
        yield f"DPM++2M, beta, {end}", _table(d.DPMSolverMultistepScheduler, low, spacing["beta"])
        lu = {"use_lu_lambdas": True, "solver_order": 3}
        yield f"DPM++3M, lu, {end}", _table(d.DPMSolverMultistepScheduler, low, lu)


def _edm(kind, low: float, options: dict) -> Runner:
    def run(target: Mixtures, x: Tensor, steps: int) -> Tensor:
        data = target.std
        scheduler = kind(sigma_min=low, sigma_max=HIGH, sigma_data=data, **options)
        scheduler.set_timesteps(steps)
        scheduler.set_begin_index(0)
        for t, sigma in zip(scheduler.timesteps, scheduler.sigmas.double().tolist(), strict=False):
            skip, out = data**2 / (sigma**2 + data**2), sigma * data / math.hypot(sigma, data)
            scheduler.scale_model_input(x, t)
            network = (target.denoise(x, 1.0, sigma) - skip * x) / out
            x = scheduler.step(network, t, x, return_dict=False)[0]
        return x

    return run


def _betas(low: float) -> tuple[Tensor, float]:
    """A table of 1000 noise levels, uniform in their logarithm, and alpha at the last."""
    sigmas = torch.logspace(math.log10(low), math.log10(HIGH), 1000, dtype=torch.float64)
    kept = 1 / (1 + sigmas.square())
    betas = 1 - kept / torch.cat([torch.ones(1, dtype=torch.float64), kept[:-1]])
    return betas, float(kept[-1].sqrt())


def _table(kind, low: float, options: dict) -> Runner:
    """A scheduler of variance-preserving samples."""

    def run(target: Mixtures, x: Tensor, steps: int) -> Tensor:
        betas, alpha = _betas(low)
        scheduler = kind(trained_betas=betas.numpy(), prediction_type="sample", **options)
        scheduler.set_timesteps(steps)
        scheduler.set_begin_index(0)
        x = alpha * x
        for t, sigma in zip(scheduler.timesteps, scheduler.sigmas.double().tolist(), strict=False):
            y = target.denoise(x * math.hypot(1, sigma), 1.0, sigma)
            x = scheduler.step(y, t, x, return_dict=False)[0]
        return x

    return run


def _heun(kind, low: float, options: dict) -> Runner:
    """Heun's method, with two evaluations per step but the last."""

    def run(target: Mixtures, x: Tensor, steps: int) -> Tensor:
        scheduler = kind(trained_betas=_betas(low)[0].numpy(), prediction_type="epsilon", **options)
        scheduler.set_timesteps((steps + 1) // 2)
        scheduler.set_begin_index(0)
        for t in scheduler.timesteps:
            scheduler.scale_model_input(x, t)
            sigma = float(scheduler.sigmas[scheduler.step_index])
            noise = (x - target.denoise(x, 1.0, sigma)) / sigma
            x = scheduler.step(noise, t, x, return_dict=False)[0]
        return x

    return run


def errors(run: Runner, target: Mixtures, x: Tensor, end: Tensor) -> Tensor:
    """Relative error of each mixture for each number of evaluations, or infinity where the sampler fails."""
    found = torch.full((len(EVALUATIONS), NUM_MIXTURES), math.inf, dtype=torch.float64)
    for row, n in zip(found, EVALUATIONS, strict=True):
        target.calls = 0
        try:
            y = run(target, x.clone(), n)
        except (IndexError, RuntimeError, ValueError):
            continue
        if target.calls <= n:
            off = ((y - end) / target.std).square().sum(-1).reshape(NUM_MIXTURES, -1).mean(1).sqrt()
            row.copy_(off.nan_to_num(math.inf, math.inf))
    return found


def ours(target: Mixtures, x: Tensor, steps: int) -> Tensor:
    """Our default sampler."""
    path = edm(HIGH)
    grid = saturating_log_grid(path, steps, sigma_data=target.std)

    def denoise(x: Tensor, t: Tensor) -> Tensor:
        return target.denoise(x, 1.0, float(t))

    return ExponentialMultistep()(denoise, x, path, grid, sigma_data=target.std)


def initial_points(target: Mixtures) -> Tensor:
    """The points at which all samplers start."""
    start = torch.tensor([HIGH], dtype=torch.float64)
    return initial_noise(edm(HIGH), start, NUM_MIXTURES * NUM_POINTS, target.dim, seed=3, sigma_data=target.std)


def compare_samplers(name: str) -> None:
    """Prints our error against that of the best scheduler, for each dimension, scale and number of evaluations."""
    import diffusers

    print(f"\nSamplers, {name} mixtures, diffusers {diffusers.__version__}\n")
    print("| dim | std | evaluations | ours | diffusers | ratio | paired | best setting of diffusers |\n|" + "---|" * 8)
    ratios = []
    for dim in DIMS:
        for std in STDS:
            target = Mixtures(name, dim, std)
            x = initial_points(target)
            end = true_end(target, x)
            mine = errors(ours, target, x, end)
            names, runners = zip(*diffusers_settings(std), strict=True)
            theirs = torch.stack([errors(run, target, x, end) for run in runners])
            for i, n in enumerate(EVALUATIONS):
                a, (b, which) = float(mine[i].median()), theirs[:, i].median(1).values.min(0)
                paired = float((mine[i] / theirs[:, i].amin(0)).median())
                ratios.append(a / float(b))
                row = f"| {dim} | {std:g} | {n} | {a:.1e} | {b:.1e} | {a / b:.3f} | {paired:.3f}"
                print(f"{row} | {names[int(which)]} |", flush=True)
    found = torch.tensor(ratios)
    share = f"at most 0.5 in {int((found <= 0.5).sum())} of {len(found)} cells"
    print(
        f"\n{len(names)} settings of diffusers. Ratio: median {found.median():.3f}, largest {found.max():.3f}, {share}"
    )


def compare_likelihoods(name: str) -> None:
    """Prints the errors of log-densities, and how often the reported error covers them."""
    print(f"\nLikelihoods, {name} mixtures\n")
    print("| dim | std | path | evaluations | error | largest | reported | covered | flow-matching, exact, rk4 |")
    print("|" + "---|" * 9)
    for dim in DIMS:
        for std in STDS:
            target = Mixtures(name, dim, std)
            x = target.sample(NUM_POINTS)
            truth = target.log_prob(x)
            peer = _flow_matching(target, x, truth)
            for path in (edm(HIGH), rectified()):

                def denoise(x: Tensor, t: Tensor, path=path, target=target) -> Tensor:
                    level = path.at(t)
                    return target.denoise(x, float(level.alpha), float(level.sigma))

                found = ProbabilityFlowLikelihood()(denoise, x, path, sigma_data=std)
                off = (found.value - truth).abs()
                each = off.square().reshape(NUM_MIXTURES, -1).mean(1).sqrt()
                covered = float((off <= found.error).double().mean())
                print(
                    f"| {dim} | {std:g} | {path.name} | {found.evaluations} | {float(each.median()):.1e} |"
                    f" {float(each.max()):.1e} | {float(found.error.median()):.1e} | {covered:.3f} | {peer} |",
                    flush=True,
                )


def _flow_matching(target: Mixtures, x: Tensor, truth: Tensor) -> str:
    """Median error over the mixtures of flow_matching's exact likelihood with 16 steps of RK4."""
    try:
        from flow_matching.solver import ODESolver
        from flow_matching.utils import ModelWrapper
    except ImportError:
        return "not installed"
    path = rectified()

    class Velocity(ModelWrapper):
        def forward(self, x: Tensor, t: Tensor, **extras) -> Tensor:
            time = (1 - t.double()).clamp(1e-6, 1)  # their time runs from noise to data
            level = path.at(time)
            return -path.velocity(x, target.denoise(x, float(level.alpha), float(level.sigma)), time)

    def gaussian(x: Tensor) -> Tensor:
        return -0.5 * (x.square() + math.log(2 * math.pi)).sum(-1)

    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    solver = ODESolver(velocity_model=Velocity(torch.nn.Identity()))
    _, value = solver.compute_likelihood(x, gaussian, step_size=1 / 16, method="rk4", exact_divergence=True)
    torch.set_default_dtype(usual)
    return f"{float((value.detach() - truth).square().reshape(NUM_MIXTURES, -1).mean(1).sqrt().median()):.1e}"


def run() -> None:
    """Prints the tables of both sets."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    for name in (os.environ["SCALES_SET"],) if "SCALES_SET" in os.environ else tuple(FIRST_SEED):
        compare_samplers(name)
        compare_likelihoods(name)


if __name__ == "__main__":
    torch.set_num_threads(1)
    run()
