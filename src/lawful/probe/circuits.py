"""Attention circuits: QK and OV matrices, composition scores, heads as linear maps, and head detectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor, nn

from lawful.blocks.attention import MultiHeadAttention
from lawful.functions.activations import identity
from lawful.laws import Claim, boundedness, shape, transformed
from lawful.probe.model_layout import frozen_norm
from lawful.probe.record import ActivationCache, record


@dataclass(frozen=True, eq=False)
class FactoredMatrix:
    r"""A low-rank matrix in factored form.

    $$M = L R, \qquad L \in \mathbb{R}^{m \times r},\; R \in \mathbb{R}^{r \times n}$$

    Circuits of a head have this form: $d \times d$, or vocabulary by vocabulary, with the rank of the head. The methods
    use the factors and never form $M$.

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
            raise ValueError(f"expected factors of shapes (m, r) and (r, n), got {shapes[0]} and {shapes[1]}")

    @property
    def matrix(self) -> Float[Tensor, "m n"]:
        """The full matrix $M$."""
        return self.left @ self.right

    @property
    def transpose(self) -> FactoredMatrix:
        r"""$M^\top$."""
        return FactoredMatrix(self.right.mT, self.left.mT)

    def __matmul__(self, other: FactoredMatrix) -> FactoredMatrix:
        """Returns the product with another factored matrix."""
        return FactoredMatrix(self.left, self.right @ other.left @ other.right)

    def norm(self) -> Float[Tensor, ""]:
        r"""Returns the Frobenius norm, $\sqrt{\operatorname{tr}(L^\top L \, R R^\top)}$."""
        return _qr_r(self.left).matmul(_qr_r(self.right.mT).mT).norm()

    def singular_values(self) -> Float[Tensor, "r"]:
        r"""Returns the $r$ largest singular values, from the QR decompositions of $L$ and $R^\top$."""
        return torch.linalg.svdvals(_qr_r(self.left) @ _qr_r(self.right.mT).mT)

    def eigenvalues(self) -> Complex[Tensor, "r"]:
        """Returns the nonzero eigenvalues, computed from $R L$, sorted by decreasing absolute value."""
        if self.left.shape[0] != self.right.shape[1]:
            raise ValueError(f"expected a square matrix, got {self.left.shape[0]} x {self.right.shape[1]}")
        values = torch.linalg.eigvals(self.right @ self.left)
        return values[values.abs().argsort(descending=True)]


def _qr_r(x: Tensor) -> Tensor:
    """Returns R of the QR decomposition."""
    return torch.linalg.qr(x, mode="r").R


def vocab_circuit(
    circuit: FactoredMatrix, embedding: Float[Tensor, "vocab d"], unembedding: Float[Tensor, "vocab d"] | None = None
) -> FactoredMatrix:
    r"""Returns a circuit in the basis of tokens, through the embedding and the unembedding.

    $$W_E^\top M_{QK} W_E \qquad \text{or} \qquad W_U M_{OV} W_E$$

    Entry $(i, j)$ of a QK circuit is the attention score of query token $i$ and key token $j$; of an OV circuit, the
    change of the logit of $i$ when the head attends to $j$. Norms and positions are ignored.

    Args:
        circuit: Circuit $M$, from `qk_circuit` or `ov_circuit`.
        embedding: $W_E$, one row per token.
        unembedding: $W_U$ for an OV circuit. Defaults to `embedding`, for a QK circuit.

    Examples:
        >>> one = torch.eye(3)
        >>> vocab_circuit(FactoredMatrix(one, one), 2 * one, one).matrix.diagonal()
        tensor([2., 2., 2.])
    """
    return FactoredMatrix(
        (embedding if unembedding is None else unembedding) @ circuit.left, circuit.right @ embedding.mT
    )


