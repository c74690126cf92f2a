"""Graphs and equivariant networks: particles, layer speed, equivariance error, densities on SO(3), and generators.

Run `PYTHONPATH=/tmp/peers OMP_NUM_THREADS=1 python benchmarks/geometry.py`, or name some tables: `nbody`, `layers`,
`rates`, `errors`, `density`, `cubes`, `generators`. The peers come from
`pip install --no-deps --target /tmp/peers egnn-pytorch einops torch-geometric xxhash`. Everything runs in float32 on
one thread. Times are processor time; both sides run in turn in one process.

- `nbody`: charged particles as in the EGNN paper, generated with its seed (43). The models see the positions and
  velocities of frame 30 and predict the positions of frame 40: 3,000 training trajectories, batch size 100, 4 layers of
  width 64, the test error of the epoch with the best validation error. `NBODY_SECONDS` (default 400) is the processor
  time of a training, `NBODY_SEEDS` (default 1) the number of seeds, `NBODY_DATA_SEED` the seed of the data.
- `rates`: the validation error for some learning rates. It does not compute the test error. `RATES_SECONDS` (default
  30) is the processor time of a training.
- `layers`: forward and backward pass of a layer against egnn-pytorch and PyTorch Geometric.
- `errors`: relative difference between moving the input and moving the output of four layers.
- `density`: integral of `WrappedNormal` over SO(3).
- `cubes`: variational autoencoders of rendered cubes, with a latent rotation and with Gaussian latents, beside PCA.
  `CUBES_SECONDS` (default 60) is the processor time of a training, `CUBES_LATENTS` are the latents.
- `generators`: the generator of rotations from pairs of random images and rotated images, as in the paper of L-conv.
  The peer is our implementation of its training: a recurrent `LConv` with a skip connection, Adam, squared error.
"""

from __future__ import annotations

import copy
import math
import os
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from measure import compare, row
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks import EGNNLayer, GraphAttention, GraphConv, LConv
from lawful.data import ChargedParticles, cubes, simulate_charged_particles
from lawful.groups import SO3, Orthogonal, WrappedNormal
from lawful.models import (
    EGNN,
    EGNNDynamics,
    GNNDynamics,
    GramDynamics,
    LinearDynamics,
    RadialFieldDynamics,
    pair_features,
)
from lawful.models.generative import PCA, GaussianLatent, LatentDistribution, SO3Latent, mlp_vae
from lawful.probe import fit_generator, image_generators

PAPER = {"Linear": 0.0819, "GNN": 0.0107, "RadialField": 0.0104, "EGNN": 0.0071}
LEARNING_RATE = {"GNN": 3e-3, "GNN, rotated": 2e-3, "RadialField": 8e-3, "EGNN": 1e-3, "GramNetwork": 8e-3}
"""Chosen by the validation error, as in `rates`. The paper's is 5e-4."""


MODELS: dict[str, Callable[[], nn.Module]] = {
    "Linear": LinearDynamics,
    "GNN": lambda: GNNDynamics(edge_dim=1),
    "GNN, rotated": lambda: GNNDynamics(edge_dim=1),
    "RadialField": lambda: RadialFieldDynamics(edge_dim=1),
    "EGNN": lambda: EGNNDynamics(edge_dim=1),
    "GramNetwork": lambda: GramDynamics(edge_dim=1),
}


def rates() -> None:
    data, names = simulate_charged_particles(14_000, seed=43), [name for name in MODELS if name != "Linear"]
    print("| model | learning rate | epochs | validation |\n|---|---|---|---|")
    for name in os.environ.get("NBODY_MODELS", ";".join(names)).split(";"):
        for rate in (1e-3, 2e-3, 4e-3, 8e-3):
            _, epochs, validation = train_particles(name, data, 0, float(os.environ.get("RATES_SECONDS", "30")), rate)
            print(f"| {name} | {rate:g} | {epochs} | {validation:.5f} |", flush=True)


