from unittest import mock

import numpy as np
import pytest
import torch
from sklearn import datasets

from lawful.data import BUILTIN, digits, load_dataset, mnist1d, moons, sine, sklearn_table


@pytest.mark.parametrize(("samples", "seed"), [(300, 42), (110, 0)])
def test_mnist1d_equals_the_package(samples, seed):
    from mnist1d.data import get_dataset_args, make_dataset

    args = get_dataset_args()
    args.num_samples, args.seed = samples, seed
    state = np.random.get_state()
    expected = make_dataset(args)
    np.random.set_state(state)
    made = mnist1d(samples=samples, seed=seed)
    cut = int(0.8 * samples)
    for x, y, part in (
        (expected["x"], expected["y"], slice(cut)),
        (expected["x_test"], expected["y_test"], slice(cut, None)),
    ):
        np.testing.assert_allclose(made.inputs[part, 0].numpy(), x, atol=1e-6)
        assert (made.targets[part].numpy() == y).all()


def test_mnist1d_leaves_the_random_state_of_numpy_alone():
    before = np.random.get_state()[1].tolist()
    data = mnist1d(samples=100)
    assert np.random.get_state()[1].tolist() == before
    assert data.targets.bincount().tolist() == [10] * 10
    with pytest.raises(ValueError, match="samples must be at least 10, got 9"):
        mnist1d(samples=9)


def test_digits_equal_scikit_learn():
    data, expected = digits(), datasets.load_digits()
    assert (data.inputs.flatten(1).numpy() * 16 == expected.data).all()
    assert (data.targets.numpy() == expected.target).all()
    assert float(data.inputs.max()) == 1


@pytest.mark.parametrize("name", ["iris", "wine", "breast-cancer", "diabetes"])
def test_tables_equal_scikit_learn(name):
    examples, encoding = sklearn_table(name)
    x, y = getattr(datasets, f"load_{name.replace('-', '_')}")(return_X_y=True)
    scale = x.std(0) if name == "diabetes" else 1
    found = examples.inputs.double().numpy()
    found = (found - found.mean(0)) / found.std(0) * scale if name == "diabetes" else found
    np.testing.assert_allclose(found, x, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(examples.targets.flatten().numpy(), y)
    assert encoding.names == examples.columns
    assert encoding.target.levels == examples.classes


def test_moons_lie_on_half_circles():
    data = moons(samples=101, noise=0.0)
    upper, lower = (data.inputs[data.targets == k] for k in (0, 1))
    assert (len(upper), len(lower)) == (51, 50)
    torch.testing.assert_close(upper.square().sum(1), torch.ones(51))
    torch.testing.assert_close((lower - torch.tensor([1.0, 0.5])).square().sum(1), torch.ones(50))
    assert (upper[:, 1] >= 0).all()
    assert (lower[:, 1] <= 0.5).all()
    assert moons(seed=1).fingerprint() == moons(seed=1).fingerprint() != moons(seed=2).fingerprint()


def test_sine_has_the_given_noise_std():
    data = sine(samples=5000, noise=0.3)
    rest = data.targets - torch.sin(2 * torch.pi * data.inputs)
    assert abs(float(rest.std()) - 0.3) < 0.02
    with pytest.raises(ValueError, match="samples must be at least 2"):
        sine(samples=1)
    with pytest.raises(ValueError, match="name must be one of iris"):
        sklearn_table("california")


@pytest.mark.parametrize("name", BUILTIN)
def test_no_network_is_needed(name):
    with mock.patch("socket.socket", side_effect=AssertionError("network")):
        data = load_dataset(name)
    assert torch.isfinite(data.examples.inputs).all()
    assert data.examples.name == name