def copying_score(circuit: FactoredMatrix) -> Float[Tensor, ""]:
    r"""Returns the copying score of an OV circuit: 1 if all eigenvalues are positive.

    $$\frac{\sum_i \lambda_i}{\sum_i |\lambda_i|}$$

    An eigenvector with a positive eigenvalue is a mixture of tokens that raises its own logits.

    Reference:
        Elhage et al., *A Mathematical Framework for Transformer Circuits*, 2021.

    Args:
        circuit: OV circuit in the basis of tokens, from `vocab_circuit`.

    Examples:
        >>> copying_score(FactoredMatrix(torch.eye(2), torch.diag(torch.tensor([3.0, -1.0]))))
        tensor(0.5000)
    """
    values = circuit.eigenvalues()
    return values.real.sum() / values.abs().sum()


def composition_score(reader: FactoredMatrix, writer: FactoredMatrix) -> Float[Tensor, ""]:
    r"""Returns the composition score: how much $A$ reads from the output of $B$.

    $$\frac{\lVert A B \rVert_F}{\lVert A \rVert_F \, \lVert B \rVert_F}$$

    It is about $1 / \sqrt{d}$ for random matrices of width $d$, and 0 if $A B = 0$.

    Reference:
        Elhage et al., *A Mathematical Framework for Transformer Circuits*, 2021.

    Args:
        reader: Matrix $A$.
        writer: Matrix $B$.

    Examples:
        >>> one = torch.eye(4)
        >>> composition_score(FactoredMatrix(one, one), FactoredMatrix(one, one))
        tensor(0.5000)
    """
    return (reader @ writer).norm() / (reader.norm() * writer.norm())


def q_composition(qk: FactoredMatrix, ov: FactoredMatrix) -> Float[Tensor, ""]:
    r"""Q-composition score of the queries of a later head with the output of an earlier head.

    Args:
        qk: QK circuit of the later head.
        ov: OV circuit of the earlier head.

    Examples:
        >>> e = torch.eye(2)
        >>> qk = FactoredMatrix(e[:, :1], e[1:])  # queries read the first direction, keys the second
        >>> q_composition(qk, FactoredMatrix(e[:, :1], e[:1])), q_composition(qk, FactoredMatrix(e[:, 1:], e[:1]))
        (tensor(1.), tensor(0.))
    """
    return composition_score(qk.transpose, ov)


def k_composition(qk: FactoredMatrix, ov: FactoredMatrix) -> Float[Tensor, ""]:
    r"""K-composition score of the keys of a later head with the output of an earlier head.

    Args:
        qk: QK circuit of the later head.
        ov: OV circuit of the earlier head.

    Examples:
        >>> e = torch.eye(2)
        >>> qk = FactoredMatrix(e[:, :1], e[1:])  # queries read the first direction, keys the second
        >>> k_composition(qk, FactoredMatrix(e[:, :1], e[:1])), k_composition(qk, FactoredMatrix(e[:, 1:], e[:1]))
        (tensor(0.), tensor(1.))
    """
    return composition_score(qk, ov)


def v_composition(later: FactoredMatrix, earlier: FactoredMatrix) -> Float[Tensor, ""]:
    r"""V-composition score of the values of a later head with the output of an earlier head.

    Args:
        later: OV circuit of the later head.
        earlier: OV circuit of the earlier head.

    Examples:
        >>> e = torch.eye(2)
        >>> v_composition(FactoredMatrix(e[:, :1], e[1:]), FactoredMatrix(e[:, 1:], e[:1]))
        tensor(1.)
    """
    return composition_score(later, earlier)


def _check_attention(attention: nn.Module) -> MultiHeadAttention:
    if not isinstance(attention, MultiHeadAttention):
        raise TypeError(f"attention must be a lawful.blocks.MultiHeadAttention, got {type(attention).__name__}")
    return attention


def qk_circuit(attention: MultiHeadAttention, head: int) -> FactoredMatrix:
    r"""Returns the QK circuit of a head, $M_{QK} = (W^Q)^\top W^K$: queries on the left, keys on the right.

    Args:
        attention: Attention layer.
        head: Index of the head.

    Examples:
        >>> qk_circuit(MultiHeadAttention(8, num_heads=2), 1).left.shape
        torch.Size([8, 4])
    """
    return FactoredMatrix(*_check_attention(attention).qk_factors(head))


