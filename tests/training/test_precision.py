import pytest
import torch
from torch import nn

from lawful.training.precision import Precision, compiled
from lawful.training.setup import TrainerConfig


def test_float32_is_untouched():
    said = []
    precision = Precision(TrainerConfig(), said.append)
    with precision.autocast():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
    assert (said, precision.scaler) == ([], None)


def test_bfloat16_computes_in_it_and_keeps_weights_in_float32():
    layer, precision = nn.Linear(2, 1), Precision(TrainerConfig(precision="bfloat16"), print)
    with precision.autocast():
        y = layer(torch.ones(3, 2))
    assert y.dtype == torch.bfloat16
    precision.backward(y.sum())
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    precision.unscale(optimizer)
    precision.step(optimizer)
    precision.end_of_step()
    assert layer.weight.dtype == torch.float32


def test_what_a_device_cannot_do_is_said_in_one_line(monkeypatch):
    said = []
    monkeypatch.setattr(Precision, "_works", lambda self: False)
    precision = Precision(TrainerConfig(precision="float16"), said.append)
    assert said == ["float16 does not work on cpu: float32 is used"]
    assert (precision.kind, precision.scaler) == (torch.float32, None)


def test_a_model_that_cannot_be_compiled_runs_as_it_is(monkeypatch):
    model, said = nn.Linear(2, 1), []
    monkeypatch.setattr(torch, "compile", lambda call: call)

    def trial():
        raise RuntimeError("no compiler\nmore lines")

    compiled(model, trial, said.append)
    assert said == ["the model cannot be compiled and runs as it is: no compiler"]
    assert model(torch.ones(1, 2)).shape == (1, 1)
    assert list(model.state_dict()) == ["weight", "bias"]


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_model_keeps_its_names():
    model, said = nn.Linear(2, 1), []
    compiled(model, lambda: model(torch.ones(1, 2)), said.append)
    assert list(model.state_dict()) == ["weight", "bias"]
