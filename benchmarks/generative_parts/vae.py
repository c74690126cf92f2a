"""A variational autoencoder against pythae's: the same architecture, steps and data, five seeds.

Binarized digits of scikit-learn, 1437 for training and 360 for testing. Both sides have one hidden layer of 512 ReLU
units in the encoder and in the decoder, 8 Gaussian latents, and 40 epochs of Adam at 1e-3 with batches of 64. The ELBO
uses 16 latent samples per image; IWAE-500 is computed on the first 60 images. pythae's weights are also loaded into our
model and scored: the scores must agree.
"""

from __future__ import annotations

import os
import time
from importlib.metadata import version
from statistics import mean, stdev

import torch
from sklearn.datasets import load_digits
from torch import Tensor

from lawful.models import VAE, BernoulliLikelihood, mlp_vae

SEEDS = tuple(range(int(os.environ.get("SEEDS", "5"))))
EPOCHS, BATCH, LEARNING_RATE, LATENT_DIM, HIDDEN_DIM, K, NUM_IWAE = 40, 64, 1e-3, 8, 512, 500, 60


def splits() -> tuple[Tensor, Tensor]:
    """Binary training and test images."""
    bits = (torch.tensor(load_digits().data) > 8).float()
    rows = torch.randperm(len(bits), generator=torch.Generator().manual_seed(0))
    return bits[rows[360:]], bits[rows[:360]]


def train_model(model, loss, train: Tensor, seed: int) -> float:
    """Trains the model; returns the CPU time."""
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    start = time.process_time()
    for epoch in range(EPOCHS):
        order = torch.randperm(len(train), generator=torch.Generator().manual_seed(1000 * seed + epoch))
        for rows in order.split(BATCH):
            optimizer.zero_grad()
            loss(train[rows]).backward()
            optimizer.step()
    return time.process_time() - start


def build_vae() -> VAE:
    return mlp_vae(
        64,
        latent_dim=LATENT_DIM,
        hidden_dims=(HIDDEN_DIM,),
        activation=torch.relu,
        likelihood=BernoulliLikelihood((64,)),
    )


def scores(model: VAE, test: Tensor) -> dict[str, float]:
    return {
        "-ELBO": -float(model.elbo_estimate(test, num_samples=16).value.mean()),
        f"-IWAE-{K}": -float(model.iwae_estimate(test[:NUM_IWAE], num_samples=K).value.mean()),
        "active": int(model.active_units(test).active.sum()),
    }


def ours(seed: int) -> dict[str, float]:
    train, test = splits()
    torch.manual_seed(seed)
    model = build_vae()
    seconds = train_model(model, model.loss, train, seed)
    return {**scores(model, test), "seconds": seconds}


def peer(seed: int) -> tuple[dict[str, float], dict[str, float]]:
    """The peer's own scores, and those of its weights in our model."""
    from pythae import models

    train, test = splits()
    torch.manual_seed(seed)
    model = models.VAE(models.VAEConfig(input_dim=(64,), latent_dim=LATENT_DIM, reconstruction_loss="bce"))
    seconds = train_model(model, lambda x: model({"data": x}).loss, train, seed)
    model.eval()
    with torch.no_grad():
        bound = mean(float(model({"data": test}).loss) for _ in range(16))
        likelihood = float(model.get_nll(test[:NUM_IWAE], n_samples=K, batch_size=100))
    same, e, d = build_vae(), model.encoder, model.decoder
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
    """Negative log-likelihood of independent Bernoulli pixels, with add-one smoothing."""
    train, test = splits()
    p = (train.sum(0) + 1) / (len(train) + 2)
    return -float((test * p.log() + (1 - test) * (1 - p).log()).sum(1).mean())


def run() -> None:
    names = f"lawful; pythae {version('pythae')}", f"seeds {', '.join(map(str, SEEDS))}"
    print(f"\n## VAE on binarized digits, nats per image ({'; '.join(names)})\n")
    rows: dict[str, list[dict[str, float]]] = {"lawful": [], "pythae": [], "pythae's weights, scored by lawful": []}
    for seed in SEEDS:
        rows["lawful"].append(ours(seed))
        for name, scores in zip(list(rows)[1:], peer(seed), strict=True):
            rows[name].append(scores)
    columns = ("-ELBO", f"-IWAE-{K}", "get_nll", "active", "seconds")
    print("| model | " + " | ".join(columns) + " |\n|" + "---|" * (1 + len(columns)))
    for name, results in rows.items():
        cells = []
        for column in columns:
            values = [one[column] for one in results if column in one]
            spread = f" ± {stdev(values):.2f}" if len(values) > 1 else ""
            cells.append(f"{mean(values):.2f}{spread}" if values else "")
        print(f"| {name} | " + " | ".join(cells) + " |")
    print(f"| independent pixels | {independent():.2f} |" + " |" * (len(columns) - 1))
    differences = [a["-ELBO"] - b["-ELBO"] for a, b in zip(rows["lawful"], rows["pythae"], strict=True)]
    print(
        f"\nlawful minus pythae, -ELBO: {mean(differences):+.3f} nats on average; a negative get_nll is a"
        " log-likelihood."
    )