def ov_circuit(attention: MultiHeadAttention, head: int) -> FactoredMatrix:
    r"""Returns the OV circuit of a head, $M_{OV} = W^O W^V$.

    Args:
        attention: Attention layer.
        head: Index of the head.

    Examples:
        >>> ov_circuit(MultiHeadAttention(8, num_heads=2), 1).right.shape
        torch.Size([4, 8])
    """
    return FactoredMatrix(*_check_attention(attention).ov_factors(head))


@dataclass(frozen=True, eq=False)
class LinearHeads:
    r"""The heads of a layer as linear maps of the residual stream, with their attention patterns frozen.

    $$h(x) = A_h \, n(x) \, (W^O_h W^V_h)^\top, \qquad n(x) = \gamma \odot P x / \sigma$$
    """

    pattern: Float[Tensor, "*batch h t s"]
    """Attention pattern $A$."""
    circuits: tuple[FactoredMatrix, ...]
    """OV circuits $W^O_h W^V_h$."""
    constant: Float[Tensor, "*batch t d"]
    """Output of the layer that does not depend on the residual stream: its biases."""
    norm: Callable[[Tensor], Tensor]
    """Linear part $n$ of the norm before the heads."""
    branch: Callable[[Tensor], Tensor] = identity
    """Linear map from the output of the heads to the residual stream, such as a gate."""

    @property
    def num_heads(self) -> int:
        """Number of heads."""
        return len(self.circuits)

    def per_head(self, x: Float[Tensor, "n *batch t d"]) -> Float[Tensor, "h n *batch t d"]:
        """Applies each head to each of several residual streams."""
        x = self.norm(x)
        heads = zip(self.pattern.unbind(-3), self.circuits, strict=True)
        return torch.stack([self.branch(a @ (x @ m.right.mT) @ m.left.mT) for a, m in heads])

    def __call__(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Applies the sum of all heads."""
        return self.per_head(x).sum(0)


def linear_heads(
    attention: MultiHeadAttention,
    pattern: Float[Tensor, "*batch h t s"],
    norm: nn.Module,
    x: Float[Tensor, "*batch t d"],
) -> LinearHeads:
    """Linearizes the heads of a layer by freezing their attention patterns and the norm before them.

    Args:
        attention: Attention layer.
        pattern: Its recorded attention pattern.
        norm: Norm before the layer.
        x: Residual stream before the norm, of the same forward pass.
    """
    linear, shift = frozen_norm(norm, x)
    circuits = tuple(ov_circuit(attention, head) for head in range(pattern.shape[-3]))
    constant = torch.zeros_like(x) if attention.out.bias is None else attention.out.bias.expand_as(x)
    for head, (weights, circuit) in enumerate(zip(pattern.unbind(-3), circuits, strict=True)):
        value_shift = shift @ circuit.right.mT + _value_bias(attention, head, x)
        constant = constant + weights @ value_shift @ circuit.left.mT
    return LinearHeads(pattern, circuits, constant, linear)


def _value_bias(attention: MultiHeadAttention, head: int, x: Tensor) -> Tensor:
    """Returns the value bias of a head."""
    if attention.value.bias is None:
        return x.new_zeros(())
    biases = attention.value.bias.split(attention.value_sizes)
    for group, bias in zip(attention.head_groups, biases, strict=True):
        if head < group.num_heads:
            return bias.unflatten(0, (group.num_kv_heads, -1))[head * group.num_kv_heads // group.num_heads]
        head -= group.num_heads
    raise IndexError("head is out of range")


def layer_pattern(cache: ActivationCache, name: str) -> Float[Tensor, "*batch h t s"]:
    """Returns the attention pattern of all heads of a layer, concatenated over its head groups.

    Args:
        cache: Recorded activations, with `pattern*` of the layer.
        name: Name of the attention module.
    """
    found = [cache[key] for key in cache if key.startswith(f"{name}.pattern")]
    if not found:
        raise KeyError(f"no pattern of {name} was recorded: record {name}.pattern*")
    return torch.cat(found, dim=-3)


def attention_at_offset(
    pattern: Float[Tensor, "*batch t s"], offset: int, *, start: int = 0
) -> Float[Tensor, "*batch"]:
    r"""Returns the mean attention to the position a fixed offset before the query.

    $$\frac{1}{|\{t\}|} \sum_{t \ge \max(t_0, n)} A_{t, t - n}$$

    Args:
        pattern: Attention pattern $A$, with as many keys as queries.
        offset: Offset $n$.
        start: First query position $t_0$ of the mean.

    Examples:
        >>> attention_at_offset(torch.eye(4), 0), attention_at_offset(torch.eye(4), 1)
        (tensor(1.), tensor(0.))
    """
    t, s = pattern.shape[-2:]
    if t != s or not 0 <= offset < t or start >= t:
        raise ValueError(f"expected a square pattern of size above {max(offset, start)}, got {t} x {s}")
    return pattern.diagonal(-offset, -2, -1)[..., max(start - offset, 0) :].mean(-1)


def previous_token_score(pattern: Float[Tensor, "*batch t s"], period: int) -> Float[Tensor, "*batch"]:
    """Returns the mean attention to the previous token: 1 for a previous-token head.

    Args:
        pattern: Attention pattern.
        period: Unused; all detectors have the same signature.

    Examples:
        >>> previous_token_score(torch.eye(4).roll(-1, 1), 2)
        tensor(1.)
    """
    return attention_at_offset(pattern, 1)


def duplicate_token_score(pattern: Float[Tensor, "*batch t s"], period: int) -> Float[Tensor, "*batch"]:
    """Returns the mean attention to the previous occurrence of the same token, in a repeated sequence.

    Args:
        pattern: Attention pattern on a repeated sequence.
        period: Length of the repeated part.

    Examples:
        >>> duplicate_token_score(torch.eye(4).roll(-2, 1), 2)
        tensor(1.)
    """
    return attention_at_offset(pattern, period, start=period)


def induction_score(pattern: Float[Tensor, "*batch t s"], period: int) -> Float[Tensor, "*batch"]:
    """Returns the mean attention to the token after the previous occurrence of the same token, in a repeated sequence.

    Reference:
        Olsson et al., *In-context Learning and Induction Heads*, 2022.

    Args:
        pattern: Attention pattern on a repeated sequence.
        period: Length of the repeated part.

    Examples:
        >>> induction_score(torch.eye(6).roll(-2, 1), 3)
        tensor(1.)
    """
    return attention_at_offset(pattern, period - 1, start=period)


DETECTORS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "previous_token": previous_token_score,
    "duplicate_token": duplicate_token_score,
    "induction": induction_score,
}
"""Scores of attention patterns, by the kind of head."""


def repeated_random_tokens(
    *, vocab_size: int, period: int = 16, batch_size: int = 8, repeats: int = 2, seed: int = 0
) -> Int[Tensor, "b t"]:
    """Returns repeated random sequences of tokens.

    Tokens are distinct within a period if the vocabulary is large enough.

    Args:
        vocab_size: Number of tokens in the vocabulary.
        period: Length of the repeated part.
        batch_size: Number of sequences.
        repeats: Number of repetitions.
        seed: Random seed.

    Examples:
        >>> x = repeated_random_tokens(vocab_size=9, period=4, batch_size=1)
        >>> x.shape, bool((x[:, :4] == x[:, 4:]).all())
        (torch.Size([1, 8]), True)
    """
    generator = torch.Generator().manual_seed(seed)
    order = torch.rand(batch_size, max(vocab_size, period), generator=generator).argsort(-1)[:, :period]
    return (order % vocab_size).repeat(1, repeats)


@torch.no_grad()
def attention_patterns(model: nn.Module, inputs: Any) -> dict[str, Float[Tensor, "*batch h t s"]]:
    """Returns the attention pattern of every attention layer, by its name.

    Args:
        model: Any model with `MultiHeadAttention` or PyTorch's fused attention.
        inputs: Input of the model, or a dict of its keyword arguments.

    Examples:
        >>> from lawful.probe import induction_model
        >>> model = induction_model(vocab_size=5, context_length=8)
        >>> patterns = attention_patterns(model, torch.tensor([[1, 2, 3]]))
        >>> {name: tuple(pattern.shape) for name, pattern in patterns.items()}
        {'layers.0.attention.pattern': (1, 2, 3, 3), 'layers.1.attention.pattern': (1, 2, 3, 3)}
    """
    with record(model, "*pattern*") as cache:
        model(**inputs) if isinstance(inputs, dict) else model(inputs)
    return dict(cache)


def head_scores(
    model: nn.Module, tokens: Int[Tensor, "b t"], *, period: int
) -> dict[str, dict[str, Float[Tensor, "h"]]]:
    """Scores every head of a model by every detector, on repeated sequences.

    Args:
        model: A language model.
        tokens: Repeated sequences, such as from `repeated_random_tokens`.
        period: Length of the repeated part.

    Returns:
        Scores of the heads, by detector and by the name of the pattern.

    Examples:
        >>> from lawful.probe import induction_model
        >>> model = induction_model(vocab_size=8, context_length=8)
        >>> scores = head_scores(model, repeated_random_tokens(vocab_size=8, period=4), period=4)
        >>> scores["previous_token"]["layers.0.attention.pattern"][0] > 0.99
        tensor(True)
    """
    patterns = attention_patterns(model, tokens)
    return {
        kind: {name: _mean_over_batch(score(pattern, period)) for name, pattern in patterns.items()}
        for kind, score in DETECTORS.items()
    }


def find_induction_heads(
    model: nn.Module,
    *,
    threshold: float = 0.4,
    vocab_size: int | None = None,
    period: int | None = None,
    seed: int = 0,
) -> list[tuple[str, int, float]]:
    """Finds induction heads by their `induction_score` on repeated random tokens.

    Args:
        model: A language model.
        threshold: Smallest score of an induction head.
        vocab_size: Number of tokens. Defaults to `model.vocab_size`.
        period: Length of the repeated part. Defaults to 16, or half of the context length if that is less.
        seed: Random seed of the tokens.

    Returns:
        Name of the attention module, index of the head, and score, sorted by decreasing score.

    Examples:
        >>> from lawful.probe import induction_model
        >>> heads = find_induction_heads(induction_model(vocab_size=8, context_length=16))
        >>> [(name, head) for name, head, score in heads]
        [('layers.1.attention', 1)]
    """
    config = getattr(model, "config", None)
    vocab_size = vocab_size or getattr(model, "vocab_size", None) or getattr(config, "vocab_size", None)
    if vocab_size is None:
        raise ValueError("vocab_size is needed for a model without the attribute vocab_size")
    period = period or min(16, (getattr(model, "context_length", None) or 32) // 2)
    tokens = repeated_random_tokens(vocab_size=vocab_size, period=period, seed=seed)
    device = next((p.device for p in model.parameters()), tokens.device)
    scores = head_scores(model, tokens.to(device), period=period)["induction"]
    heads = [
        (name.rpartition(".")[0], head, score)
        for name, values in scores.items()
        for head, score in enumerate(values.tolist())
        if score >= threshold
    ]
    return sorted(heads, key=lambda found: -found[2])


def _mean_over_batch(scores: Float[Tensor, "*batch h"]) -> Float[Tensor, "h"]:
    return scores.reshape(-1, scores.shape[-1]).mean(0)


def claims() -> Iterator[Claim]:
    """Scores are bounded."""
    factors = (shape("4 2"), shape("2 4"), shape("4 2"), shape("2 4"))

    def compositions(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
        one, other = FactoredMatrix(a, b), FactoredMatrix(c, d)
        return torch.stack([score(one, other) for score in (q_composition, k_composition, v_composition)])

    def copying(a: Tensor, b: Tensor) -> Tensor:
        return copying_score(FactoredMatrix(a, b))

    def smallest_norm(*xs: Tensor) -> Tensor:
        return torch.stack([x.norm() for x in xs]).min()

    bounded = boundedness(low=0.0, high=1.0, input=(0, 1, 2, 3)).excluding(smallest_norm)
    yield Claim(bounded, compositions, factors, name="composition scores")
    yield Claim(boundedness(low=-1.0, high=1.0).excluding(smallest_norm), copying, factors[:2], name="copying_score")
    pattern = transformed(lambda x: x.softmax(-1), "b 6 6")
    for kind, score in DETECTORS.items():
        yield Claim(boundedness(low=0.0, high=1.0), lambda a, score=score: score(a, 3), pattern, name=f"{kind}_score")
