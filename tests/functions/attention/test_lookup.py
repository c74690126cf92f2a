import numpy as np
import pytest
import torch

from lawful.functions.attention import (
    CAUSAL,
    fused_attention,
    kernel_regression,
    look_up,
    reference_attention,
    self_attention,
)


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_cold_look_up_is_a_dictionary():
    keys, values = drawn(7, 4), drawn(7, 3, seed=1)
    keys = keys / keys.norm(dim=-1, keepdim=True)
    found = look_up(keys[[5, 0, 5]], keys, values, temperature=1e-3)
    torch.testing.assert_close(found, values[[5, 0, 5]])


def test_a_hot_look_up_is_the_mean():
    values = drawn(7, 3)
    torch.testing.assert_close(look_up(drawn(1, 4), drawn(7, 4), values, temperature=1e9)[0], values.mean(0))


@pytest.mark.parametrize("kernel", [reference_attention, fused_attention])
@pytest.mark.parametrize("away", [0.0, 1e6])
def test_kernel_regression_equals_numpy(kernel, away):
    x, keys, values = drawn(2, 5, 3) + away, drawn(2, 6, 3, seed=1) + away, drawn(2, 6, 2, seed=2)
    squares = ((x.numpy()[:, :, None] - keys.numpy()[:, None]) ** 2).sum(-1)
    weights = np.exp(-squares / (2 * 0.4**2))
    wanted = weights @ values.numpy() / weights.sum(-1, keepdims=True)
    found = kernel_regression(x, keys, values, bandwidth=0.4, kernel=kernel)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_the_nearest_key_decides_with_a_small_bandwidth():
    x, keys, values = drawn(5, 3), drawn(6, 3, seed=1), drawn(6, 2, seed=2)
    nearest = torch.cdist(x, keys).argmin(-1)
    torch.testing.assert_close(kernel_regression(x, keys, values, bandwidth=1e-3), values[nearest])


def test_self_attention_without_parameters():
    x = drawn(2, 5, 4)
    torch.testing.assert_close(self_attention(x, scale=1.0), (x @ x.mT).softmax(-1) @ x)
    torch.testing.assert_close(self_attention(x, mask=CAUSAL)[:, 0], x[:, 0])


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan")])
def test_temperature_and_bandwidth_are_above_0(value):
    x = drawn(2, 3)
    with pytest.raises(ValueError, match=f"temperature is to be above 0: got {value}"):
        look_up(x, x, x, temperature=value)
    with pytest.raises(ValueError, match=f"bandwidth is to be above 0: got {value}"):
        kernel_regression(x, x, x, bandwidth=value)
