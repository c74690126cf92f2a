from collections.abc import Iterator

import pytest
import torch
from safetensors.torch import load, save
from sklearn.preprocessing import StandardScaler

from lawful.blocks import Standardize
from lawful.functions import standardize
from lawful.laws import Claim, agreement, linearity, shape


def data(*sizes, dtype=torch.float32):
    return 3 + 5 * torch.randn(*sizes, generator=torch.Generator().manual_seed(0), dtype=dtype)


def test_equals_scikit_learn_constant_features_included():
    x = data(50, 4, dtype=torch.float64)
    x[:, 2] = 0.1
    layer, fitted = Standardize(4).double().fit(x), StandardScaler().fit(x.numpy())
    new = data(7, 4, dtype=torch.float64) + 1
    torch.testing.assert_close(layer(new), torch.from_numpy(fitted.transform(new.numpy())))
    torch.testing.assert_close(layer.inverse(new), torch.from_numpy(fitted.inverse_transform(new.numpy())))
    assert (layer(x)[:, 2] == 0).all()


def test_moments_of_far_numbers_are_right():
    x = torch.tensor([[1e6], [1e6 + 1], [1e6 + 2]])
    layer = Standardize(1).fit(x)
    torch.testing.assert_close(layer(x), torch.tensor([[-(1.5**0.5)], [0.0], [1.5**0.5]]))


def test_an_axis_of_size_one_is_shared():
    x = data(20, 3, 4, 5, dtype=torch.float64)
    layer = Standardize((3, 1, 1)).double().fit(x)
    torch.testing.assert_close(layer.mean.flatten(), x.mean((0, 2, 3)))
    torch.testing.assert_close(layer.std.flatten(), x.std((0, 2, 3), correction=0))
    torch.testing.assert_close(Standardize((1, 4, 1)).double().fit(x).mean.flatten(), x.mean((0, 1, 3)))
    assert layer(x[0]).shape == (3, 4, 5)


def test_identity_before_fit():
    x = data(2, 3)
    assert torch.equal(Standardize(3)(x), x)


def test_it_is_saved_with_its_moments():
    x = data(9, 3)
    layer, other = Standardize(3).fit(x), Standardize(3)
    other.load_state_dict(load(save(layer.state_dict())))
    assert torch.equal(other(x), layer(x))
    assert not list(layer.parameters())


def test_one_example():
    assert torch.equal(Standardize(2).fit(torch.tensor([[3.0, 4.0]]))(torch.tensor([4.0, 4.0])), torch.tensor([1.0, 0]))


def test_an_underflowing_std_is_1():
    layer = Standardize(1).fit(torch.tensor([[0.0], [1e-60]], dtype=torch.float64))
    assert layer.std.item() == 1


def test_invalid_data_are_rejected():
    with pytest.raises(ValueError, match=r"expected features of shape \(3,\), got a tensor of shape \(5, 2\)"):
        Standardize(3)(torch.zeros(5, 2))
    with pytest.raises(ValueError, match=r"expected features of shape \(3,\), got a tensor of shape \(2, 5, 3\)"):
        Standardize(3).fit(torch.zeros(2, 5, 3))
    with pytest.raises(ValueError, match=r"expected features of shape \(3, 1\), got a tensor of shape \(3,\)"):
        Standardize((3, 1))(torch.zeros(3))
    with pytest.raises(ValueError, match="expected finite data"):
        Standardize(1).fit(torch.tensor([[0.0], [torch.nan]]))
    with pytest.raises(ValueError, match=r"must be finite in torch\.float32"):
        Standardize(1).fit(torch.tensor([[0.0], [1e60]], dtype=torch.float64))
    with pytest.raises(ValueError, match=r"sizes of at least 1, got \(0,\)"):
        Standardize(0)
    with pytest.raises(ValueError, match="at least one row"):
        Standardize(2).fit(torch.zeros(0, 2))


def claims() -> Iterator[Claim]:
    """Second derivations of standardization."""
    layer = Standardize(3).fit(torch.tensor([[1.0, -2.0, 7.0], [3.0, 4.0, 7.0]]))
    yield Claim(linearity(), lambda x: layer(x) - layer(torch.zeros_like(x)), shape("b 3"), name="linear part")

    def channels(x):
        return Standardize((2, 1)).to(x).fit(x)(x)

    both = agreement(other=lambda x: standardize(x, dim=(0, 2)))
    yield Claim(both, channels, shape("n:2..4 2 t:1..3"), name="Standardize((2, 1)).fit")
