"""Loss of a small language model over training time: nanoGPT's CPU recipe against `lawful train text`.

Run `OMP_NUM_THREADS=1 python benchmarks/text.py TEXT`, where TEXT is the Tiny Shakespeare file. The standard recipe is
nanoGPT's CPU recipe on Hugging Face's GPT-2: 4 layers, 4 heads, width 128, context 64, 12 windows a step, 2,000
steps of AdamW, no biases, a tied head. lawful has the defaults of its recipe, once with few steps and once with many.
Both train on the first 90 % of the text and are evaluated by the same function on the rest: the mean loss in
non-overlapping windows of 64. Each training is a separate process with one thread. The clock is CPU time from before
the first step on, without evaluations. No option was tuned on the validation text. `--without NAME` removes an
ingredient, for the ablation table.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

CONTEXT = 64
GOAL = 1.898
SHORT, LONG = 100, 1800


def split(text: str) -> tuple[Tensor, Tensor, int]:
    """The numbers of the characters, the first nine tenths and the rest, and how many different ones there are."""
    characters = sorted(set(text))
    numbers = {character: n for n, character in enumerate(characters)}
    ids = torch.tensor([numbers[character] for character in text])
    train = int(0.9 * len(ids))
    return ids[:train], ids[train:], len(characters)


@torch.no_grad()
def loss_of(logits: Callable[[Tensor], Tensor], ids: Tensor) -> float:
    """The mean loss over a whole text, in windows that do not overlap."""
    whole = (len(ids) - 1) // CONTEXT * CONTEXT
    x, y = ids[:whole].view(-1, CONTEXT), ids[1 : whole + 1].view(-1, CONTEXT)
    total = 0.0
    for inputs, targets in zip(x.split(256), y.split(256), strict=True):
        total += float(nn.functional.cross_entropy(logits(inputs).flatten(0, 1), targets.flatten(), reduction="sum"))
    return total / whole


class Clock:
    """CPU time without evaluations, and the losses over it."""

    def __init__(self) -> None:
        self.start, self.idle = time.process_time(), 0.0
        self.seen: list[tuple[int, float, float]] = []

    def evaluate(self, step: int, logits: Callable[[Tensor], Tensor], ids: Tensor) -> float:
        begun = time.process_time()
        loss = loss_of(logits, ids)
        self.seen.append((step, begun - self.start - self.idle, loss))
        self.idle += time.process_time() - begun
        return loss


def standard(text: str, *, steps: int, seed: int) -> list[tuple[int, float, float]]:
    """Trains Hugging Face's GPT-2 by the standard recipe."""
    from transformers import GPT2Config, GPT2LMHeadModel

    train, validation, vocab = split(text)
    torch.manual_seed(seed)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=vocab,
            n_positions=CONTEXT,
            n_embd=128,
            n_layer=4,
            n_head=4,
            activation_function="gelu",
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            use_cache=False,
        )
    )
    for name, p in model.named_parameters():
        if name.endswith(".bias"):
            nn.init.zeros_(p).requires_grad_(False)
    matrices = [p for p in model.parameters() if p.requires_grad and p.ndim > 1]
    vectors = [p for p in model.parameters() if p.requires_grad and p.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99), fused=True)

    def rate(step: int) -> float:
        if step < 100:
            return (step + 1) / 101
        return 0.1 + 0.45 * (1 + math.cos(math.pi * (step - 100) / (steps - 100)))

    clock = Clock()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * rate(step)
        starts = torch.randint(len(train) - CONTEXT, (12, 1)) + torch.arange(CONTEXT + 1)
        window = train[starts]
        logits = model(window[:, :-1]).logits
        nn.functional.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if (step + 1) % 50 == 0:
            model.eval()
            clock.evaluate(step + 1, lambda x: model(x).logits, validation)
            model.train()
    return clock.seen


