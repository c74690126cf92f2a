"""Tokens per second of generation, against Hugging Face's `generate` with the same weights.

Run `python benchmarks/generation.py`, or name some of the parts: `python benchmarks/generation.py small flat`. One
thread. Both models have the same random GPT-2 weights and generate greedily with a cache; the share of equal tokens is
printed. Both run alternately, and processor time counts; the ratio is the median over rounds, above 1 where ours is
faster. `flat` is the time per token after a number of tokens, for full, sliding-window and linear attention; the last
two should stay constant.
"""

from __future__ import annotations

import statistics
import sys
from functools import partial

import torch
from measure import compare, seconds
from transformers import GPT2Config, GPT2LMHeadModel

from lawful.blocks import MultiHeadAttention
from lawful.functions.attention import LinearAttention, Mask
from lawful.models import (
    GPT2_WEIGHTS,
    GREEDY,
    Decoder,
    PromptReader,
    SamplingConfig,
    decoder,
    generate,
    gpt,
)

PROMPT_LENGTH = 8
SIZES = {"small": (4, 128, 4, 65, 128, 9), "large": (12, 768, 12, 50257, 24, 5)}
"""Layers, width, heads, vocabulary size; new tokens, rounds."""
LENGTHS = 16, 128, 1024, 4096


def build_pair(num_layers: int, dim: int, num_heads: int, vocab_size: int) -> tuple[Decoder, GPT2LMHeadModel]:
    torch.manual_seed(0)
    sizes = {"n_embd": dim, "n_layer": num_layers, "n_head": num_heads, "bos_token_id": None, "eos_token_id": None}
    theirs = GPT2LMHeadModel(GPT2Config(vocab_size=vocab_size, n_positions=512, **sizes)).eval()
    ours = gpt(vocab_size=vocab_size, dim=dim, num_layers=num_layers, num_heads=num_heads, context_length=512).eval()
    GPT2_WEIGHTS.load_state_dict(ours, theirs.state_dict())
    return ours, theirs


def against_transformers(name: str) -> None:
    num_layers, dim, num_heads, vocab_size, new_tokens, rounds = SIZES[name]
    ours, theirs = build_pair(num_layers, dim, num_heads, vocab_size)
    for batch_size in (1, 16):
        prompts = torch.randint(vocab_size, (batch_size, PROMPT_LENGTH))
        common = {"attention_mask": torch.ones_like(prompts), "pad_token_id": 0}
        theirs_greedy = partial(
            theirs.generate, prompts, max_new_tokens=new_tokens, min_new_tokens=new_tokens, do_sample=False, **common
        )
        ours_greedy = partial(generate, ours, prompts, max_new_tokens=new_tokens, sampling=GREEDY)
        equal = float((ours_greedy() == theirs_greedy()[:, PROMPT_LENGTH:]).float().mean())
        rules = SamplingConfig(temperature=0.8, top_k=40)
        ours_sampled = partial(generate, ours, prompts, max_new_tokens=new_tokens, sampling=rules)
        options = {"max_new_tokens": new_tokens, "do_sample": True, "temperature": 0.8, "top_k": 40, **common}
        for kind, pair in {
            "greedy": (ours_greedy, theirs_greedy),
            "top-k": (ours_sampled, partial(theirs.generate, prompts, **options)),
        }.items():
            found = compare(*pair, rounds=rounds, least=0.0)
            rates = [batch_size * new_tokens / statistics.median(times) for times in (found.ours, found.peer)]
            ratios = sorted(b / a for a, b in zip(found.ours, found.peer, strict=True))
            low, _, high = statistics.quantiles(ratios, n=4)
            columns = [
                f"{num_layers} x {dim}, batch {batch_size}, {kind}",
                *(f"{rate:.0f}" for rate in rates),
                f"{statistics.median(ratios):.2f}",
                f"{low:.2f} to {high:.2f}",
                f"{equal:.1%}" if kind == "greedy" else "",
            ]
            print("| " + " | ".join(columns) + " |", flush=True)


def flat() -> None:
    print("\n| µs per token after | " + " | ".join(map(str, LENGTHS)) + " |\n|" + "---|" * (1 + len(LENGTHS)))
    linear = partial(MultiHeadAttention, num_heads=4, kernel=LinearAttention())
    models = {
        "full": decoder(vocab_size=65),
        "window of 64": decoder(vocab_size=65, mask=Mask(causal=True, window=64)),
        "linear": decoder(vocab_size=65, attention=linear),
    }
    token = torch.zeros(1, dtype=torch.int64)
    for name, model in models.items():
        model.eval()
        with torch.inference_mode():
            readers = [PromptReader(model, torch.zeros(1, length, dtype=torch.int64)) for length in LENGTHS]
            rounds = [[seconds(partial(reader.feed, token), 8) for reader in readers] for _ in range(16)]
        times = [statistics.median(column) for column in zip(*rounds, strict=True)]
        print(f"| {name} | " + " | ".join(f"{1e6 * t:.0f}" for t in times) + " |", flush=True)


def main(parts: list[str]) -> None:
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, one thread\n")
    sizes = [name for name in SIZES if not parts or name in parts]
    if sizes:
        print("| model | ours, tokens/s | Hugging Face, tokens/s | ratio | interquartile range | equal tokens |")
        print("|---|---|---|---|---|---|")
    for name in sizes:
        against_transformers(name)
    if not parts or "flat" in parts:
        flat()


if __name__ == "__main__":
    main(sys.argv[1:])
