import pytest
import torch

from lawful.blocks import RMSNorm


def test_equals_its_equation():
    norm = RMSNorm(6, eps=1e-3).double()
    torch.nn.init.normal_(norm.weight, generator=torch.Generator().manual_seed(0))
    x = torch.randn(2, 3, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    torch.testing.assert_close(norm(x), norm.weight * x / (x.square().mean(-1, keepdim=True) + 1e-3).sqrt())


def test_weights_move_over_from_torch():
    assert RMSNorm(6).state_dict().keys() == torch.nn.RMSNorm(6).state_dict().keys()


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match=r"size 6: got shape \(2, 5\)"):
        RMSNorm(6)(torch.zeros(2, 5))
    with pytest.raises(ValueError, match="at least 1: got 0"):
        RMSNorm(0)
