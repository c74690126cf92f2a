"""Equivalent implementations."""

import shutil
from contextlib import contextmanager

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lawful import mask, shape, tokens
from lawful.laws import (
    agreement,
    backend_agreement,
    cached_decoding,
    chunk_consistency,
    compile_agreement,
    low_precision,
    recurrence,
    sparse_agreement,
    switch_agreement,
)
from tests.laws.drivers import test_broken  # noqa: F401

torch.manual_seed(0)


def plain(q, k, v):
    t, s = q.shape[1], k.shape[1]
    seen = torch.ones(t, s, dtype=torch.bool).tril(s - t)
    return (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~seen, -torch.inf).softmax(-1) @ v


def fused_attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def hide(q, k, v):
    """Attends to the first three keys."""
    hidden = torch.arange(k.shape[1]) >= 3
    return (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(hidden, -torch.inf).softmax(-1) @ v


def attend_to_three_keys(q, k, v):
    return ((q / q.shape[-1] ** 0.5) @ k[:, :3].mT).softmax(-1) @ v[:, :3]


def one_at_a_time(x):
    """Attends with a cache of earlier tokens."""
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


class Attention(nn.Module):
    """Causal self-attention with rotary positions: fused or plain, whole or piece by piece with a cache."""

    def __init__(self):
        super().__init__()
        self.fused, self.qkv = True, nn.Linear(8, 24)

    def rotated(self, x, first):
        t = torch.arange(first, first + x.shape[1]).to(x)
        angle = t[:, None] * torch.tensor([1.0, 0.3, 0.1, 0.03]).to(x)
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], dim=-1)

    def attend(self, q, k, v):
        seen = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).tril(k.shape[1] - q.shape[1])
        if self.fused:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        return (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~seen, -torch.inf).softmax(-1) @ v

    def step(self, x, cache):
        before = 0 if cache is None else cache[0].shape[1]
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k = self.rotated(q, before), self.rotated(k, before)
        if cache is not None:
            k, v = torch.cat([cache[0], k], dim=1), torch.cat([cache[1], v], dim=1)
        return self.attend(q, k, v), (k, v)

    def forward(self, x):
        return self.step(x, None)[0]


