"""How many tokens a second a model writes: ours against Hugging Face's `generate`, with the same weights.

Run `python benchmarks/generation.py`, or name some of the parts: `python benchmarks/generation.py small flat`. One
thread. A GPT-2 of random weights is read by both; they write the same tokens, greedily and with a cache, which is
checked. Ours and theirs run in turn, and what counts is processor time; the ratio is the median over the rounds, above
1 where ours writes more. `flat` is the time per token against the number of tokens already written, for full attention,
a sliding window and linear attention, measured in turn: the last two are to stay level.
"""

from __future__ import annotations

import statistics
import sys
from functools import partial

import torch
from measure import compare, seconds
from transformers import GPT2Config, GPT2LMHeadModel

from lawful.blocks import MultiHeadAttention
from lawful.functions.attention import LinearAttention, Mask, SlidingWindowAttention
from lawful.inference import GREEDY, SamplingConfig, generate
from lawful.models.generation import PromptReader
from lawful.models.gpt2_weights import GPT2, gpt2_config
from lawful.models.transformer import Decoder, DecoderConfig, rotary_attention

PROMPT = 8
SIZES = {"small": (4, 128, 4, 65, 128, 9), "large": (12, 768, 12, 50257, 24, 5)}
"""Layers, width, heads, vocabulary; tokens that are written, rounds."""
LENGTHS = 16, 128, 1024, 4096


def pair(depth: int, d: int, heads: int, vocab: int) -> tuple[Decoder, GPT2LMHeadModel]:
    torch.manual_seed(0)
    sizes = {"n_embd": d, "n_layer": depth, "n_head": heads, "bos_token_id": None, "eos_token_id": None}
    theirs = GPT2LMHeadModel(GPT2Config(vocab_size=vocab, n_positions=512, **sizes)).eval()
    ours = Decoder(gpt2_config(vocab=vocab, d=d, depth=depth, heads=heads, context=512)).eval()
    GPT2.load(ours, theirs.state_dict())
    return ours, theirs


def against_transformers(name: str) -> None:
    depth, d, heads, vocab, tokens, rounds = SIZES[name]
    ours, theirs = pair(depth, d, heads, vocab)
    for batch in (1, 16):
        prompts = torch.randint(vocab, (batch, PROMPT))
        common = {"attention_mask": torch.ones_like(prompts), "pad_token_id": 0}
        peer = partial(
            theirs.generate, prompts, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, **common
        )
        mine = partial(generate, ours, prompts, tokens=tokens, sampling=GREEDY)
        same = float((mine() == peer()[:, PROMPT:]).float().mean())
        drawn = partial(generate, ours, prompts, tokens=tokens, sampling=SamplingConfig(temperature=0.8, top_k=40))
        options = {"max_new_tokens": tokens, "do_sample": True, "temperature": 0.8, "top_k": 40, **common}
        for kind, pairs in {
            "greedy": (mine, peer),
            "top-k": (drawn, partial(theirs.generate, prompts, **options)),
        }.items():
            found = compare(*pairs, rounds=rounds, least=0.0)
            rates = [batch * tokens / statistics.median(times) for times in (found.ours, found.peer)]
            ratios = sorted(b / a for a, b in zip(found.ours, found.peer, strict=True))
            low, _, high = statistics.quantiles(ratios, n=4)
            said = f"{statistics.median(ratios):.2f} | {low:.2f} to {high:.2f}"
            agreed = f"{same:.1%}" if kind == "greedy" else ""
            print(
                f"| {depth} x {d}, batch {batch}, {kind} | {rates[0]:.0f} | {rates[1]:.0f} | {said} | {agreed} |",
                flush=True,
            )


def flat() -> None:
    print("\n| µs a token after | " + " | ".join(map(str, LENGTHS)) + " |\n|" + "---|" * (1 + len(LENGTHS)))
    window = Mask(causal=True, window=64)
    kinds: dict[str, DecoderConfig] = {
        "full": DecoderConfig(vocab=65),
        "window of 64": DecoderConfig(
            vocab=65, mask=window, attention=partial(rotary_attention, kernel=SlidingWindowAttention())
        ),
        "linear": DecoderConfig(vocab=65, attention=partial(MultiHeadAttention, num_heads=4, kernel=LinearAttention())),
    }
    token = torch.zeros(1, dtype=torch.int64)
    for name, config in kinds.items():
        model = Decoder(config).eval()
        with torch.inference_mode():
            readers = [PromptReader(model, torch.zeros(1, length, dtype=torch.int64)) for length in LENGTHS]
            rounds = [[seconds(partial(reader.feed, token), 8) for reader in readers] for _ in range(16)]
        times = [statistics.median(column) for column in zip(*rounds, strict=True)]
        print(f"| {name} | " + " | ".join(f"{1e6 * t:.0f}" for t in times) + " |", flush=True)


def main(wanted: list[str]) -> None:
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, one thread\n")
    sizes = [name for name in SIZES if not wanted or name in wanted]
    if sizes:
        print("| model | ours, tokens/s | Hugging Face's | ratio | middle half | same tokens |")
        print("|---|---|---|---|---|---|")
    for name in sizes:
        against_transformers(name)
    if not wanted or "flat" in wanted:
        flat()


if __name__ == "__main__":
    main(sys.argv[1:])