def nbody() -> None:
    start = time.process_time()
    data = simulate_charged_particles(14_000, seed=int(os.environ.get("NBODY_DATA_SEED", "43")))
    print(f"14,000 trajectories in {time.process_time() - start:.1f} s (the authors' simulator: 46 minutes)\n")
    print("| model | parameters | epochs | s | validation | test | paper |\n|---|---|---|---|---|---|---|")
    for name in os.environ.get("NBODY_MODELS", ";".join(MODELS)).split(";"):
        for seed in range(int(os.environ.get("NBODY_SEEDS", "1"))):
            begin = time.process_time()
            seconds, rate = float(os.environ.get("NBODY_SECONDS", "400")), LEARNING_RATE.get(name, 0.0)
            model, epochs, validation = train_particles(name, data, seed, seconds, rate)
            took, test = time.process_time() - begin, particle_error(model, data, range(12_000, 14_000))
            count = sum(p.numel() for p in model.parameters()) or 3
            cells = name, f"{count:,}", epochs or "", f"{took:.0f}", f"{validation:.5f}", f"{test:.5f}"
            print("| " + " | ".join(map(str, (*cells, PAPER.get(name, "")))) + " |", flush=True)


@torch.no_grad()
def particle_error(model: nn.Module, data: ChargedParticles, trajectories: range) -> float:
    """Returns the mean squared error of trajectories."""
    parts = torch.arange(trajectories.start, trajectories.stop).split(500)
    return float(torch.stack([squared_error(model, data, rows) for rows in parts]).mean())


def squared_error(model: nn.Module, data: ChargedParticles, rows: Tensor, *, rotate: bool = False) -> Tensor:
    """Returns the mean squared error of the positions in frame 40, predicted from frame 30."""
    x, v, target = data.positions[rows, 30], data.velocities[rows, 30], data.positions[rows, 40]
    if rotate:  # also reflections
        turns = Orthogonal(3).sample(len(rows))
        x, v, target = x @ turns, v @ turns, target @ turns
    return (model(x, v, pair_features(data.charges[rows])) - target).square().mean()


def train_particles(
    name: str, data: ChargedParticles, seed: int, seconds: float, learning_rate: float
) -> tuple[nn.Module, int, float]:
    """Trains for a given processor time, with a cosine schedule over it.

    Returns:
        Averaged model of the epoch with the best validation error, number of epochs, and that error.
    """
    torch.manual_seed(seed)
    model, validation = MODELS[name](), range(10_000, 12_000)
    if isinstance(model, LinearDynamics):
        model.fit(data.positions[:3000, 30], data.velocities[:3000, 30], data.positions[:3000, 40])
        return model, 0, particle_error(model, data, validation)
    average, best_model = copy.deepcopy(model), copy.deepcopy(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate, fused=True)
    start, step, epoch, best = time.process_time(), 0, 0, math.inf
    while (done := (time.process_time() - start) / seconds) < 1:
        for rows in torch.randperm(3000).split(100):
            done = min(1.0, (time.process_time() - start) / seconds)
            rate = learning_rate * min(1.0, (step + 1) / 100) * (1 + math.cos(math.pi * done)) / 2
            optimizer.param_groups[0]["lr"] = rate
            optimizer.zero_grad()
            squared_error(model, data, rows, rotate=name.endswith("rotated")).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            step += 1
            for mean, current in zip(average.parameters(), model.parameters(), strict=True):
                mean.data.lerp_(current.data, max(0.002, 1 / step))
        epoch += 1
        if epoch % 4 == 0 or done >= 0.99:
            found = particle_error(average, data, validation)
            if found < best:
                best = found
                best_model.load_state_dict(average.state_dict())
    return best_model, epoch, best


