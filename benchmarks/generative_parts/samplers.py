"""Samplers against diffusers': distance to the true end of the probability flow for a number of evaluations.

The target is a ring of eight Gaussians with a known denoiser, so that all error is the sampler's. Every sampler starts
at the same points with noise 80, and its result is compared with that of SciPy's DOP853 at a tolerance of 1e-12. Ours
is the default sampler for every number of steps; diffusers has its defaults and, at each number of steps, the best of
all configurations below.
"""

from __future__ import annotations

import logging
import math
import warnings

import torch
from torch import Tensor

from lawful.data.densities import ring
from lawful.functions.random import normal_noise
from lawful.solvers.diffusion import ExponentialMultistep, Heun, edm, karras_grid, log_grid, saturating_log_grid

EVALUATIONS = (9, 18, 35, 71, 143)
RADIUS = math.sqrt(2 * (0.25 - 0.05**2))
HIGH, LOW, DATA = 80.0, 0.002, 0.5


class Target:
    """The exact denoiser of the ring, with a call counter."""

    def __init__(self) -> None:
        self.means, self.variance, self.calls = ring(radius=RADIUS, scale=0.05).means, 0.05**2, 0

    def __call__(self, x: Tensor, sigma: Tensor | float) -> Tensor:
        """Returns E[x_0 | x]; the means are equally far from 0."""
        self.calls += 1
        noise = torch.as_tensor(sigma, dtype=torch.float64).square()
        total = self.variance + noise
        nearest = torch.softmax(x @ self.means.T / total, -1) @ self.means
        return (self.variance * x + noise * nearest) / total


def true_end(x: Tensor, low: float = 1e-6) -> Tensor:
    """The end of the probability flow, in the logarithm of the noise by DOP853."""
    from scipy.integrate import solve_ivp

    target = Target()

    def slope(log_sigma, flat):
        z = torch.from_numpy(flat).reshape(x.shape)
        return (z - target(z, math.exp(log_sigma))).reshape(-1).numpy()

    found = solve_ivp(
        slope, (math.log(HIGH), math.log(low)), x.reshape(-1).numpy(), method="DOP853", rtol=1e-12, atol=1e-13
    )
    return target(torch.from_numpy(found.y[:, -1].copy()).reshape(x.shape), low)


def by_edm_scheduler(kind, x: Tensor, n: int, **options) -> tuple[Tensor, int]:
    """Samples of an EDM scheduler of diffusers, with the exact F as the network."""
    scheduler, target = kind(sigma_min=LOW, sigma_max=HIGH, sigma_data=DATA, **options), Target()
    scheduler.set_timesteps(n)
    for t, sigma in zip(scheduler.timesteps, scheduler.sigmas.double().tolist(), strict=False):
        skip, out = DATA**2 / (sigma**2 + DATA**2), sigma * DATA / math.hypot(sigma, DATA)
        scheduler.scale_model_input(x, t)
        x = scheduler.step((target(x, sigma) - skip * x) / out, t, x, return_dict=False)[0]
    return x, target.calls


def by_table_scheduler(kind, x: Tensor, n: int, **options) -> tuple[Tensor, int]:
    """Samples of a scheduler with a table of betas: 1000 noise levels from 0.002 to 80."""
    sigmas = torch.logspace(math.log10(LOW), math.log10(HIGH), 1000, dtype=torch.float64)
    kept = 1 / (1 + sigmas.square())
    betas = 1 - kept / torch.cat([torch.ones(1, dtype=torch.float64), kept[:-1]])
    scheduler, target = kind(trained_betas=betas.numpy(), prediction_type="sample", **options), Target()
    scheduler.set_timesteps(n)
    x = x / HIGH * math.sqrt(1 - float(kept[-1]))
    for t, sigma in zip(scheduler.timesteps, scheduler.sigmas.double().tolist(), strict=False):
        x = scheduler.step(target(x * math.hypot(1, sigma), sigma), t, x, return_dict=False)[0]
    return x, target.calls


