from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lawful.blocks import FourierFeatures, NGramEmbedding, TimeEmbedding
from lawful.laws import Claim, agreement, shape, tokens, transformed


def test_each_ngram_has_its_own_row():
    table = NGramEmbedding(3, 1, n=3)
    assert table.weight.shape == (64, 1)
    assert (table.weight == 0).all()
    table.weight.data = torch.arange(64.0)[:, None]
    runs = torch.cartesian_prod(*[torch.arange(3)] * 3)
    assert table(runs)[:, 2, 0].unique().numel() == 27
    assert table(runs)[:, 0, 0].unique().numel() == 3


def test_the_hash_spreads_ngrams_over_the_rows():
    table = NGramEmbedding(1000, 1, n=4, num_rows=512)
    table.weight.data = torch.arange(512.0)[:, None]
    runs = torch.randint(1000, (20000, 4), generator=torch.Generator().manual_seed(0))
    counts = table(runs)[:, 3, 0].long().bincount(minlength=512)
    assert counts.min() > 10
    assert counts.max() < 90


def test_a_full_table_needs_no_hash():
    assert not NGramEmbedding(5, 2, num_rows=10**6).is_hashed
    assert NGramEmbedding(5, 2, num_rows=7).extra_repr() == "5, 2, n=2, num_rows=7"


def test_any_number_of_earlier_tokens():
    table = NGramEmbedding(5, 3, n=3)
    nn.init.normal_(table.weight)
    x = torch.tensor([[1, 2, 3, 4]])
    for i in range(4):
        assert torch.equal(table(x[:, i:], x[:, :i]), table(x)[:, i:])
    assert torch.equal(table(x, torch.tensor([[-1]])), table(x))


def test_invalid_options_are_rejected():
    with pytest.raises(ValueError, match="at least 1: got vocab_size=5, dim=2, n=2, num_rows=0"):
        NGramEmbedding(5, 2, num_rows=0)
    with pytest.raises(ValueError, match="n=0"):
        NGramEmbedding(5, 2, n=0)
    with pytest.raises(ValueError, match="between 1 and dim: got table_dim=3, dim=2"):
        NGramEmbedding(5, 2, table_dim=3)


def test_dropout_removes_whole_vectors_in_training_mode_only():
    table = NGramEmbedding(3, 4, table_dim=3, dropout=0.25)
    nn.init.ones_(table.weight)
    x = torch.zeros(100, 100, dtype=torch.long)
    torch.manual_seed(0)
    y = table(x)
    assert (y[..., 3] == 0).all()
    torch.testing.assert_close(y[..., :3].unique(), torch.tensor([0, 4 / 3]))
    assert ((y[..., :3] == 0).all(-1) == (y[..., 0] == 0)).all()
    assert abs((y[..., 0] == 0).float().mean() - 0.25) < 0.02
    assert (table.eval()(x)[..., :3] == 1).all()


def test_labels_need_classes():
    with pytest.raises(ValueError, match="labels need num_classes > 0"):
        TimeEmbedding(4)(torch.zeros(2), torch.zeros(2, dtype=torch.long))


def _claims_of_ngrams() -> Iterator[Claim]:
    pairs, hashed, narrow = (
        NGramEmbedding(4, 3),
        NGramEmbedding(5, 3, n=3, num_rows=7),
        NGramEmbedding(4, 3, table_dim=2),
    )
    for table in (pairs, hashed, narrow):
        nn.init.normal_(table.weight, generator=torch.Generator().manual_seed(0))

    def equation(x):
        table = pairs.weight.unflatten(0, (5, 5))
        rows = [[table[i + 1, j + 1] for i, j in zip([-1, *row], row, strict=False)] for row in x.tolist()]
        return torch.stack([torch.stack(row) for row in rows])

    def hash_equation(x):
        rows = []
        for row in x.tolist():
            grams = zip([-1, -1, *row], [-1, *row], row, strict=False)
            keys = [36 * (i + 1) + 6 * (j + 1) + k + 1 for i, j, k in grams]
            rows.append(torch.stack([hashed.weight[key * 2654435761 // 2**11 % 7] for key in keys]))
        return torch.stack(rows)

    def token_by_token(x):
        return torch.cat([hashed(x[:, i : i + 1], x[:, :i]) for i in range(x.shape[1])], dim=1)

    def zero_filled(x):
        before = F.pad(x, (1, -1), value=-1)
        return F.pad(F.embedding(5 * (before + 1) + x + 1, narrow.weight), (0, 1))

    for layer, other, vocab_size, name in (
        (pairs, equation, 4, "bigrams"),
        (hashed, hash_equation, 5, "hashed trigrams"),
        (hashed, token_by_token, 5, "token by token"),
        (narrow, zero_filled, 4, "narrow table"),
    ):
        yield Claim(agreement(other=other), layer, tokens("b t", vocab_size=vocab_size), name=name)


def claims() -> Iterator[Claim]:
    """Second derivations of embeddings."""
    yield from _claims_of_ngrams()
    embedding = TimeEmbedding(3, num_features=4, num_classes=2)
    with torch.no_grad():
        embedding.labels.copy_(torch.arange(9.0).reshape(3, 3) / 5)

    def features(c):
        angles = [0.5 * c, 2 * c, 8 * c]
        return torch.stack([a.cos() for a in angles] + [a.sin() for a in angles], -1)

    yield Claim(agreement(other=features), FourierFeatures(6, min_frequency=0.5, max_frequency=8.0), shape("n"))

    def equation(c, row):
        u, v = 0.5 * c, 16 * c
        phi = torch.stack([u.cos(), v.cos(), u.sin(), v.sin()], -1)
        label = torch.tensor([0.0, 0.2, 0.4]).to(c) + 0.6 * row
        h = phi @ embedding.linear1.weight.T + embedding.linear1.bias + label
        return (h / (1 + (-h).exp())) @ embedding.linear2.weight.T + embedding.linear2.bias

    def labeled(c):
        return embedding(c, torch.ones(len(c), dtype=torch.long, device=c.device))

    for f, row, name in ((labeled, 1, "label 1"), (embedding, 2, "null label")):
        few = replace(agreement(other=lambda c, row=row: equation(c, row)), cases=20)
        yield Claim(few, f, transformed(torch.tanh, "n"), name=name)
