from collections.abc import Iterator

import pytest
import torch

from lawful.blocks import (
    BilinearForm,
    MultiHeadAttention,
    SemidefiniteForm,
    SimilarityAttention,
    SymmetricForm,
)
from lawful.functions.attention import CAUSAL
from lawful.laws import Claim, agreement, shape


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_form_of_low_rank_is_multi_head_attention():
    theirs = MultiHeadAttention(6, num_heads=2, bias=False).double()
    ours = SimilarityAttention(BilinearForm(6, num_heads=2), 6, bias=False).double()
    ours.value, ours.out = theirs.value, theirs.out
    with torch.no_grad():
        ours.form.weight.copy_(torch.stack([theirs.qk_matrix(head) for head in range(2)]) * (6 / 3) ** 0.5)
    x = randn(2, 5, 6)
    torch.testing.assert_close(ours(x, mask=CAUSAL), theirs(x, mask=CAUSAL))


def test_a_semidefinite_form_has_no_negative_eigenvalue():
    x = randn(4, 5)
    assert torch.linalg.eigvalsh(SemidefiniteForm(5, rank=2).double()(x, x)).min() > -1e-12
    assert torch.linalg.eigvalsh(SymmetricForm(5).double()(x, x)).min() < 0


@pytest.mark.parametrize("form", [BilinearForm, SymmetricForm, SemidefiniteForm])
def test_a_form_has_one_head_by_default(form):
    assert form(3).double()(randn(2, 5, 3), randn(2, 4, 3)).shape == (2, 1, 5, 4)


def test_initial_weights_keep_the_variance_of_their_input():
    for form in (BilinearForm(50, num_heads=8), SymmetricForm(50, num_heads=8), SemidefiniteForm(50, num_heads=8)):
        torch.testing.assert_close((randn(100, 50).float() @ form.weight.mT).var(), torch.tensor(1.0), atol=0.1, rtol=0)


def test_invalid_sizes_are_rejected():
    with pytest.raises(ValueError, match="num_heads must divide dim: got dim=8, num_heads=3"):
        SimilarityAttention(SymmetricForm(8, num_heads=3), 8)
    with pytest.raises(ValueError, match="num_heads=0"):
        BilinearForm(8, num_heads=0)


def claims() -> Iterator[Claim]:
    """Second derivations of bilinear forms and their attention."""
    form, symmetric, positive = (
        BilinearForm(3, num_heads=2, context_dim=4),
        SymmetricForm(3),
        SemidefiniteForm(3, rank=2),
    )

    def by_entries(x, y):
        return torch.einsum("bti,hij,bsj->bhts", x, form.weight, y)

    def by_halves(x, y):
        one, other = (torch.einsum(f"bti,h{w},bsj->bhts", x, symmetric.weight, y) for w in ("ij", "ji"))
        return (one + other) / 2

    def by_map(x, y):
        return torch.einsum("bti,hri,hrj,bsj->bhts", x, positive.weight, positive.weight, y)

    two, same = (shape("b t 3"), shape("b s 4")), (shape("b t 3"), shape("b s 3"))
    for f, other, inputs in ((form, by_entries, two), (symmetric, by_halves, same), (positive, by_map, same)):
        yield Claim(agreement(other=other), f, inputs)
    for similarity, value_dim, k, size in (
        (BilinearForm(4, num_heads=2), None, 4, 2),
        (SymmetricForm(4, num_heads=2), None, 4, 2),
        (SemidefiniteForm(4, num_heads=2, rank=3), 3, 3, 3),
    ):
        layer = SimilarityAttention(similarity, 4, value_dim=value_dim)

        def equation(x, layer=layer, k=k, size=size):
            weights = (layer.form(x, x) / k**0.5).softmax(-1)
            values = layer.value(x).split(size, dim=-1)
            return layer.out(torch.cat([weights[:, h] @ values[h] for h in range(2)], dim=-1))

        name = f"SimilarityAttention({type(similarity).__name__})"
        yield Claim(agreement(other=equation), layer, shape("b t 4"), name=name)
