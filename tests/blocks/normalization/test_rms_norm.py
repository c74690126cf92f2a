import pytest
import torch

from lawful.blocks import RMSNorm


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_torch_with_its_weights(dtype):
    theirs = torch.nn.RMSNorm(6, eps=1e-3).to(dtype)
    torch.nn.init.normal_(theirs.weight, generator=torch.Generator().manual_seed(0))
    ours = RMSNorm(6, eps=1e-3).to(dtype)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 3, 6, generator=torch.Generator().manual_seed(1), dtype=dtype)
    torch.testing.assert_close(ours(x), theirs(x))
    torch.testing.assert_close(ours(x), ours.weight * x / (x.square().mean(-1, keepdim=True) + 1e-3).sqrt())


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match=r"size 6: got shape \(2, 5\)"):
        RMSNorm(6)(torch.zeros(2, 5))
    with pytest.raises(ValueError, match="at least 1: got 0"):
        RMSNorm(0)
