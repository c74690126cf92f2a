"""Two ways to the same result."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lawful import mask, shape
from lawful.laws import agreement

torch.manual_seed(0)


def plain(q, k, v):
    t, s = q.shape[1], k.shape[1]
    seen = torch.ones(t, s, dtype=torch.bool).tril(s - t)
    return (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~seen, -torch.inf).softmax(-1) @ v


def fused(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def hide(q, k, v):
    """Attends to the first three keys."""
    hidden = torch.arange(k.shape[1]) >= 3
    return (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(hidden, -torch.inf).softmax(-1) @ v


def leave_out(q, k, v):
    return ((q / q.shape[-1] ** 0.5) @ k[:, :3].mT).softmax(-1) @ v[:, :3]


def one_at_a_time(x):
    """Attends with a cache of what came before."""
    steps = [plain(x[:, t : t + 1], x[:, : t + 1], x[:, : t + 1]) for t in range(x.shape[1])]
    return torch.cat(steps, dim=1)


def forgets_the_mask(x, m):
    return x


def apply_mask(x, m):
    return x * m[..., None]


torch_norm = nn.LayerNorm(8)


def norm(x):
    x = x - x.mean(-1, keepdim=True)
    return x / (x.square().mean(-1, keepdim=True) + torch_norm.eps).sqrt() * torch_norm.weight + torch_norm.bias


X = shape("b t 8")
SAME, LONGER = (X, X, X), (X, shape("b s:80..90 8"), shape("b s:80..90 8"))


def large_scores(draw):
    """Queries and keys that share a large coordinate, so that the softmax sees the rounding of the scores."""
    q, k, v = draw.normal(3, 1, 20, 8)
    first = torch.tensor([0])
    return q.index_fill(-1, first, 1000), k.index_fill(-1, first, 1000), v


KEPT = {
    "fused and plain": (agreement(other=fused), SAME, plain),
    "keys hidden and keys left out": (agreement(other=leave_out), large_scores, hide),
    "cached and full": (agreement(other=one_at_a_time), X, lambda x: plain(x, x, x)),
    "a module and its reference": (agreement(other=norm), X, torch_norm),
    "a function and a module": (agreement(other=torch_norm), X, norm),
    "every argument": (agreement(other=lambda x, m: x.where(m[..., None], 0.0)), (X, mask("b t")), apply_mask),
}
BROKEN = {
    "a path that drops an argument": (agreement(other=forgets_the_mask), (X, mask("b t")), apply_mask),
    "a mask aligned to the wrong corner": (agreement(other=fused), LONGER, plain),
    "another eps": (agreement(other=norm), X, nn.LayerNorm(8, eps=1e-3)),
    "the second output": (agreement(other=torch.sin, output=1), X, lambda x: (x.sin(), x.cos())),
}


@pytest.mark.parametrize(("law", "inputs", "f"), KEPT.values(), ids=KEPT)
def test_kept(law, inputs, f, judge):
    assert judge(f, law, inputs, cases=20).grade == "held"


@pytest.mark.parametrize(("law", "inputs", "f"), BROKEN.values(), ids=BROKEN)
def test_broken(law, inputs, f, judge):
    assert judge(f, law, inputs).grade == "refuted"


def test_a_map_and_itself_is_vacuous(judge):
    assert judge(norm, agreement(other=norm), X).grade == "vacuous"


def test_the_other_map_is_wanted(judge):
    verdict = judge(norm, agreement(), X)
    assert (verdict.grade, verdict.usage) == ("error", True)
    assert verdict.reason == "agreement wants other: write agreement(other=...)"


def test_outputs_of_other_shapes_cannot_be_compared(judge):
    verdict = judge(norm, agreement(other=lambda x: norm(x).sum(1)), X)
    assert verdict.grade == "error"
    assert "the left side has shape" in verdict.reason
