import pytest
import torch
from torch import nn

import lawful
from lawful.blocks import BatchNorm
from lawful.laws import batch_independence, shape

TORCH = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}


def drawn(*sizes, seed=0):
    return 3 + 2 * torch.randn(*sizes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("space", [(), (4,), (2, 3), (2, 1, 2)])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("momentum", [0.1, 1.0, None])
def test_equals_torch_in_training_and_evaluation(space, affine, momentum):
    settings = {"affine": affine, "momentum": momentum, "eps": 1e-3}
    theirs = TORCH[2 + len(space)](3, **settings).double()
    ours = BatchNorm(3, **settings).double()
    if affine:
        nn.init.normal_(theirs.weight, generator=torch.Generator().manual_seed(1))
        nn.init.normal_(theirs.bias, generator=torch.Generator().manual_seed(2))
    ours.load_state_dict(theirs.state_dict())
    for seed in range(3):
        x = drawn(4, 3, *space, seed=seed)
        torch.testing.assert_close(ours(x), theirs(x))
    torch.testing.assert_close(dict(ours.state_dict()), dict(theirs.state_dict()))
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x))


def test_any_number_of_space_axes():
    x = drawn(2, 3, 2, 2, 2, 2)
    torch.testing.assert_close(BatchNorm(3).double()(x), BatchNorm(3).double()(x.flatten(2)).reshape_as(x))


def test_running_averages_settle_on_the_statistics_of_the_data():
    norm, generator = BatchNorm(2, momentum=0.02), torch.Generator().manual_seed(0)
    mean, deviation = torch.tensor([5.0, -1.0]), torch.tensor([2.0, 0.1])
    for _ in range(400):
        norm(mean + deviation * torch.randn(64, 2, generator=generator))
    torch.testing.assert_close(norm.running_mean, mean, rtol=0.02, atol=0.02)
    torch.testing.assert_close(norm.running_var, deviation.square(), rtol=0.05, atol=0)


def test_evaluation_changes_no_average():
    norm = BatchNorm(3).eval()
    before = {name: value.clone() for name, value in norm.state_dict().items()}
    norm(drawn(4, 3).float())
    torch.testing.assert_close(before, dict(norm.state_dict()), rtol=0, atol=0)


def test_the_variance_as_gain_does_not_undo_it():
    x = drawn(8, 3)
    norm = BatchNorm(3, eps=1e-12).double()
    norm.bias.data = x.mean(0)
    norm.weight.data = x.std(0, correction=0)
    torch.testing.assert_close(norm(x), x)
    norm.weight.data = x.var(0, correction=0)
    assert not torch.allclose(norm(x), x, rtol=0.1)


def test_samples_depend_on_each_other_in_training():
    report = lawful.check(BatchNorm(3), batch_independence(), inputs=shape("b:2..4 3 n"))
    assert report.verdicts[0].status == "refuted"


def test_nan_stays_in_its_channel():
    x = drawn(4, 2)
    x[0, 0] = torch.nan
    assert BatchNorm(2).double()(x).isnan().tolist() == [[True, False]] * 4


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match=r"axis 1 is to have size 3: got shape \(2, 4\)"):
        BatchNorm(3)(torch.zeros(2, 4))
    with pytest.raises(ValueError, match=r"more than 1 value per channel when training"):
        BatchNorm(3)(torch.zeros(1, 3))
    with pytest.raises(ValueError, match="eps above 0: got c=3, eps=0"):
        BatchNorm(3, eps=0.0)
    with pytest.raises(ValueError, match="at least 1, and eps above 0: got c=0"):
        BatchNorm(0)
    with pytest.raises(ValueError, match="momentum is from 0 to 1: got 2"):
        BatchNorm(3, momentum=2.0)
