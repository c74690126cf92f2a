"""A variational autoencoder beside that of pythae: the same architecture, steps and data, five seeds.

Digits of scikit-learn, bits (above half of the range), 1437 to train on and 360 to test with. Both have one hidden
layer of 512 ReLU units each way and 8 Gaussian codes, 40 epochs of Adam at 1e-3 in batches of 64. The bound is that of
16 codes for each image; IWAE-500 is that of the first 60 images. pythae's weights, put into the model here, are scored
too: the two then have to agree.
"""

from __future__ import annotations

import os
import time
from importlib.metadata import version
from statistics import mean, stdev

import torch
from sklearn.datasets import load_digits
from torch import Tensor

from lawful.models.generative import VAE, BernoulliLikelihood, MLPVAEConfig, mlp_vae

SEEDS = tuple(range(int(os.environ.get("SEEDS", "5"))))
EPOCHS, BATCH, RATE, LATENT, HIDDEN, K, FEW = 40, 64, 1e-3, 8, 512, 500, 60


def parts() -> tuple[Tensor, Tensor]:
    """Bits to train on, and to test with."""
    bits = (torch.tensor(load_digits().data) > 8).float()
    rows = torch.randperm(len(bits), generator=torch.Generator().manual_seed(0))
    return bits[rows[360:]], bits[rows[:360]]


def trained(model, loss, train: Tensor, seed: int) -> float:
    """Trains, and returns the processor time."""
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    began = time.process_time()
    for epoch in range(EPOCHS):
        order = torch.randperm(len(train), generator=torch.Generator().manual_seed(1000 * seed + epoch))
        for rows in order.split(BATCH):
            optimizer.zero_grad()
            loss(train[rows]).backward()
            optimizer.step()
    return time.process_time() - began


def here() -> VAE:
    """The model of this library."""
    sizes = MLPVAEConfig(shape=(64,), latent=LATENT, hidden=(HIDDEN,), activation=torch.relu)
    return mlp_vae(sizes, likelihood=BernoulliLikelihood((64,)))


def scores(model: VAE, test: Tensor) -> dict[str, float]:
    return {
        "-ELBO": -float(model.elbo(test, draws=16).value.mean()),
        f"-IWAE-{K}": -float(model.iwae(test[:FEW], K).value.mean()),
        "active": int(model.active_units(test).active.sum()),
    }


def ours(seed: int) -> dict[str, float]:
    train, test = parts()
    torch.manual_seed(seed)
    model = here()
    seconds = trained(model, model.loss, train, seed)
    return {**scores(model, test), "seconds": seconds}


def peer(seed: int) -> tuple[dict[str, float], dict[str, float]]:
    """The peer as it scores itself, and its weights in the model here."""
    from pythae import models

    train, test = parts()
    torch.manual_seed(seed)
    model = models.VAE(models.VAEConfig(input_dim=(64,), latent_dim=LATENT, reconstruction_loss="bce"))
    seconds = trained(model, lambda x: model({"data": x}).loss, train, seed)
    model.eval()
    with torch.no_grad():
        bound = mean(float(model({"data": test}).loss) for _ in range(16))
        likelihood = float(model.get_nll(test[:FEW], n_samples=K, batch_size=100))
    same, e, d = here(), model.encoder, model.decoder
    weights = [
        e.layers[0][0].weight,
        e.layers[0][0].bias,
        torch.cat([e.embedding.weight, e.log_var.weight]),
        torch.cat([e.embedding.bias, e.log_var.bias]),
        d.layers[0][0].weight,
        d.layers[0][0].bias,
        d.layers[1][0].weight,
        d.layers[1][0].bias,
    ]
    with torch.no_grad():
        for mine, theirs in zip(same.parameters(), weights, strict=True):
            mine.copy_(theirs)
    return {"-ELBO": bound, "get_nll": likelihood, "seconds": seconds}, scores(same, test)


def independent() -> float:
    """The surprise at the test where each pixel is a coin of its own, one count added to each side."""
    train, test = parts()
    p = (train.sum(0) + 1) / (len(train) + 2)
    return -float((test * p.log() + (1 - test) * (1 - p).log()).sum(1).mean())


def run() -> None:
    names = f"lawful; pythae {version('pythae')}", f"seeds {', '.join(map(str, SEEDS))}"
    print(f"\n## VAE on binarised digits, nats for each image ({'; '.join(names)})\n")
    rows: dict[str, list[dict[str, float]]] = {"lawful": [], "pythae": [], "pythae's weights, scored here": []}
    for seed in SEEDS:
        rows["lawful"].append(ours(seed))
        for name, found in zip(list(rows)[1:], peer(seed), strict=True):
            rows[name].append(found)
    columns = ("-ELBO", f"-IWAE-{K}", "get_nll", "active", "seconds")
    print("| model | " + " | ".join(columns) + " |\n|" + "---|" * (1 + len(columns)))
    for name, found in rows.items():
        cells = []
        for column in columns:
            values = [one[column] for one in found if column in one]
            spread = f" ± {stdev(values):.2f}" if len(values) > 1 else ""
            cells.append(f"{mean(values):.2f}{spread}" if values else "")
        print(f"| {name} | " + " | ".join(cells) + " |")
    print(f"| independent pixels | {independent():.2f} |" + " |" * (len(columns) - 1))
    apart = [a["-ELBO"] - b["-ELBO"] for a, b in zip(rows["lawful"], rows["pythae"], strict=True)]
    print(f"\nlawful less pythae, -ELBO: {mean(apart):+.3f} nats on average; a negative get_nll is a log-likelihood.")
