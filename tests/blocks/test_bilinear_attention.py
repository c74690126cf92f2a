import pytest
import torch

from lawful.blocks import (
    BilinearForm,
    HeadSpec,
    MultiHeadAttention,
    SemidefiniteForm,
    SimilarityAttention,
    SymmetricForm,
)
from lawful.blocks.attention import ov_factors, qk_factors
from lawful.functions.attention import CAUSAL


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_form_of_low_rank_is_multi_head_attention():
    theirs = MultiHeadAttention(6, heads=2, bias=False).double()
    ours = SimilarityAttention(BilinearForm(6, heads=2), 6, bias=False).double()
    ours.value, ours.out = theirs.value, theirs.out
    with torch.no_grad():
        ours.form.weight.copy_(torch.stack([theirs.qk(head) for head in range(2)]) * (6 / 3) ** 0.5)
    x = randn(2, 5, 6)
    torch.testing.assert_close(ours(x, mask=CAUSAL), theirs(x, mask=CAUSAL))


def test_a_semidefinite_form_has_no_negative_eigenvalue():
    x = randn(4, 5)
    assert torch.linalg.eigvalsh(SemidefiniteForm(5, rank=2).double()(x, x)).min() > -1e-12
    assert torch.linalg.eigvalsh(SymmetricForm(5).double()(x, x)).min() < 0


def test_factors_have_the_rank_of_the_head():
    layer = MultiHeadAttention(8, heads=[HeadSpec(count=2, groups=1, key=2, value=3), HeadSpec(key=4)], context=5)
    assert [tuple(f.shape) for f in qk_factors(layer, 1)] == [(8, 2), (2, 5)]
    assert [tuple(f.shape) for f in ov_factors(layer, 2)] == [(8, 4), (4, 5)]
    assert torch.linalg.matrix_rank(layer.ov(0)) == 3
    with pytest.raises(IndexError, match="heads from 0 to 2 were wanted: got 3"):
        layer.qk(3)


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match="heads must divide d: got d=8, heads=3"):
        SimilarityAttention(SymmetricForm(8, heads=3), 8)
    with pytest.raises(ValueError, match="heads=0"):
        BilinearForm(8, heads=0)
