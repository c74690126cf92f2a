"""MNIST-1D: accuracy of `lawful train classify-sequence` with its defaults, zero-shot at other sampling rates, peers.

The data are those of the package `mnist1d` (seed 42), 4,000 to train and 1,000 to test. Every model has fewer than
10,000 parameters, complex ones counted twice, and trains on one thread; a time is that of the processor, from the data
to the trained model, for the recipe with its evaluations and the report. Three seeds.

- lawful: the recipe with its defaults, of which 400 training examples are for validation. The learning rate and the
  dropout were chosen by the accuracy on 800 of the 4,000 training examples, in two folds.
- Peers: a linear encoder, blocks of the library with norm and residual, mean pooling and a linear head. `PlainS4D` is
  in the layout of the published minimal S4D: norm, S4D, GELU, gated projection, residual. They have the batch size, the
  label smoothing and the schedule of the recipe, and AdamW without decay of the state-space parameters. They also have
  its epochs, but for mambapy, which has those that fit into 75 s. The learning rate is the one of three with the best
  accuracy on 400 training examples after a third of the epochs, at least 7; then they train on all 4,000.
- Zero-shot: the same test digits at 80 and 160 samples (`final_seq_length`), with `rate` 40/80 and 40/160, by the FFT
  convolution, the scan, and step by step.
"""

from __future__ import annotations

import io
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from state_space_parts.plain import PlainS4D
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks import S4D
from lawful.data import ShuffledBatches, SupervisedDataset
from lawful.data.table_encoding import Task
from lawful.optim import one_cycle_schedule
from lawful.recipes import ClassifyRecipe, ClassifySequenceRecipe, load
from lawful.recipes.data import DataSplits
from lawful.training import train

SEEDS = range(3)
RATES = 3e-3, 1e-2, 2e-2
LABEL_SMOOTHING, BATCH = 0.03, 64


