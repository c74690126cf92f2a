"""Circuits, composition scores, linear heads and head detectors."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import nn

from lawful.blocks import (
    HeadSpec,
    MultiHeadAttention,
)
from lawful.functions.attention import Mask
from lawful.laws import Claim, agreement, linearity, shape, transformed
from lawful.probe import (
    DETECTORS,
    FactoredMatrix,
    attention_at_offset,
    attention_only_model,
    attention_patterns,
    copying_score,
    find_induction_heads,
    head_scores,
    induction_model,
    induction_score,
    k_composition,
    linear_heads,
    ov_circuit,
    q_composition,
    qk_circuit,
    record,
    repeated_random_tokens,
    v_composition,
    vocab_circuit,
)

TOKENS = torch.tensor([[1, 2, 3, 1], [0, 4, 4, 2]])


def test_factored_circuits_equal_the_full_matrices():
    torch.manual_seed(0)
    layer = MultiHeadAttention(12, heads=[HeadSpec(count=2, key=3, value=4), HeadSpec(count=2, groups=1, key=5)])
    for head in range(4):
        for circuit, full in (
            (qk_circuit(layer, head), layer.qk_matrix(head)),
            (ov_circuit(layer, head), layer.ov_matrix(head)),
        ):
            matrix = full.detach().double().numpy()
            rank = circuit.left.shape[1]
            assert np.allclose(circuit.singular_values().detach(), np.linalg.svd(matrix)[1][:rank], atol=1e-5)
            largest = sorted(np.abs(np.linalg.eigvals(matrix)), reverse=True)[:rank]
            assert np.allclose(circuit.eigenvalues().abs().detach(), largest, atol=1e-4)
            assert np.allclose(circuit.norm().detach(), np.linalg.norm(matrix), atol=1e-5)


def test_an_induction_head_composes_by_keys():
    model = induction_model(vocab_size=6, context_length=12)
    first, second = (layer.block for layer in model.layers)
    writer, reader = ov_circuit(first, 0), qk_circuit(second, 1)
    assert k_composition(reader, writer) > 0.1
    assert q_composition(reader, writer) == 0
    assert v_composition(ov_circuit(second, 1), writer) == 0
    copies = vocab_circuit(ov_circuit(second, 1), model.embedding.weight, model.head.weight)
    assert copying_score(copies).item() == pytest.approx(1.0)


def test_detectors_find_the_built_in_heads():
    model = induction_model(vocab_size=9, context_length=16)
    scores = head_scores(model, repeated_random_tokens(vocab_size=9, period=8), period=8)
    best = {
        kind: max((s.max().item(), name, int(s.argmax())) for name, s in found.items())
        for kind, found in scores.items()
    }
    assert best["previous_token"][1:] == ("layers.0.attention.pattern", 0)
    assert best["induction"][1:] == ("layers.1.attention.pattern", 1)
    assert best["duplicate_token"][0] < 0.3


@pytest.mark.parametrize(("offset", "start"), [(0, 0), (1, 0), (1, 3), (2, 1), (2, 4)])
def test_attention_at_an_offset_is_a_mean_over_queries(offset, start):
    pattern = torch.rand(2, 5, 5, dtype=torch.float64)
    entries = [pattern[:, t, t - offset] for t in range(max(offset, start), 5)]
    torch.testing.assert_close(attention_at_offset(pattern, offset, start=start), torch.stack(entries).mean(0))


def test_a_pattern_that_is_too_short_raises():
    with pytest.raises(ValueError, match="expected a square pattern of size above 9, got 4 x 4"):
        induction_score(torch.eye(4), 9)
    with pytest.raises(ValueError, match="got 4 x 3"):
        attention_at_offset(torch.ones(4, 3), 1)


def test_repeated_random_tokens_are_reproducible():
    x = repeated_random_tokens(vocab_size=3, period=5, batch_size=2, repeats=3, seed=1)
    assert x.shape == (2, 15)
    assert torch.equal(x[:, :5], x[:, 10:])
    assert torch.equal(x, repeated_random_tokens(vocab_size=3, period=5, batch_size=2, repeats=3, seed=1))
    assert not torch.equal(x, repeated_random_tokens(vocab_size=3, period=5, batch_size=2, repeats=3, seed=2))


def test_find_induction_heads():
    model = induction_model(vocab_size=9, context_length=16)
    ((name, head, score),) = find_induction_heads(model)
    assert (name, head) == ("layers.1.attention", 1)
    assert score > 0.9
    assert find_induction_heads(attention_only_model(vocab_size=9, dim=8), threshold=0.9) == []
    with pytest.raises(ValueError, match="vocab_size is needed"):
        find_induction_heads(nn.Sequential(nn.Linear(2, 2)))


def test_attention_patterns_of_all_layers():
    patterns = attention_patterns(attention_only_model(vocab_size=5, dim=4), TOKENS)
    assert [*patterns] == ["layers.0.attention.pattern", "layers.1.attention.pattern"]
    assert all(torch.allclose(pattern.sum(-1), torch.ones(2, 2, 4)) for pattern in patterns.values())


def claims() -> Iterator[Claim]:
    """Second derivations of factored matrices, circuits, linear heads and detectors."""
    yield from factored_matrix_claims()
    yield from circuit_claims()
    yield from linear_head_claims()
    yield from detector_claims()


def factored_matrix_claims() -> Iterator[Claim]:
    pair = shape("5 2"), shape("2 5")

    def norm(x, y):
        return FactoredMatrix(x, y).norm()

    def singular_values(x, y):
        return FactoredMatrix(x, y).singular_values()

    def power_sums(x, y):
        values = FactoredMatrix(x, y).eigenvalues()
        return torch.stack([(values**k).sum().real for k in (1, 2, 3)])

    def traces(x, y):
        m = x @ y
        return torch.stack([m.trace(), (m @ m).trace(), (m @ m @ m).trace()])

    def products(x, y):
        a, b = FactoredMatrix(x, y), FactoredMatrix(y.mT, x.mT)
        return (a @ b).matrix, a.transpose.matrix

    full_products = agreement(other=lambda x, y: (x @ y @ y.mT @ x.mT, (x @ y).mT))
    full_singular_values = agreement(other=lambda x, y: torch.linalg.svdvals(x @ y)[:2])
    yield Claim(agreement(other=lambda x, y: (x @ y).square().sum().sqrt()), norm, pair, name="norm")
    yield Claim(full_singular_values, singular_values, pair, name="singular values")
    yield Claim(agreement(other=traces), power_sums, pair, name="power sums of eigenvalues are traces")
    yield Claim(full_products, products, pair, name="products and transposes")


def smallest_norm(*xs):
    return torch.stack([x.norm() for x in xs]).min()


def circuit_claims() -> Iterator[Claim]:
    head, four = (shape("4 2"), shape("2 4")), (shape("4 2"), shape("2 4"), shape("4 2"), shape("2 4"))

    def compositions(a, b, c, d):
        one, other = FactoredMatrix(a, b), FactoredMatrix(c, d)
        return torch.stack([score(one, other) for score in (q_composition, k_composition, v_composition)])

    def full_compositions(a, b, c, d):
        products = (b.mT @ a.mT @ c @ d, a @ b @ c @ d, a @ b @ c @ d)
        size = (a @ b).square().sum().sqrt() * (c @ d).square().sum().sqrt()
        return torch.stack([p.square().sum().sqrt() / size for p in products])

    def token_circuits(a, b):
        table = torch.linspace(-1, 2, 20).to(a).view(5, 4)
        circuit = FactoredMatrix(a, b)
        return vocab_circuit(circuit, table, 2 - table).matrix, vocab_circuit(circuit, table).matrix

    def full_token_circuits(a, b):
        table = torch.linspace(-1, 2, 20).to(a).view(5, 4)
        return (2 - table) @ a @ b @ table.mT, table @ a @ b @ table.mT

    def copying_of_definite(a):
        """A positive semidefinite matrix, and its negative."""
        return torch.stack([copying_score(FactoredMatrix(a, a.mT)), copying_score(FactoredMatrix(-a, a.mT))])

    ones = agreement(other=lambda a: a.new_tensor([1.0, -1.0]))
    full_scores = agreement(other=full_compositions).excluding(smallest_norm)
    yield Claim(agreement(other=full_token_circuits), token_circuits, head, name="vocab_circuit")
    yield Claim(full_scores, compositions, four, name="composition scores")
    yield Claim(
        ones.excluding(smallest_norm), copying_of_definite, shape("4 2"), name="copying_score of definite matrices"
    )


def linear_head_claims() -> Iterator[Claim]:
    for num_heads, norm in ((2, nn.LayerNorm(4)), (1, nn.RMSNorm(4)), (4, nn.Identity())):
        attention = MultiHeadAttention(4, num_heads=num_heads)

        def frozen(x, attention, norm):
            with record(attention, "pattern") as cache:
                attention(norm(x), mask=masked_first_key(x))
            return linear_heads(attention, cache["pattern"], norm, x)

        def rebuilt(x, attention=attention, norm=norm):
            heads = frozen(x, attention, norm)
            return heads(x) + heads.constant

        def direct(x, attention=attention, norm=norm):
            return attention(norm(x), mask=masked_first_key(x))

        def frozen_elsewhere(x, attention=attention, norm=norm):
            return frozen(torch.linspace(-1, 1, x[0].numel()).to(x).view_as(x[0]), attention, norm)(x)

        name = f"{num_heads} heads after {type(norm).__name__}"
        yield Claim(agreement(other=direct), rebuilt, shape("b t 4"), name=name)
        yield Claim(linearity(), frozen_elsewhere, shape("b t 4"), name=name)


def masked_first_key(x):
    """A causal mask without the first key: the first query has no keys."""
    valid = torch.arange(x.shape[-2]) > 0
    return Mask(causal=True, padding=valid.expand(x.shape[:-1]))


def detector_claims() -> Iterator[Claim]:
    patterns = transformed(lambda x: x.softmax(-1), "b 6 6")
    for kind, offset, first in (("previous_token", 1, 1), ("duplicate_token", 3, 3), ("induction", 2, 3)):

        def score(a, kind=kind):
            return DETECTORS[kind](a, 3)

        def by_loop(a, offset=offset, first=first):
            return torch.stack([a[:, t, t - offset] for t in range(first, 6)]).mean(0)

        yield Claim(agreement(other=by_loop), score, patterns, name=f"{kind}_score")

    def built_in_scores(x):
        n = len(x)
        model = induction_model(vocab_size=n, context_length=2 * n)
        tokens = repeated_random_tokens(vocab_size=n, period=n, batch_size=2, seed=n)
        scores = head_scores(model, tokens, period=n)
        first, second = (f"layers.{i}.attention.pattern" for i in range(2))
        return torch.stack([scores["previous_token"][first][0], scores["induction"][second][1]]).to(x)

    ones = agreement(other=lambda x: x.new_ones(2))
    yield Claim(ones, built_in_scores, shape("n:3..6"), name="scores of the built-in heads")
