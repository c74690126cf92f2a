import pytest
import torch
from torch import nn

from lawful.optim import clip_norm, clip_value


def with_gradients(dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    params = [nn.Parameter(torch.zeros(n, 3, dtype=dtype)) for n in (2, 5)] + [nn.Parameter(torch.zeros(1))]
    for p in params[:2]:
        p.grad = torch.randn(p.shape, generator=generator).to(dtype)
    return params


@pytest.mark.parametrize("at_most", [0.1, 100.0])
def test_equals_pytorchs(at_most, dtype):
    ours, theirs = with_gradients(dtype), with_gradients(dtype)
    norm = clip_norm(iter(ours), at_most)
    torch.testing.assert_close(norm, nn.utils.clip_grad_norm_(theirs, at_most))
    for a, b in zip(ours[:2], theirs[:2], strict=True):
        torch.testing.assert_close(a.grad, b.grad)
    clip_value(ours, at_most / 2)
    nn.utils.clip_grad_value_(theirs, at_most / 2)
    for a, b in zip(ours[:2], theirs[:2], strict=True):
        torch.testing.assert_close(a.grad, b.grad)
    assert ours[2].grad is None


def test_without_gradients_there_is_nothing_to_do():
    assert clip_norm([nn.Parameter(torch.zeros(2))], 1.0) == 0
    clip_value([], 1.0)


def test_nan_stays():
    x = nn.Parameter(torch.zeros(2))
    x.grad = torch.tensor([1.0, float("nan")])
    assert clip_norm([x], 1.0).isnan()
    assert x.grad.isnan().any()


def test_errors_say_what_was_wanted_and_what_came():
    for clip in (clip_norm, clip_value):
        with pytest.raises(ValueError, match=r"at_most is above 0: got 0\.0"):
            clip([], 0.0)