def diffusers_table(x: Tensor, end: Tensor) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """The errors of the defaults, and of all configurations."""
    import diffusers
    from diffusers import DPMSolverMultistepScheduler, EDMDPMSolverMultistepScheduler, EDMEulerScheduler
    from diffusers import UniPCMultistepScheduler as UniPC

    print(f"\ndiffusers {diffusers.__version__}")
    multi = EDMDPMSolverMultistepScheduler
    defaults = {"EDMEuler": (EDMEulerScheduler, {}), "EDM DPM++2M": (multi, {})}
    spaced = {"sigma_schedule": "exponential"}
    tuned = {
        "EDMEuler, exponential": (EDMEulerScheduler, spaced),
        "EDM DPM++2M, exponential": (multi, spaced),
        "EDM DPM++2M, exponential, heun": (multi, spaced | {"solver_type": "heun"}),
        "EDM DPM++3M": (multi, {"solver_order": 3}),
        "EDM DPM++3M, exponential": (multi, spaced | {"solver_order": 3}),
        "EDM DPM++3M, exponential, high order to the end": (
            multi,
            spaced | {"solver_order": 3, "lower_order_final": False},
        ),
        "EDM DPM++3M, exponential, Euler at the end": (multi, spaced | {"solver_order": 3, "euler_at_final": True}),
    }
    tables = {
        f"{name}, order {order}, {'exponential' if exponential else 'karras'}": (
            kind,
            {"solver_order": order, "use_exponential_sigmas": exponential, "use_karras_sigmas": not exponential}
            | ({"final_sigmas_type": "zero"}),
        )
        for name, kind in (("UniPC", UniPC), ("DPM++", DPMSolverMultistepScheduler))
        for order in (2, 3)
        for exponential in (True, False)
    }

    def errors(run, kind, options) -> list[float]:
        found = []
        for n in EVALUATIONS:
            try:
                y, calls = run(kind, x, n, **options)
                found.append(rms(y, end) if calls == n else math.nan)
            except (IndexError, RuntimeError, ValueError):
                found.append(math.nan)
        return found

    plain = {name: errors(by_edm_scheduler, *row) for name, row in defaults.items()}
    rest = {name: errors(by_edm_scheduler, *row) for name, row in tuned.items()}
    rest |= {name: errors(by_table_scheduler, *row) for name, row in tables.items()}
    return plain, plain | rest


def rms(x: Tensor, y: Tensor) -> float:
    """Root mean squared distance of samples to their true ends."""
    return float((x - y).square().sum(-1).mean().sqrt())


def ours(x: Tensor, end: Tensor) -> dict[str, list[float]]:
    """Errors of our samplers: the default first."""
    path = edm()
    rows = {
        "ours: ExponentialMultistep(), saturating_log_grid": (ExponentialMultistep(), saturating_log_grid),
        "ours: ExponentialMultistep(order=3), saturating_log_grid": (
            ExponentialMultistep(order=3),
            saturating_log_grid,
        ),
        "ours: ExponentialMultistep(), log_grid": (ExponentialMultistep(), log_grid),
        "ours: ExponentialMultistep(order=3, correction=0), log_grid": (
            ExponentialMultistep(order=3, correction=0),
            log_grid,
        ),
        "ours: Heun(), karras_grid": (Heun(), karras_grid),
    }
    found = {}
    for name, (sampler, grid) in rows.items():
        found[name] = []
        for n in EVALUATIONS:
            target, steps = Target(), (n + 1) // 2 if isinstance(sampler, Heun) else n
            options = {"sigma_data": DATA} if grid is saturating_log_grid else {"low": LOW}
            y = sampler(target, x, path, grid(path, steps, high=HIGH, **options), sigma_data=DATA)
            found[name].append(rms(y, end) if target.calls <= n else math.nan)
    return found


def run() -> None:
    """Prints the table for two sets of initial points."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    print("Error against evaluations: ring of 8 Gaussians (scale 0.05, standard deviation 0.5), noise 80 to 0")
    for seed in (0, 1):
        x = HIGH * normal_noise(512, 2, seed=seed, dtype=torch.float64)
        end = true_end(x)
        defaults, every = diffusers_table(x, end)
        mine = ours(x, end)
        default = [min(column) for column in zip(*defaults.values(), strict=True)]
        best = [min(v for v in column if v == v) for column in zip(*every.values(), strict=True)]
        rows = every | {"**diffusers, best default**": default, "**diffusers, best tuned**": best} | mine
        print(f"seed {seed}, 512 points\n\n| sampler | {' | '.join(map(str, EVALUATIONS))} |\n|---{'|---' * 5}|")
        first = next(iter(mine.values()))
        for name, values in rows.items():
            print(f"| {name} | {' | '.join(f'{value:.1e}' for value in values)} |")
        for name, theirs in (("tuned", best), ("default", default)):
            print(f"| ours / best {name} | {' | '.join(f'{a / b:.3f}' for a, b in zip(first, theirs, strict=True))} |")


if __name__ == "__main__":
    torch.set_num_threads(1)
    run()
