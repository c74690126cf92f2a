"""Training step of a small GPT against nanoGPT, and Muon against `torch.optim.Muon`.

Run `OMP_NUM_THREADS=1 python benchmarks/training_step.py`, or name some rows: `python benchmarks/training_step.py
gpt`, `muon`, `gpt-4x128`. Both sides run in the same process, in alternating order, on the same batch, in float32 and
on one thread. Times are processor time per step. The ratio is the median over the rounds, the spread is their
interquartile range. Below 1 means that lawful is faster.

A GPT step is forward, cross-entropy loss, backward, gradient clipping at norm 1, optimizer step and `zero_grad`. The
shape is that of nanoGPT's `train_shakespeare_char`: learned positions, LayerNorm, exact GELU (its tanh form takes
twice the time), tied head, no biases, no dropout, 65 tokens, context 256, batch 12. lawful runs its own training
loop; the peer is a plain loop over `NanoGPT` below with `torch.optim.AdamW(fused=True)`. With Muon the peer still
runs AdamW, so that the ratio is the price of Muon. Both models start from the same weights; the script checks that
the losses and gradients agree.

A Muon step updates the matrices of the blocks of that GPT. `torch.optim.Muon` computes in bfloat16, which is fast
only on processors with bfloat16 instructions (AMX or AVX512-BF16); the first line of the output says whether there
are any. Without them its step is far slower, so 6x384 and 6x768 are measured only if they are named: `muon-6x384`.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from functools import partial

import torch
from measure import compare, row
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.models import gpt
from lawful.optim import Muon, adamw, muon_with_adamw
from lawful.training import OptimizerStep, TrainerConfig, TrainingSetup
from lawful.training.distributed import _SingleProcess
from lawful.training.loop import _Progress, _TrainingLoop
from lawful.training.precision import _Precision

VOCAB, CONTEXT, BATCH = 65, 256, 12
SIZES = {"4x128": (4, 128, 4), "6x384": (6, 384, 6)}
MUON_SIZES = {"4x32": (4, 32), "4x128": (4, 128), "6x384": (6, 384), "6x768": (6, 768)}
Step = Callable[[], object]


class CausalSelfAttention(nn.Module):
    """nanoGPT's attention: one linear layer for queries, keys and values."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.c_attn = nn.Linear(dim, 3 * dim, bias=False)
        self.c_proj = nn.Linear(dim, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = self.c_attn(x).split(d, dim=2)
        k = k.view(b, t, self.num_heads, d // self.num_heads).transpose(1, 2)
        q = q.view(b, t, self.num_heads, d // self.num_heads).transpose(1, 2)
        v = v.view(b, t, self.num_heads, d // self.num_heads).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=None, dropout_p=0, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(b, t, d))


class LayerNorm(nn.Module):
    """nanoGPT's LayerNorm without bias."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, None, 1e-5)


class Block(nn.Module):
    """nanoGPT's block: attention and MLP, each after a LayerNorm."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.ln_1, self.attn, self.ln_2 = LayerNorm(dim), CausalSelfAttention(dim, num_heads), LayerNorm(dim)
        self.c_fc, self.c_proj = nn.Linear(dim, 4 * dim, bias=False), nn.Linear(4 * dim, dim, bias=False)
        self.gelu = nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.c_proj(self.gelu(self.c_fc(self.ln_2(x))))


class NanoGPT(nn.Module):
    """The model of nanoGPT, after Karpathy, https://github.com/karpathy/nanoGPT, with dropout 0 and without biases."""

    def __init__(self, num_layers: int, dim: int, num_heads: int) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCAB, dim), nn.Embedding(CONTEXT, dim)
        self.h = nn.ModuleList(Block(dim, num_heads) for _ in range(num_layers))
        self.ln_f = LayerNorm(dim)
        self.lm_head = nn.Linear(dim, VOCAB, bias=False)
        self.wte.weight = self.lm_head.weight

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], dtype=torch.long, device=tokens.device)
        x = self.wte(tokens) + self.wpe(positions)
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return F.cross_entropy(logits.view(-1, VOCAB), targets.view(-1), ignore_index=-1)


def nano_gpt_step(model: NanoGPT, batch: tuple[Tensor, Tensor]) -> Step:
    """Returns nanoGPT's step: AdamW, fused, decay of matrices only, clipping at norm 1."""
    groups = [
        {"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.99), fused=True)

    def step() -> float:
        for group in optimizer.param_groups:
            group["lr"] = 1e-4
        loss = model(*batch)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step


def lawful_gpt(num_layers: int, dim: int, num_heads: int) -> nn.Module:
    """Returns our decoder in nanoGPT's shape."""
    sizes = {"dim": dim, "num_layers": num_layers, "num_heads": num_heads}
    return gpt(vocab_size=VOCAB, **sizes, context_length=CONTEXT, bias=False, activation=F.gelu)


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Returns the mean next-token loss."""
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def lawful_step(model: nn.Module, batch: tuple[Tensor, Tensor], optimizer: torch.optim.Optimizer) -> Step:
    """Returns a step of our training loop, with its metrics, checks and schedule."""

    class Same:
        def batch(self, step: int) -> tuple[Tensor, Tensor]:
            return batch

    def loss_fn(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        return cross_entropy(model(batch[0]), batch[1])

    step = OptimizerStep(loss_fn=loss_fn, optimizer=optimizer, grad_clip_norm=1.0)
    setup = TrainingSetup(model=model, optimizer_steps=[step], batches=Same(), steps=10**9)
    loop = _TrainingLoop(
        setup, progress=_Progress(), precision=_Precision(TrainerConfig(), print), processes=_SingleProcess()
    )
    loop.prepare_model()
    return partial(loop.step, 0)


def copy_weights(peer: NanoGPT, ours: nn.Module) -> None:
    """Copies nanoGPT's weights to our decoder."""
    theirs = dict(peer.named_parameters())
    for name, p in ours.named_parameters():
        parts = name.split(".")
        if parts[0] != "layers":
            source = {"embedding.weight": "wte.weight", "positions.weight": "wpe.weight", "norm.weight": "ln_f.weight"}
            weight = theirs[source[name]]
        else:
            number, of, leaf = int(parts[1]), parts[2], parts[-2]
            block, attention = f"h.{number // 2}.", number % 2 == 0
            if of == "norm":
                weight = theirs[block + ("ln_1.weight" if attention else "ln_2.weight")]
            elif attention and leaf in ("query", "key", "value"):
                weight = theirs[block + "attn.c_attn.weight"].chunk(3)[("query", "key", "value").index(leaf)]
            else:
                names = {"out": "attn.c_proj.weight", "up": "c_fc.weight", "down": "c_proj.weight"}
                weight = theirs[block + names[leaf]]
        p.data.copy_(weight.data)


def check_same(peer: NanoGPT, ours: nn.Module, batch: tuple[Tensor, Tensor]) -> None:
    """Raises an error if the two models differ in loss or in gradient norm."""
    losses, norms = [], []
    for model, loss in ((peer, peer(*batch)), (ours, cross_entropy(ours(batch[0]), batch[1]))):
        loss.backward()
        norms.append(float(nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])))
        losses.append(float(loss.detach()))
        model.zero_grad()
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(norms[0], norms[1], rtol=1e-4, atol=1e-5)


def measure_gpt(size: str, *, rounds: int) -> None:
    """Prints the rows of one size: with AdamW on both sides, and with Muon on ours."""
    torch.manual_seed(0)
    num_layers, dim, num_heads = SIZES[size]
    batch = torch.randint(VOCAB, (BATCH, CONTEXT)), torch.randint(VOCAB, (BATCH, CONTEXT))
    for name in ("AdamW", "Muon"):
        peer, ours = NanoGPT(num_layers, dim, num_heads), lawful_gpt(num_layers, dim, num_heads)
        for p in peer.parameters():
            if p.dim() >= 2:
                nn.init.normal_(p, std=0.02)
        copy_weights(peer, ours)
        check_same(peer, ours, batch)
        if name == "AdamW":
            vectors = [p for p in ours.parameters() if p.dim() < 2]
            matrices = [p for p in ours.parameters() if p.dim() >= 2]
            groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
            optimizer = adamw(groups, lr=1e-4, betas=(0.9, 0.99))
        else:
            optimizer = muon_with_adamw(ours, lr=1e-4, adam_lr=1e-4, muon_params="*layers.*")
        found = compare(lawful_step(ours, batch, optimizer), nano_gpt_step(peer, batch), rounds=rounds, least=0.0)
        print(row(f"GPT {size}, {name}, nanoGPT with AdamW", found), flush=True)


def matrices(num_layers: int, dim: int) -> list[Tensor]:
    """Returns the matrices of the blocks of a GPT, with gradients."""
    shapes = [(dim, dim)] * 4 + [(4 * dim, dim), (dim, 4 * dim)]
    found = [nn.Parameter(torch.randn(shape)) for _ in range(num_layers) for shape in shapes]
    for p in found:
        p.grad = torch.randn_like(p)
    return found


def measure_muon(size: str, *, rounds: int) -> None:
    """Prints the row of one size: a step of our Muon against PyTorch's."""
    torch.manual_seed(0)
    ours, peer = (matrices(*MUON_SIZES[size]) for _ in range(2))
    for p, q in zip(ours, peer, strict=True):
        p.data, p.grad = q.data.clone(), q.grad.clone()
    steps = Muon(ours, lr=1e-3).step, torch.optim.Muon(peer, lr=1e-3).step
    print(row(f"Muon {size}, torch.optim.Muon", compare(*steps, rounds=rounds, least=0.0)), flush=True)
    pairs = [(p.detach(), q.detach()) for p, q in zip(ours, peer, strict=True)]
    difference = statistics.mean(float((p - q).norm() / q.norm()) for p, q in pairs)
    if not difference < 1e-2:
        raise ValueError(f"expected the same parameters to 1e-2, got a difference of {difference:.2e}")


def main() -> None:
    torch.set_num_threads(1)
    names = sys.argv[1:]
    native = any(torch.cpu.get_capabilities().get(name, False) for name in ("amx_bf16", "avx512_bf16", "bf16"))
    print(f"torch {torch.__version__}, {torch.get_num_threads()} thread, bfloat16 instructions: {native}\n")
    print("| step, peer | lawful, ms | peer, ms | ratio | middle half |\n|---|---|---|---|---|")
    for kind, sizes, measure in (("muon", MUON_SIZES, measure_muon), ("gpt", SIZES, measure_gpt)):
        for size in sizes:
            slow = kind == "muon" and size in ("6x384", "6x768") and not native
            if f"{kind}-{size}" in names or (not slow and (not names or kind in names)):
                measure(size, rounds=5 if size in ("6x384", "6x768") else 15)


if __name__ == "__main__":
    main()
