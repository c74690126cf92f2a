"""A matrix as the product of two thin ones: its eigenvalues, singular values and norm at the price of the rank.

Circuits: what a head looks for, what it moves, and which heads read what others wrote.
Heads as linear maps: what attention does to the stream while its pattern is held.
Head detectors: previous-token, duplicate-token and induction heads, by where they look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor, nn

from lawful.blocks.attention import MultiHeadAttention
from lawful.functions.activations import identity
from lawful.functions.attention import Mask
from lawful.laws import Claim, agreement, boundedness, linearity, shape, transformed
from lawful.probe.model_layout import frozen_norm
from lawful.probe.record import ActivationCache, record
from lawful.probe.toy_models import induction_model


@dataclass(frozen=True, eq=False)
class FactoredMatrix:
    r"""Holds a matrix of low rank by its factors.

    $$M = L R, \qquad L \in \mathbb{R}^{m \times r},\; R \in \mathbb{R}^{r \times n}$$

    The circuits of a head are such matrices: $d \times d$, or tokens by tokens, of the rank of a head. $M$ itself is
    never formed.

    Examples:
        >>> FactoredMatrix(torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0, 4.0]])).matrix
        tensor([[3., 4.],
                [6., 8.]])
    """

    left: Float[Tensor, "m r"]
    """$L$."""
    right: Float[Tensor, "r n"]
    """$R$."""

    def __post_init__(self) -> None:
        if self.left.dim() != 2 or self.right.dim() != 2 or self.left.shape[1] != self.right.shape[0]:
            shapes = tuple(self.left.shape), tuple(self.right.shape)
            raise ValueError(f"factors of shapes (m, r) and (r, n) were wanted: got {shapes[0]} and {shapes[1]}")

    @property
    def matrix(self) -> Float[Tensor, "m n"]:
        """$M$, written out."""
        return self.left @ self.right

    @property
    def transposed(self) -> FactoredMatrix:
        r"""$M^\top$."""
        return FactoredMatrix(self.right.mT, self.left.mT)

    def __matmul__(self, other: FactoredMatrix) -> FactoredMatrix:
        """The product with another one."""
        return FactoredMatrix(self.left, self.right @ other.left @ other.right)

    def norm(self) -> Float[Tensor, ""]:
        r"""Returns the Frobenius norm, $\sqrt{\operatorname{tr}(L^\top L \, R R^\top)}$."""
        return _triangle(self.left).matmul(_triangle(self.right.mT).mT).norm()

    def singular_values(self) -> Float[Tensor, "r"]:
        r"""Returns the $r$ largest singular values, those of the product of the triangles of $L$ and $R^\top$."""
        return torch.linalg.svdvals(_triangle(self.left) @ _triangle(self.right.mT).mT)

    def eigenvalues(self) -> Complex[Tensor, "r"]:
        """Returns the eigenvalues that may differ from 0, those of the small matrix $R L$, the largest first."""
        if self.left.shape[0] != self.right.shape[1]:
            raise ValueError(f"a square matrix has eigenvalues: got {self.left.shape[0]} x {self.right.shape[1]}")
        found = torch.linalg.eigvals(self.right @ self.left)
        return found[found.abs().argsort(descending=True)]


def _triangle(x: Tensor) -> Tensor:
    """The triangle of the QR decomposition, which has the lengths and angles of the columns."""
    return torch.linalg.qr(x, mode="r").R


def _factored_claims() -> Iterator[Claim]:
    """The laws that factored matrices obey."""
    pair = shape("5 2"), shape("2 5")

    def norm(x: Tensor, y: Tensor) -> Tensor:
        return FactoredMatrix(x, y).norm()

    def singular(x: Tensor, y: Tensor) -> Tensor:
        return FactoredMatrix(x, y).singular_values()

    def powers(x: Tensor, y: Tensor) -> Tensor:
        values = FactoredMatrix(x, y).eigenvalues()
        return torch.stack([(values**k).sum().real for k in (1, 2, 3)])

    def traces(x: Tensor, y: Tensor) -> Tensor:
        m = x @ y
        return torch.stack([m.trace(), (m @ m).trace(), (m @ m @ m).trace()])

    def products(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        a, b = FactoredMatrix(x, y), FactoredMatrix(y.mT, x.mT)
        return (a @ b).matrix, a.transposed.matrix

    yield Claim(agreement(other=lambda x, y: (x @ y).square().sum().sqrt()), norm, pair, name="norm")
    yield Claim(agreement(other=lambda x, y: torch.linalg.svdvals(x @ y)[:2]), singular, pair, name="singular values")
    yield Claim(agreement(other=traces), powers, pair, name="sums of powers of eigenvalues are traces")
    written = agreement(other=lambda x, y: (x @ y @ y.mT @ x.mT, (x @ y).mT))
    yield Claim(written, products, pair, name="products and transposes")


def vocab_circuit(
    circuit: FactoredMatrix, into: Float[Tensor, "vocab d"], out: Float[Tensor, "vocab d"] | None = None
) -> FactoredMatrix:
    r"""Sees a circuit of a head from token to token, through the embedding and the unembedding.

    $$W_E^\top M_{QK} W_E \qquad \text{or} \qquad W_U M_{OV} W_E$$

    Of a QK circuit, entry $(i, j)$ is how much token $i$ wants to look at token $j$; of an OV circuit, how much the
    logit of $i$ rises where $j$ is looked at. Norms, and positions, are left out.

    Args:
        circuit: $M$, such as `attention.qk_matrix(head)` or `attention.ov_matrix(head)` by their factors.
        into: $W_E$, a row for each token, by which the right side is read.
        out: The rows by which the left side is read: $W_U$ for OV; those of `into` unless given.

    Examples:
        >>> one = torch.eye(3)
        >>> vocab_circuit(FactoredMatrix(one, one), 2 * one, one).matrix.diagonal()
        tensor([2., 2., 2.])
    """
    return FactoredMatrix((into if out is None else out) @ circuit.left, circuit.right @ into.mT)


def copying(circuit: FactoredMatrix) -> Float[Tensor, ""]:
    r"""Scores how far an OV circuit from tokens to tokens copies: 1 where all eigenvalues are positive.

    $$\frac{\sum_i \lambda_i}{\sum_i |\lambda_i|}$$

    A positive eigenvalue is a mix of tokens that raises its own logits; -1 is a head that lowers what it looks at.

    Reference:
        Elhage et al., *A Mathematical Framework for Transformer Circuits*, 2021.

    Args:
        circuit: The OV circuit, of `vocab_circuit`.

    Examples:
        >>> copying(FactoredMatrix(torch.eye(2), torch.diag(torch.tensor([3.0, -1.0]))))
        tensor(0.5000)
    """
    values = circuit.eigenvalues()
    return values.real.sum() / values.abs().sum()


def composition(reader: FactoredMatrix, writer: FactoredMatrix) -> Float[Tensor, ""]:
    r"""Scores how much of what one matrix writes another reads.

    $$\frac{\lVert A B \rVert_F}{\lVert A \rVert_F \, \lVert B \rVert_F}$$

    For random matrices of width $d$ it is near $1 / \sqrt{d}$; it is 0 where $A$ reads nothing that $B$ writes.

    Reference:
        Elhage et al., *A Mathematical Framework for Transformer Circuits*, 2021.

    Args:
        reader: $A$.
        writer: $B$.

    Examples:
        >>> one = torch.eye(4)
        >>> composition(FactoredMatrix(one, one), FactoredMatrix(one, one))
        tensor(0.5000)
    """
    return (reader @ writer).norm() / (reader.norm() * writer.norm())


def q_composition(qk: FactoredMatrix, ov: FactoredMatrix) -> Float[Tensor, ""]:
    r"""Scores how much of what a head writes a later head reads for its queries: $M_{QK}^\top$ after $M_{OV}$.

    Args:
        qk: The QK circuit of the later head: queries on the left, keys on the right.
        ov: The OV circuit of the earlier head.

    Examples:
        >>> e = torch.eye(2)
        >>> qk = FactoredMatrix(e[:, :1], e[1:])  # queries are read from the first direction, keys from the second
        >>> q_composition(qk, FactoredMatrix(e[:, :1], e[:1])), q_composition(qk, FactoredMatrix(e[:, 1:], e[:1]))
        (tensor(1.), tensor(0.))
    """
    return composition(qk.transposed, ov)


def k_composition(qk: FactoredMatrix, ov: FactoredMatrix) -> Float[Tensor, ""]:
    r"""Scores how much of what a head writes a later head reads for its keys: $M_{QK}$ after $M_{OV}$.

    Args:
        qk: The QK circuit of the later head: queries on the left, keys on the right.
        ov: The OV circuit of the earlier head.

    Examples:
        >>> e = torch.eye(2)
        >>> qk = FactoredMatrix(e[:, :1], e[1:])  # queries are read from the first direction, keys from the second
        >>> k_composition(qk, FactoredMatrix(e[:, :1], e[:1])), k_composition(qk, FactoredMatrix(e[:, 1:], e[:1]))
        (tensor(0.), tensor(1.))
    """
    return composition(qk, ov)


def v_composition(later: FactoredMatrix, earlier: FactoredMatrix) -> Float[Tensor, ""]:
    r"""Scores how much of what a head writes a later head moves on: one $M_{OV}$ after another.

    Args:
        later: The OV circuit of the later head.
        earlier: The OV circuit of the earlier head.

    Examples:
        >>> e = torch.eye(2)
        >>> v_composition(FactoredMatrix(e[:, :1], e[1:]), FactoredMatrix(e[:, 1:], e[:1]))
        tensor(1.)
    """
    return composition(later, earlier)


def _circuits_claims() -> Iterator[Claim]:
    """The laws that circuits obey."""
    head, four = (shape("4 2"), shape("2 4")), (shape("4 2"), shape("2 4"), shape("4 2"), shape("2 4"))

    def scores(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
        one, other = FactoredMatrix(a, b), FactoredMatrix(c, d)
        return torch.stack([score(one, other) for score in (q_composition, k_composition, v_composition)])

    def written(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
        products = (b.mT @ a.mT @ c @ d, a @ b @ c @ d, a @ b @ c @ d)
        size = (a @ b).square().sum().sqrt() * (c @ d).square().sum().sqrt()
        return torch.stack([p.square().sum().sqrt() / size for p in products])

    def token_to_token(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        table = torch.linspace(-1, 2, 20).to(a).view(5, 4)
        return vocab_circuit(FactoredMatrix(a, b), table, 2 - table).matrix, vocab_circuit(
            FactoredMatrix(a, b), table
        ).matrix

    def by_hand(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        table = torch.linspace(-1, 2, 20).to(a).view(5, 4)
        return (2 - table) @ a @ b @ table.mT, table @ a @ b @ table.mT

    def copies(a: Tensor, b: Tensor) -> Tensor:
        return copying(FactoredMatrix(a, b))

    def of_a_square(a: Tensor) -> Tensor:
        """A symmetric matrix without negative eigenvalues, and its opposite."""
        return torch.stack([copying(FactoredMatrix(a, a.mT)), copying(FactoredMatrix(-a, a.mT))])

    ones = agreement(other=lambda a: a.new_tensor([1.0, -1.0]))
    yield Claim(agreement(other=by_hand), token_to_token, head, name="from token to token")
    yield Claim(agreement(other=written).excluding(_smallest), scores, four, name="composition scores")
    yield Claim(boundedness(low=0.0, high=1.0, input=(0, 1, 2, 3)).excluding(_smallest), scores, four, name="scores")
    yield Claim(boundedness(low=-1.0, high=1.0).excluding(_smallest), copies, head, name="copying")
    yield Claim(ones.excluding(_smallest), of_a_square, shape("4 2"), name="copying, eigenvalues of one sign")


def _smallest(*xs: Tensor) -> Tensor:
    """How far the factors are from 0, where there is no score."""
    return torch.stack([x.norm() for x in xs]).min()


def _own(attention: nn.Module) -> MultiHeadAttention:
    if not isinstance(attention, MultiHeadAttention):
        came = type(attention).__name__
        raise TypeError(f"a MultiHeadAttention was wanted (read_gpt2 makes them of a GPT-2): got {came}")
    return attention


def qk_circuit(attention: MultiHeadAttention, head: int) -> FactoredMatrix:
    r"""Returns what a head looks for, $M_{QK} = (W^Q)^\top W^K$: queries on the left, keys on the right.

    Args:
        attention: The layer.
        head: The number of the head.

    Examples:
        >>> qk_circuit(MultiHeadAttention(8, num_heads=2), 1).left.shape
        torch.Size([8, 4])
    """
    return FactoredMatrix(*_own(attention).qk_factors(head))


def ov_circuit(attention: MultiHeadAttention, head: int) -> FactoredMatrix:
    r"""Returns what a head moves, $M_{OV} = W^O W^V$: from where it looks, on the right, to the stream, on the left.

    Args:
        attention: The layer.
        head: The number of the head.

    Examples:
        >>> ov_circuit(MultiHeadAttention(8, num_heads=2), 1).right.shape
        torch.Size([4, 8])
    """
    return FactoredMatrix(*_own(attention).ov_factors(head))


@dataclass(frozen=True, eq=False)
class LinearHeads:
    r"""Holds the heads of a layer with their patterns, as linear maps of the stream.

    $$h(x) = A_h \, n(x) \, (W^O_h W^V_h)^\top, \qquad n(x) = \gamma \odot P x / \sigma$$
    """

    pattern: Float[Tensor, "*batch h t s"]
    """$A$."""
    circuits: tuple[FactoredMatrix, ...]
    """$W^O_h W^V_h$."""
    constant: Float[Tensor, "*batch t d"]
    """What the layer adds whatever the stream is: its biases."""
    scaled: Callable[[Tensor], Tensor]
    """$n$, the linear part of the norm before the heads."""
    way: Callable[[Tensor], Tensor] = identity
    """The linear map that what the heads find passes into the stream, such as a gate."""

    @property
    def count(self) -> int:
        """The number of heads."""
        return len(self.circuits)

    def each(self, x: Float[Tensor, "n *batch t d"]) -> Float[Tensor, "h n *batch t d"]:
        """What each head makes of each of several streams."""
        x = self.scaled(x)
        patterns = self.pattern.unbind(-3)
        found = [self.way(a @ (x @ m.right.mT) @ m.left.mT) for a, m in zip(patterns, self.circuits, strict=True)]
        return torch.stack(found)

    def together(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """What all heads make of a stream, or of several."""
        return self.each(x).sum(0)


def linear_heads(
    attention: MultiHeadAttention,
    pattern: Float[Tensor, "*batch h t s"],
    norm: nn.Module,
    x: Float[Tensor, "*batch t d"],
) -> LinearHeads:
    """Turns the heads of a layer into linear maps, with their patterns and the norm before them held.

    Args:
        attention: The layer.
        pattern: Its pattern in some run.
        norm: The norm before it.
        x: The stream before that, in the same run.
    """
    linear, shift = frozen_norm(norm, x)
    circuits = tuple(ov_circuit(attention, head) for head in range(pattern.shape[-3]))
    constant = torch.zeros_like(x) if attention.out.bias is None else attention.out.bias.expand_as(x)
    for head, (weights, circuit) in enumerate(zip(pattern.unbind(-3), circuits, strict=True)):
        moved = shift @ circuit.right.mT + _value_bias(attention, head, x)
        constant = constant + weights @ moved @ circuit.left.mT
    return LinearHeads(pattern, circuits, constant, linear)


def _value_bias(attention: MultiHeadAttention, head: int, x: Tensor) -> Tensor:
    """The bias of the values of a head."""
    if attention.value.bias is None:
        return x.new_zeros(())
    for one, part in zip(attention.head_groups, attention.value.bias.split(attention.value_sizes), strict=True):
        if head < one.count:
            return part.unflatten(0, (one.groups, -1))[head * one.groups // one.count]
        head -= one.count
    raise IndexError(f"there is no head {head}")


def pattern_of(tape: ActivationCache, name: str) -> Float[Tensor, "*batch h t s"]:
    """Returns the pattern of all heads of a layer, also where heads of different sizes are in several sets.

    Args:
        tape: What was recorded: `pattern*` of the layer.
        name: The name of the layer.
    """
    found = [tape[key] for key in tape if key.startswith(f"{name}.pattern")]
    if not found:
        raise KeyError(f"no pattern of {name} was recorded: ask for {name}.pattern*")
    return torch.cat(found, dim=-3)


def _heads_claims() -> Iterator[Claim]:
    """The laws that heads obey as linear maps."""
    for heads, norm in ((2, nn.LayerNorm(4)), (1, nn.RMSNorm(4)), (4, nn.Identity())):
        attention = MultiHeadAttention(4, heads=heads)

        def frozen(x: Tensor, attention: MultiHeadAttention, norm: nn.Module) -> LinearHeads:
            with record(attention, "pattern") as tape:
                attention(norm(x), mask=_some(x))
            return linear_heads(attention, tape["pattern"], norm, x)

        def rebuilt(x: Tensor, attention: MultiHeadAttention = attention, norm: nn.Module = norm) -> Tensor:
            held = frozen(x, attention, norm)
            return held.together(x) + held.constant

        def direct(x: Tensor, attention: MultiHeadAttention = attention, norm: nn.Module = norm) -> Tensor:
            return attention(norm(x), mask=_some(x))

        def elsewhere(x: Tensor, attention: MultiHeadAttention = attention, norm: nn.Module = norm) -> Tensor:
            return frozen(torch.linspace(-1, 1, x[0].numel()).to(x).view_as(x[0]), attention, norm).together(x)

        name = f"{heads} heads after {type(norm).__name__}"
        yield Claim(replace(agreement(other=direct), cases=40), rebuilt, shape("b t 4"), name=name)
        yield Claim(replace(linearity(), cases=40), elsewhere, shape("b t 4"), name=name)


def _some(x: Tensor) -> Mask:
    """A causal mask without the first key, so that the first query sees nothing."""
    there = torch.arange(x.shape[-2], device=x.device) > 0
    return Mask(causal=True, padding=there.expand(x.shape[:-1]))


def attention_at_offset(pattern: Float[Tensor, "*batch t s"], by: int, *, start: int = 0) -> Float[Tensor, "*batch"]:
    r"""Returns how much attention goes, on average, to the position a number of steps before.

    $$\frac{1}{|\{t\}|} \sum_{t \ge \max(t_0, n)} A_{t, t - n}$$

    Args:
        pattern: $A$, over as many keys as queries.
        by: $n$, the steps.
        start: $t_0$, the first position that counts.

    Examples:
        >>> attention_at_offset(torch.eye(4), 0), attention_at_offset(torch.eye(4), 1)
        (tensor(1.), tensor(0.))
    """
    t, s = pattern.shape[-2:]
    if t != s or not 0 <= by < t or start >= t:
        raise ValueError(f"a pattern of more than {max(by, start)} queries and as many keys was wanted: got {t} x {s}")
    return pattern.diagonal(-by, -2, -1)[..., max(start - by, 0) :].mean(-1)


def previous_token(pattern: Float[Tensor, "*batch t s"], period: int) -> Float[Tensor, "*batch"]:
    """Scores a head by how much it looks at the token before: 1 for a previous-token head.

    Args:
        pattern: Its pattern, on any sequence.
        period: After how many tokens the sequence repeats; it does not matter here.

    Examples:
        >>> previous_token(torch.eye(4).roll(-1, 1), 2)
        tensor(1.)
    """
    return attention_at_offset(pattern, 1)


def duplicate_token(pattern: Float[Tensor, "*batch t s"], period: int) -> Float[Tensor, "*batch"]:
    """Scores a head by how much it looks, in the repetition of a sequence, at the same token before.

    Args:
        pattern: Its pattern on a sequence that repeats.
        period: After how many tokens it repeats.

    Examples:
        >>> duplicate_token(torch.eye(4).roll(-2, 1), 2)
        tensor(1.)
    """
    return attention_at_offset(pattern, period, start=period)


def induction(pattern: Float[Tensor, "*batch t s"], period: int) -> Float[Tensor, "*batch"]:
    """Scores a head by how much it looks, in the repetition of a sequence, at what came after the same token before.

    Reference:
        Olsson et al., *In-context Learning and Induction Heads*, 2022.

    Args:
        pattern: Its pattern on a sequence that repeats.
        period: After how many tokens it repeats.

    Examples:
        >>> induction(torch.eye(6).roll(-2, 1), 3)
        tensor(1.)
    """
    return attention_at_offset(pattern, period - 1, start=period)


Detector = Callable[[Tensor, int], Tensor]
DETECTORS: tuple[Detector, ...] = (previous_token, duplicate_token, induction)


def repeated_random_tokens(
    *, vocab: int, period: int = 16, batch: int = 8, times: int = 2, seed: int = 0
) -> Int[Tensor, "b t"]:
    """Returns random sequences of tokens, each of them repeated.

    No token comes up twice in a period where the vocabulary is large enough.

    Args:
        vocab: The number of tokens.
        period: The length of what is repeated.
        batch: The number of sequences.
        times: How often each is said.
        seed: What they are drawn from.

    Examples:
        >>> x = repeated_random_tokens(vocab=9, period=4, batch=1)
        >>> x.shape, bool((x[:, :4] == x[:, 4:]).all())
        (torch.Size([1, 8]), True)
    """
    generator = torch.Generator().manual_seed(seed)
    orders = torch.rand(batch, max(vocab, period), generator=generator).argsort(-1)[:, :period] % vocab
    return orders.repeat(1, times)


@torch.no_grad()
def head_scores(
    model: nn.Module, tokens: Int[Tensor, "b t"], *, period: int, names: str = "*pattern*"
) -> dict[str, dict[str, Float[Tensor, "h"]]]:
    """Scores every head of a model by every detector, on sequences that repeat.

    Args:
        model: Any model of tokens whose patterns can be recorded.
        tokens: The sequences, such as `repeated_random_tokens` makes.
        period: After how many tokens they repeat.
        names: The names of the patterns.

    Returns:
        For each detector, for each name, a score of each head.

    Examples:
        >>> scores = head_scores(induction_model(vocab=8, context=8), repeated_random_tokens(vocab=8, period=4), period=4)
        >>> scores["previous_token"]["layers.0.block.pattern"][0] > 0.99
        tensor(True)
        >>> scores["induction"]["layers.1.block.pattern"][1] > 0.99
        tensor(True)
    """
    with record(model, names) as tape:
        model(tokens)
    return {
        detector.__name__: {name: _of_heads(detector(tape[name], period)) for name in tape} for detector in DETECTORS
    }


def _of_heads(scores: Float[Tensor, "*batch h"]) -> Float[Tensor, "h"]:
    return scores.reshape(-1, scores.shape[-1]).mean(0)


def _detectors_claims() -> Iterator[Claim]:
    """The laws that detectors obey."""
    patterns = transformed(lambda x: x.softmax(-1), "b 6 6")

    def written(a: Tensor, steps: int, first: int) -> Tensor:
        return torch.stack([a[:, t, t - steps] for t in range(first, 6)]).mean(0)

    for f, steps, first in ((previous_token, 1, 1), (duplicate_token, 3, 3), (induction, 2, 3)):

        def of_three(a: Tensor, f: Detector = f) -> Tensor:
            return f(a, 3)

        def by_hand(a: Tensor, steps: int = steps, first: int = first) -> Tensor:
            return written(a, steps, first)

        yield Claim(agreement(other=by_hand), of_three, patterns, name=f.__name__)
    yield Claim(boundedness(low=0.0, high=1.0), lambda a: induction(a, 3), patterns, name="induction")

    def found(x: Tensor) -> Tensor:
        n = len(x)
        model = induction_model(vocab=n, context=2 * n)
        scores = head_scores(model, repeated_random_tokens(vocab=n, period=n, batch=2, seed=n), period=n)
        first, second = (f"layers.{i}.block.pattern" for i in range(2))
        return torch.stack([scores["previous_token"][first][0], scores["induction"][second][1]]).to(x)

    yield Claim(agreement(other=lambda x: x.new_ones(2)), found, shape("n:3..6"), name="a model built to be found")


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _factored_claims()
    yield from _circuits_claims()
    yield from _heads_claims()
    yield from _detectors_claims()
