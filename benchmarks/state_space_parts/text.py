"""Text: `lawful train text` with state-space layers in place of attention, at equal parameters and equal time.

`ngrams` and `text` take the path of the Tiny Shakespeare file. The first 90 % of it are for training, the rest for
validation; the loss is the mean over it in windows of 64 that do not overlap. Four layers; the other options are the
defaults of the recipe, tuned for attention: `ngrams` with its n-gram embeddings, `text` without. The hidden size of the
feed-forward blocks makes the number of parameters that of attention. The number of steps is the budget divided by the
time of a step, measured over 120 steps before. Time is that of the processor, without evaluation. Generation: one token
at a time after contexts of 64 to 16,384 tokens, of the models without training.
"""

from __future__ import annotations

import io
import statistics
import tempfile
import time
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from measure import seconds
from text import loss_of  # benchmarks/text.py
from torch import nn

from lawful.models import PromptReader
from lawful.recipes import TextRecipe
from lawful.training import TrainerConfig, seed_everything, train

BUDGET, SEEDS = 60.0, range(2)
MIXERS: dict[str, dict[str, Any]] = {
    "attention": {},
    "S4D": {"layer_pattern": "(mf)*"},
    "selective": {"layer_pattern": "(mf)*", "state_space": "selective"},
}
VOCABULARY, CONTEXT = 65, 64


def build(options: dict[str, Any]) -> nn.Module:
    return TextRecipe(**options).build_decoder(VOCABULARY, context_length=32768)


def num_parameters(options: dict[str, Any]) -> int:
    return sum(p.numel() for p in build(options).parameters())


def equal_sized(common: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Options of the models, with the hidden size that is nearest to the number of parameters of attention."""
    goal, found = num_parameters(common), {}
    for name, mixer in MIXERS.items():
        sizes = [num_parameters({**common, **mixer, "hidden_dim": hidden}) for hidden in (64, 65)]
        hidden = 64 + round((goal - sizes[0]) / (sizes[1] - sizes[0]))
        found[name] = {**common, **mixer, "hidden_dim": hidden}
    return found


def run_text(path: str, options: dict[str, Any], *, steps: int, seed: int) -> tuple[float, float]:
    """Trains, and returns the time of the processor and the validation loss."""
    recipe = TextRecipe(data=path, steps=steps, seed=seed, threads=1, law_cases=0, **options)
    seed_everything(seed)
    setup = recipe.setup()
    taken: list[float] = []

    def evaluate(model: nn.Module) -> dict[str, float]:
        taken.append(time.process_time())
        return {"loss": loss_of(model, setup.data.validation.long())}

    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
        start = time.process_time()
        trainer = TrainerConfig(seed=seed, threads=1, law_cases=0)
        train(replace(setup, evaluate=evaluate, eval_every=steps), trainer=trainer, output_dir=folder)
    return taken[0] - start, loss_of(setup.model.eval(), setup.data.validation.long())


def ngrams(path: str) -> None:
    table(path, {"num_layers": 4})


def text(path: str) -> None:
    table(path, {"num_layers": 4, "ngrams": ()})


def table(path: str, common: dict[str, Any]) -> None:
    print("| layers | hidden size | parameters | steps | processor, s | validation loss, mean of 2 | seeds |")
    print("|---|---|---|---|---|---|---|")
    for name, options in equal_sized(common).items():
        a_step = run_text(path, options, steps=120, seed=0)[0] / 120
        steps = round(BUDGET / a_step)
        found = [run_text(path, options, steps=steps, seed=seed) for seed in SEEDS]
        losses = [loss for _, loss in found]
        columns = [
            name,
            str(options["hidden_dim"]),
            f"{num_parameters(options):,}",
            str(steps),
            f"{statistics.mean(taken for taken, _ in found):.0f}",
            f"{statistics.mean(losses):.3f}",
            f"{min(losses):.3f} to {max(losses):.3f}",
        ]
        print("| " + " | ".join(columns) + " |", flush=True)


def generation() -> None:
    print("| layers | tokens a second after 64 | after 4,096 | after 16,384 |\n|---|---|---|---|")
    token = torch.zeros(1, dtype=torch.int64)
    for name, options in equal_sized({"num_layers": 4, "ngrams": ()}).items():
        torch.manual_seed(0)
        model, rates = build(options).eval(), []
        for context in (64, 4096, 16384):
            with torch.inference_mode():
                reader = PromptReader(model, torch.zeros(1, context, dtype=torch.int64))
                rates.append(1 / statistics.median(seconds(partial(reader.feed, token), 32) for _ in range(9)))
        print(f"| {name} | " + " | ".join(f"{rate:.0f}" for rate in rates) + " |", flush=True)
