import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lawful.blocks import Embedding


def test_equals_one_hot_times_matrix_and_its_gradient_too():
    embedding = Embedding(7, 3).double()
    x = torch.randint(7, (4, 5), generator=torch.Generator().manual_seed(0))
    c = torch.randn(4, 5, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    looked_up, product = embedding(x), F.one_hot(x, 7).double() @ embedding.weight
    torch.testing.assert_close(looked_up, product)
    (ours,) = torch.autograd.grad(looked_up, embedding.weight, c)
    (theirs,) = torch.autograd.grad(product, embedding.weight, c)
    torch.testing.assert_close(ours, theirs)


def test_weights_move_over_from_torch():
    ours, theirs = Embedding(7, 3), nn.Embedding(7, 3)
    ours.load_state_dict(theirs.state_dict())
    assert torch.equal(ours(torch.arange(7)), theirs(torch.arange(7)))


def test_a_token_that_is_not_there_is_refused():
    with pytest.raises(IndexError, match="tokens from 0 to 6 were wanted: got -1 to 7"):
        Embedding(7, 3)(torch.tensor([7, -1, 3]))
    with pytest.raises(ValueError, match="got vocab=0"):
        Embedding(0, 3)


def test_no_tokens_give_no_vectors():
    assert Embedding(7, 3)(torch.zeros(2, 0, dtype=torch.long)).shape == (2, 0, 3)


def test_tokens_are_integers(unchecked):
    with pytest.raises(TypeError, match=r"tokens are integers: got torch\.float32"):
        Embedding(7, 3)(torch.zeros(2))


@pytest.mark.parametrize("settings", [{}, {"freeze": False}])
def test_vectors_move_over(settings):
    weight = torch.randn(7, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    ours, theirs = Embedding.from_pretrained(weight, **settings), nn.Embedding.from_pretrained(weight, **settings)
    x = torch.tensor([[1, 2]])
    assert type(ours) is Embedding
    assert ours(x).equal(theirs(x))
    assert ours.weight.requires_grad is theirs.weight.requires_grad


def test_it_compiles_in_one_graph(unchecked):
    embedding, x = Embedding(7, 3), torch.tensor([[1, 2]])
    assert torch.compile(embedding, backend="eager", fullgraph=True)(x).equal(embedding(x))