def layers() -> None:
    import egnn_pytorch
    from torch_geometric.nn import GATConv, GCNConv

    print("| layer, peer | lawful, ms | peer, ms | ratio | middle half |\n|---|---|---|---|---|")
    for b, n in ((100, 5), (16, 32), (4, 128)):
        h, x = torch.randn(b, n, 64, requires_grad=True), torch.randn(b, n, 3, requires_grad=True)
        ours = EGNNLayer(64)
        peer = egnn_pytorch.EGNN(dim=64, m_dim=64)

        def run(layer: nn.Module, h: Tensor = h, x: Tensor = x) -> Callable[[], None]:
            return lambda: sum(y.sum() for y in layer(h, x)).backward()

        found = compare(run(ours), run(peer), rounds=9, least=0.0)
        print(row(f"EGNNLayer, {b} x {n} points, egnn-pytorch", found), flush=True)
    for n, e in ((2_000, 10_000), (20_000, 200_000)):
        x, edges = torch.randn(n, 64, requires_grad=True), torch.randint(n, (2, e))
        pairs = {
            "GraphConv, GCNConv": (GraphConv(64, 64), GCNConv(64, 64)),
            "GraphAttention, GATConv": (GraphAttention(64, 64, num_heads=4), GATConv(64, 16, heads=4)),
        }
        for name, (ours, peer) in pairs.items():
            if isinstance(ours, GraphConv):
                with torch.no_grad():
                    peer.lin.weight.copy_(ours.linear.weight)
                loops = edges[:, edges[0] != edges[1]]
                torch.testing.assert_close(ours(x, loops), peer(x, loops), rtol=1e-4, atol=1e-4)

            def apply(layer: nn.Module, x: Tensor = x, edges: Tensor = edges) -> Callable[[], None]:
                return lambda: layer(x, edges).sum().backward()

            found = compare(apply(ours), apply(peer), rounds=9, least=0.0)
            print(row(f"{name}, {n:,} nodes, {e:,} edges", found), flush=True)


@torch.no_grad()
def errors() -> None:
    print("| dtype | coordinates | features |\n|---|---|---|")
    for dtype in (torch.float32, torch.float64):
        torch.manual_seed(0)
        model = EGNN(4).to(dtype)
        h, x = torch.randn(20, 4, dtype=dtype), torch.randn(20, 3, dtype=dtype)
        r, t = Orthogonal(3).sample(dtype=dtype), torch.randn(3, dtype=dtype)
        (h1, x1), (h2, x2) = model(h, x), model(h, x @ r.T + t)
        found = [(x2 - (x1 @ r.T + t)).abs().max() / x1.abs().max(), (h2 - h1).abs().max() / h1.abs().max()]
        print(f"| {str(dtype).removeprefix('torch.')} | " + " | ".join(f"{float(v):.1e}" for v in found) + " |")


@torch.no_grad()
def density() -> None:
    nodes, weights = (torch.from_numpy(a) * math.pi / 2 for a in np.polynomial.legendre.leggauss(400))
    angles = nodes + math.pi / 2
    print("| scale | integral, float32 | integral, float64 |\n|---|---|---|")
    for scale in (0.1, 0.5, 1.0, 2.0, 4.0, 8.0):
        found = []
        for dtype in (torch.float32, torch.float64):
            v = torch.zeros(400, 3, dtype=dtype)
            v[:, 2] = angles
            p = WrappedNormal(SO3(), scale=torch.tensor(scale, dtype=dtype)).log_prob(SO3().exp(v)).double().exp()
            found.append(float((weights * p * 4 * math.pi * (2 - 2 * angles.cos())).sum()))
        print(f"| {scale} | " + " | ".join(f"{value:.6f}" for value in found) + " |")