def digits(length: int = 40) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training and test series of the package, and their labels."""
    from mnist1d.data import get_dataset_args, make_dataset

    args = get_dataset_args()
    args.final_seq_length = length
    made = make_dataset(args)
    x, test = (torch.from_numpy(made[name]).float() for name in ("x", "x_test"))
    return x, torch.from_numpy(made["y"]), test, torch.from_numpy(made["y_test"])


class _CanonicalSplit:
    """The training and test split of the package, for a recipe."""

    def load_splits(self, task: Task) -> DataSplits:
        splits = super().load_splits(task)  # type: ignore[misc]
        x, y, test, labels = digits()
        held_out = torch.randperm(len(x), generator=torch.Generator().manual_seed(0)) < 0.1 * len(x)
        part = partial(_examples, like=splits.train)
        return replace(
            splits,
            train=part(x[~held_out], y[~held_out]),
            validation=part(x[held_out], y[held_out]),
            test=part(test, labels),
        )


def _examples(x: Tensor, y: Tensor, *, like: SupervisedDataset) -> SupervisedDataset:
    return replace(like, inputs=x.view(-1, *like.inputs.shape[1:]), targets=y)


class SequenceRecipe(_CanonicalSplit, ClassifySequenceRecipe):
    """`classify-sequence` on the canonical split."""


@dataclass(frozen=True)
class Found:
    """Results of one run."""

    accuracy: float
    seconds: float
    parameters: int
    model: nn.Module


def num_parameters(model: nn.Module) -> int:
    return sum(p.numel() * (2 if p.is_complex() else 1) for p in model.parameters())


def run_recipe(recipe: ClassifyRecipe) -> Found:
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
        run = train(recipe, output_dir=folder)
        taken = time.process_time() - start
        model = load(run)
        return Found(run.results["test"]["accuracy"]["value"], taken, num_parameters(model), model)


# ---------------------------------------------------------------- peers


class PeerClassifier(nn.Module):
    """Linear encoder, blocks, mean pooling, linear head."""

    def __init__(self, dim: int, blocks: list[nn.Module]) -> None:
        super().__init__()
        self.encoder, self.blocks, self.head = nn.Linear(1, dim), nn.Sequential(*blocks), nn.Linear(dim, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.encoder(x.unsqueeze(-1))).mean(1))


class PlainBlock(nn.Module):
    """Norm, S4D, GELU, gated projection and residual."""

    def __init__(self, dim: int, state_dim: int) -> None:
        super().__init__()
        self.norm, self.ssm, self.out = nn.LayerNorm(dim), PlainS4D(dim, state_dim), nn.Linear(dim, 2 * dim)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.glu(self.out(F.gelu(self.ssm(self.norm(x)))))


def plain_s4d() -> nn.Module:
    return PeerClassifier(32, [PlainBlock(32, 32) for _ in range(2)])


def s5_pytorch() -> nn.Module:
    from s5 import S5Block

    return PeerClassifier(24, [S5Block(24, 24, bidir=False) for _ in range(2)])


def mambapy() -> nn.Module:
    from mambapy.mamba import Mamba, MambaConfig

    return PeerClassifier(20, [Mamba(MambaConfig(d_model=20, n_layers=2, d_state=16))])


EPOCHS = SequenceRecipe().model.epochs
PEERS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "plain S4D": (plain_s4d, EPOCHS),
    "s5-pytorch 0.2.1": (s5_pytorch, EPOCHS),
    "mambapy 1.2.0": (mambapy, 7),
}
NO_DECAY = "log_dt", "log_decay", "frequency", "Lambda", "log_step", "A_log", ".D", "skip", "bias", "norm"


def train_peer(build: Callable[[], nn.Module], x: Tensor, y: Tensor, *, lr: float, epochs: int, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model = build()
    decayed = [p for name, p in model.named_parameters() if not any(part in name for part in NO_DECAY)]
    others = [p for name, p in model.named_parameters() if any(part in name for part in NO_DECAY)]
    groups = [{"params": decayed, "weight_decay": 1e-2}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=lr)
    batches = ShuffledBatches(x, y, batch_size=BATCH, seed=seed)
    steps = epochs * len(batches)
    schedule = one_cycle_schedule(steps=steps)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = lr * schedule(step)
        inputs, labels = batches.batch(step)
        loss = F.cross_entropy(model(inputs), labels, label_smoothing=LABEL_SMOOTHING)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


@torch.no_grad()
def accuracy(model: Callable[[Tensor], Tensor], x: Tensor, y: Tensor) -> float:
    return float((model(x).argmax(-1) == y).double().mean())


def run_peer(build: Callable[[], nn.Module], *, epochs: int) -> tuple[float, list[Found]]:
    """Chooses the learning rate by validation, then trains on all training examples with each seed."""
    x, y, test, labels = digits()
    held_out = torch.randperm(len(x), generator=torch.Generator().manual_seed(0)) < 0.1 * len(x)
    scores = {}
    for lr in RATES:
        model = train_peer(build, x[~held_out], y[~held_out], lr=lr, epochs=max(epochs // 3, 7), seed=0)
        scores[lr] = accuracy(model, x[held_out], y[held_out])
    lr, found = max(RATES, key=lambda rate: scores[rate]), []
    for seed in SEEDS:
        start = time.process_time()
        model = train_peer(build, x, y, lr=lr, epochs=epochs, seed=seed)
        taken = time.process_time() - start
        found.append(Found(accuracy(model, test, labels), taken, num_parameters(model), model))
    return lr, found


# ---------------------------------------------------------------- tables


def row(name: str, found: list[Found], note: str = "") -> str:
    scores = [100 * one.accuracy for one in found]
    return (
        f"| {name} | {found[0].parameters:,} | {statistics.mean(scores):.2f} | {min(scores):.1f} to {max(scores):.1f} "
        f"| {statistics.mean(one.seconds for one in found):.0f} | {note} |"
    )


def by_scan(model: nn.Module, rate: float, x: Tensor) -> Tensor:
    return model.model(model.normalizer(x.unsqueeze(1)), rate=rate)


def by_convolution(model: nn.Module, rate: float, x: Tensor) -> Tensor:
    """Every state-space model filters by the FFT with its whole kernel."""

    def convolve(ssm: nn.Module, args: tuple[Tensor], kwargs: dict[str, Any], y: Tensor) -> Tensor:
        return ssm.convolve(*args, rate=kwargs["rate"])

    models = [module for module in model.modules() if isinstance(module, S4D)]
    handles = [module.register_forward_hook(convolve, with_kwargs=True) for module in models]
    y = by_scan(model, rate, x)
    for handle in handles:
        handle.remove()
    return y


def by_steps(model: nn.Module, rate: float, x: Tensor) -> Tensor:
    sequence, logits = model.model.sequence, torch.zeros(())
    state = sequence.initial_state(len(x))
    for sample in model.normalizer(x.unsqueeze(1)).squeeze(1).unsqueeze(-1).unbind(1):
        logits, state = sequence.step(sample, state, rate)
    return logits


def run(name: str = "") -> None:
    """Prints the rows of all models, or of one: `lawful` or a peer."""
    if name not in ("", "lawful", *PEERS):
        sys.exit(f"unknown model {name!r}, expected one of lawful, {', '.join(PEERS)}")
    print("| model | parameters | test accuracy, mean of 3, % | seeds | processor, s a run | |")
    print("|---|---|---|---|---|---|")
    found = [run_recipe(SequenceRecipe(seed=seed, threads=1)) for seed in SEEDS] if name in ("", "lawful") else []
    if found:
        print(row("`lawful train classify-sequence`", found, f"{EPOCHS} epochs"), flush=True)
    for peer, (build, epochs) in PEERS.items():
        if name in ("", peer):
            lr, runs = run_peer(build, epochs=epochs)
            print(row(peer, runs, f"{epochs} epochs, learning rate {lr:g}"), flush=True)
    if found:
        zero_shot([one.model.eval() for one in found])


def zero_shot(models: list[nn.Module]) -> None:
    modes = {"convolution": by_convolution, "scan": by_scan, "recurrence": by_steps}
    print(f"\n| zero-shot, mean of 3 and seeds, % | {' | '.join(modes)} |\n|---|---|---|---|")
    for length in (40, 80, 160):
        *_, test, labels = digits(length)
        columns = []
        for mode in modes.values():
            scores = [100 * accuracy(partial(mode, model, 40 / length), test, labels) for model in models]
            columns.append(f"{statistics.mean(scores):.2f} ({min(scores):.1f} to {max(scores):.1f})")
        print(f"| {length} samples, rate {40 / length:g} | " + " | ".join(columns) + " |", flush=True)