class TopLeft(Attention):
    """Aligns its mask to the top left, so that a piece sees only the start of the cache."""

    def attend(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class StartsAnew(Attention):
    """Restarts its positions with each piece."""

    def rotated(self, x, first):
        return super().rotated(x, 0)


class DropsTheMask(Attention):
    def attend(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v) if self.fused else super().attend(q, k, v)


class DropsTheScale(Attention):
    def attend(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=1.0) if self.fused else plain(q, k, v)


class DropsTheDropout(Attention):
    """In training mode, only the plain path applies dropout."""

    def attend(self, q, k, v):
        y = super().attend(q, k, v)
        return y if self.fused or not self.training else y * 0.9


class LinearRecurrence(nn.Module):
    """h_t = a h_{t-1} + b x_t, y_t = c h_t, for each feature; whole, as a convolution with c a^k b."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = (nn.Parameter(torch.rand(8)) for _ in range(3))

    def forward(self, x):
        k = torch.arange(x.shape[1]).to(x)
        kernel = self.c * self.b * self.a ** k[:, None]
        n = 2 * x.shape[1]
        return torch.fft.irfft(torch.fft.rfft(x, n, dim=1) * torch.fft.rfft(kernel, n, dim=0), n, dim=1)[:, : len(k)]

    def step(self, x, h):
        h = self.b * x if h is None else self.a * h + self.b * x
        return self.c * h, h

    def start(self, x):
        return torch.zeros_like(x)

    def step_read_first(self, x, h):
        """The state is updated after it is read."""
        return self.c * h, self.a * h + self.b * x

    def step_otherwise_discretized(self, x, h):
        h = self.a.exp() * h + self.b * x
        return self.c * h, h

    def step_without_a_state(self, x, h):
        return x


class Scan(LinearRecurrence):
    """The same recurrence, by doubling the number of steps that each entry covers."""

    def forward(self, x):
        a, h, n = self.a.expand_as(x), self.b * x, 1
        while n < x.shape[1]:
            h = h + a * F.pad(h, (0, 0, n, 0))[:, : x.shape[1]]
            a, n = a * F.pad(a, (0, 0, n, 0), value=1.0)[:, : x.shape[1]], 2 * n
        return self.c * h


def running_sum(x, total):
    y = x.cumsum(1) if total is None else x.cumsum(1) + total
    return y, y[:, -1:]


def add_positions(x):
    return x + torch.arange(x.shape[1])[:, None]


class Adjacency(nn.Module):
    """Adds up the features of the neighbors."""

    def __init__(self):
        super().__init__()
        self.features = nn.Parameter(torch.randn(4, 3))

    def forward(self, x):
        return x @ self.features


def add_one_to_stored_entries(x):
    """Adds one to the stored entries only."""
    if not x.is_sparse:
        return x + 1
    return torch.sparse_coo_tensor(x.indices(), x.values() + 1, x.shape, check_invariants=True).to_dense()


def count_stored_edges(x):
    """Number of neighbors of each node: sum of edge weights if dense, number of stored edges if sparse."""
    if not x.is_sparse:
        return x.sum(-1)
    return torch.zeros(x.shape[0], dtype=x.dtype).index_add(0, x.indices()[0], torch.ones_like(x.values()))


OTHER_BACKEND = []


@contextmanager
def another_backend():
    OTHER_BACKEND.append(True)
    try:
        yield
    finally:
        OTHER_BACKEND.clear()


def another_convention(x):
    """One backend scales the scores, the other does not."""
    return (x @ x.mT * (1.0 if OTHER_BACKEND else 0.5)).softmax(-1) @ x


def frozen(x):
    """Branches on whether it is being compiled, like a branch that tracing froze."""
    return x + 1 if torch.compiler.is_compiling() else x


def mean_in_one_piece(x):
    return x.mean(-1)


def mean_step_by_step(x):
    """Sums sequentially in the precision of the input."""
    total = torch.zeros_like(x[..., 0])
    for part in x.unbind(-1):
        total = total + part
    return total / x.shape[-1]


def softmax_in_float32(x):
    return x.float().softmax(-1).to(x)


def softmax_by_hand(x):
    e = (x - x.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


class Projected(nn.Linear):
    """A linear layer that keeps a plain version of itself."""

    def __init__(self):
        super().__init__(64, 4)

    def plain(self, x):
        return F.linear(x, self.weight, self.bias)


class CastTooEarly(Projected):
    """Rounds its input to whole eighths."""

    def forward(self, x):
        return super().forward((8 * x).round() / 8)


def many(draw):
    """Numbers of one sign: a low-precision sum loses the small ones."""
    return draw.normal(2, 512).abs() + 1


X = shape("b t 8")
SQUARE, EVEN = shape("n 4"), shape("b:2..3 t:2..3 8")
SAME, LONGER = (X, X, X), (X, shape("b s:80..90 8"), shape("b s:80..90 8"))


def large_scores(draw):
    """Queries and keys that share a large coordinate, so that the softmax sees the rounding of the scores."""
    q, k, v = draw.normal(3, 1, 20, 8)
    first = torch.tensor([0])
    return q.index_fill(-1, first, 1000), k.index_fill(-1, first, 1000), v


class Remembers(nn.Module):
    """Keeps its cache as an attribute; the state only says that there is one."""

    def forward(self, x):
        return x.cumsum(1)

    def step(self, x, state):
        self.sums = x.cumsum(1) if state is None else self.sums[:, -1:] + x.cumsum(1)
        return self.sums, True


class WithReference(nn.Module):
    """Applies a mask; has a reference with the arguments in another order, and a path that ignores the mask."""

    def forward(self, x, keep):
        return x * keep[..., None]

    def reference(self, keep, x):
        return x.where(keep[..., None], 0.0)

    def without_mask(self, x, keep):
        return x


SATISFIED = {
    "cached: inside the module": (cached_decoding(), shape("b t 3"), Remembers()),
    "fused and plain": (agreement(other=fused_attention), SAME, plain),
    "keys hidden and keys left out": (agreement(other=attend_to_three_keys), large_scores, hide),
    "cached and full": (agreement(other=one_at_a_time), X, lambda x: plain(x, x, x)),
    "a module and its reference": (agreement(other=norm), X, torch_norm),
    "a function and a module": (agreement(other=torch_norm), X, norm),
    "a method": (agreement(other="reference"), {"x": X, "keep": mask("b t")}, WithReference()),
    "every argument": (agreement(other=lambda x, m: x.where(m[..., None], 0.0)), (X, mask("b t")), apply_mask),
    "switch: fused": (switch_agreement(attribute="fused"), X, Attention()),
    "switch: other values": (switch_agreement(attribute="fused", one=1, other=0), X, Attention()),
    "cached: a key-value cache": (cached_decoding(), X, Attention()),
    "cached: a running sum": (cached_decoding(step=running_sum), X, lambda x: x.cumsum(1)),
    "recurrent: a convolution": (recurrence(), X, LinearRecurrence()),
    "recurrent: a scan, from a state": (recurrence(start="start"), X, Scan()),
    "chunks: over the batch": (chunk_consistency(), X, Attention()),
    "chunks: each position for itself": (chunk_consistency(axis=1), X, nn.Linear(8, 8)),
    "sparse: a product": (sparse_agreement(), SQUARE, Adjacency()),
    "backend: attention": (backend_agreement(), SAME, fused_attention),
    "backend: a layer": (backend_agreement(under=another_backend), X, nn.Linear(8, 8)),
    "compiled: a function": (compile_agreement(backend="eager"), EVEN, norm),
    "compiled: a module": (compile_agreement(backend="aot_eager"), EVEN, nn.Sequential(nn.Linear(8, 8), nn.Tanh())),
    "low: added up in float32": (low_precision(plain=mean_step_by_step), many, mean_in_one_piece),
    "low: a softmax in float32": (low_precision(plain=softmax_by_hand), X, softmax_in_float32),
    "low: float16": (low_precision(plain=softmax_by_hand, dtype="float16"), X, softmax_in_float32),
    "low: a method": (low_precision(plain="plain"), shape("b 64"), Projected()),
}
BROKEN = {
    "a method that drops an argument": (agreement(other="without_mask"), (X, mask("b t")), WithReference()),
    "a path that drops an argument": (agreement(other=forgets_the_mask), (X, mask("b t")), apply_mask),
    "a mask aligned to the wrong corner": (agreement(other=fused_attention), LONGER, plain),
    "another eps": (agreement(other=norm), X, nn.LayerNorm(8, eps=1e-3)),
    "the second output": (agreement(other=torch.sin, output=1), X, lambda x: (x.sin(), x.cos())),
    "switch: the mask dropped": (switch_agreement(attribute="fused"), X, DropsTheMask()),
    "switch: the scale dropped": (switch_agreement(attribute="fused"), X, DropsTheScale()),
    "switch: the dropout dropped": (switch_agreement(attribute="fused"), X, DropsTheDropout()),
    "cached: a mask to the top left": (cached_decoding(), X, TopLeft()),
    "cached: positions that start anew": (cached_decoding(), X, StartsAnew()),
    "recurrent: a state updated too late": (
        recurrence(step="step_read_first", start="start"),
        X,
        LinearRecurrence(),
    ),
    "recurrent: otherwise discretized": (
        recurrence(step="step_otherwise_discretized", start="start"),
        X,
        LinearRecurrence(),
    ),
    "chunks: statistics over the axis": (chunk_consistency(), X, lambda x: x - x.mean(0)),
    "chunks: a chunk that does not know its place": (chunk_consistency(axis=1), X, add_positions),
    "sparse: entries that are not stored": (sparse_agreement(), SQUARE, add_one_to_stored_entries),
    "sparse: edges counted once": (sparse_agreement(), SQUARE, count_stored_edges),
    "backend: another convention": (backend_agreement(under=another_backend), X, another_convention),
    "compiled: a frozen branch": (compile_agreement(backend="eager"), EVEN, frozen),
    "low: a long sum": (low_precision(plain=mean_in_one_piece), many, mean_step_by_step),
    "low: a cast too early": (low_precision(plain="plain"), shape("b 64"), CastTooEarly()),
}
INAPPLICABLE = {
    "switch: none": (switch_agreement(attribute="fused"), nn.Linear(8, 8), "Linear has no attribute 'fused'"),
    "cached: no step": (cached_decoding(), nn.Linear(8, 8), "Linear has no method 'step'"),
    "cached: pooled": (cached_decoding(step=lambda x, h: (x, h)), torch.sum, "different sizes along axis 1"),
    "recurrent: no state": (
        recurrence(step="step_without_a_state"),
        LinearRecurrence(),
        "expected step(x, state) to return an output and a state",
    ),
    "recurrent: no start": (recurrence(start="begin"), LinearRecurrence(), "LinearRecurrence has no method 'begin'"),
    "chunks: pooled": (chunk_consistency(axis=1), lambda x: x.sum(1), "different sizes along axis 1"),
    "low: no such method": (low_precision(plain="plain"), nn.Linear(8, 8), "Linear has no method 'plain'"),
}
WRONG = {
    "cached: time": (cached_decoding(time=3), "time=3 is out of range for an input of shape"),
    "chunks: axis": (chunk_consistency(axis=3), "axis=3 is out of range for an input of shape"),
    "low: integers": (
        low_precision(plain="forward", dtype="int8"),
        "such as 'bfloat16', got 'int8'",
    ),
    "low: no such type": (
        low_precision(plain="forward", dtype="half8"),
        "dtype must be a floating-point type such as 'bfloat16'",
    ),
    "switch: of what": (switch_agreement(), "switch_agreement needs attribute"),
    "low: against what": (low_precision(), "low_precision needs plain"),
}
SCRIPTS = [
    "switch: the mask dropped",
    "cached: a mask to the top left",
    "recurrent: a state updated too late",
    "chunks: a chunk that does not know its place",
    "sparse: entries that are not stored",
    "compiled: a frozen branch",
    "low: a long sum",
    "low: a cast too early",
]


@pytest.mark.parametrize(("law", "inputs", "f"), SATISFIED.values(), ids=SATISFIED)
def test_satisfied(law, inputs, f, judge):
    assert judge(f, law, inputs, cases=3 if law.name == compile_agreement.name else 12).status == "held"


def test_a_map_and_itself_is_vacuous(judge):
    assert judge(norm, agreement(other=norm), X).status == "vacuous"


def test_agreement_needs_a_function(judge):
    verdict = judge(norm, agreement(), X)
    assert (verdict.status, verdict.usage_error) == ("error", True)
    assert verdict.reason == "agreement needs other: write agreement(other=...)"


def test_different_shapes_are_an_error(judge):
    verdict = judge(norm, agreement(other=lambda x: norm(x).sum(1)), X)
    assert verdict.status == "error"
    assert "the left side has shape" in verdict.reason


@pytest.mark.parametrize(("law", "f", "reason"), INAPPLICABLE.values(), ids=INAPPLICABLE)
def test_inapplicable(law, f, reason, judge):
    verdict = judge(f, law, X, cases=5)
    assert verdict.status == "inapplicable"
    assert reason in verdict.reason


@pytest.mark.parametrize(("law", "reason"), WRONG.values(), ids=WRONG)
def test_parameters_out_of_range(law, reason, judge):
    verdict = judge(Attention(), law, X)
    assert (verdict.status, verdict.usage_error) == ("error", True)
    assert reason in verdict.reason


def test_the_attribute_is_restored(judge):
    module = Attention()
    judge(module, switch_agreement(attribute="fused"), X, cases=5)
    assert module.fused is True


def test_the_script_sets_the_attribute(judge):
    assert "setattr(g, 'fused', False)" in judge(DropsTheMask(), switch_agreement(attribute="fused"), X).script()


@pytest.mark.parametrize("law", [sparse_agreement(), cached_decoding()], ids=str)
def test_integers(law, judge):
    assert judge(nn.Embedding(5, 4), law, tokens("b t", vocab_size=5), cases=5).status == "inapplicable"


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # warnings of the compiler
@pytest.mark.skipif(not any(map(shutil.which, ("g++", "clang++", "c++"))), reason="there is no C++ compiler")
@pytest.mark.parametrize(("f", "status"), [(norm, "held"), (frozen, "refuted")], ids=["satisfied", "broken"])
def test_compiled_by_inductor(f, status, judge):
    verdict = judge(f, compile_agreement(), EVEN, cases=3, timeout=300)
    assert verdict.status == status, verdict