def cube_latents() -> None:
    images = cubes(samples=6_000, size=16).inputs
    train, test = images[:5_500], images[5_500:]
    variance = float((test - train.mean(0)).square().sum((1, 2, 3)).mean())
    print(
        "| latent | numbers | steps | lower bound, nats | KL, nats | unexplained variance |\n|---|---|---|---|---|---|"
    )
    for k in (3, 9):
        pca = PCA(n_components=k).fit(train)
        rest = test - pca.inverse_transform(pca.transform(test))
        print(f"| PCA | {k} | | | | {float(rest.square().sum((1, 2, 3)).mean()) / variance:.3f} |", flush=True)
    latents: dict[str, LatentDistribution] = {
        "SO3Latent": SO3Latent(),
        "GaussianLatent, 3": GaussianLatent(3),
        "GaussianLatent, 9": GaussianLatent(9),
    }
    for name in os.environ.get("CUBES_LATENTS", ";".join(latents)).split(";"):
        torch.manual_seed(0)
        latent = latents[name]
        vae = mlp_vae((3, 16, 16), latent=latent, hidden_dims=(256, 256)).fit_normalizer(train)
        optimizer = torch.optim.AdamW(vae.parameters(), lr=2e-3, fused=True)
        start, steps, seconds = time.process_time(), 0, float(os.environ.get("CUBES_SECONDS", "60"))
        while (done := (time.process_time() - start) / seconds) < 1:
            optimizer.param_groups[0]["lr"] = 2e-3 * min(1.0, (steps + 1) / 50) * (1 + math.cos(math.pi * done)) / 2
            optimizer.zero_grad()
            vae.loss(train[torch.randint(len(train), (64,))]).backward()
            nn.utils.clip_grad_norm_(vae.parameters(), 1000.0)
            optimizer.step()
            steps += 1
        with torch.no_grad():
            rest = float((test - vae(test)).square().sum((1, 2, 3)).mean()) / variance
            kl, bound = vae.latent.kl(vae.posterior(test)).sum(1).mean(), vae.elbo_estimate(test).value.mean()
        print(f"| {name} | {latent.dim} | {steps} | {float(bound):.0f} | {float(kl):.1f} | {rest:.3f} |", flush=True)


def generators() -> None:
    n, count = 7, 50_000
    bases = {"central differences": image_generators(n, n), "sinc": image_generators(n, n, derivative="sinc")}
    true = {name: basis[3] - basis[4] for name, basis in bases.items()}
    names = " | ".join(f"correlation, {name}" for name in true)
    print(f"| angle | method | {names} | s |\n|---|---|---|---|---|")
    for part in (10, 40):
        torch.manual_seed(0)
        angle = math.pi / part
        c, s = math.cos(angle), math.sin(angle)
        grid = F.affine_grid(torch.tensor([[[c, -s, 0.0], [s, c, 0.0]]]), [1, 1, n, n], align_corners=True)
        x = torch.rand(count, n * n) - 0.5
        y = F.grid_sample(x.reshape(1, -1, n, n), grid, align_corners=True).reshape(-1, n * n)
        methods: dict[str, Callable[[], Tensor]] = {
            "linear regression": lambda x=x, y=y: torch.linalg.lstsq(x, y).solution.mT - torch.eye(x.shape[1]),
            "fit_generator, no basis": lambda x=x, y=y: fit_generator(x, y),
        }
        for derivative, basis in bases.items():
            name = f"fit_generator, image_generators, {derivative}"
            methods[name] = lambda x=x, y=y, basis=basis: fit_generator(x, y, basis=basis)
        for depth in (1, 5, 10):
            name = f"L-conv, recurrent, depth {depth}"
            methods[name] = lambda x=x, y=y, depth=depth: train_lconv(x, y, depth=depth)
        for name, method in methods.items():
            start = time.process_time()
            found, seconds = method(), time.process_time() - start
            cells = [
                f"{float(torch.corrcoef(torch.stack([found.flatten(), g.to(found).flatten()]))[0, 1].abs()):.3f}"
                for g in true.values()
            ]
            print(f"| pi / {part} | {name} | " + " | ".join(cells) + f" | {seconds:.1f} |", flush=True)


def train_lconv(x: Tensor, y: Tensor, *, depth: int, epochs: int = 10) -> Tensor:
    """Trains a recurrent L-conv, and returns its generator."""
    layer = LConv(1, 1, num_points=x.shape[1], bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([0.0, 1 / depth])[:, None, None])  # f + L f / depth
        layer.full.mul_(1e-2)
    layer.weight.requires_grad_(False)
    steps = epochs * (len(x) // 500)
    optimizer = torch.optim.Adam([layer.full], lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(500):
            f = x[rows].unsqueeze(-1)
            for _ in range(depth):
                f = f + layer(f)
            optimizer.zero_grad()
            F.mse_loss(f.squeeze(-1), y[rows]).backward()
            optimizer.step()
            schedule.step()
    return layer.generators()[0].detach()


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    tables = {f.__name__: f for f in (rates, nbody, layers, errors, density, generators)}
    tables["cubes"] = cube_latents
    for name in sys.argv[1:] or tables:
        print(f"\n{name}\n")
        tables[name]()


if __name__ == "__main__":
    main()
