"""Log-likelihoods of a known density by its probability flow, against flow_matching.

Both sides get the exact velocity of a ring of eight Gaussians (radius 2, standard deviation 0.2) on the rectified path,
and 256 points; the truth is the density. The error is the root mean square, in nats. For ours, the integral over a grid
is printed too.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lawful.data.densities import ring
from lawful.solvers.diffusion import ProbabilityFlowLikelihood, edm, rectified, variance_preserving
from lawful.solvers.diffusion.paths import expand_like

TARGET = ring(radius=2.0, scale=0.2)
POINTS = 256
STD = math.sqrt(2.04)  # of the ring


def denoiser(path):
    """The exact denoiser of the ring on a path."""

    def denoise(x: Tensor, t: Tensor) -> Tensor:
        level = path.at(t)
        alpha, noise = expand_like(level.alpha, x), expand_like(level.sigma, x).square()
        total = alpha.square() * 0.2**2 + noise
        nearest = torch.softmax(alpha * (x @ TARGET.means.T) / total, -1) @ TARGET.means
        return (alpha * 0.2**2 * x + noise * nearest) / total

    return denoise


def flow_matching_errors(x: Tensor, truth: Tensor) -> dict[str, tuple[float, int]]:
    """Errors of flow_matching's solver, with its defaults and with the exact divergence."""
    import flow_matching
    from flow_matching.solver import ODESolver
    from flow_matching.utils import ModelWrapper

    path = rectified()
    denoise = denoiser(path)

    class Velocity(ModelWrapper):
        calls = 0

        def forward(self, x: Tensor, t: Tensor, **extras) -> Tensor:
            self.calls += 1
            ours = (1 - t.double()).clamp(1e-6, 1)  # their time runs from noise to data
            return -path.velocity(x, denoise(x, ours), ours)

    def gaussian(x: Tensor) -> Tensor:
        return -0.5 * x.square().sum(-1) - math.log(2 * math.pi)

    rows = {"flow-matching, default (Hutchinson, euler 32)": ("euler", 1 / 32, False)}
    rows |= {f"flow-matching, Hutchinson, {m} {n}": (m, 1 / n, False) for m, n in (("midpoint", 32), ("rk4", 16))}
    rows |= {
        f"flow-matching, exact, {method} {n}": (method, 1 / n, True)
        for method, n in (("euler", 32), ("euler", 64), ("midpoint", 32), ("rk4", 16), ("rk4", 32))
    }
    rows["flow-matching, exact, dopri5"] = ("dopri5", None, True)
    found = {}
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # their random directions have the default precision
    for name, (method, size, exact) in rows.items():
        torch.manual_seed(0)
        model = Velocity(torch.nn.Identity())
        _, value = ODESolver(velocity_model=model).compute_likelihood(
            x, gaussian, step_size=size, method=method, exact_divergence=exact
        )
        found[name] = (float((value.detach() - truth).square().mean().sqrt()), model.calls)
    torch.set_default_dtype(usual)
    print(f"flow_matching {getattr(flow_matching, '__version__', '1.0.10')}")
    return found


def run() -> None:
    """Prints the table, and the integral of ours over a grid."""
    print("Log-likelihood of a ring of 8 Gaussians (radius 2, scale 0.2), exact field, 256 points, nats")
    x = TARGET.sample(POINTS, seed=0)
    truth = TARGET.log_prob(x)
    rows = flow_matching_errors(x, truth)
    side = torch.arange(-3.2, 3.2001, 0.1, dtype=torch.float64)
    places = torch.cartesian_prod(side, side)
    print(f"\n| method | evaluations | error, nats | largest | reported error | integral |\n|{'---|' * 6}")
    for name, (error, calls) in rows.items():
        print(f"| {name} | {calls} | {error:.1e} | | none | |")
    ours = {
        "**ours, default** (41 steps), rectified": (rectified(), ProbabilityFlowLikelihood()),
        "ours, default, EDM path": (edm(), ProbabilityFlowLikelihood()),
        "ours, default, VP path": (variance_preserving(), ProbabilityFlowLikelihood()),
        "ours, 20 steps, rectified": (rectified(), ProbabilityFlowLikelihood(steps=20)),
        "ours, 82 steps, rectified": (rectified(), ProbabilityFlowLikelihood(steps=82)),
    }
    for name, (path, likelihood) in ours.items():
        found = likelihood(denoiser(path), x, path, sigma_data=STD)
        off = (found.value - truth).abs()
        mass = float(likelihood(denoiser(path), places, path, sigma_data=STD).value.exp().sum()) * 0.01
        print(
            f"| {name} | {found.evaluations} | {float(off.square().mean().sqrt()):.1e} | {float(off.max()):.1e} |"
            f" {float(found.error.max()):.0e} | {mass:.6f} |"
        )


if __name__ == "__main__":
    torch.set_num_threads(1)
    run()
