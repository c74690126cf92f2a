"""Overhead of the training loop, compared with a bare PyTorch loop, Lightning and Hugging Face.

Run `OMP_NUM_THREADS=1 python benchmarks/loop.py` (peers: `pip install -e '.[benchmarks]'`). One thread; each round
trains all of them, in alternating order, from the same weights on the same data. Ours logs every step to
`metrics.jsonl` and the terminal's tracker and writes a checkpoint every 1,000 steps; the peers log and save nothing.
CPU and wall time are measured from the 20th step to the last, so that startup does not count.
"""

from __future__ import annotations

import argparse
import io
import logging
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from lawful.data import ShuffledBatches
from lawful.optim import adamw
from lawful.training import OptimizerStep, TrainerConfig, TrainingSetup, train

FIRST = 20


@dataclass(frozen=True)
class Task:
    """A tiny classification, and how wide the network for it is."""

    width: int
    steps: int
    batch: int = 64

    def data(self) -> tuple[Tensor, Tensor]:
        torch.manual_seed(0)
        x = torch.randn(4096, 64)
        return x, x[:, :10].argmax(-1)

    def model(self) -> nn.Module:
        torch.manual_seed(1)
        return nn.Sequential(
            nn.Linear(64, self.width),
            nn.ReLU(),
            nn.Linear(self.width, self.width),
            nn.ReLU(),
            nn.Linear(self.width, 10),
        )


class Watch:
    """The processor's and the wall's time from the 20th step on."""

    def __init__(self) -> None:
        self.begun: tuple[float, float] = (0.0, 0.0)
        self.ended: tuple[float, float] = (0.0, 0.0)

    def at(self, step: int) -> None:
        now = (time.process_time(), time.perf_counter())
        if step == FIRST:
            self.begun = now
        self.ended = now

    def taken(self, steps: int) -> tuple[float, float]:
        return tuple((end - start) / (steps - FIRST) for start, end in zip(self.begun, self.ended, strict=True))

    start = log = close = lambda self, *rest: None


class Ticking(Watch):
    """The same, as a tracker."""

    def log(self, step: int, figures: object) -> None:
        self.at(step)


def ours(task: Task, *, checkpoint_every: int = 1000) -> tuple[float, float]:
    model, (x, y), watch = task.model(), task.data(), Ticking()

    def objective(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    training = TrainingSetup(
        model=model,
        optimizer_steps=[OptimizerStep(loss_fn=objective, optimizer=adamw(model.parameters(), lr=1e-3))],
        batches=ShuffledBatches(x, y, batch_size=task.batch, seed=0),
        steps=task.steps,
    )
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
        trainer = TrainerConfig(threads=1, checkpoint_every=checkpoint_every, law_cases=0)
        train(training, trainer=trainer, output_dir=folder, loggers=[watch])
    return watch.taken(task.steps)


def bare(task: Task) -> tuple[float, float]:
    model, (x, y), watch = task.model(), task.data(), Watch()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    order = torch.randperm(len(x)).split(task.batch)
    for step in range(task.steps):
        chosen = order[step % len(order)]
        if step % len(order) == len(order) - 1:
            order = torch.randperm(len(x)).split(task.batch)
        loss = nn.functional.cross_entropy(model(x[chosen]), y[chosen])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        watch.at(step + 1)
    return watch.taken(task.steps)


def lightning(task: Task) -> tuple[float, float]:
    import lightning as pl

    watch = Watch()

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = task.model()

        def training_step(self, batch: list[Tensor], index: int) -> Tensor:
            return nn.functional.cross_entropy(self.model(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=1e-3, fused=True)

        def on_train_batch_end(self, *rest: object) -> None:
            watch.at(self.global_step)

    trainer = pl.Trainer(
        max_steps=task.steps,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), DataLoader(TensorDataset(*task.data()), batch_size=task.batch, shuffle=True))
    return watch.taken(task.steps)


def hugging_face(task: Task) -> tuple[float, float]:
    from transformers import Trainer, TrainerCallback, TrainingArguments

    watch = Watch()

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = task.model()

        def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
            logits = self.model(x)
            return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}

    class Rows(torch.utils.data.Dataset):
        x, y = task.data()

        def __len__(self) -> int:
            return len(self.x)

        def __getitem__(self, i: int) -> dict[str, Tensor]:
            return {"x": self.x[i], "labels": self.y[i]}

    class Ticks(TrainerCallback):
        def on_step_end(self, args: object, state: object, control: object, **rest: object) -> None:
            watch.at(state.global_step)

    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
        arguments = TrainingArguments(
            folder,
            max_steps=task.steps,
            per_device_train_batch_size=task.batch,
            learning_rate=1e-3,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
            dataloader_pin_memory=False,
        )
        Trainer(Model(), arguments, train_dataset=Rows(), callbacks=[Ticks()]).train()
    return watch.taken(task.steps)


def table(title: str, task: Task, ways: dict[str, Callable[[Task], tuple[float, float]]], rounds: int) -> None:
    """Measures every way in turn, and prints ours as a ratio to each of the others."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for number in range(rounds):
        for name in list(ways) if number % 2 else reversed(ways):
            found[name].append(ways[name](task))
    print(f"\n{title}; {rounds} rounds of {task.steps} steps\n")
    print("| loop | processor, ms a step | wall, ms a step | ours / it, processor | middle half |")
    print("|---|---|---|---|---|")
    for name, taken in found.items():
        cpu, wall = (1e3 * statistics.median(times) for times in zip(*taken, strict=True))
        ratios = [a[0] / b[0] for a, b in zip(found["lawful"], taken, strict=True)]
        low, _, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else (ratios[0],) * 3
        print(f"| {name} | {cpu:.3f} | {wall:.3f} | {statistics.median(ratios):.3f} | {low:.3f} to {high:.3f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    warnings.simplefilter("ignore")
    for name in ("lightning.pytorch", "lightning", "transformers"):
        logging.getLogger(name).setLevel(logging.ERROR)
    print(f"torch {torch.__version__}, one thread")
    table(
        "A step of about 10 ms, compared with a bare loop",
        Task(width=1024, steps=1100),
        {"lawful": ours, "bare": bare},
        rounds,
    )
    peers = {"lawful": ours, "bare": bare, "Lightning": lightning, "Hugging Face Trainer": hugging_face}
    table("A tiny MLP (64-32-32-10), dominated by the loop", Task(width=32, steps=1100), peers, rounds)


if __name__ == "__main__":
    main()