def lawful(path: str, *, steps: int, seed: int, without: str) -> list[tuple[int, float, float]]:
    """Trains `lawful train text` with its defaults, except the number of steps and the ablation."""
    from lawful.recipes import TextRecipe
    from lawful.training import TrainerConfig, seed_everything, train

    recipe = TextRecipe(data=path, steps=steps, seed=seed, threads=1, law_cases=0, **ABLATIONS[without])
    seed_everything(seed)
    setup = recipe.setup()
    validation, every = setup.data.validation.long(), max(1, steps // 20)
    clock: list[Clock] = []

    def evaluate(model: nn.Module) -> dict[str, float]:
        step = min(steps, every * (len(clock[0].seen) + 1))
        return {"loss": clock[0].evaluate(step, model, validation)}

    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
        clock.append(Clock())
        trainer = TrainerConfig(seed=seed, threads=1, law_cases=0)
        train(replace(setup, evaluate=evaluate, eval_every=every), trainer=trainer, output_dir=folder)
    return clock[0].seen


ABLATIONS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "n-gram embeddings": {"ngrams": ()},
    "4-gram embedding": {"ngrams": (2, 3)},
    "Muon": {"optimizer": "adamw"},
    "rotary positions": {"positions": "learned"},
    "QK norm": {"qk_norm": False},
    "squared ReLU": {"activation": "gelu"},
    "zero-initialized outputs": {"zero_init_outputs": False},
    "embedding skip": {"embedding_skip": False},
    "embedding norm": {"embedding_norm": False},
    "untied head": {"tie_embeddings": True},
    "linear decay": {"schedule": "constant"},
}
"""Ingredients that can be left out, as options of the recipe."""


def time_to_loss(seen: list[tuple[int, float, float]], goal: float) -> float:
    """The time at which a loss is first seen; infinite for never."""
    return next((seconds for _, seconds, loss in seen if loss <= goal), math.inf)


def run_in_subprocess(*arguments: object) -> list[tuple[int, float, float]]:
    """Runs one training, and returns the steps, seconds and losses that it prints."""
    command = [sys.executable, __file__, *map(str, arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return [tuple(row) for row in json.loads(done.stdout.splitlines()[-1])]


def row(name: str, runs: list[list[tuple[int, float, float]]]) -> str:
    times, last = [time_to_loss(seen, GOAL) for seen in runs], [seen[-1] for seen in runs]
    whole, losses = [seconds for _, seconds, _ in last], [loss for *_, loss in last]
    return (
        f"| {name} | {last[0][0]} | {statistics.median(times):.1f} ({min(times):.1f} to {max(times):.1f}) "
        f"| {statistics.median(whole):.1f} | {statistics.mean(losses):.3f} ({min(losses):.3f} to {max(losses):.3f}) |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", help="the Tiny Shakespeare file")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--short", type=int, default=SHORT, help="steps of lawful's short training")
    parser.add_argument("--long", type=int, default=LONG, help="steps of lawful's long training; 0 for none")
    parser.add_argument("--without", default="", help="leave this out, or each in turn: all")
    parser.add_argument("--one", nargs=4, metavar=("WHO", "STEPS", "SEED", "WITHOUT"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.one:
        who, steps, seed, without = given.one
        if who == "standard":
            found = standard(Path(given.text).read_text(), steps=int(steps), seed=int(seed))
        else:
            found = lawful(given.text, steps=int(steps), seed=int(seed), without=without)
        print(json.dumps(found))
        return
    print(f"torch {torch.__version__}, one thread, {given.seeds} seeds; seconds of the processor to a loss of {GOAL}\n")
    print(f"| recipe | steps | s to {GOAL} | s in all | loss at the end |")
    print("|---|---|---|---|---|")
    plans = [
        ("standard", 2000, "nothing"),
        ("lawful, short", given.short, "nothing"),
        ("lawful, long", given.long, "nothing"),
    ]
    if given.without:
        chosen = ABLATIONS if given.without == "all" else {given.without: ()}
        plans = [(f"lawful without {what}", steps, what) for steps in (given.short, given.long) for what in chosen]
    for name, steps, without in (plan for plan in plans if plan[1]):
        who = name.split(",")[0].split()[0]
        runs = [run_in_subprocess(given.text, "--one", who, steps, seed, without) for seed in range(given.seeds)]
        print(row(name, runs), flush=True)


if __name__ == "__main__":
    main()
