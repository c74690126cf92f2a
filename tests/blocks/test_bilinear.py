import numpy as np
import pytest
import torch
from torch import nn

from lawful.blocks import Bilinear


@pytest.mark.parametrize("batch", [(), (5,), (2, 3)])
def test_equals_numpy(batch):
    layer = Bilinear((3, 2), 4).double()
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(*batch, n, generator=generator, dtype=torch.float64) for n in (3, 2))
    a, b = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    np.testing.assert_allclose(
        layer(x, y).detach().numpy(), np.einsum("kij,...i,...j->...k", a, x.numpy(), y.numpy()) + b
    )


def test_weights_move_over_from_torch():
    ours, theirs = Bilinear((3, 2), 4), nn.Bilinear(3, 2, 4)
    ours.load_state_dict(theirs.state_dict())
    x, y = torch.ones(5, 3), torch.ones(5, 2)
    assert torch.equal(ours(x, y), theirs(x, y))


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match=r"sizes \(3, 2\): got \(5, 3\) and \(5, 3\)"):
        Bilinear((3, 2), 4)(torch.zeros(5, 3), torch.zeros(5, 3))
    with pytest.raises(ValueError, match=r"at least 1: got sizes=\(3, 0\)"):
        Bilinear((3, 0), 4)


def test_two_batches_are_refused(unchecked):
    with pytest.raises(ValueError, match=r"one batch was wanted: got \(5, 3\) and \(4, 2\)"):
        Bilinear((3, 2), 4)(torch.zeros(5, 3), torch.zeros(4, 2))
